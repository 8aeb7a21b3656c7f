"""How the rows of a class or a table are written down: their key, their fields, and which of these are left out.

A class that inherits is one layout over all its tables; a table that no class is mapped to has its columns' names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from datetime import date
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any
from typing import cast
from uuid import UUID

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import orm
from sqlalchemy.orm import Mapper
from sqlalchemy.types import TypeDecorator

from .ledger import Ledger
from .marks import is_bookkeeping
from .marks import marks
from .marks import title_of
from .values import Lost
from .values import Read
from .values import Write
from .values import is_redacted
from .values import read
from .values import reader
from .values import write
from .values import writer

Key = tuple[Any, ...]
Row = dict[str, Any]
"""A row's values by the names of their fields."""

AT_ONCE = 400
"""Rows that one SELECT reads by their keys: SQLite takes no more than 32,766 values."""

_SAME = (sa.Integer, int), (sa.Boolean, bool), (sa.Date, date), (sa.LargeBinary, bytes)
MOST_KEY = 500
"""Characters of a key, as :attr:`Change.key` holds them."""


@dataclass(slots=True, eq=False)
class Field:
    """One column of a row.

    :ivar exact: a value of just this class is stored as it is; any other may come back in another form.
    :ivar zoned: of a moment, whether it has to have a zone for that.
    :ivar steady: whether a value in memory cannot be changed in place.
    :ivar filled: whether the database may fill it in by itself.
    :ivar bookkeeping: whether it only follows other fields: no conflict, and nothing that people are asked about.
    """

    name: str
    column: sa.Column[Any]
    write: Write
    read: Read
    exact: type | None
    zoned: bool | None
    steady: bool
    filled: bool
    redacted: bool
    bookkeeping: bool
    is_json: bool
    plain: type | None = field(init=False)
    """The class that is stored as it is, whatever the value."""

    def __post_init__(self) -> None:
        self.plain = self.exact if self.zoned is None else None

    def is_settled(self, value: Any) -> bool:
        """Tell whether the database holds just this value when it was given it."""
        if value is None:
            return self.steady
        if value.__class__ is not self.exact:
            return False
        return self.zoned is None or (cast(datetime, value).tzinfo is not None) is self.zoned

    def holds(self, value: Any, written: Any) -> bool:
        """Tell whether a value is what typed JSON says; of what was not kept by its digest, or not at all."""
        if is_redacted(written) or self.write(value) == written:
            return True
        try:
            return self.same(value, self.read(written))
        except (Lost, LookupError, TypeError, ValueError):
            return False

    def same(self, one: Any, other: Any) -> bool:
        """Tell whether two values are the same to the column."""
        if one is other:
            return True
        if one is None or other is None or one is sa.JSON.NULL or other is sa.JSON.NULL:
            return False
        try:
            return bool(self.column.type.compare_values(one, other))
        except Exception:  # the app's own comparison, or moments with and without a zone
            return False


@dataclass(slots=True, eq=False)
class Layout:
    """How rows are read and written.

    :ivar source: what they are selected from.
    :ivar base: the table at the root, whose name and key they go by.
    :ivar partial: whether it is only the part of a row that a table of a joined class has.
    """

    entity: str | None
    table: str
    mapper: Mapper[Any] | None
    source: Any
    base: sa.Table
    keys: tuple[sa.Column[Any], ...]
    key_names: tuple[str, ...]
    fields: dict[str, Field]
    partial: bool = False
    updated: tuple[str, ...] = ()
    """Fields that the database, or SQLAlchemy, sets by itself in an UPDATE."""
    references: tuple[str, ...] = ()
    title: str | None = None
    """The field by which people call a row."""
    unmapped: bool = False
    """Whether the table has columns that the class does not show."""
    simple: bool = field(init=False)
    restless: bool = field(init=False)
    """Whether an UPDATE may forget what a field was before."""
    keyed: frozenset[str] = field(init=False)
    _select: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.simple = len(self.keys) == 1
        self.restless = bool(self.updated) or not all(one.steady for one in self.fields.values())
        self.keyed = frozenset(self.key_names)

    def read(self, execute: Callable[[Any], Any], keys: Iterable[Key]) -> dict[Key, Row]:
        """Read rows by their keys, in few statements."""
        wanted = list(dict.fromkeys(keys))
        found: dict[Key, Row] = {}
        for start in range(0, len(wanted), AT_ONCE):
            found |= self.select(execute, self.where(wanted[start : start + AT_ONCE]))
        return found

    def where(self, keys: list[Key]) -> Any:
        if self.simple:
            return self.keys[0].in_([key[0] for key in keys])
        return sa.or_(
            *(sa.and_(*(column == value for column, value in zip(self.keys, key, strict=True))) for key in keys)
        )

    def select(self, execute: Callable[[Any], Any], *conditions: Any, parameters: Any = None) -> dict[Key, Row]:
        """Read the rows that meet conditions."""
        if self._select is None:
            fields = self.fields.values()
            nulls = [one.column.is_(sa.null()).label(f"null_{n}") for n, one in enumerate(fields) if one.is_json]
            self._select = sa.select(*self.keys, *(one.column for one in fields), *nulls).select_from(self.source)
        query = self._select.where(*conditions)
        if parameters:
            query = query.params(parameters)
        count, names = len(self.keys), tuple(self.fields)
        found = {}
        for values in execute(query):
            values = tuple(values)
            row = dict(zip(names, values[count:], strict=False))
            if len(values) > count + len(names):
                self._tell_nulls(row, values[count + len(names) :])
            found[values[:count]] = row
        return found

    def _tell_nulls(self, row: Row, nulls: tuple[Any, ...]) -> None:
        documents = (one.name for one in self.fields.values() if one.is_json)
        for name, is_null in zip(documents, nulls, strict=True):
            if row[name] is None and not is_null:
                row[name] = sa.JSON.NULL

    def read_key(self, written: str) -> Key:
        """Read a key that :meth:`write_key` wrote.

        :raises Lost: for a key that was not kept whole.
        """
        try:
            return tuple(read(value) for value in json.loads(written))
        except ValueError:
            raise Lost("The key is too long to be kept.") from None

    def write_key(self, key: Key) -> str:
        """Write a key as canonical JSON."""
        if self.simple and key[0].__class__ is int:
            return f"[{key[0]}]"
        return json.dumps([write(value) for value in key], separators=(",", ":"), sort_keys=True)


class Layouts:
    """The layouts of one app, each made once.

    :param redact: patterns of ``table.column``, whose values are not written.
    """

    def __init__(self, db: SQLAlchemy, dialect: sa.Dialect, redact: Iterable[str] = ()) -> None:
        self.dialect = dialect
        self._db = db
        self._redact = tuple(redact)
        self._of_class: dict[Mapper[Any], Layout | None] = {}
        self._of_table: dict[sa.Table, Layout | None] = {}

    def of_class(self, mapper: Mapper[Any]) -> Layout | None:
        """Return how the rows of a mapped class are written; None for those that are not."""
        try:
            return self._of_class[mapper]
        except KeyError:
            made = self._of_class[mapper] = self._for_class(mapper)
            return made

    def of_table(self, table: sa.Table) -> Layout | None:
        """Return how the rows of a table are written; None where they are not, or have no key."""
        if table not in self._of_table:
            self._of_table[table] = self._for_table(table)
        return self._of_table[table]

    def dependents(self, table: sa.Table) -> Iterator[tuple[sa.Table, sa.ForeignKeyConstraint]]:
        """Give what the database itself changes as rows of a table go."""
        for other in table.metadata.tables.values():
            for constraint in other.foreign_key_constraints:
                follows = (constraint.ondelete or "").upper() in ("CASCADE", "SET NULL", "SET DEFAULT")
                if follows and constraint.referred_table is table:
                    yield other, constraint

    def named(self, entity: str | None, table: str) -> Layout | None:
        """Return how the rows of a class are written, by its name and that of its root's table; None for a lost one."""
        mapper = self.mapper_named(entity, table) if entity is not None else None
        if mapper is not None:
            return self.of_class(mapper)
        known = self.table_named(table)
        return None if known is None else self.of_table(known)

    def mapper_named(self, entity: str | None, table: str) -> Mapper[Any] | None:
        """Return the class of a name whose rows go by a table; else the one at the table's root."""
        known = [mapper for mapper in self._mappers() if _root(mapper).fullname == table]
        named = [mapper for mapper in known if mapper.class_.__name__ == entity]
        return next(iter(named), None) or next((mapper for mapper in known if mapper.base_mapper is mapper), None)

    def table_named(self, name: str) -> sa.Table | None:
        """Return a table of the app's default database by its full name."""
        return next((table for table in self._db.metadata.tables.values() if table.fullname == name), None)

    def _mappers(self) -> list[Mapper[Any]]:
        registry: orm.registry = cast(Any, self._db.Model).registry
        return list(registry.mappers)

    def _for_class(self, mapper: Mapper[Any]) -> Layout | None:
        root = _root(mapper)
        if not isinstance(root, sa.Table) or root.name in Ledger.metadata.tables:
            return None
        tables = [table for table in mapper.tables if isinstance(table, sa.Table)]
        named = {
            column: attribute.key
            for attribute in mapper.column_attrs
            for column in attribute.columns[:1]
            if isinstance(column, sa.Column) and column.table in tables
        }
        mapped = {column for attribute in mapper.column_attrs for column in attribute.columns}
        keys = tuple(mapper.primary_key)
        made = self._made(
            mapper.class_.__name__, root, mapper, mapper.persist_selectable, keys, named, mapper.version_id_col
        )
        # What else a table has of columns belongs to other classes of it.
        made.unmapped = any(
            column not in mapped
            for table in tables
            for column in table.columns
            if not any(column in other._columntoproperty for other in mapper.base_mapper.self_and_descendants)
        )
        return made

    def _for_table(self, table: sa.Table) -> Layout | None:
        if table.name in Ledger.metadata.tables:
            return None
        mappers = [mapper for mapper in self._mappers() if table in mapper.tables]
        own = next((mapper for mapper in mappers if mapper.local_table is table), None)
        named = {
            column: next(
                (mapper.get_property_by_column(column).key for mapper in mappers if column in mapper._columntoproperty),
                column.key,
            )
            for column in table.columns
        }
        keys = tuple(table.primary_key.columns)
        if not keys and all(column.foreign_keys for column in table.columns):
            keys = tuple(table.columns)
        if not keys:
            return None
        root = table if own is None else _root(own)
        entity = None if own is None else own.class_.__name__
        version = None if own is None else own.version_id_col
        made = self._made(entity, root, own, table, keys, named, version)
        made.partial = root is not table
        return made

    def _made(
        self,
        entity: str | None,
        root: Any,
        mapper: Mapper[Any] | None,
        source: Any,
        keys: tuple[Any, ...],
        named: dict[Any, str],
        version: Any,
    ) -> Layout:
        fields = {
            name: self._field(column, name)
            for column, name in named.items()
            if column is not version and "exclude" not in marks(column)
        }
        return Layout(
            entity,
            root.fullname,
            mapper,
            source,
            root,
            keys,
            tuple(_name_of(mapper, column) for column in keys),
            fields,
            updated=tuple(
                one.name
                for one in fields.values()
                if one.column.onupdate is not None or one.column.server_onupdate is not None or one.column.computed
            ),
            references=tuple(one.name for one in fields.values() if one.column.foreign_keys),
            title=title_of((one.name, one.column) for one in fields.values() if not one.redacted),
        )

    def _field(self, column: sa.Column[Any], name: str) -> Field:
        kind = column.type
        full = f"{column.table.fullname}.{column.key}"
        exact, zoned = _exact(kind, self.dialect)
        return Field(
            name,
            column,
            writer(kind, self.dialect),
            reader(kind, self.dialect),
            exact,
            zoned,
            steady=not isinstance(kind, sa.JSON | sa.ARRAY | TypeDecorator | sa.PickleType)
            or isinstance(kind, sa.Interval),
            filled=any(
                (
                    column.default is not None,
                    column.server_default is not None,
                    column.computed is not None,
                    column.identity is not None,
                    column.primary_key,
                )
            ),
            redacted="redact" in marks(column) or any(fnmatchcase(full, pattern) for pattern in self._redact),
            bookkeeping=is_bookkeeping(column),
            is_json=isinstance(kind, sa.JSON),
        )


def _name_of(mapper: Mapper[Any] | None, column: sa.Column[Any]) -> str:
    if mapper is None or column not in mapper._columntoproperty:
        return column.key
    return str(mapper.get_property_by_column(column).key)


def _root(mapper: Mapper[Any]) -> Any:
    # A class that inherits concretely has a table of its own.
    while mapper.inherits is not None and not mapper.concrete:
        mapper = mapper.inherits
    return mapper.local_table


def _exact(kind: Any, dialect: sa.Dialect) -> tuple[type | None, bool | None]:
    """Return of which class a value is stored as it is, and whether a moment then has a zone."""
    if isinstance(kind, sa.Interval):
        return None, None
    if isinstance(kind, TypeDecorator) or getattr(kind, "_variant_mapping", None):
        return None, None
    if isinstance(kind, sa.Enum):
        return kind.enum_class or str, None
    if isinstance(kind, sa.DateTime):
        return datetime, bool(kind.timezone) and dialect.name != "sqlite"
    if isinstance(kind, sa.Uuid):
        return (UUID if kind.as_uuid else None), None
    if isinstance(kind, sa.String):
        return (None if isinstance(kind, sa.CHAR | sa.NCHAR) else str), None
    if isinstance(kind, sa.Float) and not kind.asdecimal and kind.precision is None:
        return (None if isinstance(kind, sa.REAL) else float), None
    return next((python for known, python in _SAME if isinstance(kind, known)), None), None
