"""What the panel's browser tests share: asking, waiting, and comparing a watched page with a fresh one."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

from playwright.sync_api import Page
from playwright.sync_api import expect

from flask_instruct.testing import LivePage

Open = Callable[..., Page]
"""Opens the board as someone: ``enter("Ada")``."""
Work = Callable[[], list[str]]
"""Carries out every queued run in this process."""
Aside = Callable[[], Thread]
"""The same in a thread."""


def write(page: Page, text: str) -> None:
    page.get_by_label("Your request").fill(text)
    page.get_by_role("button", name="Send").click()


def ask(page: Page, text: str) -> None:
    """Send a request, and wait until the server has it."""
    write(page, text)
    expect(page.get_by_label("Your request")).to_have_value("")


def status(page: Page) -> Any:
    return page.locator(".instruct-status__text").last


def assert_equals_a_fresh_page(page: Page) -> None:
    """The panel is as whoever comes now has it, but for what this person has unfolded."""
    LivePage(page).converges(".instruct-log", ".instruct-panel [role=status]", ignore_attributes=["open"])
