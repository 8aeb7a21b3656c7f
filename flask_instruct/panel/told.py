"""The sentences that the ledger's rows hold in English, in the reader's language: why a run failed, why something
cannot be undone, what was changed since. What is not the package's own, such as a tool's words, stays as it is.
"""

from __future__ import annotations

import re
from functools import cache

from .language import gettext
from .language import marked as _

SENTENCES = (
    _("It changed nothing that could be taken back."),
    _("It is still at work: stop it, or wait for its end."),
    _("It has been undone."),
    _("Someone else was faster: it has been undone meanwhile."),
    _("This kind of row is not known any more."),
    _("It is gone already."),
    _("It was changed since: %(what)s."),
    _("Not all of its values were kept."),
    _("There is a row with this key by now."),
    _("Its row is gone."),
    _("There is no such field any more."),
    _("Its value was not kept."),
    _("Somebody changed it since."),
    _("Rows of %(table)s refer to it by now."),
    _("It ran SQL text (%(what)s), of which nobody knows what it changed."),
    _("What %(what)s of %(table)s was before is not kept."),
    _("A row of %(table)s has columns that could not be seen."),
    _("A key of %(table)s is too long to be kept."),
    _("Keys of rows of %(table)s were changed."),
    _("Rows were added to %(table)s by a statement that does not tell their keys."),
    _("A statement changed rows of %(table)s and of other tables."),
    _("A statement changed rows of %(table)s."),
    _("Rows were added to %(table)s by an INSERT from a SELECT."),
    _("Rows of %(table)s were added or changed by an upsert."),
    _("What %(what)s of %(table)s was before could not be seen."),
    _("The key of a row of %(table)s was changed."),
    _("Rows of %(table)s have no key, so what became of them is lost."),
    _("What %(what)s of %(table)s would become is not kept."),
    _("A row of %(table)s became one of another class."),
    _("Rows of other tables no longer refer to %(table)s, since their key there changed."),
    _("A row of %(table)s cannot come back: the database alone makes its key."),
    _("The database alone makes the key of a row of %(table)s."),
    _("A key of %(table)s is of a kind that is not kept."),
    _("It refers to a new row of %(table)s that was not accepted."),
    _("It wrote to the database through a connection of its own, which nobody followed."),
    _("The database refused it: a rule of its data, such as a unique or a foreign key, would be broken."),
    _("The app's own rules refused it."),
    _("The answer was cut off because it became too long."),
    _("The AI service blocked this answer."),
    _("The model declined to answer."),
    _("This conversation has become too long for the model."),
    _("The model did not come to an end."),
    _("The model sent a call that could not be understood."),
    _("The AI service reported an error."),
    _("The model stopped for an unknown reason."),
    _("Something went wrong on this site."),
    _("The record this was about no longer exists."),
    _("This site no longer knows how to do this."),
    _("The AI is not set up on this site."),
    _("This took too long and was ended."),
    _("The work on this was interrupted too often and was ended."),
    _("The AI service did not accept this site's key."),
    _("The AI service does not allow this site to use that model."),
    _("The AI service does not know the chosen model."),
    _("The AI service could not read this request."),
    _("The AI service is receiving too many requests."),
    _("The AI service is overloaded."),
    _("The AI service had an internal error."),
    _("The AI service did not answer in time."),
    _("The AI service could not be reached."),
    _("The answer was cut off by the AI service."),
    _("The AI service sent something that could not be understood."),
    _("The AI service sent an empty answer."),
    _("The chosen model cannot read what was attached."),
    _("This site's account at the AI service has no credit left."),
)
"""What rooms below write for people; ``%(name)s`` stands for names of tables, fields and statements."""

FAULTS = (
    _("is required"),
    _("is not a known argument"),
    _("Input should be a valid string"),
    _("Input should be a valid integer"),
    _("Input should be a valid number"),
    _("Input should be a valid decimal"),
    _("Input should be a valid boolean"),
    _("Input should not be a boolean"),
    _("Input should be a valid array"),
    _("Input should be an object"),
    _("Input should be a valid date"),
    _("Input should be a valid date in the format YYYY-MM-DD"),
    _("Input should be a valid datetime"),
    _("Input should be a date and time in ISO 8601 form"),
    _("Input should be in a valid time format"),
    _("Input should be a valid duration"),
    _("Input should be a valid UUID"),
    _("Input should be greater than or equal to %(least)s"),
    _("Input should be greater than %(least)s"),
    _("Input should be less than or equal to %(most)s"),
    _("Input should be less than %(most)s"),
    _("Input should be a multiple of %(step)s"),
    _("Input should be '%(first)s' or '%(last)s'"),
    _("String should have at least %(least)s characters"),
    _("String should have at least 1 character"),
    _("String should have at most %(most)s characters"),
    _("String should match pattern '%(pattern)s'"),
    _("List should have at least %(least)s items after validation, not %(given)s"),
    _("List should have at most %(most)s items after validation, not %(given)s"),
    _("%(value)s is not of type %(kind)s"),
    _("%(value)s is not one of %(choices)s"),
    _("%(value)s is not a %(kind)s"),
    _("%(value)s is too short"),
    _("%(value)s should be non-empty"),
    _("%(value)s is too long"),
    _("%(value)s is less than the minimum of %(least)s"),
    _("%(value)s is greater than the maximum of %(most)s"),
    _("%(value)s does not match %(pattern)s"),
    _("the arguments are not valid JSON: %(why)s"),
)
"""What is said of an argument that does not fit, most of it by pydantic and jsonschema."""


def told(text: str) -> str:
    """Return a sentence of the ledger in the reader's language."""
    return _said(text, SENTENCES)


def fault(text: str) -> str:
    """Return what is wrong with an argument in the reader's language."""
    return _said(text, FAULTS)


def _said(text: str, sentences: tuple[str, ...]) -> str:
    if text in sentences:
        return gettext(text)
    for pattern, sentence in _patterns(sentences):
        found = pattern.fullmatch(text)
        if found:
            return gettext(sentence, **found.groupdict())
    head, _comma, reason = text.partition(", ")
    # A reason that nobody has translated is left out where the rest can be.
    return text if not reason or head not in sentences or gettext(head) == head else gettext(head)


@cache
def _patterns(sentences: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    return [(_pattern(sentence), sentence) for sentence in sentences if "%(" in sentence]


def _pattern(sentence: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", sentence)
    written = [f"(?P<{part}>.+?)" if at % 2 else re.escape(part) for at, part in enumerate(parts)]
    return re.compile("".join(written), re.DOTALL)
