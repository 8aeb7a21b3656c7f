"""People's part of the discussion: comments, replies, and settling a thread."""

from __future__ import annotations

from flask import Blueprint
from flask import redirect
from flask import request
from flask import url_for
from werkzeug.wrappers import Response

from .. import editing
from ..database import db
from .assessments import page_of
from .finding import assessment_or_404
from .finding import comment_or_404
from .finding import editor

blueprint = Blueprint("comments", __name__, url_prefix="/assessments/<int:key>/comments")


@blueprint.post("")
def add(key: int) -> Response | tuple[str, int]:
    assessment = assessment_or_404(key)
    reply_to = request.form.get("reply_to", type=int)
    thread = comment_or_404(assessment, reply_to) if reply_to is not None else None
    body = request.form.get("body", "")
    try:
        comment = editing.add_comment(assessment, body, editor(), reply_to=thread)
    except editing.EditError as error:
        return page_of(assessment, comment_error=error, comment_body=body, reply_to=reply_to), 422
    db.session.commit()
    return redirect(url_for("assessments.show", key=key, _anchor=f"comment_{comment.id}"))


@blueprint.post("/<int:comment_key>/settle")
def settle(key: int, comment_key: int) -> Response:
    assessment = assessment_or_404(key)
    comment = comment_or_404(assessment, comment_key)
    thread = comment.reply_to or comment
    editing.resolve(thread, editor(), resolved=request.form.get("settled") == "yes")
    db.session.commit()
    return redirect(url_for("assessments.show", key=key, _anchor=f"comment_{thread.id}"))
