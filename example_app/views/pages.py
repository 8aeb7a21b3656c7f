"""The page about the studio, the pages for errors, and what every template may ask."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from flask import Blueprint
from flask import Flask
from flask import current_app
from flask import g
from flask import render_template
from werkzeug.exceptions import HTTPException

from ..auth import current_user
from ..extensions import instruct
from ..extensions import name_of
from ..models import AI_NAME
from ..models import STATUSES
from ..models import TOTAL
from ..stories import CATALOGUE
from ..stories import MODEL

blueprint = Blueprint("pages", __name__)

ERRORS = {
    400: ("This request makes no sense here", "Go back and try once more."),
    401: ("Please sign in first", "You were signed out, or this page was left open for long."),
    403: ("This is not allowed", "The request came from another site, or you may not do this."),
    404: ("There is nothing here", "The address is mistyped, or what it named was removed."),
    405: ("This does not work that way", "The address is right, but it is not opened like this."),
    413: ("That is too much text", "A form may carry up to one megabyte."),
    500: ("Something broke on our side", "The error was written to the log. Nothing you saved before is lost."),
}


@dataclass(frozen=True, slots=True)
class Answering:
    """Which model answers, as the banner says it."""

    model: str
    scripted: bool


def answering() -> Answering:
    model: str = current_app.config["INSTRUCT_DEFAULT_MODEL"]
    return Answering(model.partition(":")[2] or model, model == MODEL)


def init_app(app: Flask) -> None:
    app.register_error_handler(HTTPException, _error_page)
    app.add_template_filter(moment)
    app.add_template_filter(initials)
    app.add_template_filter(person_name)
    app.jinja_env.globals.update(STATUSES=STATUSES, TOTAL=TOTAL, AI_NAME=AI_NAME, answering=answering, waiting=waiting)


def waiting() -> int:
    """Return how many of the AI's steps wait for a decision of who is signed in."""
    person = current_user()
    return len(instruct.approvals(actor=person)) if person else 0


@blueprint.get("/activity")
def activity() -> str:
    return render_template("pages/activity.html")


@blueprint.get("/about")
def about() -> str:
    return render_template("pages/about.html", stories=CATALOGUE)


def _error_page(error: HTTPException) -> tuple[str, int] | HTTPException:
    code = error.code or 500
    if code < 400:
        return error
    if code >= 500:
        # The database may be what broke: this page must not ask it who is signed in.
        g.user = None
    title, advice = ERRORS.get(code, (error.name, error.description or ""))
    return render_template("pages/error.html", code=code, title=title, advice=advice), code


def moment(value: datetime) -> str:
    """Say when, the same for every reader; the page's script turns it into the reader's own words."""
    return f"{value.day} {value:%b %Y, %H:%M} UTC"


def person_name(key: str | None) -> str:
    return name_of(key or "") or "Somebody"


def initials(name: str) -> str:
    return "".join(part[0] for part in name.split()[:2]).upper()
