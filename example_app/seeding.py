"""Makes the tables and fills an empty database, once, however many processes start at the same time."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from flask import Flask
from flask import current_app
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import IntegrityError

from . import editing
from .database import db
from .database import now
from .models import Assessment
from .models import Student
from .models import User
from .outgrown import fitting
from .seed_data import ASSESSMENTS
from .seed_data import ENROLLED
from .seed_data import PEOPLE

TRIES = 5


def init_app(app: Flask) -> None:
    @app.cli.command("seed")
    def seed_command() -> None:
        """Make the tables and fill an empty database; a filled one is left alone."""
        made = prepare(seed=True)
        click.echo("The studio is filled." if made else "The studio has its people already; nothing was changed.")


def prepare(*, seed: bool) -> bool:
    """Make missing tables, and seed a database without people. Return whether it was seeded here."""
    own: Path | None = current_app.config["STUDIO_FILE"]
    try:
        with fitting(own, db.engine, db.metadata) if own else nullcontext():
            _create_tables()
            return seed and _seed()
    finally:
        # The worker forks from here: no child may inherit an open connection.
        db.engine.dispose()


def _create_tables() -> None:
    """Make the tables; where another process makes the same ones at this moment, look again."""
    for attempt in range(1, TRIES + 1):
        try:
            db.create_all()
            return
        except DBAPIError:
            if attempt == TRIES:
                raise
            time.sleep(0.1 * attempt)


def _seed() -> bool:
    if db.session.scalar(select(User.id).limit(1)) is not None:
        db.session.remove()
        return False
    people = {person["name"]: User(**person) for person in PEOPLE}
    try:
        db.session.add_all(people.values())
        db.session.flush()
        for order, entry in enumerate(ASSESSMENTS):
            _add(entry, people, order)
        _enrol()
        db.session.commit()
    except IntegrityError:
        # Names are unique: another process was faster with the same people.
        db.session.rollback()
        return False
    finally:
        db.session.remove()
    return True


def _enrol() -> None:
    for course, names in ENROLLED.items():
        for name in names:
            # No mail ever reaches a name under .example (RFC 2606).
            email = f"{name.lower().replace(' ', '.')}@students.example"
            db.session.add(Student(course=course, name=name, email=email))


def _add(entry: dict[str, Any], people: dict[str, User], order: int) -> None:
    started = now() - timedelta(days=2 + 2 * order, hours=3 * order)
    owner = people[entry["owner"]]
    assessment = Assessment(
        title=entry["title"], course=entry["course"], status=entry["status"], owner=owner, created_at=started
    )
    if entry["due_in"]:
        assessment.due_on = (now() + timedelta(days=entry["due_in"])).date()
    db.session.add(assessment)
    if entry["instructions"]:
        editing.rewrite_instructions(assessment, entry["instructions"], owner.editor)
        assessment.instructions_at = started
    for name, weight, description, levels in entry["criteria"]:
        criterion = editing.add_criterion(assessment, owner.editor, name=name, weight=weight, description=description)
        editing.set_levels(criterion, levels, owner.editor)
    latest = started
    for author, text, replies, settled in entry["comments"]:
        latest += timedelta(hours=7, minutes=11)
        thread = editing.add_comment(assessment, text, people[author].editor)
        thread.created_at, thread.resolved = latest, settled
        for replier, reply in replies:
            latest += timedelta(minutes=52)
            answer = editing.add_comment(assessment, reply, people[replier].editor, reply_to=thread)
            answer.created_at = latest
    assessment.changed_at = latest
