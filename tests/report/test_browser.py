"""Every kind of page in a real browser: phone and desktop, light and dark, by keyboard."""

import numpy as np
import pytest

from report.examples import FALLING, RACE, copy_run, forecast_of, log_races, raced, write_sweep
from uncollapse.report import diagnose, run_report
from uncollapse.report.forecast_page import make_forecast_page
from uncollapse.report.sweep_page import sweep_report

pytestmark = pytest.mark.slow

WORDS = {
    "diagnosis": "Class collapse: classes have become points",
    "bare": "Network collapse: all embeddings have gone to one point",
    "run": "Race at step 3",
    "runs": "of 2 runs healthy",
    "sweep": "5 of 11 runs collapsed",
    "forecast": "Race from the untrained network",
}
# Each gives the parts of a page that are not as they should be.
CHECKS = {
    "beyond its card, and no table with a cue": """
      [...document.querySelectorAll('section *')].filter(e => {
        if (e.closest('.scroll table, svg, details:not([open])')) return false;
        const card = e.closest('section').getBoundingClientRect();
        const box = e.getBoundingClientRect();
        return box.width > 0 && (box.right > card.right || box.left < card.left);
      }).map(e => e.outerHTML.slice(0, 80))""",
    "a table without a cue": """
      [...document.querySelectorAll('.scroll')].map(e => getComputedStyle(e).backgroundImage)
        .filter(image => image.split('linear-gradient').length != 5)""",
    "tiny text of a chart": """
      [...document.querySelectorAll('figure svg text')].map(t =>
        parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)
        .filter(size => size > 0 && size <= 9.5)""",
    "text of a chart that is cut off": """
      [...document.querySelectorAll('figure > svg')].flatMap(svg => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(t => {
          const b = t.getBoundingClientRect();
          return b.left < box.left - 1 || b.right > box.right + 1 || b.bottom > box.bottom + 1;
        }).map(t => t.textContent);
      })""",
    "a drawing or picture without words": """
      [...document.querySelectorAll('figure > svg, img')].filter(e => !(e.alt ||
        document.getElementById(e.getAttribute('aria-labelledby')?.split(' ')[1])?.textContent))
        .map(e => e.outerHTML.slice(0, 80))""",
    "a section's name used twice": """
      [...document.querySelectorAll('section')].map(e => e.id)
        .filter((id, i, all) => all.indexOf(id) != i)""",
}
NARROW = """[...document.querySelectorAll('section')].map(card => {
     const box = card.getBoundingClientRect();
     const ends = [...card.querySelectorAll('table, dl, p, ul, svg, img')]
       .map(e => e.getBoundingClientRect().right);
     return [card.id, (Math.max(...ends) - box.left) / box.width];
   }).filter(([_, used]) => used < 0.65)"""


@pytest.fixture(scope="session")
def pages(plain_run, hard_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 10)
    z = rng.normal(size=(30, 16))[labels] + 1e-3 * rng.normal(size=(300, 16))
    long = np.array([f"a_very_long_class_name_without_a_space_in_it_{i}" for i in labels])
    images = rng.integers(0, 255, (300, 8, 8), dtype=np.uint8)
    rescued = copy_run(folder / "rescued")
    log_races(rescued, RACE.to_dict())
    makers = {
        "diagnosis": diagnose(z, long, labels * 2, images).save,
        "bare": diagnose(np.ones((40, 3))).save,
        "run": lambda path: run_report([rescued], path),
        "runs": lambda path: run_report([plain_run, hard_run], path),
        "sweep": lambda path: sweep_report(write_sweep(folder / "shapes"))[0].rename(path),
        "forecast": make_forecast_page(forecast_of(FALLING), race=raced()).save,
    }
    return {name: make(folder / f"{name}.html") for name, make in makers.items()}


@pytest.mark.parametrize(
    "width", [375, 1200, *(pytest.param(w, marks=pytest.mark.night) for w in (768, 1920))]
)
@pytest.mark.parametrize("name", WORDS)
def test_a_page_opens_without_complaint_network_or_overflow(browser, pages, name, width):
    visit = browser.open(pages[name], width)
    assert visit.complaints == []
    fetched = [url for url in visit.requests if not url.startswith("data:")]
    assert fetched == [pages[name].resolve().as_uri()]
    assert visit.value("document.documentElement.scrollWidth") == width
    assert WORDS[name] in visit.value("document.body.innerText")
    wrong = {what: visit.value(script) for what, script in CHECKS.items()}
    assert {what: parts for what, parts in wrong.items() if parts} == {}
    if width == 1200:  # a row of cards is filled
        assert visit.value(NARROW) == []


def test_dark_mode_turns_the_ground_dark_and_keeps_the_contrast(browser, pages):
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


def test_a_table_unfolds_and_sorts_by_keyboard(browser, pages):
    visit = browser.open(pages["diagnosis"])
    shown = "[...document.querySelectorAll('#classes tbody tr')].filter(r => r.offsetParent).length"
    assert visit.value(shown) == 12
    visit.value("document.querySelector('#classes input').focus()")
    visit.press_space()
    assert visit.value(shown) == 30
    column = "[...document.querySelectorAll('#classes tbody tr')].map(r => +r.cells[2].dataset.v)"
    visit.value("document.querySelectorAll('#classes thead button')[2].focus()")
    visit.press_space()
    values = visit.value(column)
    assert values == sorted(values)
    visit.press_space()
    assert visit.value(column) == values[::-1]
    head = "document.querySelectorAll('#classes thead th')[2].getAttribute('aria-sort')"
    assert visit.value(head) == "descending"


def test_a_printed_page_is_light_and_fits(browser, pages):
    visit = browser.open(pages["run"], 720, dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", media="print", features=[dark])
    assert visit.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    ink = visit.value("getComputedStyle(document.body).color.match(/\\d+/g).map(Number)")
    assert max(ink) < 80
    assert visit.value("document.documentElement.scrollWidth") <= 720
    assert len(browser.call("Page.printToPDF")["data"]) > 10_000
    browser.call("Emulation.setEmulatedMedia", media="screen")
