"""Text of others (class names, files, configs, errors, titles) is shown as it is."""

import json
import re
from html import unescape

import numpy as np
import pytest
from PIL import Image

from report.examples import cell, copy_run, log, write_sweep
from uncollapse._base.check import visible
from uncollapse._base.files import write_json
from uncollapse.health.forecasts import Forecast
from uncollapse.report import diagnose, run_report
from uncollapse.report.forecast_page import make_forecast_page
from uncollapse.report.sweep_page import sweep_report
from uncollapse.training.manifest import record_files

pytestmark = pytest.mark.slow

# Without a slash, so that it may also be the name of a folder.
TURNED = "\u202egpj.exe\u2066\u200f"  # marks that turn the direction of what follows
NAME = (
    """'"><script>owned=1;<img src=x onerror=owned=1>{{ 7*7 }}" onmouseover="owned=1" """
    """onfocus=owned=1 autofocus x='javascript:owned=1' &lt;b&gt; """
    f"{TURNED}"
)
SHOWN = visible(NAME)  # what a reader sees of it
TEXT = f"</title></style></script></textarea><a href=javascript:owned=1>{NAME}{{% raw %}}<!-- ]]>"
PAGES = ("diagnosis", "names", "files", "run", "runs", "forecast", "sweep")

# Attributes that run something, and links that are not to a place in the page itself.
ACTING = """[...document.querySelectorAll('*')].flatMap(e => [...e.attributes]
  .filter(a => a.name.startsWith('on') || a.name === 'autofocus' || a.name === 'srcdoc'
    || (/^(href|src|xlink:href|action|formaction|data)$/.test(a.name)
        && !/^(#|data:image.(png|jpeg)|data:,)/.test(a.value)))
  .map(a => e.tagName + ' ' + a.name + '=' + a.value.slice(0, 60)))"""


@pytest.fixture(scope="session")
def hostile(hard_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    run = hostile_run(folder / "runs" / NAME)
    labels = np.repeat(np.arange(4), 10)
    z = np.random.default_rng(0).normal(size=(40, 3)) + labels[:, None]
    named = np.array([f"{TEXT}{i}" for i in labels])
    images = np.zeros((40, 4, 4), np.uint8)
    pictures = [folder / f"{i} {NAME}.png" for i in range(40)]
    for picture in pictures:
        Image.new("L", (4, 4)).save(picture)
    swept = write_sweep(folder / "sweeps" / NAME, error=TEXT)
    alone = Forecast((cell(2, 2, 4, 0.1),), (), 2.0)
    makers = {
        "diagnosis": diagnose(z, named, named, images, title=TEXT).save,
        "names": diagnose(z, named, names=named).save,
        "files": diagnose(z, named, images=pictures, names=[str(p) for p in pictures]).save,
        "run": lambda path: run_report([run], path),
        "runs": lambda path: run_report([run, hard_run], path),
        "forecast": make_forecast_page(alone, TEXT, TEXT).save,
        "sweep": lambda path: sweep_report(swept)[0].rename(path),
    }
    return {name: make(folder / f"{name}.html") for name, make in makers.items()}


def hostile_run(folder):
    """A run whose folder, config, log and summary hold such text."""
    run = copy_run(folder)
    scores = [{"strategy": name, "steps": 4, "recall": 0.5} for name in (TEXT, "hard x hard")]
    race = {"chosen": TEXT, "rows": 96, "spent": 10.0, "scores": scores}
    log(run, {"step": 5, "event": TEXT, "race": race}, {"step": 6, "verdict": TEXT, TEXT: 1.0})
    config = run.config_file.read_text(encoding="utf-8")
    root = f"[data]\nroot = {json.dumps(TEXT)}"
    run.config_file.write_text(config.replace("[data]", root), encoding="utf-8")
    more = {"versions": {TEXT: TEXT}, "skipped": {TEXT: {TEXT: {"count": 1, "first": [TEXT]}}}}
    write_json(run.summary_file, run.summary | more)
    record_files(run.path, "summary.json")
    return run


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_is_escaped_and_still_there(hostile, name):
    text = hostile[name].read_text(encoding="utf-8")
    assert text.count("<script>") == 1
    assert text.count("<script") == text.count("</script>") == 1 + text.count("application/json")
    assert text.count("<style>") == text.count("</style>") == 1
    ours = re.findall(r'<title(?: id="u[0-9a-f]{10}-t")?>', text)  # the page's, charts', tooltips
    assert text.count("</title>") == len(ours)
    assert "<img src=x" not in text
    assert SHOWN in unescape(text)
    assert "&amp;amp;" not in text  # escaped once
    assert not set(text) & set("\u202e\u2066\u200f")
    assert "&lt;path" not in text  # our own drawings are not text


@pytest.mark.parametrize("name", PAGES)
def test_in_a_browser_nothing_of_it_runs(browser, hostile, name):
    visit = browser.open(hostile[name])
    assert visit.complaints == []
    assert visit.value("typeof owned") == "undefined"
    assert SHOWN in visit.value("document.body.textContent")
    assert visit.value(ACTING) == []
    # Whatever a reader may do to an element: nothing of the text listens.
    visit.value(
        """for (const e of document.querySelectorAll('*'))
             for (const kind of ['mouseover', 'focus', 'click', 'load', 'error', 'toggle'])
               e.dispatchEvent(new Event(kind, {bubbles: true, cancelable: true}));
           for (const map of document.querySelectorAll('.pointed svg'))
             map.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true}))"""
    )
    pointed = "[...document.querySelectorAll('.told li small')].map(e => e.textContent)"
    assert all(SHOWN in label for label in visit.value(pointed))
    assert visit.value("typeof owned") == "undefined"
    assert visit.value("document.title").endswith(" · uncollapse")  # not ended by the text
    assert visit.requests[1:] == [url for url in visit.requests[1:] if url.startswith("data:")]


def test_a_script_that_gets_into_the_page_all_the_same_does_not_run(browser, hostile, tmp_path):
    text = hostile["diagnosis"].read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(text.replace("<main", "<script>owned=1</script><main", 1), encoding="utf-8")
    visit = browser.open(page)
    assert visit.value("typeof owned") == "undefined"
    assert any("Content Security Policy" in line for line in visit.complaints)
    assert visit.value("document.querySelectorAll('thead button').length") > 0  # ours does
