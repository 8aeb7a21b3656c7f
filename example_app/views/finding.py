"""Finds what an address names, or answers 404; a child is found only within its own assessment."""

from __future__ import annotations

from flask import abort

from ..auth import current_user
from ..database import db
from ..models import Assessment
from ..models import Comment
from ..models import Criterion
from ..models import Editor
from ..models import User


def assessment_or_404(key: int) -> Assessment:
    return db.session.get(Assessment, key) or abort(404)


def criterion_or_404(assessment: Assessment, key: int) -> Criterion:
    return assessment.criterion(key) or abort(404)


def comment_or_404(assessment: Assessment, key: int) -> Comment:
    return assessment.comment(key) or abort(404)


def person() -> User:
    """Return who is signed in."""
    return current_user() or abort(401)


def editor() -> Editor:
    return person().editor
