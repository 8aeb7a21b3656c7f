"""List the tools of registered handlers, and explain how each provider's dialect says them.

The answer is plain data; ``in_words`` makes the lines that ``flask instruct tools`` shows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .dialects import DIALECTS
from .dialects import told
from .errors import ConfigurationError
from .handlers import registered
from .messages import JsonObject

if TYPE_CHECKING:
    from .tools import Tool


def listed(names: Sequence[str] = (), *, explain: bool = False) -> list[JsonObject]:
    """Return ``{"handler", "aliases", "tools": [{"name", "description", "timeout", "parameters"}]}`` for each handler.

    :param names: of the handlers to list, or aliases of theirs; default: all.
    :param explain: add ``"dialects"`` to each tool, by name: ``{"strict", "reason", "changes", "schema"}``.
    :raises ConfigurationError: for a name that is not registered; lists those that are.
    """
    known = registered()
    if unknown := [name for name in names if name not in known]:
        have = f"known are: {', '.join(sorted(known))}" if known else "none is"
        raise ConfigurationError(
            f"No handler named {', '.join(map(repr, unknown))} is registered; {have}. A handler is registered when the "
            "module that defines it is imported: import it where the app is made."
        )
    chosen = dict.fromkeys(known[name] for name in (names or sorted(known)))
    return [
        {
            "handler": cls._instruct_name,
            "aliases": sorted(name for name, other in known.items() if other is cls and name != cls._instruct_name),
            "tools": [_tool(tool, explain) for tool in cls._instruct_toolbox.tools],
        }
        for cls in chosen
    ]


def in_words(handlers: Sequence[JsonObject]) -> Iterator[str]:
    """Yield what :func:`listed` returned as lines for a person."""
    if not handlers:
        yield (
            "No handler is registered: define a class that inherits AiResponseHandler, in a module that is imported "
            "where the app is made."
        )
    for handler in handlers:
        aliases = handler["aliases"]
        yield handler["handler"] + (f" (also {', '.join(aliases)})" if aliases else "")
        if not handler["tools"]:
            yield "  no tools"
        width = max((len(tool["name"]) for tool in handler["tools"]), default=0)
        for tool in handler["tools"]:
            first = tool["description"].strip().splitlines()[0]
            yield f"  {tool['name']:<{width}}  {first} ({tool['timeout']:g} s)"
            yield from _dialects(tool.get("dialects", {}))


def _tool(tool: type[Tool], explain: bool) -> JsonObject:
    schema = tool.parameters_schema()
    said: JsonObject = {
        "name": tool.identifier,
        "description": tool.description,
        "timeout": tool.timeout,
        "parameters": schema,
    }
    if explain:
        said["dialects"] = {}
        for dialect in DIALECTS:
            made = told(schema, dialect, strict=True)
            said["dialects"][dialect] = {
                "strict": made.strict,
                "reason": made.reason,
                "changes": list(made.changes),
                "schema": made.schema,
            }
    return said


def _dialects(dialects: JsonObject) -> Iterator[str]:
    width = max(map(len, dialects), default=0)
    for dialect, said in dialects.items():
        yield f"    {dialect:<{width}}  strict: {'yes' if said['strict'] else 'no, ' + said['reason']}"
        yield from (f"    {'':<{width}}    {change}" for change in said["changes"])
