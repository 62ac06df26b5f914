"""What people get wrong when they call a function, and the sentence that helps them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import uncollapse as uc
from odd_inputs import CLASSES, ROWS
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.mining import as_pairs

Z, Y = torch.tensor(ROWS, dtype=torch.float32), CLASSES.tolist()


def model_and_optimiser() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def mean_square(z: Tensor, labels: Any) -> Tensor:
    return z.square().mean()


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "embeddings for values": (
        lambda: uc.confidence(ROWS, Y),
        r"embeddings\? uc.confidence\(uc.ret",
    ),
    "labels for a metric": (lambda: uc.confidence(ROWS[:, 0], CLASSES), r"groups=labels"),
    "no metric": (lambda: uc.confidence(uc.retrieval(Z, Y)), r"metric: expected one of .recall@1"),
    "metric misspelt": (
        lambda: uc.confidence(uc.retrieval(Z, Y), "recal@1"),
        r"did you mean .recall@1",
    ),
    "labels for clusters": (
        lambda: uc.metrics.kmeans(Z, CLASSES),
        r"clusters: .*an array of shape \(12,\)",
    ),
    "no labels": (lambda: uc.TripletLoss()(Z), r"labels: expected labels, one for each row"),
    "one-hot labels": (
        lambda: uc.TripletLoss()(Z, torch.eye(3)[CLASSES]),
        r"one-hot\? labels.argm",
    ),
    "a column of labels": (lambda: uc.retrieval(Z, CLASSES[:, None]), r"labels.flatten\(\)"),
    "swapped in a loss": (lambda: uc.SupConLoss()(torch.tensor(CLASSES), Z), r"labels\? the embed"),
    "swapped in a metric": (lambda: uc.retrieval(Z, Z + 0.25), r"embeddings\? they come first"),
    "1-D points": (lambda: uc.diameter(np.array([0.5, 1.5])), r"x\[:, None\]"),
    "3-D features": (lambda: uc.measure(torch.rand(4, 3, 2)), r"x.flatten\(1\)"),
    "lengths that differ": (
        lambda: uc.Miner()(Z, Y[:-1]),
        r"labels: expected 12, one for each row",
    ),
    "logits": (
        lambda: uc.ProxyNCALoss(num_classes=10, dim=4)(torch.rand(5, 10), [0] * 5),
        r"logits, one per",
    ),
    "too many names": (
        lambda: uc.MarginLoss(beta_per="class", size=2)(Z, list("abcabcabcabc")),
        r"at most 2 classes",
    ),
    "names for samples": (
        lambda: uc.MarginLoss(beta_per="sample", size=12)(Z, Y, sample_ids=["a"] * 12),
        r"sample_ids: expected the rows. numbers",
    ),
    "a name beside numbers": (lambda: uc.retrieval(Z, ["a", 1, 2] * 4), r"1 in row 1"),
    "a missing name": (lambda: uc.retrieval(Z, ["a", float("nan"), "b"] * 4), r"nan in row 1"),
    "masked entries": (lambda: uc.diameter(np.ma.masked_equal(ROWS, 7)), r"masked entries"),
    "the class of a loss": (lambda: uc.CollapseMonitor(uc.TripletLoss), r"a loss, not its class"),
    "a vector of losses": (lambda: uc.CollapseMonitor().update(Z, Y, torch.rand(4)), r"mean\(\)"),
    "text for a loss": (
        lambda: uc.CollapseMonitor().update(Z, Y, "low"),
        r"loss: expected one num",
    ),
    "a rate for an optimiser": (
        lambda: uc.Guard(nn.Linear(3, 2), 0.1, uc.TripletLoss()),
        r"optimizer: .*Optimizer, second",
    ),
    "optimiser and loss swapped": (
        lambda: uc.Guard(nn.Linear(3, 2), uc.TripletLoss(), model_and_optimiser()[1]),
        r"optimizer: ",
    ),
    "no loss": (lambda: uc.Guard(*model_and_optimiser(), None), r"loss_fn: expected a loss"),
    "embeddings before the loss": (lambda: uc.drift(Z, Y, uc.TripletLoss()), r"loss_fn: .*swapped"),
    "a loss that is a float": (lambda: uc.drift(lambda z, y: 3.0, Z, Y), r"loss_fn: .*one number"),
    "a loss per row": (lambda: uc.drift(lambda z, y: z.sum(1), Z, Y), r"one number: a mean"),
    "embeddings before the loss, modes": (
        lambda: uc.mode_drift(Z, Y, uc.TripletLoss()),
        r"loss_fn: .*swapped",
    ),
    "no neighbours": (
        lambda: uc.mode_drift(uc.TripletLoss(), Z, Y, k=0),
        r"k: expected a whole number of at least 1",
    ),
    "drift without labels": (lambda: uc.drift(uc.TripletLoss(), Z), r"labels: expected one label"),
    "a sampler of rows": (lambda: uc.check_batches(range(4), [0, 1]), r"lists of row numbers"),
    "the class of a sampler": (lambda: uc.check_batches(uc.PKSampler, [0, 1]), r"a batch sampler"),
    "one k": (lambda: uc.reid(Z, [1] * 12, Y, Z, [1] * 12, Y, ks=1), r"ks: expected a list"),
    "a pair for data": (
        lambda: uc.forecast(nn.Linear(3, 2), (Z, Y), [2], [2]),
        r"data: expected a dataset with .lab",
    ),
    "a function to forecast": (
        lambda: uc.forecast(nn.Linear(3, 2), None, loss_fn=mean_square),
        r"loss_fn: expected a Trip",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_likely_mistake_gets_a_sentence_that_helps(name: str):
    call, sentence = MISTAKES[name]
    with pytest.raises(InputError, match=sentence) as told:
        call()
    assert len(str(told.value)) < 400


def test_a_choice_is_checked_when_it_is_set():
    miner = uc.Miner("hard", "hard")
    with pytest.raises(InputError, match="did you mean 'semihard'"):
        miner.negatives = "semi-hard"
    with refused("negatives"):
        miner.negatives = ["semihard"]
    assert miner.negatives == "hard"
    loss = uc.TripletLoss(miner=miner)
    with pytest.raises(InputError, match="did you mean 'nonzero'"):
        loss.reduction = "non-zero"


def test_an_array_in_place_of_a_number_is_shown_short():
    with refused("margin"):
        uc.TripletLoss(margin=torch.zeros(999, 9))


@pytest.mark.parametrize("labels", [["cat", "dog", "cat", "dog"], np.array(["b", "a", "b", "a"])])
def test_names_keep_their_row_of_a_parameter(labels: Any):
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    named = uc.ProxyNCALoss(num_classes=3, dim=3, generator=torch.Generator().manual_seed(0))
    numbered = uc.ProxyNCALoss(num_classes=3, dim=3, generator=torch.Generator().manual_seed(0))
    ids = [sorted(set(labels)).index(name) for name in labels]
    assert named(z, labels).item() == numbered(z, ids).item()
    # A later batch with other names: those seen keep their rows, the fresh one gets the next.
    later = ["aardvark", labels[0], labels[0], "aardvark"]
    assert named(z, later).item() == numbered(z, [2, ids[0], ids[0], 2]).item()


def test_a_restored_loss_finds_the_rows_of_its_names():
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    loss = uc.MarginLoss(beta_per="class", size=3)
    loss(z, ["z", "y", "z", "y"])
    with torch.no_grad():
        loss.beta.copy_(torch.tensor([0.5, 1.0, 1.5]))
    again = uc.MarginLoss(beta_per="class", size=3)
    again.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert again(z, ["a", "z", "a", "z"]).item() == loss(z, ["a", "z", "a", "z"]).item()


def test_names_of_two_lists_are_numbered_together():
    pairs = as_pairs(None, ["b", "b"], ["a", "b"])
    assert (pairs.positive.tolist(), pairs.negative.tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize("rows", [1, 2])
def test_a_monitor_takes_batches_of_one_row(rows: int):
    monitor = uc.CollapseMonitor(patience=2)
    g = torch.Generator().manual_seed(0)
    seen = [monitor.update(torch.randn(rows, 4, generator=g), [i] * rows) for i in range(40)]
    assert {health.verdict for health in seen} <= {"healthy", "unknown"}
    assert seen[-1].diameter > 1.0


def test_batches_of_one_row_that_shrink_are_seen():
    monitor = uc.CollapseMonitor(patience=2)
    g = torch.Generator().manual_seed(0)
    for i in range(40):
        monitor.update(torch.randn(1, 4, generator=g), [i % 4])
    for i in range(40):
        monitor.update(1e-6 * torch.randn(1, 4, generator=g), [i % 4])
    assert monitor.verdict == "network-collapse"


def test_a_guard_takes_a_plain_function_and_rescues_by_the_learning_rate():
    model, optimiser = model_and_optimiser()
    guard = uc.Guard(model, optimiser, mean_square)
    g = torch.Generator().manual_seed(0)
    z = torch.randn(32, 4, generator=g)
    labels = torch.arange(32) % 4
    for step in range(30):
        guard.after_step(z * 0.5**step, labels, 1.0, step)
    assert [event.kind for event in guard.events][:1] == ["rescue"]
    assert guard.lr_factor < 1.0
    state = copy.deepcopy(guard.state_dict())
    uc.Guard(model, optimiser, mean_square).load_state_dict(state)


def test_gradients_flow_through_odd_rows():
    leaf = torch.tensor(ROWS, dtype=torch.float16).T.contiguous().requires_grad_()
    uc.TripletLoss(margin=9.0)(leaf.T, np.array(Y, ">i8")).backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == torch.float16
    plain = torch.tensor(ROWS, requires_grad=True)
    uc.TripletLoss(margin=9.0)(plain, Y).backward()
    assert plain.grad is not None
    np.testing.assert_allclose(leaf.grad.T, plain.grad, atol=2e-3)
