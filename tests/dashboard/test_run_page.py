"""The page of one run: all that the ledger knows of it, every text as text, sums to the last digit, and its export."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from html.parser import HTMLParser

import pytest
from flask import Flask
from flask.testing import FlaskClient

from flask_instruct.cli import instruct as commands
from flask_instruct.handlers import locate
from flask_instruct.runs.change import Recorded
from flask_instruct.runs.columns import now
from flask_instruct.runs.models import Run
from flask_instruct.runs.proposals import Proposal
from flask_instruct.runs.proposals import Proposed
from flask_instruct.runs.spending import spent_by_run
from tests.panel.board import HOSTILE
from tests.panel.board import db
from tests.panel.board import instruct

from .ledger import a_call
from .ledger import a_change
from .ledger import a_model_call
from .ledger import a_run
from .ledger import a_turn
from .ledger import an_approval
from .ledger import an_effect

Read = Callable[[str], str]


class Elements(HTMLParser):
    """Hears of every element of a page and of its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


@pytest.fixture
def read(client: FlaskClient) -> Read:
    """Return the words of a run's page, each apart from the next by one space."""

    def read(run_id: str) -> str:
        answer = client.get(f"/instruct/runs/{run_id}")
        assert answer.status_code == 200, answer.text
        text = re.sub(r"<(?:svg|head|script).*?</(?:svg|head|script)>|<[^>]*>", " ", answer.text, flags=re.DOTALL)
        return re.sub(r"\s+", " ", html.unescape(text))

    return read


@pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)
def test_a_run_that_was_carried_out_is_told_from_its_request_to_its_end(
    app: Flask, work: Callable[[], list[str]], read: Read
) -> None:
    with app.app_context():
        handler = locate("instruct://Arranger/1")
        instruct.generate_for(handler, user_prompt="Arrange it.", actor="Bob", tenant="acme", limits={"tokens": 90_000})
    (run_id,) = work()
    page = read(run_id)
    for words in (
        "Run of Arranger Done",
        "Asked by Bob Tenant acme Record instruct://Arranger/1",
        "Limits Tokens: 90000",
        "Request",
        "Arrange it.",
        "First two cards.",
        "Add card add_card Done",
        "Arguments text one The AI was told Added one.",
        "Check check Failed Refused by the tool",
        "The weights total 110, not 100.",
        "Check all check_all Failed There is no such tool",
        "Done",
        "scripted:board",
    ):
        assert words in page, words
    assert page.index("Arrange it.") < page.index("First two") < page.index("Check all") < page.rindex("Model calls")


def test_the_changes_of_a_call_are_told_field_by_field(context: Flask, read: Read, client: FlaskClient) -> None:
    run = a_run()
    call = a_call(a_turn(run), undo_problem="It sent raw SQL.")
    texts = ({"text": "Keep the first part and drop this."}, {"text": "Keep the first part and add that."})
    a_change(call, 1, before=texts[0], after=texts[1])
    a_change(call, 2, "insert", key="[8]", before=None, after={"text": "new", "done": False})
    gone = {"tags": {"json": ["a"]}}
    a_change(call, 3, "delete", entity=None, table="card_tag", key='[8, "x"]', before=gone, after=None)
    before = {"tags": {"json": ["a", "b"]}, "price": {"decimal": "1.50"}, "pin": {"redacted": True}}
    after = {"tags": {"json": ["b", "c"]}, "price": {"decimal": "2.00"}, "pin": {"redacted": True}}
    a_change(call, 4, before=before, after=after)
    page = read(run.id)
    assert "This cannot be taken back: It sent raw SQL." in page
    assert "Changed: Card 7" in page
    assert "Keep the first part and removed: drop this. added: add that." in page
    assert "Added: Card 8 text added: new done added: no" in page
    assert "Deleted: card_tag 8, x" in page
    assert "tags removed: a b added: c price removed: 1.50 → added: 2.00" in page
    assert "pin removed: not kept → added: not kept" in page
    assert "Changed rows 4" in page


def test_of_very_many_changes_some_are_shown_and_the_rest_is_counted(context: Flask, read: Read) -> None:
    run = a_run()
    call = a_call(a_turn(run))
    for number in range(1, 61):
        a_change(call, number, key=f"[{number}]")
    page = read(run.id)
    assert "Card 50" in page
    assert "Card 51" not in page
    assert "10 further rows are not shown." in page
    assert "Changed rows 60" in page


def test_t11_what_the_model_wanted_and_what_the_person_made_of_it_are_both_shown(context: Flask, read: Read) -> None:
    run = a_run()
    asked, edited = {"when": "Monday", "quiet": True}, {"when": "Friday", "quiet": True}
    call = a_call(a_turn(run), "publish", json.dumps(asked))
    an_approval(
        call,
        reason="Students see it.",
        decided_by="Grace",
        decided_at=now(),
        decision_reason="After the exam.",
        edited=json.dumps(edited),
    )
    page = read(run.id)
    assert "Arguments when Monday quiet true" in page
    assert "Approval Approved · Grace ·" in page
    assert "Why it was asked: Students see it." in page
    assert "Said: After the exam." in page
    assert "The model's arguments were changed: when removed: Monday → added: Friday" in page
    waiting = a_run("waiting_approval")
    an_approval(a_call(a_turn(waiting), "publish", status="waiting"), "pending", expires_at=now() + timedelta(days=1))
    assert "Approval Waiting for approval · asked at" in read(waiting.id)


@pytest.mark.parametrize("board_database", ["sqlite", "postgresql"], indirect=True)
def test_t11_a_call_that_a_person_changed_is_told_with_what_came_of_it(
    app: Flask, work: Callable[[], list[str]], read: Read
) -> None:
    with app.app_context():
        instruct.generate_for(locate("instruct://Arranger/1"), user_prompt="Publish it.", actor="Bob")
    (run_id,) = work()
    assert "Publish publish" in (page := read(run_id))
    assert "Waiting for approval" in page
    assert "Why it was asked: Publishing needs a lead." in page
    with app.app_context():
        (approval,) = instruct.approvals()
        instruct.approve(approval, actor="Lead Grace", arguments={"title": "Two", "copies": 1})
    work()
    page = read(run_id)
    assert "Approved · Lead Grace ·" in page
    assert "title removed: One → added: Two" in page
    assert "copies removed: 2 → added: 1" in page
    assert "Added: Card 2 id added: 2 board_id added: 1 text added: Two 1 plain False" in page


def test_t32_the_cost_of_a_run_equals_its_model_calls_to_the_last_digit(context: Flask, client: FlaskClient) -> None:
    run = a_run()
    turn = a_turn(run)
    for cost in ("0.000000000001", "0.1", "1234.5", "0.000123456789", "0"):
        a_model_call(run, turn, cost=Decimal(cost), cache_read_tokens=7, cache_write_tokens=5, reasoning_tokens=3)
    a_model_call(run, cost=None, input_tokens=None, output_tokens=None, error_class="RateLimitError", try_number=2)
    page = client.get(f"/instruct/runs/{run.id}").text
    each = [Decimal(text.replace(",", "")) for text in re.findall(r"data-cost>\$([0-9.,]+)<", page)]
    (sum_shown,) = re.findall(r"data-sum>\$([0-9.,]+)<", page)
    (head,) = re.findall(r'id="instruct_run_cost">\$([0-9.,]+) ', page)
    exact = spent_by_run(db.session, run.id).cost
    assert exact == Decimal("1234.600123456790")
    assert sum(each) == Decimal(sum_shown.replace(",", "")) == Decimal(head.replace(",", "")) == exact
    assert len(each) == 5
    assert "without 1 call of unknown price" in page
    foot = re.sub(r"<[^>]+>", " ", page.partition("<tfoot>")[2].partition("</tfoot>")[0]).split()
    assert foot[:6] == ["Sum", "500", "35", "25", "100", "15"]


def test_attempts_that_came_to_nothing_stand_where_they_happened(context: Flask, read: Read) -> None:
    run = a_run(
        "failed", resumes=2, attempt=3, error_class="ModelError", error_safe="No answer.", error_technical="boom"
    )
    begin = run.created_at
    first = a_turn(run, "One.", created_at=begin + timedelta(seconds=1))
    a_model_call(run, first, created_at=begin + timedelta(seconds=2))
    a_model_call(run, error_class="Overloaded", attempt=2, try_number=3, created_at=begin + timedelta(seconds=3))
    a_turn(run, "Two.", state="cut", created_at=begin + timedelta(seconds=5))
    page = read(run.id)
    assert page.index("One.") < page.index("A model call came to nothing") < page.index("Two.")
    assert "try 3 · attempt 2" in page
    assert "Overloaded" in page
    assert "Broke off" in page
    assert "Resumed after 2 interruptions" in page
    assert "What went wrong No answer. ModelError boom" in page


def test_effects_and_limits_and_a_stop_are_told(context: Flask, read: Read) -> None:
    run = a_run("limited", limit_reached="rounds")
    call = a_call(a_turn(run))
    an_effect(call, "unknown", tries=2, error_class="ToolTimeout")
    page = read(run.id)
    assert "It may or may not have happened Send mail try 2 It took too long and was stopped. ToolTimeout" in page
    assert "The AI used its tools as many times as one request allows" in page
    assert "Stopped" in read(a_run("cancelled").id)


def test_a_run_and_what_took_it_back_lead_to_each_other(context: Flask, client: FlaskClient) -> None:
    run = a_run()
    call = a_call(a_turn(run))
    undo = a_run(kind="undo", undoes=run.id, actor="Grace", conversation="talk", continues=run.id)
    call.undone_by = undo.id
    db.session.commit()
    there = client.get(f"/instruct/runs/{run.id}").text
    assert there.count(f'href="/instruct/runs/{undo.id}"') == 2
    back = client.get(f"/instruct/runs/{undo.id}").text
    assert back.count(f'href="/instruct/runs/{run.id}"') == 2
    assert "Taken back by a person" in back
    assert "/instruct/runs?conversation=talk" in back


def test_reasoning_and_context_are_there_folded(context: Flask, client: FlaskClient) -> None:
    run = a_run(context={"course": "BIO"}, system_prompt="You help.", attached=["rubric.pdf"])
    a_turn(run, parts={"role": "assistant", "parts": [{"type": "reasoning", "text": "It must total 100."}]})
    page = client.get(f"/instruct/runs/{run.id}").text
    for summary, text in (("Reasoning", "It must total 100."), ("Context", "BIO"), ("System prompt", "You help.")):
        assert re.search(rf"<details[^>]*><summary>{summary}</summary>[^<]*<p[^>]*>[^<]*{text}", page), summary
    assert "rubric.pdf" in page


def test_t14_hostile_text_is_text_wherever_it_stands(context: Flask, client: FlaskClient) -> None:
    run = a_run(
        "failed",
        prompt=HOSTILE,
        actor=HOSTILE,
        tenant=HOSTILE[:190],
        conversation=HOSTILE[:190],
        title=HOSTILE,
        model=HOSTILE,
        effort="<b>",
        handler_name="<script>",
        handler=f"instruct://{HOSTILE}",
        error_class="<script>",
        error_safe=HOSTILE,
        error_technical=HOSTILE,
        context={HOSTILE: HOSTILE},
        system_prompt=HOSTILE,
        attached=[HOSTILE],
        limits={HOSTILE: HOSTILE},
        limit_reached="<script>",
    )
    turn = a_turn(run, HOSTILE, finish_reason="<script>", finish_raw=HOSTILE, parts={"parts": [{"type": "reasoning", "text": HOSTILE}]})  # fmt: skip  # noqa: E501
    call = a_call(turn, HOSTILE, json.dumps({HOSTILE: HOSTILE}), result=HOSTILE, undo_problem=HOSTILE)
    a_call(turn, HOSTILE, HOSTILE, status="failed", error_kind="<script>", result=HOSTILE)
    a_change(call, entity=HOSTILE, key=json.dumps([HOSTILE]), before={HOSTILE: f"a {HOSTILE}"}, after={HOSTILE: f"b {HOSTILE}", "l": [HOSTILE]})  # fmt: skip  # noqa: E501
    row = Recorded("update", HOSTILE, HOSTILE, json.dumps([HOSTILE]), {HOSTILE: "a"}, {HOSTILE: HOSTILE})
    proposal = Proposal((Proposed(call.id, HOSTILE, HOSTILE, (row,), problem=HOSTILE),), (HOSTILE,))
    an_approval(call, "<script>", edited=json.dumps({HOSTILE: 1}), decided_by=HOSTILE, decision_reason=HOSTILE,
                reason=HOSTILE, proposal=proposal.to_json())  # fmt: skip
    an_effect(call, "failed", method=HOSTILE[:190], error_safe=HOSTILE, error_class=HOSTILE)
    a_model_call(run, turn, model=HOSTILE, provider=HOSTILE[:90], error_class="<script>")
    a_run(kind="undo", undoes=run.id, actor=HOSTILE)
    for path in (f"/instruct/runs/{run.id}", "/instruct/runs", "/instruct/"):
        page = client.get(path).text
        inside = page.partition("<body")[2]
        assert "&lt;script&gt;" in inside
        seen = Elements()
        seen.feed(inside)
        assert not seen.names & {"script", "img", "iframe", "turbo-stream", "style"}, path
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"], path
        assert not [value for name, value in seen.attributes if name == "href" and not value.startswith(("/", "#"))]
        assert "{{ 7 * 7 }}" in inside


def test_no_secret_of_the_app_or_a_provider_is_on_a_page(
    app: Flask, context: Flask, client: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-very-secret-provider-key")
    secret = app.config["SECRET_KEY"]
    said = f"{secret} and a-very-secret-provider-key"
    technical = f"{said}, sk-abcdefghijkl, Bearer tokentoken, postgresql://ada:passw0rd@db/x, AIzaSyA1234567890"
    run = a_run(
        "failed", prompt=said, error_safe=said, error_technical=technical, system_prompt=said, context={"a": said}
    )
    turn = a_turn(run, said, parts={"parts": [{"type": "reasoning", "text": said}]})
    call = a_call(turn, arguments=json.dumps({"a": said}), result=said, undo_problem=said)
    a_change(call, before={"a": "x"}, after={"a": said, "b": [said]})
    an_approval(call, edited=json.dumps({"a": f"{said}!"}), reason=said)
    for path in (f"/instruct/runs/{run.id}", "/instruct/runs", "/instruct/"):
        page = client.get(path).text
        for text in (secret, "a-very-secret-provider-key", "sk-abcdef", "tokentoken", "passw0rd", "AIzaSyA"):
            assert text not in page, (path, text)


def test_a_page_costs_the_same_statements_for_few_calls_and_for_many(
    context: Flask, client: FlaskClient, statements: list[str]
) -> None:
    def fill(run: Run, many: int) -> str:
        for _ in range(many):
            turn = a_turn(run)
            a_model_call(run, turn)
            for _ in range(2):
                call = a_call(turn)
                a_change(call)
                an_effect(call)
                an_approval(call)
        return run.id

    def cost(run_id: str) -> int:
        db.session.remove()
        statements.clear()
        client.get(f"/instruct/runs/{run_id}")
        return len(statements)

    few, many = fill(a_run(), 1), fill(a_run(), 12)
    assert cost(many) == cost(few) <= 16


def test_the_export_is_what_the_command_prints(app: Flask, work: Callable[[], list[str]], client: FlaskClient) -> None:
    with app.app_context():
        instruct.generate_for(locate("instruct://Arranger/1"), user_prompt="Arrange it.", actor="Bob")
    (run_id,) = work()
    answer = client.get(f"/instruct/runs/{run_id}/export.json")
    assert answer.mimetype == "application/json"
    assert answer.headers["Content-Disposition"] == f'attachment; filename="run-{run_id}.json"'
    printed = app.test_cli_runner().invoke(commands, ["export", run_id])
    assert printed.exit_code == 0
    assert answer.data == printed.stdout_bytes
    assert json.loads(answer.data)["run"]["id"] == run_id


def test_a_run_that_has_not_ended_cannot_be_exported_yet(context: Flask, client: FlaskClient) -> None:
    run = a_run("running")
    assert "export.json" not in client.get(f"/instruct/runs/{run.id}").text
    answer = client.get(f"/instruct/runs/{run.id}/export.json")
    assert answer.status_code == 409
    assert "wait for its end" in answer.text


def test_of_a_deleted_record_or_handler_the_run_is_still_shown(context: Flask, read: Read) -> None:
    run = a_run(handler="instruct://Gone/77", handler_name="Gone")
    assert "Run of Gone Done" in read(run.id)
