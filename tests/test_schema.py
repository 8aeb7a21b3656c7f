"""Types and docstrings become the schema that a model is told, and the check that its arguments must pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from datetime import date
from datetime import datetime
from datetime import time
from decimal import Decimal
from enum import Enum
from enum import IntEnum
from typing import Annotated
from typing import Any
from typing import Literal
from typing import NotRequired
from typing import Optional
from typing import TypedDict
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel
from pydantic import BeforeValidator
from pydantic import Field

from flask_instruct.arguments import InvalidArguments
from flask_instruct.errors import DeclarationError
from flask_instruct.schema import Parameters
from flask_instruct.schema import from_signature
from flask_instruct.signature import read_signature

MISSING: Any = object()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Criterion:
    title: str
    weight: int = 10


class Comment(TypedDict):
    """What somebody said."""

    body: str
    stars: NotRequired[int]


class Place(BaseModel):
    city: str
    lines: list[str] = []


def parameters(function: Callable[..., Any]) -> Parameters:
    return from_signature(read_signature(function, "Handler.tool"), "Handler.tool")


def told(function: Callable[..., Any]) -> dict[str, Any]:
    schema = parameters(function).schema
    Draft202012Validator.check_schema(schema)
    return schema


def passed(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    return parameters(function).check(arguments).keywords


def refused(function: Callable[..., Any], **arguments: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as refusal:
        parameters(function).check(arguments)
    return [str(problem) for problem in refusal.value.problems]


def test_a_tool_without_parameters_is_told_as_an_empty_object() -> None:
    def tool(self): ...

    assert told(tool) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_plain_types_defaults_and_choices_are_told() -> None:
    def tool(self, a: str, b: int = 3, c: float | None = None, d: Literal["x", "y"] = "x", e: Optional[bool] = None):  # noqa: UP045
        ...

    assert told(tool) == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer", "default": 3},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "d": {"type": "string", "enum": ["x", "y"], "default": "x"},
            "e": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_structures_are_told_and_arrive_as_what_they_are() -> None:
    def tool(self, a: list[Criterion], b: Comment, c: Place, d: dict[str, int], e: Colour, f: Level): ...

    schema = told(tool)
    assert schema["properties"]["a"] == {"type": "array", "items": {"$ref": "#/$defs/Criterion"}}
    assert schema["$defs"]["Criterion"]["properties"] == {
        "title": {"type": "string"},
        "weight": {"type": "integer", "default": 10},
    }
    assert schema["$defs"]["Comment"]["description"] == "What somebody said."
    assert schema["$defs"]["Comment"]["required"] == ["body"]
    assert schema["$defs"]["Colour"] == {"enum": ["red", "blue"], "type": "string"}
    values = passed(tool, a=[{"title": "x"}], b={"body": "y"}, c={"city": "z"}, d={"n": 1}, e="blue", f=2)
    assert values == {
        "a": [Criterion("x", 10)],
        "b": {"body": "y"},
        "c": Place(city="z"),
        "d": {"n": 1},
        "e": Colour.BLUE,
        "f": Level.HIGH,
    }


def test_dates_decimals_and_uuids_are_read_from_text() -> None:
    def tool(self, a: datetime, b: date, c: time, d: Decimal, e: UUID, f: Decimal): ...

    values = passed(tool, a="2026-03-01T12:00:00Z", b="2026-03-01", c="12:30", d="1.10", e=str(UUID(int=5)), f=19.99)
    assert values == {
        "a": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "b": date(2026, 3, 1),
        "c": time(12, 30),
        "d": Decimal("1.10"),
        "e": UUID(int=5),
        "f": Decimal("19.99"),
    }
    assert not re.search(r"\(\?[!=<]", str(told(tool)))


@pytest.mark.parametrize("typed", [int, float, Decimal, Level, str, date, Literal[1, 2]])
def test_a_boolean_is_nothing_but_a_boolean(typed: Any) -> None:
    def tool(self, value): ...

    tool.__annotations__["value"] = typed
    assert refused(tool, value=True)[0].startswith("value: ")


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        (int, "abc"),
        (int, "3.5"),
        (int, 3.5),
        (int, "1e3"),
        (int, "٣"),
        (int, str(2**63)),
        (int, [3]),
        (float, "1e999"),
        (float, "nan"),
        (float, "three"),
        (bool, 1),
        (bool, "yes"),
        (bool, 0),
        (str, 3),
        (str, None),
        (str, ["x"]),
        (date, "5"),
        (date, 5),
        (datetime, 5),
        (datetime, "5"),
        (datetime, "1700000000"),
        (datetime, "tomorrow"),
        (Decimal, "NaN"),
        (Decimal, "x"),
        (UUID, "x"),
        (Colour, "green"),
        (list[int], "1,2"),
        (dict[str, int], "{}"),
        (Criterion, "x"),
    ],
)
def test_what_would_have_to_be_guessed_is_refused(typed: Any, value: object) -> None:
    def tool(self, value): ...

    tool.__annotations__["value"] = typed
    assert refused(tool, value=value)[0].startswith("value: ")


@pytest.mark.parametrize(
    ("typed", "value", "read"),
    [
        (int, "3", 3),
        (int, " -3 ", -3),
        (int, 3.0, 3),
        (float, "2.5", 2.5),
        (float, 3, 3.0),
        (bool, "true", True),
        (bool, "False", False),
        (int | None, "3", 3),
        (list[int], ["1", 2.0], [1, 2]),
        (int | str, "3", "3"),
        (int | list[int], ["3"], [3]),
        (dict[str, list[int]], {"a": ["1"]}, {"a": [1]}),
        (Criterion, {"title": "x", "weight": "5"}, Criterion("x", 5)),
    ],
)
def test_what_can_be_read_in_one_way_only_is_read(typed: Any, value: object, read: object) -> None:
    def tool(self, value): ...

    tool.__annotations__["value"] = typed
    assert passed(tool, value=value) == {"value": read}
    assert type(passed(tool, value=value)["value"]) is type(read)


def test_a_null_that_is_not_allowed_counts_as_not_given() -> None:
    def tool(self, a: int, b: int = 3, c: int | None = 4): ...

    assert passed(tool, a=1, b=None, c=None) == {"a": 1, "c": None}
    assert refused(tool, a=None) == ["a: is required"]


def test_all_faults_are_told_at_once_with_dotted_paths() -> None:
    def tool(self, criteria: list[Criterion], title: str, colour: Colour): ...

    assert refused(tool, criteria=[{"title": 1}, {"title": "x", "weight": "heavy"}, 7], colour="green", owner_id=9) == [
        "criteria.0.title: Input should be a valid string",
        "criteria.1.weight: Input should be a valid integer",
        "criteria.2: Input should be an object",
        "title: is required",
        "colour: Input should be 'red' or 'blue'",
        "owner_id: is not a known argument",
    ]


def test_members_of_a_union_are_not_part_of_a_path() -> None:
    def tool(self, value: int | list[int]): ...

    assert {problem.split(":")[0] for problem in refused(tool, value=["x"])} == {"value", "value.0"}


def test_what_is_not_declared_never_passes_at_any_depth() -> None:
    def tool(self, criterion: Criterion, comment: Comment): ...

    assert refused(
        tool,
        criterion={"title": "x", "is_admin": True},
        comment={"body": "y", "owner_id": 1},
        self=None,
        session=1,
    ) == [
        "criterion.is_admin: is not a known argument",
        "comment.owner_id: is not a known argument",
        "self: is not a known argument",
        "session: is not a known argument",
    ]


def test_constraints_of_a_field_hold_and_are_told() -> None:
    def tool(
        self,
        weight: Annotated[int, Field(ge=0, le=100, description="In percent.")],
        title: str = Field("none", max_length=5),
    ): ...

    assert told(tool)["properties"] == {
        "weight": {"type": "integer", "minimum": 0, "maximum": 100, "description": "In percent."},
        "title": {"type": "string", "maxLength": 5, "default": "none"},
    }
    assert passed(tool, weight="7") == {"weight": 7, "title": "none"}
    assert len(refused(tool, weight=101, title="too long")) == 2


def test_a_field_may_name_what_python_cannot() -> None:
    def tool(self, from_: Annotated[str, Field(alias="from")]): ...

    assert list(told(tool)["properties"]) == ["from"]
    assert passed(tool, **{"from": "here"}) == {"from_": "here"}
    assert refused(tool, from_="here") == ["from: is required", "from_: is not a known argument"]


def test_two_parameters_with_one_name_are_refused() -> None:
    def tool(self, a: int, b: Annotated[int, Field(alias="a")]): ...

    with pytest.raises(DeclarationError, match=r"Handler\.tool: two parameters have one name"):
        parameters(tool)


def test_an_own_validator_is_asked_and_its_words_are_told() -> None:
    def even(value: object) -> object:
        if not isinstance(value, int) or value % 2:
            raise ValueError("must be even")
        return value

    def tool(self, value: Annotated[int, BeforeValidator(even)]): ...

    assert passed(tool, value=4) == {"value": 4}
    assert refused(tool, value=3) == ["value: Value error, must be even"]


def test_parameters_may_be_named_like_anything_inside() -> None:
    names = [
        "cls",
        "session",
        "handler",
        "call",
        "schema",
        "json",
        "copy",
        "model_config",
        "model_fields",
        "p0",
        "dict",
    ]
    names += ["arguments", "model_validate_json", "record", "parallel", "name", "_hidden", "__class__", "validate"]
    source = f"def tool(this, self: int, {', '.join(f'{name}: int = 0' for name in names)}): ..."
    space: dict[str, Any] = {}
    exec(source, space)
    tool = space["tool"]
    assert list(told(tool)["properties"]) == ["self", *names]
    assert passed(tool, **dict.fromkeys(["self", *names], 5)) == dict.fromkeys(["self", *names], 5)


def test_a_default_is_left_to_python() -> None:
    def tool(self, a: Any = MISSING, b: list[int] = []): ...  # noqa: B006

    assert passed(tool) == {}
    assert told(tool)["properties"]["a"] == {}
    checked = parameters(tool).check({"b": [1]})
    assert checked.arguments == {"a": MISSING, "b": [1]}


def rest(self, new: str, limit: int = 3):
    """Replace the main instructions.

    They are shown at the top.

    :param new: The revised text,
        in full.
    :param limit: How many.
    :returns: Nothing to speak of.
    """


def google(self, new: str, limit: int = 3):
    """Replace the main instructions.

    They are shown at the top.

    Args:
        new: The revised text,
            in full.
        limit (int): How many.

    Returns:
        Nothing to speak of.
    """


def numpy(self, new: str, limit: int = 3):
    """Replace the main instructions.

    They are shown at the top.

    Parameters
    ----------
    new : str
        The revised text,
        in full.
    limit : int, optional
        How many.

    Returns
    -------
    str
        Nothing to speak of.
    """


@pytest.mark.parametrize("tool", [rest, google, numpy])
def test_docstrings_of_each_style_describe_tool_and_parameters(tool: Callable[..., Any]) -> None:
    assert read_signature(tool, "x").description == "Replace the main instructions.\n\nThey are shown at the top."
    properties = told(tool)["properties"]
    assert properties["new"]["description"] == "The revised text, in full."
    assert properties["limit"]["description"] == "How many."


def test_a_docstring_that_cannot_be_parsed_is_taken_as_it_is() -> None:
    def tool(self):
        """Do it.

        :param
        """

    assert read_signature(tool, "x").description.startswith("Do it.")


def test_types_that_are_local_to_a_function_are_found() -> None:
    class Size(Enum):
        BIG = "big"

    class Box(TypedDict):
        size: Size

    def tool(self, size: Size, boxes: list[Box]) -> OnlyForTypeCheckers: ...  # noqa: F821

    assert passed(tool, size="big", boxes=[{"size": "big"}]) == {"size": Size.BIG, "boxes": [{"size": Size.BIG}]}


def test_typed_dicts_of_python_are_found_inside_other_types() -> None:
    def tool(self, a: list[Comment | None], b: Annotated[Comment, Field(description="One.")]): ...

    assert passed(tool, a=[None, {"body": "x", "stars": "4"}], b={"body": "y"}) == {
        "a": [None, {"body": "x", "stars": 4}],
        "b": {"body": "y"},
    }


class Nothing(Enum):
    """An enum that nobody has filled."""


def some_generator(self):
    yield 1


async def some_async_generator(self):
    yield 1


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("def tool(self, a): ...", "parameter 'a' has no type"),
        ("def tool(self, a=3): ...", "parameter 'a' has no type"),
        ("def tool(self, *a: int): ...", "any number of arguments"),
        ("def tool(self, **a: int): ...", "takes any argument"),
        ("def tool(self, a: int, /): ...", "positional-only"),
        ("def tool(): ...", "must take self"),
        ("def tool(*, self): ...", "must take self"),
        ("def tool(self): yield 1", "generator"),
        ("async def tool(self): yield 1", "generator"),
        ("def tool(self, a: 'NowhereToBeFound'): ...", "NowhereToBeFound"),
        ("def tool(self, a: object()): ...", "cannot be"),
        ("def tool(self, a: Nothing): ...", "enum without values"),
        ("def tool(self, a: Callable[[], int]): ...", "cannot be told"),
        ("def tool(self, a: Unknown): ...", "cannot be told"),
    ],
)
def test_a_function_that_cannot_be_told_truthfully_is_refused(declared: str, why: str) -> None:
    class Unknown: ...

    space: dict[str, Any] = {"Nothing": Nothing, "Callable": Callable, "Unknown": Unknown}
    exec(declared, space)
    with pytest.raises(DeclarationError, match=r"Handler\.tool") as refusal:
        parameters(space["tool"])
    assert why in str(refusal.value)
    assert "arbitrary_types_allowed" not in str(refusal.value)
