"""Which definitions of a schema lead back to themselves, and which are used at all.

Every answer takes time in proportion to the schema, however its definitions refer to each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from ..messages import JsonObject
from .vocabulary import parts


def cyclic(definitions: Mapping[str, Any], *, through_properties: bool = True) -> frozenset[str]:
    """Return the names of definitions that lie on a circle of references, or between two circles.

    :param through_properties: whether a reference inside a property counts.
    """
    leads = {
        name: {other for other, inside in references(node) if through_properties or not inside}
        for name, node in definitions.items()
    }
    left = _without_ends(leads)
    back: dict[str, set[str]] = {name: set() for name in left}
    for name in left:
        for other in leads[name] & left:
            back[other].add(name)
    return frozenset(_without_ends(back))


def references(node: Any) -> Iterator[tuple[str, bool]]:
    """Yield the names of the definitions that a schema refers to, and whether a property lies in between."""
    waiting = [(node, False)]
    while waiting:
        part, inside = waiting.pop()
        if not isinstance(part, dict):
            continue
        if "$ref" in part:
            yield part["$ref"].rpartition("/")[2], inside
        waiting += [(inner, inside or key == "properties") for key, inner, _ in parts(part)]


def used_definitions(schema: JsonObject) -> JsonObject:
    """Return the schema with those of its definitions that its root leads to."""
    definitions = schema.get("$defs", {})
    root = {key: value for key, value in schema.items() if key != "$defs"}
    used, waiting = set[str](), [root]
    while waiting:
        found = {name for name, _ in references(waiting.pop())} - used
        used |= found
        waiting += [definitions[name] for name in found]
    kept = {name: node for name, node in definitions.items() if name in used}
    return {**root, "$defs": kept} if kept else root


def _without_ends(leads: Mapping[str, set[str]]) -> set[str]:
    """Return the names that are left when, again and again, those that lead nowhere are taken away."""
    sources: dict[str, list[str]] = {name: [] for name in leads}
    open_ends = dict.fromkeys(leads, 0)
    for name, others in leads.items():
        for other in others & leads.keys():
            sources[other].append(name)
            open_ends[name] += 1
    left, ends = set(leads), [name for name, count in open_ends.items() if not count]
    while ends:
        end = ends.pop()
        left.discard(end)
        for source in sources[end]:
            open_ends[source] -= 1
            if not open_ends[source]:
                ends.append(source)
    return left
