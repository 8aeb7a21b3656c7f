"""Stories about the rubric: building one, repairing its weights, and being corrected by the tools on the way."""

from __future__ import annotations

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Think
from flask_instruct.adapters.scripted import Use

from .scene import JsonObject
from .scene import Scene
from .scene import Story
from .scene import shares
from .texts import NEW_RUBRIC
from .texts import SOURCES
from .texts import levels_for


def repair_weights(scene: Scene) -> list[Step]:
    """Check, find the total wrong, set weights that add up to 100, check again."""
    match scene.turn:
        case 0:
            return [Say("I'll look at the rubric and let the checker count.\n"), *_read_and_check()]
        case 1:
            total, criteria = scene.assessment["weights_total"], scene.criteria
            if not criteria:
                return [Say("This rubric is empty, so there are no weights to repair. I can build one if you ask me.")]
            if total == 100:
                return [Say(f"The {len(criteria)} weights add up to exactly **100**. There is nothing to repair.")]
            weights = shares(_weights(criteria))
            return [
                Think(f"{' + '.join(str(each['weight']) for each in criteria)} = {total}. I keep the proportions."),
                Say(f"The weights add up to **{total}**. I'll scale them to 100 and keep their proportions.\n"),
                _set(weights),
                Use("check_rubric"),
            ]
        case _:
            return [Say(_before_and_after(scene, shares(_weights(scene.criteria))))]


def add_sources(scene: Scene) -> list[Step]:
    """Add a criterion of 10, be told that the weights total 110, take the ten from the others."""
    match scene.turn:
        case 0:
            return [Say("First I'll read the rubric as it is.\n"), Use("read_assessment")]
        case 1:
            names = {each["name"].casefold() for each in scene.criteria}
            if SOURCES.casefold() in names:
                return [Say(f"The rubric already has a criterion “{SOURCES}”, so I left everything as it is.")]
            place = min(2, len(scene.criteria)) + 1
            return [
                Say("I'll add the criterion after the second one, at 10 percent, and have the rubric checked.\n"),
                Use(
                    "add_criterion",
                    name=SOURCES,
                    weight=10,
                    description="Sources are suitable, varied and cited so that a reader can find them.",
                    position=place,
                    levels=levels_for(SOURCES),
                ),
                Use("check_rubric"),
            ]
        case 2 if added := scene.found(r"Added criterion (\d+)"):
            total = scene.assessment["weights_total"] + 10
            if total == 100:
                return [Say("Done. With the new criterion the weights add up to **100**.")]
            return [
                Say(
                    f"The check is right: the weights now total **{total}**. I'll take the difference from the rest.\n"
                ),
                _set(_with_sources(scene, int(added[0]))),
                Use("check_rubric"),
            ]
        case 2:
            return [Say("I could not add the criterion: " + " ".join(scene.failures))]
        case _:
            added = scene.found(r"Added criterion (\d+)")
            weights = _with_sources(scene, int(added[0]))
            return [Say(f"Added **{SOURCES}** at 10. " + _before_and_after(scene, weights))]


def build(scene: Scene) -> list[Step]:
    """Make four criteria with levels for an empty rubric, then check it."""
    match scene.turn:
        case 0:
            return [Say("I'll read the task before I decide what to mark.\n"), Use("read_assessment")]
        case 1 if scene.criteria:
            names = ", ".join(f"*{each['name']}*" for each in scene.criteria)
            return [
                Say(
                    f"There is a rubric already: {names}. I won't replace people's work with a new one. "
                    "I can repair its weights, describe its levels or add a criterion if you ask me."
                )
            ]
        case 1:
            return [
                Say("Four criteria fit this task. I'll add them with their levels.\n"),
                *(Use("add_criterion", **each, levels=levels_for(each["name"])) for each in NEW_RUBRIC),
            ]
        case 2:
            return [Use("check_rubric")]
        case _:
            rows = "\n".join(f"| {each['name']} | {each['weight']} |" for each in NEW_RUBRIC)
            return [
                Say(
                    f"The rubric stands. {_first_line(scene.said('check_rubric'))}\n\n"
                    f"| Criterion | Weight |\n| --- | ---: |\n{rows}\n\n"
                    "Please read the levels with your course in mind; their words are general on purpose."
                )
            ]


def describe_levels(scene: Scene) -> list[Step]:
    """Give one level only, be refused, then give four to every criterion that has none."""
    match scene.turn:
        case 0:
            return [Say("Let me see which criteria lack levels.\n"), *_read_and_check()]
        case 1:
            bare = [each for each in scene.criteria if not each["levels"]]
            if not bare:
                return [Say("Every criterion has levels already, so there is nothing to add.")]
            only = levels_for(bare[0]["name"])[:1]
            return [
                Say(f"“{bare[0]['name']}” has none. I'll start there.\n"),
                Use("set_levels", criterion_id=bare[0]["id"], levels=only),
            ]
        case 2:
            bare = [each for each in scene.criteria if not each["levels"]]
            return [
                Say(
                    "One level alone is refused, and rightly: a marker needs something to choose between. Four each.\n"
                ),
                *(Use("set_levels", criterion_id=each["id"], levels=levels_for(each["name"])) for each in bare),
            ]
        case 3:
            return [Use("check_rubric")]
        case _:
            count = sum(not each["levels"] for each in scene.criteria)
            which = "One criterion now has" if count == 1 else f"{count} criteria now have"
            return [
                Say(f"{which} four levels, from *Excellent* to *Not yet*. {_first_line(scene.said('check_rubric'))}")
            ]


def half_for_first(scene: Scene) -> list[Step]:
    """Write a weight in words, be told it must be a number, then set all weights."""
    match scene.turn:
        case 0:
            return [Use("read_assessment")]
        case 1:
            if len(scene.criteria) < 2:
                return [Say("That needs a rubric with at least two criteria.")]
            first = scene.criteria[0]
            return [
                Say(f"The first criterion is “{first['name']}”, now at {first['weight']}.\n"),
                Use("update_criterion", criterion_id=first["id"], weight="half"),
            ]
        case 2:
            return [
                Say("The tool wants a whole number. I'll set all weights together, so that they add up.\n"),
                _set(_half(scene.criteria)),
            ]
        case _:
            return [Say(_before_and_after(scene, _half(scene.criteria)))]


def _read_and_check() -> list[Step]:
    return [Use("read_assessment"), Use("check_rubric")]


def _weights(criteria: list[JsonObject]) -> dict[int, int]:
    return {each["id"]: each["weight"] for each in criteria}


def _with_sources(scene: Scene, added: int) -> dict[int, int]:
    return {**shares(_weights(scene.criteria), 90), added: 10} if scene.criteria else {added: 100}


def _half(criteria: list[JsonObject]) -> dict[int, int]:
    first, *rest = criteria
    return {first["id"]: 50, **shares(_weights(rest), 50)}


def _set(weights: dict[int, int]) -> Use:
    return Use("set_weights", weights=[{"criterion_id": key, "weight": weight} for key, weight in weights.items()])


def _before_and_after(scene: Scene, weights: dict[int, int]) -> str:
    if scene.failures:
        return "That did not work: " + " ".join(scene.failures)
    rows = "\n".join(f"| {each['name']} | {each['weight']} | {weights[each['id']]} |" for each in scene.criteria)
    return f"The weights add up to **100** again.\n\n| Criterion | Before | Now |\n| --- | ---: | ---: |\n{rows}\n"


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


STORIES = [
    Story(
        "repair",
        "Repair the weights",
        "Check the rubric and repair the weights",
        "count the weights, and bring them back to 100",
        repair_weights,
        (r"\bweights?\b", r"\b(repair|fix|balance|correct)", r"\b(100|total|add up)\b"),
    ),
    Story(
        "sources",
        "Add a sources criterion",
        "Add a criterion for the use of sources",
        "add a criterion; the weights total 110 at first, and it repairs them",
        add_sources,
        (r"\badd\b.*\bcriteri", r"\bsources?\b", r"\bcit(e|ation)"),
    ),
    Story(
        "build",
        "Build a rubric",
        "Build a rubric from nothing",
        "make four criteria with levels where there are none",
        build,
        (r"\b(build|make|create|draft|write)\b.*\brubric\b", r"\bfrom (nothing|scratch)\b"),
    ),
    Story(
        "levels",
        "Describe levels",
        "Describe levels for every criterion",
        "write levels; its first try is refused, and it corrects itself",
        describe_levels,
        (r"\blevels?\b", r"\bdescri(be|ptors?)"),
    ),
    Story(
        "half",
        "Half for the first",
        "Let the first criterion count for half the mark",
        "change a weight; it sends a word instead of a number, and corrects itself",
        half_for_first,
        (r"\bhalf\b", r"\bfirst criterion\b"),
    ),
]
