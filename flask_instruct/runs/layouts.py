"""How the rows of a class or a table are written down: their key, their fields, and which of these are left out.

A class that inherits is one layout over all its tables; a table that no class is mapped to has its columns' names.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import cast

import sqlalchemy as sa
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import orm
from sqlalchemy.orm import Mapper

from .fields import Field
from .fields import field_of
from .ledger import Ledger
from .marks import marks
from .marks import title_of
from .row_keys import Key
from .row_keys import KeyForm

Row = dict[str, Any]
"""A row's values by the names of their fields."""

AT_ONCE = 400
"""Rows that one SELECT reads by their keys: SQLite takes no more than 32,766 values."""


@dataclass(slots=True, eq=False)
class Layout:
    """How rows are read and written.

    :ivar source: what they are selected from.
    :ivar base: the table at the root, whose name and key they go by.
    :ivar partial: whether it is only the part of a row that a table of a joined class has.
    :ivar kind: the field that says of which of several classes a row is.
    :ivar numbered: whether the database takes no key for a new row, but makes it itself.
    :ivar letting_go: fields that others refer to, and that they forget where one of these changes.
    """

    entity: str | None
    table: str
    mapper: Mapper[Any] | None
    source: Any
    base: sa.Table
    keys: tuple[sa.Column[Any], ...]
    key_names: tuple[str, ...]
    key_form: KeyForm
    fields: dict[str, Field]
    partial: bool = False
    updated: tuple[str, ...] = ()
    """Fields that the database, or SQLAlchemy, sets by itself in an UPDATE."""
    references: tuple[str, ...] = ()
    title: str | None = None
    """The field by which people call a row."""
    unmapped: bool = False
    """Whether the table has columns that the class does not show."""
    kind: str | None = None
    numbered: bool = False
    letting_go: frozenset[str] = frozenset()
    tables: tuple[sa.Table, ...] = field(init=False)
    """The tables that a row has a part in."""
    simple: bool = field(init=False)
    related: bool = field(init=False)
    """Whether its class inherits, or others inherit from it."""
    restless: bool = field(init=False)
    """Whether an UPDATE may forget what a field was before."""
    keyed: frozenset[str] = field(init=False)
    _select: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        every = self.mapper.tables if self.mapper is not None else [self.base]
        self.tables = tuple(one for one in every if isinstance(one, sa.Table))
        self.simple = len(self.keys) == 1
        self.related = self.mapper is not None and _has_relatives(self.mapper)
        self.restless = bool(self.updated) or not all(one.steady for one in self.fields.values())
        self.keyed = frozenset(self.key_names)

    def read(self, execute: Callable[[Any], Any], keys: Iterable[Key]) -> dict[Key, Row]:
        """Read rows by their keys, in few statements."""
        wanted = list(dict.fromkeys(keys))
        found: dict[Key, Row] = {}
        for start in range(0, len(wanted), AT_ONCE):
            found |= self.select(execute, self.where(wanted[start : start + AT_ONCE]))
        return found

    def lock(self, execute: Callable[[Any], Any], keys: Iterable[Key]) -> None:
        """Keep others from changing rows until the transaction's end; waits for those who are at it."""
        wanted = list(dict.fromkeys(keys))
        query = sa.select(sa.literal(1)).select_from(self.source).order_by(*self.keys).with_for_update()
        for start in range(0, len(wanted), AT_ONCE):
            execute(query.where(self.where(wanted[start : start + AT_ONCE])))

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

    def name_of(self, column: sa.Column[Any]) -> str:
        """Return the field, or the part of the key, that a column of its tables is."""
        return _name_of(self.mapper, column)

    def write_key(self, key: Key) -> str:
        """Write a key as canonical JSON."""
        return f"[{key[0]}]" if self.simple and key[0].__class__ is int else self.key_form.write(key)


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

    def of_row(self, layout: Layout, names: Collection[str], kind: Any = None) -> Layout | None:
        """Return the layout of the class that a row is of; None where no class has just its fields.

        :param names: fields of the row that the layout has to have.
        :param kind: what the row itself says of its class, where that is known.
        """
        if layout.mapper is None or not layout.related:
            return layout
        mappers = layout.mapper.base_mapper.self_and_descendants
        if kind is not None:
            mappers = [one for one in mappers if one.polymorphic_identity == kind]
        for mapper in (layout.mapper, *mappers) if kind is None else mappers:
            found = self.of_class(mapper)
            if found is not None and found.fields.keys() >= set(names):
                return found
        return None

    def mapper_named(self, entity: str | None, table: str) -> Mapper[Any] | None:
        """Return the class of a name whose rows go by a table; else the one at the table's root."""
        known = [mapper for mapper in self._mappers() if _root(mapper).fullname == table]
        named = [mapper for mapper in known if mapper.class_.__name__ == entity]
        return next(iter(named), None) or next((mapper for mapper in known if mapper.base_mapper is mapper), None)

    def of_change(self, entity: str | None, table: str) -> Layout | None:
        """Return how the rows of a recorded change are written; None where there are none such any more."""
        mapper = self.mapper_named(entity, table) if entity is not None else None
        if mapper is not None:
            return self.of_class(mapper)
        found = self.table_named(table)
        return None if found is None else self.of_table(found)

    def table_named(self, name: str) -> sa.Table | None:
        """Return a table of the app's default database by its full name."""
        return next((table for table in self._db.metadata.tables.values() if table.fullname == name), None)

    def _mappers(self) -> list[Mapper[Any]]:
        registry: orm.registry = cast(Any, self._db.Model).registry
        # Parents first, and in the same order each time: of classes that share a table the first stands for it.
        return sorted(registry.mappers, key=lambda one: (len(list(one.iterate_to_root())), one.class_.__name__))

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
            name: field_of(column, name, self.dialect, self._redact)
            for column, name in named.items()
            # What the database computes of other columns follows by itself, and cannot be written.
            if column is not version and "exclude" not in marks(column) and column.computed is None
        }
        kind = None if mapper is None else mapper.polymorphic_on
        return Layout(
            entity,
            root.fullname,
            mapper,
            source,
            root,
            keys,
            tuple(_name_of(mapper, column) for column in keys),
            KeyForm(keys, self.dialect),
            fields,
            updated=tuple(
                one.name
                for one in fields.values()
                if one.column.onupdate is not None or one.column.server_onupdate is not None
            ),
            references=tuple(one.name for one in fields.values() if one.column.foreign_keys),
            title=title_of((one.name, one.column) for one in fields.values() if not one.redacted),
            kind=next((name for name, one in fields.items() if one.column is kind), None),
            numbered=self.dialect.supports_identity_columns
            and any(column.identity is not None and column.identity.always for column in keys),
            letting_go=frozenset(name for name, one in fields.items() if self._lets_go(one.column)),
        )

    def _lets_go(self, column: sa.Column[Any]) -> bool:
        """Tell whether rows refer to a column that forget it by themselves where it changes."""
        return any(
            (constraint.onupdate or "").upper() in ("SET NULL", "SET DEFAULT")
            and any(element.column is column for element in constraint.elements)
            for table in column.table.metadata.tables.values()
            for constraint in table.foreign_key_constraints
        )


def _has_relatives(mapper: Mapper[Any]) -> bool:
    return mapper.inherits is not None or len(mapper.self_and_descendants) > 1


def _name_of(mapper: Mapper[Any] | None, column: sa.Column[Any]) -> str:
    if mapper is None or column not in mapper._columntoproperty:
        return column.key
    return str(mapper.get_property_by_column(column).key)


def _root(mapper: Mapper[Any]) -> Any:
    # A class that inherits concretely has a table of its own.
    while mapper.inherits is not None and not mapper.concrete:
        mapper = mapper.inherits
    return mapper.local_table
