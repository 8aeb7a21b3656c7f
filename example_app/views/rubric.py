"""People's forms for the rubric: a criterion, its place, and all weights together."""

from __future__ import annotations

from typing import Any

from flask import Blueprint
from flask import flash
from flask import redirect
from flask import render_template
from flask import request
from flask import url_for
from werkzeug.wrappers import Response

from .. import editing
from ..database import db
from ..models import Assessment
from ..models import Criterion
from .finding import assessment_or_404
from .finding import criterion_or_404
from .finding import editor

blueprint = Blueprint("rubric", __name__, url_prefix="/assessments/<int:key>")

Answer = str | Response | tuple[str, int]


@blueprint.route("/criteria/new", methods=["GET", "POST"])
def new(key: int) -> Answer:
    assessment = assessment_or_404(key)
    if request.method == "GET":
        left = max(0, 100 - assessment.total)
        return _criterion_form(assessment, None, {"weight": left or 10})
    try:
        criterion = editing.add_criterion(
            assessment,
            editor(),
            name=request.form.get("name", ""),
            weight=_number(request.form.get("weight", ""), "weight"),
            description=request.form.get("description", ""),
        )
        editing.set_levels(criterion, _levels(request.form.get("levels", "")), editor())
    except editing.EditError as error:
        db.session.rollback()
        return _criterion_form(assessment_or_404(key), None, request.form, error), 422
    db.session.commit()
    flash(f"“{criterion.name}” is in the rubric.")
    return _to_rubric(key)


@blueprint.route("/criteria/<int:criterion_key>", methods=["GET", "POST"])
def edit(key: int, criterion_key: int) -> Answer:
    assessment = assessment_or_404(key)
    criterion = criterion_or_404(assessment, criterion_key)
    if request.method == "GET":
        return _criterion_form(assessment, criterion, _values(criterion))
    if request.form.get("version") != criterion.version:
        return _criterion_form(assessment, criterion, request.form, conflict=True), 409
    try:
        editing.change_criterion(
            criterion,
            editor(),
            name=request.form.get("name", ""),
            weight=_number(request.form.get("weight", ""), "weight"),
            description=request.form.get("description", ""),
        )
        editing.set_levels(criterion, _levels(request.form.get("levels", "")), editor())
    except editing.EditError as error:
        db.session.rollback()
        assessment = assessment_or_404(key)
        return _criterion_form(assessment, criterion_or_404(assessment, criterion_key), request.form, error), 422
    db.session.commit()
    flash(f"“{criterion.name}” saved.")
    return _to_rubric(key)


@blueprint.post("/criteria/<int:criterion_key>/remove")
def remove(key: int, criterion_key: int) -> Response:
    assessment = assessment_or_404(key)
    criterion = criterion_or_404(assessment, criterion_key)
    name = criterion.name
    editing.remove_criterion(criterion, editor())
    db.session.commit()
    flash(f"“{name}” was removed from the rubric.")
    return _to_rubric(key)


@blueprint.post("/criteria/<int:criterion_key>/move")
def move(key: int, criterion_key: int) -> Response:
    assessment = assessment_or_404(key)
    criterion = criterion_or_404(assessment, criterion_key)
    step = -1 if request.form.get("direction") == "up" else 1
    editing.move_criterion(criterion, max(1, criterion.position + step), editor())
    db.session.commit()
    return _to_rubric(key)


@blueprint.route("/weights", methods=["GET", "POST"])
def weights(key: int) -> Answer:
    assessment = assessment_or_404(key)
    if request.method == "GET":
        return _weights_form(assessment, {str(each.id): str(each.weight) for each in assessment.criteria})
    values = {str(each.id): request.form.get(f"weight_{each.id}", "") for each in assessment.criteria}
    try:
        given = {int(each): _number(value, f"weight_{each}") for each, value in values.items()}
        editing.set_weights(assessment, given, editor())
    except editing.EditError as error:
        db.session.rollback()
        return _weights_form(assessment_or_404(key), values, error), 422
    db.session.commit()
    flash("Weights saved.")
    return _to_rubric(key)


def _criterion_form(
    assessment: Assessment,
    criterion: Criterion | None,
    values: Any,
    error: editing.EditError | None = None,
    *,
    conflict: bool = False,
) -> str:
    return render_template(
        "rubric/criterion.html",
        assessment=assessment,
        criterion=criterion,
        values=values,
        error=error,
        conflict=conflict,
    )


def _weights_form(assessment: Assessment, values: dict[str, str], error: editing.EditError | None = None) -> str:
    return render_template("rubric/weights.html", assessment=assessment, values=values, error=error)


def _values(criterion: Criterion) -> dict[str, object]:
    return {
        "name": criterion.name,
        "weight": criterion.weight,
        "description": criterion.description,
        "levels": criterion.levels_text,
    }


def _levels(text: str) -> list[tuple[str, str]]:
    """Read levels as a person writes them, one a line: ``Excellent: answers every part``."""
    rows = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, separator, description = line.partition(":")
        if not separator or not description.strip():
            raise editing.EditError(
                f"Write a level as “Name: description”; this line has no description: {line}", "levels"
            )
        rows.append((name, description))
    return rows


def _number(text: str, field: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise editing.EditError("A weight is a whole number from 0 to 100.", field) from None


def _to_rubric(key: int) -> Response:
    return redirect(url_for("assessments.show", key=key, _anchor="rubric"))
