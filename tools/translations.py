"""Bring the package's catalogues up to date: find its strings, merge them into each language, compile.

``python -m tools.translations`` does all three (``make translations``); the tests use the parts.
"""

from __future__ import annotations

import io
import sys
from datetime import UTC
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from babel.messages.catalog import Catalog
from babel.messages.frontend import CommandLineInterface
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.messages.pofile import write_po

ROOT = Path(__file__).parent.parent
TRANSLATIONS = ROOT / "flask_instruct" / "translations"
DOMAIN = "flask_instruct"
KEYWORDS = "_ gettext marked ngettext:1,2"


def languages() -> list[Path]:
    """Return the catalogues that there are, one a language."""
    return sorted(TRANSLATIONS.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def extract(into: Path) -> Catalog:
    """Write the strings of the code and the templates to a file, and return them."""
    arguments = ["-F", str(ROOT / "pyproject.toml"), "-k", KEYWORDS, "--no-default-keywords", "--no-location"]
    arguments += ["--sort-output", "--omit-header", "-w", "120", "-o", str(into), str(ROOT / "flask_instruct")]
    CommandLineInterface().run(["pybabel", "-q", "extract", *arguments])
    return catalogue(into)


def update(template: Catalog, language: Path) -> None:
    """Merge new strings into a language's catalogue; what is no longer said leaves it, nothing is guessed."""
    header = language.read_text("utf-8").partition("\n\n")[0]
    merged = catalogue(language)
    merged.update(template, no_fuzzy_matching=True)
    out = io.BytesIO()
    # With the header that is there: Babel's own has the time in it, and would differ each time.
    write_po(out, merged, width=120, omit_header=True, sort_output=True, ignore_obsolete=True)
    language.write_text(f"{header}\n\n{out.getvalue().decode().strip()}\n", "utf-8")


def catalogue(file: Path) -> Catalog:
    """Read a catalogue of texts."""
    with file.open("rb") as source:
        return read_po(source, locale=file.parent.parent.name if file.suffix == ".po" else None)


def untranslated(catalog: Catalog) -> list[object]:
    """Return the strings that have no translation, or one that somebody has to look at."""
    return [message.id for message in catalog if message.id and (message.fuzzy or not all(_texts(message.string)))]


def compiled(file: Path) -> bytes:
    """Return the compiled form of a catalogue; the same texts give the same bytes."""
    out = io.BytesIO()
    catalog = catalogue(file)
    # Else the moment of the compilation is in it.
    catalog.creation_date = datetime(2026, 1, 1, tzinfo=UTC)
    write_mo(out, catalog)
    return out.getvalue()


def main() -> int:
    """Do all of it, and say what is left to be translated."""
    with TemporaryDirectory() as folder:
        template = extract(Path(folder) / f"{DOMAIN}.pot")
    left = 0
    for language in languages():
        update(template, language)
        language.with_suffix(".mo").write_bytes(compiled(language))
        for text in untranslated(catalogue(language)):
            left += 1
            print(f"{language.relative_to(ROOT)}: {text!r} is not translated")
    return 1 if left else 0


def _texts(string: str | tuple[str, ...]) -> tuple[str, ...]:
    return string if isinstance(string, tuple) else (string,)


if __name__ == "__main__":
    sys.exit(main())
