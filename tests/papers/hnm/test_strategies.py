"""`market-strategies`: the strategies, and the table of what became of each."""

import math
from functools import partial

import pytest

from support.pages import rows_of
from uncollapse.data import DataError
from uncollapse.papers import get_item
from uncollapse.papers.hnm import strategies
from uncollapse.papers.hnm.strategies import STRATEGIES, STUDY, StrategyRun, table
from uncollapse.papers.items import Request

ITEM = "market-strategies"
SCORES = ("R@1", "R@5", "R@10", "mAP", "mINP")


def result(method, before, after, *, seed=0, end=1.0, verdict="healthy"):
    start, last = (dict.fromkeys(SCORES, value) for value in (before, after))
    return StrategyRun(method, seed, start, last, 1.0, end, verdict, 0)


def test_batch_hard_runs_with_and_without_a_guard_and_the_others_without(tmp_path):
    setup = STUDY.setups["laptop"][0]
    jobs = setup.jobs(STRATEGIES, Request(ITEM, tmp_path, "laptop"))
    configs = {name: of_cell[0].config for name, of_cell in jobs.items()}
    mined = {n: (c.mining.positives, c.mining.negatives) for n, c in configs.items()}
    assert mined["batch-hard"] == mined["batch-hard, rescued"] == ("hard", "hard")
    assert mined["easy × semi-hard"] == ("easy", "semihard")
    guards = {n: c.guard.action for n, c in configs.items()}
    assert guards.pop("batch-hard, rescued") == "rescue"
    assert set(guards.values()) == {"off"}
    free = {n for n, c in configs.items() if c.loss.scale_free}
    assert free == {"scale-free hard × hard", "scale-free easy × hard"}
    # The whole gallery, at the end as before.
    assert {c.evaluate.max_samples for c in configs.values()} == {None}
    assert {len(of_cell) for of_cell in jobs.values()} == {2}


def test_the_table_has_the_untrained_network_first_and_the_best_in_bold():
    collapsed = partial(result, "batch-hard", after=0.0, verdict="network-collapse")
    hard = collapsed(before=10.0, end=0.001), collapsed(before=12.0, seed=1, end=0.003)
    easy = result("easy × hard", 10.0, 30.0), result("easy × hard", 12.0, 34.0)
    shown = table([*hard, *easy])
    first, second, third = shown.rows
    assert first[:2] == ["untrained", "11.0 ± 1.4"]
    assert second[1] == "0.0 ± 0.0"
    assert second[-4:] == ["-11.0", "0.002", "0.2\N{NO-BREAK SPACE}%", "network-collapse"]
    assert third[-4:] == ["+21.0", "1", "100\N{NO-BREAK SPACE}%", "healthy"]
    assert shown.strong == [2]


FEW = ("batch-hard", "batch-hard, rescued", "easy × semi-hard")


@pytest.mark.slow
@pytest.mark.parametrize("names", [FEW, pytest.param(tuple(STRATEGIES), marks=pytest.mark.night)])
def test_the_item_is_made_of_digits(tmp_path, monkeypatch, names):
    monkeypatch.setattr(strategies, "STRATEGIES", {name: STRATEGIES[name] for name in names})
    made = get_item(ITEM).run(tmp_path, 0, "smoke")
    assert [path.name for path in made.files] == [
        f"{ITEM}{end}" for end in (".md", ".csv", "-runs.csv", ".png", ".svg")
    ]
    page = made.files[0].read_text(encoding="utf-8")
    assert "| untrained | " in page
    assert f"uncollapse reproduce {ITEM} --scale smoke" in page
    rows = rows_of(made.files[2])
    assert [row["strategy"] for row in rows] == list(names)
    # One seed, one untrained network; what is trained differs, but for a guard with nothing to do.
    assert len({row["R@1 before"] for row in rows}) == 1
    hard, rescued, *others = (row["diameter after"] for row in rows)
    assert (rows[1]["rescues"], rescued) == ("0", hard)
    assert len({hard, *others}) == len(others) + 1
    assert all(math.isnan(float(row["mINP after"])) for row in rows)  # no gallery


def test_without_market_it_says_what_to_get(tmp_path):
    with pytest.raises(DataError, match=r"laptop needs data\. market1501.*zheng-lab"):
        get_item(ITEM).run(tmp_path, 0, "laptop", data_root=tmp_path)
