"""What the documentation says is there: names that can be imported, code that compiles, links that lead somewhere."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any
from typing import get_args

import pytest
from flask_sqlalchemy import SQLAlchemy

from flask_instruct import AiResponseHandler
from flask_instruct import Prompt
from flask_instruct import ai_tool
from flask_instruct import gen
from flask_instruct.adapters.profiles import BUILT_IN
from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Use
from flask_instruct.adapters.scripted import register_script
from flask_instruct.config import Config
from flask_instruct.errors import ProviderErrorKind
from flask_instruct.events import FinishReason

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if "_build" not in path.parts)
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_on_a_page_compiles_and_its_imports_exist(page: Path) -> None:
    for code in code_of(name_of(page)):
        for node in ast.walk(ast.parse(textwrap.dedent(code))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("flask_instruct"):
                module = importlib.import_module(node.module or "")
                missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                assert not missing, f"{node.module} has no {missing}"


def test_the_handlers_on_their_page_can_be_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flask_instruct.handlers._registry", {})
    db = SQLAlchemy()

    class Note(db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)

    class Other(AiResponseHandler, record=Note):
        @ai_tool
        def look(self) -> str:
            """Look at it."""
            return "seen"

    names = {"__name__": "handlers page", "Note": Note, "Category": Note, "OtherHandlerOrModule": Other}
    defined = [run(code, names)["NoteEditor"] for code in code_of("docs/handlers.md") if code.startswith("from")]
    offered = [{tool["function"]["name"] for tool in handler.ai_tools_specifications()} for handler in defined]
    assert offered == [{"rewrite"}, {"rename", "colour", "pin"}, {"create_category", "look"}]


def test_the_events_on_the_prompts_page_are_given_off(capsys: pytest.CaptureFixture[str]) -> None:
    register_script("weather", [[Say("Let me look. "), Use("weather")], [Say("Sunny.")]])
    weather = {"name": "weather", "description": "Tell it", "parameters": {"type": "object", "properties": {}}}
    prompt = Prompt().user("How is it?") + gen("scripted:weather", tools=[{"type": "function", "function": weather}])
    run(code_of("docs/prompt.md")[1], {"prompt": prompt})
    assert capsys.readouterr().out == "Let me look. Sunny."


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    assert not [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    known = {f"INSTRUCT_{field.name.upper()}" for field in fields(Config)} | {"INSTRUCT_TEST_POSTGRES_URL"}
    assert set(re.findall(r"INSTRUCT_[A-Z_]+[A-Z]", page.read_text())) <= known


def test_every_setting_has_a_line_of_documentation() -> None:
    source = ast.parse((ROOT / "flask_instruct" / "config.py").read_text())
    (body,) = [node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Config"]
    documented = {
        field.target.id
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(doc, ast.Expr)
    }
    assert documented == {field.name for field in fields(Config)}


def code_of(page: str) -> list[str]:
    return [code for language, code in FENCE.findall((ROOT / page).read_text()) if language == "python"]


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    defined = dict(names)
    exec(code, defined)
    return defined


def test_the_table_of_providers_has_every_profile_with_what_to_set() -> None:
    page = (ROOT / "docs" / "providers.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name, provider in BUILT_IN.items():
        row = next((row for row in rows if f"`{name}`" in row.split("|")[1]), "")
        assert all(
            f"`{variable}`" in row for variable in (*provider.key_variables, provider.url_variable) if variable
        ), name


def test_the_page_on_providers_names_every_reason_and_every_kind_of_failure() -> None:
    page = (ROOT / "docs" / "providers.md").read_text()
    known = {*get_args(FinishReason), *get_args(ProviderErrorKind)} - {"error"}
    assert {word for word in known if f"`{word}`" not in page} == set()
