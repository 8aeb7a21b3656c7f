"""G7 for models: a page that watched every change, and one that has them all replayed, look like a fresh page."""

from __future__ import annotations

import random
from collections.abc import Callable
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from flask import Flask
from flask import render_template_string
from flask import request
from playwright.sync_api import Page

from flask_instruct.live.captured import captured_broadcasts
from tests.support import wait_for

from .blog import Assessment
from .blog import Comment
from .blog import db
from .blog import make_blog
from .blog import thread
from .site import live_of

PAGE = """<!doctype html><html lang="en"><head><title>Board</title>{{ instruct_scripts() }}</head><body>
{% for assessment in assessments %}
{{ turbo_stream_from(assessment, "comments", **since) }}
<ul id="{{ dom_id(assessment, 'comments') }}">
{% for comment in assessment.comments | sort(attribute="place") %}{% include "_comment.html" %}{% endfor %}
</ul>
{% endfor %}</body></html>"""

LISTS = "() => [...document.querySelectorAll('ul')].map((ul) => [...ul.children].map((li) => li.id + li.textContent))"


@pytest.fixture
def app(sqlite_url: str) -> Iterator[Flask]:
    """A board of two lists, each with its stream; its bus is in this process."""
    app, instruct = make_blog(sqlite_url, INSTRUCT_REDIS_URL="redis://127.0.0.1:1/0")
    instruct.broadcasts(Comment, to=thread, template="_comment.html")

    @app.get("/")
    def board() -> str:
        since = {"since": request.args["since"]} if "since" in request.args else {}
        assessments = db.session.scalars(sa.select(Assessment).order_by(Assessment.id)).all()
        return render_template_string(PAGE, assessments=assessments, since=since)

    with app.app_context(), captured_broadcasts():
        db.create_all()
        db.session.add_all([Assessment(title="Essay"), Assessment(title="Poster")])
        db.session.commit()
        yield app
        db.session.remove()
        db.engine.dispose()
    live_of(app).close()


def storm(seed: int, commits: int) -> None:
    """Add, change, move and delete comments; ``place`` is when a comment joined its list."""
    chance = random.Random(seed)
    clock = 0
    for _ in range(commits):
        done: set[Comment] = set()
        for _ in range(chance.choice((1, 1, 2, 3))):
            clock += 1
            # What joins a list is appended in the order of first changes: each comment changes once in a commit.
            there = [each for each in db.session.scalars(sa.select(Comment).order_by(Comment.id)) if each not in done]
            deed = chance.choice(("add", "change", "change", "move", "move", "delete", "bulk"))
            comment = chance.choice(there) if there else None
            done |= {comment} if comment is not None else set()
            if comment is None or (deed == "add" and len(there) < 12):
                db.session.add(Comment(assessment_id=chance.choice((1, 2)), text=f"new {clock}", place=clock))
            elif deed == "change":
                comment.text = f"changed {clock}"
            elif deed == "move":
                comment.assessment_id, comment.place = 3 - comment.assessment_id, clock
            elif deed == "delete":
                db.session.delete(comment)
            else:
                few = sa.update(Comment).where(Comment.id % 3 == clock % 3).values(text=f"bulk {clock}")
                db.session.execute(few)
        if chance.random() < 0.15:
            db.session.rollback()
        else:
            db.session.commit()


def comes_to(page: Page, expected: list[list[str]]) -> None:
    wait_for(lambda: page.evaluate(LISTS) == expected, message=f"{page.url} to look like {expected}")


def test_g7_a_watched_page_and_a_replayed_one_equal_a_fresh_one(
    app: Flask, new_page: Callable[..., Page], serve: Callable[..., str]
) -> None:
    address = serve(app)
    since = live_of(app).bus.now()
    pages = [new_page(), new_page()]
    for page, query in zip(pages, ("", f"?since={since}"), strict=True):
        page.goto(f"{address}/{query}")
    watched, replayed = pages
    for round_ in range(4):
        watched.wait_for_function("document.querySelectorAll('instruct-stream[connected]').length === 2")
        storm(round_, 40)
        replayed.goto(f"{address}/?since={since}")
        replayed.wait_for_function("document.querySelectorAll('instruct-stream[connected]').length === 2")
        fresh = new_page()
        fresh.goto(f"{address}/")
        expected = fresh.evaluate(LISTS)
        fresh.close()
        assert any(expected)
        comes_to(watched, expected)
        comes_to(replayed, expected)
