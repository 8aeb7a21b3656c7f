"""Markup of fragments, ids of elements and names of streams."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from sqlalchemy import String
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import Session
from sqlalchemy.orm import mapped_column

from flask_instruct.live.turbo_stream import dom_id
from flask_instruct.live.turbo_stream import stream_name
from flask_instruct.live.turbo_stream import turbo_stream


class Base(DeclarativeBase):
    pass


class Assessment(Base):
    __tablename__ = "assessment"
    id: Mapped[int] = mapped_column(primary_key=True)


class HTMLPage(Base):
    __tablename__ = "page"
    slug: Mapped[str] = mapped_column(String(50), primary_key=True)


class Membership(Base):
    __tablename__ = "membership"
    left: Mapped[str] = mapped_column(String(50), primary_key=True)
    right: Mapped[str] = mapped_column(String(50), primary_key=True)


class Plain:
    def __init__(self, id: object) -> None:
        self.id = id


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_an_element_has_its_action_its_target_and_its_fragment() -> None:
    assert turbo_stream("append", target="items", html=Markup("<li>1</li>")) == (
        '<turbo-stream action="append" target="items"><template><li>1</li></template></turbo-stream>'
    )


def test_plain_text_is_escaped_and_markup_is_not() -> None:
    assert "<template>&lt;b&gt;</template>" in turbo_stream("update", target="x", html="<b>")
    assert "<template><b></template>" in turbo_stream("update", target="x", html=Markup("<b>"))


def test_a_target_cannot_leave_its_attribute() -> None:
    element = turbo_stream("update", target='"><script>alert(1)</script>')
    assert "<script>" not in element
    assert 'target="&#34;&gt;&lt;script' in element


def test_remove_and_refresh_carry_no_template() -> None:
    assert turbo_stream("remove", target="x") == '<turbo-stream action="remove" target="x"></turbo-stream>'
    assert turbo_stream("refresh") == '<turbo-stream action="refresh"></turbo-stream>'


def test_further_attributes_are_written_with_hyphens_and_escaped() -> None:
    element = turbo_stream("text", target="x", html="a", offset=0, request_id='"', hidden=None, ok=True)
    assert 'offset="0" request-id="&#34;" ok>' in element
    assert "hidden" not in element


def test_several_targets_are_a_selector() -> None:
    assert 'targets=".a &gt; .b"' in turbo_stream("remove", targets=".a > .b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "explode", "target": "x"},
        {"action": "append"},
        {"action": "append", "target": "x", "targets": ".y"},
        {"action": "append", "target": "x", 'a" b': 1},
    ],
)
def test_what_no_page_could_render_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"action|target|attribute"):
        turbo_stream(**wrong)  # type: ignore[arg-type]


def test_a_record_has_an_id_by_its_class_and_key(session: Session) -> None:
    record = Assessment(id=42)
    assert dom_id(record) == "new_assessment"
    session.add(record)
    session.flush()
    assert dom_id(record) == "assessment_42"
    assert dom_id(record, "instructions") == "instructions_assessment_42"
    assert turbo_stream("remove", target=record) == (
        '<turbo-stream action="remove" target="assessment_42"></turbo-stream>'
    )


def test_keys_of_text_and_of_several_columns_stay_safe_and_apart(session: Session) -> None:
    records = [HTMLPage(slug="a_b-c"), HTMLPage(slug='"><i>'), Membership(left="a_b", right="c")]
    records.append(Membership(left="a", right="b_c"))
    session.add_all(records)
    session.flush()
    ids = [dom_id(record) for record in records]
    assert ids[0] == "html_page_a_b-c"
    assert len(set(ids)) == 4
    assert all(set(identifier) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for identifier in ids)


def test_a_plain_object_is_named_after_its_id() -> None:
    key = uuid.uuid4()
    assert dom_id(Plain(key)) == f"plain_{key}"
    assert stream_name(Plain(key)) == f"Plain/{key}"


def test_a_stream_is_named_after_records_and_words(session: Session) -> None:
    record = Assessment(id=7)
    with pytest.raises(ValueError, match="flush or commit it first"):
        stream_name(record)
    session.add(record)
    session.flush()
    assert stream_name(record, "comments") == "Assessment/7:comments"


@pytest.mark.parametrize("nothing", [(), ("",), ("a", ""), (None,)])
def test_a_stream_needs_a_name(nothing: tuple[str | None, ...]) -> None:
    with pytest.raises(ValueError, match="stream"):
        stream_name(*nothing)


words = st.lists(st.text(alphabet="a:/%éb", min_size=1), min_size=1, max_size=3)


@given(words, words)
def test_no_two_lists_of_words_share_a_stream(one: list[str], other: list[str]) -> None:
    assert (stream_name(*one) == stream_name(*other)) == (one == other)


@given(st.text(alphabet="A/1:", min_size=1))
def test_no_word_is_mistaken_for_a_record(word: str) -> None:
    assert stream_name(word) != stream_name(Plain(1))
