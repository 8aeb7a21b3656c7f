"""What a session changes of the models that :meth:`Instruct.broadcasts` names, from the first flush to the commit.

Rows are read beside the session, by the connections of its own transaction: once before it changes them, and once more
when it is about to commit. What a rollback undid, of a savepoint too, is never looked at again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa
from flask import current_app
from flask import has_app_context
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event
from sqlalchemy.orm import Mapper
from sqlalchemy.orm import ORMExecuteState
from sqlalchemy.orm import Session
from sqlalchemy.orm import object_session

from ..errors import DeclarationError
from ..errors import InstructError
from ..transactions import Kept
from .broadcasts import send
from .model_broadcasts import Look
from .model_broadcasts import ModelBroadcast
from .model_broadcasts import Step
from .turbo_stream import turbo_stream

logger = logging.getLogger("flask_instruct")

MOST = 100
"""Fragments that one commit sends to one stream; for more the pages fetch themselves again."""

_KEY = "flask_instruct.changes"
_COMMITTING = "flask_instruct.committing"
_OWNER = "flask_instruct.owner"
_BESIDE = "_flask_instruct_beside"
_AT_ONCE = 500


class RowKey(NamedTuple):
    """Which row: the class at the root of its inheritance, and its primary key."""

    root: type[Any]
    key: tuple[Any, ...]


Looks = dict[ModelBroadcast, Look]


def watch(model: type[Any]) -> None:
    """Follow what the app's sessions change of a model; a second call changes nothing.

    :raises DeclarationError: for a model that is not of Flask-SQLAlchemy's ``db.Model``.
    """
    db: SQLAlchemy | None = getattr(model, "__fsa__", None)
    if db is None:
        raise DeclarationError(f"broadcasts({model.__name__}): it must inherit db.Model, whose session is followed.")
    sessions = db.session.session_factory.class_
    listeners: dict[str, Callable[..., object]] = {
        "before_flush": _before_flush,
        "after_flush_postexec": _after_flush,
        "before_commit": _before_commit,
        "do_orm_execute": _on_statement,
    }
    rows: dict[str, Callable[..., object]] = {
        "after_insert": _after_insert,
        "before_update": _before_update,
        "before_delete": _before_delete,
    }
    for target, names in ((sessions, listeners), (model, rows)):
        for name, listener in names.items():
            if not event.contains(target, name, listener):
                event.listen(target, name, listener, propagate=True)


class Changes:
    """What one session has changed in its transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[RowKey, Looks] = {}
        self._touched: Kept[RowKey] = Kept(session, over=self._before.clear)

    @classmethod
    def of(cls, session: Session) -> Changes:
        changes: Changes | None = session.info.get(_KEY)
        if changes is None:
            changes = session.info[_KEY] = cls(session)
        return changes

    def made(self, row: RowKey) -> None:
        """Note a row that was not there before."""
        self._before.setdefault(row, {})
        self._touched.add(row)

    def touch(self, *rows: RowKey) -> None:
        """Note rows that are about to be changed or deleted."""
        self.remember(rows)
        for row in rows:
            self._touched.add(row)

    def remember(self, rows: Iterable[RowKey]) -> None:
        """Look at rows before they are changed, at each but once."""
        new = list(dict.fromkeys(row for row in rows if row not in self._before))
        if not new:
            return
        with _beside(self._session, "rollback_only") as reader:
            for row, record in _read(reader, new).items():
                self._before[row] = {} if record is None else _looks(record)

    def tell(self) -> None:
        """Send what became of the rows that were touched; an error costs the commit nothing."""
        rows = list(dict.fromkeys(self._touched.take()))
        if not rows:
            return
        # A template's statement that fails would take the whole transaction with it, were it not for the savepoint.
        with _beside(self._session, "create_savepoint") as reader:
            news = _News(reader)
            for row, record in _read(reader, rows).items():
                news.add(self._before.get(row, {}), record)
        news.send()


class _News:
    """What one commit sends to the streams, in the order in which it was done."""

    def __init__(self, reader: Session) -> None:
        self._reader = reader
        self._sent: list[tuple[str, str]] = []
        self._refreshed: dict[str, None] = {}
        """Streams whose pages fetch themselves again, in order: nothing else needs to be sent to them."""

    def add(self, before: Looks, record: Any) -> None:
        after = {} if record is None else _looks(record, give_up=self._reader.rollback)
        for declaration in dict.fromkeys((*before, *after)):
            looks = before.get(declaration), after.get(declaration)
            try:
                self._sent += list(self._fragments(declaration, *looks, record))
            except Exception:
                logger.exception("A change of %s could not be shown, its pages refresh", _told(declaration, looks))
                self._reader.rollback()
                places = (place for look in looks if look is not None for place in look.places or ())
                self._refreshed.update(dict.fromkeys(place.stream for place in places))

    def send(self) -> None:
        counts: dict[str, int] = {}
        for stream, _ in self._sent:
            counts[stream] = counts.get(stream, 0) + 1
        self._refreshed.update(dict.fromkeys(stream for stream, count in counts.items() if count > MOST))
        for stream, html in self._sent:
            if stream in self._refreshed:
                continue
            try:
                send(stream, html)
            except InstructError as error:
                logger.error("The pages of %s refresh: %s", stream, error)
                self._refreshed[stream] = None
        for stream in self._refreshed:
            send(stream, str(turbo_stream("refresh")))

    def _fragments(
        self, declaration: ModelBroadcast, before: Look | None, after: Look | None, record: Any
    ) -> Iterator[tuple[str, str]]:
        html = None
        for step in declaration.steps(before, after):
            if step.action == "refresh":
                self._refreshed[step.stream] = None
                continue
            if step.action != "remove" and html is None:
                html = declaration.render(record)
            yield step.stream, _element(step, html, declaration.method)


def _element(step: Step, html: Any, method: str | None) -> str:
    given = method if step.action == "replace" else None
    return str(turbo_stream(step.action, target=step.target, html=html or "", method=given, within=step.within))


def _told(declaration: ModelBroadcast, looks: tuple[Look | None, Look | None]) -> str:
    return next((look.element for look in looks if look is not None), declaration.model.__name__)


# -- what sessions tell ------------------------------------------------------------------------------------------------


def _before_flush(session: Session, context: Any, instances: Any) -> None:
    """Look at all rows at once that are known to be changed; cascades may add some, which are looked at one by one."""
    if not _declarations():
        return
    changed = (record for record in session.dirty if _declared(record) and session.is_modified(record))
    deleted = (record for record in session.deleted if _declared(record))
    rows = [row for record in (*changed, *deleted) if (row := _stored(record)) is not None]
    if rows:
        Changes.of(session).remember(rows)


def _after_insert(mapper: Mapper[Any], connection: sa.Connection, record: Any) -> None:
    session = object_session(record)
    if session is not None and _declared(record) and _is_followed(session):
        key = tuple(mapper.primary_key_from_instance(record))
        Changes.of(session).made(RowKey(mapper.base_mapper.class_, key))


def _before_update(mapper: Mapper[Any], connection: sa.Connection, record: Any) -> None:
    session, stored = object_session(record), _stored(record)
    if session is None or stored is None or not _declared(record) or not session.is_modified(record):
        return
    if not _is_followed(session):
        return
    Changes.of(session).touch(stored)
    key = tuple(mapper.primary_key_from_instance(record))
    if key != stored.key:
        Changes.of(session).made(stored._replace(key=key))


def _before_delete(mapper: Mapper[Any], connection: sa.Connection, record: Any) -> None:
    session, stored = object_session(record), _stored(record)
    if session is not None and stored is not None and _declared(record) and _is_followed(session):
        Changes.of(session).touch(stored)


def _on_statement(state: ORMExecuteState) -> None:
    """Find the rows that an UPDATE or DELETE is about to change."""
    if not (state.is_update or state.is_delete or state.is_insert) or not _declarations():
        return
    mapper = _mapper_of(state)
    if mapper is None:
        return
    if state.is_insert:
        logger.warning(
            "The pages are not told of rows of %s that an INSERT statement adds: use db.session.add_all(), or "
            "broadcast a refresh.",
            mapper.class_.__name__,
        )
        return
    session = state.session
    if session.autoflush:
        session.flush()
    keys = _keys(state, mapper)
    if keys:
        Changes.of(session).touch(*(RowKey(mapper.base_mapper.class_, key) for key in keys))


def _before_commit(session: Session) -> None:
    if not _declarations() or session.get_nested_transaction() is not None:
        return
    session.flush()
    session.info[_COMMITTING] = session.get_transaction()
    _tell(session)


def _after_flush(session: Session, context: Any) -> None:
    # Another listener of the commit has changed something after ours.
    if session.info.get(_COMMITTING) is session.get_transaction():
        _tell(session)


def _tell(session: Session) -> None:
    changes: Changes | None = session.info.get(_KEY)
    if changes is not None:
        changes.tell()


# -- reading beside a session ------------------------------------------------------------------------------------------


@contextmanager
def _beside(owner: Session, mode: Any) -> Iterator[Session]:
    """A session that sees what the owner's transaction sees, and leaves the owner's records alone.

    The rows are read anew, so that a relationship follows a foreign key that was set by hand. It is of the app's own
    class: what the app has it leave out, such as rows marked as deleted, is left out here too.
    """
    db: SQLAlchemy = current_app.extensions["instruct"].db
    options = {key: value for key, value in db.session.session_factory.kw.items() if key != "class_"}
    options |= {"autoflush": False, "join_transaction_mode": mode}
    with _class_beside(type(owner))(**options) as session:
        session.info[_OWNER] = owner
        yield session


def _class_beside(parent: Any) -> Any:
    """Return the class of sessions beside those of a class; it is made once, and lives as long as that one."""
    made = vars(parent).get(_BESIDE)
    if made is None:

        class Beside(parent):  # type: ignore[misc]
            def get_bind(self, mapper: Any = None, clause: Any = None, bind: Any = None, **kwargs: Any) -> Any:
                about = {"mapper": mapper, "clause": clause, "bind": bind, **kwargs}
                return self.info[_OWNER].connection(bind_arguments=about)

        made = Beside
        setattr(parent, _BESIDE, made)
    return made


def _read(session: Session, rows: list[RowKey]) -> dict[RowKey, Any]:
    """Read rows in few statements; None for those that are not there."""
    found: dict[RowKey, Any] = {}
    for root in dict.fromkeys(row.root for row in rows):
        keys = [row.key for row in rows if row.root is root]
        columns = sa.inspect(root).primary_key
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            if len(columns) == 1:
                wanted: Any = columns[0].in_([key[0] for key in some])
            else:
                wanted = sa.or_(*(sa.and_(*map(_equals, columns, key)) for key in some))
            for record in session.scalars(sa.select(root).where(wanted)).unique():
                state: Any = sa.inspect(record)
                found[RowKey(root, tuple(state.identity))] = record
    return {row: found.get(row) for row in rows}


def _equals(column: Any, value: Any) -> Any:
    return column == value


def _looks(record: Any, give_up: Callable[[], object] = lambda: None) -> Looks:
    """Look at a row for each declaration; ``give_up`` is called where that fails."""
    looks: Looks = {}
    for declaration in _declared(record):
        try:
            looks[declaration] = declaration.look(record)
        except Exception:
            logger.exception("broadcasts(%s) could not tell where a row shows", declaration.model.__name__)
            give_up()
            looks[declaration] = declaration.blind(record)
    return looks


def _keys(state: ORMExecuteState, mapper: Mapper[Any]) -> list[tuple[Any, ...]]:
    """Return the primary keys of the rows that a statement is about."""
    attributes = [mapper.get_property_by_column(column) for column in mapper.primary_key]
    if isinstance(state.parameters, list):
        names = [attribute.key for attribute in attributes]
        if all(name in given for given in state.parameters for name in names):
            return [tuple(given[name] for name in names) for given in state.parameters]
        logger.warning("The pages are not told of a statement on %s without its keys", mapper.class_.__name__)
        return []
    query = sa.select(*(attribute.class_attribute for attribute in attributes)).select_from(mapper.class_)
    where: Any = getattr(state.statement, "whereclause", None)
    if where is not None:
        query = query.where(where)
    rows = state.session.execute(query, state.parameters or {}, bind_arguments={"mapper": mapper})
    return [tuple(row) for row in rows]


def _mapper_of(state: ORMExecuteState) -> Mapper[Any] | None:
    """Return the declared model, or one related to it by inheritance, whose rows a statement is about."""
    models = [declaration.model for declaration in _declarations()]
    if state.bind_mapper is not None:
        about: Mapper[Any] = sa.inspect(state.bind_mapper).mapper  # The caller may have named a class.
        related = any(issubclass(model, about.class_) or issubclass(about.class_, model) for model in models)
        return about if related else None
    table = getattr(state.statement, "table", None)
    mappers = (sa.inspect(model) for model in models)
    return next((mapper for mapper in mappers if mapper.local_table is table), None)


def _stored(record: Any) -> RowKey | None:
    state: Any = sa.inspect(record)
    return None if state.identity is None else RowKey(state.mapper.base_mapper.class_, tuple(state.identity))


def _is_followed(session: Session) -> bool:
    """Tell whether a session is one of ``db.session``'s: rows tell of what any session does to them."""
    db: SQLAlchemy = current_app.extensions["instruct"].db
    return isinstance(session, db.session.session_factory.class_)


def _declared(record: Any) -> list[ModelBroadcast]:
    return [declaration for declaration in _declarations() if isinstance(record, declaration.model)]


def _declarations() -> list[ModelBroadcast]:
    """Return what the current app has declared."""
    hooks = getattr(current_app.extensions.get("instruct"), "hooks", None) if has_app_context() else None
    declarations: list[ModelBroadcast] = getattr(hooks, "broadcasts", None) or []
    return declarations
