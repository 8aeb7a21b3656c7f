"""The list of assessments, the page of one, and the forms for its details and instructions."""

from __future__ import annotations

from datetime import date
from typing import Any

from flask import Blueprint
from flask import flash
from flask import redirect
from flask import render_template
from flask import request
from flask import url_for
from sqlalchemy import select
from sqlalchemy.orm import selectinload
from werkzeug.wrappers import Response

from .. import editing
from ..database import db
from ..models import STATUSES
from ..models import Assessment
from ..stories import prompts_for
from .finding import assessment_or_404
from .finding import editor
from .finding import person
from .pages import answering

blueprint = Blueprint("assessments", __name__)

Answer = str | Response | tuple[str, int]


@blueprint.get("/")
def index() -> str:
    query = select(Assessment).order_by(Assessment.changed_at.desc(), Assessment.id)
    query = query.options(selectinload(Assessment.criteria), selectinload(Assessment.comments))
    return render_template("assessments/index.html", assessments=db.session.scalars(query).all())


@blueprint.get("/assessments/<int:key>")
def show(key: int) -> str:
    return page_of(assessment_or_404(key))


@blueprint.get("/assessments/<int:key>/history")
def history(key: int) -> str:
    return render_template("assessments/history.html", assessment=assessment_or_404(key))


def page_of(assessment: Assessment, **form: Any) -> str:
    """Render the page of an assessment; ``form`` carries what a refused form held."""
    return render_template(
        "assessments/show.html",
        assessment=assessment,
        prompts=prompts_for(assessment, demo=answering().scripted),
        **form,
    )


@blueprint.route("/assessments/new", methods=["GET", "POST"])
def new() -> Answer:
    if request.method == "GET":
        return _details_form(None, {})
    assessment = Assessment(owner=person())
    try:
        _read_details(assessment)
    except editing.EditError as error:
        return _details_form(None, request.form, error), 422
    db.session.add(assessment)
    db.session.commit()
    flash("The assessment is on the list. Write its instructions, or let the AI begin.")
    return redirect(url_for("assessments.show", key=assessment.id))


@blueprint.route("/assessments/<int:key>/details", methods=["GET", "POST"])
def details(key: int) -> Answer:
    assessment = assessment_or_404(key)
    if request.method == "GET":
        due_on = assessment.due_on.isoformat() if assessment.due_on else ""
        values = {"title": assessment.title, "course": assessment.course, "due_on": due_on, "status": assessment.status}
        return _details_form(assessment, values)
    try:
        _read_details(assessment)
    except editing.EditError as error:
        db.session.rollback()
        return _details_form(assessment_or_404(key), request.form, error), 422
    db.session.commit()
    flash("Details saved.")
    return redirect(url_for("assessments.show", key=key))


@blueprint.post("/assessments/<int:key>/instructions")
def save_instructions(key: int) -> Answer:
    """Save a person's text, unless the instructions changed after the form was made: then show both."""
    assessment = assessment_or_404(key)
    text = request.form.get("instructions", "")
    if request.form.get("version") != assessment.version:
        return page_of(assessment, text=text, conflict=True), 409
    try:
        editing.rewrite_instructions(assessment, text, editor())
    except editing.EditError as error:
        return page_of(assessment, text=text, error=error), 422
    db.session.commit()
    flash("Instructions saved.")
    return redirect(url_for("assessments.show", key=key, _anchor="instructions"))


def _read_details(assessment: Assessment) -> None:
    form = request.form
    editing.rename(
        assessment,
        form.get("title", ""),
        editor(),
        course=form.get("course", ""),
        due_on=_date(form.get("due_on", "")),
    )
    status = form.get("status", "draft")
    if status not in _statuses(assessment):
        raise editing.EditError("Publishing needs a lead.", "status")
    editing.set_status(assessment, status, editor())


def _statuses(assessment: Assessment | None) -> dict[str, str]:
    """Return what this person may choose: an author asks the AI to publish, and a lead then decides."""
    current = assessment.status if assessment else None
    return {key: label for key, label in STATUSES.items() if key != "published" or key == current or person().is_lead}


def _details_form(assessment: Assessment | None, values: Any, error: editing.EditError | None = None) -> str:
    return render_template(
        "assessments/details.html", assessment=assessment, values=values, error=error, statuses=_statuses(assessment)
    )


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise editing.EditError("The due date is a day such as 2030-05-31.", "due_on") from None
