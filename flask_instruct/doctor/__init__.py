"""Examines a site from end to end: a table of small checks, each of which says what is wrong and what to do.

``examine`` gives the findings; a check that fails is one itself.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from flask import Flask

from ..errors import ConfigurationError
from . import database
from . import redis_server
from . import site
from . import work
from .finding import Check
from .finding import Finding
from .finding import error
from .finding import secrets_of
from .finding import without_secrets

if TYPE_CHECKING:
    from ..state import State

__all__ = ["CHECKS", "Check", "Finding", "examine", "in_words"]

CHECKS: tuple[Check, ...] = (
    Check("secret key", site.secret_key),
    Check("redis address", redis_server.configured),
    Check("redis", redis_server.reachable, needs=("redis address",)),
    Check("redis version", redis_server.version, needs=("redis",)),
    Check("redis persistence", redis_server.persistence, needs=("redis",)),
    Check("redis eviction", redis_server.eviction, needs=("redis",)),
    Check("broadcasts", redis_server.broadcasts, needs=("redis",)),
    Check("redis encryption", redis_server.encryption, needs=("redis address",)),
    Check("database", database.reachable),
    Check("database kind", database.kind, needs=("database",)),
    Check("database tables", database.tables, needs=("database",)),
    Check("database isolation", database.isolation, needs=("database",)),
    Check("sqlite", database.sqlite, needs=("database",)),
    Check("clocks", work.clocks, needs=("redis", "database")),
    Check("workers", work.workers, needs=("redis",)),
    Check("runs", work.runs, needs=("database", "database tables")),
    Check("neighbours", work.neighbours, needs=("redis", "database", "database tables")),
    Check("default model", site.default_model),
    Check("providers", site.providers),
    Check("web socket", site.socket),
    Check("web server", site.web_server),
)
"""All that is looked at, in this order; what needs something that failed is left out."""


def examine(load: Callable[[], Flask], checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """Load an app, look at everything and return what was found, secrets taken out.

    :param load: gives the app; that it cannot be set up is a finding as well.
    """
    try:
        app = load()
    except click.ClickException:
        raise  # There is no app, which Flask itself explains best.
    except ConfigurationError as lack:
        # A wrong value stands behind "got", and may be a key.
        return [replace(error("The app cannot be set up.", str(lack).partition(", got ")[0]), check="app")]
    except Exception as failure:
        return [replace(_raised("The app could not be loaded: it raised", failure), check="app")]
    if "instruct" not in app.extensions:
        lack_of = error(f"The app {app.name} does not use Flask-Instruct.", "Call instruct.init_app(app).")
        return [replace(lack_of, check="app")]
    with app.app_context():
        state: State = app.extensions["instruct"]
        secrets = secrets_of(state)
        found = [without_secrets(finding, secrets) for finding in _look(state, checks)]
        state.db.session.remove()
    return found


def _look(state: State, checks: Iterable[Check]) -> Iterator[Finding]:
    bad: set[str] = set()
    for check in checks:
        # What was not looked at is no ground to build on either.
        if bad.intersection(check.needs):
            bad.add(check.name)
            continue
        for finding in _made(check, state):
            if finding.level == "error":
                bad.add(check.name)
            yield replace(finding, check=check.name)


def _made(check: Check, state: State) -> Iterator[Finding]:
    try:
        yield from check.look(state)
    except ConfigurationError as lack:
        yield error(f"The check of the {check.name} found something that is not set up.", str(lack))
    except Exception as failure:
        state.db.session.rollback()
        yield _raised(f"The check of the {check.name} failed with", failure)


def _raised(what: str, failure: Exception) -> Finding:
    # Its type alone: a text from anywhere may quote an address with its password.
    kind = type(failure)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return error(f"{what} {name}.", "Start flask shell, which loads the app too, and use what failed: it says more.")


def in_words(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield the findings as lines for a person."""
    counted = {"warning": 0, "error": 0}
    for finding in findings:
        yield f"{finding.level:<7}  {finding.check}: {finding.sentence}"
        if finding.fix:
            yield from (f"         {'→' if not number else ' '} {line}" for number, line in _numbered(finding.fix))
        if finding.level != "ok":
            counted[finding.level] += 1
    yield ""
    yield _summary(counted["error"], counted["warning"])


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.splitlines())


def _summary(errors: int, warnings: int) -> str:
    if not errors and not warnings:
        return "All is well."
    counts = ((errors, "error"), (warnings, "warning"))
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count) + "."
