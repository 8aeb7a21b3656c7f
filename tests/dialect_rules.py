"""The providers' rules for schemas, written down once more, to hold what we tell them against.

Nothing here is taken from the package, so that one mistake cannot hide in both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

EVERYWHERE = {
    "$defs",
    "$ref",
    "type",
    "description",
    "enum",
    "anyOf",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "format",
}
EVERYWHERE |= {"minItems"}
ALLOWED: dict[str, set[str]] = {
    "openai": EVERYWHERE
    | {"const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "maxItems"},
    "anthropic": EVERYWHERE | {"const"},
    "google": EVERYWHERE | {"prefixItems", "minimum", "maximum", "maxItems"},
}
STRICT_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
TYPED = {"type", "$ref", "anyOf"}


def broken_rules(schema: dict[str, Any], dialect: str, *, strict: bool) -> Iterator[str]:
    """Check a told schema against the providers' rules, each written down here once more."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "the root is no object"
    if {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref", "if"} & schema.keys():
        yield "the root is more than an object"
    definitions = schema.get("$defs", {})
    every = [*held(schema), *(inner for node in definitions.values() for inner in held(node))]
    pointed = {node["$ref"] for node in every if "$ref" in node}
    if pointed != {f"#/$defs/{name}" for name in definitions}:
        yield f"definitions and references differ: {pointed}"
    for node in every:
        if "$ref" in node and len(node) > 1:
            yield f"something stands beside a reference: {node}"
        if node.get("enum") == [] or None in node.get("enum", ()):
            yield f"an enum is empty, or holds null: {node}"
        if True in (values := list(node.get("properties", {}).values())) or False in values:
            yield f"a property is true or false: {node}"
        if dialect == "google":
            yield from broken_google_rules(node)
        elif strict:
            yield from broken_strict_rules(node, dialect)
    if (dialect == "anthropic" and strict and circle(definitions)) or (
        dialect == "google" and circle(definitions, needed=True)
    ):
        yield "a definition needs itself"


def broken_google_rules(node: dict[str, Any]) -> Iterator[str]:
    if unknown := node.keys() - ALLOWED["google"]:
        yield f"unknown {unknown}"
    if not all(type(value) in (str, int, float) for value in node.get("enum", ())):
        yield f"an enum is neither of strings nor of numbers: {node}"
    if set(node.get("required", ())) - set(node.get("properties", ())):
        yield f"something required is no property: {node}"
    if node.get("format", "date") not in {"date", "date-time", "time"}:
        yield f"unknown format: {node}"


def broken_strict_rules(node: dict[str, Any], dialect: str) -> Iterator[str]:
    if unknown := node.keys() - ALLOWED[dialect]:
        yield f"unknown {unknown}"
    if not TYPED & node.keys() and not isinstance(
        node.get("enum", [node.get("const")])[0], bool | int | float | str | None
    ):
        yield f"has no type: {node}"
    kinds = [node["type"]] if isinstance(node.get("type"), str) else node.get("type", [])
    if "object" in kinds:
        if node.get("additionalProperties") is not False:
            yield f"an object is open: {node}"
        left_out = set(node["properties"]) ^ set(node["required"])
        if dialect == "openai" and left_out:
            yield f"not required: {left_out}"
    if ("properties" in node and "object" not in kinds) or ("items" in node and "array" not in kinds):
        yield f"a keyword of another type: {node}"
    if "array" in kinds and not isinstance(node.get("items"), dict):
        yield f"a list without items: {node}"
    formats = STRICT_FORMATS | ({"uri"} if dialect == "anthropic" else set())
    if node.get("format", "date") not in formats or "(?=" in node.get("pattern", ""):
        yield f"unknown format or pattern: {node}"
    if dialect == "anthropic" and node.get("minItems", 0) > 1:
        yield f"minItems above 1: {node}"


def held(node: Any) -> Iterator[dict[str, Any]]:
    """Yield a schema and all that it holds, definitions apart; values that look like schemas are none."""
    if not isinstance(node, dict):
        return
    yield node
    for key in ("properties", "patternProperties", "dependentSchemas"):
        for inner in node.get(key, {}).values():
            yield from held(inner)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for inner in node.get(key, ()):
            yield from held(inner)
    for key in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield from held(node.get(key))


def circle(definitions: dict[str, Any], *, needed: bool = False) -> bool:
    """Return whether a definition leads to itself, or has to."""
    leads = {name: set(pointers(node, needed)) for name, node in definitions.items()}
    for _ in leads:
        leads = {name: found.union(*(leads[other] for other in found)) for name, found in leads.items()}
    return any(name in found for name, found in leads.items())


def pointers(node: Any, needed: bool) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    optional = set(node.get("properties", {})) - set(node.get("required", ())) if needed else set()
    kept = {name: part for name, part in node.get("properties", {}).items() if name not in optional}
    if "$ref" in node:
        yield node["$ref"].rpartition("/")[2]
    for inner in [*kept.values(), *node.get("anyOf", ()), *node.get("prefixItems", ())]:
        yield from pointers(inner, needed)
    for key in ("items", "additionalProperties"):
        yield from pointers(node.get(key), needed)
