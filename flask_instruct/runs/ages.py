"""Ages as people write and read them: ``30d``, ``12h``."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60}
"""Seconds of each unit that an age may be given in."""

_AGE = re.compile(r"([1-9][0-9]{0,4})([wdhm])")


def read_age(text: str) -> timedelta:
    """Return the age that ``30d``, ``12h``, ``2w`` or ``90m`` means.

    :raises ValueError: for anything else.
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no age: write a number and one of m, h, d, w, as in 12h, 30d or 2w.")
    return timedelta(seconds=int(found[1]) * UNITS[found[2]])


def write_age(seconds: float) -> str:
    """Return an age in its largest unit up to days: ``40s``, ``12m``, ``5h`` or ``3d``."""
    unit = next((unit for unit in ("d", "h", "m") if seconds >= UNITS[unit]), None)
    return f"{seconds:.0f}s" if unit is None else f"{seconds // UNITS[unit]:.0f}{unit}"
