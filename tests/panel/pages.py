"""What the panel's browser tests share: asking, waiting, and comparing a watched page with a fresh one."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Thread
from typing import Any

from playwright.sync_api import Page
from playwright.sync_api import expect

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


def log_of(page: Page) -> str:
    """The panel's requests and answers, less what may differ between two pages that show the same."""
    html: str = page.locator(".instruct-log").evaluate(
        """log => {
            const copy = log.cloneNode(true);
            for (const each of copy.querySelectorAll("[data-instruct-changed]")) {
                each.removeAttribute("data-instruct-changed");
            }
            for (const card of copy.querySelectorAll("details[open]")) card.open = false;
            for (const time of copy.querySelectorAll("time")) time.textContent = "";
            return copy.innerHTML;
        }"""
    )
    return re.sub(r"\s+", " ", html).replace("> <", "><")


def assert_equals_a_fresh_page(page: Page, enter: Open) -> None:
    fresh = enter("Fresh")
    assert log_of(page) == log_of(fresh)
    announcement = ".instruct-panel [role=status]"
    assert page.locator(announcement).inner_text() == fresh.locator(announcement).inner_text()
    identifiers = page.eval_on_selector_all("[id]", "all => all.map(each => each.id)")
    assert len(identifiers) == len(set(identifiers))
