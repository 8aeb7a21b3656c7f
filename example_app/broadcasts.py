"""Which pages show which rows. It is said here once: tools and forms edit the rows and know nothing of pages.

Parts are changed into their new form (``morph``), so that an open editor, a caret and the focus stay. Where rows stand
in an order, or a page shows what was counted from many, the page fetches itself again.
"""

from __future__ import annotations

from flask_instruct.live.turbo_stream import dom_id

from .extensions import instruct
from .models import Assessment
from .models import Comment
from .models import Criterion
from .models import Level
from .models import Mail


def itself(assessment: Assessment) -> Assessment:
    return assessment


def of_assessment(row: Criterion | Comment | Mail) -> Assessment:
    return row.assessment


def of_criterion(level: Level) -> Assessment:
    return level.criterion.assessment


def listing(assessment: Assessment) -> str:
    return "assessments"


def list_of(comment: Comment) -> str:
    """The list that shows a comment: of the replies to another, or of all that are none."""
    return dom_id(comment.reply_to, "replies") if comment.reply_to else dom_id(comment.assessment, "comments")


for part, columns, template in (
    ("heading", ("title", "course", "due_on", "status"), "assessments/_heading.html"),
    ("instructions", ("instructions", "instructions_at"), "assessments/_instructions.html"),
    # Each edit of the rubric is noted at the assessment, too.
    ("rubric_summary", ("changed_at",), "rubric/_summary.html"),
):
    instruct.broadcasts(Assessment, to=itself, part=part, on=columns, template=template, method="morph")
# The last changed comes first, and says how many criteria and open threads it has.
instruct.broadcasts(Assessment, to=listing)

instruct.broadcasts(Criterion, to=of_assessment, order_by="position", template="rubric/_criterion.html", method="morph")
instruct.broadcasts(Level, to=of_criterion)

instruct.broadcasts(
    Comment, to=of_assessment, target=list_of, on="body", template="comments/_comment.html", method="morph"
)
instruct.broadcasts(
    Comment, to=of_assessment, part="state", on="resolved", template="comments/_state.html", method="morph"
)

instruct.broadcasts(Mail, to=of_assessment)
