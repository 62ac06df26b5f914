"""What runs on the stand-in device: losses with miners, and functions of embeddings and labels."""

import warnings
from functools import partial

import torch

from losses.loss_oracles import every_loss
from support.device import device, host, to_device
from uncollapse import geometry, metrics
from uncollapse.health import drift, measure, mode_drift
from uncollapse.losses import (
    ColumnLoss,
    CrossBatchMemory,
    MultipleLosses,
    TripletLoss,
    VarianceCovarianceLoss,
    registry,
)
from uncollapse.losses.memory import remembers
from uncollapse.losses.regularizers import Regularizer
from uncollapse.mining import FalseNegatives, Miner
from uncollapse.mining.miner import NEGATIVES, POSITIVES
from uncollapse.mining.random import SeededModule

MINERS = [
    "none",
    "easy x hard",
    "hard x hard",
    "easy x semihard",
    "all x semihard",
    "semihard x random",
    "random x distance",
    "multi_similarity x multi_similarity",
    "easy x all",
    "all x all",
    "inside x easy",
]
FURTHER = {
    "pool": {"pool": 8},
    "keep": {"keep": "hard"},
    "farthest": {"fallback": "farthest"},
    "skip": {"fallback": "skip"},
    "relative": {"false_negatives": FalseNegatives(relative=0.5)},
    "quantile": {"false_negatives": FalseNegatives(quantile=0.1)},
    "agreement": {"false_negatives": FalseNegatives(agreement=0.5)},
}
EVERY_MINER = [f"{p} x {n}" for p in POSITIVES for n in NEGATIVES]


def miner(words, **further):
    """A miner of the words `positives x negatives`, with a generator of its own; None of "none"."""
    if words == "none":
        return None
    seeded = torch.Generator().manual_seed(0)
    return Miner(*words.split(" x "), generator=seeded, **further)


def batch(kind="plain", n=24, dim=6, classes=4):
    """Rows and labels; a `ragged` batch has classes of different sizes, one of a single row."""
    labels = torch.arange(n) % classes
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(0)) + 0.5 * labels[:, None]
    if kind == "ragged":
        labels = labels.clone()
        labels[:5], labels[7] = 1, classes - 1
        labels[labels == 0] = 2
        labels[8] = 0
    elif kind == "near collapse":
        x = 1 + 1e-5 * x
    elif kind == "one ray":
        x = torch.ones(n, dim) * torch.rand(n, 1, generator=seeded())
    elif kind == "one point":
        x = torch.ones(n, dim)
    return x, labels


def seeded():
    return torch.Generator().manual_seed(0)


def _kept(kind):
    def make(words):
        sizes = {"num_classes": 4, "dim": 6, "miner": miner(words), "generator": seeded()}
        return CrossBatchMemory(registry.make_loss(kind, {}, **sizes), 64)

    return make


def _alone(kind):
    return kind(generator=seeded()) if issubclass(kind, SeededModule) else kind()


ALONE = {  # that take no miner
    kind.__name__: partial(_alone, kind) for kind in Regularizer.__subclasses__()
}
WRAPPED = {
    **{
        f"memory of {name}": _kept(kind)
        for name, kind in registry.LOSSES.items()
        if remembers(kind)
    },
    "several": lambda words: MultipleLosses(
        [TripletLoss(miner=miner(words)), VarianceCovarianceLoss()]
    ),
    "columns": lambda words: ColumnLoss(TripletLoss(miner=miner(words))),
}


def loss_makers():
    """What makes each loss, by name, from the words of a miner."""
    losses = every_loss()
    plain = {name: lambda words, make=make: make(miner(words)) for name, make in losses.items()}
    return plain | WRAPPED | {name: lambda words, make=make: make() for name, make in ALONE.items()}


def given(name, kind="plain"):
    """The batch that a loss is tried on."""
    x, labels = batch(kind)
    if name == "columns":
        labels = torch.cat([torch.arange(8), torch.arange(8), torch.arange(8, 16)])
    return x, labels


def step(make, words, x, labels, *, on_device, steps=1):
    """The last of a few steps of the loss `make(words)`: value, gradients, and the waits.

    The gradients are those of the rows, then of the loss's parameters.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not on_device:
            return (*_stepped(make(words), x, labels, steps), [])
        with device() as waits:
            loss = to_device(make(words))
            out = _stepped(loss, to_device(x), to_device(labels), steps, waits)
        return (*out, waits)


def _stepped(loss, x, labels, steps, waits=None):
    for _ in range(steps):
        if waits is not None:
            waits.clear()
        leaf = x.detach().clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
    gradients = [leaf.grad, *(p.grad for p in loss.parameters())]
    return host(value), [host(g) for g in gradients if g is not None]


def _rows(n=64):
    return batch(n=n, dim=8, classes=8)


def _triplet(x, y):
    return TripletLoss(miner=Miner("easy", "hard"))(x, y)


FUNCTIONS = {
    "retrieval": metrics.retrieval,
    "retrieval, normalised": lambda x, y: metrics.retrieval(x, y, normalize=True),
    "retrieval of two sets": lambda x, y: metrics.retrieval(
        x[:24], y[:24], gallery=x[24:], gallery_labels=y[24:]
    ),
    "reid": lambda x, y: metrics.reid(
        x[:24], y[:24] + 1, y[:24] % 3, x[24:], y[24:] + 1, y[24:] % 2
    ),
    "rerank": lambda x, y: metrics.rerank(x[:24], x[24:]).distances(),
    "verification": metrics.verification,
    "clustering": metrics.clustering,
    "kmeans": lambda x, y: metrics.kmeans(x, 8).labels,
    "modes_per_class": metrics.modes_per_class,
    "suspect_labels": metrics.suspect_labels,
    "nc1": metrics.nc1,
    "cdnv": metrics.cdnv,
    "alignment": metrics.alignment,
    "uniformity": lambda x, y: metrics.uniformity(x),
    "anisotropy": lambda x, y: metrics.anisotropy(x),
    "effective_rank": lambda x, y: metrics.effective_rank(x),
    "rankme": lambda x, y: metrics.rankme(x),
    "evaluate_rows": metrics.evaluate_rows,
    "cluster_rows": lambda x, y: metrics.cluster_rows(x, y, [1, 2]),
    "diameter": lambda x, y: geometry.diameter(x),
    "thickness": lambda x, y: geometry.thickness(x),
    "separation": geometry.separation,
    "measure": measure,
    "measure without labels": lambda x, y: measure(x),
    "drift": lambda x, y: drift(_triplet, x, y),
    "mode_drift": lambda x, y: mode_drift(_triplet, x, y, k=2),
}


def function_result(function, *, on_device):
    """What a function of rows and labels gives, and the waits."""
    x, labels = _rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not on_device:
            return function(x, labels), []
        with device() as waits:
            x, labels = to_device(x), to_device(labels)
            return function(x, labels), waits
