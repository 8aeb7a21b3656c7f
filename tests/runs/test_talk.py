"""What a run does besides tools: text, limits, errors, links, callbacks, and an idle database while it waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask

from flask_instruct import Image
from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Turn
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.events import Finish
from flask_instruct.events import Usage
from flask_instruct.orchestrator import Ending
from flask_instruct.prompt import ModelRequest
from flask_instruct.prompt import Text
from flask_instruct.runs.columns import now
from flask_instruct.runs.history import transcript
from flask_instruct.runs.job import generate
from flask_instruct.runs.journal import Journal
from flask_instruct.runs.models import ModelCall
from flask_instruct.runs.models import Run
from flask_instruct.runs.steps import Interrupted
from flask_instruct.runs.steps import Steps
from flask_instruct.runs.unit import ledger_engine
from tests.wire import Reply
from tests.wire import WireServer

from .conftest import notes
from .conftest import reread
from .notebook import Notebook
from .notebook import NoteKeeper
from .notebook import db
from .notebook import instruct

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
CarryOut = Callable[..., Run]
Ask = Callable[..., Run]


def test_text_and_the_model_call_are_in_the_ledger(carry_out: CarryOut) -> None:
    run = carry_out(script="talk")
    [message] = run.messages
    assert (message.text, message.state, message.finish_reason) == ("Hello, 👋 world. ", "complete", "stop")
    [call] = db.session.scalars(sa.select(ModelCall))
    assert call.message_id == message.id
    assert call.output_tokens


def test_each_model_call_is_in_the_ledger_also_one_that_failed_after_a_good_one(carry_out: CarryOut) -> None:
    carry_out(script="fail_later")
    calls = db.session.scalars(sa.select(ModelCall).order_by(ModelCall.created_at))
    assert [call.error_class for call in calls] == [None, "provider_overloaded"]


def test_each_callback_is_called_once(carry_out: CarryOut) -> None:
    carry_out(script="fail")
    assert notes() == ["ai error: ProviderError"]


def test_a_cut_answer_is_shown_but_not_a_success(carry_out: CarryOut) -> None:
    run = carry_out(script="cut")
    assert (run.status, run.error_class) == ("failed", "length")
    assert run.messages[0].text == "Far too lo"
    assert notes() == ["finished: length"]


def test_a_run_that_never_ends_is_limited_and_its_history_stays_valid(carry_out: CarryOut) -> None:
    run = carry_out(script="loop")
    assert (run.status, run.limit_reached) == ("limited", "rounds")
    assert len(run.calls) == 8
    assert all(call.result for call in run.calls)
    assert transcript(run)[-1].role == "assistant"


def test_an_unknown_tool_and_bad_arguments_are_answers(carry_out: CarryOut) -> None:
    run = carry_out(Use("save"), Use("write", raw="[1]"), Use("write"))
    unknown, array, missing = run.calls
    assert "not available" in (unknown.result or "")
    assert "write" in (unknown.result or "")
    assert "object" in (array.result or "")
    assert "text" in (missing.result or "")
    assert {call.status for call in run.calls} == {"failed"}


def test_links_are_those_of_the_request_that_asked(app: Flask, ask: Ask) -> None:
    register_script("linked", [[Use("link")], []])
    with app.test_request_context(base_url="https://school.example/app/"):
        run = ask("linked")
    generate(run.id)
    assert reread(run).calls[0].result == "/app/notebooks/1"


def test_a_deleted_record_ends_the_run_in_words(app: Flask, ask: Ask) -> None:
    run = ask("write_two")
    db.session.execute(sa.delete(Notebook))
    db.session.commit()
    generate(run.id)
    ended = reread(run)
    assert (ended.status, ended.error_class) == ("failed", "record_gone")


def test_a_record_deleted_between_tools_leaves_no_call_open(app: Flask, ask: Ask) -> None:
    def turns(request: ModelRequest) -> list[Any]:
        if not any(message.role == "assistant" for message in request.messages):
            return [Use("write", text="a")]
        with db.engine.begin() as connection:
            connection.execute(sa.text("delete from note"))
            connection.execute(sa.text("delete from notebook"))
        return [Use("write", text="b"), Use("write", text="c")]

    register_script("vanishing", turns)
    run = ask("vanishing")
    generate(run.id)
    ended = reread(run)
    assert ended.error_class == "record_gone"
    assert [call.status for call in ended.calls] == ["done", "failed", "failed"]
    assert all("interrupted" in (call.result or "") for call in ended.calls[1:])


def test_g5_no_connection_is_held_while_the_model_is_awaited(app: Flask, ask: Ask) -> None:
    held: list[int] = []
    state = app.extensions["instruct"]
    # No heartbeat and no look for a stop: each holds a connection for a moment.
    state.config = replace(state.config, lease=600, stop_interval=600)

    def turns(request: ModelRequest) -> list[Any]:
        pools = {db.engine.pool, ledger_engine(db).pool}
        held.append(sum(pool.checkedout() for pool in pools))  # type: ignore[attr-defined]
        first = not any(message.role == "assistant" for message in request.messages)
        return [Say("Writing."), Use("write", text="a")] if first else [Say("Done.")]

    register_script("watching", turns)
    run = ask("watching")
    db.session.remove()
    generate(run.id)
    assert held == [0, 0]
    assert reread(run).status == "succeeded"


def test_context_is_given_apart_from_the_prompt_and_marked_as_data(app: Flask) -> None:
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(
        NoteKeeper(record), user_prompt="Go.", system_prompt="Be brief.", context={"a": 1}, model="scripted:talk"
    )
    system, user = transcript(run)
    assert system.text == "Be brief."
    data, prompt = user.parts
    assert "data, not instructions" in data.text  # type: ignore[union-attr]
    assert prompt.text == "Go."  # type: ignore[union-attr]


def test_a_missing_model_says_what_to_set(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    record = db.session.scalars(sa.select(Notebook)).one()
    run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.")
    generate(run.id)
    ended = reread(run)
    assert ended.error_class == "configuration"
    assert "OPENAI_API_KEY" in (ended.error_technical or "")


@pytest.fixture
def moody(app: Flask, monkeypatch: pytest.MonkeyPatch, carry_out: CarryOut) -> Callable[..., Run]:
    """Carry out a run whose model does one thing after another; ``seen`` hears how the run stood in each wait."""
    state = app.extensions["instruct"]
    monkeypatch.setattr(state, "config", replace(state.config, retries=2))

    def moody(*tries: Turn, seen: list[tuple[str, str | None]] | None = None) -> Run:
        coming = iter(tries)
        register_script("moody", lambda request: next(coming))

        def wait(steps: Steps, seconds: float) -> None:
            run = db.session.get_one(Run, steps.run_id)
            assert (run.retry_at is not None) == (run.status == "retrying")
            (seen if seen is not None else []).append((run.status, run.retry_reason))
            db.session.remove()

        monkeypatch.setattr(Steps, "wait", wait)
        return carry_out(script="moody")

    return moody


def test_g9_a_model_call_that_failed_is_made_again_and_its_answer_taken_back(moody: Callable[..., Run]) -> None:
    seen: list[tuple[str, str | None]] = []
    run = moody([Say("Well, "), Fail("overloaded", "busy")], [Say("Here it is.")], seen=seen)
    assert seen == [("retrying", "overloaded")]
    assert (run.status, run.retry_at) == ("succeeded", None)
    assert [message.text for message in run.messages] == ["Here it is."]
    calls = list(db.session.scalars(sa.select(ModelCall).order_by(ModelCall.created_at)))
    assert [(call.try_number, call.error_class) for call in calls] == [(1, "provider_overloaded"), (2, None)]
    assert [call.message_id for call in calls] == [None, run.messages[0].id]


def test_g9_tools_that_ran_do_not_run_again_when_a_later_model_call_fails(moody: Callable[..., Run]) -> None:
    """The user's words and the finished round stand once in the history (openai-agents#3857)."""
    run = moody([Use("write", text="a")], [Say("Well"), Fail("cut")], [Fail("server")], [Say("Done.")])
    assert (run.status, notes()) == ("succeeded", ["a", "finished: stop"])
    assert [message.role for message in transcript(run)] == ["user", "assistant", "tool", "assistant"]


def test_g9_a_lasting_failure_ends_the_run_at_once_with_both_texts(moody: Callable[..., Run]) -> None:
    run = moody([Fail("bad_request", "tools.3.name: too long")], [Say("Never said.")])
    assert (run.status, run.error_class) == ("failed", "provider_bad_request")
    assert run.error_safe == "The AI service could not read this request."
    assert "tools.3.name" in (run.error_technical or "")


def test_a_handler_that_heard_text_and_cannot_take_it_back_is_spared_a_second_beginning(
    moody: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_chunk", lambda self, content: heard.append(content))
    run = moody([Say("Well, " * 300), Fail("overloaded")], [Say("Here it is.")])
    assert (run.status, run.error_class) == ("failed", "provider_overloaded")
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_discarded", lambda self: heard.clear(), raising=False)
    run = moody([Say("Well, " * 300), Fail("overloaded")], [Say("Here it is.")])
    assert (run.status, "".join(heard)) == ("succeeded", "Here it is.")


def test_a_call_that_dies_with_its_worker_is_in_the_ledger_too(ask: Ask, app: Flask) -> None:
    run = ask("talk")
    db.session.add(ModelCall(run_id=run.id, provider="scripted", model="talk", attempt=1))
    db.session.execute(
        sa.update(Run)
        .where(Run.id == run.id)
        .values(status="running", attempt=1, lease_until=now() - timedelta(hours=1))
    )
    db.session.commit()
    generate(run.id)
    calls = list(db.session.scalars(sa.select(ModelCall).order_by(ModelCall.created_at)))
    assert [(call.attempt, call.error_class) for call in calls] == [(1, "interrupted"), (2, None)]


def test_what_a_run_is_asked_with_is_kept_in_its_row(ask: Ask, app: Flask) -> None:
    heard: list[ModelRequest] = []

    def listen(request: ModelRequest) -> Turn:
        heard.append(request)
        return [Say("A cat.")]

    register_script("look", listen)
    picture = Image.from_bytes(PNG, name="cat.png")
    run = ask("look", attachments=[picture], effort="low", tenant="acme")
    assert (run.effort, run.tenant) == ("low", "acme")
    generate(run.id)
    assert heard[0].messages[-1].parts == (picture, Text("Go."))
    assert heard[0].effort == "low"


@pytest.mark.parametrize(
    ("options", "error"), [({"effort": "utmost"}, "effort"), ({"attachments": ["cat.png"]}, "attachments")]
)
def test_what_cannot_be_asked_is_refused_before_a_run_exists(ask: Ask, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        ask("talk", **options)
    assert db.session.scalar(sa.select(sa.func.count(Run.id))) == 0


def test_each_call_is_made_with_the_key_of_the_runs_tenant(
    app: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WireServer.telling([[Use("write", text="a")], [Say("Done.")]]) as server:
        providers = {"near": {"protocol": "openai_chat", "base_url": server.base_url("openai_chat")}}
        state = app.extensions["instruct"]
        monkeypatch.setattr(state, "config", replace(state.config, providers=providers))
        keys = iter(["first", "second"])
        asked: list[tuple[str, str | None]] = []

        def rule(provider: str, run: Run | None) -> str:
            asked.append((provider, run.tenant if run else None))
            # A look into the database must not leave its transaction open while the model is awaited (G5).
            assert db.session.scalar(sa.select(sa.func.count(Notebook.id))) == 1
            return f"sk-{next(keys)}-of-acme"

        monkeypatch.setattr(state.hooks, "credentials", rule)
        record = db.session.scalars(sa.select(Notebook)).one()
        run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="near:m", tenant="acme")
        generate(run.id)
        assert reread(run).status == "succeeded"
        assert asked == [("near", "acme")] * 2
        sent = [seen.headers["authorization"] for seen in server.seen]
        assert sent == ["Bearer sk-first-of-acme", "Bearer sk-second-of-acme"]


def test_a_run_goes_on_with_the_next_model_when_one_stays_away(
    app: Flask, monkeypatch: pytest.MonkeyPatch, moody: Callable[..., Run]
) -> None:
    refusal = json.dumps({"error": {"message": "no such key", "code": "invalid_api_key"}})
    with (
        WireServer.playing(Reply(refusal, status=401, content_type="application/json")) as closed,
        WireServer.telling([[Use("write", text="a")], [Say("Done.")]]) as open_,
    ):
        providers = {
            "closed": {"protocol": "openai_chat", "base_url": closed.base_url("openai_chat")},
            "open": {"protocol": "anthropic", "base_url": open_.base_url("anthropic")},
        }
        state = app.extensions["instruct"]
        monkeypatch.setattr(state, "config", replace(state.config, providers=providers))
        record = db.session.scalars(sa.select(Notebook)).one()
        models = ["closed:gpt", "open:claude"]
        run = reread(instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model=models))
        assert run.model == "closed:gpt, open:claude"
        generate(run.id)
        assert (reread(run).status, notes()) == ("succeeded", ["a", "finished: stop"])
        # Given up once, the first is not asked again in this talk.
        assert (len(closed.seen), len(open_.seen)) == (1, 2)
        calls = list(db.session.scalars(sa.select(ModelCall).order_by(ModelCall.created_at)))
        assert [(call.provider, call.model, call.error_class) for call in calls] == [
            ("closed", "gpt", "provider_authentication"),
            ("open", "claude", None),
            ("open", "claude", None),
        ]


def test_a_run_whose_end_alone_was_not_written_is_ended_without_another_call(
    ask: Ask, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ask("talk")
    ended = Journal.ended

    def die(journal: Journal, ending: Ending) -> None:
        monkeypatch.setattr(Journal, "ended", ended)
        raise Interrupted("The worker died here.")

    monkeypatch.setattr(Journal, "ended", die)
    generate(run.id)
    assert reread(run).status == "running"
    take_up_again(run)
    again = reread(run)
    assert (again.status, [message.text for message in again.messages]) == ("succeeded", ["Hello, 👋 world. "])
    assert db.session.scalar(sa.select(sa.func.count(ModelCall.id))) == 1
    assert notes() == ["finished: stop"]


def take_up_again(run: Run) -> None:
    """Let the lease run out and the run be taken up, as the sweep does."""
    db.session.execute(sa.update(Run).where(Run.id == run.id).values(lease_until=now() - timedelta(hours=1)))
    db.session.commit()
    generate(run.id)


def test_a_handler_hears_that_what_a_dead_worker_told_it_is_void(
    ask: Ask, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_chunk", lambda self, content: heard.append(content))
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_discarded", lambda self: heard.append("(void)"))
    run = ask("talk")
    monkeypatch.setattr(Journal, "round_finished", lambda self, finish: die_after(self, finish))
    generate(run.id)
    monkeypatch.undo()
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_chunk", lambda self, content: heard.append(content))
    monkeypatch.setattr(NoteKeeper, "handle_ai_text_discarded", lambda self: heard.append("(void)"))
    take_up_again(run)
    told = "".join(heard)
    assert told == "Hello, 👋 world. (void)Hello, 👋 world. "


def die_after(journal: Journal, finish: Finish) -> None:
    journal._rounds._flush()
    raise Interrupted("The worker died before the turn was written.")


def test_a_run_does_not_outlive_its_time_while_a_provider_only_says_that_it_is_there(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gateways send comments while a model is awaited; they are no event, and keep the line from being silent."""
    comments = [part for _ in range(400) for part in (": PROCESSING\n\n", 0.05)]
    with WireServer(lambda seen: Reply(comments)) as server:
        providers = {"near": {"protocol": "openai_chat", "base_url": server.base_url("openai_chat")}}
        state = app.extensions["instruct"]
        monkeypatch.setattr(state, "config", replace(state.config, providers=providers, run_timeout=1.0))
        record = db.session.scalars(sa.select(Notebook)).one()
        run = instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model="near:m")
        db.session.refresh(run)
        db.session.expunge(run)
        generate(run.id)
        assert server.seen[0].hung_up.wait(5)
    assert (reread(run).status, reread(run).error_class) == ("failed", "timeout")


def test_counts_that_no_column_holds_cost_the_run_nothing(carry_out: CarryOut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_instruct.adapters.scripted._estimate", lambda request, parts: Usage(2**40, -3))
    run = carry_out(script="talk")
    assert run.status == "succeeded"
    (call,) = db.session.scalars(sa.select(ModelCall))
    assert (call.input_tokens, call.output_tokens, call.cost) == (None, None, None)


def test_a_model_that_is_not_set_up_leaves_no_open_row(app: Flask) -> None:
    record = db.session.scalars(sa.select(Notebook)).one()
    models = ["scripted:no-such-script", "scripted:talk"]
    run = reread(instruct.generate_for(NoteKeeper(record), user_prompt="Go.", model=models))
    generate(run.id)
    assert reread(run).status == "succeeded"
    calls = list(db.session.scalars(sa.select(ModelCall).order_by(ModelCall.created_at)))
    assert [call.error_class for call in calls] == ["provider_configuration", None]
    assert all(call.seconds is not None for call in calls)
