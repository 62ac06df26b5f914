"""One adviser: the same sentence from monitor, guard, forecast, diagnose and docs."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from uncollapse.health import VERDICTS, CollapseMonitor, Guard, forecast
from uncollapse.health.advice import _ADVICE, advise_on
from uncollapse.health.strategy import RunSettings, Strategy, rank_strategies, strategy_of
from uncollapse.losses import MarginLoss, NPairLoss, ProxyNCALoss, TripletLoss
from uncollapse.mining import Miner
from uncollapse.report import diagnose

DOCS = Path(__file__).parents[2] / "docs"


def triplet(positives: str = "hard", negatives: str = "hard", **options):
    return TripletLoss(**{"margin": 0.2} | options, miner=Miner(positives, negatives))


NOTHING = RunSettings()


@dataclass(frozen=True)
class Situation:
    """A loss, what else is known of its run, and the verdict it comes to."""

    verdict: str
    loss: nn.Module
    known: RunSettings = NOTHING
    predicted: bool = False  # whether a forecast can come to it

    @property
    def settings(self) -> RunSettings:
        return self.known.known(RunSettings.of(self.loss))

    @property
    def sentence(self) -> str:
        return advise_on(self.verdict, self.settings).sentence


# By the name that docs/choosing.md has for them.
SITUATIONS = {
    "batch-hard, one look per class": Situation("network-collapse", triplet(), predicted=True),
    "batch-hard with margin 0": Situation("network-collapse", triplet(margin=0.0), predicted=True),
    "batch-hard with a soft margin": Situation(
        "network-collapse", triplet(soft=True), predicted=True
    ),
    "batch-hard, classes with several modes": Situation(
        "network-collapse", triplet(), RunSettings(several_modes=True), predicted=True
    ),
    "batch-hard, two samples per class": Situation(
        "network-collapse", triplet(), RunSettings(k=2), predicted=True
    ),
    "hard mining with another loss": Situation(
        "network-collapse", MarginLoss(miner=Miner("hard", "hard"))
    ),
    "easy positives that shrink all the same": Situation("network-collapse", triplet("easy")),
    "a loss without a miner": Situation("network-collapse", NPairLoss()),
    "classes that become points": Situation("class-collapse", triplet("random", "semihard")),
    "embeddings that explode": Situation("diverging", triplet(), RunSettings(lr=0.01)),
}
each = pytest.mark.parametrize("name", SITUATIONS)
LABELS = torch.arange(8).repeat_interleave(4)


def rows(verdict: str, step: int) -> torch.Tensor:
    """A batch on its way to a verdict, which it has reached after thirty steps."""
    generator = torch.Generator().manual_seed(step)
    noise = torch.randn(32, 4, generator=generator)
    if verdict == "network-collapse":
        return noise * 0.7**step
    if verdict == "diverging":
        return noise * 2.0**step
    centres = torch.randn(8, 4, generator=torch.Generator().manual_seed(99))
    return 5 * centres[LABELS] + noise * 0.7**step


def watch(situation: Situation, watcher) -> None:
    for step in range(30):
        watcher(rows(situation.verdict, step), LABELS, step=step)


@each
def test_the_monitor_says_it(name: str):
    situation = SITUATIONS[name]
    monitor = CollapseMonitor(situation.loss, settings=situation.known, every=5)
    watch(situation, monitor.update)
    assert monitor.verdict == situation.verdict
    assert monitor.advice.endswith(situation.sentence)


@each
def test_the_guard_says_it(name: str):
    situation = SITUATIONS[name]
    model = nn.Linear(4, 4)
    monitor = CollapseMonitor(situation.loss, settings=situation.known, every=5)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = Guard(model, optimiser, situation.loss, monitor, action="warn")
    watch(situation, guard.after_step)
    assert situation.sentence in guard.events[-1].text


@each
def test_diagnose_says_it(name: str):
    situation = SITUATIONS[name]
    start, end = rows(situation.verdict, 0), rows(situation.verdict, 29)
    found = diagnose(end, LABELS, reference=diagnose(start, LABELS).health)
    assert found.verdict == situation.verdict
    told = diagnose(
        end, LABELS, reference=diagnose(start, LABELS).health, settings=situation.settings
    )
    assert situation.sentence in str(told)


class Noise:
    """Labels that the samples do not show: batch-hard shrinks on them."""

    def __init__(self, per_class: int) -> None:
        self.labels = torch.arange(8).repeat_interleave(per_class)
        generator = torch.Generator().manual_seed(0)
        self.samples = torch.randn(len(self.labels), 8, generator=generator)

    def __getitem__(self, which):
        return self.samples[which], self.labels[which]


@pytest.mark.parametrize("name", [name for name, one in SITUATIONS.items() if one.predicted])
def test_the_forecast_says_it(name: str):
    situation = SITUATIONS[name]
    known = situation.known
    torch.manual_seed(0)
    found = forecast(
        nn.Linear(8, 4),
        Noise(12),
        p=[8],
        k=[known.k or 8],
        loss_fn=situation.loss,
        several_modes=known.several_modes,
    )
    assert found.cells[0].risk != "none"
    assert situation.sentence in found.reason


@each
def test_the_docs_say_it(name: str):
    page = (DOCS / "choosing.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    plain = re.sub(r"[`*]", "", line)
    advice = advise_on(SITUATIONS[name].verdict, SITUATIONS[name].settings)
    assert f"| {advice.sentence} | {advice.evidence} |" in plain
    assert advice.evidence


def test_advice_is_what_the_guard_tries_first():
    own = strategy_of(triplet())
    words = advise_on("network-collapse", RunSettings.of(triplet())).sentence
    first = rank_strategies(own)[0]
    assert f"positives = {first.positives} with scale_free = true" in words
    assert first.scale_free


def test_what_is_tried_never_is_what_is_done_already():
    for positives in ("hard", "easy", "inside"):
        for scale_free in (False, True):
            own = strategy_of(triplet(positives, scale_free=scale_free))
            found = rank_strategies(own)
            assert own not in found
            assert len(set(found)) == len(found)
            assert found[-1] == replace(own, lr_factor=pytest.approx(1 / 3))


def test_a_loss_that_charges_nothing_or_everything_gets_a_margin():
    for own in (strategy_of(triplet(margin=0.0)), strategy_of(triplet(soft=True))):
        others = [one for one in rank_strategies(own) if one.lr_factor == 1.0]
        assert {(one.margin, one.soft) for one in others} == {(0.2, False)}
    wide = strategy_of(triplet(margin=0.7))
    assert {one.margin for one in rank_strategies(wide)} == {0.7}


def test_modes_that_are_known_put_easy_positives_first():
    own = strategy_of(triplet())
    some = rank_strategies(own, RunSettings(several_modes=True))
    assert [str(one) for one in some[:2]] == ["easy x hard, scale-free", "easy x hard"]


def test_two_samples_per_class_leave_no_choice_of_positives():
    found = rank_strategies(strategy_of(triplet()), RunSettings(k=2))
    assert {one.positives for one in found} == {"hard"}


def test_losses_without_a_scale_free_form_and_without_a_miner_are_not_given_one():
    mined = rank_strategies(strategy_of(MarginLoss(miner=Miner("hard", "hard"))))
    assert all(one.scale_free is None for one in mined)
    assert str(mined[0]) == "easy x hard"
    (slower,) = rank_strategies(strategy_of(ProxyNCALoss(num_classes=3, dim=4)))
    assert slower == Strategy(lr_factor=pytest.approx(1 / 3))


def test_every_verdict_has_advice_and_a_line_in_the_docs() -> None:
    bad = [name for name in VERDICTS if name != "healthy"]
    assert sorted(bad) == sorted(_ADVICE)
    assert all(VERDICTS[name].rules for name in bad)
    docs = (DOCS / "health.md").read_text()
    assert all(f"| `{name}` |" in docs for name in VERDICTS)
