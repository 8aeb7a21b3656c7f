"""What the AI may do to an assessment: the tools. How their edits reach the open pages is said in ``broadcasts``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Annotated
from typing import Any

from pydantic import BaseModel
from pydantic import Field

from flask_instruct import AiResponseHandler
from flask_instruct import Tool
from flask_instruct import ToolError
from flask_instruct import ai_tool

from . import editing
from . import post
from .database import db
from .database import now
from .models import AI_NAME
from .models import Assessment
from .models import Comment
from .models import Criterion
from .models import Editor
from .models import Mail
from .models import User
from .readability import report

Weight = Annotated[int, Field(ge=0, le=100, description="Percent of the whole mark.")]


class LevelText(BaseModel):
    """One level of a criterion: how such work looks."""

    name: str = Field(description="Short name, for example Excellent.")
    description: str = Field(description="What work of this level shows, in one sentence.")


class CriterionWeight(BaseModel):
    criterion_id: int
    weight: Weight


LONG_MAIL = 1000
"""Characters of a mail that a lead reads before it goes out, whoever asked for it."""


def _why_a_lead_reads_it(handler: AiResponseHandler, arguments: dict[str, Any]) -> bool | str:
    """Say why a mail waits for a lead: whoever can comment can put words into the AI's mouth."""
    asked_by = _person(handler.call.actor if handler.call else None)
    if asked_by is None or not asked_by.is_lead:
        return "Mail to students needs a lead."
    return "This is a long mail: please read it first." if len(arguments["text"]) > LONG_MAIL else False


class AssessmentUpdater(AiResponseHandler, record=Assessment):
    """The tools. Each makes one change and says what is now true, so that the model needs no second look.

    All but the mail touch nothing but the database, so that they can show what they would change before they do.
    """

    @ai_tool(preview=True)
    def read_assessment(self) -> dict[str, Any]:
        """Read the whole assessment: title, instructions, rubric with ids and weights, and the comments with ids."""
        assessment: Assessment = self.record
        return {
            "id": assessment.id,
            "title": assessment.title,
            "course": assessment.course,
            "status": assessment.status,
            "due_on": assessment.due_on.isoformat() if assessment.due_on else None,
            "instructions": assessment.instructions,
            "weights_total": assessment.total,
            "criteria": [_criterion_data(criterion) for criterion in assessment.criteria],
            "comments": [_comment_data(comment) for comment in assessment.comments],
            "read_at": now().isoformat(timespec="milliseconds"),
        }

    @ai_tool(preview=True)
    def rename(self, new_title: str) -> str:
        """Give the assessment a new title.

        :param new_title: The title, at most 120 characters.
        """
        with _told_to_the_model():
            editing.rename(self.record, new_title, self._editor)
        return f"The title is now “{self.record.title}”."

    @ai_tool(preview=True)
    def update_instructions(self, new_instructions: str) -> str:
        """Replace the instructions that students read.

        :param new_instructions: The whole revised text, in Markdown.
        """
        with _told_to_the_model():
            editing.rewrite_instructions(self.record, new_instructions, self._editor)
        return f"Instructions replaced; they now have {self.record.word_count} words."

    @ai_tool(preview=True)
    def check_instructions(self) -> str:
        """Measure the instructions: words, sentence length, the longest sentence, and what students may miss."""
        return report(self.record.instructions)

    @ai_tool(preview=True)
    def add_criterion(
        self,
        name: str,
        weight: Weight,
        description: str = "",
        position: Annotated[int, Field(ge=1)] | None = None,
        levels: list[LevelText] | None = None,
    ) -> str:
        """Add a criterion to the rubric.

        :param name: Short name, at most 80 characters, not used by another criterion.
        :param weight: Percent of the whole mark; all weights must add up to 100 in the end.
        :param description: What is looked at.
        :param position: Place in the rubric counted from 1; the end when left out.
        :param levels: Two to six levels, best first; may also be set later.
        """
        with _told_to_the_model():
            criterion = editing.add_criterion(
                self.record, self._editor, name=name, weight=weight, description=description, position=position
            )
            if levels:
                editing.set_levels(criterion, _pairs(levels), self._editor)
        return f"Added criterion {criterion.id} “{criterion.name}”. {self._total()}"

    @ai_tool(preview=True)
    def update_criterion(
        self, criterion_id: int, name: str | None = None, weight: Weight | None = None, description: str | None = None
    ) -> str:
        """Change a criterion's name, weight or description; what is left out stays.

        :param criterion_id: Id as told by read_assessment.
        """
        criterion = self._criterion(criterion_id)
        if name is None and weight is None and description is None:
            raise ToolError("Nothing to change was given; name at least one of name, weight and description.")
        with _told_to_the_model():
            editing.change_criterion(criterion, self._editor, name=name, weight=weight, description=description)
        return f"Criterion {criterion.id} “{criterion.name}” has weight {criterion.weight}. {self._total()}"

    @ai_tool(preview=True)
    def remove_criterion(self, criterion_id: int) -> str:
        """Remove a criterion and its levels from the rubric.

        :param criterion_id: Id as told by read_assessment.
        """
        criterion = self._criterion(criterion_id)
        name = criterion.name
        editing.remove_criterion(criterion, self._editor)
        return f"Removed “{name}”. {self._total()}"

    @ai_tool(preview=True)
    def move_criterion(self, criterion_id: int, position: Annotated[int, Field(ge=1)]) -> str:
        """Move a criterion to another place in the rubric.

        :param criterion_id: Id as told by read_assessment.
        :param position: New place counted from 1.
        """
        criterion = self._criterion(criterion_id)
        editing.move_criterion(criterion, position, self._editor)
        return "The order is now: " + ", ".join(other.name for other in self.record.criteria) + "."

    @ai_tool(preview=True)
    def set_weights(self, weights: list[CriterionWeight]) -> str:
        """Set the weights of all criteria at once. They must add up to 100.

        :param weights: One entry for every criterion.
        """
        with _told_to_the_model():
            editing.set_weights(self.record, {entry.criterion_id: entry.weight for entry in weights}, self._editor)
        return "Weights set: " + ", ".join(f"{other.name} {other.weight}" for other in self.record.criteria) + "."

    @ai_tool(preview=True)
    def set_levels(self, criterion_id: int, levels: list[LevelText]) -> str:
        """Replace the levels of a criterion.

        :param criterion_id: Id as told by read_assessment.
        :param levels: Two to six levels, best first.
        """
        criterion = self._criterion(criterion_id)
        with _told_to_the_model():
            editing.set_levels(criterion, _pairs(levels), self._editor)
        return f"“{criterion.name}” now has {len(criterion.levels)} levels."

    @ai_tool(preview=True)
    def check_rubric(self) -> str:
        """Check the rubric: weights that do not add up to 100, criteria without weight or levels."""
        problems = editing.problems(self.record)
        if not problems:
            return f"The rubric is complete: {len(self.record.criteria)} criteria, and the weights add up to 100."
        return "The rubric is not ready:\n" + "\n".join(f"- {problem}" for problem in problems)

    @ai_tool(preview=True)
    def add_comment(self, text: str, reply_to: int | None = None) -> str:
        """Write a comment for the people who work on this assessment.

        :param text: The comment; Markdown is allowed.
        :param reply_to: Id of the comment that this answers; left out for a new thread.
        """
        parent = self._comment(reply_to) if reply_to is not None else None
        with _told_to_the_model():
            comment = editing.add_comment(self.record, text, self._editor, reply_to=parent)
        return f"Comment {comment.id} added."

    @ai_tool(preview=True)
    def resolve_comment(self, comment_id: int) -> str:
        """Mark a thread of comments as settled.

        :param comment_id: Id of the comment that began it.
        """
        comment = self._comment(comment_id)
        thread = comment.reply_to or comment
        editing.resolve(thread, self._editor)
        return f"Thread {thread.id} is marked as settled."

    @ai_tool(approval=lambda handler, arguments: "Choose which of these edits to keep.", preview=True)
    def propose_revision(self, new_title: str, new_instructions: str, weights: list[CriterionWeight]) -> str:
        """Propose a new title, new instructions and new weights at once. A person sees them first, and chooses.

        :param new_title: The title, at most 120 characters.
        :param new_instructions: The whole revised text, in Markdown.
        :param weights: One entry for every criterion; they must add up to 100.
        """
        with _told_to_the_model():
            editing.rename(self.record, new_title, self._editor)
            editing.rewrite_instructions(self.record, new_instructions, self._editor)
            editing.set_weights(self.record, {entry.criterion_id: entry.weight for entry in weights}, self._editor)
        return "The title, the instructions and the weights are revised."

    @ai_tool(approval=lambda handler, arguments: "Publishing needs a lead.", preview=True)
    def publish(self, due_on: date | None = None) -> str:
        """Show the assessment to its students. Its rubric must be complete, and a lead must approve.

        :param due_on: Until when they have time; left out, the due date stays as it is.
        """
        with _told_to_the_model():
            editing.publish(self.record, self._editor, due_on=due_on)
        until = f", due on {self.record.due_on.isoformat()}" if self.record.due_on else ""
        return f"“{self.record.title}” is published{until}."

    @ai_tool(approval=_why_a_lead_reads_it)
    def email_students(self, subject: str, text: str) -> str:
        """E-mail everybody who takes the course. A mail cannot be taken back, so do it only when you were asked to.

        :param subject: One line, at most 120 characters.
        :param text: The mail as plain text, with a greeting.
        """
        with _told_to_the_model():
            mail = editing.write_mail(self.record, subject, text, self._editor)
        self.after_commit(self.send_mail, mail.id)
        return f"The mail “{mail.subject}” to {len(mail.recipients)} students is written, and goes out now."

    def send_mail(self, mail_id: int) -> None:
        """Hand a mail over for delivery: once the tool's edits are committed, and once at most."""
        assert self.call is not None
        mail = db.session.get_one(Mail, mail_id)
        post.deliver(mail, self.call.idempotency_key)
        mail.sent_at = now()

    def authorize_tool(self, tool: type[Tool], arguments: dict[str, Any], actor: Any) -> bool:
        """Let only people of the studio have mail written to students; an author's then waits for a lead."""
        return tool.identifier != "email_students" or _person(actor) is not None

    def authorize_approval(self, tool: type[Tool], arguments: dict[str, Any], actor: Any) -> bool:
        """Let a lead decide about what reaches students, and anybody about an edit that they can make themselves."""
        person = _person(actor)
        return person is not None and (person.is_lead or tool.identifier not in ("publish", "email_students"))

    @property
    def _editor(self) -> Editor:
        return Editor(AI_NAME, run_id=self.call.run_id if self.call else None)

    def _criterion(self, key: int) -> Criterion:
        assessment: Assessment = self.record
        criterion = assessment.criterion(key)
        if criterion is None:
            raise ToolError(f"This assessment has no criterion {key}. {editing.known_criteria(assessment)}")
        return criterion

    def _comment(self, key: int) -> Comment:
        assessment: Assessment = self.record
        comment = assessment.comment(key)
        if comment is None:
            known = ", ".join(str(other.id) for other in assessment.comments) or "none"
            raise ToolError(f"This assessment has no comment {key}. The comments are: {known}.")
        return comment

    def _total(self) -> str:
        total = self.record.total
        return f"The weights add up to {total}" + ("." if total == 100 else "; they must add up to 100.")


@contextmanager
def _told_to_the_model() -> Iterator[None]:
    """Pass a broken rule on to the model word for word."""
    try:
        yield
    except editing.EditError as error:
        raise ToolError(str(error)) from None


def _person(actor: Any) -> User | None:
    """Return who that is: the person in a request, or in the worker the id that the run has kept."""
    if isinstance(actor, User):
        return actor
    return db.session.get(User, int(actor)) if str(actor or "").isdecimal() else None


def _pairs(levels: list[LevelText]) -> list[tuple[str, str]]:
    return [(level.name, level.description) for level in levels]


def _criterion_data(criterion: Criterion) -> dict[str, Any]:
    return {
        "id": criterion.id,
        "position": criterion.position,
        "name": criterion.name,
        "weight": criterion.weight,
        "description": criterion.description,
        "levels": [{"name": level.name, "description": level.description} for level in criterion.levels],
    }


def _comment_data(comment: Comment) -> dict[str, Any]:
    return {
        "id": comment.id,
        "author": comment.author_name,
        "text": comment.body,
        "reply_to": comment.reply_to_id,
        "settled": comment.resolved,
    }
