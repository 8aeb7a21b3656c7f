"""Mail to students: the studio's one effect outside its database, sent once, and said to be sent only when it was."""

from __future__ import annotations

import email
import smtplib
import socketserver
import threading
from collections.abc import Callable
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import g
from playwright.sync_api import Page
from playwright.sync_api import expect

from example_app import post
from example_app.database import db
from example_app.extensions import instruct
from example_app.handlers import AssessmentUpdater
from example_app.models import Assessment
from example_app.models import Mail
from example_app.models import User
from example_app.seed_data import AUTHOR
from example_app.seed_data import ENROLLED
from example_app.seed_data import LEAD
from example_app.stories import story
from flask_instruct.errors import NotAllowed
from flask_instruct.runs.again import run_again
from flask_instruct.runs.approval import Approval
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Effect
from flask_instruct.runs.models import Run

from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import POSTER
from .conftest import Studio
from .conftest import find
from .test_studio_in_browser import RUN
from .test_studio_in_browser import ask as press
from .test_studio_in_browser import pages as pages
from .test_studio_in_browser import status

Ask = Callable[..., Run]


class WorkerDied(BaseException):
    """Leaves everything as a killed worker would."""


@pytest.fixture
def ask(context: Flask) -> Ask:
    """Have the mail story carried out here: ``ask(ESSAY, by=LEAD)``; gives the run as it stands then."""

    def ask(title: str = ESSAY, by: str = LEAD) -> Run:
        person = db.session.scalars(sa.select(User).where(User.name == by)).one()
        run = instruct.generate_for(AssessmentUpdater(find(title)), user_prompt=story("email").prompt, actor=person)
        run_id = run.id
        try:
            generate(run_id)
        except WorkerDied:
            db.session.rollback()
        return db.session.get_one(Run, run_id, populate_existing=True)

    return ask


def sent(app: Flask) -> list[Message]:
    """What lies in the folder."""
    files = sorted(Path(app.config["STUDIO_MAIL_FOLDER"]).glob("*"))
    return [email.message_from_bytes(file.read_bytes()) for file in files]


def last_words(run: Run) -> str:
    return run.messages[-1].text


def effect_of(run: Run) -> Effect:
    [effect] = [effect for call in run.calls for effect in call.effects]
    return effect


def test_a_mail_is_handed_over_once_and_listed(context: Flask, ask: Ask) -> None:
    run = ask()
    assert (run.status, effect_of(run).status) == ("succeeded", "done")
    [message] = sent(context)
    course = find(ESSAY).course
    assert str(message["Bcc"]).count("@students.example") == len(ENROLLED[course]) == 3
    assert message["To"] == "undisclosed-recipients:;"
    assert ESSAY in str(email.header.make_header(email.header.decode_header(message["Subject"])))
    assert run.id in message["Message-ID"]
    [mail] = find(ESSAY).mails
    assert mail.sent_at is not None
    assert (mail.run_id, len(mail.recipients)) == (run.id, 3)
    assert "handed over for delivery" in last_words(run)


def test_an_authors_mail_waits_for_a_lead(context: Flask, ask: Ask) -> None:
    run = ask(by=AUTHOR)
    assert (run.status, sent(context), find(ESSAY).mails) == ("waiting_approval", [], [])
    approval = db.session.scalars(sa.select(Approval)).one()
    with pytest.raises(NotAllowed):
        instruct.approve(approval, actor=run.actor)
    instruct.reject(approval, actor=db.session.scalars(sa.select(User).where(User.name == LEAD)).one(), reason="Later.")
    generate(run.id)
    run = db.session.get_one(Run, sa.inspect(run).identity[0], populate_existing=True)
    assert last_words(run).startswith("I sent nothing.")
    assert last_words(run).endswith("Later.")
    assert sent(context) == []


def test_a_course_without_students_is_told(context: Flask, ask: Ask) -> None:
    run = ask(POSTER)
    assert "Nobody is enrolled in PHY 120" in last_words(run)
    assert sent(context) == []


def test_a_mail_that_cannot_be_sent_is_not_said_to_be(
    context: Flask, ask: Ask, free_port: int, lead: Any, key_of: Callable[[str], int]
) -> None:
    context.config["STUDIO_SMTP"] = f"127.0.0.1:{free_port}"
    run = ask()
    assert (run.status, effect_of(run).status) == ("succeeded", "failed")
    assert "could **not** be sent" in last_words(run)
    assert "The mail server could not be reached." in (run.calls[-1].result or "")
    g.pop("user", None)  # read before, by this very context
    page = lead.get(f"/assessments/{key_of(ESSAY)}").text
    assert "Not confirmed as sent" in page
    assert "Send mail: Failed" in page


def test_after_a_crash_nobody_knows_and_a_person_decides(
    context: Flask, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = post.deliver

    def deliver_and_die(mail: Mail, key: str) -> None:
        deliver(mail, key)
        raise WorkerDied

    monkeypatch.setattr(post, "deliver", deliver_and_die)
    run = ask()
    assert effect_of(run).status == "running"
    with db.engine.begin() as connection:
        connection.execute(sa.update(Run).values(lease_until=now()))
    generate(run.id)
    run = db.session.get_one(Run, run.id, populate_existing=True)
    assert (run.status, effect_of(run).status) == ("succeeded", "unknown")
    assert "do **not know**" in last_words(run)
    assert find(ESSAY).mails[0].sent_at is None
    monkeypatch.undo()
    run_again(effect_of(run))
    generate(run.id)
    db.session.expire_all()
    assert effect_of(run).status == "done"
    assert find(ESSAY).mails[0].sent_at is not None
    assert len(sent(context)) == 1, "the key is the same, and the folder has one file for it"


class Server(socketserver.ThreadingTCPServer):
    """As much of an SMTP server as a mail needs; keeps what it was given."""

    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.recipients: list[str] = []
        self.taken: list[str] = []
        self.last_word = b"250 ok\r\n"
        """The answer to the text of a mail; without one the server hangs up."""


class Conversation(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        for line in self.rfile:
            command = line.decode().strip().upper()
            if command.startswith("RCPT"):
                self.server.recipients.append(command)
            if command == "DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.taken.append(b"".join(lines).decode())
                self.wfile.write(self.server.last_word)
                if not self.server.last_word:
                    return
                continue
            self.wfile.write(b"221 bye\r\n" if command == "QUIT" else b"250 ok\r\n")


@pytest.fixture
def smtp() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_where_a_server_is_configured_it_takes_the_mail_and_nobody_sees_the_others(
    context: Flask, ask: Ask, smtp: Server
) -> None:
    context.config["STUDIO_SMTP"] = f"127.0.0.1:{smtp.server_address[1]}"
    run = ask(LAB_REPORT)
    assert effect_of(run).status == "done"
    assert len(smtp.recipients) == len(ENROLLED[find(LAB_REPORT).course])
    [text] = smtp.taken
    assert "students.example" not in text
    assert sent(context) == []


@pytest.mark.parametrize(("answer", "fate"), [(b"552 too much\r\n", "failed"), (b"", "unknown")])
def test_a_server_that_refuses_has_no_mail_and_of_one_that_hangs_up_nobody_knows(
    context: Flask, ask: Ask, smtp: Server, answer: bytes, fate: str
) -> None:
    smtp.last_word = answer
    context.config["STUDIO_SMTP"] = f"127.0.0.1:{smtp.server_address[1]}"
    run = ask()
    assert effect_of(run).status == fate
    assert ("may or may not have happened" in (run.calls[-1].result or "")) == (fate == "unknown")
    assert len(smtp.taken) == 1


def test_a_subject_cannot_bring_a_header(context: Flask) -> None:
    essay = db.session.get_one(Assessment, find(ESSAY).id)
    with context.test_request_context("/"):
        from example_app import editing

        mail = editing.write_mail(essay, "Hello\r\nBcc: all@elsewhere.example", "Text.", essay.owner.editor)
        post.deliver(mail, "key:1:effect:1")
    [message] = sent(context)
    assert str(message["Bcc"]).count("elsewhere") == 0
    assert message.get_all("Bcc") is not None
    assert len(message.get_all("Bcc") or []) == 1
    assert smtplib.quotedata(mail.subject) == "Hello Bcc: all@elsewhere.example"


@pytest.fixture
def unknown(app: Flask, ask: Ask) -> tuple[str, int]:
    """A mail of which nobody knows whether it went out: the id of its run, and of its assessment."""
    run = ask()
    effect_of(run).status = "unknown"
    [mail] = find(ESSAY).mails
    mail.sent_at = None
    db.session.commit()
    found = (run.id, mail.assessment_id)
    db.session.remove()
    return found


@pytest.mark.parametrize(
    ("scheme", "width", "decision", "after"),
    [("dark", 360, "Mark as done", "Send mail: Done"), ("light", 1440, "Run again", "Send mail: Waiting")],
)
def test_a_person_decides_about_a_mail_of_which_nobody_knows(
    context: Flask,
    unknown: tuple[str, int],
    serve: Callable[..., str],
    pages: Callable[..., Page],
    key_of: Callable[[str], int],
    scheme: str,
    width: int,
    decision: str,
    after: str,
) -> None:
    studio = Studio(serve(context), key_of)
    page = studio.enter(pages(viewport={"width": width, "height": 800}, color_scheme=scheme), LEAD, ESSAY)
    other = studio.enter(pages(), AUTHOR, ESSAY)
    card = page.locator(".instruct-call").filter(has_text="Email students")
    expect(card).to_contain_text("Send mail: It may or may not have happened")
    card.locator("summary").click()
    expect(card.locator(".instruct-effect")).to_contain_text("The worker died while it ran.")
    buttons = card.locator(".instruct-effect button")
    expect(buttons).to_have_text(["Mark as done", "Run again"])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    sizes = [box for button in buttons.all() if (box := button.bounding_box())]
    assert min(box["height"] for box in sizes) >= 24
    buttons.filter(has_text=decision).click()
    for each in (page, other):
        expect(each.locator(".instruct-effect")).to_contain_text(after)
        expect(each.locator(".instruct-effect button")).to_have_count(0)
    if decision == "Run again":
        generate(unknown[0])
        for each in (page, other):
            expect(each.locator(".instruct-effect")).to_contain_text("Send mail: Done")
            expect(each.locator(".mail__state")).to_have_text("Sent")
    assert len(sent(context)) == 1


def test_two_people_see_the_mail_go_out(app: Flask, studio: Studio, pages: Callable[..., Page]) -> None:
    mina, theo = studio.enter(pages(), LEAD, ESSAY), studio.enter(pages(), AUTHOR, ESSAY)
    expect(theo.get_by_role("heading", name="Mail to students")).to_be_hidden()
    press(mina, "email")
    for page in (mina, theo):
        expect(status(page)).to_have_text("Done", timeout=RUN)
        expect(page.locator(".mail")).to_contain_text("Sent")
        expect(page.locator(".mail__subject")).to_contain_text("Essay: Who owns a river?")
        card = page.locator(".instruct-call").filter(has_text="Email students")
        card.locator("summary").click()
        expect(card.locator(".instruct-effect")).to_contain_text("Send mail: Done")
    assert len(sent(app)) == 1
