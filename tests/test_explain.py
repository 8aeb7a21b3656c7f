"""``flask instruct tools`` lists what a model may call, and says how each provider is told it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from typing import Any

import pytest
from click.testing import Result
from flask import Flask
from pydantic import Field

from flask_instruct import AiResponseHandler
from flask_instruct import ai_tool
from flask_instruct import handlers
from flask_instruct.cli import instruct

from .support import Process


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, type[AiResponseHandler]]:
    """No handlers but the test's own."""
    empty: dict[str, type[AiResponseHandler]] = {}
    monkeypatch.setattr(handlers, "_registry", empty)
    return empty


@pytest.fixture
def two_handlers() -> None:
    class Board(AiResponseHandler, aliases=["OldBoard"]):
        @ai_tool(timeout=2.5)
        def rename(self, title: Annotated[str, Field(max_length=9)]) -> str:
            """Rename the board.

            It is shown at the top.
            """
            return title

        @ai_tool
        def tag(self, tags: dict[str, str]) -> None:
            """Tag the board."""

    class Empty(AiResponseHandler): ...


def run(*arguments: str) -> Result:
    return Flask(__name__).test_cli_runner().invoke(instruct, ["tools", *arguments])


@pytest.mark.usefixtures("two_handlers")
def test_each_handler_is_listed_with_its_tools_a_line_each() -> None:
    assert run().output.splitlines() == [
        "Board (also OldBoard)",
        "  rename  Rename the board. (2.5 s)",
        "  tag     Tag the board. (10 s)",
        "Empty",
        "  no tools",
    ]


@pytest.mark.usefixtures("two_handlers")
def test_named_handlers_only_are_listed_by_name_or_alias() -> None:
    assert run("Empty").output.splitlines() == ["Empty", "  no tools"]
    assert run("OldBoard", "Board").output.startswith("Board (also OldBoard)\n")
    assert run("OldBoard", "Board").output.count("rename") == 1


@pytest.mark.usefixtures("two_handlers")
def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    answer = run("Bord")
    assert answer.exit_code == 1
    assert answer.output.startswith(
        "Error: No handler named 'Bord' is registered; known are: Board, Empty, OldBoard. A handler is registered when"
    )


def test_an_app_without_handlers_says_so() -> None:
    assert run().output.startswith("No handler is registered: define a class that inherits AiResponseHandler")
    assert run("Board").output.startswith("Error: No handler named 'Board' is registered; none is.")


@pytest.mark.usefixtures("two_handlers")
def test_explain_says_for_each_dialect_whether_it_is_strict_and_what_changes() -> None:
    assert run("Board", "--explain").output.splitlines() == [
        "Board (also OldBoard)",
        "  rename  Rename the board. (2.5 s)",
        "    openai     strict: yes",
        "                 title: maxLength moved to the description",
        "    anthropic  strict: yes",
        "                 title: maxLength moved to the description",
        "    google     strict: yes",
        "                 title: maxLength moved to the description",
        "  tag     Tag the board. (10 s)",
        "    openai     strict: no, tags is an object with free keys, which the strict form does not know",
        "    anthropic  strict: no, tags is an object with free keys, which the strict form does not know",
        "    google     strict: yes",
    ]


@pytest.mark.usefixtures("two_handlers")
def test_json_holds_the_schemas_too() -> None:
    (board,) = json.loads(run("Board", "--explain", "--json").output)
    rename: dict[str, Any] = board["tools"][0]
    assert (board["handler"], board["aliases"], rename["timeout"]) == ("Board", ["OldBoard"], 2.5)
    assert rename["parameters"]["properties"]["title"] == {"type": "string", "maxLength": 9}
    assert rename["dialects"]["openai"] == {
        "strict": True,
        "reason": "",
        "changes": ["title: maxLength moved to the description"],
        "schema": {
            "type": "object",
            "properties": {"title": {"type": "string", "description": "Length at most 9."}},
            "additionalProperties": False,
            "required": ["title"],
        },
    }
    assert "dialects" not in json.loads(run("Board", "--json").output)[0]["tools"][0]


APP = """
from flask import Flask

from flask_instruct import AiResponseHandler, ai_tool


class Board(AiResponseHandler):
    @ai_tool
    def rename(self, title: str) -> str:
        \"\"\"Rename the board.\"\"\"
        return title


app = Flask(__name__)
"""


def test_the_command_finds_the_handlers_of_a_real_app(start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(APP)
    listing = start([sys.executable, "-m", "flask", "--app", "small", "instruct", "tools"], cwd=tmp_path)
    assert listing.wait() == 0
    assert listing.output == "Board\n  rename  Rename the board. (10 s)\n"
