"""Make the JSON Schema that a model is told from a tool's types, and check a call's arguments by the same types.

The types are those of a signature or of a pydantic model; a schema written by hand is the business of ``written``.
"""

from __future__ import annotations

import copy
import json
import re
import types
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from typing import Any
from typing import Protocol
from typing import cast

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import RootModel
from pydantic import ValidationError
from pydantic import create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from .arguments import MISSING
from .arguments import UNKNOWN
from .arguments import InvalidArguments
from .arguments import Path
from .arguments import Problem
from .arguments import dotted
from .arguments import mend_all
from .errors import DeclarationError
from .prompt import JsonObject
from .signature import EMPTY
from .signature import Parameter
from .signature import Signature

MENDING_ROUNDS = 3
"""A mended value can bring to light another one inside it; models do not go wrong deeper than this."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments that passed: by name, as hooks see them, and as keyword arguments for the tool."""

    arguments: JsonObject
    keywords: JsonObject


class Parameters(Protocol):
    """What a tool takes: ``schema`` is what a model is told, ``check`` what its arguments must pass."""

    @property
    def schema(self) -> JsonObject: ...

    def check(self, arguments: JsonObject) -> Checked:
        """Return the values to call the tool with, of the declared types.

        :raises InvalidArguments: with every fault.
        """


def from_signature(signature: Signature, where: str) -> Parameters:
    """Return the parameters that a function's own types declare.

    :param where: class and tool, for the error's text.
    :raises DeclarationError: when a type cannot be told to a model.
    """
    # Fields are numbered and the names are aliases, so that no name meets one of pydantic's own (vercel/ai#19098).
    fields: dict[str, Any] = {f"p{number}": _field(item) for number, item in enumerate(signature.parameters)}
    names = [info.alias for _, info in fields.values()]
    if len(set(names)) < len(names):
        raise DeclarationError(f"{where}: two parameters have one name for the model: {', '.join(names)}.")
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_rebuild(_types_namespace=signature.namespace)
        schema = _told(model)
    except PydanticSchemaGenerationError as error:
        # What pydantic proposes after its first sentence does not help here.
        reason = str(error).partition(". ")[0]
        raise DeclarationError(
            f"{where}: the type of a parameter cannot be told to a model: {reason}. Take the record's id, or a "
            "dataclass or pydantic model of what is to be filled in."
        ) from error
    except Exception as error:
        raise DeclarationError(f"{where}: the type of a parameter cannot be told to a model: {error}") from error
    refuse_empty_choices(schema, where)
    return _Typed(schema, model, signature.parameters)


def from_model(model: type[BaseModel], signature: Signature, where: str) -> Parameters:
    """Return the parameters that a pydantic model declares.

    The tool takes either the model itself, as its one parameter, or the model's fields by name.

    :raises DeclarationError: when it takes neither, or the model cannot be told.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or issubclass(model, RootModel):
        raise DeclarationError(f"{where}: params must be a pydantic model with fields, not {model!r}.")
    names = [parameter.name for parameter in signature.parameters]
    whole = names[0] if len(names) == 1 and names[0] not in model.model_fields else None
    if whole is None:
        refuse_disagreement(signature, model.model_fields, model.model_fields, where)
    config = ConfigDict(extra="forbid")
    try:
        body = {"__module__": model.__module__, "__doc__": model.__doc__, "model_config": config}
        closed = cast(
            "type[BaseModel]", types.new_class(model.__name__, (model,), exec_body=lambda space: space.update(body))
        )
        schema = _told(closed)
    except Exception as error:
        raise DeclarationError(f"{where}: the params model cannot be told to a model: {error}") from error
    refuse_empty_choices(schema, where)
    return _Modelled(schema, closed, whole)


def refuse_disagreement(signature: Signature, names: Iterable[str], required: Iterable[str], where: str) -> None:
    """Refuse a function that could not be called with what a schema lets through.

    :param names: the arguments that may come.
    :param required: those that always come.
    :raises DeclarationError: naming the parameters in question.
    """
    taken = {parameter.name: parameter for parameter in signature.parameters}
    if refused := sorted(set(names) - set(taken)):
        raise DeclarationError(f"{where} has no parameter {', '.join(refused)}, which its schema declares.")
    needed = {name for name, parameter in taken.items() if not parameter.defaulted}
    if lacking := sorted(needed - set(required)):
        raise DeclarationError(
            f"{where} needs {', '.join(lacking)}, which its schema does not require; require it, or give a default."
        )


def refuse_empty_choices(schema: object, where: str) -> None:
    """Refuse a schema with an ``enum`` that nothing can satisfy.

    :raises DeclarationError: when there is one.
    """
    children: Iterable[object] = ()
    if isinstance(schema, Mapping):
        if schema.get("enum") == []:
            raise DeclarationError(f"{where}: an enum without values can never be satisfied.")
        children = schema.values()
    elif isinstance(schema, list):
        children = schema
    for child in children:
        refuse_empty_choices(child, where)


@dataclass(frozen=True)
class _Typed:
    schema: JsonObject
    model: type[BaseModel]
    parameters: tuple[Parameter, ...]

    def check(self, arguments: JsonObject) -> Checked:
        values = _validated(self.model, arguments)
        passed: JsonObject = {}
        keywords: JsonObject = {}
        for number, parameter in enumerate(self.parameters):
            passed[parameter.name] = getattr(values, f"p{number}")
            if f"p{number}" in values.model_fields_set or not parameter.defaulted:
                keywords[parameter.name] = passed[parameter.name]
        return Checked(passed, keywords)


@dataclass(frozen=True)
class _Modelled:
    schema: JsonObject
    model: type[BaseModel]
    whole: str | None

    def check(self, arguments: JsonObject) -> Checked:
        values = _validated(self.model, arguments)
        passed = {name: getattr(values, name) for name in self.model.model_fields}
        return Checked(passed, {self.whole: values} if self.whole else passed)


def _field(parameter: Parameter) -> tuple[Any, FieldInfo]:
    annotation, options = parameter.annotation, dict[str, Any]()
    if isinstance(parameter.default, FieldInfo):
        annotation = Annotated[annotation, parameter.default]
    elif parameter.default is not EMPTY:
        options["default"] = parameter.default
    declared = [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, FieldInfo)]
    if parameter.description and not any(info.description for info in declared):
        options["description"] = parameter.description
    alias = next((info.alias for info in declared if info.alias), parameter.name)
    info: FieldInfo = Field(alias=alias, validation_alias=alias, serialization_alias=alias, **options)
    return annotation, info


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _told(model: type[BaseModel]) -> JsonObject:
    made = model.model_json_schema(schema_generator=_Generator)
    for part in (made, *made.get("$defs", {}).values()):
        part.pop("title", None)
    return {"type": "object", "properties": {}, **made}


_TEXTS = {"missing": MISSING, "extra_forbidden": UNKNOWN, "unexpected_keyword_argument": UNKNOWN}
"""Our words for pydantic's kinds of error; its own words for the others."""

_EXPECTED = {"int_type": "integer", "float_type": "number", "bool_type": "boolean"}
"""The JSON type that pydantic found missing."""

_UNMENDABLE = frozenset({*_TEXTS, "value_error", "assertion_error"})


def _validated(model: type[BaseModel], arguments: JsonObject, rounds: int = MENDING_ROUNDS) -> BaseModel:
    """Validate in pydantic's strict JSON mode: an ISO date is read, a boolean is no number; see ``mend_all``."""
    try:
        values = model.model_validate_json(json.dumps(arguments), strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        faults = [(item["type"], _place(item["type"], item["loc"], arguments), item["msg"]) for item in found]
    else:
        if misread := list(_misread(arguments, values, ())):
            raise InvalidArguments(misread)
        return values
    mended = copy.deepcopy(arguments)
    wrong = [(path, _EXPECTED.get(kind, "")) for kind, path, _ in faults if kind not in _UNMENDABLE]
    if rounds and mend_all(mended, wrong):
        return _validated(model, mended, rounds - 1)
    raise InvalidArguments(dict.fromkeys(Problem(dotted(path), _TEXTS.get(kind, msg)) for kind, path, msg in faults))


def _place(kind: str, location: Path, arguments: JsonObject) -> Path:
    """Return where in the arguments pydantic's error is: its location also names members of unions."""
    node: Any = arguments
    path: list[str | int] = []
    for step in location:
        is_key = isinstance(node, dict) and step in node
        is_index = isinstance(node, list) and isinstance(step, int) and step < len(node)
        if is_key or is_index:
            node = node[step]
            path.append(step)
    return (*path, location[-1]) if kind == "missing" else tuple(path)


def _misread(given: object, value: object, path: Path) -> Iterator[Problem]:
    """Find what pydantic reads even in strict mode: true as the enum or literal 1, "5" as a date of 1970."""
    if isinstance(given, dict):
        values = _named(value)
        for name, item in given.items():
            yield from _misread(item, values.get(name), (*path, name))
    elif isinstance(given, list) and isinstance(value, list | tuple):
        for number, (item, part) in enumerate(zip(given, value, strict=False)):
            yield from _misread(item, part, (*path, number))
    elif isinstance(given, bool) and not isinstance(value, bool) and isinstance(getattr(value, "value", value), int):
        yield Problem(dotted(path), "Input should not be a boolean")
    elif isinstance(given, str) and isinstance(value, datetime) and re.fullmatch(r"[+-]?[0-9.]+", given.strip()):
        yield Problem(dotted(path), "Input should be a date and time in ISO 8601 form")


def _named(value: object) -> Mapping[str, object]:
    """Return the parts of a value by the names that they have in JSON."""
    if isinstance(value, Mapping):
        return value
    parts: dict[str, object] = getattr(value, "__dict__", {})
    if not isinstance(value, BaseModel):
        return parts
    return {info.alias or name: parts.get(name) for name, info in type(value).model_fields.items()}
