"""Say one schema of a canonical form with the keywords that a vocabulary knows; its parts are walked by the caller.

What a vocabulary does not know is moved into the description, in words, so that a model may still heed it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from ..errors import DeclarationError
from ..messages import JsonObject
from .vocabulary import ANNOTATIONS
from .vocabulary import Place
from .vocabulary import Vocabulary
from .vocabulary import described
from .vocabulary import in_words
from .vocabulary import says_nothing
from .vocabulary import told_place
from .vocabulary import types_of

MOST_WRITTEN_OUT = 200
"""References of one schema that are written out; they could double with each level."""

_LOOK_AROUND = ("(?=", "(?!", "(?<")
_KINDS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_INCLUSIVE = {"exclusiveMinimum": ("minimum", 1, max), "exclusiveMaximum": ("maximum", -1, min)}
_DROPPED_WITH = {"patternProperties": "additionalProperties"}
"""Where the first is not known, the second would forbid what the first allows."""


class NotStrict(DeclarationError):
    """Raise for a schema that has no strict form; the tool can still be told in the plain one."""


class Reducer:
    """Reduce schemas to a vocabulary, and note what was changed.

    :param definitions: the ``$defs`` that references lead to.
    :param whole: refuse what cannot be said, instead of saying less.
    """

    def __init__(self, vocabulary: Vocabulary, definitions: Mapping[str, Any], *, whole: bool) -> None:
        self.vocabulary = vocabulary
        self.definitions = definitions
        self.whole = whole
        self.changes: list[str] = []
        self.written_out: frozenset[str] = frozenset()
        self.times_written_out = 0

    def reduced(self, node: JsonObject, place: Place) -> JsonObject:
        """Return the schema in known keywords only; what it holds is not walked.

        :raises NotStrict: where nothing may be lost and several schemas cannot be said as one.
        """
        node = self._merged(dict(node), place)
        node = self._one_union(node, place)
        node = self._typed(self._literal(node, place))
        words: list[str] = []
        kept: JsonObject = {}
        for key, value in self._integer_bounds(node, place).items():
            if self._known(key, value):
                kept[key] = value
            else:
                words += self._moved(key, value, place)
        if self.vocabulary.least_items and node.get("minItems", 0) > max(self.vocabulary.least_items):
            kept["minItems"] = max(self.vocabulary.least_items)
        for gone, other in _DROPPED_WITH.items():
            if gone in node and gone not in kept:
                kept.pop(other, None)
        return described(kept, words)

    def resolved(self, node: JsonObject) -> JsonObject:
        """Return what a reference stands for, or the schema itself."""
        for _ in self.definitions:
            if "$ref" not in node:
                break
            node = self.definitions[node["$ref"].rpartition("/")[2]]
        return node

    def refuse(self, place: Place, why: str) -> None:
        """Raise NotStrict for a place.

        :raises NotStrict: always.
        """
        raise NotStrict(f"{told_place(place)} {why}.")

    def _known(self, key: str, value: Any) -> bool:
        if key not in self.vocabulary.keywords:
            return False
        if key == "format":
            return value in self.vocabulary.formats
        if key == "pattern":
            return self.vocabulary.look_around or not any(mark in value for mark in _LOOK_AROUND)
        if key == "minItems" and self.vocabulary.least_items is not None:
            return value in self.vocabulary.least_items
        return True

    def _moved(self, key: str, value: Any, place: Place) -> Iterator[str]:
        said = in_words(key, value)
        if said:
            yield said
        if said or not says_nothing(key, value):
            self._changed(place, f"{key} moved to the description" if said else f"{key} left out")

    def _merged(self, node: JsonObject, place: Place) -> JsonObject:
        """Return the schema with the members of ``allOf`` in it."""
        here: set[str] = set()
        while members := node.pop("allOf", None):
            fits = True
            for member in sorted(members, key=lambda member: "$ref" in member):
                if "$ref" not in member or not node.keys() - ANNOTATIONS:
                    fits = _join(node, member) and fits
                elif member["$ref"] not in here:
                    here.add(member["$ref"])
                    fits = _join(node, self._written_out(member)) and fits
            if not fits and self.whole:
                self.refuse(place, "combines several schemas, which the strict form cannot")
            self._changed(place, "allOf told as one schema" if fits else "a part of allOf left out")
        if "$ref" in node and len(node) > 1:
            if "anyOf" in node and self.whole:
                self.refuse(place, "combines several schemas, which the strict form cannot")
            node = {"anyOf": [{"$ref": node.pop("$ref")}], **node}
        return node

    def _written_out(self, reference: JsonObject) -> JsonObject:
        """Return what a reference stands for; the reference again where that would have no end."""
        name, self.times_written_out = reference["$ref"], self.times_written_out + 1
        if name in self.written_out or self.times_written_out > MOST_WRITTEN_OUT:
            return reference
        self.written_out |= {name}
        return self.resolved(reference)

    def _one_union(self, node: JsonObject, place: Place) -> JsonObject:
        if "oneOf" not in node:
            return node
        if "anyOf" in node and self.whole:
            self.refuse(place, "has both anyOf and oneOf, which the strict form cannot say")
        if "anyOf" in node:
            return node
        self._changed(place, "oneOf told as anyOf")
        return {("anyOf" if key == "oneOf" else key): value for key, value in node.items()}

    def _literal(self, node: JsonObject, place: Place) -> JsonObject:
        """Write ``const`` and ``enum`` with the values that the vocabulary knows, each of one type."""
        if "const" in node:
            node.pop("enum", None)
        if "const" in node and "const" not in self.vocabulary.keywords:
            constant = node["const"]
            if not isinstance(constant, self.vocabulary.literals) or isinstance(constant, bool):
                return self._in_words_only(node, "const", [constant], place)
            self._changed(place, "const told as an enum of one")
            node = {("enum" if key == "const" else key): value for key, value in node.items()}
            node["enum"] = [constant]
        values = [node["const"]] if "const" in node else node.get("enum", [])
        if all(self._is_literal(value) for value in values):
            return node
        return self._in_words_only(node, "const" if "const" in node else "enum", values, place)

    def _is_literal(self, value: object) -> bool:
        return type(value) in self.vocabulary.literals

    def _in_words_only(self, node: JsonObject, key: str, values: list[Any], place: Place) -> JsonObject:
        rest = {name: value for name, value in node.items() if name != key}
        kinds = list(dict.fromkeys(_KINDS.get(type(value), "") for value in values))
        if "type" not in rest and "" not in kinds:
            rest["type"] = kinds[0] if len(kinds) == 1 else kinds
        return described(rest, list(self._moved(key, node[key], place)))

    def _typed(self, node: JsonObject) -> JsonObject:
        """Return the schema with the type of its values: "schema must have a 'type' key"."""
        values = [node["const"]] if "const" in node else node.get("enum")
        if not values or {"type", "anyOf", "$ref"} & node.keys():
            return node
        kinds = list(dict.fromkeys(_KINDS.get(type(value), "") for value in values))
        return node if "" in kinds else {"type": kinds[0] if len(kinds) == 1 else kinds, **node}

    def _integer_bounds(self, node: JsonObject, place: Place) -> JsonObject:
        if types_of(node) != ["integer"]:
            return node
        node = dict(node)
        for exclusive, (inclusive, step, tighter) in _INCLUSIVE.items():
            known = self.vocabulary.keywords
            bound = node.get(exclusive)
            if isinstance(bound, int) and exclusive not in known and inclusive in known:
                del node[exclusive]
                choose: Callable[[float, float], float] = tighter
                node[inclusive] = choose(bound + step, node.get(inclusive, bound + step))
                self._changed(place, f"{exclusive} told as {inclusive}")
        return node

    def _changed(self, place: Place, what: str) -> None:
        self.changes.append(f"{told_place(place)}: {what}")


def _join(node: JsonObject, member: JsonObject) -> bool:
    """Put a member of ``allOf`` into the schema; return whether all of it could be."""
    whole = True
    for key, value in member.items():
        if key not in node or node[key] == value:
            node[key] = value
        elif key == "properties":
            known = node[key]
            node[key] = {
                **known,
                **{
                    name: {"allOf": [known[name], part]} if name in known and known[name] != part else part
                    for name, part in value.items()
                },
            }
        elif key == "required":
            node[key] = list(dict.fromkeys([*node[key], *value]))
        elif key == "allOf":
            node[key] = [*node[key], *value]
        elif key not in ANNOTATIONS:
            whole = False
    return whole
