"""What users get back, at a prompt and in a notebook."""

import math
import sys
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import uncollapse as uc
from uncollapse._base.check import percent
from uncollapse._base.result import Card
from uncollapse.health.advice import Strategy
from uncollapse.health.forecasts import Forecast, ForecastCell
from uncollapse.health.race import Race, RaceScore
from uncollapse.metrics import evaluate_rows

HOSTILE = "<script>alert('\u202e')</script>"
LABELS = np.array([HOSTILE, "b", "c", "d"])[np.arange(80) % 4]
ROWS = np.random.default_rng(0).normal(size=(80, 6)) + 4 * np.eye(4, 6)[np.arange(80) % 4]


def watch():
    model, criterion = nn.Linear(6, 3), uc.TripletLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with uc.watch(model, criterion, optimizer) as watched:
        for _ in range(3):
            criterion(model(torch.from_numpy(ROWS).float()), LABELS).backward()
            optimizer.step()
    return watched


def forecast():
    hard, easy = Strategy("hard", "hard"), Strategy("easy", "semihard")
    figures = (0.1, 1.0, 2.0, 0.5, 1.0)
    cells = [
        ForecastCell(4, 4, 8, each, drift, *figures) for each, drift in ((hard, 0.4), (easy, 0.0))
    ]
    return Forecast((cells[0],), (cells[1],), 2.0)


def mislabelled():
    return np.r_[[LABELS[1]], LABELS[1:]]


RETURNED = {
    "health": lambda: uc.measure(ROWS, LABELS, modes=False),
    "diverged health": lambda: uc.measure(ROWS * np.nan, LABELS),
    "health without labels": lambda: uc.measure(ROWS),
    "diagnosis": lambda: uc.diagnose(ROWS, LABELS, modes=False),
    "retrieval": lambda: uc.retrieval(ROWS, LABELS),
    "retrieval of nothing": lambda: uc.retrieval(ROWS, np.arange(80)),
    "clustering": lambda: uc.clustering(ROWS, LABELS),
    "verification": lambda: uc.verification(ROWS, LABELS),
    "re-identification": lambda: uc.reid(ROWS, [1] * 80, [0] * 80, ROWS, [1] * 80, [1] * 80),
    "scores": lambda: evaluate_rows(ROWS, LABELS),
    "interval": lambda: uc.confidence(uc.retrieval(ROWS, LABELS), "recall@1"),
    "suspects": lambda: uc.suspect_labels(ROWS, mislabelled()),
    "drift": lambda: uc.drift(uc.TripletLoss(), ROWS, LABELS),
    "mode drift": lambda: uc.mode_drift(uc.TripletLoss(), ROWS, LABELS),
    "forecast": forecast,
    "race": lambda: Race((RaceScore(HOSTILE, 8, 0.5), RaceScore("b", 4, 0.25)), HOSTILE, 64, 20.0),
    "watch": watch,
}


class Elements(HTMLParser):
    """Elements and texts of a page; what was opened must be closed in order."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("kind", RETURNED)
def test_a_prompt_shows_five_lines_at_most_and_a_notebook_a_card(kind):
    returned = RETURNED[kind]()
    lines = repr(returned).splitlines()
    assert 1 <= len(lines) <= 5
    assert all(0 < len(line) <= 120 for line in lines)
    card = Elements(returned._repr_html_())
    assert set(card.seen) <= {"div", "span", "b", "progress", "svg", "polyline"}
    assert "\u202e" not in repr(returned) + card.text
    assert "nan" not in card.text.split()


def test_a_card_has_the_verdict_the_scores_and_the_distances():
    diagnosis = uc.diagnose(ROWS, LABELS, modes=False)
    card = Elements(diagnosis._repr_html_())
    assert "Healthy: no collapse found" in card.text
    assert f"R@1 by label {percent(diagnosis.scores['label']['R@1'])}" in card.text
    assert card.seen.count("polyline") == 2
    assert card.seen.count("progress") == len(diagnosis.scores["label"])
    assert "#d64545" in uc.measure(ROWS * 1e-6, LABELS, reference=diagnosis.health)._repr_html_()


def test_suspects_are_named_with_the_label_their_neighbours_have():
    suspects = uc.suspect_labels(ROWS, mislabelled())
    assert "row 0: rather <script>" in Elements(suspects._repr_html_()).text


def test_a_share_that_is_not_known_has_an_empty_bar():
    page = Card("x", shares={"recall@1": math.nan, "map@r": 0.25}).html()
    assert 'value="0.0000"' in page
    assert 'value="0.2500"' in page
    assert Elements(page).text.count("–") == 1


def test_a_run_that_has_not_ended_or_is_damaged_is_shown_as_such(tmp_path):
    run = uc.Run(tmp_path / "mine")
    assert repr(run) == "Run mine: not finished"
    run.path.mkdir()
    run.summary_file.write_text("{", encoding="utf-8")
    assert repr(run).startswith("Run mine\n")
    assert len(repr(run).splitlines()) == 2


@pytest.fixture
def notebook(monkeypatch):
    """A stand-in for the notebook: what was displayed and what each display became."""
    shown, module = [], ModuleType("IPython.display")

    class Handle:
        def __init__(self):
            self.place = len(shown)

        def update(self, page):
            shown[self.place].append(page)

    def display(page, display_id=False):
        handle = Handle()
        shown.append([page])
        return handle

    module.HTML, module.display = str, display
    module.get_ipython = lambda: SimpleNamespace(kernel=None)
    for name in ("IPython", "IPython.display"):
        monkeypatch.setitem(sys.modules, name, module)
    return shown


def test_progress_is_drawn_in_a_notebook_and_taken_away(notebook):
    uc.retrieval(ROWS, LABELS)
    ((first, *drawn, last),) = notebook
    assert (first, last) == ("", "")
    assert [Elements(page).text for page in drawn] == [" retrieval"] * len(drawn)
    uc.retrieval(ROWS, LABELS, progress=False)
    assert len(notebook) == 1


def test_a_notebook_shows_the_whole_page_in_a_frame(notebook):
    diagnosis = uc.diagnose(ROWS, LABELS, modes=False)
    diagnosis.show(height=300)
    ((page,),) = notebook[-1:]
    assert Elements(page).seen == ["div", "iframe"]
    assert "height:300px" in page


def test_elsewhere_it_is_said_how_to_save_the_page(capsys):
    uc.diagnose(ROWS, LABELS, modes=False).show()
    assert "save(path)" in capsys.readouterr().out
