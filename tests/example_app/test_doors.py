"""Who comes in, and what the browser and the server refuse."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from flask import Flask

from example_app.security import POLICY

from .conftest import LAB_REPORT
from .conftest import Visitor


def test_a_stranger_is_sent_to_the_door_and_back(app: Flask) -> None:
    client = app.test_client()
    response = client.get("/assessments/1")
    assert response.location == "/login?next=/assessments/1"
    page = client.get(response.location).text
    assert 'value="/assessments/1"' in page


def test_picking_a_person_signs_in(lead: Visitor) -> None:
    page = lead.get("/")
    assert page.status_code == 200
    assert "Mina Okafor" in page.text


def test_leaving_signs_out(lead: Visitor) -> None:
    lead.post("/logout")
    assert lead.get("/").location == "/login?next=/"


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x"])
def test_nobody_is_led_to_another_site(app: Flask, elsewhere: str) -> None:
    visitor = Visitor(app.test_client())
    assert visitor.post("/login", user_id=1, next=elsewhere).location == "/"


def test_an_unknown_person_does_not_come_in(app: Flask) -> None:
    assert Visitor(app.test_client()).post("/login", user_id=99).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 302),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://other.localhost"}, 403),
        ({"Origin": "http://localhost"}, 302),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({}, 403),
    ],
)
def test_a_form_must_come_from_this_site(
    lead: Visitor, key_of: Callable[[str], int], headers: dict[str, str], status: int
) -> None:
    path = f"/assessments/{key_of(LAB_REPORT)}/comments"
    assert lead.client.post(path, data={"body": "Hello"}, headers=headers).status_code == status


def test_a_stranger_cannot_change_anything(app: Flask, key_of: Callable[[str], int]) -> None:
    stranger = Visitor(app.test_client())
    assert stranger.post(f"/assessments/{key_of(LAB_REPORT)}/comments", body="Hello").status_code == 401


def test_a_probe_without_a_cookie_is_answered(app: Flask) -> None:
    answer = app.test_client().get("/instruct/health")
    assert (answer.status_code, answer.json) == (200, {"status": "ok", "database": "ok", "redis": "ok"})


def test_every_page_forbids_what_is_not_its_own(lead: Visitor) -> None:
    for path in ("/", "/login", "/about", "/nowhere", "/static/tokens.css"):
        assert lead.get(path).headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY


def test_no_page_has_script_or_style_in_it(lead: Visitor, key_of: Callable[[str], int]) -> None:
    key = key_of(LAB_REPORT)
    for path in (
        "/",
        f"/assessments/{key}",
        f"/assessments/{key}/weights",
        f"/assessments/{key}/criteria/new",
        "/about",
    ):
        page = lead.get(path).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page), path
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page)), path
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page), path
