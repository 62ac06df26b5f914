"""On a device a step, forward and backward, makes the host wait for values at most once."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

from losses.loss_oracles import every_loss
from losses.synchronisations import device_step
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner
from uncollapse.mining.miner import NEGATIVES, POSITIVES

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def batch(kind):
    labels = torch.arange(24) % 4
    x = torch.randn(24, 6, generator=torch.Generator().manual_seed(0))
    if kind == "near collapse":
        x = 1 + 1e-5 * x
    elif kind == "one ray":
        x = torch.ones(24, 6) * torch.rand(24, 1, generator=torch.Generator().manual_seed(0))
    elif kind == "one point":
        x = torch.ones(24, 6)
    return x, labels


def compare(make, kind, rtol=1e-5):
    """The step is the host's, and waits at most once; both start from the same random state."""
    x, labels = batch(kind)
    steps = []
    for on_a_device in (False, True):
        loss, leaf = make(), x.clone().requires_grad_()
        with device_step() if on_a_device else nullcontext() as seen:
            value = loss(leaf, labels)
            value.backward()
        assert not on_a_device or len(seen.reads) <= 1, seen.reads
        steps.append((value.detach(), leaf.grad))
    (a, b), (c, d) = steps
    torch.testing.assert_close(a, c, rtol=rtol, atol=1e-6)
    scale = max(float(b.norm()), 1e-3)
    assert float((b - d).norm()) <= 10 * rtol * scale


def miner(positives, negatives, **further):
    generator = torch.Generator().manual_seed(0)
    return Miner(positives, negatives, generator=generator, **further)


@pytest.mark.parametrize("kind", ["plain", "near collapse"])
@pytest.mark.parametrize("positives", POSITIVES)
def test_the_triplet_loss_with_every_miner_waits_once(positives, kind):
    for negatives in NEGATIVES:
        compare(lambda words=(positives, negatives): TripletLoss(miner=miner(*words)), kind)


@pytest.mark.parametrize("kind", ["one ray", "one point"])
@pytest.mark.parametrize("positives", ["easy", "multi_similarity"])
@pytest.mark.parametrize("negatives", ["hard", "semihard", "multi_similarity", "all"])
def test_a_collapsed_batch_waits_once(positives, negatives, kind):
    compare(lambda: TripletLoss(margin=0.2, miner=miner(positives, negatives)), kind)


@pytest.mark.parametrize(
    "further", [{"pool": 8}, {"keep": "hard"}, {"fallback": "farthest"}, {"fallback": "skip"}]
)
def test_further_settings_of_a_miner_wait_once(further):
    compare(lambda: TripletLoss(margin=0.2, miner=miner("easy", "semihard", **further)), "plain")


LOSSES = every_loss()
MINED = [
    None,
    ("easy", "hard"),
    ("easy", "semihard"),
    ("random", "distance"),
    ("multi_similarity", "multi_similarity"),
    ("easy", "multi_similarity"),
    ("all", "all"),
]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_waits_once(name):
    for words in MINED:
        compare(lambda words=words: LOSSES[name](words and miner(*words)), "plain", rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in LOSSES if name.startswith("triplet")])
def test_near_collapse_every_form_of_the_triplet_loss_waits_once(name):
    make = partial(LOSSES[name], margin=0.2)
    for words in MINED[:2]:
        compare(lambda words=words: make(words and miner(*words)), "near collapse", rtol=1e-4)


def test_the_count_counts():
    x = torch.ones(3)
    with device_step() as seen:
        if x.sum() > 0:
            float(x[0])
        x.tolist()
        x[x > 0]
        torch.nonzero(x)
    assert (len(seen.reads), len(seen.shapes)) == (3, 2)
    with pytest.raises(AssertionError, match="no NumPy view"), device_step():
        x.numpy()
