"""Every sentence that a room below writes into the ledger for a person is known to the panel's catalogue."""

from __future__ import annotations

import ast
import re
from datetime import date
from datetime import datetime
from datetime import time
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated
from typing import Literal
from uuid import UUID

import pytest
from pydantic import Field

from flask_instruct import AiResponseHandler
from flask_instruct import ai_tool
from flask_instruct.arguments import InvalidArguments
from flask_instruct.panel import told as room
from flask_instruct.panel.told import SENTENCES
from flask_instruct.panel.told import fault
from flask_instruct.panel.told import told

PACKAGE = Path(room.__file__).parent.parent
WRITERS = ["runs/applying.py", "runs/undo.py", "runs/capture.py", "runs/statements.py", "runs/flushes.py"]
WRITERS += [
    "runs/writing.py",
    "runs/belonging.py",
    "runs/cascades.py",
    "runs/proposals.py",
    "runs/endings.py",
    "errors.py",
    "adapters/failures.py",
]
FOR_MODELS = {
    "A person took an undo back, so that what was undone is in effect again.",
    "A person has undone what these calls changed: {}.",
}
"""What the model is told, and what stands only under its name."""
FOR_DEVELOPERS = re.compile(r"INSTRUCT_|max_tokens|provider|finish|a ToolError|flask instruct", re.IGNORECASE)


def sentences(file: str) -> set[str]:
    """The whole sentences in a file's strings, with ``{}`` for what is put into them; no docstrings, no errors."""
    tree = ast.parse((PACKAGE / file).read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) or isinstance(node, ast.Raise):
            skipped.update(ast.walk(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            skipped.update(ast.walk(node))
        if isinstance(node, ast.JoinedStr):
            skipped.update(part for part in ast.walk(node) if part is not node)
    found = {written(node) for node in ast.walk(tree) if node not in skipped}
    return {text for text in found if re.match(r"[A-Z{]\w* .*\.$", text)}


def written(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("file", WRITERS)
def test_every_sentence_that_is_written_for_people_can_be_translated(file: str) -> None:
    known = {re.sub(r"%\(\w+\)s", "{}", sentence) for sentence in SENTENCES}
    asked = {text for text in sentences(file) - FOR_MODELS if not FOR_DEVELOPERS.search(text)}
    assert asked - known == set()


def test_the_reader_of_sentences_finds_them() -> None:
    assert "It has been undone." in sentences("runs/undo.py")
    assert "The key of a row of {} was changed." in sentences("runs/flushes.py")


def test_names_in_a_sentence_are_kept_and_other_words_stay() -> None:
    assert told("The key of a row of card was changed.") == "The key of a row of card was changed."
    assert told("The weights total 110 %, not 100 %(x)s.") == "The weights total 110 %, not 100 %(x)s."


class Fussy(AiResponseHandler):
    @ai_tool
    def accept(
        self,
        text: Annotated[str, Field(min_length=2, max_length=4, pattern="^a")],
        whole: Annotated[int, Field(ge=1, le=5)],
        part: Annotated[float, Field(gt=0, lt=1)],
        yes: bool,
        day: date,
        moment: datetime,
        hour: time,
        key: UUID,
        amount: Decimal,
        choice: Literal["x", "y"],
        numbers: Annotated[list[int], Field(min_length=2, max_length=3)],
        by_name: dict[str, int],
        span: timedelta,
    ) -> str:
        """Accept what fits."""
        return "Accepted."


WRONG: dict[str, list[object]] = {
    "text": ["a", "aaaaa", "bb", 3],
    "whole": ["x", 0, 9, 1.5, True],
    "part": ["x", 0, 2],
    "yes": ["maybe", 7],
    "day": ["31.12.2026", 3],
    "moment": ["x", "2026-13-01"],
    "hour": ["x", "25:00"],
    "key": ["x"],
    "amount": ["x"],
    "choice": ["q"],
    "numbers": [[1], [1, 2, 3, 4], "x"],
    "by_name": ["x", {"a": "q"}],
    "span": ["x"],
    "another": [1],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_an_argument_can_be_translated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "gettext", lambda text, **names: f"«{text}»")
    [tool] = Fussy().ai_tools()
    for value in WRONG[name]:
        with pytest.raises(InvalidArguments) as raised:
            tool.check({name: value})
        said = {problem.message: fault(problem.message) for problem in raised.value.problems}
        assert len(said) > 1
        assert all(text.startswith("«") for text in said.values()), said
