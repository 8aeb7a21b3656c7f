"""Stories that talk: answering the comment thread, answering a question, and saying what can be asked."""

from __future__ import annotations

from collections.abc import Sequence

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Use

from .scene import JsonObject
from .scene import Scene
from .scene import Story
from .texts import words

AI_AUTHOR = "AI assistant"
MOST_ANSWERS = 3


def answer_comments(scene: Scene) -> list[Step]:
    """Reply to each open thread of people that has no reply of the AI, then sum up."""
    if scene.turn == 0:
        return [Say("I'll read the discussion.\n"), Use("read_assessment")]
    waiting = _waiting(scene.assessment["comments"])[:MOST_ANSWERS]
    if not waiting:
        return [Say("Nobody is waiting for an answer: every open thread has one, or is settled.")]
    if scene.turn == 1:
        many = "one thread waits" if len(waiting) == 1 else f"{len(waiting)} threads wait"
        return [
            Say(f"{many.capitalize()} for an answer. I'll reply in each.\n"),
            *(Use("add_comment", text=_answer(each, scene.assessment), reply_to=each["id"]) for each in waiting),
        ]
    lines = "\n".join(f"- **{each['author']}** asks: “{_short(each['text'])}”" for each in waiting)
    return [
        Say(
            f"I answered {len(waiting)} open {'thread' if len(waiting) == 1 else 'threads'}:\n\n{lines}\n\n"
            "I left them open. Whether an answer settles the question is for you to say."
        )
    ]


def fair_rubric(scene: Scene) -> list[Step]:
    """Answer a question without touching anything."""
    return [Say(words("fair"))]


def what_can_be_asked(stories: Sequence[Story]) -> list[Step]:
    """Say honestly that this is a script, and what it can do."""
    lines = "\n".join(f"- “{story.prompt}”: I {story.about}." for story in stories)
    return [
        Say(
            "I am a **scripted model**: a list of stories, so that this demonstration works without a key and "
            "without a network. The tools that I call are real, and so is everything that changes on the page, "
            f"but I don't understand free text. I know these requests:\n\n{lines}\n\nSet `OPENAI_API_KEY` or "
            "`ANTHROPIC_API_KEY` and start again to put a real model in my place."
        )
    ]


def _waiting(comments: list[JsonObject]) -> list[JsonObject]:
    answered = {each["reply_to"] for each in comments if each["author"] == AI_AUTHOR}
    return [
        each
        for each in comments
        if each["reply_to"] is None
        and not each["settled"]
        and each["author"] != AI_AUTHOR
        and each["id"] not in answered
    ]


def _answer(comment: JsonObject, assessment: JsonObject) -> str:
    text = comment["text"].casefold()
    first_name = comment["author"].split()[0]
    if "weight" in text or "percent" in text:
        weights = ", ".join(f"{each['name']} {each['weight']}" for each in assessment["criteria"]) or "not set yet"
        return (
            f"{first_name}, the weights are now: {weights}. They add up to {assessment['weights_total']}. "
            "If language should count for less, say by how much, and I'll move it to the criteria you name."
        )
    if any(word in text for word in ("long", "words", "length", "sentence", "unclear", "clear")):
        return (
            f"{first_name}, the instructions now have {len(assessment['instructions'].split())} words. I can "
            "rewrite them as short steps, with the length and the deadline in a list of their own, without "
            "dropping a fact."
        )
    if any(word in text for word in ("source", "cite", "reference")):
        return (
            f"{first_name}, the rubric can have a criterion of its own for sources, at 10 percent. The other "
            "weights would shrink in proportion, so that the total stays at 100."
        )
    return (
        f"{first_name}, thank you. I read this as: “{_short(comment['text'])}” "
        "It is a decision for the two of you; once it is made, tell me and I'll change the page."
    )


def _short(text: str, limit: int = 90) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rsplit(" ", 1)[0] + "…"


STORIES = [
    Story(
        "comments",
        "Answer comments",
        "Read the comments and answer what is open",
        "reply to the open threads and sum them up",
        answer_comments,
        (r"\bcomments?\b", r"\b(discussion|thread)", r"\b(answer|reply|summar)"),
    ),
    Story(
        "fair",
        "Fair rubric?",
        "What makes a rubric fair?",
        "answer a question and change nothing",
        fair_rubric,
        (r"\bfair", r"\bwhat makes\b", r"\bwhy\b"),
    ),
]
