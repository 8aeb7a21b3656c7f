"""The class that an app's handlers inherit: tools, callbacks, and who it is for, so that a worker finds it again."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from functools import cached_property
from types import FunctionType
from types import MappingProxyType
from typing import TYPE_CHECKING
from typing import Any
from typing import ClassVar

import sqlalchemy as sa
from flask import current_app

from .effects import promise
from .errors import ConfigurationError
from .errors import DeclarationError
from .errors import HandlerError
from .errors import ProviderError
from .errors import RecordGone
from .identity import read_gid
from .identity import read_key
from .identity import write_gid
from .live.broadcasts import HandlerBroadcasts
from .tools import Tool
from .tools import Toolbox
from .tools import gather

if TYPE_CHECKING:
    from .prompt import JsonObject
    from .tools import ToolContext

logger = logging.getLogger("flask_instruct")

_registry: dict[str, type[AiResponseHandler]] = {}


class AiResponseHandler(HandlerBroadcasts):
    """Inherit to let a model act on something: its ``@ai_tool`` methods, and nothing else, are what it may do.

    ``class Updater(AiResponseHandler, record=Assessment)`` is made for one record, :attr:`record`. A mapped class may
    inherit it too, after its own base: ``class Assessment(db.Model, AiResponseHandler)``. Any other class needs an
    ``id`` (int, str, UUID, or a tuple of them) and a classmethod ``find(id)`` that returns the handler, or ``None``.

    ``ai_tools = [ThisTool, *ai_tools_from(shared)]`` in the class body attaches tools that are classes.

    :param record: the mapped class of the record; inherited by subclasses.
    :param name: what the handler is registered as, and stored with each run; default: the class name.
    :param aliases: names of earlier days, under which stored runs are still found.
    :raises DeclarationError: at class definition, for a wrong tool or name; says which class and which tool.
    """

    _instruct_model: ClassVar[type | None] = None
    _instruct_name: ClassVar[str] = ""
    _instruct_toolbox: ClassVar[Toolbox] = Toolbox({}, (), ())

    call: ToolContext | None = None
    """The call that is being run, inside a tool."""

    def __init_subclass__(
        cls, *, record: type | None = None, name: str | None = None, aliases: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if record is not None:
            if not (isinstance(record, type) and hasattr(record, "__mapper__")):
                raise DeclarationError(f"{cls.__qualname__}: record must be a mapped class, not {record!r}.")
            cls._instruct_model = record
        _refuse_replacement(cls)
        cls._instruct_toolbox = gather(cls, attached=_take_attached(cls), base=AiResponseHandler)
        cls._instruct_name = cls.__name__ if name is None else name
        _register(cls, aliases)

    def __init__(self, record: Any = None, **values: Any) -> None:
        """Make a handler for a record.

        :raises HandlerError: for a record of another class.
        """
        model = type(self)._instruct_model
        if model is None:  # a mapped or plain class: its own base decides
            super().__init__(*(() if record is None else (record,)), **values)
            return
        if hasattr(record, "_get_current_object"):  # a proxy, as flask_login.current_user is one
            record = record._get_current_object()
        if record is not None and not isinstance(record, model):
            raise HandlerError(f"{type(self).__name__} is made for a {model.__name__}, not a {type(record).__name__}.")
        self._instruct_given = record
        super().__init__(**values)

    @property
    def record(self) -> Any:
        """The record, read by its key in the current session; the handler itself where it is its own record.

        :raises RecordGone: when it was deleted.
        """
        model = type(self)._instruct_model
        if model is None:
            return self
        given = self._instruct_subject()
        identity = sa.inspect(given).identity
        return given if identity is None else _load(model, identity)

    if TYPE_CHECKING:  # a list in a class body, and the method below on every instance
        ai_tools: Any
    else:

        def ai_tools(self) -> list[type[Tool]]:
            """Return the tools this handler offers now; override to hide some, by person or by state.

            What is not in this list cannot be called.
            """
            return list(type(self)._instruct_toolbox.tools)

    @classmethod
    def ai_tools_specifications(cls) -> list[JsonObject]:
        """Return all tools of the class as ``{"type": "function", "function": {name, description, parameters}}``."""
        return [_specification(tool) for tool in cls._instruct_toolbox.tools]

    def ai_tools_definitions(self) -> list[JsonObject]:
        """Return what :meth:`ai_tools` offers, in the form of :meth:`ai_tools_specifications`."""
        return [_specification(tool) for tool in self.ai_tools()]

    def authorize_tool(self, tool: type[Tool], arguments: JsonObject, actor: Any) -> bool:
        """Return whether this call may run; asked for each, after its arguments passed and before it runs.

        :param arguments: the checked values by parameter name, defaults included.
        :param actor: who asked for the run.
        """
        return True

    def authorize_approval(self, tool: type[Tool], arguments: JsonObject, actor: Any) -> bool:
        """Return whether a person may decide about this call, of a tool that needs an approval.

        Asked for each decision, besides ``@instruct.authorize``; where a person gives other arguments, for those too.

        :param arguments: the checked values by parameter name, defaults included.
        :param actor: who is about to decide, as ``@instruct.actor`` says.
        """
        return True

    def after_commit(self, function: Callable[..., object], /, *args: Any, **kwargs: Any) -> None:
        """Have ``function(*args, **kwargs)`` called once this tool's edits are committed, and not if they are not.

        For what happens outside the database: a mail, a payment. It is called once at most, outside any transaction,
        with ``self.call.idempotency_key`` of its own; the model is told how it went.

        :param function: a method of this handler, which gets plain JSON values.
        :raises InstructError: outside a tool.
        :raises TypeError: for any other function, for arguments that are no JSON or that the method does not take.
        """
        promise(self.call, {"handler": self}, function, args, kwargs)

    def handle_ai_text_chunk(self, content: str) -> None:
        """Hear a piece of the model's text as it arrives."""

    def handle_ai_text_discarded(self) -> None:
        """Hear that every piece of the answer heard so far is void: the model call failed and is made again.

        A handler that hears the pieces but has no method of this name is not put through it: once it has heard
        something, a failed model call ends the run.
        """

    def handle_ai_finish(self, reason: str) -> None:
        """Hear, once, that the model is done; ``reason`` as in :data:`flask_instruct.events.FinishReason`."""
        logger.debug("%s finished: %s", self._instruct_label(), reason)

    def handle_ai_error(self, exception: BaseException) -> None:
        """Hear, once, why the run failed."""
        logger.error("%s failed: %s%s", self._instruct_label(), type(exception).__name__, _loggable(exception))

    def handle_tool_error(self, tool_name: str, exception: BaseException, arguments: JsonObject) -> None:
        """Hear that a call did not succeed; the model has been told.

        :param arguments: the checked values, or what could be read of refused ones.
        """
        logger.warning("%s: tool %r did not succeed: %s", self._instruct_label(), tool_name, type(exception).__name__)

    def handle_unknown_tool(self, tool_name: str) -> None:
        """Hear that the model called something that is not offered."""
        logger.warning("%s was asked for a tool it does not offer: %r", self._instruct_label(), tool_name[:80])

    def handle_limit(self, limit: str) -> None:
        """Hear, once, which limit ended the run, as in :class:`flask_instruct.events.LimitReached`."""
        logger.warning("%s reached the limit of %s", self._instruct_label(), limit)

    def handle_undo(self, calls: Sequence[Any]) -> None:
        """Hear which calls a person has undone."""

    def to_gid(self) -> str:
        """Return the text by which :func:`locate` finds this handler again, in any process.

        :raises HandlerError: when there is no key yet, or one of a type that cannot be written.
        """
        cls = type(self)
        if _mapped(cls) is None:
            key = getattr(self, "id", None)
            if key is None or not callable(getattr(cls, "find", None)):
                raise HandlerError(
                    f"{cls.__name__} cannot be found again by a worker: give it record=Model, or an id and a "
                    "classmethod find(id)."
                )
            return write_gid(cls._instruct_name, key, typed=False)
        subject = self._instruct_subject()
        identity = sa.inspect(subject).identity
        if identity is None:
            name = type(subject).__name__
            raise HandlerError(f"This {name} has no key yet: add it to the session, then commit or flush.")
        return write_gid(cls._instruct_name, tuple(identity), typed=True)

    def _instruct_subject(self) -> Any:
        if type(self)._instruct_model is None:
            return self
        given = getattr(self, "_instruct_given", None)
        if given is None:
            raise HandlerError(f"This {type(self).__name__} was made without a record: {type(self).__name__}(record).")
        return given

    def _instruct_label(self) -> str:
        try:
            return self.to_gid()
        except HandlerError:
            return type(self)._instruct_name


def locate(gid: str) -> AiResponseHandler:
    """Return the handler for a gid, with its record read in the current session.

    :raises HandlerError: when no handler of that name is registered (nothing is imported for it), or the key does
        not fit.
    :raises RecordGone: when the record no longer exists.
    """
    name, parts = read_gid(gid)
    cls = _registry.get(name)
    if cls is None:
        raise HandlerError(
            f"No handler named {name[:80]!r} is registered; known are: {', '.join(sorted(_registry)) or 'none'}. "
            "Import the module that defines it when the app is made, or name it in aliases."
        )
    model = _mapped(cls)
    if model is None:
        return _found(cls, tuple(read_key(part) for part in parts))
    columns: Sequence[sa.Column[Any]] = sa.inspect(model).primary_key
    if len(parts) != len(columns):
        raise HandlerError(f"{gid[:80]!r} has {len(parts)} key parts; a {model.__name__} has {len(columns)}.")
    record = _load(model, tuple(read_key(part, _kind(column)) for part, column in zip(parts, columns, strict=True)))
    handler: AiResponseHandler = record if model is cls else cls(record)
    return handler


def registered() -> Mapping[str, type[AiResponseHandler]]:
    """Return the handler classes by name and alias."""
    return MappingProxyType(_registry)


def name_of(handler: AiResponseHandler) -> str:
    """Return the name under which a worker finds a handler's class.

    :raises HandlerError: when it is not registered.
    """
    cls = type(handler)
    name: str | None = next((name for name, known in _registry.items() if known is cls), None)
    if name is None:
        raise HandlerError(f"{cls.__name__} is not registered as a handler; is it defined inside a function?")
    return name


_MAY_REPLACE: Mapping[str, tuple[type, ...]] = {"call": (), "record": (property, cached_property)}
"""What the package itself reads from a handler, and what an app may put in its place: never a column."""


def _loggable(exception: BaseException) -> str:
    """Return what is ours to read, with what is to be done; other texts may quote prompts and keys."""
    if isinstance(exception, ConfigurationError):
        return f": {exception}"
    if isinstance(exception, ProviderError):
        status = "" if exception.status is None else f", status {exception.status}"
        return f": {exception.safe} ({exception.kind}{status}; the provider's own words: error_technical of the run)"
    return ""


def _refuse_replacement(cls: type[AiResponseHandler]) -> None:
    for name, kinds in _MAY_REPLACE.items():
        declared = name in vars(cls) or name in vars(cls).get("__annotations__", {})
        if declared and not isinstance(vars(cls).get(name), kinds):
            raise DeclarationError(
                f"{cls.__qualname__}.{name} would replace AiResponseHandler.{name}: name it otherwise."
            )


def _take_attached(cls: type[AiResponseHandler]) -> object:
    for base in cls.__mro__[1:]:
        if isinstance(vars(base).get("ai_tools"), list | tuple):
            raise DeclarationError(
                f"{base.__qualname__}.ai_tools is a list, but {base.__qualname__} is no handler: let it inherit "
                f"AiResponseHandler, or name the tools in {cls.__qualname__}."
            )
    own = vars(cls).get("ai_tools", ())
    if isinstance(own, FunctionType):
        return ()
    if "ai_tools" in vars(cls):  # the list is read here, once; on instances the name is the inherited method
        del cls.ai_tools
    return own


def _register(cls: type[AiResponseHandler], aliases: Sequence[str]) -> None:
    if isinstance(aliases, str):
        raise DeclarationError(f"{cls.__qualname__}: aliases must be a list of names.")
    names = (cls._instruct_name, *aliases)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.:-]{0,99}", name):
            raise DeclarationError(f"{cls.__qualname__}: {name!r} is no name for a handler: letters, digits, _ . : -")
        other = _registry.get(name)
        if other is not None and _definition(other) != _definition(cls):
            raise DeclarationError(
                f"{cls.__module__}.{cls.__qualname__}: another handler is registered as {name!r}, "
                f"{other.__module__}.{other.__qualname__}; give one of them name=…."
            )
    # The same definition again is a reloaded module or a notebook cell: the new class takes the place of the old.
    for name in [name for name, other in _registry.items() if _definition(other) == _definition(cls)]:
        del _registry[name]
    _registry.update(dict.fromkeys(names, cls))


def _definition(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _specification(tool: type[Tool]) -> JsonObject:
    function = {"name": tool.identifier, "description": tool.description, "parameters": tool.parameters_schema()}
    return {"type": "function", "function": function}


def record_classes() -> tuple[type, ...]:
    """Return the mapped classes that the registered handlers are for, each once."""
    return tuple(dict.fromkeys(model for cls in _registry.values() if (model := _mapped(cls)) is not None))


def _mapped(cls: type[AiResponseHandler]) -> type | None:
    """Return the mapped class that the handler is for, which may be the handler's own; ``None`` for a plain one."""
    return cls._instruct_model or (cls if hasattr(cls, "__mapper__") else None)


def _load(model: type, identity: tuple[Any, ...]) -> Any:
    state = current_app.extensions.get("instruct")
    if state is None:
        raise ConfigurationError("This app has no Flask-Instruct: call Instruct(app, db) or init_app(app, db) first.")
    record = state.db.session.get(model, tuple(identity))
    if record is None:
        key = "/".join(str(part) for part in identity)
        raise RecordGone(f"The {model.__name__} with key {key} no longer exists.")
    return record


def _found(cls: type[AiResponseHandler], key: tuple[Any, ...]) -> AiResponseHandler:
    find = getattr(cls, "find", None)
    if not callable(find):
        raise HandlerError(f"{cls.__name__} has no record and no classmethod find(id).")
    handler = find(key[0] if len(key) == 1 else key)
    if handler is None:
        raise RecordGone(f"The {cls.__name__} with id {'/'.join(map(str, key))} no longer exists.")
    if not isinstance(handler, cls):
        raise HandlerError(f"{cls.__name__}.find returned a {type(handler).__name__}, not a {cls.__name__}.")
    return handler


def _kind(column: sa.Column[Any]) -> type:
    try:
        return column.type.python_type
    except NotImplementedError:
        return str
