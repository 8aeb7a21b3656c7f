"""Recorded traffic of real providers, where it lies beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "recorded"
ABSENT = f"no recorded traffic at {FOLDER}"


def streamed(*providers: str) -> list[Any]:
    """Return a test parameter for each streamed answer of these providers: its name and its place."""
    if not FOLDER.exists():
        return [pytest.param("", 0, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    expected = json.loads((FOLDER / "expected.json").read_text())
    return [
        pytest.param(name, place, id=f"{name}-{place}")
        for name, answers in expected.items()
        if name.startswith(tuple(f"{provider}/" for provider in providers))
        for place, answer in enumerate(answers)
        if answer["stream"]
    ]


def exchange(name: str, place: int = 0) -> dict[str, Any]:
    """Return one recorded request and answer; skips the test where there are none."""
    if not FOLDER.exists():
        pytest.skip(ABSENT)
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())["exchanges"][place]
    return found


def expected(name: str, place: int) -> dict[str, Any]:
    """Return what the answer means."""
    found: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())[name][place]
    return found


def arguments_of(answer: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Return the calls of an expected answer as id, name and arguments."""
    return [(call["id"], call["name"], call["arguments"]) for call in answer["calls"]]
