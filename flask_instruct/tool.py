"""The one kind of tool: what a model is told about it, and what its arguments must pass.

Written by inheriting :class:`Tool`; a handler's method with ``@ai_tool`` becomes a subclass of it too.
"""

from __future__ import annotations

import copy
import inspect
import math
import re
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar

from pydantic import BaseModel

from .dialects import strict_form
from .effects import promise
from .errors import DeclarationError
from .prompt import JsonObject
from .prompt import ToolSpec
from .schema import Checked
from .schema import Parameters
from .schema import from_model
from .schema import from_signature
from .signature import describe
from .signature import read_signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from .calls import ToolContext
    from .handlers import AiResponseHandler

DEFAULT_TIMEOUT = 10.0
"""Seconds that a tool may take when it says nothing else."""

_IDENTIFIER = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that every provider takes."""


class Tool:
    """Inherit to write a tool that several handlers share; attach it with ``ai_tools = [ThisTool]``.

    Parameters come from the types and docstring of :meth:`call`, or from a pydantic model in ``params``, which
    ``call`` takes whole as its one parameter, or by field; what that model does not name is refused. A subclass
    without ``call``, description and identifier is a base for others and no tool yet.
    """

    description: ClassVar[str] = ""
    """What it does, for the model; default: the docstring of ``call``, else of the class."""
    identifier: ClassVar[str] = ""
    """Its name for the model; default: the class name in snake case. ``name`` is another word for it."""
    name: ClassVar[str] = ""
    kind: ClassVar[str] = "tool"
    """A word to group tools by."""
    timeout: ClassVar[float] = DEFAULT_TIMEOUT
    """Seconds a call may take."""
    approval: ClassVar[object] = False
    """Whether a person must approve each call."""
    preview: ClassVar[bool] = False
    """Whether a call may be run for a preview and rolled back: it touches nothing but the database."""
    params: ClassVar[type[BaseModel] | None] = None
    """A pydantic model of the parameters, instead of the signature of ``call``."""

    _parameters: ClassVar[Parameters | None] = None

    handler: AiResponseHandler
    tool_call: ToolContext

    if TYPE_CHECKING:  # each subclass has a ``call`` of its own signature
        call: Callable[..., object]

    def __init__(self, handler: AiResponseHandler, tool_call: ToolContext) -> None:
        self.handler = handler
        self.tool_call = tool_call

    def after_commit(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Have a method of this class, or of the handler, called once this call's edits are committed.

        As :meth:`AiResponseHandler.after_commit <flask_instruct.AiResponseHandler.after_commit>`.
        """
        promise(self.tool_call, {"tool": self, "handler": self.handler}, function, args, kwargs)

    def __init_subclass__(cls, *, parameters: Parameters | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._parameters = None
        own = vars(cls)
        call = inspect.getattr_static(cls, "call", None)
        if call is None:
            if named := [name for name in ("description", "identifier", "params") if name in own]:
                raise DeclarationError(f"Tool {cls.__qualname__} declares its {named[0]} but has no method call.")
            return
        if not inspect.isfunction(call):
            raise DeclarationError(f"Tool {cls.__qualname__}: call must be a plain method.")
        cls.name = cls.identifier = own.get("identifier", own.get("name", _snake_case(cls.__name__)))
        if "description" not in own:
            cls.description = describe(own.get("call")) or describe(cls) or cls.description
        made = parameters or _parameters_of(cls, call)
        _check_options(cls)
        cls._parameters = made

    @classmethod
    def all(cls) -> list[type[Tool]]:
        """Return every tool below this class that is defined now, methods of handlers included, oldest first."""
        found: dict[tuple[str, str], type[Tool]] = {}
        for sub in cls.__subclasses__():
            for tool in [sub, *sub.all()]:
                if tool.is_tool():
                    found[tool.__module__, tool.__qualname__] = tool
        return list(found.values())

    @classmethod
    def is_tool(cls) -> bool:
        """Return whether this class is a tool, and not a base for tools."""
        return cls._parameters is not None

    @classmethod
    def validate_as_tool(cls) -> bool:
        """Return ``True`` when a model can be told of this tool.

        :raises DeclarationError: otherwise; names the class, the tool and what is missing.
        """
        cls._declared()
        _check_options(cls)
        return True

    @classmethod
    def parameters_schema(cls, *, strict: bool = False) -> JsonObject:
        """Return the JSON Schema of the parameters, a copy to change at will.

        :param strict: in the form that strict modes of providers demand.
        :raises NotStrict: when there is no such form.
        """
        schema = cls._declared().schema
        return strict_form(schema) if strict else copy.deepcopy(schema)

    @classmethod
    def to_tool_schema(cls, *, strict: bool = False) -> JsonObject:
        """Return name, description and ``parameters_schema``, in the form of no provider."""
        return {
            "name": cls.identifier,
            "description": cls.description,
            "parameters_schema": cls.parameters_schema(strict=strict),
        }

    @classmethod
    def spec(cls) -> ToolSpec:
        """Return what a request to a model carries about this tool."""
        return ToolSpec(cls.identifier, cls.description, cls.parameters_schema())

    @classmethod
    def check(cls, arguments: JsonObject) -> Checked:
        """Return the values to call this tool with.

        :raises InvalidArguments: with every fault of the arguments.
        """
        return cls._declared().check(arguments)

    @classmethod
    def _declared(cls) -> Parameters:
        if cls._parameters is None:
            raise DeclarationError(f"{cls.__qualname__} is a base for tools and no tool: it has no method call.")
        return cls._parameters


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _parameters_of(cls: type[Tool], call: Callable[..., object]) -> Parameters:
    where = f"Tool {cls.__qualname__} ({cls.identifier}): call"
    signature = read_signature(call, where, typed=cls.params is None)
    return from_signature(signature, where) if cls.params is None else from_model(cls.params, signature, where)


def _check_options(cls: type[Tool]) -> None:
    where = f"Tool {cls.__qualname__}"
    if not isinstance(cls.identifier, str) or not _IDENTIFIER.fullmatch(cls.identifier):
        raise DeclarationError(
            f"{where}: the name {cls.identifier!r} must be 1 to 64 of a-z, A-Z, 0-9, underscore and hyphen."
        )
    if not isinstance(cls.description, str) or not cls.description.strip():
        raise DeclarationError(f"{where} ({cls.identifier}) has no description: write a docstring or description=….")
    is_number = isinstance(cls.timeout, int | float) and not isinstance(cls.timeout, bool)
    if not is_number or not 0 < cls.timeout < math.inf:
        raise DeclarationError(f"{where} ({cls.identifier}): timeout must be seconds above 0, not {cls.timeout!r}.")
    if not isinstance(cls.kind, str) or not cls.kind.strip():
        raise DeclarationError(f"{where} ({cls.identifier}): kind must be a word, not {cls.kind!r}.")
