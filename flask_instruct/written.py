"""Take a JSON Schema written by hand as a tool's parameters: refuse a bad one, check a call's arguments by it.

The tool gets plain JSON values, exactly those that the schema lets through.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from datetime import time
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from jsonschema.validators import validator_for
from referencing import Registry

from .arguments import MISSING
from .arguments import UNKNOWN
from .arguments import InvalidArguments
from .arguments import Path
from .arguments import Problem
from .arguments import dotted
from .arguments import mend_all
from .errors import DeclarationError
from .prompt import JsonObject
from .schema import MENDING_ROUNDS
from .schema import Checked
from .schema import Parameters
from .schema import refuse_disagreement
from .schema import refuse_empty_choices
from .signature import Signature


def from_schema(parameters: object, signature: Signature, where: str) -> Parameters:
    """Return the parameters that a JSON Schema declares for a function.

    At the top only the named properties are let through, whether the schema says so or not.

    :param where: class and tool, for the error's text.
    :raises DeclarationError: for what is no valid schema of an object, and where the function disagrees.
    """
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        raise DeclarationError(f"{where}: parameters must be a JSON Schema with type 'object'.")
    try:
        schema: JsonObject = json.loads(json.dumps(parameters, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{where}: parameters is not plain JSON: {error}.") from error
    checker = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        checker.check_schema(schema)
    except SchemaError as error:
        raise DeclarationError(
            f"{where}: parameters is no valid JSON Schema at {error.json_path}: {error.message}"
        ) from error
    refuse_empty_choices(schema, where)
    properties = schema.setdefault("properties", {})
    if schema.get("patternProperties") or schema.get("additionalProperties", False) is not False:
        raise DeclarationError(f"{where}: parameters must name every property; a tool gets only what it declares.")
    if unnamed := sorted(set(schema.get("required", ())) - set(properties)):
        raise DeclarationError(f"{where}: parameters requires {', '.join(unnamed)}, but has no such property.")
    _refuse_far_references(schema, where)
    refuse_disagreement(signature, properties, schema.get("required", ()), where)
    make: Any = extend
    closed = make(checker, type_checker=checker.TYPE_CHECKER.redefine("integer", _is_integer))(
        {**schema, "additionalProperties": False}, format_checker=_FORMATS, registry=Registry()
    )
    return _Written(schema, closed)


def _refuse_far_references(schema: JsonObject, where: str) -> None:
    for node in _nodes(schema):
        reference = node.get("$ref") if isinstance(node, dict) else None
        if isinstance(reference, str) and not _resolves(schema, reference):
            raise DeclarationError(f"{where}: the $ref {reference!r} must point into the tool's own schema.")


def _nodes(node: object) -> Iterator[object]:
    yield node
    children: Iterable[object] = ()
    if isinstance(node, dict):
        children = node.values()
    elif isinstance(node, list):
        children = node
    for child in children:
        yield from _nodes(child)


def _resolves(schema: JsonObject, reference: str) -> bool:
    root, *steps = reference.split("/")
    node: Any = schema
    for step in steps:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return root == "#"


def _is_integer(checker: object, instance: object) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


_FORMATS = jsonschema.FormatChecker(formats=("date", "email", "ipv4", "ipv6", "uuid"))


@_FORMATS.checks("date-time", raises=ValueError)
def _is_datetime(instance: object) -> bool:
    return not isinstance(instance, str) or (len(instance) > 10 and bool(datetime.fromisoformat(instance)))


@_FORMATS.checks("time", raises=ValueError)
def _is_time(instance: object) -> bool:
    return not isinstance(instance, str) or bool(time.fromisoformat(instance).isoformat())


@dataclass(frozen=True)
class _Written:
    schema: JsonObject
    validator: Validator

    def check(self, arguments: JsonObject) -> Checked:
        return self._check(copy.deepcopy(arguments), MENDING_ROUNDS)

    def _check(self, arguments: JsonObject, rounds: int) -> Checked:
        errors = list(self.validator.iter_errors(arguments))
        if not errors:
            return Checked(dict(arguments), arguments)
        wrong = [fault for error in errors for fault in _wrong_types(error)]
        if rounds and mend_all(arguments, wrong):
            return self._check(arguments, rounds - 1)
        raise InvalidArguments(dict.fromkeys(problem for error in errors for problem in _problems(error)))


def _wrong_types(error: Any) -> Iterator[tuple[Path, str]]:
    if error.validator == "type":
        expected = error.validator_value
        for name in [expected] if isinstance(expected, str) else expected:
            yield tuple(error.absolute_path), name
    for inner in error.context or ():
        yield from _wrong_types(inner)


def _problems(error: ValidationError) -> Iterator[Problem]:
    told: Any = best_match([error])
    path = tuple(told.absolute_path)
    if told.validator == "required":
        yield from (
            Problem(dotted((*path, name)), MISSING) for name in told.validator_value if name not in told.instance
        )
    elif told.validator == "additionalProperties" and told.validator_value is False:
        known = told.schema.get("properties", {})
        yield from (Problem(dotted((*path, name)), UNKNOWN) for name in told.instance if name not in known)
    else:
        yield Problem(dotted(path), told.message)
