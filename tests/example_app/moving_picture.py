"""Two browsers filmed side by side: pictures of both pages, one after the other, as one moving picture."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from PIL import Image
from PIL import ImageDraw
from PIL import ImageFont
from playwright.sync_api import Page

SECONDS = 20.0
"""How long it plays, however long it took to film."""

LOOK: dict[str, object] = {"viewport": {"width": 1120, "height": 820}, "color_scheme": "light"}
"""What each browser opens with."""

WIDE, HIGH = 640, 469
"""Pixels of one page in the picture."""

BAR, GAP = 26, 16
DESK, FRAME, DOT, WORDS = "#e9e6df", "#d8d4cb", "#b3aea3", "#3c3a36"
QUALITY = 72


@dataclass
class Film:
    """Looks at two pages in turn while something happens to them.

    :param titles: what stands above each page.
    """

    pages: tuple[Page, Page]
    titles: tuple[str, str]
    shots: list[tuple[float, Image.Image]] = field(default_factory=list)

    def shoot(self) -> None:
        """Take one picture of both."""
        desk = Image.new("RGB", (2 * WIDE + 3 * GAP, HIGH + BAR + 2 * GAP), DESK)
        draw = ImageDraw.Draw(desk)
        for place, (page, title) in enumerate(zip(self.pages, self.titles, strict=True)):
            left = GAP + place * (WIDE + GAP)
            draw.rounded_rectangle((left, GAP, left + WIDE - 1, GAP + BAR + 12), 8, FRAME)
            for dot in range(3):
                draw.circle((left + 14 + 14 * dot, GAP + BAR // 2), 4, DOT)
            draw.text((left + 56, GAP + BAR // 2), title, WORDS, ImageFont.load_default(14), anchor="lm")
            seen = Image.open(io.BytesIO(page.screenshot(caret="hide"))).convert("RGB")
            desk.paste(seen.resize((WIDE, HIGH), Image.Resampling.LANCZOS), (left, GAP + BAR))
        self.shots.append((time.monotonic(), desk))

    def watch(self, seconds: float) -> None:
        """Film for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.shoot()

    def watch_until(self, condition: Callable[[], bool], longest: float = 60) -> None:
        """Film until something is so.

        :raises AssertionError: when it is not after ``longest`` seconds.
        """
        until = time.monotonic() + longest
        while not condition():
            assert time.monotonic() < until, "what was to be filmed did not happen"
            self.shoot()
        self.shoot()

    def save(self, path: Path) -> None:
        """Write it as an animated WebP that plays again and again."""
        times = [moment for moment, _ in self.shots]
        spans = [after - before for before, after in zip(times, [*times[1:], times[-1] + 2], strict=True)]
        pace = SECONDS / sum(spans)
        frames: list[Image.Image] = []
        lengths: list[int] = []
        for (_, frame), span in zip(self.shots, spans, strict=True):
            if frames and frame.tobytes() == frames[-1].tobytes():
                lengths[-1] += round(span * pace * 1000)
            else:
                frames.append(frame)
                lengths.append(round(span * pace * 1000))
        frames[0].save(
            path, save_all=True, append_images=frames[1:], duration=lengths, loop=0, quality=QUALITY, method=6
        )
