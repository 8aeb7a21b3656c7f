"""How each provider is told a schema: the plain form in its dialect, or a strict one where it can say it."""

from __future__ import annotations

from .reduced import NotStrict
from .strict import strict_form
from .telling import DIALECTS
from .telling import Told
from .telling import told
from .vocabulary import Dialect

__all__ = ["DIALECTS", "Dialect", "NotStrict", "Told", "strict_form", "told"]
