"""What SQL text does, as far as its words tell: whether it only reads, and whether it ends a transaction."""

from __future__ import annotations

import re

_ASIDE = re.compile(
    r"'(?:[^']|'')*' | \"(?:[^\"]|\"\")*\" | --[^\n]* | /\*.*?\*/ | (?P<quote>\$\w*\$).*?(?P=quote)",
    re.DOTALL | re.VERBOSE,
)
"""Literals, quoted names and bodies, and comments: words in them do nothing here."""

_READS = re.compile(
    r"""[\s(]*(?:
        select\b(?!.*\binto\b)
        | explain\b(?!.*\banaly[sz]e\b)
        | with\b(?!.*\b(?:insert|update|delete|merge)\b)
        | (?:show|pragma|set|begin|savepoint|release|lock|values|table)\b
        | $
    )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_ENDS_TRANSACTION = re.compile(
    r"\s*(?:commit|end|abort|prepare\s+transaction|rollback(?!\s+(?:work\s+|transaction\s+)?to\b))\b", re.IGNORECASE
)


def reads(text: str) -> bool:
    """Tell whether SQL text changes nothing; functions that it calls may all the same."""
    return all(map(_READS.match, _statements(text)))


def ends_transaction(text: str) -> bool:
    """Tell whether a statement of SQL text ends the transaction that it runs in."""
    return any(map(_ENDS_TRANSACTION.match, _statements(text)))


def _statements(text: str) -> list[str]:
    # Without parameters psycopg sends whatever stands behind a semicolon too.
    return _ASIDE.sub(" ''", text).split(";") if _is_odd(text) else [text]


def _is_odd(text: str) -> bool:
    return ";" in text or "'" in text or '"' in text or "--" in text or "/*" in text
