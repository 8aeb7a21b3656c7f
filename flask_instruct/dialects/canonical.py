"""Bring any JSON Schema of an object into one form that every provider takes, and that dialects are derived from.

Its root is an object with properties, definitions stand in ``$defs`` and only where they are used, a ``$ref`` stands
alone, and what no value can satisfy is gone. It lets through what the schema given does, seldom more.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from ..messages import JsonObject
from .recursion import used_definitions
from .vocabulary import ANNOTATIONS
from .vocabulary import Place
from .vocabulary import described
from .vocabulary import in_words
from .vocabulary import told_place
from .vocabulary import types_of
from .vocabulary import with_parts

MOST_FOLLOWED = 200
"""References at the root that are written out; they could double with each level."""

_GONE = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor"})
_GONE |= {"$vocabulary", "$comment", "$defs", "definitions"}
_IDLE = frozenset({"patternProperties", "dependentSchemas", "dependentRequired"})
"""Keywords that say nothing where they are empty."""
_NOT_AT_THE_TOP = ("not", "if", "then", "else", "enum", "const")
"""Refused at the root, beside ``anyOf``, ``oneOf`` and ``allOf``, by OpenAI also where nothing is strict."""
_ROOT_NAME = "arguments"


@dataclass(frozen=True, slots=True)
class Canonical:
    """The schema, what was changed in words, and whether its root lets through more than the one given."""

    schema: JsonObject
    changes: tuple[str, ...]
    looser: bool


def canonical(document: JsonObject) -> Canonical:
    """Return the canonical form of a schema, which is left as it is.

    A reference that leads out of the schema is told as anything: nothing is fetched.
    """
    return _Reader(document).read()


class _Reader:
    def __init__(self, document: JsonObject) -> None:
        self.document = document
        self.names: dict[str, str] = {}
        self.waiting: deque[tuple[str, object, Place]] = deque()
        self.changes: list[str] = []
        self.looser = False
        self.followed_in_root = 0

    def read(self) -> Canonical:
        root = self.node(self.root(), ())
        definitions: JsonObject = {}
        while self.waiting:  # not by recursion: a chain of definitions may be long
            name, target, place = self.waiting.popleft()
            definitions[name] = self.node(target, place)
        schema: JsonObject = {**root, "$defs": definitions} if definitions else root
        return Canonical(used_definitions(schema), tuple(dict.fromkeys(self.changes)), self.looser)

    def root(self) -> JsonObject:
        """Return the root as an object without references and unions, which no provider takes there."""
        root = self.flat(self.document, frozenset({"#"}))
        moved = {key: root.pop(key) for key in _NOT_AT_THE_TOP if key in root}
        if moved:
            self.looser = True
            self.changed((), f"{', '.join(moved)} moved to the description")
            root = described(root, [said for key, value in moved.items() if (said := in_words(key, value))])
        if root.get("type") != "object":
            self.changed((), "told as an object")
        front = {"type": "object", "properties": root.get("properties", {})}
        return {**front, **{key: value for key, value in root.items() if key not in front}}

    def flat(self, node: JsonObject, seen: frozenset[str]) -> JsonObject:
        """Return an object schema with what it refers to, and what it combines, written out."""
        node = _modern(node)
        joined: list[JsonObject] = []
        if isinstance(pointer := node.pop("$ref", None), str):
            self.changed((), "its $ref is written out")
            joined += self.members([{"$ref": pointer}], seen)
        joined += self.members(node.pop("allOf", ()), seen)
        for key in ("anyOf", "oneOf"):
            if options := self.members(node.pop(key, ()), seen):
                self.looser = self.looser or len(options) > 1
                self.changed((), f"{key} is told as one object of all properties")
                joined.append(_either(options))
        for other in joined:
            node = _both(node, other)
        return node

    def members(self, members: Iterable[object], seen: frozenset[str]) -> list[JsonObject]:
        found: list[JsonObject] = []
        for member in members:
            follow = seen
            if isinstance(member, dict) and set(member) == {"$ref"}:
                pointer, member = self.followed(member["$ref"])
                self.followed_in_root += 1
                if pointer in seen or self.followed_in_root > MOST_FOLLOWED:
                    continue
                follow = seen | {pointer}
            if isinstance(member, dict) and not self.is_never(member) and types_of(member) in ([], ["object"]):
                found.append(self.flat(member, follow))
        return found

    def node(self, value: object, place: Place) -> JsonObject:
        if not isinstance(value, dict):
            return {} if value is not False else {"not": {}}
        node = self.satisfiable(_modern(value), place)
        pointer = node.pop("$ref", None)
        node = with_parts(node, self.part, place)
        if isinstance(pointer, str):
            node = self.referring(pointer, node, place)
        if "array" in types_of(node) and not {"items", "prefixItems"} & node.keys():
            node["items"] = {}  # "array schema missing items" fails the whole request
        return self.without_null_choice(node, place)

    def part(self, value: object, place: Place) -> object:
        return value if isinstance(value, bool) else self.node(value, place)

    def satisfiable(self, node: JsonObject, place: Place) -> JsonObject:
        """Take out what no value can satisfy, and write ``true`` as the empty schema."""
        if node.get("enum") == []:
            del node["enum"]
            self.changed(place, "its empty enum is gone")
        if "const" in node:
            node.pop("enum", None)
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            if key in node:
                kept = [item for item in node[key] if key in ("allOf", "prefixItems") or not self.is_never(item)]
                if len(kept) < len(node[key]):
                    self.changed(place, f"a member of {key} that nothing can satisfy is gone")
                node[key] = [self.node(item, place) if isinstance(item, bool) else item for item in kept]
                if not kept:
                    del node[key]
        if False in (properties := node.get("properties", {})).values():
            self.changed(place, "a property that may not be there is gone")
            node["properties"] = {name: part for name, part in properties.items() if part is not False}
            node["required"] = [name for name in node.get("required", ()) if properties.get(name) is not False]
        if "properties" in node:
            named = node["properties"].items()
            node["properties"] = {name: {} if part is True else part for name, part in named}
        if isinstance(node.get("items"), bool) and node.pop("items") is False:
            most = len(node.get("prefixItems", ()))
            node["maxItems"] = min(most, node.get("maxItems", most))
        return node

    def is_never(self, value: object) -> bool:
        if isinstance(value, dict) and isinstance(value.get("$ref"), str):
            value = self.followed(value["$ref"])[1]
        if not isinstance(value, dict):
            return value is False
        return value.get("enum") == [] or value.get("not") in ({}, True)

    def referring(self, pointer: str, beside: JsonObject, place: Place) -> JsonObject:
        pointer, target = self.followed(pointer)
        if target is None:
            self.changed(place, "its $ref leads out of the schema: told as anything")
            return beside
        if pointer not in self.names:
            self.names[pointer] = self.free_name(pointer)
            self.waiting.append((self.names[pointer], target, place))
        reference: JsonObject = {"$ref": f"#/$defs/{self.names[pointer]}"}
        if not beside:
            return reference
        if "anyOf" in beside:
            return {**beside, "allOf": [reference, *beside.get("allOf", ())]}
        return {"anyOf": [reference], **beside}

    def followed(self, pointer: str) -> tuple[str, object]:
        """Return where a reference leads at last, and what is there; ``None`` where it leads nowhere."""
        seen: set[str] = set()
        while pointer not in seen:
            seen.add(pointer)
            target = _found(self.document, pointer)
            if not isinstance(target, dict) or not isinstance(target.get("$ref"), str):
                return pointer, target
            if set(target) - _GONE != {"$ref"}:
                return pointer, target
            pointer = target["$ref"]
        return pointer, None

    def free_name(self, pointer: str) -> str:
        wanted = re.sub(r"[^a-zA-Z0-9_.-]", "_", unquote(pointer.rpartition("/")[2])) if "/" in pointer else _ROOT_NAME
        taken, name, number = set(self.names.values()), wanted or "part", 2
        while name in taken:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def without_null_choice(self, node: JsonObject, place: Place) -> JsonObject:
        """Write an enum that holds null as a union: some providers take values of one type only."""
        choices, types = node.get("enum"), types_of(node)
        if not isinstance(choices, list) or not any(choice is None for choice in choices):
            return node
        self.changed(place, "null is told beside its enum")
        others = [choice for choice in choices if choice is not None]
        if types and "null" not in types:
            return {**node, "enum": others} if others else {key: node[key] for key in node if key != "enum"}
        about = {key: value for key, value in node.items() if key in ANNOTATIONS}
        rest = {key: value for key, value in node.items() if key not in ANNOTATIONS}
        named = [name for name in types if name != "null"]
        if not others or (types and not named):
            return {"type": "null", **about}
        rest |= {"enum": others} | ({"type": named[0] if len(named) == 1 else named} if named else {})
        return {"anyOf": [rest, {"type": "null"}], **about}

    def changed(self, place: Place, what: str) -> None:
        self.changes.append(f"{told_place(place)}: {what}")


def _modern(schema: JsonObject) -> JsonObject:
    """Return a copy in which keywords of earlier drafts are written as the 2020-12 draft does."""
    node = {key: value for key, value in schema.items() if key not in _GONE and not (key in _IDLE and not value)}
    if isinstance(node.get("id"), str):
        del node["id"]
    for bound, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(node.get(bound), bool) and node.pop(bound) and inclusive in node:
            node[bound] = node.pop(inclusive)
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node["additionalItems"]
        if not node["prefixItems"]:
            del node["prefixItems"]
    node.pop("additionalItems", None)
    for name, needed in node.pop("dependencies", {}).items():
        key = "dependentRequired" if isinstance(needed, list) else "dependentSchemas"
        node[key] = {**node.get(key, {}), name: needed}
    if not isinstance(node.get("required", []), list):
        del node["required"]
    types = types_of(node)
    if "type" in node and not isinstance(node["type"], str) and len(types) == 1:
        node["type"] = types[0]
    return node


def _found(document: JsonObject, pointer: str) -> object:
    root, *steps = pointer.split("/")
    node: Any = document
    for step in steps:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        elif isinstance(node, dict) and name in node:
            node = node[name]
        else:
            return None
    return node if root == "#" and isinstance(node, dict | bool) else None


def _both(one: JsonObject, other: JsonObject) -> JsonObject:
    """Return an object schema that asks for what two ask for; at odds, the first is kept."""
    made = {**other, **one}
    for key in ("properties", "required", "description"):
        if key not in one or key not in other:
            continue
        if key == "properties":
            shared = {name: part for name, part in other[key].items() if name in one[key] and part != one[key][name]}
            made[key] = {**other[key], **one[key]}
            made[key] |= {name: {"allOf": [one[key][name], part]} for name, part in shared.items()}
        elif key == "required":
            made[key] = list(dict.fromkeys([*one[key], *other[key]]))
        else:
            made[key] = f"{one[key]} {other[key]}".strip()
    return made


def _either(options: list[JsonObject]) -> JsonObject:
    """Return one object schema for several: with all their properties, requiring what each requires."""
    if len(options) == 1:
        return options[0]
    properties: dict[str, list[object]] = {}
    for option in options:
        for name, part in option.get("properties", {}).items():
            known = properties.setdefault(name, [])
            if part not in known:
                known.append(part)
    needs = [list(dict.fromkeys(option.get("required", ()))) for option in options]
    common = [name for name in needs[0] if all(name in need for need in needs)]
    made: JsonObject = {
        "properties": {name: found[0] if len(found) == 1 else {"anyOf": found} for name, found in properties.items()},
        "required": common,
    }
    if all(option.get("additionalProperties") is False for option in options):
        made["additionalProperties"] = False
    own = [" and ".join(name for name in need if name not in common) for need in needs]
    if len(set(own)) > 1:
        made["description"] = f"Give one of: {'; '.join(names or 'nothing more' for names in own)}."
    return made
