"""An app that somebody else wrote: a factory, a blueprint, UUID keys, ``db`` in a module of its own."""

from __future__ import annotations

import shutil
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

STORY: Script = [
    [Use("add_step", text="Mix eggs, milk and flour."), Use("add_step", text="Fry <thin> ones")],
    [Use("add_step", text="Fry <thin> ones.")],
    [Say("Two steps are enough.")],
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "newcomer", tmp_path / "newcomer")
    return tmp_path / "newcomer"


def test_an_app_of_its_own_shape_works(
    folder: Path, start: Callable[..., Process], new_page: Callable[..., Page], free_port: int
) -> None:
    with WireServer.telling(STORY) as provider:
        env = {"ANTHROPIC_API_KEY": "a key", "ANTHROPIC_BASE_URL": provider.base_url("anthropic"), "OPENAI_API_KEY": ""}
        flask = [sys.executable, "-m", "flask", "--app", "recipes"]
        dev = start([*flask, "instruct", "dev", "--port", str(free_port)], cwd=folder, env=env)
        # There is no page at the root: any answer but an error of the server is one.
        dev.wait_for_output("Ready:", timeout=60)
        cook, guest = new_page(), new_page()
        cook.goto(f"http://127.0.0.1:{free_port}/kitchen/new/Ada")
        guest.goto(cook.url)
        expect(guest.get_by_text("You can follow along here, but not ask for changes.")).to_be_visible()

        cook.get_by_role("button", name="Write the steps").click()

        steps = ["Mix eggs, milk and flour. #", "Fry <thin> ones. #"]
        for page in (cook, guest):
            expect(page.locator("[data-status=succeeded]")).to_be_visible(timeout=20_000)
            expect(page.locator("#steps li")).to_have_text(steps)
            expect(page.locator("#steps a").first).to_have_attribute("href", cook.url)
        guest.reload()
        expect(guest.locator("#steps li")).to_have_text(steps)
