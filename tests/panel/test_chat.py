"""The panel as a chat: threads of one record, a message written anew, another answer, a name."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import pytest
from flask import Flask
from flask import render_template_string
from flask.testing import FlaskClient
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.panel.threads import branch_at
from flask_instruct.panel.threads import chat_of
from flask_instruct.runs.models import Run

from .board import Board
from .board import db
from .pages import Work
from .pages import status
from .rows import a_run
from .test_views import BY_SCRIPT
from .test_views import field

Runs = Callable[[], list[Run]]
Enter = Callable[..., Page]

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Chat</title>
<main><h1>Chat</h1>{{ instruct_chat(board, handler="Arranger") }}</main></html>"""


@pytest.fixture(autouse=True)
def page(app: Flask) -> None:
    @app.get("/chats/<int:board_id>")
    def chats(board_id: int) -> str:
        return render_template_string(PAGE, board=db.get_or_404(Board, board_id))


@pytest.fixture
def enter(site: str, new_page: Callable[..., Page]) -> Enter:
    """Open the chat of the board as someone, and wait until the page is live."""

    def enter(name: str = "Ada", query: str = "", **options: object) -> Page:
        page = new_page(**options)
        page.goto(f"{site}/as/{name}")
        page.goto(f"{site}/chats/1{query}")
        page.wait_for_selector("instruct-stream[connected]", state="attached")
        return page

    return enter


def say(client: FlaskClient, text: str, query: str = "", path: str = "/instruct/runs", **data: str) -> str:
    """Post what a browser would from the chat's page; gives where it is sent to."""
    shown = client.get(f"/chats/1{query}").text
    form = {name: field(shown, name) for name in ("token", "next", "chat", "after")} | {"prompt": text} | data
    answer = client.post(path, data=form)
    assert answer.status_code == 303, answer.text
    return answer.location


def shown_prompts(client: FlaskClient, query: str = "") -> list[str]:
    return re.findall(r'class="instruct-prompt__text" dir="auto">([^<]*)<', client.get(f"/chats/1{query}").text)


def test_messages_of_a_thread_continue_it(client: FlaskClient, runs: Runs, work: Work) -> None:
    back = say(client, "Chat one.")
    work()
    say(client, "Chat two.")
    first, second = runs()
    assert first.conversation == second.conversation
    assert (first.continues, second.continues) == ("", first.id)
    assert back == f"/chats/1?chat={chat_of(first)}"
    assert shown_prompts(client) == ["Chat one.", "Chat two."]


def test_a_new_thread_is_apart_and_both_are_listed(client: FlaskClient, runs: Runs, work: Work) -> None:
    say(client, "Chat one.")
    work()
    say(client, "Chat of something else.", "?chat=new")
    first, second = runs()
    assert first.conversation != second.conversation
    assert shown_prompts(client) == ["Chat of something else."]
    assert shown_prompts(client, f"?chat={chat_of(first)}") == ["Chat one."]
    page = client.get("/chats/1").text
    assert page.index("Chat of something else.</a>") < page.index("Chat one.</a>")


def test_a_message_written_anew_begins_a_branch(client: FlaskClient, runs: Runs, work: Work) -> None:
    for text in ("Chat one.", "Chat two.", "Chat three."):
        say(client, text)
        work()
    first, second, third = runs()
    again = {f"rewrite-{second.id}": "Chat otherwise."}
    say(client, "", path=f"/instruct/runs/{second.id}/rewrite", **again)
    work()
    assert shown_prompts(client) == ["Chat one.", "Chat otherwise."]
    assert runs()[-1].continues == first.id
    chat = chat_of(first)
    assert shown_prompts(client, f"?chat={chat}&at={second.id}") == ["Chat one.", "Chat two.", "Chat three."]
    page = client.get("/chats/1").text
    assert "2 / 2" in page
    assert f"at={second.id}" in page
    say(client, "Chat four.", f"?chat={chat}&at={third.id}")
    assert runs()[-1].continues == third.id


def test_another_answer_is_a_branch_of_the_same_words(client: FlaskClient, runs: Runs, work: Work) -> None:
    say(client, "Chat one.")
    work()
    [first] = runs()
    say(client, "", path=f"/instruct/runs/{first.id}/again")
    assert [(run.user_prompt, run.continues) for run in runs()] == [("Chat one.", ""), ("Chat one.", "")]
    assert len(shown_prompts(client)) == 1


def test_a_thread_has_a_name(client: FlaskClient, runs: Runs) -> None:
    say(client, "Chat one.")
    chat = chat_of(runs()[0])
    say(client, "", path=f"/instruct/chats/{chat}/title", title="  A <b>name</b> ")
    assert "A &lt;b&gt;name&lt;/b&gt;" in client.get("/chats/1").text
    say(client, "", path=f"/instruct/chats/{chat}/title", title="")
    assert "Chat one.</a>" in client.get("/chats/1").text


def test_a_thread_is_the_records_own(client: FlaskClient, runs: Runs, app: Flask) -> None:
    say(client, "Chat one.")
    chat = chat_of(runs()[0])
    assert f"?chat={chat}" not in client.get("/chats/2").text
    shown = client.get("/chats/2").text
    form = {"token": field(shown, "token"), "next": "/", "chat": str(chat), "after": runs()[0].id, "prompt": "Chat."}
    client.post("/instruct/runs", data=form)
    first, second = runs()
    assert second.conversation != first.conversation
    assert client.post(f"/instruct/runs/{first.id}/again", data=form).status_code == 404
    client.post(f"/instruct/chats/{chat}/title", data=form | {"title": "Taken over"})
    assert "Taken over" not in client.get("/chats/1").text


@pytest.mark.parametrize("chat", ["", "x", "../../etc", "'; drop table"])
def test_a_thread_that_is_none_is_no_thread(client: FlaskClient, runs: Runs, chat: str) -> None:
    shown = client.get(f"/chats/1?chat={chat}&at=nothing").text
    client.post("/instruct/runs", data={"token": field(shown, "token"), "chat": chat, "prompt": "Chat."})
    assert runs()[0].conversation is None


def test_a_run_that_is_no_part_of_a_chat_cannot_be_written_anew(client: FlaskClient, runs: Runs) -> None:
    shown = client.get("/chats/1").text
    client.post("/instruct/runs", data={"token": field(shown, "token"), "prompt": "Chat."})
    data = {"token": field(shown, "token"), f"rewrite-{runs()[0].id}": "Evil."}
    assert client.post(f"/instruct/runs/{runs()[0].id}/rewrite", data=data, headers=BY_SCRIPT).status_code == 404


def test_the_newest_branch_of_a_run_is_shown() -> None:
    made = {name: a_run(id=name, continues=parent) for name, parent in TREE.items()}
    runs = list(made.values())
    assert "".join(run.id for run in branch_at(runs)) == "ae"
    assert "".join(run.id for run in branch_at(runs, "b")) == "abd"
    assert "".join(run.id for run in branch_at(runs, "c")) == "abc"
    assert branch_at([], str(uuid4())) == []


TREE = {"a": "", "b": "a", "c": "b", "d": "b", "e": "a"}


def test_two_people_in_a_thread_see_the_same(enter: Enter, work: Work) -> None:
    ada = enter()
    box = ada.locator(".instruct-form__text")
    box.fill("Chat one.")
    ada.get_by_role("button", name="Send").click()
    expect(ada).to_have_url(re.compile(r"\?chat="))
    bob = enter("Bob")
    work()
    for page in (ada, bob):
        expect(status(page)).to_have_text("Done")
    bob.locator(".instruct-rewrite > summary").click()
    bob.locator(".instruct-rewrite textarea").fill("Chat otherwise.")
    bob.get_by_role("button", name="Send anew").click()
    for page in (ada, bob):
        expect(page.locator(".instruct-prompt__text")).to_have_text(["Chat otherwise."])
        expect(page.locator(".instruct-versions")).to_contain_text("2 / 2")
    work()
    expect(status(ada)).to_have_text("Done")
    ada.locator(".instruct-versions a").click()
    expect(ada.locator(".instruct-prompt__text")).to_have_text(["Chat one."])
