"""Images and documents in what a person says: bytes or an address, with caps, and their form in JSON."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import ClassVar
from typing import Self
from urllib.parse import urlsplit

MEGABYTE = 1_000_000

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"%PDF-", "application/pdf"),
)
"""Where a format's first bytes stand. What a file is called is not asked: providers refuse a wrong media type."""


@dataclass(frozen=True, slots=True)
class _Attachment:
    """Bytes, or an address from which the provider itself fetches; never both. This package fetches nothing."""

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    url: str | None = None
    name: str | None = None

    kind: ClassVar[str]
    media_types: ClassVar[frozenset[str]]
    max_bytes: ClassVar[int]

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str | None = None, *, name: str | None = None) -> Self:
        """Attach bytes.

        :param media_type: such as ``image/png``; default: told from the first bytes.
        :param name: a file name that the model may see.
        :raises ValueError: for no bytes, too many, or a format that no provider reads.
        """
        if not data:
            raise ValueError(f"The {cls.kind} is empty.")
        if len(data) > cls.max_bytes:
            raise ValueError(
                f"The {cls.kind} has {len(data) / MEGABYTE:.1f} MB, more than the {cls.max_bytes / MEGABYTE:g} MB that "
                "providers take: make it smaller."
            )
        found = _media_type_of(data)
        if found is not None and media_type not in (None, found):
            raise ValueError(f"The {cls.kind} is {found} and not {media_type}, as its first bytes say.")
        return cls(cls._readable(media_type or found), data=bytes(data), name=_sayable(name))

    @classmethod
    def from_path(cls, path: str | Path, media_type: str | None = None) -> Self:
        """Attach a file; see :meth:`from_bytes`.

        :raises OSError: when the file cannot be read.
        """
        file = Path(path)
        if file.stat().st_size > cls.max_bytes:
            raise ValueError(
                f"{file.name} has {file.stat().st_size / MEGABYTE:.1f} MB, more than the "
                f"{cls.max_bytes / MEGABYTE:g} MB that providers take: make it smaller."
            )
        return cls.from_bytes(file.read_bytes(), media_type, name=file.name)

    @classmethod
    def from_url(cls, url: str, media_type: str | None = None) -> Self:
        """Attach by an https address that the provider can reach; not every provider takes one.

        :param media_type: default: told from the address.
        :raises ValueError: for another scheme, or a format that no provider reads.
        """
        parts = urlsplit(url)
        if _sayable(url) != url:
            raise ValueError("An attachment's address has characters that no address has.")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"An attachment's address must begin with https://, got {url!r}.")
        guessed = media_type or mimetypes.guess_type(parts.path)[0] or next(iter(sorted(cls.media_types)))
        return cls(cls._readable(guessed), url=url)

    @classmethod
    def _readable(cls, media_type: str | None) -> str:
        if media_type in cls.media_types:
            return media_type
        raise ValueError(
            f"{media_type or 'This format'} is no {cls.kind} that models read; they read "
            f"{', '.join(sorted(cls.media_types))}."
        )

    @property
    def base64(self) -> str:
        """The bytes as providers take them; empty where there is only an address."""
        return base64.b64encode(self.data or b"").decode()

    def to_json(self) -> dict[str, Any]:
        """Return the attachment as plain JSON data, its bytes in base64."""
        return {
            "media_type": self.media_type,
            "data": None if self.data is None else self.base64,
            "url": self.url,
            "name": self.name,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: when the data is not of that form.
        """
        media_type, coded, url, name = (data.get(key) for key in ("media_type", "data", "url", "name"))
        texts = (media_type, coded, url, name)
        if not all(text is None or isinstance(text, str) for text in texts) or (coded is None) == (url is None):
            raise ValueError(f"A stored {cls.kind} needs its media_type, and either data or url, as text.")
        if url is not None:
            return cls.from_url(url, media_type)
        try:
            return cls.from_bytes(base64.b64decode(coded or "", validate=True), media_type, name=name)
        except binascii.Error:
            raise ValueError(f"The data of a stored {cls.kind} is no base64.") from None


@dataclass(frozen=True, slots=True)
class Image(_Attachment):
    """A picture: PNG, JPEG, GIF or WebP, up to 20 MB; single providers take less and say so."""

    kind = "image"
    media_types = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
    max_bytes = 20 * MEGABYTE


@dataclass(frozen=True, slots=True)
class Document(_Attachment):
    """A PDF, up to 32 MB; single providers take less and say so."""

    kind = "document"
    media_types = frozenset({"application/pdf"})
    max_bytes = 32 * MEGABYTE


def attached(given: Iterable[object]) -> tuple[Image | Document, ...]:
    """Return attachments as they may stand in a message.

    :raises ValueError: for anything that is neither an image nor a document.
    """
    kept = []
    for item in given:
        if not isinstance(item, Image | Document):
            raise ValueError(
                f"attachments are Image or Document values, not {type(item).__name__}: use Image.from_path(…) or "
                "Document.from_bytes(…)."
            )
        kept.append(item)
    return tuple(kept)


def _sayable(text: str | None) -> str | None:
    """A name that can be sent: file names on Linux are bytes, and what is no text in them comes as half surrogates."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def _media_type_of(data: bytes) -> str | None:
    return next((name for start, mark, name in _SIGNATURES if data[start : start + len(mark)] == mark), None)
