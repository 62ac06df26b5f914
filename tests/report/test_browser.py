"""Every kind of page in a real browser: phone and desktop, light and dark, by keyboard."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from report.examples import FALLING, RACE, copy_run, forecast_of, log_races, raced, write_sweep
from uncollapse.metrics import suspect_labels
from uncollapse.report import diagnose, run_report
from uncollapse.report.forecast_page import make_forecast_page
from uncollapse.report.suspects_page import make_suspects_page
from uncollapse.report.sweep_page import sweep_report

pytestmark = pytest.mark.slow

WORDS = {
    "diagnosis": "Class collapse: classes have become points",
    "bare": "Network collapse: all embeddings have gone to one point",
    "run": "Race at step 3",
    "runs": "of 2 runs healthy",
    "sweep": "5 of 11 runs collapsed",
    "forecast": "Race from the untrained network",
    "suspects": "labels wrong",
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
        "suspects": suspects_page().save,
    }
    return {name: make(folder / f"{name}.html") for name, make in makers.items()}


def suspects_page():
    """Some fifty suspects with long texts."""
    true = np.repeat(np.arange(6), 200)
    z = np.random.default_rng(0).normal(size=(1200, 6)) + 9 * np.eye(6)[true]
    wrong = np.arange(1200) % 19 == 0
    labels = np.array([f"kind {i}" for i in (true + wrong) % 6])
    result = suspect_labels(z, labels)
    near = {row: result.neighbours[row, :6].tolist() for row in result.rows[:60].tolist()}
    names = [f"ticket {i}: " + "the parcel came late and broken, " * 12 for i in range(1200)]
    return make_suspects_page(result, labels, near, names=names)


def test_the_page_of_suspects_is_no_endless_scroll_on_a_phone(browser, pages):
    visit = browser.open(pages["suspects"], 400)
    assert visit.value("document.documentElement.scrollHeight") < 8_000


def test_the_table_of_classes_is_not_cut_at_1280(browser, pages):
    visit = browser.open(pages["diagnosis"], 1280)
    table = "document.querySelector('#classes .scroll')"
    assert visit.value(f"{table}.scrollWidth <= {table}.clientWidth")


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


# The map of a diagnosis: pointed at, kept, filtered, by keyboard, and without its script.

ROW = 7  # among rows of another label


@pytest.fixture(scope="session")
def mapped(tmp_path_factory):
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 30)
    z = 12 * np.array([[0, 0], [1, 0], [0, 1]])[truth] + rng.normal(size=(90, 2))
    labels = np.array([f"K{i}" for i in truth])
    labels[ROW] = "K2"
    names = [f"ticket {i}" for i in range(90)]
    spoiled = SimpleNamespace(
        sentences=lambda names: {},
        hubs=np.array([40]),
        duplicates=np.array([3, 4]),
        zero=np.array([], int),
    )
    result = replace(diagnose(z, labels, names=names, modes=False), spoiled=spoiled)
    near = np.linalg.norm(z[:, None] - z, axis=2).argsort(axis=1)[:, 1:6]
    return result.save(tmp_path_factory.mktemp("map") / "map.html"), labels, near


@pytest.fixture
def visit(browser, mapped):
    opened = browser.open(mapped[0])
    opened.value("document.querySelector('#map').scrollIntoView()")
    return opened


def place(visit, row):
    """Where the point of a row is in the window: all rows are on the map."""
    return visit.value(f"""(() => {{
      const box = document.querySelector('.pointed figure > svg').getBoundingClientRect();
      const data = JSON.parse(document.querySelector('.pointed script').textContent);
      const [x, y] = data.views[0].places[{row}], unit = box.width / 340;
      return [box.left + x * unit, box.top + y * unit];
    }})()""")


def card(visit):
    return visit.value("document.querySelector('.told .asked').innerText")


def test_a_point_shows_its_name_its_label_and_whether_its_neighbours_agree(visit, mapped):
    _, labels, near = mapped
    assert "Point at the map" in card(visit)
    for row in (ROW, 50):
        visit.mouse(*place(visit, row))
        lines = card(visit).split("\n")
        assert f"ticket {row}" in lines[0]
        agree = int((labels[near[row]] == labels[row]).sum())
        assert f"{agree} of 5 nearest neighbours share its label" in card(visit)
        items = visit.value("[...document.querySelectorAll('.told li')].map(e => e.innerText)")
        for item, other in zip(items, near[row], strict=True):
            words = item.split()
            assert words == [
                "✓✗"[labels[other] != labels[row]],
                "ticket",
                str(other),
                labels[other],
            ]
    assert visit.complaints == []


def test_a_click_keeps_a_point_until_escape_or_a_click_elsewhere(visit):
    x, y = place(visit, ROW)
    for release in (lambda: visit.key("Escape"), lambda: visit.mouse(5, 5, click=True)):
        visit.mouse(x, y, click=True)
        visit.mouse(*place(visit, 50))
        assert f"ticket {ROW}" in card(visit)
        release()
        assert "Point at the map" in card(visit)


def test_filters_leave_the_points_of_a_class_or_of_a_word(visit, mapped):
    labels = mapped[1]
    words = visit.value(
        "[...document.querySelectorAll('.tools label')].map(e => e.innerText.trim())"
    )
    assert words == ["suspect (1)", "hub (1)", "duplicate (2)"]
    visit.value("document.querySelectorAll('.tools input')[0].click()")
    assert visit.value("document.querySelector('.tools output').textContent") == "1 of 90 points"
    assert visit.value("document.querySelectorAll('.over path').length") == 1
    visit.mouse(*place(visit, ROW))
    assert f"ticket {ROW}" in card(visit)
    assert "suspect" in card(visit)
    visit.mouse(*place(visit, 50))  # not one of them
    assert "Point at the map" in card(visit)
    visit.value("document.querySelectorAll('.tools input')[0].click()")
    options = visit.value("[...document.querySelectorAll('.tools option')].map(e => e.textContent)")
    assert options == ["All classes", "K2 (31)", "K1 (30)", "K0 (29)"]
    visit.value("""(() => { const choice = document.querySelector('.tools select');
      choice.value = choice.options[3].value;
      choice.dispatchEvent(new Event('change', {bubbles: true})); })()""")
    left = visit.value(
        "document.querySelector('.over path').getAttribute('d').split('M').length - 1"
    )
    assert left == (labels == "K0").sum()


def test_a_map_can_be_walked_by_keyboard(visit):
    visit.value("document.querySelector('.pointed figure > svg').focus()")
    visit.key("ArrowRight")
    first = card(visit).split("\n")[0]
    visit.key("ArrowRight")
    second = card(visit).split("\n")[0]
    assert all(line.startswith("ticket") for line in (first, second))
    assert first != second
    visit.key("Enter")
    visit.mouse(*place(visit, ROW))
    assert second in card(visit)


def test_without_its_script_a_map_is_the_drawing_alone(browser, mapped):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        visit = browser.open(mapped[0])
        assert visit.value("document.querySelectorAll('.pointed figure > svg path').length") > 3
        assert visit.value("document.querySelector('.told').offsetParent === null")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
