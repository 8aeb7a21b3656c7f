"""An answer of a given shape: what a model is told of it, and what its answer must pass.

Where the provider cannot hold the model to the shape, the shape becomes a tool that ends the talk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from functools import cached_property
from typing import Any

from jsonschema import Draft202012Validator
from pydantic import BaseModel
from pydantic import TypeAdapter
from pydantic import ValidationError

from .arguments import InvalidArguments
from .arguments import Problem
from .arguments import dotted
from .arguments import parse_arguments
from .errors import DeclarationError
from .messages import JsonObject
from .messages import OutputSpec
from .messages import ToolSpec

TOOL_NAME = "final_answer"
TOOL_DESCRIPTION = "Give the final answer. Call this once, alone, when nothing else is left to do."
LONGEST = 1_000_000
"""Bytes of an answer that are read."""


class Unfit(Exception):
    """Raised for an answer of another shape; ``problems`` are its faults."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Output:
    """The shape of an answer.

    :param model: the type that a fitting answer is read into; ``None``: it stays a plain object.
    """

    spec: OutputSpec
    model: Any = field(default=None, compare=False)

    @cached_property
    def _reader(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.model)

    def read(self, text: str) -> Any:
        """Return the value that an answer is.

        :raises Unfit: with every fault.
        """
        written = _without_fence(text)
        if written.strip() in ("", "null"):
            raise Unfit(("It is empty",))
        try:
            data = parse_arguments(written, limit=LONGEST)
        except InvalidArguments as refusal:
            raise Unfit(tuple(str(problem) for problem in refusal.problems)) from None
        if self.model is None:
            found = Draft202012Validator(self.spec.schema).iter_errors(data)
            if faults := tuple(_fault(tuple(error.absolute_path), error.message) for error in found):
                raise Unfit(faults)
            return data
        try:
            return self._reader.validate_json(json.dumps(data))
        except ValidationError as error:
            raise Unfit(tuple(_fault(item["loc"], item["msg"]) for item in error.errors(include_url=False))) from None

    def tool(self, taken: set[str]) -> ToolSpec:
        """Return the tool whose call is the answer, under a name that no other tool has."""
        name = TOOL_NAME
        while name in taken:
            name = f"_{name}"
        said = f" {self.spec.description}" if self.spec.description else ""
        return ToolSpec(name, TOOL_DESCRIPTION + said, self.spec.schema)

    def to_json(self) -> JsonObject:
        """Return the shape as plain JSON data; the type is not in it."""
        return {"name": self.spec.name, "schema": self.spec.schema, "description": self.spec.description}


def output_of(shape: Any) -> Output | None:
    """Return the output that a pydantic model, dataclass, TypedDict, JSON Schema or stored output declares.

    :raises DeclarationError: for anything whose JSON form is not an object.
    """
    if shape is None or isinstance(shape, Output):
        return shape
    if isinstance(shape, Mapping):
        return _from_mapping(shape)
    try:
        schema = TypeAdapter(shape).json_schema()
    except Exception as error:
        raise DeclarationError(f"output={shape!r} cannot be told to a model: {error}") from error
    if schema.get("type") != "object" and "$ref" not in schema:
        raise DeclarationError(f"output={shape!r} must be an object with fields: wrap it in a pydantic model.")
    name = getattr(shape, "__name__", "answer")
    description = (shape.__doc__ or "") if isinstance(shape, type) and issubclass(shape, BaseModel) else ""
    return Output(OutputSpec(name, schema, " ".join(description.split())), shape)


def _from_mapping(shape: Mapping[str, Any]) -> Output:
    stored = isinstance(shape.get("schema"), Mapping)
    schema = dict(shape["schema"] if stored else shape)
    if schema.get("type") != "object" and "$ref" not in schema:
        raise DeclarationError("output must be a JSON Schema of type object.")
    name = str(shape.get("name") or "answer") if stored else str(schema.get("title") or "answer")
    return Output(OutputSpec(name, schema, str(shape.get("description") or "") if stored else ""))


def _without_fence(text: str) -> str:
    """Models that are not held to JSON like to wrap it as Markdown does."""
    stripped = text.strip()
    if not stripped.startswith("```") or not stripped.endswith("```"):
        return text
    return stripped[3:-3].removeprefix("json")


def _fault(path: tuple[int | str, ...], message: str) -> str:
    return str(Problem(dotted(path), message))
