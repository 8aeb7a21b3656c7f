"""What leaves a run as it stands, for a resume: nobody's fault, and nothing that a second try would bring again."""

from __future__ import annotations

import sqlalchemy as sa

PASSING = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError)
"""A database that could not be asked, which says nothing of what was asked for (rails/rails#57742)."""


class Interrupted(BaseException):
    """Raised to leave a run as it stands, for another worker to resume.

    Not an :class:`Exception`: neither a tool nor the loop may take it for an error of the model or the app.
    """
