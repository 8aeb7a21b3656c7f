"""Signing in by picking a person. A demonstration: there is no password, and no reason to trust a name."""

from __future__ import annotations

from urllib.parse import urlsplit

from flask import Blueprint
from flask import Flask
from flask import abort
from flask import flash
from flask import g
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

OPEN_ENDPOINTS = frozenset({"auth.login", "auth.enter", "pages.about", "static"})


def init_app(app: Flask) -> None:
    """Know the person in every request, and send strangers to the door."""
    app.register_blueprint(blueprint)
    app.before_request(_know_the_person)


def _know_the_person() -> Response | None:
    key = session.get("user_id")
    g.user = db.session.get(User, key) if isinstance(key, int) else None
    endpoint = request.endpoint
    if g.user is not None or endpoint is None or endpoint in OPEN_ENDPOINTS or _is_asset(endpoint):
        return None
    if request.method != "GET" or endpoint.startswith("instruct"):
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
