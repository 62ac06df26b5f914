"""One adviser: the same sentence from monitor, guard, forecast, diagnose and docs."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import uncollapse as uc
from uncollapse.health import VERDICTS, CollapseMonitor, RunSettings, rank_strategies
from uncollapse.health.advice import _ADVICE, advise_on
from uncollapse.health.strategy import finer_classes, mode_facts, settings_of, strategy_of
from uncollapse.losses import MarginLoss, NPairLoss, ProxyNCALoss, SupConLoss, TripletLoss
from uncollapse.mining import Miner
from uncollapse.report import diagnose

DOCS = Path(__file__).parents[2] / "docs"


def triplet(positives="hard", negatives="hard", **options):
    return TripletLoss(**{"margin": 0.2} | options, miner=Miner(positives, negatives))


NOTHING = RunSettings()


@dataclass(frozen=True)
class Situation:
    """A loss, what else is known of its run, and the verdict it comes to."""

    loss: nn.Module
    known: RunSettings = NOTHING
    verdict: str = "network-collapse"

    @property
    def settings(self):
        return self.known.known(settings_of(self.loss))

    @property
    def sentence(self):
        return advise_on(self.verdict, self.settings).sentence


RANDOM = triplet("random", "semihard")
# By the name that docs/advice.md has for them; a forecast can come to the first ones.
PREDICTED = {
    "batch-hard, one look per class": Situation(triplet()),
    "batch-hard with margin 0": Situation(triplet(margin=0.0)),
    "batch-hard with a soft margin": Situation(triplet(soft=True)),
    "batch-hard, classes with several modes": Situation(triplet(), RunSettings(several_modes=True)),
    "batch-hard, two samples per class": Situation(triplet(), RunSettings(k=2)),
}
SITUATIONS = PREDICTED | {
    "hard mining with another loss": Situation(MarginLoss(miner=Miner("hard", "hard"))),
    "easy positives that shrink all the same": Situation(triplet("easy")),
    "a loss without a miner": Situation(NPairLoss()),
    "classes that become points": Situation(RANDOM, verdict="class-collapse"),
    "embeddings that explode": Situation(triplet(), RunSettings(lr=0.01), "diverging"),
}
each = pytest.mark.parametrize("name", SITUATIONS)
LABELS = torch.arange(8).repeat_interleave(4)


def rows(verdict, step):
    """A batch on its way to a verdict, which it has reached after thirty steps."""
    generator = torch.Generator().manual_seed(step)
    noise = torch.randn(32, 4, generator=generator)
    if verdict == "network-collapse":
        return noise * 0.7**step
    if verdict == "diverging":
        return noise * 2.0**step
    centres = torch.randn(8, 4, generator=torch.Generator().manual_seed(99))
    return 5 * centres[LABELS] + noise * 0.7**step


@each
def test_monitor_guard_and_diagnose_say_it(name):
    situation = SITUATIONS[name]
    model = nn.Linear(4, 4)
    monitor = CollapseMonitor(situation.loss, settings=situation.known, every=5)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = uc.Guard(model, optimiser, situation.loss, monitor, action="warn")
    for step in range(30):
        guard.after_step(rows(situation.verdict, step), LABELS, step=step)
    assert monitor.verdict == situation.verdict
    checked = advise_on(situation.verdict, monitor.settings, monitor._drift_of).sentence
    assert monitor.advice.endswith(checked)
    assert checked in guard.events[-1].text
    start = diagnose(rows(situation.verdict, 0), LABELS).health
    end = rows(situation.verdict, 29)
    result = diagnose(end, LABELS, reference=start, settings=situation.settings)
    assert result.verdict == situation.verdict
    assert situation.sentence in str(result)


class Noise:
    """Labels that the samples do not show: batch-hard shrinks on them."""

    def __init__(self):
        self.labels = torch.arange(8).repeat_interleave(12)
        generator = torch.Generator().manual_seed(0)
        self.samples = torch.randn(len(self.labels), 8, generator=generator)

    def __getitem__(self, which):
        return self.samples[which], self.labels[which]


@pytest.mark.parametrize("name", PREDICTED)
def test_the_forecast_says_it(name):
    situation = SITUATIONS[name]
    known = situation.known
    torch.manual_seed(0)
    asked = {"loss_fn": situation.loss, "several_modes": known.several_modes}
    result = uc.forecast(nn.Linear(8, 4), Noise(), p=[8], k=[known.k or 8], batches=2, **asked)
    assert result.cells[0].risk != "none"
    drifts = {cell.strategy: cell.drift for cell in result.alternatives}
    settings = situation.settings.known(RunSettings(k=8))
    checked = advise_on("network-collapse", settings, lambda each: drifts.get(each, math.nan))
    assert checked.sentence in result.reason


def test_what_shrinks_the_rows_is_not_advised():
    result = uc.forecast(nn.Linear(8, 4), Noise(), p=[8], k=[8], batches=2)
    inside = next(cell for cell in result.alternatives if str(cell.strategy) == "inside x hard")
    assert inside.drift > 0.02
    assert "positives = inside with scale_free = true" in result.reason
    assert "or positives = inside" not in result.reason


def test_a_loss_that_does_not_shrink_the_rows_has_too_high_a_rate():
    settings = settings_of(triplet()).known(RunSettings(lr=0.3))
    advice = advise_on("network-collapse", settings, lambda strategy: 0.0)
    assert "does not shrink these rows (drift +0.000)" in advice.cause
    assert advice.sentence == "try lr = 0.03"
    shrinks = advise_on("network-collapse", settings, lambda s: 0.3 * (s.scale_free is not True))
    assert "scale_free = true" in shrinks.sentence
    assert "lr" not in shrinks.sentence


def test_a_loss_of_another_package_is_replaced_by_a_line_that_works():
    foreign = SimpleNamespace(margin=0.4)  # all triplets, as far as one can read
    advice = advise_on("network-collapse", settings_of(foreign), lambda strategy: math.nan)
    line = advice.sentence.removeprefix("try ").removesuffix(" in place of this loss")
    assert line == 'uc.TripletLoss(margin=0.4, miner=uc.Miner("inside", "hard"), scale_free=True)'
    assert strategy_of(eval(line)).positives == "inside"


def test_another_package_s_loss_with_nothing_safe_in_its_place_is_advised_a_lower_rate():
    settings = settings_of(SimpleNamespace(margin=0.4)).known(RunSettings(lr=0.01))
    assert advise_on("network-collapse", settings, lambda s: 0.3).sentence == "try lr = 0.001"


def test_proxies_have_no_tuples_to_choose():
    settings = settings_of(ProxyNCALoss(num_classes=3, dim=4))
    for drift in (math.nan, 0.3):
        sentence = advise_on("cone", settings, lambda strategy, drift=drift: drift).sentence
        assert "positives" not in sentence
        assert "learning rate" in sentence


def test_the_monitor_measures_what_it_advises_on_the_rows_it_saw():
    def train(loss_fn, until=40):
        monitor = CollapseMonitor(loss_fn, every=5)
        for step in range(until):
            monitor.update(rows("network-collapse", step), LABELS)
        return monitor

    for loss_fn in (triplet(), lambda z, y: triplet()(z, y)):
        monitor = train(loss_fn)
        assert monitor.verdict == "network-collapse"
        assert "learning rate" not in monitor.advice
        assert "scale_free" in monitor.advice
    at_rest = train(lambda z, y: 0.0 * z.sum())
    assert "its steps are too long" in at_rest.advice
    assert "try a tenth of the learning rate" in at_rest.advice


@each
def test_the_docs_say_it(name):
    page = (DOCS / "advice.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    plain = re.sub(r"[`*]", "", line)
    advice = advise_on(SITUATIONS[name].verdict, SITUATIONS[name].settings)
    assert f"| {advice.sentence} | {advice.evidence} |" in plain
    assert advice.evidence


def test_what_is_tried_never_is_what_is_done_already():
    for positives in ("hard", "easy", "inside"):
        for scale_free in (False, True):
            own = strategy_of(triplet(positives, scale_free=scale_free))
            ranked = rank_strategies(own)
            assert own not in ranked
            assert len(set(ranked)) == len(ranked)
            assert all(strategy.lr_factor == own.lr_factor for strategy in ranked)


MINED_MARGIN = MarginLoss(miner=Miner("hard", "hard"))


@pytest.mark.parametrize(
    ("loss", "known", "expected"),
    [
        (triplet(), NOTHING, ["inside x hard, scale-free", "inside x hard"]),
        (triplet(), RunSettings(several_modes=True), ["easy x hard, scale-free", "easy x hard"]),
        (triplet(), RunSettings(k=2), ["hard x semihard", "hard x hard, scale-free"]),
        (MINED_MARGIN, NOTHING, ["easy x hard", "hard x semihard"]),  # it has no scale-free form
        (ProxyNCALoss(num_classes=3, dim=4), NOTHING, []),
    ],
    ids=["one mode", "several modes", "one positive, whatever it is called", "margin", "proxies"],
)
def test_the_best_two_alternatives(loss, known, expected):
    ranked = rank_strategies(strategy_of(loss), known)
    assert [str(strategy) for strategy in ranked[:2]] == expected
    if known.k == 2:
        assert {strategy.positives for strategy in ranked} == {"hard"}
    if loss is MINED_MARGIN:
        assert all(strategy.scale_free is None for strategy in ranked)


@pytest.mark.parametrize("options", [{"margin": 0.0}, {"soft": True}, {"margin": 0.7}], ids=str)
def test_a_loss_of_zero_or_soft_margin_gets_a_margin_and_others_keep_theirs(options):
    ranked = rank_strategies(strategy_of(triplet(**options)))
    others = {(s.margin, s.soft) for s in ranked if s.lr_factor == 1.0}
    assert others == {(options.get("margin") or 0.2, False)}


def test_every_verdict_has_advice_and_a_line_in_the_docs():
    bad = [name for name in VERDICTS if name != "healthy"]
    assert sorted(bad) == sorted(_ADVICE)
    assert all(VERDICTS[name].rules for name in bad)
    docs = (DOCS / "health.md").read_text()
    assert all(f"| `{name}` |" in docs for name in VERDICTS)


# What is said of the modes of a class.


def modes(spread=0.05, apart=1.0):
    """Two classes of two modes with twenty rows each: classes on one axis, modes on others."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 1, 0], [0, -1, 0], [3, 0, 1], [3, 0, -1]])
    centres = centres * torch.tensor([1.0, apart, apart])
    which = torch.arange(4).repeat_interleave(20)
    return centres[which] + spread * torch.randn(80, 3, generator=generator), which // 2


def wide(positives):
    return TripletLoss(margin=9.0, miner=Miner(positives, "semihard", margin=9.0))


def test_what_a_loss_does_to_modes_is_named_beside_easy_positives():
    (fact,) = mode_facts(wide("hard"), *modes())
    assert fact.startswith("hard x semihard merges the modes of a class (mode drift +")
    assert "where easy x semihard keeps them (-" in fact
    (fact,) = mode_facts(wide("easy"), *modes())
    assert fact.startswith("easy x semihard keeps the modes of a class (mode drift -")
    (fact,) = mode_facts(SupConLoss(), *modes())
    assert fact.startswith("SupConLoss merges the modes of a class")


def test_nothing_is_said_where_nothing_is_known():
    z, labels = modes()
    assert mode_facts(None, z, labels) == ()
    assert mode_facts(lambda z, y: z.sum(), z, labels) == ()
    assert mode_facts(wide("hard"), z, None) == ()
    assert mode_facts(wide("hard"), z[::10], labels[::10]) == ()  # four rows a class
    assert mode_facts(wide("hard"), z, torch.zeros(80, dtype=torch.long)) == ()
    assert mode_facts(MarginLoss(beta_per="sample", size=80), z, labels) == ()


@pytest.mark.parametrize(
    "loss",
    [
        TripletLoss(miner=Miner("random", "random", generator=torch.Generator().manual_seed(3))),
        ProxyNCALoss(num_classes=2, dim=3),
    ],
    ids=["random", "proxies"],
)
def test_asking_moves_neither_the_generator_nor_the_parameters(loss):
    generator = getattr(loss.miner, "generator", None)
    before = None if generator is None else generator.get_state()
    state = {name: value.clone() for name, value in loss.state_dict().items()}
    assert mode_facts(loss, *modes())
    assert before is None or torch.equal(before, generator.get_state())
    assert all(torch.equal(value, loss.state_dict()[name]) for name, value in state.items())
    assert all(p.grad is None for p in loss.parameters())


def test_the_monitor_says_which_mining_merged_the_modes():
    monitor = CollapseMonitor(wide("hard"), every=1, patience=1)
    silent = CollapseMonitor(every=1, patience=1)
    for step in range(12):
        batch = modes(0.05 * 0.4**step, 0.4**step)
        advice, plain = monitor.update(*batch).advice, silent.update(*batch).advice
    assert monitor.verdict == silent.verdict == "class-collapse"
    assert "hard positives pull all of a class together" in advice
    assert "hard x semihard merges the modes of a class (mode drift +" in advice
    assert "; easy x semihard: +" in advice
    assert "try positives = easy" in advice
    assert "mode drift" not in plain
    resumed = CollapseMonitor(wide("easy"), every=1, patience=1)
    resumed.load_state_dict(monitor.state_dict())
    assert resumed.update(*modes(1e-8, 1e-7)).advice == monitor.update(*modes(1e-8, 1e-7)).advice


def test_fine_labels_that_divide_a_class_are_seen():
    coarse = torch.tensor([0, 0, 1, 1])
    assert finer_classes(SimpleNamespace(labels=coarse, fine_labels=torch.tensor([5, 6, 7, 7])))
    assert finer_classes(SimpleNamespace(labels=coarse, fine_labels=coarse + 3)) is None
    assert finer_classes(SimpleNamespace(labels=coarse)) is None


# Without labels.

UNLABELLED = {
    "no labels, the loss pulls directions together": RunSettings(labels=False, direction_drift=0.4),
    "no labels, the loss does not": RunSettings(labels=False, direction_drift=-0.01, lr=0.3),
    "no labels, nothing else known": RunSettings(labels=False),
}


@pytest.mark.parametrize("name", UNLABELLED)
def test_the_docs_say_what_helps_without_labels(name):
    page = (DOCS / "advice.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {name} |")]
    advice = advise_on("cone", UNLABELLED[name])
    assert f"| {advice.sentence} | {advice.evidence} |" in line


def test_advice_without_labels_is_about_what_such_methods_have():
    for verdict in _ADVICE:
        for known in UNLABELLED.values():
            sentence = advise_on(verdict, known).sentence
            if verdict != "uninformative":  # a verdict that takes labels
                assert not re.search("positives|negatives|class|label|scale_free", sentence)
    pulled, not_pulled, unknown = (advise_on("shrinking", s) for s in UNLABELLED.values())
    assert "direction drift +0.4" in pulled.cause
    assert "stop-gradient" in pulled.sentence
    assert "learning rate" not in pulled.sentence
    assert "direction drift -0.01" in not_pulled.cause
    assert not_pulled.sentence.startswith("try lr = 0.03, batch norm")
    assert "stop-gradient" in unknown.sentence
    assert "a tenth of the learning rate" in unknown.sentence
    undefined = RunSettings(labels=False, direction_drift=float("nan"))
    assert advise_on("shrinking", undefined) == unknown


def test_the_monitor_knows_that_a_run_has_no_labels_unless_its_loss_mines():
    def advice(loss_fn, labels):
        monitor = CollapseMonitor(loss_fn, every=5)
        for step in range(30):
            monitor.update(rows("network-collapse", step), labels)
        assert monitor.verdict == "network-collapse"
        return monitor.advice

    assert "stop-gradient" in advice(None, None)
    assert "positives = easy" in advice(None, LABELS)
    assert "positives = inside" in advice(triplet(), None)
