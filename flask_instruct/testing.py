"""What a user's own test-suite needs, as a plugin of pytest: ``pytest_plugins = ["flask_instruct.testing"]``.

Not registered by itself: every test run on the machine would load the package then, also those that have no use for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .live.captured import assert_broadcast
from .live.captured import captured_broadcasts
from .live.watched import LivePage
from .live.watched import Shown

if TYPE_CHECKING:
    from flask import Flask
    from playwright.sync_api import Page

    from .runs.replay import Replayed

__all__ = [
    "InstructReplay",
    "LivePage",
    "Shown",
    "assert_broadcast",
    "captured_broadcasts",
    "instruct_replay",
    "live_page",
]


class InstructReplay:
    """Replays exported runs in a test: ``instruct_replay(app, "run.json").assert_same()``.

    Each begins from a copy of the app's database as the test has filled it, so commit what you add. Until the test
    ends, or the next replay begins, the app works on that copy: look at its rows through ``db.session`` as usual.
    Objects that were loaded before are of the database as it was.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._app: Flask | None = None
        self._scratch = ExitStack()

    def __call__(self, app: Flask, path: str | Path) -> Replayed:
        """Replay an exported run with an app, without network, Redis or effects.

        :param path: of the file, beside the test's own.
        :raises CannotReplay: when the file is no exported run, or its record is not in the database.
        """
        from .runs.recording import Recording
        from .runs.replay import replay
        from .runs.scratch import scratch_copy

        recording = Recording.from_json((self._folder / path).read_bytes())
        self.close()
        self._app = app
        with _context(app):
            state = app.extensions["instruct"]
            self._scratch.enter_context(scratch_copy(state, own_postgresql=True))
            return replay(state, recording)

    def close(self) -> None:
        """Give the app its own database back, and throw the copy away."""
        if self._app is not None:
            with _context(self._app):
                self._scratch.close()


@pytest.fixture
def instruct_replay(request: pytest.FixtureRequest) -> Iterator[InstructReplay]:
    """Replay exported runs: ``instruct_replay(app, "run.json")``; see :class:`InstructReplay`."""
    replay = InstructReplay(request.path.parent)
    yield replay
    replay.close()


@pytest.fixture
def live_page(page: Page) -> LivePage:
    """Drive the page of pytest-playwright, or a fixture ``page`` of your own: see :class:`LivePage`."""
    return LivePage(page)


def _context(app: Flask) -> AbstractContextManager[object]:
    """The app's context, the test's own where there is one: its session must let go of the database."""
    from flask import current_app
    from flask import has_app_context

    here = has_app_context() and current_app._get_current_object() is app  # type: ignore[attr-defined]
    return nullcontext() if here else app.app_context()
