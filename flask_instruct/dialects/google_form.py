"""Derive the form of a schema that Gemini takes as ``parametersJsonSchema`` and ``responseJsonSchema``.

It knows a part of JSON Schema; recursion it knows only inside properties that need not be there.
"""

from __future__ import annotations

from typing import Any

from ..messages import JsonObject
from .recursion import cyclic
from .recursion import references
from .recursion import used_definitions
from .reduced import Reducer
from .vocabulary import GOOGLE
from .vocabulary import Place
from .vocabulary import with_parts


def google_form(schema: JsonObject) -> tuple[JsonObject, list[str]]:
    """Return the form of a canonical schema for Gemini, and what was changed in words."""
    return _Google(schema).form()


class _Google(Reducer):
    def __init__(self, schema: JsonObject) -> None:
        super().__init__(GOOGLE, schema.get("$defs", {}), whole=False)
        self.root = {key: value for key, value in schema.items() if key != "$defs"}
        self.optional: frozenset[str] = frozenset()
        self.cut: frozenset[str] = frozenset()

    def form(self) -> tuple[JsonObject, list[str]]:
        root = self.node(self.root, ())
        definitions = {name: self.node(node, (name,)) for name, node in self.definitions.items()}
        # Round twice at most: where a circle goes through no property, no property can be left out.
        self.cut = cyclic(definitions, through_properties=False)
        definitions = {name: self.without_circles(node, (name,), name) for name, node in definitions.items()}
        self.optional = cyclic(definitions)
        for name in sorted(self.optional):
            definitions[name] = self.loosened(definitions[name], (name,))
        made = {**root, "$defs": definitions} if definitions else root
        return used_definitions(made), list(dict.fromkeys(self.changes))

    def node(self, node: JsonObject, place: Place) -> JsonObject:
        outside = self.written_out
        made = self.reduced(node, place)
        if "required" in made and "properties" in made:
            made["required"] = [name for name in made["required"] if name in made["properties"]]
        elif "required" in made:
            del made["required"]
        made = with_parts(made, self.part, place)
        self.written_out = outside
        return made

    def part(self, value: Any, place: Place) -> Any:
        return value if isinstance(value, bool) else self.node(value, place)

    def without_circles(self, node: Any, place: Place, name: str) -> Any:
        """Return the schema without references that lead back to it through no property."""
        if name not in self.cut or not isinstance(node, dict):
            return node
        if "$ref" in node:
            again = node["$ref"].rpartition("/")[2]
            if again not in self.cut:
                return node
            self._changed(place, f"does not say again what {again} is")
            return {"description": f"Again as {again}."}
        inside = node.get("properties")
        made: JsonObject = with_parts(node, lambda part, below: self.without_circles(part, below, name), place)
        return {**made, "properties": inside} if inside is not None else made

    def loosened(self, node: Any, place: Place) -> Any:
        """Return the schema with those properties optional that lead back to it."""
        if not isinstance(node, dict):
            return node
        made: JsonObject = with_parts(node, self.loosened, place)
        back = {
            name
            for name, part in made.get("properties", {}).items()
            if name in made.get("required", ()) and any(other in self.optional for other, _ in references(part))
        }
        for name in sorted(back):
            self._changed((*place, name), "told as optional, as recursion must be")
        if back:
            made["required"] = [name for name in made["required"] if name not in back]
        return made
