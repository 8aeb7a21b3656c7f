"""The prose that the stories say and write, apart from the logic that chooses it; the long pieces are in ``words/``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SOURCES = "Use of sources"

NEW_RUBRIC: list[dict[str, Any]] = [
    {
        "name": "Understanding of the task",
        "weight": 30,
        "description": "The work answers the question that was set, and all of it.",
    },
    {
        "name": "Evidence and reasoning",
        "weight": 35,
        "description": "Claims rest on evidence, and the steps from one to the other can be followed.",
    },
    {
        "name": "Structure",
        "weight": 20,
        "description": "Each part has one purpose, and the order helps the reader.",
    },
    {
        "name": "Language and presentation",
        "weight": 15,
        "description": "Sentences are clear and correct; figures, tables and references follow the house style.",
    },
]

_LEVELS: dict[str, tuple[str, str, str, str]] = {
    "understanding": (
        "Answers every part of the question and sees what makes it hard.",
        "Answers every part of the question.",
        "Answers the main part; a smaller one is missing or misread.",
        "Answers another question than the one that was set.",
    ),
    "evidence": (
        "Every claim is supported, and the limits of the support are named.",
        "Most claims are supported by suitable evidence.",
        "Some claims are supported; others are only asserted.",
        "Claims stand without evidence.",
    ),
    "structure": (
        "The order carries the argument; nothing could be moved without loss.",
        "Parts are in a sensible order and clearly marked.",
        "Parts can be told apart, but their order is loose.",
        "The reader has to find the order alone.",
    ),
    "source": (
        "Sources are varied, weighed against each other and fully cited.",
        "Sources are suitable and cited so that each can be found.",
        "Sources are few, or some citations are incomplete.",
        "Sources are missing or cannot be found.",
    ),
    "": (
        "Complete, precise and independent; could serve as an example.",
        "Complete, with small gaps that do not affect the result.",
        "Partly done; gaps affect the result.",
        "Not shown, or too little to judge.",
    ),
}
_NAMES = ("Excellent", "Good", "Developing", "Not yet")
_ALIKE = {"citation": "source", "reasoning": "evidence", "argument": "evidence", "analysis": "evidence"}


def words(name: str) -> str:
    """Return a piece of prose by its file's name."""
    return (Path(__file__).with_name("words") / f"{name}.md").read_text("utf-8")


def levels_for(name: str) -> list[dict[str, str]]:
    """Return four levels that suit a criterion's name."""
    folded = name.casefold()
    for word, key in _ALIKE.items():
        folded = folded.replace(word, key)
    key = next((key for key in _LEVELS if key and key in folded), "")
    return [
        {"name": level, "description": description} for level, description in zip(_NAMES, _LEVELS[key], strict=True)
    ]


ADVICE = (
    "When in doubt, compare with the second of the three samples: it stands exactly between two levels.",
    "The most common slip among markers is to reward quantity; two good instances are worth more than six thin ones.",
    "If the work shows this only in its last third, it shows it: students often find their way while they write.",
    "Judge what the work does, not what it announces. Introductions promise; look at what was kept.",
)
