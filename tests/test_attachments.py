"""Images and documents: what they are told by, how large they may be, and their form in JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flask_instruct import Document
from flask_instruct import Image
from flask_instruct import Prompt
from flask_instruct.messages import Message

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PDF = b"%PDF-1.7\n"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_the_format_is_read_from_the_first_bytes(data: bytes, media_type: str) -> None:
    assert Image.from_bytes(data).media_type == media_type


def test_a_file_keeps_its_name_and_not_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "photo.txt"
    path.write_bytes(PNG)
    image = Image.from_path(path)
    assert (image.media_type, image.name, image.data) == ("image/png", "photo.txt", PNG)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Image.from_bytes(b""), "empty"),
        (lambda: Image.from_bytes(b"BM6"), "image/png"),
        (lambda: Image.from_bytes(PDF), "no image"),
        (lambda: Document.from_bytes(PNG), "no document"),
        (lambda: Image.from_bytes(PNG + bytes(Image.max_bytes)), "20 MB"),
        (lambda: Image.from_url("file:///etc/passwd"), "https://"),
        (lambda: Image.from_url("https:///x.png"), "https://"),
        (lambda: Document.from_url("https://example.org/page.html"), "text/html"),
        (lambda: Prompt().user("Look.", "cat.png"), "Image.from_path"),  # type: ignore[arg-type]
    ],
)
def test_what_no_model_reads_is_refused_with_what_would_do(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_a_name_that_is_no_text_can_be_sent_all_the_same() -> None:
    assert Image.from_bytes(PNG, name="caf\udce9.png").name == "caf?.png"
    with pytest.raises(ValueError, match="characters"):
        Image.from_url("https://example.org/caf\udce9.png")


def test_the_first_bytes_count_more_than_what_is_said() -> None:
    with pytest.raises(ValueError, match="application/pdf and not image/png"):
        Image.from_bytes(PDF, "image/png")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.pdf"
    with path.open("wb") as file:
        file.truncate(Document.max_bytes + 1)
    with pytest.raises(ValueError, match=r"huge\.pdf has 32\.0 MB"):
        Document.from_path(path)


@pytest.mark.parametrize(
    "part",
    [
        Image.from_bytes(PNG, name="cat.png"),
        Document.from_bytes(PDF),
        Image.from_url("https://example.org/cat.jpg"),
        Document.from_url("https://example.org/rules"),
    ],
)
def test_a_message_with_an_attachment_survives_storage(part: Image | Document) -> None:
    message = Message("user", (part,))
    assert Message.from_json(message.to_json()) == message


@pytest.mark.parametrize(
    "stored",
    [
        {"type": "image", "media_type": "image/png"},
        {"type": "image", "media_type": "image/png", "data": "?"},
        {"type": "image", "media_type": "image/png", "data": "aGk=", "url": "https://example.org"},
        {"type": "image", "media_type": "text/html", "data": "aGk="},
        {"type": "document", "media_type": 3, "url": "https://example.org"},
    ],
)
def test_a_stored_attachment_of_another_form_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"stored|base64|text/html"):
        Message.from_json({"role": "user", "parts": [stored]})


def test_the_bytes_are_in_no_representation() -> None:
    assert "PNG" not in repr(Image.from_bytes(PNG))
