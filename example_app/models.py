"""What the studio knows: people, students, assessments, their rubric, the comments on them and the mail about them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped
from sqlalchemy.orm import mapped_column
from sqlalchemy.orm import relationship

from .database import db
from .database import now

TOTAL = 100
"""What the weights of a rubric add up to, in percent."""

STATUSES = {"draft": "Draft", "in_review": "In review", "published": "Published"}
AI_NAME = "AI assistant"

ASIDE = {"instruct": "bookkeeping"}
"""Marks what only follows an edit: nobody is asked about it where the edit is previewed or undone."""


@dataclass(frozen=True, slots=True)
class Editor:
    """Who changed something: a person, or the AI in a run."""

    name: str
    user_id: int | None = None
    run_id: str | None = None


class User(db.Model):  # type: ignore[name-defined,misc]  # Flask-SQLAlchemy makes the base class at run time
    """A person who can be picked at the door. ``role`` is ``lead`` or ``author``."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(80), unique=True)
    role: Mapped[str] = mapped_column(sa.String(20))
    about: Mapped[str] = mapped_column(sa.String(200), default="")

    @property
    def editor(self) -> Editor:
        return Editor(self.name, user_id=self.id)

    @property
    def is_lead(self) -> bool:
        return self.role == "lead"


class Assessment(db.Model):  # type: ignore[name-defined,misc]
    """A piece of work that students hand in: what to do, how it is marked, and the talk about it."""

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(sa.String(120))
    course: Mapped[str] = mapped_column(sa.String(120))
    status: Mapped[str] = mapped_column(sa.String(20), default="draft")
    due_on: Mapped[date | None]
    instructions: Mapped[str] = mapped_column(sa.Text, default="")
    instructions_by: Mapped[str | None] = mapped_column(sa.String(80), info=ASIDE)
    instructions_run: Mapped[str | None] = mapped_column(sa.String(36), info=ASIDE)
    instructions_at: Mapped[datetime | None] = mapped_column(info=ASIDE)
    owner_id: Mapped[int] = mapped_column(sa.ForeignKey("user.id"))
    created_at: Mapped[datetime] = mapped_column(default=now, info=ASIDE)
    changed_at: Mapped[datetime] = mapped_column(default=now, info=ASIDE)
    changed_by: Mapped[str] = mapped_column(sa.String(80), default="", info=ASIDE)

    owner: Mapped[User] = relationship()
    criteria: Mapped[list[Criterion]] = relationship(
        back_populates="assessment", order_by="Criterion.position", cascade="all, delete-orphan"
    )
    comments: Mapped[list[Comment]] = relationship(
        back_populates="assessment", order_by="Comment.id", cascade="all, delete-orphan"
    )
    mails: Mapped[list[Mail]] = relationship(
        back_populates="assessment", order_by="Mail.id", cascade="all, delete-orphan"
    )

    @property
    def total(self) -> int:
        """The sum of the weights, in percent."""
        return sum(criterion.weight for criterion in self.criteria)

    @property
    def threads(self) -> list[Comment]:
        """The comments that are no reply, oldest first."""
        return [comment for comment in self.comments if comment.reply_to_id is None]

    @property
    def open_threads(self) -> int:
        return sum(not comment.resolved for comment in self.threads)

    @property
    def word_count(self) -> int:
        return len(self.instructions.split())

    @property
    def version(self) -> str:
        """Names this text of the instructions, so that a form can tell whether it changed meanwhile."""
        return _version(self.instructions)

    def criterion(self, key: int) -> Criterion | None:
        """Return the criterion of *this* assessment with that id, if there is one."""
        return next((criterion for criterion in self.criteria if criterion.id == key), None)

    def comment(self, key: int) -> Comment | None:
        return next((comment for comment in self.comments if comment.id == key), None)


class Student(db.Model):  # type: ignore[name-defined,misc]
    """Somebody who takes a course, and who gets the mail about its assessments."""

    id: Mapped[int] = mapped_column(primary_key=True)
    course: Mapped[str] = mapped_column(sa.String(120), index=True)
    name: Mapped[str] = mapped_column(sa.String(80))
    email: Mapped[str] = mapped_column(sa.String(200), unique=True)


class Mail(db.Model):  # type: ignore[name-defined,misc]
    """A mail to the students of an assessment's course; ``sent_at`` is set once it was handed over for delivery."""

    id: Mapped[int] = mapped_column(primary_key=True)
    assessment_id: Mapped[int] = mapped_column(sa.ForeignKey("assessment.id"), index=True)
    subject: Mapped[str] = mapped_column(sa.String(120))
    body: Mapped[str] = mapped_column(sa.Text)
    recipients: Mapped[list[str]] = mapped_column(sa.JSON)
    """Addresses, as they were when it was written."""
    run_id: Mapped[str | None] = mapped_column(sa.String(36), info=ASIDE)
    written_at: Mapped[datetime] = mapped_column(default=now)
    sent_at: Mapped[datetime | None]

    assessment: Mapped[Assessment] = relationship(back_populates="mails")


class Criterion(db.Model):  # type: ignore[name-defined,misc]
    """One thing that is marked, with its weight in percent; ``position`` counts from 1."""

    id: Mapped[int] = mapped_column(primary_key=True)
    assessment_id: Mapped[int] = mapped_column(sa.ForeignKey("assessment.id"), index=True)
    position: Mapped[int]
    name: Mapped[str] = mapped_column(sa.String(80))
    description: Mapped[str] = mapped_column(sa.Text, default="")
    weight: Mapped[int]
    changed_by: Mapped[str] = mapped_column(sa.String(80), default="", info=ASIDE)
    changed_run: Mapped[str | None] = mapped_column(sa.String(36), info=ASIDE)

    assessment: Mapped[Assessment] = relationship(back_populates="criteria")
    levels: Mapped[list[Level]] = relationship(
        back_populates="criterion", order_by="Level.position", cascade="all, delete-orphan"
    )

    @property
    def levels_text(self) -> str:
        """The levels as a person edits them: one a line, name and description apart by a colon."""
        return "\n".join(f"{level.name}: {level.description}" for level in self.levels)

    @property
    def version(self) -> str:
        return _version(self.name, str(self.weight), self.description, self.levels_text)


class Level(db.Model):  # type: ignore[name-defined,misc]
    """One level of a criterion, best first: its name and how such work looks."""

    id: Mapped[int] = mapped_column(primary_key=True)
    criterion_id: Mapped[int] = mapped_column(sa.ForeignKey("criterion.id"), index=True)
    position: Mapped[int]
    name: Mapped[str] = mapped_column(sa.String(40))
    description: Mapped[str] = mapped_column(sa.Text)

    criterion: Mapped[Criterion] = relationship(back_populates="levels")


class Comment(db.Model):  # type: ignore[name-defined,misc]
    """A comment or a reply to one; replies have no replies. ``run_id`` is set where the AI wrote it."""

    id: Mapped[int] = mapped_column(primary_key=True)
    assessment_id: Mapped[int] = mapped_column(sa.ForeignKey("assessment.id"), index=True)
    author_id: Mapped[int | None] = mapped_column(sa.ForeignKey("user.id"))
    author_name: Mapped[str] = mapped_column(sa.String(80))
    run_id: Mapped[str | None] = mapped_column(sa.String(36), info=ASIDE)
    reply_to_id: Mapped[int | None] = mapped_column(sa.ForeignKey("comment.id"))
    body: Mapped[str] = mapped_column(sa.Text, info={"instruct": "title"})
    resolved: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(default=now, info=ASIDE)

    assessment: Mapped[Assessment] = relationship(back_populates="comments")
    reply_to: Mapped[Comment | None] = relationship(remote_side=id, back_populates="replies")
    replies: Mapped[list[Comment]] = relationship(back_populates="reply_to", order_by="Comment.id")

    @property
    def by_ai(self) -> bool:
        return self.author_id is None


def _version(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
