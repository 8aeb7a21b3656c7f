"""The broadcast family: what is rendered, when it leaves, and what happens to it on a rollback."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from jinja2 import DictLoader
from markupsafe import Markup
from sqlalchemy import Integer
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column

from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import InstructError
from flask_instruct.live import broadcasts
from flask_instruct.live.broadcasts import HandlerBroadcasts
from flask_instruct.live.broadcasts import broadcast
from flask_instruct.live.broadcasts import outlet
from flask_instruct.live.position import Position

from .redis_process import RedisProcess
from .site import live_of

TEMPLATES = {
    "note.txt": "\n <p>{{ text }}</p> \n",
    "outer.j2": "{% include 'note.txt' %}",
}


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Note(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(Integer, primary_key=True)


class NoteHandler(HandlerBroadcasts):
    def __init__(self, record: Note) -> None:
        self.record = record


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Iterator[Flask]:
    app = make_app()
    app.jinja_loader = DictLoader(TEMPLATES)
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"
    db.init_app(app)
    app.extensions["instruct"] = SimpleNamespace(db=db, hooks=None)
    with app.app_context():
        db.create_all()
        yield app
        db.session.remove()
        db.engine.dispose()


@pytest.fixture
def sent(app: Flask) -> Callable[..., list[str]]:
    """Tell what has been published on a stream since the test began."""
    bus = live_of(app).bus
    since = Position.parse(bus.now())
    return lambda stream: [entry.html for entry in bus.replay(stream, since).entries]


def test_a_template_is_rendered_trimmed_and_escaped_whatever_it_is_called(sent: Callable[..., list[str]]) -> None:
    for template in ("note.txt", "outer.j2"):
        broadcast("s", "update", target="x", template=template, text="<img src=x onerror=alert(1)>")
    assert (
        sent("s")
        == [
            '<turbo-stream action="update" target="x"><template><p>&lt;img src=x onerror=alert(1)&gt;</p></template>'
            "</turbo-stream>"
        ]
        * 2
    )


def test_a_template_sees_what_the_app_gives_to_all_of_them(app: Flask, sent: Callable[..., list[str]]) -> None:
    app.context_processor(lambda: {"text": "from the app"})
    broadcast("s", "update", target="x", template="note.txt")
    assert "<p>from the app</p>" in sent("s")[0]


def test_html_is_taken_as_markup_only_when_it_says_so(sent: Callable[..., list[str]]) -> None:
    broadcast("s", "update", target="x", html="<b>")
    broadcast("s", "update", target="x", html=Markup("<b></b>"))
    assert ["&lt;b&gt;" in html for html in sent("s")] == [True, False]


def test_every_action_has_a_function_and_two_methods(sent: Callable[..., list[str]]) -> None:
    note = Note()
    db.session.add(note)
    db.session.commit()
    handler = NoteHandler(note)
    actions = ("append", "prepend", "replace", "update", "remove", "before", "after")
    for action in actions:
        getattr(broadcasts, f"broadcast_{action}_to")(note, target="x")
        getattr(handler, f"broadcast_{action}_to")(note, target="x")
        getattr(handler, f"broadcast_{action}")("body")
    handler.broadcast_refresh()
    handler.broadcast_refresh_to(note)
    found = sent(f"Note/{note.id}")
    assert [f'action="{action}"' in html for action in actions for html in found].count(True) == 21
    assert sum(f'target="body_note_{note.id}"' in html for html in found) == 7
    assert sum('action="refresh"' in html for html in found) == 2


def test_a_handlers_own_target_or_selector_wins(sent: Callable[..., list[str]]) -> None:
    note = Note()
    db.session.add(note)
    db.session.commit()
    NoteHandler(note).broadcast_update("body", targets=".all")
    NoteHandler(note).broadcast_update(target="other", html="x", method="morph")
    assert 'targets=".all"' in sent(f"Note/{note.id}")[0]
    assert 'target="other" method="morph"' in sent(f"Note/{note.id}")[1]


def test_a_piece_of_text_carries_its_offset_and_keeps_its_white_space(sent: Callable[..., list[str]]) -> None:
    broadcasts.broadcast_text_to("s", target="x", text=" <a>\n", offset=3)
    assert sent("s") == [
        '<turbo-stream action="text" target="x" offset="3"><template> &lt;a&gt;\n</template></turbo-stream>'
    ]


def test_inside_a_transaction_it_waits_for_the_commit(sent: Callable[..., list[str]]) -> None:
    db.session.add(Note())
    db.session.flush()
    broadcast("s", "refresh")
    assert sent("s") == []
    db.session.commit()
    assert len(sent("s")) == 1


def test_a_rollback_drops_it(sent: Callable[..., list[str]]) -> None:
    db.session.add(Note())
    db.session.flush()
    broadcast("s", "refresh")
    db.session.rollback()
    db.session.add(Note())
    db.session.commit()
    assert sent("s") == []


def test_with_an_outlet_it_goes_there_and_nowhere_else(sent: Callable[..., list[str]]) -> None:
    taken: list[tuple[str, str]] = []
    token = outlet.set(lambda stream, html: taken.append((stream, html)))
    try:
        broadcast("s", "refresh")
    finally:
        outlet.reset(token)
    assert taken == [("s", '<turbo-stream action="refresh"></turbo-stream>')]
    assert type(taken[0][1]) is str
    assert sent("s") == []


def test_what_is_too_large_is_refused_before_the_commit(make_app: Callable[..., Flask]) -> None:
    app = make_app(broadcast_bytes=100)
    with app.app_context(), pytest.raises(InstructError, match="INSTRUCT_BROADCAST_BYTES"):
        broadcast("s", "update", target="x", html="y" * 200)
    # Those whom it is for travel along: what only they make too large was refused after the commit.
    with app.app_context(), pytest.raises(InstructError, match="INSTRUCT_BROADCAST_BYTES"):
        broadcast("s", "update", target="x", html="y", only=[f"user {number}" for number in range(10)])


def test_a_dead_redis_does_not_turn_a_finished_commit_into_an_error(
    make_app: Callable[..., Flask], make_redis: Callable[..., RedisProcess], caplog: pytest.LogCaptureFixture
) -> None:
    process = make_redis(keeps=False)
    app = make_app(process.url)
    process.kill()
    with app.app_context():
        broadcast("s", "refresh")
    assert "A broadcast to s was lost" in caplog.text


def test_a_template_and_html_together_or_context_without_a_template_are_mistakes(app: Flask) -> None:
    with pytest.raises(TypeError, match="not both"):
        broadcast("s", "update", target="x", template="note.txt", html="x")
    with pytest.raises(TypeError, match="text would be the context"):
        broadcast("s", "update", target="x", text="x")


def test_an_app_without_live_pages_is_told_what_to_call() -> None:
    with Flask(__name__).app_context(), pytest.raises(ConfigurationError, match=r"Instruct\.init_app"):
        broadcast("s", "refresh")


def test_every_public_function_says_what_it_does() -> None:
    functions = [value for name, value in vars(broadcasts).items() if name.startswith("broadcast")]
    assert all(inspect.getdoc(function) for function in functions)
