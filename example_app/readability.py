"""Measures instructions the way an editor would: length, long sentences, and facts that students ask for."""

from __future__ import annotations

import re

LONG_SENTENCE = 25
"""Words from which a sentence is called long; plain-language guides advise 15 to 20 on average."""

ASKED_FOR = {
    "a length": r"\b\d[\d,. ]*(words|pages|minutes|slides)\b",
    "a deadline": r"\b(due|deadline|by (monday|tuesday|wednesday|thursday|friday|saturday|sunday|\d))",
    "how to hand it in": r"\b(hand (it )?in|submit|upload)",
    "what is marked": r"\b(mark(ed|s|ing)?|rubric|criteria|graded)\b",
}
"""What students look for, and the words that show it is there."""


def sentences(text: str) -> list[str]:
    """Split a Markdown text into its sentences; each list item or heading counts as one."""
    found: list[str] = []
    for line in text.splitlines():
        plain = re.sub(r"^[\s#>*+\-\d.)]+", "", line).replace("**", "").replace("`", "").strip()
        found += [part.strip() for part in re.split(r"(?<=[.!?])\s+", plain) if part.strip()]
    return found


def missing(text: str) -> list[str]:
    return [name for name, pattern in ASKED_FOR.items() if not re.search(pattern, text, re.IGNORECASE)]


def report(text: str) -> str:
    """Describe the text in a few sentences."""
    lengths = {sentence: len(sentence.split()) for sentence in sentences(text)}
    if not lengths:
        return "There are no instructions yet."
    longest = max(lengths, key=lambda sentence: lengths[sentence])
    average = sum(lengths.values()) / len(lengths)
    lines = [f"{len(text.split())} words in {len(lengths)} sentences, {average:.0f} words on average."]
    if lengths[longest] >= LONG_SENTENCE:
        lines.append(f"The longest sentence has {lengths[longest]} words: “{longest}”")
    else:
        lines.append(f"No sentence has more than {lengths[longest]} words.")
    absent = missing(text)
    lines.append(
        f"Students may miss: {', '.join(absent)}." if absent else "Nothing that students usually ask is missing."
    )
    return "\n".join(lines)
