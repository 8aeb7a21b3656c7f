"""Every change that can be made to an assessment, with its rules, for people's forms and the AI's tools alike.

Nothing here commits, and nothing knows of pages: callers do both.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from datetime import date

from sqlalchemy import select
from sqlalchemy.orm import object_session

from .database import now
from .models import STATUSES
from .models import TOTAL
from .models import Assessment
from .models import Comment
from .models import Criterion
from .models import Editor
from .models import Level
from .models import Mail
from .models import Student

MAX_CRITERIA = 12
MIN_LEVELS = 2
MAX_LEVELS = 6
MAX_INSTRUCTIONS = 20_000
MAX_COMMENT = 4_000
MAX_MAIL = 8_000


class EditError(ValueError):
    """Raise when a change breaks a rule; says which, and what would do. ``field`` names the form's field."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def rename(
    assessment: Assessment, title: str, by: Editor, *, course: str | None = None, due_on: date | None = None
) -> None:
    """Give a new title, and from the form a course and a due date."""
    assessment.title = _line(title, "title", 120)
    if course is not None:
        assessment.course = _line(course, "course", 120)
        assessment.due_on = due_on
    _touch(assessment, by)


def set_status(assessment: Assessment, status: str, by: Editor) -> None:
    if status not in STATUSES:
        raise EditError(f"The status is one of {', '.join(STATUSES)}.", "status")
    if status == "published" != assessment.status and (found := problems(assessment)):
        raise EditError(f"Only a complete rubric can be published. {' '.join(found)}", "status")
    assessment.status = status
    _touch(assessment, by)


def publish(assessment: Assessment, by: Editor, *, due_on: date | None = None) -> None:
    """Show an assessment to its students, who have until a day; without one the due date stays as it is."""
    if assessment.status == "published":
        raise EditError("The assessment is published already.", "status")
    set_status(assessment, "published", by)
    if due_on is not None:
        assessment.due_on = due_on


def rewrite_instructions(assessment: Assessment, text: str, by: Editor) -> None:
    assessment.instructions = _text(text, "instructions", MAX_INSTRUCTIONS)
    assessment.instructions_by = by.name
    assessment.instructions_run = by.run_id
    assessment.instructions_at = now()
    _touch(assessment, by)


def add_criterion(
    assessment: Assessment,
    by: Editor,
    *,
    name: str,
    weight: int,
    description: str = "",
    position: int | None = None,
) -> Criterion:
    """Add a criterion at a position counted from 1, at the end when it is None; it has its id at once."""
    if len(assessment.criteria) >= MAX_CRITERIA:
        raise EditError(f"A rubric has at most {MAX_CRITERIA} criteria; merge or remove one first.")
    criterion = Criterion(position=0, weight=_weight(weight))
    criterion.name = _free_name(assessment, criterion, name)
    criterion.description = description.strip()
    assessment.criteria.insert(_place(assessment, position), criterion)
    _renumber(assessment)
    _mark(criterion, by)
    _flush(assessment)
    return criterion


def change_criterion(
    criterion: Criterion,
    by: Editor,
    *,
    name: str | None = None,
    weight: int | None = None,
    description: str | None = None,
) -> None:
    """Change what is not None."""
    if name is not None:
        criterion.name = _free_name(criterion.assessment, criterion, name)
    if weight is not None:
        criterion.weight = _weight(weight)
    if description is not None:
        criterion.description = description.strip()
    _mark(criterion, by)


def remove_criterion(criterion: Criterion, by: Editor) -> None:
    assessment = criterion.assessment
    assessment.criteria.remove(criterion)
    _renumber(assessment)
    _touch(assessment, by)


def move_criterion(criterion: Criterion, position: int, by: Editor) -> None:
    """Move a criterion to a position counted from 1; past the end is the end."""
    assessment = criterion.assessment
    ordered = [other for other in assessment.criteria if other is not criterion]
    ordered.insert(max(0, min(position - 1, len(ordered))), criterion)
    for number, other in enumerate(ordered, 1):
        other.position = number
    assessment.criteria.sort(key=lambda other: other.position)
    _touch(assessment, by)


def set_weights(assessment: Assessment, weights: Mapping[int, int], by: Editor) -> None:
    """Set the weights of all criteria at once, by criterion id; they must add up to 100.

    :raises EditError: naming each criterion that is missing or unknown, or the wrong total.
    """
    missing = [f"{other.id} ({other.name})" for other in assessment.criteria if other.id not in weights]
    unknown = [str(key) for key in weights if assessment.criterion(key) is None]
    if unknown:
        raise EditError(
            f"No criterion of this assessment has the id {', '.join(unknown)}. {known_criteria(assessment)}"
        )
    if missing:
        raise EditError(f"Give a weight for every criterion; missing: {', '.join(missing)}.")
    total = sum(_weight(weight) for weight in weights.values())
    if total != TOTAL:
        raise EditError(f"These weights add up to {total}, not {TOTAL}: {_off_by(total)}.")
    for criterion in assessment.criteria:
        if criterion.weight != weights[criterion.id]:
            criterion.weight = weights[criterion.id]
            _mark(criterion, by)


def set_levels(criterion: Criterion, levels: Sequence[tuple[str, str]], by: Editor) -> None:
    """Replace a criterion's levels, best first, each a name and a description; an empty list removes them."""
    if levels and not MIN_LEVELS <= len(levels) <= MAX_LEVELS:
        raise EditError(
            f"A criterion has {MIN_LEVELS} to {MAX_LEVELS} levels, best first, or none; got {len(levels)}.", "levels"
        )
    rows = [(_line(name, "levels", 40), _text(description, "levels", 500)) for name, description in levels]
    names = [name.casefold() for name, _ in rows]
    if len(set(names)) < len(names):
        raise EditError("Two levels of a criterion cannot have the same name.", "levels")
    criterion.levels = [
        Level(position=number, name=name, description=description) for number, (name, description) in enumerate(rows, 1)
    ]
    _mark(criterion, by)


def add_comment(assessment: Assessment, body: str, by: Editor, *, reply_to: Comment | None = None) -> Comment:
    """Add a comment, or a reply to one; a reply to a reply joins the same thread. It has its id at once."""
    thread = reply_to.reply_to or reply_to if reply_to is not None else None
    comment = Comment(body=_text(body, "body", MAX_COMMENT), author_name=by.name, author_id=by.user_id)
    comment.run_id = by.run_id
    comment.reply_to = thread
    assessment.comments.append(comment)
    _touch(assessment, by)
    _flush(assessment)
    return comment


def resolve(comment: Comment, by: Editor, *, resolved: bool = True) -> None:
    """Mark a thread as settled, or open it again."""
    thread = comment.reply_to or comment
    thread.resolved = resolved
    _touch(thread.assessment, by)


def write_mail(assessment: Assessment, subject: str, text: str, by: Editor) -> Mail:
    """Write a mail to the students of the course; it has its id at once, and is not sent.

    :raises EditError: when it breaks a rule, or there is nobody to write to.
    """
    session = object_session(assessment)
    assert session is not None
    query = select(Student.email).where(Student.course == assessment.course).order_by(Student.email)
    recipients = list(session.scalars(query))
    if not recipients:
        raise EditError(f"Nobody is enrolled in {assessment.course}, so there is nobody to write to.")
    mail = Mail(subject=_line(subject, "subject", 120), body=_text(text, "mail", MAX_MAIL), recipients=recipients)
    mail.run_id = by.run_id
    assessment.mails.append(mail)
    _touch(assessment, by)
    _flush(assessment)
    return mail


def problems(assessment: Assessment) -> list[str]:
    """Return what is wrong with the rubric, one sentence each; empty when it can be used."""
    if not assessment.criteria:
        return ["The rubric has no criteria yet."]
    found = []
    if assessment.total != TOTAL:
        found.append(
            f"The weights add up to {assessment.total}; they must add up to {TOTAL} ({_off_by(assessment.total)})."
        )
    found += [f"“{other.name}” has weight 0." for other in assessment.criteria if other.weight == 0]
    found += [f"“{other.name}” has no levels." for other in assessment.criteria if not other.levels]
    return found


def known_criteria(assessment: Assessment) -> str:
    """Say which ids there are, for whoever named one that is not."""
    if not assessment.criteria:
        return "The rubric has no criteria."
    return "The criteria are " + ", ".join(f"{other.id} ({other.name})" for other in assessment.criteria) + "."


def _off_by(total: int) -> str:
    return f"{total - TOTAL} too many" if total > TOTAL else f"{TOTAL - total} missing"


def _touch(assessment: Assessment, by: Editor) -> None:
    assessment.changed_at = now()
    assessment.changed_by = by.name


def _mark(criterion: Criterion, by: Editor) -> None:
    criterion.changed_by = by.name
    criterion.changed_run = by.run_id
    _touch(criterion.assessment, by)


def _renumber(assessment: Assessment) -> None:
    for number, criterion in enumerate(assessment.criteria, 1):
        criterion.position = number


def _place(assessment: Assessment, position: int | None) -> int:
    end = len(assessment.criteria)
    return end if position is None else max(0, min(position - 1, end))


def _flush(assessment: Assessment) -> None:
    session = object_session(assessment)
    if session is not None:
        session.flush()


def _weight(weight: int) -> int:
    if not 0 <= weight <= TOTAL:
        raise EditError(f"A weight is a whole number from 0 to {TOTAL}; got {weight}.", "weight")
    return weight


def _free_name(assessment: Assessment, criterion: Criterion, name: str) -> str:
    name = _line(name, "name", 80)
    taken = {other.name.casefold() for other in assessment.criteria if other is not criterion}
    if name.casefold() in taken:
        raise EditError(f"There is a criterion called “{name}” already.", "name")
    return name


def _line(text: str, field: str, limit: int) -> str:
    text = " ".join(text.split())
    if not text:
        raise EditError(f"The {field} cannot be empty.", field)
    if len(text) > limit:
        raise EditError(f"The {field} can have {limit} characters; this has {len(text)}.", field)
    return text


def _text(text: str, field: str, limit: int) -> str:
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise EditError(f"The {'comment' if field == 'body' else field} cannot be empty.", field)
    if len(text) > limit:
        raise EditError(f"This can have {limit:,} characters; it has {len(text):,}.", field)
    return text
