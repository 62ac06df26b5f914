"""What commands print fits the terminal: no table loses a word, a number or its last column."""

import io

import pytest
from PIL import Image
from rich.console import Console

from support.errors import refused
from uncollapse._base.table import Table
from uncollapse.cli.datasets import copy_lines, survey_table
from uncollapse.cli.printing import (
    ScoreLine,
    failed_rules,
    line_table,
    say,
    say_cost,
    split_tables,
)
from uncollapse.cli.reproduce import listing_table, show_page
from uncollapse.cli.search import neighbour_table
from uncollapse.cli.sweep import _table as plan_table
from uncollapse.data import check as check_copy
from uncollapse.data import survey
from uncollapse.health.race import Race, RaceScore
from uncollapse.health.strategy import Strategy
from uncollapse.metrics import Interval
from uncollapse.papers import ItemPage
from uncollapse.papers.comparison import Finding, Score, Scorecard
from uncollapse.papers.items import Recorded
from uncollapse.report.forecast_page import race_table
from uncollapse.sweep.grid import Plan
from uncollapse.training.predictions import Entrant, RaceResult

FRAME = str.maketrans(dict.fromkeys("│┃├┤┌┐└┘─━┏┓┗┛┡┩╇┳┻┼┴┬", " "))


@pytest.fixture(params=(60, 80, 120))
def width(request):
    return request.param


def shown(width, *things, color_system=None, **options):
    """Tables, lines and pages of items as a terminal of this width shows them."""
    console = Console(file=io.StringIO(), width=width, color_system=color_system, **options)
    for thing in things:
        show_page(console, thing) if isinstance(thing, ItemPage) else console.print(thing)
    return console.file.getvalue()


def check(text, width, words):
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width, text
    seen = set(text.translate(FRAME).split())
    assert set(words) <= seen, set(words) - seen


def test_races_name_their_split_and_every_result(width):
    own, other = Strategy("hard", "hard"), Strategy("inside", "semihard", scale_free=True)
    race = Race((RaceScore(str(other), 120, 0.987),), str(other), 128, 58.0)
    entrants = (
        Entrant(other, -0.011, 120, 0.987, 1.25, "wins"),
        Entrant(own, 0.704, None, None, None, "shrinks"),
    )
    text = shown(width, race_table(RaceResult(race, own, entrants)))
    check(text, width, {"train", "R@1", "98.7", "chosen", "shrinks", "scale-free", "+0.704"})


def test_scores_show_every_metric_of_every_split(width):
    names = [*(f"recall@{k}" for k in (1, 2, 4, 8, 16, 32, 100)), "map@r", "nmi", "nmi+"]
    splits = ("validation", "validation/fine", "test")
    scores = {f"{split}/{name}": 1.0 for split in splits for name in names}
    scores["test/verification/auc"] = 0.25
    text = shown(width, *split_tables(scores, scores))
    check(text, width, {"R@1", "R@100", "MAP@R", "NMI+", "AUC", "100.00", "before", "after"})
    assert text.count("100.00") == 2 * len(splits) * len(names)


def test_figures_of_files_show_their_intervals_and_what_they_are_over(width):
    over = "30,000 of 120,053 queries, less 1,234 without a match"
    interval = Interval(1.0, 0.99, 1.0, 0.95, 1000, 30_000, "percentile")
    lines = [
        ScoreLine("r", "R-precision", 1.0, over, interval, by=by, note="0.1234")
        for by in ("label", "fine label")
    ]
    words = {"R-precision", "100.00", "99.00", *over.split(), "threshold", "0.1234"}
    check(shown(width, line_table(lines, threshold="threshold")), width, words)


def test_neighbours_with_long_names_keep_their_label_and_distance(width):
    name = "photographs/of/some-people/" + "a_long_file_name_" * 3 + ".jpg"
    entry = {"query": name, "neighbour": name, "label": "a_label", "rank": 1}
    entries = [
        entry | {"same": same, "distance": d} for same, d in ((True, 0.123456), (False, 123.4567))
    ]
    text = shown(width, neighbour_table(entries, "distance"))
    check(text, width, {"rank", "label", "distance", "✓", "✗", "0.1235", "123.5", "a_label"})


@pytest.fixture(scope="module")
def copies():
    return list(survey())


def test_the_datasets_and_the_items_keep_every_word(width, copies):
    words = {word for copy in copies for word in (copy.info.name, *copy.info.title.split())}
    check(shown(width, survey_table(copies)), width, words)
    table = listing_table()
    words = {word for line in table.lines for cell in line for word in cell.text.split()}
    check(shown(width, table), width, words)


def test_a_reproduced_table_keeps_its_numbers_and_verdicts_whole(width):
    metrics = [f"{kind} digits R@{k}" for kind in ("train", "test") for k in (1, 5, 10)]
    scores = [
        Score(method, metric, 42.01, [40.0, 45.0], None if method == "Triplet" else "Triplet")
        for method in ("Triplet", "EPS + Triplet")
        for metric in metrics
    ]
    claim = Finding("what is so", "a sentence of the paper", "what is so here", False)
    title = "A title that is longer than most terminals are wide, " * 2
    text = shown(width, ItemPage(title, Scorecard(scores, [claim]).tables()))
    check(text, width, {"42.01", "42.5", "NO", "reproduced?", "paper", "ours", "difference"})
    assert text.count("42.5 ± 3.5") == 12
    assert text.count("NO (0 of 2 seeds)") == 6


def test_a_table_of_sentences_folds_between_words(width):
    sentence = "the isometric approximation theorem holds for separated classes " * 3
    table = Table(["claim", "verdict", "why"], [[sentence, "true if", sentence]] * 2, verdict=1)
    text = shown(width, ItemPage("", [table]))
    check(text, width, {*sentence.split(), "true", "verdict"})
    assert text.count("true if") == 2


def test_the_plan_of_a_sweep_says_why_its_time_is_not_known(width):
    why = "the smallest run failed: " + "out of memory " * 8
    plan = Plan(9, 1, 1, 8, 2, None, 1_500_000_000, why)
    check(shown(width, plan_table(plan)), width, {*why.split(), "1,500", "MB"})


def test_lines_wrap_between_words_on_a_terminal_alone():
    text = "by label, on all 2,000 rows of test: " + "R@1 50.4 %, " * 8 + "/tmp/" + "x" * 70
    for terminal in (True, False):
        console = Console(file=io.StringIO(), width=60, force_terminal=terminal, color_system=None)
        say(text, console=console)
        say(text, whole=True, console=console)
        lines = console.file.getvalue().splitlines()
        assert text in lines
        assert (len(lines) > 2) is terminal
        assert all(word in " ".join(lines).split() for word in text.split())


# Datasets


@pytest.mark.slow
def test_a_copy_is_printed_with_its_splits_and_the_official_counts(tmp_path, monkeypatch):
    base = tmp_path / "market1501"
    for name in ("bounding_box_train/0002_c1s1_000451_03.jpg", "query/0003_c1s6_015971_00.jpg"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((32, 64), 50).save(base / name)
    text = shown(200, copy_lines(check_copy("market1501", base)))
    assert f"found in {base}" in text
    assert "1 images, 1 classes (official: 12,936 images, 751 classes)" in text
    assert "no folder bounding_box_test" in text
    assert "not complete" in text
    monkeypatch.setenv("UNCOLLAPSE_DATA", str(tmp_path))
    text = " ".join(shown(120, survey_table(survey())).split())
    assert "(official: 12,936" in text
    assert "not found" in text


@pytest.mark.slow
def test_every_dataset_says_where_it_is_from_and_what_it_looks_like(monkeypatch, cli):
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)
    for copy in survey():
        info, text = copy.info, " ".join(shown(120, copy_lines(copy)).split())
        for field in (info.title, info.licence, info.layout.splitlines()[0]):
            assert " ".join(field.split()) in text
    assert "no folder given" in shown(120, copy_lines(check_copy("cub200")))
    assert "complete" in cli("datasets", "digits", "--strict").out.splitlines()
    cli("datasets", "cub200", "--strict", code=2)
    assert "digits" in cli("datasets").out


# Pages of the papers' items


def test_a_page_is_printed_whole_and_brackets_are_text():
    verdicts = Table(["what", "reproduced?"], [["loss [a|b]", "NO"], ["c", "yes"]], verdict=1)
    scores = Table(["method", "R@1"], [["a", "1.0"]], title="A part", strong=[0], notes=["M [it]."])
    page = ItemPage("The title", [verdicts, scores], {"seeds": "0, 1"}, ["A note [x]."])
    text = shown(120, page)
    parts = ("The title", "loss [a|b]", "NO", "A part", "M [it].", "seeds: 0, 1", "A note [x].")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_miss_is_red_and_what_holds_is_green():
    rows = [["NO (0 of 2 seeds)"], ["yes"], ["true if"], ["not judged"]]
    page = ItemPage("", [Table(["v"], rows, verdict=0)])
    text = shown(120, page, color_system="standard", force_terminal=True)
    for colour, words in (("1;31", "NO (0 of 2 seeds)"), ("32", "yes"), ("33", "true if")):
        assert f"\x1b[{colour}m{words}" in text
    assert "not judged" in text


def test_the_listing_says_time_data_and_whether_it_was_real(monkeypatch):
    assert "hours, GPU" in shown(200, listing_table())
    rows = {
        "table5": Recorded(
            *("table5", "laptop", 5100.0, "Omniglot, no CUB-200-2011", "part", "no"), *"3xd"
        ),
        "fig4": Recorded("fig4", "laptop", 2.8, "", "", "", "", "", "d"),
    }
    monkeypatch.setattr("uncollapse.papers.read_recorded", lambda: rows)
    cells = {line[0].text: [cell.text for cell in line[3:8]] for line in listing_table().lines}
    assert cells["table5"] == ["no", "laptop", "85 min", "Omniglot, no CUB-200-2011", "part"]
    assert cells["fig4"] == ["–", "laptop", "2.8 s", "none", "–"]


@pytest.mark.parametrize(
    ("rule", "fails"),
    [
        ("R@1<0.80", True),
        ("r@1 < 75%", False),
        ("R@1<=75 %", True),
        ("R@1>=0.76", False),
        ("R@1==0.75", True),
        ("R@1!=0.75", False),
        ("NMI+>-1e-3", True),
        ("lost>0", True),
        ("unjudged<0.5", True),
    ],
)
def test_a_rule_fails_where_it_holds_or_cannot_be_judged(rule, fails):
    figures = {"R@1": 0.75, "NMI+": 0.0, "lost": None, "unjudged": float("nan")}
    assert bool(failed_rules([rule], figures)) is fails


@pytest.mark.parametrize("rule", ["R@1", "R@1<", "<0.8", "R@1=0.8", "R@1<e", "recal<0.8", ""])
def test_a_rule_that_cannot_be_read_is_refused(rule):
    with refused("--fail-if"):
        failed_rules([rule], {"R@1": 0.75, "recall": 0.5})


def test_minutes_of_comparing_all_rows_are_announced_and_seconds_are_not(capsys):
    say_cost(50_000, 50_000, 384)
    assert capsys.readouterr().err == ""
    say_cost(200_000, 200_000, 768)
    assert "200,000 rows is compared with 200,000: about 14 min of one core" in " ".join(
        capsys.readouterr().err.split()
    )
