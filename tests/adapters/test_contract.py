"""One contract, kept by every protocol and by the scripted model: the same story gives the same talk."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Stop
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import Wait
from flask_instruct.attachments import Document
from flask_instruct.attachments import Image
from flask_instruct.events import Finish
from flask_instruct.events import ReasoningDelta
from flask_instruct.events import RetryScheduled
from flask_instruct.events import TextDelta
from flask_instruct.events import ToolCallRequest
from flask_instruct.events import UsageReported
from flask_instruct.generation import gen
from flask_instruct.messages import Message
from flask_instruct.messages import ModelRequest
from flask_instruct.messages import Text
from flask_instruct.messages import ToolCall
from flask_instruct.messages import ToolResult
from flask_instruct.talk import converse
from tests.support import wait_for
from tests.talking import MODELS
from tests.talking import OVER_HTTP
from tests.talking import PDF
from tests.talking import PNG
from tests.talking import PROFILES
from tests.talking import PROTOCOLS
from tests.talking import SECRETS
from tests.talking import TEXT
from tests.talking import Stage
from tests.talking import Verdict
from tests.talking import echo
from tests.talking import refused
from tests.talking import say
from tests.talking import theatre
from tests.talking import think
from tests.talking import told_turn
from tests.talking import wire_of
from tests.wire import Reply
from tests.wire_format import FORMATS
from tests.wire_parts import INPUT_TOKENS
from tests.wire_parts import OUTPUT_TOKENS

from .hearing import assistant
from .hearing import results
from .hearing import user


@pytest.fixture
def tell() -> Iterator[Callable[..., Stage]]:
    with theatre() as tell:
        yield tell


@PROTOCOLS
class TestAText:
    def test_streams_in_order_piece_by_piece(self, tell: Callable[..., Stage], protocol: str) -> None:
        talk = tell([[say(TEXT, size=3)]]).talk(protocol)
        pieces = [event.text for event in talk.all(TextDelta)]
        assert "".join(pieces) == talk.text == TEXT
        assert len(pieces) >= len(TEXT) // 3
        assert talk.all(Finish)[-1].reason == "stop"

    def test_is_told_apart_from_the_reasoning_before_it(self, tell: Callable[..., Stage], protocol: str) -> None:
        talk = tell([[think("Hm, ünd?"), say("Well.")]]).talk(protocol)
        assert "".join(event.text for event in talk.all(ReasoningDelta)) == "Hm, ünd?"
        assert "".join(event.text for event in talk.all(TextDelta)) == talk.text == "Well."

    def test_is_counted_in_tokens(self, tell: Callable[..., Stage], protocol: str) -> None:
        talk = tell([[say(TEXT)]]).talk(protocol)
        usage = talk.all(UsageReported)[-1].usage
        wanted = (INPUT_TOKENS, OUTPUT_TOKENS)
        assert (usage.input_tokens, usage.output_tokens) == wanted or (protocol == "scripted" and usage.input_tokens)

    def test_ends_with_the_one_who_listens(self, tell: Callable[..., Stage], protocol: str) -> None:
        """A reader who leaves closes the provider's response (openai-agents#4366)."""
        stage = tell([[say("Half"), Wait(30), say(" and half")]])
        events = converse([user("Go.")], gen(MODELS[protocol]), config=stage.config)
        assert next(event for event in events if isinstance(event, TextDelta)) == TextDelta("Half")
        events.close()
        assert protocol == "scripted" or wait_for(stage.server.seen[0].hung_up.is_set)


@PROTOCOLS
class TestCalls:
    def test_in_parallel_run_in_order_and_are_answered_in_order(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        stage = tell(echo)
        talk = stage.talk(protocol)
        assert talk.desk.ran == ["Zürich", "東京"]
        assert talk.text == "weather: Sunny in Zürich | weather: Sunny in 東京"
        told = stage.asked[1].messages[-1].results
        assert [result.content for result in told] == ["Sunny in Zürich", "Sunny in 東京"]
        assert [result.error for result in told] == [False, False]
        assert [call.name for call in stage.asked[1].messages[-2].calls] == ["weather", "weather"]

    def test_have_ids_of_their_own_though_the_server_repeats_its_ids(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        rounds: Script = [[Use("weather", city="A"), Use("weather", city="B")]] * 3 + [[say("Done.")]]
        stage = tell(rounds, first_call=0)
        talk = stage.talk(protocol)
        assert len(set(talk.call_ids)) == 6
        assert [result.call_id for result in talk.results] == talk.call_ids
        assert talk.desk.ran == ["A", "B"] * 3
        assert [result.content[-1] for message in stage.asked[-1].messages for result in message.results] == [
            *("A", "B") * 3
        ]

    def test_of_an_unknown_tool_are_told_which_there_are(self, tell: Callable[..., Stage], protocol: str) -> None:
        """The loop goes on, with the names that are available (openai-agents#325, simonw/llm#1483)."""
        stage = tell([[Use("forecast", city="A"), Use("weather", city="B")], [say("Done.")]])
        talk = stage.talk(protocol)
        assert (talk.desk.ran, talk.text) == (["B"], "Done.")
        unknown, known = stage.asked[1].messages[-1].results
        assert (unknown.error, known.error) == (True, False)
        assert "Available tools: nothing, refuse, weather." in unknown.content

    @pytest.mark.parametrize("raw", ["{oops", "[1, 2]", '"text"', "{}", '{"city": 3}', '{"city": "A", "x": 1}'])
    def test_with_arguments_that_do_not_fit_never_run(
        self, tell: Callable[..., Stage], protocol: str, raw: str
    ) -> None:
        """What is no object is told as such (openai-agents#3166)."""
        stage = tell([[Use("weather", raw=raw)], [say("Done.")]])
        talk = stage.talk(protocol)
        assert (talk.desk.ran, talk.text) == ([], "Done.")
        (result,) = stage.asked[1].messages[-1].results
        assert result.error
        assert len(result.content) > len("Error: ")

    def test_that_fail_are_told_as_errors(self, tell: Callable[..., Stage], protocol: str) -> None:
        stage = tell([[Use("refuse")], [say("Done.")]])
        talk = stage.talk(protocol)
        (result,) = stage.asked[1].messages[-1].results
        assert result.error
        assert "Closed today." in result.content
        assert (talk.desk.ran, talk.text) == (["refuse"], "Done.")

    @pytest.mark.parametrize("kind", ["none", "text", "list"])
    def test_that_give_nothing_are_answered_all_the_same(
        self, tell: Callable[..., Stage], protocol: str, kind: str
    ) -> None:
        """An empty result is sent as a text that is not empty (openai-agents#3312, #3554)."""
        stage = tell([[Use("nothing", kind=kind)], [say("Done.")]])
        stage.talk(protocol)
        (result,) = stage.asked[1].messages[-1].results
        assert (bool(result.content.strip()), result.error, result.name) == (True, False, "nothing")

    def test_that_were_forbidden_do_not_run_though_the_server_makes_them(
        self, tell: Callable[..., Stage], protocol: str
    ) -> None:
        before = [] if protocol == "scripted" else [told_turn(protocol, say("Well."), Use("weather", city="A"))]
        stage = tell([[say("Well."), Use("weather", city="A")]], *before)
        talk = stage.talk(protocol, tool_choice="none")
        assert (talk.desk.ran, talk.messages[-1].calls) == ([], ())
        assert talk.text.startswith("Well.")
        assert talk.all(Finish)[-1].reason == "stop"


ENDINGS = {
    "length": ("length",),
    "refusal": ("refusal", "content_filter"),
    "content_filter": ("content_filter", "refusal"),
    "malformed": ("malformed", "other"),
    "context_window": ("context_window", "other"),
    "pause": ("pause", "other"),
    "error": ("error", "other"),
    "other": ("other",),
}
"""Why a turn ends, and how protocols without a word for it say it."""


@PROTOCOLS
class TestAnEnding:
    @pytest.mark.parametrize("reason", ENDINGS)
    def test_other_than_well_runs_nothing(self, tell: Callable[..., Stage], protocol: str, reason: Any) -> None:
        """However complete the call looks (vercel/ai#19063)."""
        stage = tell([[say("Half"), Use("weather", city="A"), Stop(reason)], [say("Rest.")]])
        talk = stage.talk(protocol)
        first = talk.all(Finish)[0]
        assert first.reason in ENDINGS[reason]
        assert (talk.desk.ran, talk.call_ids, first.message.text) == ([], [], "Half")
        assert talk.all(ToolCallRequest) == []
        # Only a paused turn is gone on with.
        assert len(stage.asked) == (2 if first.reason == "pause" else 1)

    def test_by_the_limit_before_a_word_is_not_asked_for_again(self, tell: Callable[..., Stage], protocol: str) -> None:
        """pydantic-ai#3512, openai-agents#4513."""
        stage = tell([[Stop("length")]])
        assert stage.talk(protocol).all(Finish)[-1].reason == "length"
        assert len(stage.asked) == 1

    def test_that_says_nothing_is_asked_for_again(self, tell: Callable[..., Stage], protocol: str) -> None:
        """Text of an earlier turn is no answer (pydantic-ai#6403)."""
        turns = iter([[say("Let me see."), Use("weather", city="A")], [], [say("Sunny.")]])
        stage = tell(lambda request: next(turns))
        talk = stage.talk(protocol)
        assert (talk.text, len(stage.asked)) == ("Sunny.", 3)


FAILURES = ("authentication", "permission", "not_found", "bad_request", "context_window")
PASSING = ("rate_limited", "overloaded", "server", "timeout", "connection")


@PROTOCOLS
class TestAFailure:
    @pytest.mark.parametrize("kind", FAILURES)
    def test_that_lasts_is_told_at_once(self, tell: Callable[..., Stage], protocol: str, kind: Any) -> None:
        stage = tell([[Fail(kind, "Their words")]])
        talk = stage.talk(protocol)
        assert talk.error is not None
        assert (talk.error.kind, len(stage.asked), stage.waits) == (kind, 1, [])
        assert "Their words" in talk.error.technical
        assert "Their words" not in talk.error.safe

    @pytest.mark.parametrize("kind", PASSING)
    def test_that_passes_leaves_the_same_rows_as_none(
        self, tell: Callable[..., Stage], protocol: str, kind: Any
    ) -> None:
        """What the user said is stored once, not once a try (openai-agents#3857)."""
        fails = iter([True, False, True])
        stage = tell(lambda request: [Fail(kind)] if next(fails, False) else echo(request))
        talk, smooth = stage.talk(protocol), tell(echo).talk(protocol)
        assert talk.rows == smooth.rows
        assert [event.reason for event in talk.all(RetryScheduled)] == [kind, kind]
        assert len(stage.waits) == 2

    @pytest.mark.parametrize("kind", ["overloaded", "server", "rate_limited", "malformed", "cut"])
    def test_in_mid_answer_is_no_answer_and_not_said_again(
        self, tell: Callable[..., Stage], protocol: str, kind: Any
    ) -> None:
        """Text that was shown must not appear twice (crmne/ruby_llm 4bf4e03)."""
        stage = tell([[say("Half"), Use("weather", city="A"), Fail(kind, "Their words")]])
        talk = stage.talk(protocol)
        assert talk.error is not None
        assert (talk.error.kind, len(stage.asked)) == (kind, 1)
        assert "".join(event.text for event in talk.all(TextDelta)) == "Half"
        assert (talk.all(Finish), talk.desk.ran, len(talk.messages)) == ([], [], 2)

    def test_by_silence_is_a_timeout(self, tell: Callable[..., Stage], protocol: str) -> None:
        silence = Fail("timeout") if protocol == "scripted" else Wait(30)
        stage = tell([[say("Half"), silence]], timeout=0.3)
        talk = stage.talk(protocol)
        assert talk.error is not None
        assert (talk.error.kind, talk.all(Finish)) == ("timeout", [])


@OVER_HTTP
def test_a_server_that_goes_on_after_its_error_is_hung_up_on(tell: Callable[..., Stage], protocol: str) -> None:
    """Also while the error, which knows where it came from, is kept (openai-agents#4366)."""
    spoken = FORMATS[wire_of(protocol)]
    stage = tell([], Reply([*spoken.write([say("Half"), Fail("overloaded")]), 30.0, "data: {}"]))
    talk = stage.talk(protocol)
    assert talk.error is not None
    assert wait_for(stage.server.seen[0].hung_up.is_set)


@OVER_HTTP
def test_a_provider_that_names_a_time_is_waited_for(tell: Callable[..., Stage], protocol: str) -> None:
    stage = tell(echo, refused(protocol, "rate_limited", retry_after="7"))
    talk = stage.talk(protocol)
    assert talk.desk.ran == ["Zürich", "東京"]
    (wait,) = stage.waits
    assert 7.0 <= wait <= 9.0


BEFORE = (
    user("Before."),
    assistant(*(ToolCall(call_id, "weather", '{"city": "Rome"}') for call_id in ("call_1", "call_2", "toolu_1"))),
    results(*(ToolResult(call_id, "weather", "Sunny.") for call_id in ("call_1", "call_2", "toolu_1"))),
    assistant("Sunny."),
)
"""A talk with another model, whose ids the next one uses again."""


@pytest.mark.parametrize(
    ("first", "second"), [*permutations(MODELS, 2), *((name, f"{name}_twin") for name in PROFILES)]
)
def test_another_model_goes_on_where_one_stays_away(tell: Callable[..., Stage], first: str, second: str) -> None:
    """With a portable history: calls and results in order, and nothing that only the first could read."""
    left: list[str] = []

    def leave(request: ModelRequest) -> Turn:
        if request.messages[-1].results and not left:
            left.append(request.model)
            return [Fail("permission")]
        return echo(request)

    stage = tell(leave, first_call=1)
    talk = stage.talk(first, second, messages=[*BEFORE, user("Go.")])
    assert left == [MODELS[first].partition(":")[2]]
    assert talk.error is None
    assert (talk.desk.ran, talk.text) == (["Zürich", "東京"], "weather: Sunny in Zürich | weather: Sunny in 東京")
    question, turn, back = stage.asked[-1].messages[-3:]
    assert (question.text, turn.text) == ("Go.", "Let me see.")
    assert [call.id for call in turn.calls] == [result.call_id for result in back.results]
    assert len({call.id for call in turn.calls}) == 2
    if second != "scripted":
        sent = json.dumps(stage.server.bodies[-1])
        assert not any(secret in sent for secret in SECRETS)
        assert not second.startswith("google") or '"id":' not in sent


@PROTOCOLS
class TestAShape:
    def test_is_held_by_the_provider_or_by_a_last_tool(self, tell: Callable[..., Stage], protocol: str) -> None:
        stage = tell(verdict("good"))
        assert stage.talk(protocol, output=Verdict, tools=()).output == Verdict(word="good", score=7)
        (request,) = stage.asked
        assert (request.output is None) == bool(request.tools)

    def test_beside_tools_ends_the_talk_after_them(self, tell: Callable[..., Stage], protocol: str) -> None:
        def look_then_judge(request: ModelRequest) -> Turn:
            return verdict("bad")(request) if request.messages[-1].results else [Use("weather", city="A")]

        talk = tell(look_then_judge).talk(protocol, output=Verdict)
        assert (talk.desk.ran, talk.output) == (["A"], Verdict(word="bad", score=7))

    def test_that_does_not_fit_is_asked_for_again(self, tell: Callable[..., Stage], protocol: str) -> None:
        words = iter(["so-so", "good"])
        stage = tell(lambda request: verdict(next(words))(request))
        assert stage.talk(protocol, output=Verdict, tools=()).output == Verdict(word="good", score=7)
        last = stage.asked[1].messages[-1]
        assert "word" in (last.text or last.results[0].content)

    def test_that_is_refused_is_no_shape_that_does_not_fit(self, tell: Callable[..., Stage], protocol: str) -> None:
        """pydantic-ai#4315."""
        stage = tell([[say("I can't."), Stop("refusal")]])
        talk = stage.talk(protocol, output=Verdict, tools=())
        assert (talk.output, len(stage.asked)) == (None, 1)
        assert talk.all(Finish)[-1].reason in ("refusal", "content_filter")


def verdict(word: str) -> Callable[[ModelRequest], Turn]:
    """Give a verdict in the way that was asked for."""

    def judge(request: ModelRequest) -> Turn:
        if request.output is not None:
            return [say(json.dumps({"word": word, "score": 7}))]
        return [Use(request.tools[-1].name, word=word, score=7)]

    return judge


READS_DOCUMENTS = {"openai_responses", "anthropic", "google", "scripted"}


@PROTOCOLS
class TestAnAttachment:
    def test_arrives_as_it_is(self, tell: Callable[..., Stage], protocol: str) -> None:
        stage = tell([[say("A dot.")]])
        asking = Message("user", (Image.from_bytes(PNG), Text("What is it?")))
        talk = stage.talk(protocol, messages=[asking])
        assert talk.text == "A dot."
        image, text = stage.asked[0].messages[-1].parts
        assert isinstance(image, Image)
        assert (image.data, image.media_type, text) == (PNG, "image/png", Text("What is it?"))

    def test_that_the_provider_cannot_read_never_leaves(self, tell: Callable[..., Stage], protocol: str) -> None:
        stage = tell([[say("A page.")]])
        asking = Message("user", (Document.from_bytes(PDF, name="a.pdf"), Text("What is it?")))
        talk = stage.talk(protocol, messages=[asking])
        if protocol in READS_DOCUMENTS:
            document = stage.asked[0].messages[-1].parts[0]
            assert isinstance(document, Document)
            assert (document.data, document.media_type) == (PDF, "application/pdf")
        else:
            assert talk.error is not None
            assert (talk.error.kind, stage.server.seen) == ("unsupported", [])
            assert "attached" in talk.error.safe


EFFORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "openai_chat": lambda body: body["reasoning_effort"],
    "openai_responses": lambda body: body["reasoning"]["effort"],
    "anthropic": lambda body: body["thinking"]["budget_tokens"],
    "google": lambda body: body["generationConfig"]["thinkingConfig"]["thinkingBudget"],
}
"""Where each protocol takes how much a model may reason."""


@OVER_HTTP
def test_effort_reaches_the_model_in_its_own_words(tell: Callable[..., Stage], protocol: str) -> None:
    stage = tell(echo)
    for effort in ("low", "medium", "high"):
        assert stage.talk(protocol, effort=effort).error is None
    said = [EFFORTS[protocol](body) for body in stage.server.bodies]
    assert len(set(said)) == 3
    assert said[::2] == said[1::2], "both calls of a talk say the same"


@PROTOCOLS
def test_no_effort_is_accepted_too(tell: Callable[..., Stage], protocol: str) -> None:
    assert tell(echo).talk(protocol, effort="off").desk.ran == ["Zürich", "東京"]
