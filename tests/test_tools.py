"""Tools as they are declared: on methods, beside methods, as classes, inherited, attached, and declared wrongly."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic import Field

from flask_instruct import handlers
from flask_instruct.dialects import NotStrict
from flask_instruct.errors import DeclarationError
from flask_instruct.handlers import AiResponseHandler
from flask_instruct.prompt import ToolCall
from flask_instruct.prompt import ToolSpec
from flask_instruct.tools import Tool
from flask_instruct.tools import ToolContext
from flask_instruct.tools import ToolOutcome
from flask_instruct.tools import ai_tool
from flask_instruct.tools import ai_tools_from
from flask_instruct.tools import run_tool

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@pytest.fixture(autouse=True)
def no_other_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "_registry", {})


def run(handler: AiResponseHandler, name: str, raw: str = "{}", *, approved: bool = False) -> ToolOutcome:
    return run_tool(handler, ToolCall("c1", name, raw), ToolContext("t1", None, name, 1, "key", approved=approved))


def names(handler: AiResponseHandler) -> list[str]:
    return [tool.identifier for tool in handler.ai_tools()]


class Editor(AiResponseHandler, name="test_tools.Editor"):
    """A handler with one tool of each way to declare a method."""

    @ai_tool
    def rename(self, title: str) -> str:
        """Rename it.

        :param title: The new title.
        """
        return f"renamed to {title}"

    @ai_tool(timeout=5, approval=True, preview=True, description="Make it public.", name="publish_now")
    def publish(self) -> None:
        """Words for developers."""

    @ai_tool(description="Say something.", parameters=TEXT)
    def comment(self, text):
        return f"said {text}"

    ai_tool("note", description="Note something.", parameters=TEXT)

    def note(self, text):
        return f"noted {text}"

    def save(self) -> str:
        raise AssertionError("not declared, so never called")


class CreateCategory(Tool):
    """Create a category."""

    kind = "category"
    timeout = 3

    def call(self, name: str, parent: int | None = None) -> str:
        """Create a category with a name.

        Args:
            name: What it is called.
        """
        return f"{type(self.handler).__name__} {self.tool_call.id} {name} {parent}"


class Base(Tool):
    """What several tools share, and no tool."""

    kind = "shared"

    def twice(self, text: str) -> str:
        return text * 2


class Double(Base):
    description = "Double a text."
    identifier = "double-text"

    def call(self, text: str) -> str:
        return self.twice(text)


def test_every_way_to_declare_a_method_makes_a_tool() -> None:
    assert names(Editor()) == ["rename", "publish_now", "comment", "note"]
    assert run(Editor(), "rename", '{"title": "x"}').content == "renamed to x"
    assert run(Editor(), "publish_now", approved=True).content == "Done."
    assert run(Editor(), "comment", '{"text": "x"}').content == "said x"
    assert run(Editor(), "note", '{"text": "x"}').content == "noted x"


def test_a_declared_method_stays_a_method() -> None:
    assert Editor().rename("x") == "renamed to x"
    assert Editor().note(text="x") == "noted x"


def test_specifications_are_those_of_the_seeds() -> None:
    rename, publish, comment, note = Editor.ai_tools_specifications()
    assert rename == {
        "type": "function",
        "function": {
            "name": "rename",
            "description": "Rename it.",
            "parameters": {
                "type": "object",
                "properties": {"title": {"type": "string", "description": "The new title."}},
                "required": ["title"],
                "additionalProperties": False,
            },
        },
    }
    assert publish["function"]["description"] == "Make it public."
    assert comment["function"]["parameters"] == note["function"]["parameters"] == TEXT
    assert Editor().ai_tools_definitions() == Editor.ai_tools_specifications()


def test_options_are_kept_on_the_tool() -> None:
    rename, publish, *_ = Editor().ai_tools()
    assert (rename.timeout, rename.approval, rename.preview, rename.kind) == (10.0, False, False, "tool")
    assert (publish.timeout, publish.approval, publish.preview) == (5, True, True)


def test_a_tool_class_says_what_it_is() -> None:
    assert CreateCategory.identifier == "create_category"
    assert CreateCategory.description == "Create a category with a name."
    assert (CreateCategory.kind, CreateCategory.timeout) == ("category", 3)
    assert CreateCategory.validate_as_tool() is True
    assert CreateCategory.to_tool_schema() == {
        "name": "create_category",
        "description": "Create a category with a name.",
        "parameters_schema": CreateCategory.parameters_schema(),
    }
    assert CreateCategory.spec() == ToolSpec(
        "create_category",
        "Create a category with a name.",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "What it is called."},
                "parent": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    )
    assert CreateCategory.parameters_schema(strict=True)["required"] == ["name", "parent"]
    assert CreateCategory.to_tool_schema(strict=True)["parameters_schema"]["required"] == ["name", "parent"]


def test_a_schema_that_was_handed_out_can_be_changed_without_harm() -> None:
    CreateCategory.parameters_schema()["properties"].clear()
    assert list(CreateCategory.parameters_schema()["properties"]) == ["name", "parent"]


@pytest.mark.parametrize(
    ("name", "identifier"),
    [("HTTPGet", "http_get"), ("Say", "say"), ("ParseHTML5Page", "parse_html5_page"), ("do_it", "do_it")],
)
def test_the_name_of_a_class_is_told_in_snake_case(name: str, identifier: str) -> None:
    made = type(name, (Tool,), {"__doc__": "Do it.", "call": lambda self: None})
    assert made.identifier == identifier


def test_a_base_for_tools_is_no_tool() -> None:
    assert not Base.is_tool()
    assert Double.is_tool()
    assert Double.kind == "shared"
    assert (Double.name, Double.identifier, CreateCategory.name) == ("double-text", "double-text", "create_category")
    with pytest.raises(DeclarationError, match="Base is a base for tools"):
        Base.validate_as_tool()
    with pytest.raises(DeclarationError, match="Base"):
        Base.to_tool_schema()


def test_all_lists_every_tool_and_no_base() -> None:
    everything = Tool.all()
    assert [tool for tool in everything if tool in (CreateCategory, Double)] == [CreateCategory, Double]
    assert set(Editor().ai_tools()) <= set(everything)
    assert Base not in everything
    assert Base.all() == [Double]


def test_all_forgets_what_was_declared_wrongly_or_anew() -> None:
    def declare(description: str) -> type[Tool]:
        class Again(Tool):
            def call(self) -> None: ...

            call.__doc__ = description

        return Again

    first, second = declare("One."), declare("Two.")
    with pytest.raises(DeclarationError):
        declare("")
    again = [tool for tool in Tool.all() if tool.__name__ == "Again"]
    assert again == [second]
    assert first is not second


def test_attached_classes_get_handler_and_call() -> None:
    class Attached(AiResponseHandler):
        ai_tools = [CreateCategory, Double]  # noqa: RUF012

        @ai_tool
        def own(self) -> None:
            """Do it."""

    assert names(Attached()) == ["own", "create_category", "double-text"]
    assert run(Attached(), "create_category", '{"name": "x", "parent": "3"}').content == "Attached t1 x 3"
    assert run(Attached(), "double-text", '{"text": "x"}').content == "xx"


class CategoryParams(BaseModel):
    """A category."""

    name: str = Field(min_length=2)
    parents: list[int] = []


def test_a_params_model_arrives_whole_or_by_field() -> None:
    class Whole(Tool):
        """Take the model."""

        params = CategoryParams

        def call(self, category: CategoryParams) -> str:
            return f"{type(category).__name__} {category.name} {category.parents}"

    class Fields(Tool):
        """Take the fields."""

        params = CategoryParams

        def call(self, name, parents):
            return f"{name} {parents}"

    class Both(AiResponseHandler):
        ai_tools = [Whole, Fields]  # noqa: RUF012

    assert run(Both(), "whole", '{"name": "xy", "parents": ["1"]}').content == "CategoryParams xy [1]"
    assert run(Both(), "fields", '{"name": "xy"}').content == "xy []"
    for name in ("whole", "fields"):
        refusal = run(Both(), name, '{"name": "x", "owner_id": 3}')
        assert "name: String should have at least 2 characters" in refusal.content
        assert "owner_id: is not a known argument" in refusal.content
    assert Whole.parameters_schema()["properties"]["name"] == {"minLength": 2, "type": "string"}
    assert Whole.parameters_schema()["additionalProperties"] is False


def test_tools_are_inherited_and_a_subclass_adds_without_touching_its_parent() -> None:
    class Parent(AiResponseHandler):
        ai_tools = [CreateCategory]  # noqa: RUF012

        @ai_tool
        def first(self) -> str:
            """Do first."""
            return "first"

    class Child(Parent):
        ai_tools = [Double]  # noqa: RUF012

        @ai_tool
        def second(self) -> str:
            """Do second."""
            return "second"

    assert names(Parent()) == ["first", "create_category"]
    assert names(Child()) == ["first", "second", "create_category", "double-text"]
    assert Child().ai_tools()[0] is Parent().ai_tools()[0]
    assert run(Child(), "first").content == "first"


def test_tools_of_a_mixin_that_is_no_handler_are_found() -> None:
    class Mixin:
        @ai_tool
        def mixed(self) -> str:
            """Mix."""
            return "mixed"

    class Mixed(Mixin, AiResponseHandler): ...

    assert run(Mixed(), "mixed").content == "mixed"


def test_an_override_replaces_what_a_tool_does_and_not_what_was_told() -> None:
    class Loud(Editor):
        def rename(self, title, more=1):
            return super().rename(title).upper()

    assert run(Loud(), "rename", '{"title": "x"}').content == "RENAMED TO X"
    assert run(Loud(), "rename", '{"title": "x", "more": 3}').kind == "invalid_arguments"
    assert Loud.ai_tools_specifications() == Editor.ai_tools_specifications()
    assert run(Editor(), "rename", '{"title": "x"}').content == "renamed to x"


def test_an_override_declared_anew_is_a_tool_of_its_own_words() -> None:
    class Anew(Editor):
        @ai_tool
        def rename(self, to: int) -> str:
            """Rename by number."""
            return f"number {to}"

    assert names(Anew()) == ["rename", "publish_now", "comment", "note"]
    assert run(Anew(), "rename", '{"to": 3}').content == "number 3"


def test_an_override_that_takes_other_arguments_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Narrow\.rename has no parameter title"):

        class Narrow(Editor):
            def rename(self):
                return ""

    with pytest.raises(DeclarationError, match=r"Wide\.comment needs other"):

        class Wide(Editor):
            def comment(self, text, other):
                return ""


def test_none_takes_a_tool_away_and_other_things_are_refused() -> None:
    class Less(Editor):
        rename = None  # type: ignore[assignment]

    assert names(Less()) == ["publish_now", "comment", "note"]
    assert run(Less(), "rename", '{"title": "x"}').kind == "unknown_tool"
    with pytest.raises(DeclarationError, match=r"Odd\.rename replaces the tool 'rename'"):

        class Odd(Editor):
            rename = property(lambda self: "x")


def test_a_tool_class_refined_by_a_subclass_takes_its_place() -> None:
    class Triple(Double):
        identifier = "double-text"

        def call(self, text: str) -> str:
            return text * 3

    class Shared(AiResponseHandler):
        ai_tools = [Double]  # noqa: RUF012

    class Refined(Shared):
        ai_tools = [Triple]  # noqa: RUF012

    assert run(Refined(), "double-text", '{"text": "x"}').content == "xxx"
    assert run(Shared(), "double-text", '{"text": "x"}').content == "xx"


def test_an_instance_may_hide_tools() -> None:
    class Shy(Editor):
        ai_tools_hidden = ("rename",)

        def ai_tools(self) -> list[type[Tool]]:
            return [tool for tool in super().ai_tools() if tool.identifier not in self.ai_tools_hidden]

    shy = Shy()
    assert "rename" not in names(shy)
    refusal = run(shy, "rename", '{"title": "x"}')
    assert refusal.kind == "unknown_tool"
    assert refusal.content.endswith("Available tools: comment, note, publish_now.")
    shy.ai_tools_hidden = ()
    assert run(shy, "rename", '{"title": "x"}').content == "renamed to x"
    assert len(Shy.ai_tools_specifications()) == 4
    assert len(shy.ai_tools_definitions()) == 4


def test_tools_are_taken_from_another_class() -> None:
    class Shared:
        @ai_tool
        def who(self) -> str:
            """Tell who."""
            return type(self).__name__

    class First(AiResponseHandler):
        ai_tools = [*ai_tools_from(Shared), *ai_tools_from(Editor)]  # noqa: RUF012

    class Second(First):
        ai_tools = [*ai_tools_from(Shared)]  # noqa: RUF012

    assert names(Second()) == ["who", "rename", "publish_now", "comment", "note"]
    assert run(Second(), "who").content == "Second"


def test_tools_are_taken_from_a_module() -> None:
    @ai_tool
    def greet(handler: Any, name: str) -> str:
        """Greet."""
        return f"{type(handler).__name__} greets {name}"

    class Local(Base):
        """Do it."""

        def call(self) -> None: ...

    module = types.ModuleType("shared_tools")
    for value in (greet, Local):
        value.__module__ = "shared_tools"
    vars(module).update(greet=greet, Local=Local, Base=Base, Tool=Tool, CreateCategory=CreateCategory, other=3)

    class Host(AiResponseHandler):
        ai_tools = [*ai_tools_from(module)]  # noqa: RUF012

    assert names(Host()) == ["greet", "local"]
    assert run(Host(), "greet", '{"name": "x"}').content == "Host greets x"
    module.__all__ = ["CreateCategory"]  # type: ignore[attr-defined]
    assert ai_tools_from(module) == [CreateCategory]


@pytest.mark.parametrize("source", [AiResponseHandler, Tool, CreateCategory, types.ModuleType("empty"), object, 3])
def test_taking_tools_from_where_there_are_none_is_refused(source: Any) -> None:
    with pytest.raises(DeclarationError, match="has no tools"):
        ai_tools_from(source)


def test_a_decorator_around_the_tool_is_part_of_it() -> None:
    def shouting(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs).upper()

        return wrapper

    class Wrapped(AiResponseHandler):
        @shouting
        @ai_tool
        def outside(self, text: str) -> str:
            """Say it."""
            return text

        @ai_tool
        @shouting
        def inside(self, text: str) -> str:
            """Say it."""
            return text

    assert run(Wrapped(), "outside", '{"text": "x"}').content == "X"
    assert run(Wrapped(), "inside", '{"text": "x"}').content == "X"


def test_a_name_as_first_argument_also_decorates() -> None:
    class Named(AiResponseHandler):
        @ai_tool("say-it", description="Say it.")
        def say(self) -> str:
            return "said"

    assert names(Named()) == ["say-it"]
    assert run(Named(), "say-it").content == "said"


def test_a_declaration_by_name_may_mean_an_inherited_method() -> None:
    class Plain:
        def ping(self) -> str:
            return "pong"

    class Declared(Plain, AiResponseHandler):
        ai_tool("ping", description="Ping.")

    assert run(Declared(), "ping").content == "pong"


def test_a_declaration_by_name_may_tell_an_inherited_tool_in_other_words() -> None:
    class Reworded(Editor):
        ai_tool("rename", description="Give it a better title.")

    assert Reworded().ai_tools()[0].description == "Give it a better title."
    assert Editor().ai_tools()[0].description == "Rename it."
    assert run(Reworded(), "rename", '{"title": "x"}').content == "renamed to x"


def declare(**body: Any) -> type[AiResponseHandler]:
    return type("Wrong", (AiResponseHandler,), body)


def described(self) -> None:
    """Do it."""


def undescribed(self) -> None: ...


def only_parameters(self, a: int) -> None:
    """
    :param a: It.
    """


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (lambda: {"do": ai_tool(lambda self: None)}, "do.*has no description"),
        (lambda: {"do": ai_tool(undescribed)}, "do.*has no description"),
        (lambda: {"do": ai_tool(only_parameters)}, "do.*has no description"),
        (lambda: {"do": ai_tool(description=" ")(described)}, "do.*has no description"),
        (lambda: {"do": ai_tool(name="a b")(described)}, "do: the name 'a b'"),
        (lambda: {"do": ai_tool(name="")(described)}, "do: the name ''"),
        (lambda: {"do": ai_tool(name="x" * 65)(described)}, "do: the name"),
        (lambda: {"grüß": ai_tool(described)}, "the name 'grüß'"),
        (lambda: {"do": ai_tool(timeout=0)(described)}, "do.*timeout"),
        (lambda: {"do": ai_tool(timeout=float("inf"))(described)}, "do.*timeout"),
        (lambda: {"do": ai_tool(timeout=True)(described)}, "do.*timeout"),
        (lambda: {"do": ai_tool(timeout="5")(described)}, "do.*timeout"),
        (lambda: {"do": ai_tool(parameters={})(described)}, "do: parameters must be"),
        (lambda: {"do": ai_tool(parameters=TEXT)(described)}, "do has no parameter text"),
        (lambda: {"do": staticmethod(ai_tool(lambda: None))}, "do must be a plain method, not a staticmethod"),
        (lambda: {"do": classmethod(ai_tool(described))}, "do must be a plain method, not a classmethod"),
        (lambda: {"do": property(ai_tool(described))}, "do must be a plain method, not a property"),
        (lambda: {"record": ai_tool(described)}, "record would replace AiResponseHandler.record"),
        (lambda: {"handle_ai_error": ai_tool(described)}, "would replace"),
        (lambda: {"broadcast_replace": ai_tool(described)}, "would replace"),
        (lambda: {"__class__": ai_tool(described)}, "would replace"),
        (lambda: {"call": described}, "call would replace"),
        (lambda: {"a": ai_tool(name="x")(described), "x": ai_tool(described_too)}, "more than one tool named x"),
        (lambda: {"double-text": ai_tool(described), "ai_tools": [Double]}, "more than one tool named double"),
        (lambda: {"ai_tools": [Double, Double]}, "names a tool class twice"),
        (lambda: {"ai_tools": [Base]}, "Base, which lacks a method call"),
        (lambda: {"ai_tools": [Editor]}, "is no tool class"),
        (lambda: {"ai_tools": ["double"]}, "is no tool class"),
        (lambda: {"ai_tools": {"double": Double}}, "must be a list"),
    ],
)  # fmt: skip
def test_a_bad_declaration_fails_with_the_class_and_names_the_tool(
    body: Callable[[], dict[str, Any]], why: str
) -> None:
    with pytest.raises(DeclarationError, match=f"Wrong.*{why}"):
        declare(**body())


def described_too(self) -> None:
    """Do it too."""


def test_the_message_names_class_and_tool() -> None:
    with pytest.raises(DeclarationError) as refusal:

        class Careless(AiResponseHandler):
            @ai_tool
            def publish(self): ...

    assert "Careless.publish" in str(refusal.value)
    assert "docstring" in str(refusal.value)


def test_declaring_beside_a_method_that_does_not_exist_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Absent\.nowhere is declared by name, but there is no such method"):

        class Absent(AiResponseHandler):
            ai_tool("nowhere", description="Do it.", parameters=TEXT)

    with pytest.raises(DeclarationError, match=r"Property\.record is declared by name, but there is no such"):

        class Property(AiResponseHandler):
            ai_tool("record", description="Do it.")

    with pytest.raises(DeclarationError, match=r"Value\.value is declared by name, but"):

        class Value(AiResponseHandler):
            ai_tool("value", description="Do it.")
            value = 3


def test_declaring_a_method_twice_is_refused() -> None:
    with pytest.raises(DeclarationError, match="declares the tool 'do' twice"):

        class Twice(AiResponseHandler):
            ai_tool("do", description="Do it.")
            ai_tool("do", description="Do it.")

    with pytest.raises(DeclarationError, match=r"Both\.do is declared twice"):

        class Both(AiResponseHandler):
            ai_tool("do", description="Do it.")

            @ai_tool(description="Do it.")
            def do(self): ...


@pytest.mark.parametrize(
    "value", [3, None.__class__, classmethod(described), staticmethod(described), property(described)]
)
def test_decorating_what_is_no_method_is_refused(value: Any) -> None:
    with pytest.raises(DeclarationError, match="ai_tool takes"):
        ai_tool(value)


def test_a_tool_class_without_call_or_words_is_refused() -> None:
    with pytest.raises(DeclarationError, match="Mute declares its description but has no method call"):

        class Mute(Tool):
            description = "Do it."

    with pytest.raises(DeclarationError, match=r"Wordless \(wordless\) has no description"):

        class Wordless(Tool):
            def call(self) -> None: ...

    with pytest.raises(DeclarationError, match=r"Untyped \(untyped\).*'a' has no type"):

        class Untyped(Tool):
            """Do it."""

            def call(self, a): ...

    with pytest.raises(DeclarationError, match=r"Kindless \(kindless\): kind"):

        class Kindless(Tool):
            """Do it."""

            kind = ""

            def call(self) -> None: ...

    with pytest.raises(DeclarationError, match="call must be a plain method"):

        class Static(Tool):
            """Do it."""

            @staticmethod
            def call() -> None: ...


def test_a_params_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Other \(other\).*no parameter name, parents"):

        class Other(Tool):
            """Do it."""

            params = CategoryParams

            def call(self, a: int, b: int) -> None: ...

    with pytest.raises(DeclarationError, match=r"Odd \(odd\).*must be a pydantic model"):

        class Odd(Tool):
            """Do it."""

            params = dict  # type: ignore[assignment]

            def call(self, a: int) -> None: ...


def test_a_list_of_tools_on_a_mixin_that_is_no_handler_is_refused() -> None:
    class Mixin:
        ai_tools = [Double]  # noqa: RUF012

    with pytest.raises(DeclarationError, match="Mixin is no handler"):

        class Confused(Mixin, AiResponseHandler): ...


def test_a_tool_with_free_keys_has_no_strict_form_and_says_so() -> None:
    class Free(Tool):
        """Do it."""

        def call(self, notes: dict[str, str]) -> None: ...

    assert Free.parameters_schema()["properties"]["notes"]["type"] == "object"
    with pytest.raises(NotStrict, match="notes"):
        Free.parameters_schema(strict=True)
