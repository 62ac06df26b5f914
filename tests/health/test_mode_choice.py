"""What is said of the modes of a class: by the monitor, and of data with finer labels."""

from types import SimpleNamespace

import pytest
import torch

from uncollapse.health import CollapseMonitor
from uncollapse.health.strategy import finer_classes, mode_facts
from uncollapse.losses import MarginLoss, ProxyNCALoss, SupConLoss, TripletLoss
from uncollapse.mining import Miner


def modes(spread: float = 0.05, apart: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes of two modes with twenty rows each: classes on one axis, modes on others."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[0.0, 1, 0], [0, -1, 0], [3, 0, 1], [3, 0, -1]])
    centres = centres * torch.tensor([1.0, apart, apart])
    which = torch.arange(4).repeat_interleave(20)
    return centres[which] + spread * torch.randn(80, 3, generator=generator), which // 2


def wide(positives: str) -> TripletLoss:
    return TripletLoss(margin=9.0, miner=Miner(positives, "semihard", margin=9.0))


def test_a_merging_strategy_is_named_beside_easy_positives():
    (said,) = mode_facts(wide("hard"), *modes())
    assert said.startswith("hard x semihard merges the modes of a class (mode drift +")
    assert "where easy x semihard keeps them (-" in said


def test_easy_positives_are_said_to_keep_modes_and_nothing_else_is_proposed():
    (said,) = mode_facts(wide("easy"), *modes())
    assert said.startswith("easy x semihard keeps the modes of a class (mode drift -")


def test_a_loss_without_a_miner_is_named():
    (said,) = mode_facts(SupConLoss(), *modes())
    assert said.startswith("SupConLoss merges the modes of a class")


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
    for step in range(40):
        left = 0.7**step
        health = monitor.update(*modes(0.05 * left, left))
    assert health.verdict == "class-collapse"
    assert "hard positives pull all of a class together" in health.advice
    assert "hard x semihard merges the modes of a class (mode drift +" in health.advice
    assert "; easy x semihard: +" in health.advice
    assert "try positives = easy" in health.advice
    resumed = CollapseMonitor(wide("easy"), every=1, patience=1)
    resumed.load_state_dict(monitor.state_dict())
    assert resumed.update(*modes(1e-8, 1e-7)).advice == monitor.update(*modes(1e-8, 1e-7)).advice
    silent = CollapseMonitor(every=1, patience=1)
    for step in range(40):
        health = silent.update(*modes(0.05 * 0.7**step, 0.7**step))
    assert health.verdict == "class-collapse"
    assert "mode drift" not in health.advice


def test_fine_labels_that_divide_a_class_are_seen():
    coarse = torch.tensor([0, 0, 1, 1])
    assert finer_classes(SimpleNamespace(labels=coarse, fine_labels=torch.tensor([5, 6, 7, 7])))
    same = SimpleNamespace(labels=coarse, fine_labels=coarse + 3)
    assert finer_classes(same) is None
    assert finer_classes(SimpleNamespace(labels=coarse)) is None
