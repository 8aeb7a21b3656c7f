"""The app in the README works as printed: two files and one command, then two browsers and a provider's protocol."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.adapters.scripted import Say
from flask_instruct.adapters.scripted import Script
from flask_instruct.adapters.scripted import Use

from .support import Process
from .wire import WireServer

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FILE = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = dict(FILE.findall(README))

TOO_LONG = "Please buy milk. " * 40
FRIENDLY = "Could you bring milk, and bread too? Thank you!"
STORY: Script = [
    [Say("I will say it kindly."), Use("rewrite", text=TOO_LONG)],
    [Use("rewrite", text=FRIENDLY)],
    [Say("The note is **friendlier** now.")],
]


@pytest.fixture
def app_folder(tmp_path: Path) -> Path:
    """The README's files, written where a reader would."""
    folder = tmp_path / "notes"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_readme_is_short_and_shows_code_early() -> None:
    lines = README.splitlines()
    assert len(lines) < 220
    assert lines.index("```python") < 40


def test_the_app_has_two_files_of_at_most_45_lines() -> None:
    assert sorted(FILES) == ["app.py", "templates/note.html"]
    assert sum(len(text.splitlines()) for text in FILES.values()) <= 45


def test_the_files_are_those_of_the_repository() -> None:
    kept = {name: (ROOT / "tests" / "readme" / name).read_text() for name in FILES}
    assert kept == FILES


def test_two_browsers_follow_the_note(
    app_folder: Path, start: Callable[..., Process], new_page: Callable[..., Page], free_port: int
) -> None:
    with WireServer.telling(STORY) as provider:
        env = {"OPENAI_API_KEY": "a key", "OPENAI_BASE_URL": provider.base_url("openai"), "ANTHROPIC_API_KEY": ""}
        command = [sys.executable, "-m", "flask", "instruct", "dev", "--port", str(free_port)]
        dev = start(command, cwd=app_folder, env=env)
        dev.wait_for_output("Ready:", timeout=60)
        asking, watching = new_page(), new_page()
        for page in (asking, watching):
            page.goto(f"http://127.0.0.1:{free_port}/")
            expect(page.locator("p").first).to_have_text("buy milk. bread too")

        asking.get_by_role("textbox").fill("Make it friendlier")
        asking.get_by_role("button", name="Send").click()

        for page in (asking, watching):
            expect(page.get_by_text("The note is friendlier now.")).to_be_visible(timeout=20_000)
            expect(page.locator("p").first).to_have_text(FRIENDLY)
            expect(page.locator("[data-status=succeeded]")).to_be_visible()
            expect(page.locator(".instruct-call")).to_have_count(2)
            expect(page.get_by_text("A note has room for 500 characters: write less.").first).to_be_attached()
        shown = asking.locator(".instruct-runs").inner_text()
        expect(watching.locator(".instruct-runs")).to_have_text(shown, use_inner_text=True)
        watching.reload()
        expect(watching.locator("p").first).to_have_text(FRIENDLY)
        expect(watching.locator(".instruct-runs")).to_have_text(shown, use_inner_text=True)
    told = provider.bodies[1]["messages"][-1]
    assert told["role"] == "tool"
    assert "write less" in told["content"]


def test_without_a_key_the_page_says_what_a_developer_has_to_set(
    app_folder: Path, start: Callable[..., Process], page: Page, free_port: int
) -> None:
    command = [sys.executable, "-m", "flask", "instruct", "dev", "--port", str(free_port)]
    dev = start(command, cwd=app_folder, env={"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""})
    dev.wait_for_output("Ready:", timeout=60)
    page.goto(f"http://127.0.0.1:{free_port}/")
    page.get_by_role("textbox").fill("Make it friendlier")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("[data-status=failed]")).to_be_visible(timeout=20_000)
    dev.wait_for_output("OPENAI_API_KEY is not set")
