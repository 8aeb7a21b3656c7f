"""Signing in by picking a person. A demonstration: there is no password, and no reason to trust a name."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Blueprint
from flask import Flask
from flask import abort
from flask import flash
from flask import g
from flask import has_request_context
from flask import redirect
from flask import render_template
from flask import request
from flask import session
from flask import url_for
from sqlalchemy import select
from werkzeug.wrappers import Response

from .database import db
from .models import User

blueprint = Blueprint("auth", __name__)

OPEN_ENDPOINTS = frozenset(
    {"auth.login", "auth.enter", "pages.about", "static", "instruct_live.socket", "instruct_health.health"}
)
"""The socket asks for itself who listens, and closes with a code that tells the page not to come back. A probe has no
cookie, and learns nothing but whether this process works."""


def init_app(app: Flask) -> None:
    """Send strangers to the door, and tell every template who is signed in."""
    app.register_blueprint(blueprint)
    app.before_request(_ask_strangers_in)
    app.add_template_global(current_user)


def current_user() -> User | None:
    """Return who is signed in.

    Read from the session and not by a ``before_request`` function, so that it also holds for the live socket, whose
    viewer is asked for long after the request that opened it.
    """
    if "user" not in g:
        key = session.get("user_id") if has_request_context() else None
        g.user = db.session.get(User, key) if isinstance(key, int) else None
    user: User | None = g.user
    return user


def _ask_strangers_in() -> Response | None:
    endpoint = request.endpoint
    if current_user() is not None or endpoint is None or endpoint in OPEN_ENDPOINTS or _is_asset(endpoint):
        return None
    is_page = request.method in ("GET", "HEAD")
    if not is_page or (endpoint.startswith("instruct") and not endpoint.startswith("instruct_dashboard.")):
        abort(401)
    return redirect(url_for("auth.login", next=request.full_path.rstrip("?")))


def _is_asset(endpoint: str) -> bool:
    return endpoint.endswith(".static")


@blueprint.get("/login")
def login() -> str:
    people = db.session.scalars(select(User).order_by(User.id)).all()
    return render_template("auth/login.html", people=people, next=_own_path(request.args.get("next", "")))


@blueprint.post("/login")
def enter() -> Response:
    person = db.session.get(User, request.form.get("user_id", type=int) or 0)
    if person is None:
        abort(400, "There is no such person to sign in as.")
    session.clear()
    session["user_id"] = person.id
    flash(f"You are {person.name} now.")
    return redirect(_own_path(request.form.get("next", "")) or url_for("assessments.index"))


@blueprint.post("/logout")
def leave() -> Response:
    session.clear()
    return redirect(url_for("auth.login"))


def _own_path(target: str) -> str:
    """Return a path of this site, or nothing: ``//elsewhere`` and full addresses would lead away."""
    parts = urlsplit(target)
    safe = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.netloc and not parts.scheme
    return target if safe else ""
