"""Pictures of the studio's twelve scenes, in light, dark and on a phone: ``make screenshots`` makes them."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import sqlalchemy as sa
from flask import Flask
from PIL import Image
from playwright.sync_api import Page
from playwright.sync_api import expect

from example_app import post
from example_app.database import db
from example_app.models import Criterion
from example_app.models import Mail
from example_app.seed_data import AUTHOR
from example_app.seed_data import LEAD
from example_app.stories import story
from flask_instruct.runs.columns import now
from flask_instruct.runs.job import generate
from flask_instruct.runs.models import Run
from tests.support import wait_for

from . import moving_picture
from .conftest import ESSAY
from .conftest import LAB_REPORT
from .conftest import ORAL
from .conftest import Studio
from .moving_picture import Film
from .test_mail import WorkerDied
from .test_studio_in_browser import status

PICTURES = Path(__file__).parents[2] / "docs" / "images" / "scenes"
MOVING = PICTURES.parent / "two-browsers.webp"
SCENES = (
    *("cold-start", "queued", "tool-cards", "live-changes", "offline", "approval"),
    *("stopped", "crash", "trouble", "undo", "preview", "run-page"),
)
LOOKS: dict[str, dict[str, object]] = {
    "light": {"viewport": {"width": 1120, "height": 700}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1120, "height": 700}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 720}, "color_scheme": "light"},
}
LARGEST = 3_000_000
"""Bytes of all of them: they are part of the repository."""


def test_t38_every_scene_has_its_pictures() -> None:
    files = {path.name: path.stat().st_size for path in PICTURES.glob("*.png")}
    assert set(files) == {f"{scene}-{look}.png" for scene in SCENES for look in LOOKS}
    assert sum(files.values()) < LARGEST


def test_the_picture_of_two_browsers_moves_for_twenty_seconds() -> None:
    lengths = []
    with Image.open(MOVING) as picture:
        for number in range(getattr(picture, "n_frames", 1)):
            picture.seek(number)
            picture.load()
            lengths.append(picture.info["duration"])
    assert len(lengths) > 20
    assert 18_000 < sum(lengths) < 22_000
    assert MOVING.stat().st_size < LARGEST


class Camera:
    """Takes pictures of one look, and carries runs out in this process."""

    def __init__(self, app: Flask, look: str, folder: Path) -> None:
        self.app = app
        self.look = look
        self.folder = folder

    def take(self, page: Page, scene: str, focus: str = "") -> None:
        """Take a picture; ``focus`` is what it shows in its upper half."""
        page.wait_for_function("document.fonts.status === 'loaded'")
        if focus:
            page.locator(focus).last.evaluate("one => one.scrollIntoView({block: 'center'})")
        picture = page.screenshot(animations="disabled", caret="hide")
        (self.folder / f"{scene}-{self.look}.png").write_bytes(compressed(picture))

    def queued(self) -> list[str]:
        with self.app.app_context():
            return list(db.session.scalars(sa.select(Run.id).where(Run.status == "queued")))

    def work(self) -> str:
        """Carry out the run that is queued, or will be; gives its id."""
        [run_id] = wait_for(self.queued)
        self.carry_out(run_id)
        return run_id

    def carry_out(self, run_id: str) -> None:
        with self.app.app_context():
            generate(run_id)


@pytest.mark.screenshots
@pytest.mark.parametrize("look", LOOKS)
def test_pictures_of_all_scenes_are_made(
    app: Flask,
    serve: Callable[..., str],
    key_of: Callable[[str], int],
    new_page: Callable[..., Page],
    monkeypatch: pytest.MonkeyPatch,
    look: str,
) -> None:
    folder = Path(os.environ.get("SCREENSHOTS") or PICTURES)
    folder.mkdir(parents=True, exist_ok=True)
    camera = Camera(app, look, folder)
    studio = Studio(serve(app), key_of)
    lead, author, late = (new_page(**LOOKS[look]) for _ in range(3))
    studio.enter(lead, LEAD)
    camera.take(lead, "cold-start")
    made = _edits(camera, studio, lead, author)
    _decisions(camera, studio, lead, late)
    _trouble(camera, studio, lead, monkeypatch)
    _afterwards(camera, studio, lead, made)


@pytest.mark.screenshots
def test_a_moving_picture_of_two_browsers_is_made(
    app: Flask, serve: Callable[..., str], key_of: Callable[[str], int], new_page: Callable[..., Page]
) -> None:
    camera = Camera(app, "light", PICTURES)
    studio = Studio(serve(app), key_of)
    mina, theo = (new_page(**moving_picture.LOOK) for _ in range(2))
    studio.enter(mina, LEAD, LAB_REPORT)
    studio.enter(theo, AUTHOR, LAB_REPORT)
    film = Film((mina, theo), ("Mina, lead", "Theo, author"))
    theo.get_by_role("heading", name="Rubric").evaluate("one => one.scrollIntoView()")
    film.watch(1)
    _film(film, camera, mina, "review", "Done")
    _film(film, camera, theo, "publish", "Waiting for approval")
    mina.locator(".instruct-ask button").first.click()
    worker = Thread(target=camera.work)
    worker.start()
    film.watch_until(lambda: status(mina).inner_text() == "Done" and not worker.is_alive())
    film.watch(1)
    film.save(MOVING)


def _film(film: Film, camera: Camera, page: Page, asked: str, ending: str) -> None:
    box = page.get_by_label("Your request")
    for word in story(asked).prompt.split():
        box.press_sequentially(f"{word} ")
        film.shoot()
    page.get_by_role("button", name="Send").click()
    film.shoot()
    worker = Thread(target=camera.work)
    worker.start()
    film.watch_until(lambda: status(page).inner_text() == ending and not worker.is_alive())
    film.watch(1.5)


def ask(page: Page, name: str) -> None:
    """Write what a story wants to be asked, so that the suggestions stay folded."""
    page.get_by_label("Your request").fill(story(name).prompt)
    page.get_by_role("button", name="Send").click()


def compressed(picture: bytes) -> bytes:
    """Pack the pixels of a PNG as tight as they go; a browser packs them in a hurry."""
    parts, at = [], 8
    while at < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, at)
        parts.append((kind, picture[at + 8 : at + 8 + size]))
        at += size + 12
    pixels = zlib.decompress(b"".join(data for kind, data in parts if kind == b"IDAT"))
    kept = [part for part in parts if part[0] not in (b"IDAT", b"IEND")]
    kept += [(b"IDAT", zlib.compress(pixels, 9)), (b"IEND", b"")]
    return picture[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in kept
    )


def _open(studio: Studio, page: Page, title: str) -> Page:
    page.goto(f"{studio.address}/assessments/{studio.key_of(title)}")
    return page


def _edits(camera: Camera, studio: Studio, lead: Page, author: Page) -> str:
    """A request, its tools, and the page of somebody else; gives the run of the second picture's request."""
    ask(_open(studio, lead, ESSAY), "sources")
    expect(status(lead)).to_have_text("Queued, waiting for a worker")
    camera.take(lead, "queued", ".instruct-run")
    made = camera.work()
    expect(status(lead)).to_have_text("Done")
    lead.locator(".instruct-call summary").nth(1).click()
    camera.take(lead, "tool-cards", ".instruct-call >> nth=2")
    studio.enter(author, AUTHOR, LAB_REPORT)
    ask(_open(studio, lead, LAB_REPORT), "review")
    camera.work()
    expect(status(author)).to_have_text("Done")
    camera.take(author, "live-changes", ".criterion >> nth=1")
    # A handshake that nobody answers, as behind a proxy that is gone.
    author.route_web_socket("**/instruct/socket**", lambda line: None)
    author.reload()
    expect(author.locator(".connection__away")).to_be_visible()
    author.wait_for_timeout(1500)  # the page says nothing of a line that is there at once
    camera.take(author, "offline")
    return made


def _decisions(camera: Camera, studio: Studio, lead: Page, author: Page) -> None:
    """What waits for a person: a tool that needs a lead, and a preview of several edits."""
    ask(studio.enter(author, AUTHOR, ESSAY), "publish")
    camera.work()
    expect(status(author)).to_have_text("Waiting for approval")
    for scene, asked in (("approval", ""), ("preview", "propose")):
        _open(studio, lead, LAB_REPORT if asked else ESSAY)
        if asked:
            ask(lead, asked)
            camera.work()
        lead.locator(".instruct-ask__more").last.click()
        expect(lead.locator(".instruct-change").first).to_be_visible()
        camera.take(lead, scene)


def _trouble(camera: Camera, studio: Studio, lead: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop amid a text, a service that is too busy, and a worker that dies as it hands a mail over."""
    ask(_open(studio, lead, ORAL), "guide")
    worker = Thread(target=camera.work)
    worker.start()
    expect(lead.locator(".instruct-text--streaming").last).to_contain_text("Marking guide", timeout=20_000)
    lead.get_by_role("button", name="Stop").click()
    worker.join(30)
    expect(status(lead)).to_have_text("Stopped")
    camera.take(lead, "stopped", ".instruct-status")
    ask(lead, "overloaded")
    camera.work()
    expect(lead.get_by_role("button", name="Retry").last).to_be_visible()
    camera.take(lead, "trouble", ".instruct-error")
    deliver = post.deliver

    def deliver_and_die(mail: Mail, key: str) -> None:
        deliver(mail, key)
        raise WorkerDied

    monkeypatch.setattr(post, "deliver", deliver_and_die)
    ask(_open(studio, lead, LAB_REPORT), "email")
    [run_id] = wait_for(camera.queued)
    with pytest.raises(WorkerDied):
        camera.carry_out(run_id)
    with camera.app.app_context():
        db.session.execute(sa.update(Run).where(Run.id == run_id).values(lease_until=now()))
        db.session.commit()
    camera.carry_out(run_id)
    expect(lead.locator(".instruct-badge").last).to_have_text("Resumed after an interruption")
    lead.locator(".instruct-call summary").last.click()
    camera.take(lead, "crash", ".instruct-effect")


def _afterwards(camera: Camera, studio: Studio, lead: Page, made: str) -> None:
    """What a run did, and what taking it back would do where somebody has changed a field since."""
    lead.goto(f"{studio.address}/instruct/runs/{made}")
    camera.take(lead, "run-page")
    with camera.app.app_context():
        db.session.execute(sa.update(Criterion).where(Criterion.name == "Argument").values(weight=12))
        db.session.commit()
    lead.goto(f"{studio.address}/instruct/runs/{made}/undo")
    camera.take(lead, "undo", "[data-conflict]")
