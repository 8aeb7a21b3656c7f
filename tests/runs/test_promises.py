"""What a tool cannot ask for after its commit, because no other process could find or read it again."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct.calls import ToolContext
from flask_instruct.effects import Promise
from flask_instruct.errors import InstructError

from .letters import Correspondent
from .notebook import Note
from .notebook import Notebook
from .notebook import db


class Unfit:
    def send(self, folder: str, to: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda handler: lambda: None, ()),
        (lambda handler: functools.partial(handler.send, "x"), ("y",)),
        (lambda handler: Unfit().send, ("x", "y")),
        (lambda handler: Correspondent(handler.record).send, ("x", "y")),
        (lambda handler: print, ("x",)),
        (lambda handler: "send", ("x", "y")),
        (lambda handler: handler.send, ("x",)),
        (lambda handler: handler.send, ("x", Path("y"))),
        (lambda handler: handler.send, ("x", ("y",))),
        (lambda handler: handler.send, ("x", {1: "y"})),
        (lambda handler: handler.send, ("x", math.nan)),
        (lambda handler: handler.send, ("x", object())),
    ],
)
def test_what_cannot_be_found_or_written_again_is_refused(
    app: Flask, function: Callable[[Any], Any], args: tuple[Any, ...]
) -> None:
    handler = Correspondent(db.session.scalars(sa.select(Notebook)).one())
    promises: list[Promise] = []
    handler.call = ToolContext("c", None, "write_letters", 1, "k", promise=promises.append)
    with pytest.raises(TypeError):
        handler.after_commit(function(handler), *args)
    assert promises == []


def test_outside_a_tool_it_is_an_error_that_says_what_to_do(app: Flask) -> None:
    handler = Correspondent(db.session.scalars(sa.select(Notebook)).one())
    with pytest.raises(InstructError, match="call the function itself"):
        handler.after_commit(handler.send, "x", "y")


def test_the_words_for_a_lambda_say_what_to_write_instead(app: Flask) -> None:
    handler = Correspondent(db.session.scalars(sa.select(Notebook)).one())
    handler.call = ToolContext("c", None, "write_letters", 1, "k", promise=print)
    with pytest.raises(TypeError, match=r"a method of Correspondent, such as self\.send_mail, not <function"):
        handler.after_commit(lambda: None)
    with pytest.raises(TypeError, match="Pass an id instead of an object"):
        handler.after_commit(handler.send, "x", to=Note(text="y"))
