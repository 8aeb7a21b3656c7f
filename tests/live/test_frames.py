"""What pages may say, and how the server's messages look on the wire."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import ConnectionType
from wsproto.connection import Connection
from wsproto.events import CloseConnection
from wsproto.events import TextMessage

from flask_instruct.live import frames
from flask_instruct.live.frames import Event
from flask_instruct.live.frames import Malformed
from flask_instruct.live.frames import Ping
from flask_instruct.live.frames import Subscribe
from flask_instruct.live.frames import Unsubscribe
from flask_instruct.live.position import Position


def test_a_page_subscribes_several_streams_at_once() -> None:
    message = {"type": "subscribe", "streams": [{"token": "a", "since": "5-1"}, {"token": "b", "since": ""}]}
    assert frames.parse(json.dumps(message)) == [Subscribe("a", Position(5, 1)), Subscribe("b", None)]


def test_a_cursor_that_is_none_is_taken_for_not_knowing() -> None:
    assert frames.parse('{"type": "subscribe", "streams": [{"token": "a", "since": "yesterday"}]}') == [
        Subscribe("a", None)
    ]


def test_a_page_unsubscribes_and_pings() -> None:
    assert frames.parse('{"type": "unsubscribe", "streams": ["s"]}') == [Unsubscribe("s")]
    assert frames.parse('{"type": "ping"}') == [Ping()]


@pytest.mark.parametrize(
    "message",
    [
        b"binary",
        "no json",
        "[]",
        "3",
        "{}",
        "[" * 100_000,
        '{"type": "subscribe"}',
        '{"type": "subscribe", "streams": [3]}',
        '{"type": "subscribe", "streams": [{"since": "1-0"}]}',
        '{"type": "subscribe", "streams": [{"token": "a", "since": 3}]}',
        '{"type": "unsubscribe", "streams": [{}]}',
        '{"type": "other", "streams": []}',
    ],
)
def test_anything_else_is_malformed(message: str | bytes) -> None:
    with pytest.raises(Malformed):
        frames.parse(message)


@given(st.binary(min_size=0, max_size=70_000))
def test_a_frame_is_read_by_other_software_as_it_was_meant(payload: bytes) -> None:
    text = payload.decode("latin-1")
    reader = Connection(ConnectionType.CLIENT)
    reader.receive_data(frames.websocket_frame(frames.TEXT, text.encode()))
    assert "".join(event.data for event in reader.events() if isinstance(event, TextMessage)) == text


@pytest.mark.parametrize("size", [125, 126, 127, 65535, 65536, 200_000])
def test_lengths_at_the_borders_of_the_three_forms(size: int) -> None:
    reader = Connection(ConnectionType.CLIENT)
    reader.receive_data(frames.websocket_frame(frames.TEXT, b"x" * size))
    assert sum(len(event.data) for event in reader.events() if isinstance(event, TextMessage)) == size


def test_a_close_frame_has_a_code_and_a_short_reason() -> None:
    reader = Connection(ConnectionType.CLIENT)
    reader.receive_data(frames.close_frame(1012, "x" * 500))
    assert list(reader.events()) == [CloseConnection(1012, "x" * 123)]


def test_text_that_is_no_unicode_does_not_break_a_frame() -> None:
    payload = json.loads(Event(Position(1), "s", "a\ud800b").payload)
    assert payload == {"id": "1-0", "stream": "s", "html": "a?b"}


def test_backlog_travels_in_batches() -> None:
    events = [Event(Position(1, number), "s", "x" * 1000) for number in range(200)]
    batches = list(frames.batches(events))
    assert 2 < len(batches) < 10
    assert [event["id"] for batch in batches for event in json.loads(batch.payload)] == [
        f"1-{number}" for number in range(200)
    ]


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-b", "1-2-3", "1-2\n", "９-1", "1" * 30 + "-0"])
def test_a_position_is_two_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        Position.parse(text)


def test_positions_are_ordered_by_their_numbers() -> None:
    assert Position.parse("9-10") > Position.parse("9-9") > Position.parse("8-99")
    assert str(Position.parse(b"9-10")) == "9-10"


def test_a_handshake_is_answered_as_the_standard_shows() -> None:
    answer = frames.accepted("dGhlIHNhbXBsZSBub25jZQ==")
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert answer.endswith(b"\r\n\r\n")
