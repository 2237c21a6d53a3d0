"""A report in Chromium: whole, legible and quiet, in light and dark, on a page and on a phone."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDE, PHONE = (1100, 900), (390, 844)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser; CHROMIUM names it where it is not on the PATH."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path is not None, "no chromium on the PATH: install it, or name it in CHROMIUM"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


class Opened:
    """A page and what happened while it was opened."""

    def __init__(self, browser: Any, path: Path, size: tuple[int, int], scheme: str) -> None:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme
        )
        self.page = context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.errors.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_load_state("networkidle")

    def colour(self, selector: str, name: str) -> tuple[int, ...]:
        text = self.page.eval_on_selector(selector, f"e => getComputedStyle(e).{name}")
        return tuple(int(float(x)) for x in text.strip("rgba()").split(",")[:3])


@pytest.fixture(scope="module")
def report_file(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


VIEWS = [(size, scheme) for size in (WIDE, PHONE) for scheme in ("light", "dark")]


@pytest.fixture(scope="module", params=VIEWS, ids=[f"{size[0]}-{s}" for size, s in VIEWS])
def opened(request: Any, chromium: Any, report_file: Path) -> Opened:
    size, scheme = request.param
    return Opened(chromium, report_file, size, scheme)


def test_it_opens_without_an_error_or_a_request(opened: Opened, report_file: Path) -> None:
    assert opened.errors == []
    assert opened.requests == [report_file.as_uri()]


def test_the_verdict_is_in_the_first_view(opened: Opened) -> None:
    box = opened.page.locator("#verdict").bounding_box()
    assert box["y"] < 320 and box["height"] > 80
    assert opened.page.locator("#verdict h2").inner_text().strip()


def test_every_figure_is_shown_once_and_fits(opened: Opened) -> None:
    width = opened.page.viewport_size["width"]
    figures = opened.page.locator("figure")
    assert figures.count() >= 8
    for i in range(figures.count()):
        shown = [
            box
            for svg in figures.nth(i).locator("svg").all()
            if (box := svg.bounding_box()) is not None and box["width"] > 0
        ]
        assert len(shown) == 1
        assert 0.75 * min(width, 920) < shown[0]["width"] < width
        assert shown[0]["height"] > 0.6 * shown[0]["width"]
        letters = figures.nth(i).locator("svg path").count()
        assert letters > 40


def test_nothing_is_wider_than_the_view(opened: Opened) -> None:
    assert opened.page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


def luminance(colour: tuple[int, ...]) -> float:
    """Relative luminance, WCAG 2."""
    channels = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_stands_out_from_its_ground(opened: Opened) -> None:
    """4.5 : 1, the least contrast that WCAG 2 asks of text."""
    dark = opened.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ground = luminance(opened.colour("body", "backgroundColor"))
    assert (ground < 0.05) is dark
    card = luminance(opened.colour("#verdict", "backgroundColor"))
    for selector, under in (
        ("body", ground), (".question", ground), ("nav a", ground), ("#verdict .name", card),
        ("#verdict .numbers", card), (".ok .mark", ground), (".warn .mark", ground),
    ):  # fmt: skip
        own = luminance(opened.colour(selector, "color"))
        contrast = (max(own, under) + 0.05) / (min(own, under) + 0.05)
        assert contrast >= 4.5, selector


def test_links_of_the_contents_lead_to_their_sections(opened: Opened) -> None:
    links = opened.page.locator("nav a")
    for i in range(links.count()):
        target = links.nth(i).get_attribute("href")
        assert opened.page.locator(target).count() == 1


def test_it_prints_in_light_on_several_pages(chromium: Any, report_file: Path) -> None:
    opened = Opened(chromium, report_file, WIDE, "dark")
    opened.page.emulate_media(media="print")
    assert luminance(opened.colour("body", "backgroundColor")) > 0.9
    pdf = opened.page.pdf(format="A4", margin={"top": "15mm", "bottom": "15mm"})
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") >= 4
