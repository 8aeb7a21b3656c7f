"""The app of the storm: requests of several kinds, each of which leaves marks that can be counted afterwards.

The request is JSON of its kind and its key; what it writes, posts and starts bears the key.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Literal
from typing import get_args

from flask import Flask
from sqlalchemy.engine import make_url

from flask_instruct import ai_tool
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.adapters.scripted import turn_number
from flask_instruct.messages import ModelRequest

from . import chronicle
from .faults import take_descriptors
from .notebook import Notebook
from .notebook import instruct

Kind = Literal["two tools", "letter", "conversation", "delegate"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CONVERSATIONS = 3


class Weather(chronicle.Chronicler, record=Notebook):
    """Writes, posts and delegates under the key of its request."""

    @ai_tool
    def post_to(self, key: str) -> str:
        """Post a letter."""
        self.after_commit(self.send_to, key)
        return "To be posted."

    def send_to(self, key: str) -> None:
        with Path(os.environ["INSTRUCT_TEST_LETTERS"]).open("a") as letters:
            letters.write(f"{key}\n")

    @ai_tool
    def delegate_to(self, key: str) -> str:
        """Start another run."""
        instruct.generate_for(type(self)(self.record), user_prompt=asked("two tools", key), model="scripted:weather")
        return "Delegated."

    def handle_ai_finish(self, reason: str) -> None:
        """Leaves no note: the runs would all leave the same."""


def asked(kind: Kind, key: str) -> str:
    """Write a request."""
    return json.dumps({"kind": kind, "key": key})


def _play(request: ModelRequest) -> Turn:
    wanted = json.loads([message for message in request.messages if message.role == "user"][-1].text)
    if turn_number(request.messages):
        return [Say("All of it is done.", every=0.01)]
    key = wanted["key"]
    match wanted["kind"]:
        case "two tools":
            return [Say("Two of them.", every=0.01), Use("write", text=f"{key} a"), Use("write", text=f"{key} b")]
        case "letter":
            return [Use("post_to", key=key)]
        case "delegate":
            return [Use("delegate_to", key=f"{key} child")]
        case _:
            return [Say("We talk on.", every=0.02), Use("write", text=key)]


register_script("weather", _play)


def lose_disk(number: int, frame: FrameType | None) -> None:
    """Let this process lose its SQLite database."""
    take_descriptors(str(make_url(os.environ["DATABASE_URL"]).database))


signal.signal(signal.SIGUSR2, lose_disk)


def create_app() -> Flask:
    return chronicle.create_app("Weather")
