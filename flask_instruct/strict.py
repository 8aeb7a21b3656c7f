"""Derive the strict form of a JSON Schema, which a provider can enforce while the model writes.

Every property is required (an optional one may be null instead), nothing else is let through, and keywords that
strict modes refuse are gone. What is checked here in Python stays the same with either form.
"""

from __future__ import annotations

import copy
from typing import Any

from .errors import DeclarationError
from .prompt import JsonObject

_DROPPED = frozenset(
    {"default", "title", "examples", "$comment", "$schema", "minLength", "maxLength", "patternProperties"}
    | {"unevaluatedProperties", "unevaluatedItems", "propertyNames", "minProperties", "maxProperties"}
    | {"contains", "minContains", "maxContains", "uniqueItems"}
)
"""Keywords that OpenAI's strict mode refuses or ignores, and ``default``, which cannot be with all required."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_LOOK_AROUND = ("(?=", "(?!", "(?<")
_TYPED = frozenset({"type", "$ref", "anyOf", "enum", "const"})


class NotStrict(DeclarationError):
    """Raise for a schema that has no strict form; the tool can still be told in the plain one."""


def strict_form(schema: JsonObject) -> JsonObject:
    """Return a new schema in strict form.

    :raises NotStrict: for an object without fixed properties, or a value without a type; says where.
    """
    made: JsonObject = _strict(copy.deepcopy(schema), "the parameters")
    return made


def _strict(node: Any, where: str) -> Any:
    if not isinstance(node, dict):
        raise NotStrict(f"{where} may be anything, which no strict form can say.")
    node = {key: value for key, value in node.items() if key not in _DROPPED}
    if "oneOf" in node:
        node["anyOf"] = node.pop("oneOf")
        node.pop("discriminator", None)
    if "allOf" in node:
        node = _merged(node, where)
    if node.get("format") not in _FORMATS:
        node.pop("format", None)
    if any(mark in node.get("pattern", "") for mark in _LOOK_AROUND):
        del node["pattern"]
    if not _TYPED & node.keys():
        raise NotStrict(f"{where} has no type, which the strict form demands.")
    if "$ref" in node and len(node) > 1 + ("$defs" in node):
        node = {"anyOf": [{"$ref": node.pop("$ref")}], **node}
    return _with_strict_parts(node, where)


def _merged(node: JsonObject, where: str) -> JsonObject:
    parts = node.pop("allOf")
    if len(parts) != 1 or not isinstance(parts[0], dict) or parts[0].keys() & node.keys():
        raise NotStrict(f"{where} combines several schemas, which the strict form cannot.")
    return {**parts[0], **node}


def _with_strict_parts(node: JsonObject, where: str) -> JsonObject:
    for key in ("$defs", "definitions"):
        if key in node:
            node[key] = {name: _strict(part, name) for name, part in node[key].items()}
    if "anyOf" in node:
        node["anyOf"] = [_strict(part, where) for part in node["anyOf"]]
    if "array" in _types(node):
        if "prefixItems" in node or "items" not in node:
            raise NotStrict(f"{where} is a list whose items are not of one type, which the strict form demands.")
        node["items"] = _strict(node["items"], f"an item of {where}")
    if "object" in _types(node):
        _close(node, where)
    return node


def _types(node: JsonObject) -> list[str]:
    types = node.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _close(node: JsonObject, where: str) -> None:
    if node.get("additionalProperties", False) is not False or "properties" not in node:
        raise NotStrict(f"{where} is an object with free keys, which the strict form does not know.")
    required = node.get("required", [])
    node["properties"] = {
        name: _strict(part, name) if name in required else _nullable(_strict(part, name))
        for name, part in node["properties"].items()
    }
    node["required"] = list(node["properties"])
    node["additionalProperties"] = False


def _nullable(node: JsonObject) -> JsonObject:
    if "null" in _types(node) or {"type": "null"} in node.get("anyOf", []):
        return node
    described = {"description": node.pop("description")} if "description" in node else {}
    options = node.pop("anyOf") if set(node) == {"anyOf"} else [node]
    return {"anyOf": [*options, {"type": "null"}], **described}
