"""What a single value in the file of an exported run may be, each kind with the words for whatever else stands there.

A kind checks a value and leaves it as it is: the file is used as it was read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC
from datetime import datetime
from decimal import Decimal
from decimal import InvalidOperation
from typing import Annotated
from typing import Any
from typing import NoReturn

from pydantic import AfterValidator
from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError
from werkzeug.test import EnvironBuilder

from ..attachments import Document
from ..attachments import Image
from ..errors import HandlerError
from ..identity import read_gid
from ..limits import Limits
from ..messages import Message

LARGEST = 2**31 - 1
"""The largest whole number in a column of the ledger."""
FIRST_YEAR, LAST_YEAR = 1971, 9998
"""Years of which every time zone of the world knows the moment."""
LONGEST_NUMBER = 40
"""Characters of an amount of dollars; a short text such as 1e999999999 is a number that fills the memory."""

Null = type(None)


def refuse(words: str) -> NoReturn:
    """Say what belongs there, in words that follow on the place."""
    # Braces would be looked up.
    raise PydanticCustomError("wrong", "{words}", {"words": words})


def of(what: str, *kinds: type) -> BeforeValidator:
    """Take values of these types of Python only, called so."""

    def look(value: Any) -> Any:
        # For Python true is a number, for JSON it is none.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            refuse(f"must be {what}")
        return value

    return BeforeValidator(look)


def one_of(*words: str | None) -> BeforeValidator:
    """Take these words only."""
    said = ", ".join("null" if word is None else word for word in words)

    def look(value: Any) -> Any:
        if not isinstance(value, str | None) or value not in words:
            refuse(f"must be one of {said}")
        return value

    return BeforeValidator(look)


def whole(least: int, *, null: bool = False) -> BeforeValidator:
    """Take whole numbers that a column can hold."""
    return BeforeValidator(lambda value: check_whole(value, least, LARGEST, null=null))


def check_whole(value: Any, least: int, most: int, *, null: bool = False) -> Any:
    """Return a whole number between two others, or null where that is one as well."""
    if value is None and null:
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        refuse(f"must be a whole number{' or null' if null else ''}, from {least} to {most}")
    return value


def _storable(text: str | None) -> str | None:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        refuse("must be text without half surrogates, which no database holds")
    return text


def _moment(text: str | None) -> str | None:
    if text is not None and not _is_moment(text):
        refuse("must be a moment as 2026-03-01T12:00:00+00:00")
    return text


def _is_moment(text: str) -> bool:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.tzinfo is not None and FIRST_YEAR <= moment.year <= LAST_YEAR and bool(moment.astimezone(UTC))


def _dollars(text: str | None) -> str | None:
    try:
        right = text is None or (len(text) <= LONGEST_NUMBER and Decimal(text).is_finite())
    except InvalidOperation:
        right = False
    if not right:
        refuse('must be dollars as text such as "0.25", or null')
    return text


def _seconds(value: float | None) -> float | None:
    if value is not None and not (value <= LARGEST and math.isfinite(value) and value >= 0):
        refuse("must be a number of at least 0, or null")
    return value


def _address(text: str | None) -> str | None:
    """The address of the site, as a request of Werkzeug takes it: links are made of it."""
    try:
        right = text is None or (text.isprintable() and " " not in text and _opens(text))
    except (ValueError, LookupError):
        right = False
    if not right:
        refuse("must be an address as https://example.com/, or null")
    return text


def _opens(address: str) -> bool:
    if not address.startswith(("http://", "https://")):
        return False
    builder = EnvironBuilder(base_url=address)
    try:
        return bool(builder.get_environ()["HTTP_HOST"]) and bool(builder.get_request().url_root)
    finally:
        builder.close()


def _turn(value: Any) -> Any:
    if value is not None and _read(Message.from_json, value).role != "assistant":
        refuse("must be a turn of the role assistant")
    return value


def _attachment(value: Any) -> Any:
    (part,) = _read(Message.from_json, {"role": "user", "parts": [value]}).parts
    if not isinstance(part, Image | Document):
        refuse("must be an image or a document")
    return value


def _limits(value: Any) -> Any:
    _read(Limits.of, value)
    return value


def _gid(value: str) -> str:
    try:
        read_gid(value)
    except HandlerError:
        refuse("must be a handler reference as instruct://Name/key")
    return value


def _read(reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        refuse(f"cannot be read: {str(error).removesuffix('.')}")


Text = Annotated[str, of("text", str)]
MaybeText = Annotated[str | None, of("text or null", str, Null)]
Name = Annotated[Text, AfterValidator(_storable)]
MaybeName = Annotated[MaybeText, AfterValidator(_storable)]
Count = Annotated[int, whole(0)]
Number = Annotated[int, whole(1)]
MaybeCount = Annotated[int | None, whole(0, null=True)]
Moment = Annotated[Text, AfterValidator(_moment)]
MaybeMoment = Annotated[MaybeText, AfterValidator(_moment)]
Truth = Annotated[bool, of("true or false", bool)]
Dollars = Annotated[MaybeText, AfterValidator(_dollars)]
Seconds = Annotated[float | int | None, of("a number or null", int, float, Null), AfterValidator(_seconds)]
Object = Annotated[dict[str, Any], of("an object", dict)]
MaybeObject = Annotated[dict[str, Any] | None, of("an object or null", dict, Null)]
Turn = Annotated[MaybeObject, AfterValidator(_turn)]
Attachment = Annotated[Object, AfterValidator(_attachment)]
LimitsOfRun = Annotated[MaybeObject, AfterValidator(_limits)]
Handler = Annotated[Name, AfterValidator(_gid)]
Address = Annotated[MaybeName, AfterValidator(_address)]
