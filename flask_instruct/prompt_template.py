"""Prompt templates: Jinja blocks ``{% system %}``, ``{% user %}`` and ``{% assistant %}`` that become messages.

Roles are decided when the template is compiled. A value is only ever text inside a block, whatever it looks like.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from typing import cast

from jinja2 import Environment
from jinja2 import StrictUndefined
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from .errors import ConfigurationError
from .errors import DeclarationError

TemplateRole = Literal["system", "user", "assistant"]


@dataclass(slots=True)
class _Collected:
    messages: list[tuple[TemplateRole, str]] = field(default_factory=list)
    inside: bool = False


_collected: ContextVar[_Collected] = ContextVar("flask_instruct_prompt_template")


class RoleBlocks(Extension):
    """Collect what is rendered inside a role block as one message."""

    tags = {"system", "user", "assistant"}  # noqa: RUF012 (the attribute is Jinja's)

    def parse(self, parser: Parser) -> nodes.Node:
        """Compile a role block into a call that takes its rendered body."""
        token = next(parser.stream)
        body = parser.parse_statements((f"name:end{token.value}",), drop_needle=True)
        call = self.call_method("_collect", [nodes.Const(token.value)])
        return nodes.CallBlock(call, [], [], body).set_lineno(token.lineno)

    def _collect(self, role: str, caller: Callable[[], str]) -> str:
        collected = _collected.get()
        if collected.inside:
            raise DeclarationError(f"A {role} block stands inside another; a message has one role.")
        collected.inside = True
        try:
            text = caller()
        finally:
            collected.inside = False
        if text.strip():
            collected.messages.append((cast(TemplateRole, role), str(text).strip()))
        return ""


def render(template: str, environment: Environment | None, values: Mapping[str, Any]) -> list[tuple[TemplateRole, str]]:
    """Return the messages of a template as role and text; blank ones are left out.

    :param environment: where the template is looked up; unset: that of the current Flask app.
    :raises DeclarationError: for text outside the blocks, and for blocks inside blocks.
    :raises ConfigurationError: without an environment and without an app.
    """
    source = _for_prompts(environment or _environment_of_app())
    token = _collected.set(_Collected())
    try:
        outside = source.get_template(template).render(values).strip()
        messages = _collected.get().messages
    finally:
        _collected.reset(token)
    if outside:
        raise DeclarationError(
            f"{template!r} has text outside its system, user and assistant blocks: {outside[:80]!r}."
        )
    return messages


def _environment_of_app() -> Environment:
    from flask import current_app

    if not current_app:
        raise ConfigurationError(
            "There is no Flask app here to find prompt templates in: pass environment=jinja2.Environment(…)."
        )
    return current_app.jinja_env


def _for_prompts(environment: Environment) -> Environment:
    """Return an overlay that knows the role blocks, escapes nothing and refuses unknown names; made once."""
    overlay = getattr(environment, "instruct_prompts", None)
    if not isinstance(overlay, Environment):
        overlay = environment.overlay(extensions=[RoleBlocks], autoescape=False, undefined=StrictUndefined)
        environment.extend(instruct_prompts=overlay)
    return overlay
