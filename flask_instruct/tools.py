"""Declare what a model may do, and gather the tools of a class; also the table of contents of all about tools.

A name that is not declared here can never be called by a model: there is no lookup of attributes by its words.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from functools import cached_property
from types import FunctionType
from types import ModuleType
from typing import Any
from typing import TypeVar
from typing import overload

from .calls import OutcomeKind
from .calls import ToolContext
from .calls import ToolOutcome
from .calls import failure
from .calls import run_tool
from .calls import settle
from .errors import DeclarationError
from .results import render_result
from .schema import Parameters
from .schema import from_signature
from .schema import refuse_disagreement
from .signature import Signature
from .signature import read_signature
from .tool import DEFAULT_TIMEOUT
from .tool import Tool
from .written import from_schema

__all__ = [
    "DEFAULT_TIMEOUT",
    "OutcomeKind",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "ai_tool",
    "ai_tools_from",
    "failure",
    "gather",
    "render_result",
    "run_tool",
    "settle",
]

Function = TypeVar("Function", bound=Callable[..., Any])

TOOLBOX = "_instruct_toolbox"
"""The attribute of a handler class that holds its :class:`Toolbox`; such names meet no column of a model."""

_MARK = "__ai_tool__"
_BESIDE = "__ai_tools_beside__"
_MADE = "__ai_tool_made__"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What was said at ``ai_tool``; ``None`` leaves a value to the function or the default."""

    name: str | None = None
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    timeout: float = DEFAULT_TIMEOUT
    approval: object = False
    preview: bool = False

    def __call__(self, function: Function) -> Function:
        """Mark the function, which stays what it is and can be called as ever."""
        if not isinstance(function, FunctionType):
            raise DeclarationError(f"@ai_tool takes a plain method, not {function!r}: put it nearest to the def.")
        setattr(function, _MARK, self)
        return function


@overload
def ai_tool(declared: Function, /) -> Function: ...


@overload
def ai_tool(
    declared: str | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    approval: object = False,
    preview: bool = False,
) -> Declaration: ...


def ai_tool(declared: Any = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Declare a handler's method as a tool: ``@ai_tool``, ``@ai_tool(timeout=5)``, or beside the method.

    ``ai_tool("publish", description=…, parameters=…)`` as a statement in a class body declares the method of that
    name, also an inherited one; as a decorator it gives the method that name for the model.

    :param name: the tool's name for the model; default: the method's.
    :param description: what it does; default: the docstring's text.
    :param parameters: a JSON Schema of type object, instead of the method's types; the method then gets plain
        JSON values.
    :param timeout: seconds a call may take.
    :param approval: whether a person must approve each call.
    :param preview: whether a call may be carried out and rolled back to show what it would change: it touches nothing
        but the database. A person who is asked for approval then sees that first, and so does the preview of a run.
    :raises DeclarationError: here, or when the class is defined, for what a model could not be told.
    """
    if callable(declared) or isinstance(declared, classmethod | staticmethod | property):
        return Declaration(name, **options)(declared)
    if declared is not None and not isinstance(declared, str):
        raise DeclarationError(f"ai_tool takes a method or the name of one, not {declared!r}.")
    declaration = Declaration(name, **options)
    return declaration if declared is None else _Beside(declared, declaration, sys._getframe(1).f_locals)


class _Beside:
    """A declaration by name: kept in the class body for the method beside it, unless it turns out a decorator."""

    def __init__(self, method: str, declaration: Declaration, body: dict[str, Any]) -> None:
        self.method = method
        self.declaration = declaration
        self.others: dict[str, Declaration] = {}
        if "__qualname__" in body:
            self.others = body.setdefault(_BESIDE, {})
        if method in self.others:
            raise DeclarationError(f"{body['__qualname__']} declares the tool {method!r} twice.")
        self.others[method] = declaration

    def __call__(self, function: Function) -> Function:
        del self.others[self.method]
        return replace(self.declaration, name=self.method)(function)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a class: those made of methods, by attribute, and attached ones; ``own`` were named by itself."""

    methods: Mapping[str, type[Tool]]
    attached: tuple[type[Tool], ...]
    own: tuple[type[Tool], ...]

    @property
    def tools(self) -> tuple[type[Tool], ...]:
        return (*self.methods.values(), *self.attached)


def gather(cls: type, *, attached: object = (), base: type = object) -> Toolbox:
    """Return all tools of a class, inherited ones first.

    A method that overrides a tool without declaring it anew replaces what the tool does, and nothing of what the
    model was told: it must take the same arguments. ``None`` in its place takes the tool away.

    :param attached: the tool classes named in the class's own body.
    :param base: a class whose own attributes no tool may replace.
    :raises DeclarationError: for anything a model could not be told, or that could not be called; names class and tool.
    """
    methods: dict[str, type[Tool]] = {}
    for attribute, method in _methods(cls).items():
        if hasattr(base, attribute):
            raise DeclarationError(f"Tool {cls.__qualname__}.{attribute} would replace {base.__name__}.{attribute}.")
        methods[attribute] = _made(method, cls.__qualname__)
    own = _tool_classes(cls, attached)
    box = Toolbox(methods, _attached(cls, own), own)
    names = [tool.identifier for tool in box.tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(f"{cls.__qualname__} has more than one tool named {', '.join(twice)}.")
    return box


def ai_tools_from(source: type | ModuleType) -> list[type[Tool]]:
    """Return the tools of another class or of a module, for ``ai_tools = [*ai_tools_from(shared)]``.

    Of a class: its methods, which then run with the attaching handler as ``self``, and the tools attached to it.
    Of a module: the tool classes and the ``@ai_tool`` functions that it defines, or lists in ``__all__``.

    :raises DeclarationError: when there is none.
    """
    tools: list[type[Tool]] = []
    if isinstance(source, ModuleType):
        tools = list(_in_module(source))
    elif isinstance(source, type) and not issubclass(source, Tool):
        box = vars(source).get(TOOLBOX) or gather(source)
        tools = list(box.tools)
    if not tools:
        raise DeclarationError(
            f"{source!r} has no tools: ai_tools_from takes a class with @ai_tool methods, or a module."
        )
    return tools


@dataclass(frozen=True, slots=True)
class _Method:
    """A method that is a tool: ``declared`` is what the model is told of, ``body`` what runs."""

    attribute: str
    declaration: Declaration
    declared: FunctionType
    body: FunctionType


_WRAPPERS: Mapping[type, str] = {
    staticmethod: "__func__",
    classmethod: "__func__",
    property: "fget",
    cached_property: "func",
}


def _declaration(value: object) -> Declaration | None:
    return vars(value).get(_MARK) if isinstance(value, FunctionType) else None


def _methods(cls: type) -> dict[str, _Method]:
    found: dict[str, _Method] = {}
    for base in reversed(cls.__mro__):
        beside: dict[str, Declaration] = vars(base).get(_BESIDE, {})
        for attribute, value in vars(base).items():
            where = f"{base.__qualname__}.{attribute}"
            declaration = _declared_here(value, beside.get(attribute), where)
            if declaration:
                found[attribute] = _method(attribute, declaration, value, where)
            elif attribute in found and value is None:
                del found[attribute]
            elif attribute in found and isinstance(value, FunctionType):
                found[attribute] = replace(found[attribute], body=value)
            elif attribute in found:
                raise DeclarationError(f"{where} replaces the tool {attribute!r} by something that is no method.")
        for attribute in [name for name in beside if name not in vars(base)]:
            value = inspect.getattr_static(base, attribute, None)
            found[attribute] = _method(attribute, beside[attribute], value, f"{base.__qualname__}.{attribute}")
    return found


def _declared_here(value: object, beside: Declaration | None, where: str) -> Declaration | None:
    marked = _declaration(value)
    if marked and beside:
        raise DeclarationError(f"Tool {where} is declared twice.")
    wrapped = getattr(value, _WRAPPERS.get(type(value), ""), None)
    if _declaration(wrapped):
        raise DeclarationError(f"Tool {where} must be a plain method, not a {type(value).__name__}.")
    return marked or beside


def _method(attribute: str, declaration: Declaration, value: object, where: str) -> _Method:
    if not isinstance(value, FunctionType):
        raise DeclarationError(f"Tool {where} is declared by name, but there is no such method.")
    return _Method(attribute, declaration, value, value)


def _made(method: _Method, owner: str) -> type[Tool]:
    """Return the tool made of a method; the same one for each class that inherits it unchanged."""
    made: tuple[_Method, type[Tool]] | None = vars(method.body).get(_MADE)
    if made and made[0].declaration is method.declaration and made[0].declared is method.declared:
        return made[1]
    declaration, declared, body = method.declaration, method.declared, method.body
    where = f"Tool {owner}.{method.attribute}"
    signature = read_signature(declared, where, typed=declaration.parameters is None)
    parameters = _parameters(signature, method, where)

    def call(self: Tool, /, **arguments: Any) -> object:
        return body(self.handler, **arguments)

    space = {
        "__module__": declared.__module__,
        "__qualname__": f"{owner}.{method.attribute}",
        "__doc__": declared.__doc__,
        "identifier": method.attribute if declaration.name is None else declaration.name,
        "description": signature.description if declaration.description is None else declaration.description,
        "timeout": declaration.timeout,
        "approval": declaration.approval,
        "preview": declaration.preview,
        "call": call,
    }
    tool: type[Tool] = types.new_class(
        method.attribute, (Tool,), {"parameters": parameters}, lambda ns: ns.update(space)
    )
    setattr(body, _MADE, (method, tool))
    return tool


def _parameters(signature: Signature, method: _Method, where: str) -> Parameters:
    written = method.declaration.parameters
    if written is None:
        parameters = from_signature(signature, where)
        names = [parameter.name for parameter in signature.parameters]
        always = [parameter.name for parameter in signature.parameters if not parameter.defaulted]
    else:
        parameters = from_schema(written, signature, where)
        names, always = list(parameters.schema["properties"]), parameters.schema.get("required", [])
    if method.body is not method.declared:
        refuse_disagreement(read_signature(method.body, where, typed=False), names, always, where)
    return parameters


def _tool_classes(cls: type, own: object) -> tuple[type[Tool], ...]:
    if not isinstance(own, list | tuple):
        raise DeclarationError(f"{cls.__qualname__}.ai_tools must be a list of tool classes, or a method.")
    for tool in own:
        if not (isinstance(tool, type) and issubclass(tool, Tool)):
            raise DeclarationError(f"{cls.__qualname__}.ai_tools has {tool!r}, which is no tool class.")
        if not tool.is_tool():
            raise DeclarationError(f"{cls.__qualname__}.ai_tools has {tool.__qualname__}, which lacks a method call.")
    if len(set(own)) < len(own):
        raise DeclarationError(f"{cls.__qualname__}.ai_tools names a tool class twice.")
    return tuple(own)


def _attached(cls: type, own: tuple[type[Tool], ...]) -> tuple[type[Tool], ...]:
    lists = [box.own for base in reversed(cls.__mro__[1:]) if (box := vars(base).get(TOOLBOX))]
    result: list[type[Tool]] = []
    for tool in [tool for tools in (*lists, own) for tool in tools]:
        refined = [place for place, old in enumerate(result) if _refines(tool, old)]
        if refined:
            result[refined[0]] = tool
        else:
            result.append(tool)
    return tuple(result)


def _refines(tool: type[Tool], old: type[Tool]) -> bool:
    return issubclass(tool, old) and tool.identifier == old.identifier


def _in_module(module: ModuleType) -> Iterator[type[Tool]]:
    listed = getattr(module, "__all__", None)
    for name, value in list(vars(module).items()):
        at_home = getattr(value, "__module__", None) == module.__name__
        if name in listed if listed is not None else at_home:
            if isinstance(value, type) and issubclass(value, Tool) and value.is_tool():
                yield value
            elif declaration := _declaration(value):
                yield _made(_Method(name, declaration, value, value), module.__name__)
