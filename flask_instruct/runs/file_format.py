"""What the file of an exported run must look like: a model of all of it, checked once before anything is done.

A file that was made by hand, spoilt or cut off is refused with the place that is wrong and what belongs there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated
from typing import Any
from typing import get_args
from typing import get_type_hints

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import ValidationError
from pydantic import ValidationInfo
from pydantic import field_validator
from pydantic import model_validator

from ..config import MAY_BE_ZERO
from ..config import Config
from ..effects import Owner
from ..errors import InstructError
from ..events import FinishReason
from ..messages import Effort
from .approval import Decision
from .file_values import Address
from .file_values import Attachment
from .file_values import Count
from .file_values import Dollars
from .file_values import Handler
from .file_values import LimitsOfRun
from .file_values import MaybeCount
from .file_values import MaybeMoment
from .file_values import MaybeName
from .file_values import MaybeText
from .file_values import Moment
from .file_values import Name
from .file_values import Null
from .file_values import Number
from .file_values import Object
from .file_values import Seconds
from .file_values import Text
from .file_values import Truth
from .file_values import Turn
from .file_values import check_whole
from .file_values import of
from .file_values import one_of
from .models import ENDED
from .models import CallStatus
from .models import EffectStatus

FORMAT = "flask-instruct run"
VERSION = 1

DEEPEST = 100
"""Lists and objects within each other. Python reads some more, and then cannot write them again."""
MOST_OF_A_SETTING = 2**53
"""Some write down a very large number where they want no limit."""
LONGEST_PLACE = 80
"""Characters of a name that are told of a place; a hostile file may have any name in it."""


class CannotReplay(InstructError):
    """Raise when a file is no exported run, or what it says cannot be run again; says why."""


def read(text: str | bytes) -> dict[str, Any]:
    """Return the data of a file that is right in all its parts.

    :raises CannotReplay: for any other text; names the first place that is wrong and what belongs there.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotReplay(f"This is no exported run, it is no JSON: {error}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CannotReplay(f'This is no exported run: "format" must be {FORMAT!r}. flask instruct export makes one.')
    version = data.get("version")
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        raise CannotReplay(
            f"The run was exported in version {json.dumps(version)[:LONGEST_PLACE]} of the format, and this package "
            f"reads version {VERSION}: export it again, or replay it with the version of the package that made it."
        )
    _refuse_depth(data)
    try:
        file = File.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise wrong(first["loc"], _WANTED.get(first["type"], first["msg"])) from None
    _check_references(file)
    return data


def wrong(parts: Iterable[str | int], words: str) -> CannotReplay:
    """Return what to raise for a place of the file, such as ``("calls", 0, "seq")``, and words that follow on it."""
    place = ""
    for part in parts:
        cut = f"{part[:LONGEST_PLACE]}…" if isinstance(part, str) and len(part) > LONGEST_PLACE else part
        place += f"[{part}]" if isinstance(part, int) else f".{cut}"
    return CannotReplay(f"This is no exported run: {place.removeprefix('.')} {words}.")


# -- the rows ----------------------------------------------------------------------------------------------------------


class _Missing:
    """Stands where a file has nothing, so that what belongs there is told in the same words."""


_MISSING = _Missing()
_WANTED = {"model_type": "must be an object", "list_type": "must be a list"}


class Row(BaseModel):
    """A row by its columns. What the file has besides is left alone."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        needed = [name for name, field in cls.model_fields.items() if field.is_required()]
        return {**dict.fromkeys(needed, _MISSING), **data}


class SettingsRow(Row):
    """The settings that a replay takes over, each within the bounds that it has in the configuration."""

    max_rounds: Any
    max_tool_calls: Any
    max_tool_retries: Any
    argument_bytes: Any
    result_chars: Any

    @field_validator("*")
    @classmethod
    def _within_bounds(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        null = Null in get_args(get_type_hints(Config)[name])
        return check_whole(value, 0 if f"INSTRUCT_{name.upper()}" in MAY_BE_ZERO else 1, MOST_OF_A_SETTING, null=null)


class RunRow(Row):
    """A run that has ended."""

    id: Name
    handler: Handler
    handler_name: Name
    kind: Annotated[str, one_of("ai", "undo")] = "ai"
    preview: Truth = False
    actor: MaybeName
    tenant: MaybeName
    conversation: MaybeName
    status: Annotated[str, one_of(*ENDED)]
    user_prompt: Text
    system_prompt: MaybeText
    context: Annotated[dict[str, Any] | None, of("an object or null", dict, Null)]
    attachments: Annotated[list[Attachment] | None, of("a list or null", list, Null)]
    attached: Annotated[list[Text] | None, of("a list of names or null", list, Null)]
    model: MaybeName
    effort: Annotated[str | None, one_of(*get_args(Effort), None)]
    attempt: Count
    resumes: Count = 0
    cancel_requested: Truth = False
    error_class: MaybeName
    error_safe: MaybeText
    error_technical: MaybeText
    limit_reached: MaybeName
    limits: LimitsOfRun
    base_url: Address
    created_at: Moment
    started_at: MaybeMoment
    ended_at: MaybeMoment


class MessageRow(Row):
    """A turn of the model; one that has parts was received whole."""

    id: Name
    seq: Count
    role: Annotated[str, one_of("assistant")]
    state: Annotated[str, one_of("streaming", "complete", "cut")]
    text: Text
    parts: Turn
    finish_reason: Annotated[str | None, one_of(*get_args(FinishReason), None)]
    finish_raw: MaybeText


class CallRow(Row):
    """A call of a tool, and its result."""

    id: Name
    message_id: Name
    seq: Count
    provider_call_id: Text
    name: Text
    arguments: Text
    status: Annotated[str, one_of(*get_args(CallStatus))]
    result: MaybeText
    error_kind: MaybeName
    attempt: Count = 0
    started_at: MaybeMoment = None
    ended_at: MaybeMoment = None


class EffectRow(Row):
    """What was to be done outside the database after a call."""

    call_id: Name
    seq: Number
    owner: Annotated[str, one_of(*get_args(Owner))]
    method: Name
    arguments: Text
    timeout: Seconds = None
    status: Annotated[str, one_of(*get_args(EffectStatus))]
    error_class: MaybeText
    error_safe: MaybeText


class ApprovalRow(Row):
    """What a person was asked about a call, or about the preview of the whole run, and has decided."""

    call_id: MaybeName
    tool: Text
    arguments: Text
    reason: MaybeText = None
    status: Annotated[str, one_of(*get_args(Decision))]
    edited: MaybeText
    chosen: Annotated[list[Count] | None, of("a list of numbers or null", list, Null)] = None
    decided_by: MaybeName
    decision_reason: MaybeText
    asked_at: Moment
    decided_at: MaybeMoment


class ModelCallRow(Row):
    """One physical call of the model."""

    message_id: MaybeName
    provider: MaybeText = None
    model: MaybeText = None
    attempt: Count = 0
    try_number: Count = 1
    input_tokens: MaybeCount = None
    output_tokens: MaybeCount = None
    cache_read_tokens: MaybeCount = None
    cache_write_tokens: MaybeCount = None
    reasoning_tokens: MaybeCount = None
    cost: Dollars = None
    seconds: Seconds = None
    error_class: MaybeText


class BroadcastRow(Row):
    """A fragment that was sent to pages."""

    stream: Text
    html: Text


class EarlierRun(RunRow):
    """A run that was told before in the same conversation."""

    messages: list[MessageRow]
    calls: list[CallRow]


class File(Row):
    """All of the file but its head."""

    settings: SettingsRow
    run: RunRow
    earlier: list[EarlierRun]
    messages: list[MessageRow]
    calls: list[CallRow]
    effects: list[EffectRow]
    approvals: list[ApprovalRow]
    model_calls: list[ModelCallRow]
    broadcasts: list[BroadcastRow]
    rows: Annotated[
        dict[str, Annotated[list[Object], of("a list of objects", list)]] | None, of("an object or null", dict, Null)
    ]
    tables: Annotated[list[Text], of("a list of names", list)]


# -- what one row says of another --------------------------------------------------------------------------------------


def _check_references(file: File) -> None:
    _check_run((), file.messages, file.calls)
    for number, before in enumerate(file.earlier):
        _check_run(("earlier", number), before.messages, before.calls)
    calls = {call.id for call in file.calls}
    about: dict[str, list[str | None]] = {
        "effects": [one.call_id for one in file.effects],
        "approvals": [one.call_id for one in file.approvals],
    }
    for name, ids in about.items():
        for number, call_id in enumerate(ids):
            if call_id not in calls and (call_id is not None or name == "effects"):
                raise wrong((name, number, "call_id"), "must be the id of a call")
    _check_unlike("approvals", [one.call_id for one in file.approvals], ("approvals",), "call_id")
    _check_unlike("effects", [(effect.call_id, effect.seq) for effect in file.effects], ("effects",), "seq")


def _check_run(place: tuple[str | int, ...], messages: list[MessageRow], calls: list[CallRow]) -> None:
    for name, rows in (("messages", messages), ("calls", calls)):
        for column in ("id", "seq"):
            _check_unlike(name, [getattr(row, column) for row in rows], (*place, name), column)
    for number, message in enumerate(messages):
        if message.parts is not None and message.finish_reason is None:
            raise wrong((*place, "messages", number, "finish_reason"), f"must be one of {', '.join(_REASONS)}")
    known = {message.id for message in messages}
    for number, call in enumerate(calls):
        if call.message_id not in known:
            raise wrong((*place, "calls", number, "message_id"), "must be the id of a message")


def _check_unlike(noun: str, values: list[Any], place: tuple[str | int, ...], column: str) -> None:
    seen = set()
    for number, value in enumerate(values):
        if value in seen:
            raise wrong((*place, number, column), f"must be unlike that of the other {noun}")
        seen.add(value)


_REASONS = get_args(FinishReason)


def _refuse_depth(data: Any) -> None:
    level = [data]
    for _ in range(DEEPEST):
        inner = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
        if not level:
            return
    raise CannotReplay(
        f"This is no exported run: more than {DEEPEST} lists and objects are within each other, and none has so many."
    )
