"""The scripted model of the studio: a catalogue of stories and the choice among them by what was asked."""

from __future__ import annotations

from collections.abc import Iterable

from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import register_script
from flask_instruct.messages import ModelRequest

from ..models import TOTAL
from ..models import Assessment
from . import mail
from . import publishing
from . import review
from . import rubric
from . import talk
from . import trouble
from . import writing
from .scene import Scene
from .scene import Story

MODEL = "scripted:studio"

_ORDER = (
    *("review", "repair", "build", "rewrite", "publish", "propose", "comments"),
    *("email", "sources", "levels", "guide", "half", "title", "fair"),
)
_PLACES = (review, rubric, writing, talk, mail, publishing, trouble)
_ALL = [each for place in _PLACES for each in place.STORIES]

CATALOGUE: tuple[Story, ...] = tuple(
    sorted(_ALL, key=lambda each: _ORDER.index(each.name) if each.name in _ORDER else len(_ORDER))
)
"""All stories, the most telling first; trouble comes last."""


def story(name: str) -> Story:
    return next(each for each in CATALOGUE if each.name == name)


def choose(prompt: str) -> Story | None:
    """Return the story that fits a prompt best, None when none fits at all."""
    best = max(CATALOGUE, key=lambda each: each.fits(prompt))
    return best if best.fits(prompt) else None


def play(request: ModelRequest) -> list[Step]:
    """Give the steps of the next turn."""
    scene = Scene(request)
    chosen = choose(scene.prompt)
    return chosen.play(scene) if chosen else talk.what_can_be_asked(CATALOGUE)


def register() -> None:
    """Make the stories answer under ``scripted:studio``."""
    register_script(MODEL.partition(":")[2], play)


def prompts_for(assessment: Assessment, *, demo: bool) -> list[tuple[str, str]]:
    """Return what to suggest on the page of an assessment, as label and prompt, the most useful first."""
    pointless = set(_pointless(assessment))
    return [(each.label, each.prompt) for each in CATALOGUE if (demo or not each.demo) and each.name not in pointless]


def _pointless(assessment: Assessment) -> Iterable[str]:
    """Name the stories that would find nothing to do."""
    if assessment.criteria:
        yield "build"
    else:
        yield from ("review", "repair", "sources", "levels", "half", "endless", "publish", "propose")
    if assessment.total == TOTAL:
        yield "repair"
    if all(criterion.levels for criterion in assessment.criteria):
        yield "levels"
    if not assessment.open_threads:
        yield "comments"
