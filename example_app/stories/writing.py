"""Stories about texts: instructions, the title, and a long answer."""

from __future__ import annotations

import re
from datetime import date

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Use

from ..readability import sentences
from .scene import JsonObject
from .scene import Scene
from .scene import Story
from .scene import shares
from .texts import ADVICE
from .texts import words

HEADINGS = ("What you do", "Before you hand in")
_PRACTICAL = re.compile(
    r"\b(due|deadline|submit|upload|hand|words|pages|minutes|file|pdf|late|marked|rubric)\b", re.IGNORECASE
)


def rewrite(scene: Scene) -> list[Step]:
    """Measure the instructions, rewrite them as short steps, measure again."""
    match scene.turn:
        case 0:
            return [
                Say("I'll read the instructions and measure them first.\n"),
                Use("read_assessment"),
                Use("check_instructions"),
            ]
        case 1 if not scene.assessment["instructions"].strip():
            return [
                Say("There are no instructions yet. Write a sentence or two about the task, and I can work on them.")
            ]
        case 1:
            return [
                Say("Long sentences hide what students must do. I'll turn them into steps.\n"),
                Use("update_instructions", new_instructions=plain_instructions(scene.assessment)),
                Use("check_instructions"),
            ]
        case _:
            before, after = (result.content for result in scene.results if result.name == "check_instructions")
            return [
                Say(
                    "The instructions are rewritten. I kept every fact and only changed the order and the length "
                    f"of the sentences.\n\n- **Before:** {_first_line(before)}\n- **Now:** "
                    f"{_first_line(after)}\n\nPlease check that no step lost a nuance that matters in your course."
                )
            ]


def plain_instructions(assessment: JsonObject) -> str:
    """Rewrite instructions as short steps under two headings, keeping every sentence's content."""
    steps = [step for sentence in sentences(assessment["instructions"]) for step in _split(sentence)]
    steps = [step for step in steps if step.rstrip(".:") not in HEADINGS]
    practical = [step for step in steps if _PRACTICAL.search(step)]
    tasks = [step for step in steps if step not in practical] or steps
    if assessment["due_on"] and not any("due" in step.casefold() for step in practical):
        practical.append(f"The work is due on {_day(assessment['due_on'])}.")
    if not any("marked" in step for step in steps):
        practical.append("The rubric says how the work is marked.")
    parts = zip(HEADINGS, (tasks, practical), strict=True)
    return "\n\n".join(f"**{heading}**\n\n" + _list(lines, heading) for heading, lines in parts if lines)


def propose(scene: Scene) -> list[Step]:
    """Propose a title, instructions and weights at once, which a person sees before anything is done."""
    match scene.turn:
        case 0:
            return [Say("I'll read the assessment, and change nothing yet.\n"), Use("read_assessment")]
        case 1 if not scene.criteria or not scene.assessment["instructions"].strip():
            return [Say("There is too little here to revise: it needs instructions and a rubric first.")]
        case 1:
            weights = shares({each["id"]: 1 for each in scene.criteria})
            return [
                Say("This is what I would change. Nothing is done before you have chosen.\n"),
                Use(
                    "propose_revision",
                    new_title=_title(scene.assessment),
                    new_instructions=plain_instructions(scene.assessment),
                    weights=[{"criterion_id": key, "weight": weight} for key, weight in weights.items()],
                ),
            ]
        case _ if scene.failures:
            return [Say("I left everything as it was. " + " ".join(scene.failures))]
        case _:
            return [Say("What you accepted is done, and nothing else. *Undo* takes it back.")]


def better_title(scene: Scene) -> list[Step]:
    """Call a tool that does not exist, be told which do, and use the right one."""
    match scene.turn:
        case 0:
            return [Use("read_assessment")]
        case 1:
            return [
                Say(f"“{scene.assessment['title']}” names the form, not the question. I'll change that.\n"),
                Use("set_title", title=_title(scene.assessment)),
            ]
        case 2:
            return [
                Say("There is no tool of that name; the right one is *rename*.\n"),
                Use("rename", new_title=_title(scene.assessment)),
            ]
        case _:
            return [
                Say(
                    f"The title is now **{_title(scene.assessment)}**. The old one was “{scene.assessment['title']}”; "
                    "you can put it back under *Details*."
                )
            ]


def marking_guide(scene: Scene) -> list[Step]:
    """Give a long answer of about two thousand tokens."""
    if scene.turn == 0:
        return [Say("I'll read the assessment, then write the guide here. It will be long.\n"), Use("read_assessment")]
    assessment = scene.assessment
    criteria = assessment["criteria"] or [{"name": "Overall quality", "weight": 100, "description": "", "levels": []}]
    table = "\n".join(f"| {each['name']} | {each['weight']} | {_question(each)} |" for each in criteria)
    sections = "\n".join(_section(number, each) for number, each in enumerate(criteria))
    guide = words("guide").format(
        title=assessment["title"],
        course=assessment["course"],
        count=len(criteria),
        total=sum(each["weight"] for each in criteria),
        table=table,
        sections=sections.rstrip(),
    )
    return [Say(guide, size=16)]


def _split(sentence: str) -> list[str]:
    """Split a long sentence where its parts can stand alone."""
    parts = re.split(r";\s+|,\s+and\s+(?=(?:you|the|it|they|your|this|please)\b)", sentence.rstrip("."))
    return [part[0].upper() + part[1:] + ("" if part[-1] in "?!:" else ".") for part in parts if part]


def _list(lines: list[str], heading: str) -> str:
    numbered = heading == HEADINGS[0]
    return "\n".join(f"{number}. {line}" if numbered else f"- {line}" for number, line in enumerate(lines, 1))


def _day(iso: str) -> str:
    day = date.fromisoformat(iso)
    return f"{day.day} {day:%B %Y}"


def _title(assessment: JsonObject) -> str:
    old: str = assessment["title"]
    kind, separator, topic = old.partition(":")
    if separator:
        return f"{topic.strip()[:1].upper()}{topic.strip()[1:]} ({kind.strip().lower()})"
    return f"{old}: what the evidence can and cannot show"[:120]


def _question(criterion: JsonObject) -> str:
    best = criterion["levels"][0]["description"].rstrip(".") if criterion["levels"] else ""
    return f"{best}: is that so?" if best else "Where in the work do I see this?"


def _section(number: int, criterion: JsonObject) -> str:
    levels = "".join(f"\n- **{level['name']}:** {level['description']}" for level in criterion["levels"])
    return words("guide_section").format(
        name=criterion["name"],
        weight=criterion["weight"],
        description=criterion["description"] or "This criterion has no description yet; agree on one at the meeting.",
        levels=f"\n{levels}" if levels else "",
        advice=ADVICE[number % len(ADVICE)],
    )


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


STORIES = [
    Story(
        "propose",
        "Preview a revision",
        "Preview a revision before you change anything",
        "propose a title, instructions and weights at once; you see what would change, and choose",
        propose,
        (r"\bpreview", r"\bpropose", r"\brevision\b"),
    ),
    Story(
        "rewrite",
        "Plain language",
        "Rewrite the instructions in plain language",
        "measure the instructions and rewrite them as short steps",
        rewrite,
        (r"\binstructions?\b", r"\b(rewrite|clear|plain|simpl|shorten|improve)"),
    ),
    Story(
        "title",
        "Better title",
        "Find a better title",
        "rename the assessment; it asks for a tool that does not exist, and corrects itself",
        better_title,
        (r"\btitle\b", r"\b(rename|name)\b"),
    ),
    Story(
        "guide",
        "Marking guide",
        "Write a marking guide for new examiners",
        "give a long answer, about two thousand tokens of Markdown",
        marking_guide,
        (r"\b(marking|examiner|marker)", r"\bguide\b", r"\blong\b"),
    ),
]
