"""The story that needs a person: it asks to publish an assessment, and a lead decides."""

from __future__ import annotations

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Use

from .scene import Scene
from .scene import Story


def publish(scene: Scene) -> list[Step]:
    """Check the rubric, ask to publish, and say what was decided."""
    match scene.turn:
        case 0:
            return [
                Say("Before students see it, I'll have the rubric checked.\n"),
                Use("read_assessment"),
                Use("check_rubric"),
            ]
        case 1 if scene.assessment["status"] == "published":
            return [Say("It is published already: students see it, and the rubric by which it is marked.")]
        case 1 if "not ready" in scene.said("check_rubric"):
            return [Say(f"I did not ask to publish it.\n\n{scene.said('check_rubric')}")]
        case 1:
            due = {"due_on": day} if (day := scene.assessment["due_on"]) else {}
            return [Say("The rubric is complete. A lead has the last word.\n"), Use("publish", **due)]
        case _ if scene.failures:
            return [Say("It is not published, and nothing has changed. " + " ".join(scene.failures))]
        case _:
            return [Say("It is **published**. Students see the instructions and the rubric from now on.")]


STORIES = [
    Story(
        "publish",
        "Publish",
        "Publish this assessment",
        "have the rubric checked, and ask to publish; a lead sees what would change, and decides",
        publish,
        (r"\bpublish", r"\b(release|hand out|show)\b.*\bstudents\b"),
    ),
]
