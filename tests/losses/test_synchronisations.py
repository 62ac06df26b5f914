"""On a device a step, forward and backward, makes the host wait for values at most once."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch

from losses.loss_oracles import makers
from losses.synchronisations import device_step
from uncollapse.losses import (
    ContrastiveLoss,
    IdentityLoss,
    TrimmedLoss,
    TripletLoss,
)
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
        if on_a_device:
            with device_step() as seen:
                value = loss(leaf, labels)
                value.backward()
            assert len(seen.reads) <= 1, seen.reads
        else:
            value = loss(leaf, labels)
            value.backward()
        steps.append((value.detach(), leaf.grad))
    (a, b), (c, d) = steps
    torch.testing.assert_close(a, c, rtol=rtol, atol=1e-6)
    scale = max(float(b.norm()), 1e-3)
    assert float((b - d).norm()) <= 10 * rtol * scale


def miner(positives, negatives, **further):
    generator = torch.Generator().manual_seed(0)
    return Miner(positives, negatives, generator=generator, **further)


@pytest.mark.parametrize("kind", ["plain", "near collapse"])
@pytest.mark.parametrize(("positives", "negatives"), list(product(POSITIVES, NEGATIVES)))
def test_the_triplet_loss_with_every_miner_waits_once(positives, negatives, kind):
    compare(lambda: TripletLoss(margin=0.2, miner=miner(positives, negatives)), kind)


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


@pytest.mark.parametrize("mined", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"reduction": "nonzero", "soft": True},
        {"reduction": "max"},
        {"scale_free": True},
        {"scale_free": True, "normalize": True, "reduction": "nonzero"},
        {"scale_free": "hardest-negative"},
        {"swap": True},
        {"distance": "squared", "swap": True},
        {"distance": "cosine"},
    ],
    ids=str,
)
def test_the_triplet_loss_in_every_form_waits_once(settings, mined):
    for kind in ("plain", "near collapse"):
        compare(
            lambda: TripletLoss(
                margin=0.2, miner=miner("easy", "hard") if mined else None, **settings
            ),
            kind,
            rtol=1e-4,
        )


MAKE = makers()
OTHERS = {
    **{name: make for name, make in MAKE.items() if name != "triplet"},
    "squared-contrastive": partial(MAKE["contrastive"], reduction="pairs", distance="squared"),
    "margin-per-class": partial(MAKE["margin"], beta_per="class", normalize=True, nu=0.1),
    "trimmed-triplet": lambda miner: TrimmedLoss(TripletLoss(miner=miner), fraction=0.6),
    "trimmed-contrastive": lambda miner: TrimmedLoss(
        ContrastiveLoss(miner=miner), fraction=0.6, on="positives"
    ),
    "identity": lambda miner: IdentityLoss(
        TripletLoss(miner=miner),
        num_classes=4,
        dim=6,
        neck="batch-norm",
        generator=torch.Generator().manual_seed(0),
    ),
}


@pytest.mark.parametrize(
    "mined",
    [
        None,
        ("easy", "hard"),
        ("easy", "semihard"),
        ("random", "distance"),
        ("multi_similarity", "multi_similarity"),
        ("easy", "multi_similarity"),
        ("all", "all"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_loss_waits_once(name, mined):
    compare(lambda: OTHERS[name](miner=miner(*mined) if mined else None), "plain", rtol=1e-4)


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
