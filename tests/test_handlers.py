"""Handlers as the app's people: named, found again in another process, and bound to a record that is never stale."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import MappedAsDataclass
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship
from werkzeug.local import LocalProxy

from flask_instruct.errors import ConfigurationError
from flask_instruct.errors import DeclarationError
from flask_instruct.errors import HandlerError
from flask_instruct.errors import ProviderError
from flask_instruct.errors import RecordGone
from flask_instruct.extension import Instruct
from flask_instruct.handlers import AiResponseHandler
from flask_instruct.handlers import locate
from flask_instruct.handlers import registered
from flask_instruct.prompt import ToolCall
from flask_instruct.tools import ToolContext
from flask_instruct.tools import ai_tool
from flask_instruct.tools import run_tool


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Essay(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(80))
    kind: Mapped[str] = mapped_column(sa.String(10))

    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "essay"}  # noqa: RUF012


class Paper(Essay):
    """A kind of essay, in the same table."""

    __mapper_args__ = {"polymorphic_identity": "paper"}  # noqa: RUF012


class Ticket(db.Model):  # type: ignore[name-defined,misc]
    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)


class Setting(db.Model):  # type: ignore[name-defined,misc]
    owner: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(sa.String(80), primary_key=True)
    value: Mapped[str] = mapped_column(default="")


class EssayEditor(AiResponseHandler, record=Essay, aliases=["OldEditor"]):
    @ai_tool
    def retitle(self, title: str) -> str:
        """Give a new title."""
        self.record.title = title
        return f"now {title}"


class PaperEditor(EssayEditor, record=Paper): ...


class TicketDesk(AiResponseHandler, record=Ticket, name="desk"): ...


class SettingKeeper(AiResponseHandler, record=Setting): ...


class Board(db.Model, AiResponseHandler):  # type: ignore[name-defined,misc]
    """A model that is its own handler, with relations."""

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(80))
    cards: Mapped[list[Card]] = relationship(back_populates="board")

    @ai_tool
    def add(self, text: str) -> int:
        """Add a card."""
        self.cards.append(Card(text=text))
        return len(self.cards)


class Secretive(db.Model, AiResponseHandler):  # type: ignore[name-defined,misc]
    """A model with underscored columns, as hybrid properties have them."""

    id: Mapped[int] = mapped_column(primary_key=True)
    _name: Mapped[str] = mapped_column("name", default="")
    _model: Mapped[str] = mapped_column("model", default="")
    _label: Mapped[str] = mapped_column("label", default="")


class Card(AiResponseHandler, db.Model):  # type: ignore[name-defined,misc]
    """A model that names the handler before its own base."""

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(sa.String(80))
    board_id: Mapped[int | None] = mapped_column(sa.ForeignKey("board.id"))
    board: Mapped[Board | None] = relationship(back_populates="cards")


class Point(MappedAsDataclass, db.Model, AiResponseHandler):  # type: ignore[name-defined,misc]
    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    x: Mapped[int] = mapped_column(default=0)


class Desk(AiResponseHandler):
    """A plain object that a dictionary keeps."""

    kept: dict[Any, Desk] = {}  # noqa: RUF012

    def __init__(self, id: Any) -> None:
        self.id = id

    @classmethod
    def find(cls, id: Any) -> Desk | None:
        return cls.kept.get(id)


@pytest.fixture
def app(database_url: str) -> Iterator[Flask]:
    app = Flask(__name__)
    app.config.update(SQLALCHEMY_DATABASE_URI=database_url, SECRET_KEY="test")
    db.init_app(app)
    Instruct(app, db)
    with app.app_context():
        db.create_all()
        yield app
        db.session.remove()
        db.engine.dispose()


def saved(record: Any) -> Any:
    db.session.add(record)
    db.session.commit()
    return record


def in_another_session(handler: AiResponseHandler) -> AiResponseHandler:
    """Find a handler again as another process would: by its text, with nothing loaded."""
    gid = handler.to_gid()
    db.session.remove()
    return locate(gid)


@pytest.mark.usefixtures("app")
def test_a_handler_of_a_record_is_found_again() -> None:
    essay = saved(Essay(id=42, title="x"))
    assert EssayEditor(essay).to_gid() == "instruct://EssayEditor/42"
    found = in_another_session(EssayEditor(essay))
    assert type(found) is EssayEditor
    assert found.record.title == "x"
    assert found.record is not essay


@pytest.mark.usefixtures("app")
def test_keys_may_be_uuids_and_texts_and_several() -> None:
    ticket = saved(Ticket(id=uuid.UUID(int=7)))
    assert TicketDesk(ticket).to_gid() == "instruct://desk/00000000-0000-0000-0000-000000000007"
    assert in_another_session(TicketDesk(ticket)).record.id == uuid.UUID(int=7)
    for name in ("plain", "a/b", "ü: 100%", "42", "..", "a?b#c"):
        setting = saved(Setting(owner=3, name=name, value=name))
        handler = SettingKeeper(setting)
        assert handler.to_gid().startswith("instruct://SettingKeeper/3/")
        assert handler.to_gid().isascii()
        assert in_another_session(handler).record.value == name


@pytest.mark.usefixtures("app")
def test_a_model_may_be_its_own_handler() -> None:
    board = saved(Board(title="x"))
    assert board.record is board
    found = in_another_session(board)
    assert isinstance(found, Board)
    call = ToolCall("c", "add", '{"text": "first"}')
    assert run_tool(found, call, ToolContext("t", None, "add", 1, "k")).content == "1"
    db.session.commit()
    assert [card.text for card in db.session.scalars(sa.select(Card))] == ["first"]


@pytest.mark.usefixtures("app")
def test_no_column_comes_from_being_a_handler() -> None:
    assert Board.__table__.columns.keys() == ["id", "title"]
    assert Card.__table__.columns.keys() == ["id", "text", "board_id"]
    assert Point.__table__.columns.keys() == ["id", "x"]
    assert Secretive.__table__.columns.keys() == ["id", "name", "model", "label"]


@pytest.mark.usefixtures("app")
def test_bases_in_either_order_and_mapped_dataclasses_are_made_and_found() -> None:
    for record in (Card(text="x"), Point(x=3), Secretive(_name="n", _model="m", _label="l")):
        saved(record)
        assert type(in_another_session(record)) is type(record)


def test_a_plain_object_is_found_by_its_own_find() -> None:
    keys = [
        3,
        -3,
        0,
        "3",
        "03",
        "abc",
        "a/b:ü",
        "str:3",
        "",
        uuid.UUID(int=1),
        str(uuid.UUID(int=1)),
        (1, "1"),
        ("a", ""),
    ]
    for key in keys:
        Desk.kept = {key: Desk(key)}
        assert locate(Desk(key).to_gid()) is Desk.kept[key], key
        assert Desk(key).record.id == key
    assert Desk(3).to_gid() == "instruct://Desk/3"
    assert Desk("abc").to_gid() == "instruct://Desk/abc"


@pytest.mark.parametrize("key", [True, 3.5, b"x", None, [], (), object(), ("a", None)])
def test_a_key_of_another_type_is_refused(key: Any) -> None:
    with pytest.raises(HandlerError):
        Desk(key).to_gid()


def test_a_key_that_is_too_long_to_be_read_again_is_refused() -> None:
    with pytest.raises(HandlerError, match="has 2320 characters; a Desk can be named by 2000 at most"):
        Desk("ü" * 384).to_gid()
    assert len(Desk("ü" * 300).to_gid()) < 2000


@pytest.mark.usefixtures("app")
def test_a_record_without_a_key_is_refused_with_what_to_do() -> None:
    essay = Essay(title="x")
    with pytest.raises(HandlerError, match="commit or flush"):
        EssayEditor(essay).to_gid()
    db.session.add(essay)
    with pytest.raises(HandlerError, match="commit or flush"):
        EssayEditor(essay).to_gid()
    assert EssayEditor(essay).record is essay
    db.session.flush()
    assert EssayEditor(essay).to_gid() == f"instruct://EssayEditor/{essay.id}"
    with pytest.raises(HandlerError, match="commit or flush"):
        Board(title="x").to_gid()


@pytest.mark.usefixtures("app")
def test_the_record_is_read_in_the_session_of_the_moment() -> None:
    handler = EssayEditor(saved(Essay(id=1, title="before")))
    first = handler.record
    db.session.execute(sa.update(Essay).values(title="after").execution_options(synchronize_session=False))
    db.session.commit()
    db.session.remove()
    assert handler.record is not first
    assert handler.record.title == "after"
    assert sa.inspect(handler.record).session is db.session()


@pytest.mark.usefixtures("app")
def test_a_deleted_record_is_gone_and_an_error_of_the_database_is_not() -> None:
    essay = saved(Essay(id=1, title="x"))
    handler, gid = EssayEditor(essay), EssayEditor(essay).to_gid()
    board = saved(Board(title="x"))
    board_gid = board.to_gid()
    for record in (essay, board):
        db.session.delete(record)
    db.session.commit()
    with pytest.raises(RecordGone, match="Essay with key 1"):
        locate(gid)
    with pytest.raises(RecordGone):
        _ = handler.record
    with pytest.raises(RecordGone):
        locate(board_gid)
    db.session.remove()
    db.drop_all()
    with pytest.raises(sa.exc.DBAPIError):
        locate(gid)


def test_a_plain_object_that_is_gone_or_another_is_refused() -> None:
    Desk.kept = {}
    with pytest.raises(RecordGone, match="Desk with id 9"):
        locate("instruct://Desk/9")
    Desk.kept = {9: object()}  # type: ignore[dict-item]
    with pytest.raises(HandlerError, match="returned a object"):
        locate("instruct://Desk/9")


@pytest.mark.usefixtures("app")
def test_a_tool_that_finds_its_record_gone_says_so() -> None:
    essay = saved(Essay(id=1, title="x"))
    handler = EssayEditor(essay)
    db.session.delete(essay)
    db.session.commit()
    outcome = run_tool(handler, ToolCall("c", "retitle", '{"title": "y"}'), ToolContext("t", None, "retitle", 1, "k"))
    assert outcome.content == "retitle failed: the record no longer exists."
    assert isinstance(outcome.exception, RecordGone)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    "gid",
    [
        "",
        "EssayEditor/1",
        "instruct://EssayEditor",
        "instruct://EssayEditor/",
        "instruct:///1",
        "gid://EssayEditor/1",
        "instruct://EssayEditor/1/2",
        "instruct://EssayEditor/abc",
        "instruct://EssayEditor/1.0",
        "instruct://EssayEditor/ 1",
        "instruct://EssayEditor/١",
        "instruct://EssayEditor/true",
        f"instruct://EssayEditor/{2**63}",
        f"instruct://EssayEditor/{'9' * 5000}",
        "instruct://desk/7",
        "instruct://SettingKeeper/3",
    ],
)
def test_a_reference_that_does_not_fit_is_refused(gid: str) -> None:
    with pytest.raises(HandlerError):
        locate(gid)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    "name", ["os.system", "Nobody", "tests.test_handlers.EssayEditor", "AiResponseHandler", "this"]
)
def test_a_name_that_is_not_registered_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(HandlerError, match="EssayEditor") as refusal:
        locate(f"instruct://{name}/1")
    assert not isinstance(refusal.value, RecordGone)


@pytest.mark.usefixtures("app")
def test_an_alias_finds_runs_of_earlier_days() -> None:
    saved(Essay(id=1, title="x"))
    assert type(locate("instruct://OldEditor/1")) is EssayEditor
    assert registered()["OldEditor"] is EssayEditor
    assert locate("instruct://OldEditor/1").to_gid() == "instruct://EssayEditor/1"


def test_the_registry_is_shown_and_not_handed_out() -> None:
    assert registered()["desk"] is TicketDesk
    with pytest.raises(TypeError):
        registered()["desk"] = Desk  # type: ignore[index]


def test_a_definition_made_again_takes_the_place_of_the_old() -> None:
    def define(aliases: list[str]) -> type[AiResponseHandler]:
        class Reloaded(AiResponseHandler, aliases=aliases): ...

        return Reloaded

    define(["Before"])
    second = define([])
    assert registered()["Reloaded"] is second
    assert "Before" not in registered()


def test_another_class_of_the_same_name_is_refused() -> None:
    with pytest.raises(
        DeclarationError, match=r"registered as 'Desk', tests\.test_handlers\.Desk; give one of them name="
    ):
        type("Desk", (AiResponseHandler,), {"__module__": "elsewhere"})
    with pytest.raises(DeclarationError, match="registered as 'OldEditor'"):
        type("OldEditor", (AiResponseHandler,), {})
    assert registered()["Desk"] is Desk


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"name": ""}, "no name for a handler"),
        ({"name": "a/b"}, "no name for a handler"),
        ({"name": "a b"}, "no name for a handler"),
        ({"name": "x" * 101}, "no name for a handler"),
        ({"aliases": "Old"}, "aliases must be a list"),
        ({"aliases": ["a/b"]}, "no name for a handler"),
        ({"record": "Essay"}, "record must be a mapped class"),
        ({"record": object}, "record must be a mapped class"),
        ({"record": Essay(title="x")}, "record must be a mapped class"),
    ],
)
def test_a_wrong_option_fails_at_the_definition(options: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError, match=f"Optioned.*{why}"):

        class Optioned(AiResponseHandler, **options): ...


def test_a_column_named_like_the_running_call_or_the_record_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Clash\.call would replace"):

        class Clash(AiResponseHandler):
            call: str

    with pytest.raises(DeclarationError, match=r"Shadow\.record would replace"):

        class Shadow(AiResponseHandler):
            record = "x"

    class Renamed(AiResponseHandler):
        @property
        def record(self) -> str:
            return "own"

    assert Renamed().record == "own"


def test_a_handler_takes_its_own_kind_of_record_only() -> None:
    with pytest.raises(HandlerError, match="EssayEditor is made for a Essay, not a Ticket"):
        EssayEditor(Ticket())
    with pytest.raises(HandlerError, match="made without a record"):
        _ = EssayEditor().record
    with pytest.raises(HandlerError, match="made without a record"):
        EssayEditor().to_gid()
    assert EssayEditor().ai_tools_definitions() == EssayEditor.ai_tools_specifications()


@pytest.mark.usefixtures("app")
def test_a_proxy_for_a_record_is_taken_for_the_record() -> None:
    essay = saved(Essay(id=5, title="x"))
    handler = EssayEditor(LocalProxy(lambda: essay))
    assert handler.record is essay
    assert handler.to_gid() == "instruct://EssayEditor/5"


@pytest.mark.usefixtures("app")
def test_a_record_of_another_kind_in_the_same_table_is_not_found() -> None:
    paper, essay = saved(Paper(title="x")), saved(Essay(title="y"))
    assert locate(PaperEditor(paper).to_gid()).record is paper
    assert locate(EssayEditor(paper).to_gid()).record is paper
    for loaded in (True, False):
        gid = f"instruct://PaperEditor/{essay.id}"
        if not loaded:
            db.session.remove()
        with pytest.raises(RecordGone):
            locate(gid)


@pytest.mark.usefixtures("app")
def test_the_record_class_is_inherited() -> None:
    class Stricter(EssayEditor): ...

    essay = saved(Essay(id=6, title="x"))
    assert locate(Stricter(essay).to_gid()).record is essay


def test_a_handler_that_cannot_be_found_again_says_why() -> None:
    class Lonely(AiResponseHandler): ...

    with pytest.raises(HandlerError, match=r"give it record=Model, or an id and a classmethod find"):
        Lonely().to_gid()
    with pytest.raises(HandlerError, match=r"no classmethod find\(id\)"):
        locate("instruct://Lonely/1")


def test_an_app_without_the_extension_says_so() -> None:
    with Flask(__name__).app_context(), pytest.raises(ConfigurationError, match="no Flask-Instruct"):
        locate("instruct://EssayEditor/1")


def test_callbacks_may_be_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(3)
    with caplog.at_level(logging.DEBUG, "flask_instruct"):
        desk.handle_ai_text_chunk("secret text")
        desk.handle_ai_finish("stop")
        desk.handle_ai_error(ValueError("secret text"))
        desk.handle_ai_error(ProviderError("not_found", "secret text", status=404))
        desk.handle_tool_error("edit\nforged line", ValueError("secret text"), {"a": "secret text"})
        desk.handle_unknown_tool("edit\x1b[2J")
        desk.handle_limit("rounds")
        desk.handle_undo([])
    assert "instruct://Desk/3 failed: ValueError" in caplog.text
    assert "ProviderError: The AI service does not know the chosen model. (not_found, status 404;" in caplog.text
    assert "secret text" not in caplog.text
    assert "\nforged" not in caplog.text
    assert "\x1b" not in caplog.text
    assert desk.authorize_tool(desk.ai_tools, {}, None) is True
    assert desk.call is None
