"""The longest story: a full review that changes nearly everything on the page, with some reasoning before it."""

from __future__ import annotations

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Use

from .scene import JsonObject
from .scene import Scene
from .scene import Story
from .scene import shares
from .texts import levels_for
from .writing import plain_instructions

ADDED = "Limits and uncertainty"
LIGHT = 10
"""A criterion of this weight or less is removed when there are five or more: it decides no mark."""


def review(scene: Scene) -> list[Step]:
    """Rewrite, add between others, move, remove, set weights and levels, check, and leave a comment."""
    if scene.turn == 0:
        return [
            Think("A review starts with what is there: the text, the rubric, and what people already said about both."),
            Say("I'll read everything first, and have the text and the rubric checked.\n"),
            Use("read_assessment"),
            Use("check_instructions"),
            Use("check_rubric"),
        ]
    if not scene.criteria:
        return [Say("There is no rubric yet, so a review would be guesswork. Ask me to build one, then to review it.")]
    match scene.turn:
        case 1:
            return [
                Say("The text first: short steps, practical facts in a list of their own.\n"),
                Use("update_instructions", new_instructions=plain_instructions(scene.assessment)),
            ]
        case 2:
            return [
                Say("Now the rubric: what is missing, what is too small to matter, what stands in the wrong place.\n"),
                *_reshape(scene),
            ]
        case 3:
            return [Say("Weights again, now that the criteria have changed.\n"), *_weigh(scene)]
        case 4:
            return [Use("check_rubric"), Use("add_comment", text=_note(scene))]
        case _:
            return [Say(_closing(scene))]


def _reshape(scene: Scene) -> list[Step]:
    criteria, steps = scene.criteria, list[Step]()
    light = _too_light(criteria)
    if light is not None:
        steps.append(Use("remove_criterion", criterion_id=light["id"]))
    if ADDED.casefold() not in {each["name"].casefold() for each in criteria}:
        steps.append(
            Use(
                "add_criterion",
                name=ADDED,
                weight=10,
                description="The work says how sure it is, and what would change its mind.",
                position=2,
                levels=levels_for(ADDED),
            )
        )
    kept = [each for each in criteria if each is not light]
    heaviest = max(kept, key=lambda each: each["weight"])
    if kept[0] is not heaviest:
        steps.append(Use("move_criterion", criterion_id=heaviest["id"], position=1))
    return steps or [Use("check_rubric")]


def _weigh(scene: Scene) -> list[Step]:
    light = _too_light(criteria := scene.criteria)
    kept = [each for each in criteria if each is not light]
    weights = {each["id"]: each["weight"] for each in kept}
    if added := scene.found(r"Added criterion (\d+)"):
        weights = {**shares(weights, 90), int(added[0]): 10}
    else:
        weights = shares(weights)
    bare = [each for each in kept if not each["levels"]]
    return [
        Use("set_weights", weights=[{"criterion_id": key, "weight": weight} for key, weight in weights.items()]),
        *(Use("set_levels", criterion_id=each["id"], levels=levels_for(each["name"])) for each in bare),
    ]


def _too_light(criteria: list[JsonObject]) -> JsonObject | None:
    lightest = min(criteria, key=lambda each: each["weight"])
    return lightest if len(criteria) > 4 and lightest["weight"] <= LIGHT else None


def _note(scene: Scene) -> str:
    changes = ["rewrote the instructions as short steps"]
    if scene.found(r"Added criterion (\d+)"):
        changes.append(f"added “{ADDED}”")
    changes += [f"removed “{name}”, which was too light to decide a mark" for name in scene.found(r"Removed “(.+?)”")]
    changes.append("set all weights so that they add up to 100")
    return f"I reviewed this assessment: I {', '.join(changes)}. Please look at the order of the criteria."


def _closing(scene: Scene) -> str:
    check = scene.said("check_rubric").splitlines()
    words = [result.content.splitlines()[0] for result in scene.results if result.name == "check_instructions"]
    return (
        "The review is finished.\n\n"
        f"- **Instructions:** were {words[0].rstrip('.') if words else 'unmeasured'}; now short steps.\n"
        f"- **Rubric:** {check[0] if check else 'not checked'}\n"
        "- **Discussion:** I left a comment that lists the changes.\n\n"
        "What I did not do: judge whether the task itself fits your course. That is yours."
    )


STORIES = [
    Story(
        "review",
        "Full review",
        "Give this assessment a full review",
        "rewrite, add, move, remove, weigh and comment: about a dozen changes",
        review,
        (r"\breview\b", r"\b(improve|polish|everything)\b"),
    ),
]
