"""Derive the strict form of a schema, which a provider can enforce while the model writes, or say why there is none.

Objects are closed and nothing is left that the provider refuses. What is checked here in Python stays the same with
either form.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from ..messages import JsonObject
from .canonical import canonical
from .recursion import cyclic
from .recursion import used_definitions
from .reduced import NotStrict
from .reduced import Reducer
from .vocabulary import OPENAI_STRICT
from .vocabulary import Place
from .vocabulary import Vocabulary
from .vocabulary import parts
from .vocabulary import told_place
from .vocabulary import types_of
from .vocabulary import with_parts

__all__ = ["NotStrict", "strict_form", "strictly"]

_TYPED = frozenset({"type", "$ref", "anyOf", "enum", "const"})
_CONDITIONS = ("if", "dependentSchemas")
_ONLY_FOR = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
}
"""Keywords that say nothing of values of another type."""
_OPEN = ("patternProperties", "unevaluatedProperties")


def strict_form(schema: JsonObject) -> JsonObject:
    """Return a new schema in the strictest form, which is OpenAI's: every property is there, or null.

    :raises NotStrict: for an object without fixed properties, or a value without a type; says where.
    """
    made = canonical(schema)
    return strictly(made.schema, OPENAI_STRICT, looser=made.looser)[0]


def strictly(schema: JsonObject, vocabulary: Vocabulary, *, looser: bool) -> tuple[JsonObject, list[str]]:
    """Return the strict form of a canonical schema, and what was changed in words.

    :param looser: whether the root lets through more than was meant.
    :raises NotStrict: when there is none.
    """
    if looser:
        raise NotStrict("the whole is a choice of objects, or has a condition, which no strict form has at the top.")
    made = _Strict(vocabulary, schema.get("$defs", {})).form(schema)
    _within_limits(made, vocabulary.limits or {})
    return made


class _Strict(Reducer):
    def __init__(self, vocabulary: Vocabulary, definitions: Mapping[str, Any]) -> None:
        super().__init__(vocabulary, definitions, whole=True)
        self.places: dict[str, Place] = {}

    def form(self, schema: JsonObject) -> tuple[JsonObject, list[str]]:
        root = self.node({key: value for key, value in schema.items() if key != "$defs"}, ())
        definitions: JsonObject = {}
        while waiting := [name for name in self.places if name not in definitions]:
            for name in waiting:
                definitions[name] = self.node(self.definitions[name], self.places[name])
        if not self.vocabulary.recursion and (rounds := cyclic(definitions)):
            name = next(name for name in self.places if name in rounds)
            self.refuse(self.places[name], f"may hold another {name}, which this strict form does not know")
        made = {**root, "$defs": definitions} if definitions else root
        return used_definitions(made), list(dict.fromkeys(self.changes))

    def node(self, node: JsonObject, place: Place) -> JsonObject:
        if not node.keys() - {"description", "title", "default", "examples"}:
            self.refuse(place, "may be anything, which no strict form can say")
        if self.vocabulary.all_required and self.null_blurs(node):
            self.refuse(
                place, "is a choice of objects that could be either with null in them, which would not be clear"
            )
        if "prefixItems" in node:
            self.refuse(place, "is a list whose items are not of one type, which the strict form demands")
        outside = self.written_out
        node = self.reduced(self.closed(node, place), place)
        if not _TYPED & node.keys():
            self.refuse(place, "has no type, which the strict form demands")
        idle = [key for kind, keys in _ONLY_FOR.items() if kind not in types_of(node) for key in keys]
        node = {key: value for key, value in node.items() if key not in idle}
        if "$ref" in node:
            self.places.setdefault(node["$ref"].rpartition("/")[2], place)
        made = with_parts(node, self.part, place)
        self.written_out = outside
        return self.all_required(made, node, place) if "object" in types_of(node) else made

    def part(self, value: Any, place: Place) -> Any:
        return value if isinstance(value, bool) else self.node(value, place)

    def closed(self, node: JsonObject, place: Place) -> JsonObject:
        """Return an object that lets through nothing but its properties, when it is one."""
        node = self._merged(dict(node), place)
        if "properties" in node and {"anyOf", "oneOf"} & node.keys():
            self.refuse(place, "has properties beside a choice, which the strict form cannot say")
        if "object" not in types_of(node):
            return node
        if any(node.get(key) for key in _OPEN) or node.get("additionalProperties", False) is not False:
            self.refuse(place, "is an object with free keys, which the strict form does not know")
        if "properties" not in node:
            self.refuse(place, "is an object with free keys, which the strict form does not know")
        if any(key in node for key in _CONDITIONS):
            self.refuse(place, "has conditions between its properties, which the strict form cannot say")
        return {**node, "additionalProperties": False}

    def all_required(self, made: JsonObject, before: JsonObject, place: Place) -> JsonObject:
        properties = made["properties"]
        required = [name for name in made.get("required", ()) if name in properties]
        if not self.vocabulary.all_required:
            return {**made, "required": required}
        optional = [name for name in properties if name not in required]
        for name in optional:
            given = before["properties"][name]
            if not self.accepts_null(given):
                properties[name] = _nullable(properties[name])
                self._changed((*place, name), "optional: may be null instead")
            elif given.get("default", ...) is not None:
                why = "may be null and may be left out, which the strict form cannot tell apart"
                self.refuse((*place, name), why)
        return {**made, "properties": properties, "required": list(properties)}

    def null_blurs(self, node: JsonObject) -> bool:
        """Return whether an object written for one option, with null for what it leaves out, fits another one."""
        options = [self.resolved(option) for option in node.get("anyOf") or node.get("oneOf", ())]
        objects = [option for option in options if "properties" in option]
        return any(self.fits(one, other) for one, other in permutations(objects, 2))

    def fits(self, one: JsonObject, other: JsonObject) -> bool:
        own, others = one["properties"], other["properties"]
        if set(other.get("required", ())) - own.keys():
            return False
        for name in own.keys() & others.keys():
            values = [_literals(self.resolved(part)) for part in (own[name], others[name])]
            if all(values) and not any(value in values[1] for value in values[0]):
                return False
        closed = other.get("additionalProperties") is False
        free = [
            name for name, part in own.items() if name not in one.get("required", ()) and not self.accepts_null(part)
        ]
        return any(self.accepts_null(others[name]) if name in others else not closed for name in free)

    def accepts_null(self, node: JsonObject, seen: frozenset[str] = frozenset()) -> bool:
        if "$ref" in node:
            inner = self.resolved(node)
            return node["$ref"] not in seen and self.accepts_null(inner, seen | {node["$ref"]})
        if "anyOf" in node or "oneOf" in node:
            return any(self.accepts_null(option, seen) for option in node.get("anyOf") or node.get("oneOf", ()))
        if not all(self.accepts_null(member, seen) for member in node.get("allOf", ())):
            return False
        values = [node["const"]] if "const" in node else node.get("enum", [None])
        return None in values and ("type" not in node or "null" in types_of(node))


def _literals(node: JsonObject) -> list[Any]:
    return [node["const"]] if "const" in node else list(node.get("enum", ()))


def _nullable(node: JsonObject) -> JsonObject:
    described = {"description": node["description"]} if "description" in node else {}
    rest = {key: value for key, value in node.items() if key != "description"}
    options = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    return {"anyOf": [*options, {"type": "null"}], **described}


def _within_limits(made: tuple[JsonObject, list[str]], limits: Mapping[str, int]) -> None:
    if not limits:
        return
    counts = dict.fromkeys(limits, 0)
    schema = made[0]
    waiting = [schema, *schema.get("$defs", {}).values()]
    while waiting:
        node = waiting.pop()
        waiting += [part for _, part, _ in parts(node) if isinstance(part, dict)]
        properties, values = node.get("properties", {}), [*node.get("enum", ()), node.get("const")]
        texts = [*properties, *(value for value in values if isinstance(value, str))]
        found = {
            "properties": len(properties),
            "values of enums": len(values) - 1,
            "characters of names and values": sum(map(len, texts)),
            "optional properties": len(properties.keys() - set(node.get("required", ()))),
            "properties of several types": sum(
                "anyOf" in part or len(types_of(part)) > 1 for part in properties.values()
            ),
        }
        counts = {what: count + found[what] for what, count in counts.items()}
    for what, most in limits.items():
        if counts[what] > most:
            raise NotStrict(f"{told_place(())} has {counts[what]} {what}; the strict form takes {most} at most.")
