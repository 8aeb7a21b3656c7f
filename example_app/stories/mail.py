"""The story that reaches beyond the database: a mail to students, and what may honestly be said of it afterwards."""

from __future__ import annotations

from datetime import date

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Step
from flask_instruct.adapters.scripted import Use

from .scene import JsonObject
from .scene import Scene
from .scene import Story

FATES = {
    "done": "The mail has been handed over for delivery. It is listed under **Mail to students**, with its text.",
    "failed": "The mail was written, but it could **not** be sent. Ask me again when the mail server works.",
    "unknown": "The mail was written, and I do **not know** whether it went out. I won't send it again by myself: look "
    "into your mail server first, then choose on the card above whether it is done or to be run again.",
}
"""What is said of each fate of the sending, by the word that the tool's result has for it."""


def email_students(scene: Scene) -> list[Step]:
    """Read, write one mail about the deadline, then say what became of it and no more than that."""
    match scene.turn:
        case 0:
            return [Say("I'll look up what students have to know.\n"), Use("read_assessment")]
        case 1:
            subject, text = _mail(scene.assessment)
            return [
                Say("One mail, with the deadline and what is marked.\n"),
                Use("email_students", subject=subject, text=text),
            ]
        case _ if scene.failures:
            return [Say("I sent nothing. " + " ".join(scene.failures))]
        case _:
            found = scene.found(r"After the commit, send_mail: (\w+)")
            return [Say(FATES[found[0] if found else "unknown"])]


def _mail(assessment: JsonObject) -> tuple[str, str]:
    due = assessment["due_on"]
    day = f"{(when := date.fromisoformat(due)).day} {when:%B %Y}" if due else ""
    weights = "\n".join(f"- {each['name']}: {each['weight']} %" for each in assessment["criteria"])
    lines = [
        "Dear all,",
        f"“{assessment['title']}” is due on {day}." if day else f"the date of “{assessment['title']}” follows.",
        *([f"This is what is marked:\n\n{weights}"] if weights else []),
        "The instructions are on the page of the course. Please ask early if something is unclear.",
        assessment["course"],
    ]
    return f"Due {day}: {assessment['title']}"[:120] if day else assessment["title"], "\n\n".join(lines)


STORIES = [
    Story(
        "email",
        "E-mail students",
        "E-mail the students about the deadline",
        "write one mail to everybody in the course, which goes out once, and say what became of it",
        email_students,
        (r"\be-?mails?\b", r"\b(students?|deadline|remind)"),
    ),
]
