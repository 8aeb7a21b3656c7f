"""What a fragment may use, for whom it is rendered where no request is at hand, and rendering after the response."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import requests
from flask import Flask
from flask import render_template_string
from flask import request

from flask_instruct import Instruct
from flask_instruct.live.broadcasts import broadcast
from flask_instruct.live.captured import captured_broadcasts
from flask_instruct.live.position import Position
from flask_instruct.live.reader import Reader
from flask_instruct.live.rendering import NotInFragments
from flask_instruct.live.rendering import render_fragment
from flask_instruct.runs.job import request_of
from flask_instruct.runs.models import Run
from tests.support import wait_for

from .blog import Assessment
from .blog import Comment
from .blog import Commenter
from .blog import db
from .blog import make_blog
from .site import live_of


@pytest.fixture
def blog(sqlite_url: str, redis_url: str, key_prefix: str) -> Iterator[tuple[Flask, Instruct]]:
    app, instruct = make_blog(sqlite_url, INSTRUCT_REDIS_URL=redis_url, INSTRUCT_KEY_PREFIX=key_prefix)
    with app.app_context():
        db.create_all()
        db.session.add(Comment(assessment=Assessment(title="Essay"), text="first"))
        db.session.commit()
        yield app, instruct
        db.session.remove()
        live_of(app).close()
        app.extensions["instruct"].redis.close()
        db.engine.dispose()


@pytest.fixture
def app(blog: tuple[Flask, Instruct]) -> Flask:
    return blog[0]


# -- what only the page of one person has ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "name"),
    [("_personal.html", "current_user"), ("_token.html", "csrf_token"), ("_session.html", "session")],
)
def test_what_only_one_persons_page_has_is_an_error_that_explains(app: Flask, template: str, name: str) -> None:
    app.context_processor(lambda: {"current_user": {"name": "Ada"}})
    app.jinja_env.globals["csrf_token"] = lambda: "token"
    with (
        app.test_request_context(),
        pytest.raises(NotInFragments, match=f"{template} uses '{name}'.*often in a worker"),
    ):
        broadcast("s", "update", target="x", template=template)


def test_a_template_may_ask_for_it_first_or_be_given_it(app: Flask) -> None:
    app.context_processor(lambda: {"current_user": {"name": "Ada"}})
    with app.test_request_context():
        assert render_fragment("_careful.html") == "nobody"
        assert render_fragment("_personal.html", current_user={"name": "Bob"}) == "Bob"
        assert render_template_string("{% include '_personal.html' %}") == "Ada"


# -- for whom it is rendered -------------------------------------------------------------------------------------------


def test_a_run_is_carried_out_with_the_address_and_language_of_its_request(blog: tuple[Flask, Instruct]) -> None:
    app, instruct = blog
    headers = {"Accept-Language": "de-CH, en;q=0.5"}
    with app.test_request_context(base_url="https://studio.example/app", headers=headers):
        run = _asked(instruct)
    with request_of(app, run):
        assert request.accept_languages.best_match(["en", "de-CH"]) == "de-CH"
        html = render_fragment("_link.html", comment=db.session.get(Comment, 1))
        assert html == '<a href="/app/show">first</a>'
        assert request.host_url == "https://studio.example/"


def test_a_run_of_a_shell_is_carried_out_in_the_apps_own_language(blog: tuple[Flask, Instruct]) -> None:
    app, instruct = blog
    run = _asked(instruct)
    assert (run.base_url, run.language, run.timezone) == (None, None, None)
    with request_of(app, run):
        assert not request.accept_languages


def test_with_flask_babel_locale_and_time_zone_are_those_of_the_request(blog: tuple[Flask, Instruct]) -> None:
    babel = pytest.importorskip("flask_babel")
    app, instruct = blog
    babel.Babel(
        app,
        locale_selector=lambda: request.cookies.get("locale", "en"),
        timezone_selector=lambda: request.cookies.get("zone", "UTC"),
    )
    app.jinja_env.globals["when"] = lambda: babel.format_datetime(datetime(2026, 7, 1, 12), "EEEE H:mm")
    headers = {"Cookie": "locale=pt_BR; zone=America/Sao_Paulo"}
    with app.app_context(), app.test_request_context(headers=headers):
        run = _asked(instruct)
        db.session.refresh(run)
        db.session.expunge(run)
    assert (run.language, run.timezone) == ("pt_BR", "America/Sao_Paulo")
    with app.app_context():
        for _ in range(2):
            with request_of(app, run):
                assert render_template_string("{{ when() }}") == "quarta-feira 9:00"
            with app.test_request_context():
                assert render_template_string("{{ when() }}") == "Wednesday 12:00"


def test_a_language_of_any_length_is_kept_in_part(app: Flask) -> None:
    with app.test_request_context(headers={"Accept-Language": "de," * 5000}):
        assert len(Reader.current().language or "") == 200


def _asked(instruct: Instruct) -> Run:
    return instruct.generate_for(Commenter(db.session.get(Assessment, 1)), user_prompt="Go.", model="scripted:x")


# -- after the response ------------------------------------------------------------------------------------------------


def test_rendered_later_it_shows_the_record_as_it_is_committed(blog: tuple[Flask, Instruct]) -> None:
    _, instruct = blog
    comment = db.session.get(Comment, 1)
    with captured_broadcasts() as captured:
        instruct.broadcast_replace_to("s", target=comment, template="_comment.html", comment=comment, render_later=True)
        comment.text = "changed afterwards"
        db.session.commit()
    (fragment,) = captured
    assert (fragment.target, fragment.text) == ("comment_1", "changed afterwards (Essay)")


def test_rendered_later_a_rollback_drops_it_and_a_deleted_record_is_left_out(
    blog: tuple[Flask, Instruct], caplog: pytest.LogCaptureFixture
) -> None:
    _, instruct = blog
    options: dict[str, Any] = {"target": "x", "template": "_comment.html", "render_later": True}
    with captured_broadcasts() as captured, caplog.at_level("INFO"):
        instruct.broadcast_update_to("s", comment=db.session.get(Comment, 1), **options)
        db.session.rollback()
        comment = db.session.get(Comment, 1)
        instruct.broadcast_update_to("s", comment=comment, **options)
        db.session.delete(comment)
        db.session.commit()
    assert captured == []
    assert "what it shows is gone: Comment (1,)" in caplog.text


def test_rendered_later_an_error_is_logged_and_the_commit_stands(
    blog: tuple[Flask, Instruct], caplog: pytest.LogCaptureFixture
) -> None:
    _, instruct = blog
    comment = db.session.get(Comment, 1)
    comment.text = "changed"
    with captured_broadcasts() as captured:
        instruct.broadcast_update_to("s", target="x", template="_broken.html", comment=comment, render_later=True)
        db.session.commit()
    assert captured == []
    assert "could not be rendered after the response" in caplog.text


def test_a_record_without_a_key_cannot_be_rendered_later(blog: tuple[Flask, Instruct]) -> None:
    with pytest.raises(ValueError, match="comment is a Comment that has no key yet"):
        broadcast("s", "update", target="x", template="_comment.html", comment=Comment(), render_later=True)


def test_a_real_request_is_answered_first_and_the_order_is_kept(
    blog: tuple[Flask, Instruct], serve: Callable[..., str]
) -> None:
    app, instruct = blog
    app.testing = False
    rendered: list[str] = []
    answered: list[bool] = []
    app.jinja_env.globals["fail"] = lambda: rendered.append(request.url_root) or str(bool(answered))

    @app.post("/change")
    def change() -> str:
        comment = db.session.get(Comment, 1)
        comment.text = "changed"
        for stream in ("s", "s"):
            instruct.broadcast_update_to(
                stream, target="x", template="_failing.html", comment=comment, render_later=True
            )
        db.session.commit()
        assert rendered == []
        return "done"

    since = Position.parse(live_of(app).bus.now())
    address = serve(app)
    assert requests.post(f"{address}/change", timeout=10).text == "done"
    answered.append(True)
    wait_for(lambda: len(live_of(app).bus.replay("s", since).entries) == 2)
    assert rendered == [f"{address}/"] * 2
