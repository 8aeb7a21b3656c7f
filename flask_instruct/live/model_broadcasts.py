"""What the pages are told of a model's committed changes: a row that appears, changes, moves or goes.

A change is two looks at a row, before and after the transaction, whatever happened in between; from them follows what
each stream is sent. Nothing here does I/O but for what the app's own functions look up.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from typing import NamedTuple

from markupsafe import Markup
from sqlalchemy.orm import ColumnProperty
from sqlalchemy.orm import InstrumentedAttribute

from ..errors import DeclarationError
from .rendering import render_fragment
from .turbo_stream import dom_id
from .turbo_stream import identity
from .turbo_stream import snake_case
from .turbo_stream import stream_name

To = Callable[[Any], object]
"""Names the streams of a record: None, a streamable, a tuple of them for one stream, or a list of these."""

Target = str | Callable[[Any], object]
"""The element that a new row is appended to: its id, or a function of the record that gives the id or a record."""


class Place(NamedTuple):
    """A stream that shows a row, and the id of the element that lists it there."""

    stream: str
    container: str | None


@dataclass(frozen=True, slots=True)
class Look:
    """How a row stood at one moment.

    :param element: id of its element on a page.
    :param places: where it shows; None when that could not be told.
    :param watched: values of the columns that ``on`` names; ``order``: of those that ``order_by`` names.
    """

    element: str
    places: tuple[Place, ...] | None
    watched: tuple[Any, ...] = ()
    order: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one stream is sent.

    :param within: id of the list that the target is in. A page may show both lists of a row that moved, and then has
        its element twice until it has heard from both streams, whichever is first.
    """

    stream: str
    action: Literal["append", "replace", "remove", "refresh"]
    target: str | None = None
    within: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelBroadcast:
    """One declaration; its parameters are those of :meth:`flask_instruct.Instruct.broadcasts`.

    :raises DeclarationError: for a class that is not mapped, a name that is no column, or what cannot go together.
    """

    model: type[Any]
    to: To
    template: str | None = None
    on: tuple[str, ...] = ()
    target: Target | None = None
    part: str | None = None
    order_by: tuple[str, ...] = ()
    method: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.model, type) and hasattr(self.model, "__mapper__")):
            raise DeclarationError(f"broadcasts() takes a mapped class, not {self.model!r}.")
        for name in (*self.on, *self.order_by):
            attribute = getattr(self.model, name, None)
            if not isinstance(attribute, InstrumentedAttribute) or not isinstance(attribute.property, ColumnProperty):
                raise DeclarationError(f"broadcasts({self.model.__name__}): {name!r} is no column of it.")
        if self.part and (self.target or self.order_by):
            raise DeclarationError(
                f"broadcasts({self.model.__name__}): a part of a record stands in no list, so there is no target and "
                f"no order_by."
            )
        if self.template is None and (self.part or self.context or self.method):
            raise DeclarationError(
                f"broadcasts({self.model.__name__}): without a template pages refresh, and part, method and context "
                f"would mean nothing."
            )

    def look(self, record: Any) -> Look:
        """Look at a record as it stands.

        :raises Exception: whatever ``to`` and ``target`` raise.
        """
        return Look(
            dom_id(record, self.part),
            tuple(self._places(record)),
            tuple(getattr(record, name) for name in self.on),
            tuple(getattr(record, name) for name in self.order_by),
        )

    def blind(self, record: Any) -> Look:
        """Return what can be said of a record whose places cannot be told."""
        return Look(dom_id(record, self.part), None)

    def steps(self, before: Look | None, after: Look | None) -> Iterator[Step]:
        """Give what the streams are sent about a row.

        :param before: None when it was not there; ``after``: None when it is not there any more.
        :raises ValueError: for a row that is to be appended nobody knows where.
        """
        was = dict.fromkeys((before.places if before else None) or ())
        now = dict.fromkeys((after.places if after else None) or ())
        unsure = any(look is not None and look.places is None for look in (before, after))
        for place in (*was, *now) if unsure else ():
            yield Step(place.stream, "refresh")
        if unsure:
            return
        for place in was:
            if place not in now:
                yield from self._gone(before, after, place)
        for place in now:
            yield from self._appeared(before, after, place) if place not in was else self._changed(before, after, place)

    def render(self, record: Any) -> Markup:
        """Render the row."""
        assert self.template is not None
        return render_fragment(self.template, **{snake_case(self.model.__name__): record, **self.context})

    def _gone(self, before: Look | None, after: Look | None, place: Place) -> Iterator[Step]:
        assert before is not None
        if self.part is not None:
            if after is not None:
                yield Step(place.stream, "refresh")
        elif self.template is None:
            yield Step(place.stream, "refresh")
        else:
            yield Step(place.stream, "remove", before.element, place.container)

    def _appeared(self, before: Look | None, after: Look | None, place: Place) -> Iterator[Step]:
        if self.part is not None:
            if before is not None:
                yield Step(place.stream, "refresh")
        elif self.template is None or self.order_by:
            yield Step(place.stream, "refresh")
        elif place.container is None:
            raise ValueError(
                f"broadcasts({self.model.__name__}) cannot tell which element of {place.stream} lists the rows: give "
                f"target=, or let to= return a record and a name, such as (c.assessment, 'comments')."
            )
        else:
            yield Step(place.stream, "append", place.container)

    def _changed(self, before: Look | None, after: Look | None, place: Place) -> Iterator[Step]:
        assert before is not None
        assert after is not None
        reordered = before.order != after.order
        if not reordered and self.on and before.watched == after.watched:
            return
        if reordered or self.template is None:
            yield Step(place.stream, "refresh")
        else:
            yield Step(place.stream, "replace", after.element, place.container)

    def _places(self, record: Any) -> Iterator[Place]:
        result = self.to(record)
        for each in result if isinstance(result, list) else [result]:
            streamables = each if isinstance(each, tuple) else (each,)
            # What belongs to nobody yet, or no longer, shows nowhere.
            if not any(streamable is None for streamable in streamables):
                yield Place(stream_name(*streamables), self._container(record, streamables))

    def _container(self, record: Any, streamables: tuple[object, ...]) -> str | None:
        if self.part is not None:
            return None
        if self.target is not None:
            target = self.target(record) if callable(self.target) else self.target
            return target if isinstance(target, str) else dom_id(target)
        *owners, name = streamables
        if not isinstance(name, str):
            return None
        owner = next((owner for owner in reversed(owners) if identity(owner) is not None), None)
        return name if owner is None else dom_id(owner, name)


def names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return names that may have been given as a single one."""
    return (given,) if isinstance(given, str) else tuple(given)
