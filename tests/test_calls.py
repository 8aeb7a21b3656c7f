"""One call of a model, from the name it gave to the answer it gets: every end is an outcome, never an exception."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Annotated
from typing import Any
from typing import Literal

import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BeforeValidator
from sqlalchemy.exc import DataError
from sqlalchemy.exc import IntegrityError
from sqlalchemy.exc import OperationalError

from flask_instruct.errors import RecordGone
from flask_instruct.errors import ToolError
from flask_instruct.errors import ToolTimeout
from flask_instruct.handlers import AiResponseHandler
from flask_instruct.prompt import ToolCall
from flask_instruct.tools import Tool
from flask_instruct.tools import ToolContext
from flask_instruct.tools import ToolOutcome
from flask_instruct.tools import ai_tool
from flask_instruct.tools import run_tool
from flask_instruct.tools import settle

CONTEXT = ToolContext(id="t1", run_id="r1", name="x", seq=1, idempotency_key="key", actor="ann", attempt=2)
around: ContextVar[str] = ContextVar("around", default="nothing")


@dataclass
class Item:
    title: str
    weight: int = 1


def careless(value: object) -> object:
    raise TypeError("a validator that fails")


class Busy(AiResponseHandler, name="test_calls.Busy"):
    """A handler that writes down what reaches it."""

    secret = "not a tool"

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.heard: list[tuple[Any, ...]] = []
        self.allowed: Any = True
        self.asked: list[tuple[Any, ...]] = []

    @property
    def watched(self) -> None:
        raise AssertionError("a property is no tool")

    def save(self) -> None:
        raise AssertionError("not declared, so never called")

    def _hidden(self) -> None:
        raise AssertionError("not declared, so never called")

    @ai_tool
    def edit(self, title: str, items: list[Item], level: Literal[1, 2] = 1, ratio: float = 0.5) -> str:
        """Edit."""
        self.received.append((title, items, level, ratio))
        return "edited"

    @ai_tool(
        description="Take what is written.", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    def written(self, n=0):
        self.received.append(n)
        return n

    @ai_tool
    def context(self) -> dict[str, Any]:
        """Tell the call."""
        assert self.call is not None
        return {"key": self.call.idempotency_key, "actor": self.call.actor, "attempt": self.call.attempt}

    @ai_tool
    def nothing(self) -> None:
        """Do nothing."""

    @ai_tool
    def give(self, what: str) -> Any:
        """Give something."""
        return {"object": object(), "nan": float("nan"), "empty": "", "list": [], "long": "x" * 1000, "nul": "a\x00b"}[
            what
        ]

    @ai_tool
    def fail(self, how: str) -> None:
        """Fail."""
        raise {
            "deliberately": ToolError("Weights total 110, not 100."),
            "without words": ToolError(""),
            "unexpectedly": KeyError("password=hunter2"),
            "by data": DataError("INSERT", {"p": "secret"}, Exception("value too long for type varchar(5)")),
            "by a rule": IntegrityError("INSERT", {"p": "secret"}, Exception("UNIQUE constraint failed")),
            "by the database": OperationalError("INSERT", {"p": "secret"}, Exception("disk I/O error")),
            "for want of its record": RecordGone("The Assessment with key 3 no longer exists."),
        }[how]

    @ai_tool(timeout=0.05)
    def dawdle(self, how: str = "busy") -> str:
        """Take too long."""
        end = time.monotonic() + 10
        with contextlib.suppress({"busy": (), "broad": Exception, "bare": BaseException}[how]):  # type: ignore[arg-type]
            while time.monotonic() < end:
                pass
        return "swallowed"

    @ai_tool
    async def wait(self, seconds: float = 0) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return f"waited, with {around.get()} around"

    @ai_tool(timeout=0.05)
    async def wait_long(self) -> None:
        """Wait too long."""
        await asyncio.sleep(10)

    @ai_tool(timeout=0.05)
    async def compute_long(self) -> None:
        """Compute too long, in a task."""

        async def compute() -> None:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                pass

        async with asyncio.TaskGroup() as group:
            group.create_task(compute())

    @ai_tool
    async def fail_later(self, how: str) -> None:
        """Fail."""
        await asyncio.sleep(0)
        raise {"time": TimeoutError("its own"), "cancel": asyncio.CancelledError(), "told": ToolError("No.")}[how]

    @ai_tool
    def validated(self, value: Annotated[int, BeforeValidator(careless)]) -> None:
        """Never get here."""
        raise AssertionError

    @ai_tool
    def leave(self) -> None:
        """End the process."""
        raise SystemExit(3)

    def authorize_tool(self, tool: type[Tool], arguments: dict[str, Any], actor: Any) -> Any:
        self.asked.append((tool.identifier, arguments, actor, self.call))
        if isinstance(self.allowed, Exception):
            raise self.allowed
        return self.allowed() if callable(self.allowed) else self.allowed

    def handle_tool_error(self, tool_name: str, exception: BaseException, arguments: dict[str, Any]) -> None:
        self.heard.append((tool_name, exception, arguments))

    def handle_unknown_tool(self, tool_name: str) -> None:
        self.heard.append((tool_name,))


@pytest.fixture
def handler() -> Busy:
    return Busy()


def run(handler: AiResponseHandler, name: str, raw: str | None = None, /, **arguments: Any) -> ToolOutcome:
    text = json.dumps(arguments) if raw is None else raw
    return run_tool(handler, ToolCall("c1", name, text), CONTEXT)


def test_a_good_call_is_answered_with_the_result(handler: Busy) -> None:
    outcome = run(handler, "edit", title="x", items=[{"title": "y", "weight": "2"}], ratio="0.25")
    assert outcome == ToolOutcome(
        "edited", "ok", None, {"title": "x", "items": [Item("y", 2)], "level": 1, "ratio": 0.25}
    )
    assert not outcome.error
    assert handler.received == [("x", [Item("y", 2)], 1, 0.25)]


def test_the_tool_knows_its_call_and_only_while_it_runs(handler: Busy) -> None:
    assert run(handler, "context").content == '{"key": "key", "actor": "ann", "attempt": 2}'
    assert handler.call is None
    run(handler, "fail", how="unexpectedly")
    assert handler.call is None


@pytest.mark.parametrize("raw", ["", "  ", "null", "{}"])
def test_blank_arguments_mean_none(handler: Busy, raw: str) -> None:
    assert run(handler, "nothing", raw).content == "Done."


@pytest.mark.parametrize("raw", ["[1,2]", '"text"', "3", '{"title":', "please", '{"title": NaN}', "[" * 60_000])
def test_arguments_that_are_no_object_are_an_answer_and_no_empty_call(handler: Busy, raw: str) -> None:
    for name in ("nothing", "edit"):
        outcome = run(handler, name, raw)
        assert outcome.kind == "invalid_arguments"
        assert "the tool was not called" in outcome.content
        assert outcome.arguments is None
    assert handler.received == []


def test_all_faults_are_told_at_once(handler: Busy) -> None:
    outcome = run(handler, "edit", items=[{"title": 3}, {}], level=9, owner_id=1)
    assert outcome.kind == "invalid_arguments"
    assert outcome.content == (
        "Invalid arguments, the tool was not called:\n"
        "- title: is required\n"
        "- items.0.title: Input should be a valid string\n"
        "- items.1.title: is required\n"
        "- level: Input should be 1 or 2\n"
        "- owner_id: is not a known argument"
    )
    assert outcome.arguments == {"items": [{"title": 3}, {}], "level": 9, "owner_id": 1}


def test_arguments_longer_than_the_limit_are_refused(handler: Busy) -> None:
    outcome = run_tool(handler, ToolCall("c", "nothing", " " * 200), CONTEXT, argument_bytes=100)
    assert outcome.kind == "invalid_arguments"
    assert "at most 100" in outcome.content


@pytest.mark.parametrize(
    "name",
    [
        *("save", "_hidden", "watched", "secret", "__class__", "__init__", "record", "to_gid", "ai_tools", "call"),
        *("handle_ai_error", "authorize_tool", "broadcast_remove", "edit.__globals__", "", "EDIT", "edit "),
        *("edit\x00", "edit\n", "\x1b[2J", "delete" * 1000),
    ],
)
def test_only_declared_tools_can_be_called(handler: Busy, name: str) -> None:
    outcome = run(handler, name)
    assert outcome.kind == "unknown_tool"
    assert "is not available. Available tools: compute_long, context, dawdle, edit, " in outcome.content
    assert len(outcome.content) < 500
    assert outcome.content.isprintable()
    assert handler.asked == []
    settle(handler, ToolCall("c", name), outcome)
    assert handler.heard == [(name,)]


def test_without_tools_the_answer_says_so() -> None:
    class Bare(AiResponseHandler, name="test_calls.Bare"): ...

    assert run(Bare(), "edit").content == 'Tool "edit" is not available. No tools are available.'


def test_the_acting_person_is_asked_about_with_checked_arguments(handler: Busy) -> None:
    run(handler, "written", n="5")
    assert handler.asked == [("written", {"n": 5}, "ann", CONTEXT)]


def test_what_is_not_allowed_does_not_run(handler: Busy) -> None:
    handler.allowed = False
    outcome = run(handler, "written", n=5)
    assert outcome.kind == "not_allowed"
    assert outcome.content == "written is not allowed here for the person who asked."
    assert handler.received == []


@pytest.mark.parametrize("answer", [None, 1, "yes", [True], ValueError("password=hunter2")])
def test_a_rule_that_fails_or_answers_anything_else_allows_nothing(handler: Busy, answer: Any) -> None:
    handler.allowed = answer
    outcome = run(handler, "written", n=5)
    assert outcome.kind == "exception"
    assert "hunter2" not in outcome.content
    assert handler.received == []


def test_a_rule_that_was_not_awaited_allows_nothing(handler: Busy) -> None:
    async def allowed() -> bool:
        return True

    handler.allowed = allowed
    assert run(handler, "written", n=5).kind == "exception"
    assert handler.received == []


def test_arguments_that_cannot_be_read_are_never_put_to_the_rule(handler: Busy) -> None:
    for raw in ("", "{", '{"n": "x"}', '{"other": 1}'):
        if raw:
            assert run(handler, "written", raw).kind == "invalid_arguments"
    assert handler.asked == []


def test_a_deliberate_error_is_told_word_for_word(handler: Busy) -> None:
    outcome = run(handler, "fail", how="deliberately")
    assert (outcome.kind, outcome.content) == ("tool_error", "Weights total 110, not 100.")
    assert isinstance(outcome.exception, ToolError)
    assert outcome.arguments == {"how": "deliberately"}
    assert run(handler, "fail", how="without words").content == "fail failed."


def test_an_unexpected_error_is_told_without_internals_and_logged_with_them(
    handler: Busy, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "flask_instruct"):
        outcome = run(handler, "fail", how="unexpectedly")
    assert (outcome.kind, outcome.content) == ("exception", "fail failed because of an internal error.")
    assert isinstance(outcome.exception, KeyError)
    assert "Traceback" in caplog.text
    assert "hunter2" in caplog.text


@pytest.mark.parametrize(
    ("how", "content"),
    [
        ("by data", "fail failed: the database refused a value that does not fit its column."),
        ("by a rule", "fail failed: the database refused the change, because a rule of its data would be broken."),
        ("for want of its record", "fail failed: the record no longer exists."),
    ],
)
def test_an_error_the_model_can_act_on_is_told_in_short(handler: Busy, how: str, content: str) -> None:
    outcome = run(handler, "fail", how=how)
    assert (outcome.kind, outcome.content) == ("tool_error", content)


def test_another_error_of_the_database_is_internal(handler: Busy) -> None:
    assert run(handler, "fail", how="by the database").kind == "exception"


def test_a_validator_that_breaks_is_internal(handler: Busy) -> None:
    outcome = run(handler, "validated", value=3)
    assert (outcome.kind, outcome.content) == ("exception", "validated failed because of an internal error.")


@pytest.mark.parametrize(("what", "name"), [("object", "object"), ("nan", "float")])
def test_a_result_that_cannot_be_told_is_an_error_that_names_the_type(handler: Busy, what: str, name: str) -> None:
    outcome = run(handler, "give", what=what)
    assert outcome.kind == "unrenderable"
    assert f"type {name} cannot be told" in outcome.content


@pytest.mark.parametrize(("what", "told"), [("empty", "Done."), ("list", "[]"), ("nul", "ab")])
def test_the_model_always_gets_an_answer(handler: Busy, what: str, told: str) -> None:
    assert run(handler, "give", what=what).content == told


def test_a_long_result_is_cut_to_the_limit(handler: Busy) -> None:
    outcome = run_tool(handler, ToolCall("c", "give", '{"what": "long"}'), CONTEXT, result_chars=100)
    assert outcome.kind == "ok"
    assert len(outcome.content) == 100


@pytest.mark.parametrize("how", ["busy", "broad", "bare"])
def test_a_tool_that_takes_too_long_is_stopped_whatever_it_swallows(handler: Busy, how: str) -> None:
    outcome = run(handler, "dawdle", how=how)
    assert (outcome.kind, outcome.content) == ("timeout", "dawdle did not finish within 0.05 seconds and was stopped.")
    assert isinstance(outcome.exception, ToolTimeout)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_an_async_tool_runs_to_its_end_in_the_same_context(handler: Busy) -> None:
    token = around.set("something")
    try:
        assert run(handler, "wait").content == "waited, with something around"
    finally:
        around.reset(token)


def test_an_async_tool_that_takes_too_long_is_stopped_in_any_thread(handler: Busy) -> None:
    outcomes = [run(handler, "wait_long")]
    thread = threading.Thread(target=lambda: outcomes.append(run(handler, "wait_long")))
    thread.start()
    thread.join()
    assert [outcome.kind for outcome in outcomes] == ["timeout", "timeout"]


def test_an_async_tool_that_computes_too_long_in_a_task_is_stopped(handler: Busy) -> None:
    assert run(handler, "compute_long").kind == "timeout"


@pytest.mark.parametrize(("how", "kind"), [("time", "exception"), ("cancel", "exception"), ("told", "tool_error")])
def test_an_async_tool_that_fails_is_like_any_other(handler: Busy, how: str, kind: str) -> None:
    assert run(handler, "fail_later", how=how).kind == kind


def test_an_async_tool_inside_a_running_loop_is_an_error_and_leaks_nothing(handler: Busy) -> None:
    async def inside() -> ToolOutcome:
        return run(handler, "wait")

    assert asyncio.run(inside()).kind == "exception"


def test_what_ends_a_worker_passes(handler: Busy) -> None:
    with pytest.raises(SystemExit):
        run(handler, "leave")
    assert handler.call is None


class JobTimeout(Exception):
    """As RQ's: an ordinary exception, so that a tool may swallow it."""


@pytest.fixture
def job_timeout() -> Iterator[None]:
    def strike(signum: int, frame: FrameType | None) -> None:
        raise JobTimeout

    before = signal.signal(signal.SIGALRM, strike)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


class Patient(AiResponseHandler, name="test_calls.Patient"):
    @ai_tool
    def work(self, swallow: bool) -> str:
        """Work."""
        end = time.monotonic() + 5
        with contextlib.suppress(*[Exception] if swallow else []):
            while time.monotonic() < end:
                pass
        return "worked"


@pytest.mark.usefixtures("job_timeout")
@pytest.mark.parametrize("swallow", [False, True])
def test_a_timeout_of_the_job_is_not_taken_for_the_tools_failure(swallow: bool) -> None:
    def job() -> ToolOutcome:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        return run(Patient(), "work", swallow=swallow)

    with pytest.raises(JobTimeout):
        job()


def test_each_failure_reaches_its_callback_once(handler: Busy) -> None:
    calls = [("fail", {"how": "deliberately"}), ("edit", {}), ("dawdle", {}), ("give", {"what": "nan"})]
    for name, arguments in calls:
        call = ToolCall("c", name, json.dumps(arguments))
        outcome = run_tool(handler, call, CONTEXT)
        settle(handler, call, outcome)
        assert handler.heard == [(name, outcome.exception, outcome.arguments)]
        handler.heard.clear()


def test_a_success_and_an_interruption_reach_no_callback(handler: Busy) -> None:
    settle(handler, ToolCall("c", "nothing"), run(handler, "nothing"))
    settle(handler, ToolCall("c", "nothing"), ToolOutcome("Interrupted.", "interrupted"))
    assert handler.heard == []


def test_a_callback_always_gets_an_exception_and_a_dict(handler: Busy) -> None:
    settle(handler, ToolCall("c", "edit"), ToolOutcome("No.", "not_allowed"))
    [(_, exception, arguments)] = handler.heard
    assert isinstance(exception, ToolError)
    assert arguments == {}


def test_what_a_callback_raises_passes_to_the_caller(handler: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Busy, "handle_unknown_tool", lambda self, name: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        settle(handler, ToolCall("c", "x"), run(handler, "x"))


def test_a_list_of_tools_that_breaks_is_an_outcome_too(handler: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Busy, "ai_tools", lambda self: 1 / 0)
    assert run(handler, "edit").kind == "exception"


any_text = st.text(st.characters(exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | any_text,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=6), children, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["title", "items", "level", "ratio", "n", "self", "weight", "__class__"])
near_misses = st.dictionaries(
    keys, json_values | st.lists(st.dictionaries(keys, json_values, max_size=3), max_size=3), max_size=5
)
raw_arguments = st.one_of(
    st.text(),
    st.binary(),
    st.none(),
    json_values.map(json.dumps),
    near_misses.map(json.dumps),
    near_misses,
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(["edit", "written"]) | st.text(), raw=raw_arguments)
def test_whatever_arrives_is_answered_and_only_checked_values_reach_a_tool(name: str, raw: Any) -> None:
    handler = Busy()
    outcome = run_tool(handler, ToolCall("c", name, raw), CONTEXT)
    assert outcome.kind in ("ok", "unknown_tool", "invalid_arguments")
    assert outcome.content
    outcome.content.encode("utf-8")
    assert (outcome.kind == "ok") == bool(handler.received)
    for received in handler.received:
        if name == "written":
            assert type(received) is int
            continue
        title, items, level, ratio = received
        assert type(title) is str
        assert "\x00" not in title
        assert all(type(item) is Item and type(item.title) is str and type(item.weight) is int for item in items)
        assert type(level) is int
        assert level in (1, 2)
        assert type(ratio) is float
