"""What an empty studio is filled with: two people and five assessments in different states of repair."""

from __future__ import annotations

from typing import Any

PEOPLE: list[dict[str, str]] = [
    {"name": "Mina Okafor", "role": "lead", "about": "Leads assessment in the Faculty of Science"},
    {"name": "Theo Lindqvist", "role": "author", "about": "Writes assessments for first-year courses"},
]
LEAD, AUTHOR = (person["name"] for person in PEOPLE)

ENROLLED: dict[str, list[str]] = {
    "BIO 110 · Cell biology": ["Amara Diallo", "Jonas Weber", "Priya Nair", "Sofia Marques", "Tomasz Zielinski"],
    "GEO 204 · Environmental governance": ["Elif Kaya", "Noah Fraser", "Yuki Tanaka"],
    "MAT 230 · Analysis II": ["Lena Hoffmann", "Rafael Costa"],
    "CSC 315 · Software practice": ["Aisha Rahman", "Ben Carter", "Chidi Eze", "Hanna Virtanen"],
}
"""Students by course. In one course nobody is enrolled so far."""

_FOUR = ("Excellent", "Good", "Developing", "Not yet")


def _levels(*texts: str) -> list[tuple[str, str]]:
    return list(zip(_FOUR, texts, strict=True))


ASSESSMENTS: list[dict[str, Any]] = [
    {
        "title": "Lab report: Enzyme kinetics",
        "course": "BIO 110 · Cell biology",
        "status": "in_review",
        "due_in": 24,
        "owner": AUTHOR,
        "instructions": (
            "In this assignment you will write a report on the catalase experiment that was carried out in week 4; "
            "the report should describe how the rate of the reaction depends on the concentration of the "
            "substrate, and you are expected to include a graph of your own measurements together with an estimate "
            "of Vmax and Km.\n\nCompare your estimate with at least two values from the literature, and you should "
            "discuss what could explain the difference. The report should have about 1,500 words without the "
            "references, and it must be uploaded as one PDF file."
        ),
        "criteria": [
            (
                "Experimental design",
                25,
                "Variables, controls and repeats are described so that the experiment could be done again.",
                _levels(
                    "Every variable is controlled or its influence is estimated.",
                    "Variables and controls are described.",
                    "Some variables are left open.",
                    "The experiment could not be repeated from this.",
                ),
            ),
            (
                "Data and analysis",
                35,
                "Measurements are shown with their uncertainty, and the model is fitted and justified.",
                _levels(
                    "Fit, uncertainty and outliers are all explained.",
                    "The fit is right and its uncertainty is given.",
                    "A fit is shown without its uncertainty.",
                    "Raw numbers only.",
                ),
            ),
            (
                "Discussion",
                30,
                "Results are compared with the literature, and differences are explained.",
                _levels(
                    "Explains differences and proposes a test for the explanation.",
                    "Compares and gives a plausible reason.",
                    "Compares without a reason.",
                    "No comparison.",
                ),
            ),
            ("Writing", 15, "The report is clear, correct and follows the usual form.", []),
            ("Formatting", 5, "Figures are numbered and have captions.", []),
        ],
        "comments": [
            (
                LEAD,
                "The weights cannot be right: they come to more than 100 percent. Could writing count for less?",
                [(AUTHOR, "You are right, I added *Formatting* last and forgot the others.")],
                False,
            ),
            (
                AUTHOR,
                "Two students told me the first sentence is too long. I read it again, and they are right.",
                [],
                False,
            ),
            (LEAD, "Is one PDF enough, or do we want the raw data as well?", [(AUTHOR, "One PDF. Decided.")], True),
        ],
    },
    {
        "title": "Essay: Who owns a river?",
        "course": "GEO 204 · Environmental governance",
        "status": "draft",
        "due_in": 38,
        "owner": AUTHOR,
        "instructions": (
            "Choose one river that crosses a border. Who decides about its water today, and who should?\n\nArgue "
            "for one answer and take the strongest objection seriously. Use at least four sources, two of them "
            "from the countries concerned. 2,000 words. Submit the essay in the course room before the deadline."
        ),
        "criteria": [
            (
                "Argument",
                40,
                "One claim is defended from beginning to end.",
                _levels(
                    "The claim survives its strongest objection.",
                    "A clear claim is supported throughout.",
                    "A claim is visible but lost in places.",
                    "Several opinions stand side by side.",
                ),
            ),
            (
                "Evidence",
                35,
                "Facts about the river come from suitable sources.",
                _levels(
                    "Local and international sources are weighed against each other.",
                    "Sources are suitable and used.",
                    "Sources are named but hardly used.",
                    "Claims have no source.",
                ),
            ),
            (
                "Style",
                25,
                "The essay is a pleasure to read.",
                _levels(
                    "Precise and vivid.", "Clear and correct.", "Understandable with effort.", "Hard to understand."
                ),
            ),
        ],
        "comments": [
            (
                LEAD,
                "Should sources have a criterion of their own? Half of last year's complaints were about citing.",
                [],
                False,
            ),
        ],
    },
    {
        "title": "Poster: A week of weather",
        "course": "PHY 120 · Atmosphere and ocean",
        "status": "draft",
        "due_in": None,
        "owner": LEAD,
        "instructions": (
            "In groups of three, design a poster in format A1 that explains one week of weather at a place of your "
            "choice to visitors of the open day. Every statement about the weather must rest on a measurement that "
            "you show. You have five minutes to present it, and the visitors will ask questions. Upload the poster "
            "as PDF by Friday noon."
        ),
        "criteria": [],
        "comments": [],
    },
    {
        "title": "Oral exam: Reading a proof aloud",
        "course": "MAT 230 · Analysis II",
        "status": "in_review",
        "due_in": 61,
        "owner": LEAD,
        "instructions": (
            "You draw one of twelve theorems and have twenty minutes to prepare with your own notes. Then you "
            "explain its proof at the board for ten minutes: the idea first, then the steps. Ten minutes of "
            "questions follow. You are marked on how well you understand the proof, not on how fast you write."
        ),
        "criteria": [
            ("Idea of the proof", 40, "Says in one or two sentences why the theorem is true.", []),
            ("Steps and their reasons", 40, "Each step has a reason, and none is missing.", []),
            ("Answers to questions", 20, "Uses the proof to answer what happens when an assumption is dropped.", []),
        ],
        "comments": [
            (
                AUTHOR,
                "Twelve theorems are many. Shall we publish the list in week 8?",
                [(LEAD, "Yes, with page numbers.")],
                True,
            ),
        ],
    },
    {
        "title": "Project: A tool somebody needs",
        "course": "CSC 315 · Software practice",
        "status": "draft",
        "due_in": 75,
        "owner": AUTHOR,
        "instructions": "",
        "criteria": [],
        "comments": [(AUTHOR, "I'll write the task next week. Ideas are welcome here.", [], False)],
    },
]
"""``due_in`` counts days from the seeding; criteria are (name, weight, description, levels); comments are
(author, text, replies, settled)."""
