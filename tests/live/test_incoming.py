"""What a page's bytes say: RFC 6455, by bytes in and events out, whole and byte by byte."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_instruct.live.incoming import Broken
from flask_instruct.live.incoming import Event
from flask_instruct.live.incoming import Incoming
from flask_instruct.live.incoming import Left
from flask_instruct.live.incoming import Pinged
from flask_instruct.live.incoming import Ponged
from flask_instruct.live.incoming import Said

MOST = 1000
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x01\x02\x03\x04"


def frame(opcode: int, payload: bytes, *, final: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    """Build a frame as a page sends it, or as none may."""
    size = len(payload)
    bit = 0x80 if masked else 0
    head = bytes([(0x80 if final else 0) | reserved << 4 | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    if not masked:
        return head + payload
    return head + MASK + bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))


def heard(data: bytes, piece: int | None = None) -> list[Event]:
    """Feed bytes as the loop does, which forgets a reader that is at rest."""
    events: list[Event] = []
    reader: Incoming | None = None
    for start in range(0, len(data), piece or len(data)):
        reader = reader or Incoming(MOST)
        events += reader.feed(data[start : start + (piece or len(data))])
        reader = None if reader.at_rest else reader
    return events


@pytest.mark.parametrize("piece", [1, 3, None])
def test_messages_pings_and_goodbyes_are_understood_in_any_pieces(piece: int | None) -> None:
    data = b"".join(
        (
            frame(TEXT, "grüß".encode()),
            frame(TEXT, b"a" * 300),
            frame(TEXT, "gr\u00fc".encode()[:3], final=False),
            frame(PING, b"now"),
            frame(CONTINUATION, "gr\u00fc".encode()[3:], final=False),
            frame(CONTINUATION, b"!"),
            frame(BINARY, b"\x00"),
            frame(PONG, b""),
            frame(TEXT, b""),
            frame(CLOSE, struct.pack("!H", 1000) + b"bye"),
        )
    )
    assert heard(data, piece) == [
        Said("grüß"),
        Said("a" * 300),
        Pinged(b"now"),
        Said("grü!"),
        Said(b"\x00"),
        Ponged(),
        Said(""),
        Left(),
    ]


BROKEN: dict[str, tuple[bytes, int]] = {
    "not masked": (frame(TEXT, b"x", masked=False), 1002),
    "a reserved bit": (frame(TEXT, b"x", reserved=4), 1002),
    "a reserved data opcode": (frame(0x3, b"x"), 1002),
    "a reserved control opcode": (frame(0xB, b"x"), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "a message within a message": (frame(TEXT, b"x", final=False) + frame(TEXT, b"y"), 1002),
    "a ping in fragments": (frame(PING, b"x", final=False), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "half a close code": (frame(CLOSE, b"x"), 1002),
    "a close code that is never sent": (frame(CLOSE, struct.pack("!H", 1005)), 1002),
    "a close code that is none": (frame(CLOSE, struct.pack("!H", 999)), 1002),
    "no UTF-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "UTF-8 that breaks off": (frame(TEXT, b"\xc3", final=False) + frame(CONTINUATION, b""), 1007),
    "a length with its highest bit set": (b"\x81\xff" + struct.pack("!Q", 2**63) + MASK, 1002),
}
"""What no page may send, and the code that it gets; ``test_socket`` sends it over real sockets."""

TOO_BIG = {
    "too big": (frame(TEXT, b"x" * (MOST + 1)), 1009),
    "too big in fragments": (frame(TEXT, b"x" * 600, final=False) + frame(CONTINUATION, b"x" * 600), 1009),
}


@pytest.mark.parametrize("piece", [1, None])
@pytest.mark.parametrize(("data", "code"), [*(BROKEN | TOO_BIG).values()], ids=[*(BROKEN | TOO_BIG)])
def test_what_no_page_may_send_ends_with_its_code(data: bytes, code: int, piece: int | None) -> None:
    with pytest.raises(Broken) as broken:
        heard(data, piece)
    assert broken.value.code == code


def test_a_frame_that_claims_to_be_huge_costs_no_memory_and_ends_as_soon_as_it_is_too_big() -> None:
    reader = Incoming(MOST)
    assert list(reader.feed(b"\x81\xff" + struct.pack("!Q", 2**40) + MASK)) == []
    for _ in range(MOST // 100):
        list(reader.feed(b"x" * 100))
    with pytest.raises(Broken) as broken:
        list(reader.feed(b"x"))
    assert broken.value.code == 1009


@given(st.lists(st.text(max_size=80), max_size=6), st.lists(st.integers(0, 400), max_size=8))
def test_any_messages_cut_anywhere_come_out_whole(messages: list[str], cuts: list[int]) -> None:
    data = b"".join(frame(TEXT, message.encode()) for message in messages)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    events: list[Event] = []
    reader: Incoming | None = None
    for start, end in pairwise(places):
        reader = reader or Incoming(MOST)
        events += reader.feed(data[start:end])
        reader = None if reader.at_rest else reader
    assert events == [Said(message) for message in messages]
