"""Stories in which something goes wrong on purpose: an overloaded service, a loop without end, hostile text."""

from __future__ import annotations

from flask_instruct.adapters.scripted import Fail
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Use

from .scene import Scene
from .scene import Story
from .texts import words

OVERLOAD_SECONDS = 4.0
"""How long the service stays overloaded after the assessment was read: the model call is tried again until then.

The model keeps no state, so it cannot count its failures; but like a real overload, this one passes with time.
"""


def overloaded(scene: Scene) -> list[Step]:
    """Fail in mid-sentence for some seconds after the first tool, then answer."""
    if scene.turn == 0:
        return [
            Say("I'll read the assessment. Then the service will be overloaded for a few seconds.\n"),
            Use("read_assessment"),
        ]
    if scene.seconds_since_reading < OVERLOAD_SECONDS:
        return [Say("There are several things to say about th"), Fail("overloaded", "529 overloaded_error: Overloaded")]
    data = scene.assessment
    return [
        Say(
            words("overloaded").format(
                criteria=len(data["criteria"]), total=data["weights_total"], comments=len(data["comments"])
            )
        )
    ]


def endless(scene: Scene) -> list[Step]:
    """Ask for one more check after each check, until the limit of rounds ends it."""
    return [Say(f"Check number {scene.turn + 1}.\n"), Use("check_rubric")]


def hostile(scene: Scene) -> list[Step]:
    """Write markup that would take over a careless page."""
    if scene.turn == 0:
        return [Use("add_comment", text=words("hostile_comment"))]
    return [Say(words("hostile_answer"))]


STORIES = [
    Story(
        "overloaded",
        "Overloaded service",
        "Show me an overloaded AI service",
        "fail in mid-sentence; the call is made again by itself until it goes through",
        overloaded,
        (r"\boverload", r"\b(error|fail|trouble|rate limit)"),
        demo=True,
    ),
    Story(
        "endless",
        "Endless loop",
        "Keep checking the rubric without end",
        "call the checker again and again, until the limit of rounds stops me",
        endless,
        (r"\b(without end|endless|for ?ever|loop)\b", r"\bkeep\b"),
        demo=True,
    ),
    Story(
        "hostile",
        "Hostile text",
        "Try to break this page",
        "write scripts, stream tags and hidden links, all of which stay text",
        hostile,
        (r"\b(break|attack|hack|inject)", r"\bscript"),
        demo=True,
    ),
]
