"""Every kind of page in a real browser: phone and desktop, light and dark, by keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from uncollapse.report import diagnose, run_report
from uncollapse.report.sweep_page import sweep_report
from uncollapse.training import Run

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from conftest import Browser

PAGES = ("diagnosis", "bare", "run", "runs", "sweep")
WORDS = {
    "diagnosis": "Class collapse: classes have become points",
    "bare": "Network collapse: all embeddings have gone to one point",
    "run": "reference scale",
    "runs": "2 runs healthy",
    "sweep": "5 of 11 runs collapsed",
}


@pytest.fixture(scope="session")
def pages(
    easy_run: Run, hard_run: Run, sweep_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 10)
    z = rng.normal(size=(30, 16))[labels] + 1e-3 * rng.normal(size=(300, 16))
    long = np.array([f"a_very_long_class_name_without_a_space_in_it_{i}" for i in labels])
    images = rng.integers(0, 255, (300, 8, 8), dtype=np.uint8)
    makers: dict[str, Callable[[Path], Path]] = {
        "diagnosis": diagnose(z, long, labels * 2, images).save,
        "bare": diagnose(np.ones((40, 3))).save,
        "run": lambda path: run_report([easy_run], path),
        "runs": lambda path: run_report([easy_run, hard_run], path),
        "sweep": lambda path: sweep_report(sweep_folder)[0].rename(path),
    }
    return {name: make(folder / f"{name}.html") for name, make in makers.items()}


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_complaint_network_or_overflow(
    browser: Browser, pages: dict[str, Path], name: str, width: int
):
    visit = browser.open(pages[name], width)
    assert visit.complaints == []
    fetched = [url for url in visit.requests if not url.startswith("data:")]
    assert fetched == [pages[name].resolve().as_uri()]
    assert visit.value("document.documentElement.scrollWidth") == width
    assert WORDS[name] in visit.value("document.body.innerText")


@pytest.mark.parametrize("name", PAGES)
def test_on_a_desktop_a_row_of_cards_is_filled(browser: Browser, pages: dict[str, Path], name: str):
    visit = browser.open(pages[name], 1200)
    used = visit.value(
        """[...document.querySelectorAll('section')].map(card => {
             const box = card.getBoundingClientRect();
             const ends = [...card.querySelectorAll('table, dl, p, ul, svg, img')]
               .map(e => e.getBoundingClientRect().right);
             return [card.id, (Math.max(...ends) - box.left) / box.width];
           })"""
    )
    assert [one for one in used if one[1] < 0.65] == []


@pytest.mark.parametrize("name", PAGES)
def test_on_a_phone_only_a_table_with_a_cue_reaches_beyond_its_card(
    browser: Browser, pages: dict[str, Path], name: str
):
    visit = browser.open(pages[name], 380)
    outside = visit.value(
        """[...document.querySelectorAll('section *')].filter(e => {
             if (e.closest('.scroll table, svg, details:not([open])')) return false;
             const card = e.closest('section').getBoundingClientRect();
             const box = e.getBoundingClientRect();
             return box.width > 0 && (box.right > card.right || box.left < card.left);
           }).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    cues = "[...document.querySelectorAll('.scroll')].map(e => getComputedStyle(e).backgroundImage)"
    assert all(image.count("linear-gradient") == 4 for image in visit.value(cues))


def test_on_a_phone_no_text_of_a_chart_is_tiny(browser: Browser, pages: dict[str, Path]):
    visit = browser.open(pages["run"], 375)
    smallest = visit.value(
        "Math.min(...[...document.querySelectorAll('figure svg text')].map(t => "
        "parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"
    )
    assert smallest > 9.5


def test_no_text_of_a_chart_is_cut_off(browser: Browser, pages: dict[str, Path]):
    visit = browser.open(pages["runs"], 1280)
    outside = visit.value(
        """[...document.querySelectorAll('figure > svg')].flatMap(svg => {
             const box = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(t => {
               const b = t.getBoundingClientRect();
               return b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1;
             }).map(t => t.textContent);
           })"""
    )
    assert outside == []


def test_dark_mode_turns_the_ground_dark_and_keeps_the_contrast(
    browser: Browser, pages: dict[str, Path]
):
    colours = {}
    for dark in (False, True):
        visit = browser.open(pages["run"], dark=dark)
        style = "getComputedStyle(document.querySelector('section'))"
        colours[dark] = [
            np.mean([int(v) for v in visit.value(f"{style}.{which}.match(/\\d+/g)")[:3]])
            for which in ("backgroundColor", "color")
        ]
    assert colours[False][0] > 200 > 80 > colours[False][1]
    assert colours[True][1] > 200 > 80 > colours[True][0]


def test_a_long_table_unfolds_by_keyboard(browser: Browser, pages: dict[str, Path]):
    visit = browser.open(pages["diagnosis"])
    shown = "[...document.querySelectorAll('#classes tbody tr')].filter(r => r.offsetParent).length"
    assert visit.value(shown) == 12
    visit.value("document.querySelector('#classes input').focus()")
    visit.press(" ", 32)
    assert visit.value(shown) == 30


def test_a_table_sorts_by_keyboard(browser: Browser, pages: dict[str, Path]):
    visit = browser.open(pages["diagnosis"])
    column = "[...document.querySelectorAll('#classes tbody tr')].map(r => +r.cells[2].dataset.v)"
    visit.value("document.querySelectorAll('#classes thead button')[2].focus()")
    visit.press(" ", 32)
    values = visit.value(column)
    assert values == sorted(values)
    visit.press(" ", 32)
    assert visit.value(column) == values[::-1]
    head = "document.querySelectorAll('#classes thead th')[2].getAttribute('aria-sort')"
    assert visit.value(head) == "descending"


def test_every_drawing_and_picture_has_words(browser: Browser, pages: dict[str, Path]):
    for name in PAGES:
        visit = browser.open(pages[name])
        silent = visit.value(
            "[...document.querySelectorAll('figure > svg, img')].filter(e => !(e.alt || "
            "document.getElementById(e.getAttribute('aria-labelledby')?.split(' ')[1])"
            "?.textContent)).length"
        )
        assert silent == 0
        ids = visit.value("[...document.querySelectorAll('section')].map(e => e.id)")
        assert len(set(ids)) == len(ids)


def test_a_printed_page_is_light_and_fits(browser: Browser, pages: dict[str, Path]):
    visit = browser.open(pages["run"], 720, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    assert visit.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    ink = visit.value("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(ink) < 80
    assert visit.value("document.documentElement.scrollWidth") <= 720
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000
    browser.call("Emulation.setEmulatedMedia", media="screen")
