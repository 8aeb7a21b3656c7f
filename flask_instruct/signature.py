"""Read what a tool's function says about itself: its parameters, their types and the words of its docstring.

Whatever a model could not be told truthfully (``*args``, a missing type, a generator) is a declaration error.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import typing
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from types import FrameType
from types import FunctionType
from types import UnionType
from typing import Annotated
from typing import Any
from typing import NotRequired
from typing import Required
from typing import Union
from typing import get_args
from typing import get_origin

import docstring_parser
import typing_extensions
from pydantic.fields import FieldInfo

from .errors import DeclarationError

EMPTY = inspect.Parameter.empty

_POSITIONS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_UNTELLABLE: Mapping[object, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only: arguments arrive by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments: name each one",
    inspect.Parameter.VAR_KEYWORD: "takes any argument: a tool gets only what it declares",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool, without ``self``; ``default`` is :data:`EMPTY` where there is none."""

    name: str
    annotation: Any
    default: Any
    description: str

    @property
    def defaulted(self) -> bool:
        """Whether Python itself fills in the parameter; a pydantic ``Field()`` as default does not."""
        return self.default is not EMPTY and not isinstance(self.default, FieldInfo)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function says; ``namespace`` holds the names that its types may refer to."""

    description: str
    parameters: tuple[Parameter, ...]
    namespace: Mapping[str, Any] = field(repr=False)


def read_signature(function: Callable[..., Any], where: str, *, typed: bool = True) -> Signature:
    """Return what the function says about itself.

    :param where: class and tool, for the error's text.
    :param typed: whether each parameter must have a type; an explicit schema makes up for it.
    :raises DeclarationError: for a function that cannot be a tool; says why.
    """
    inner = inspect.unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise DeclarationError(f"{where} is a generator: a tool returns its result, it does not yield.")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind not in _POSITIONS:
        raise DeclarationError(f"{where} must take self as its first parameter.")
    for parameter in parameters[1:]:
        if reason := _UNTELLABLE.get(parameter.kind):
            raise DeclarationError(f"{where}: parameter {parameter} {reason}.")
        if typed and parameter.annotation is EMPTY:
            raise DeclarationError(
                f"{where}: parameter {parameter.name!r} has no type; add a type hint, or declare the tool with "
                "parameters={…}, a JSON Schema."
            )
    described = _docstring(function)
    namespace = _namespace(inner)
    hints = _hints(inner, parameters[1:], namespace, where) if typed else {}
    return Signature(
        described.pop("", ""),
        tuple(Parameter(p.name, hints.get(p.name, Any), p.default, described.get(p.name, "")) for p in parameters[1:]),
        namespace,
    )


def describe(documented: object) -> str:
    """Return the text of a docstring without its parameter sections; empty where there is none."""
    return _docstring(documented).get("", "")


def _docstring(documented: object) -> dict[str, str]:
    """Map parameter names to their texts, and ``""`` to the description; reST, Google and NumPy forms."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return {"": text}
    texts = {"": (parsed.description or "").strip()}
    for entry in parsed.params:
        texts[entry.arg_name.lstrip("*")] = " ".join((entry.description or "").split())
    return texts


def _namespace(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names around a function that is being defined, as an app factory or a test has them."""
    scope = getattr(function, "__globals__", {})
    spaces: list[Mapping[str, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is scope and frame.f_locals is not scope:
            spaces.append(dict(frame.f_locals))
        frame = frame.f_back
    return {name: value for space in reversed(spaces) for name, value in space.items()}


def _hints(
    function: Callable[..., Any], parameters: list[inspect.Parameter], namespace: dict[str, Any], where: str
) -> dict[str, Any]:
    bearer = FunctionType((lambda: None).__code__, getattr(function, "__globals__", {}))
    hints: dict[str, Any] = {}
    for parameter in parameters:  # not the return type: it may be imported for type checkers only
        bearer.__annotations__ = {parameter.name: parameter.annotation}
        try:
            found = typing.get_type_hints(bearer, localns=namespace, include_extras=True)
            hints[parameter.name] = _told_to_pydantic(found[parameter.name], namespace)
        except Exception as error:
            raise DeclarationError(
                f"{where}: the type of parameter {parameter.name!r} cannot be read: {error}. Import it where the "
                "module runs, not for type checkers only."
            ) from error
    return hints


def _told_to_pydantic(annotation: Any, namespace: dict[str, Any]) -> Any:
    """Return the type with ``typing.TypedDict`` replaced, which pydantic refuses before Python 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    if type(annotation) is type(_TypingDict):
        return _extended(annotation, namespace)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or origin is typing.Literal:
        return annotation
    replaced = tuple(_told_to_pydantic(item, namespace) for item in arguments)
    if all(new is old for new, old in zip(replaced, arguments, strict=True)):
        return annotation
    if origin is Annotated:
        return Annotated[(replaced[0], *annotation.__metadata__)]
    if origin in (Union, UnionType):
        return functools.reduce(operator.or_, replaced)
    return origin[replaced if len(replaced) > 1 else replaced[0]]


class _TypingDict(typing.TypedDict):
    """A typed dictionary as Python before 3.12 makes it, to know others by."""


def _extended(source: Any, namespace: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(source, localns=namespace, include_extras=True).items():
        origin = get_origin(hint)
        marked = origin in (NotRequired, Required)
        optional = origin is NotRequired if marked else name in source.__optional_keys__
        inner = _told_to_pydantic(get_args(hint)[0] if marked else hint, namespace)
        fields[name] = NotRequired[inner] if optional else Required[inner]
    make: Any = typing_extensions.TypedDict
    made = make(source.__name__, fields)
    made.__doc__, made.__module__ = source.__doc__, source.__module__
    return made
