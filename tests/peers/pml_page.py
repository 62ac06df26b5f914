"""The table of docs/pml-names.md, ours beside PML's, and one tester for what should be equal."""

import re

import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import nn

import uncollapse as uc
from docs.pages import ROOT
from uncollapse.losses.proxies import ProxyLoss

PAGE = (ROOT / "docs" / "pml-names.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(.+?)` \| `(.+?)` \| ?(.*?) ?\|$", PAGE, re.MULTILINE)
C, DIM = 8, 6


def pml_batch(n=32, seed=1, spread=1.0):
    """Classes of four that overlap, in order; float64."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) // 4
    x = torch.randn(n, DIM, generator=g) + spread * torch.randn(n, DIM, generator=g)[labels]
    return x.double(), labels


def run(code):
    """The object a cell of the table makes."""
    names = {"losses": losses, "miners": miners, "distances": distances, "samplers": samplers}
    names |= {
        "C": C,
        "dim": DIM,
        "labels": pml_batch()[1],
        "AccuracyCalculator": AccuracyCalculator,
    }
    names |= {name: getattr(uc, name) for name in ("Miner", "PKSampler", "retrieval")}
    names |= {name: getattr(uc.losses, name) for name in uc.losses.__all__ if name[-4:] == "Loss"}
    return eval(code, names)


def lines(prefix, *without):
    """Both cells of the lines that start so, but for those with one of some words in them."""
    return [
        pytest.param(theirs, ours, id=theirs)
        for theirs, ours, _ in LINES
        if theirs.startswith(prefix) and not any(word in theirs + ours for word in without)
    ]


def line(start):
    """What both cells of the one line that starts so make."""
    ((theirs, ours, _),) = [cells for cells in LINES if cells[0].startswith(start)]
    return run(theirs), run(ours)


def give_proxies(ours, theirs):
    """The same learned class vectors, in PML's name and shape for them; its name."""
    flat = ours.proxies.detach().flatten(0, 1).double()
    (name,) = {"proxies", "W", "fc"} & dict(theirs.named_parameters()).keys()
    setattr(theirs, name, nn.Parameter(flat.clone() if name == "proxies" else flat.T.clone()))
    return name


def step(loss, x, *args, **kwargs):
    """Value and gradient by the first argument."""
    leaf = x.detach().clone().requires_grad_()
    value = loss(leaf, *args, **kwargs)
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


def same(ours, theirs, tolerance=1e-6):
    """Values and gradients agree."""
    for a, b in zip(ours, theirs, strict=True):
        atol = 0.1 * tolerance * float(b.abs().max())
        torch.testing.assert_close(a.to(b), b, rtol=tolerance, atol=atol)


def assert_is_pml_s(ours, theirs, tuples=None, **references):
    """Same value, same gradient of the embeddings and of what is learned, if there is something."""
    x, labels = pml_batch()
    proxies = give_proxies(ours, theirs) if isinstance(ours, ProxyLoss) else None
    same(*(step(loss, x, labels, tuples, **references) for loss in (ours, theirs)))
    if proxies is not None:
        gradient, peer = ours.proxies.grad.flatten(0, 1).double(), getattr(theirs, proxies).grad
        peer = peer if proxies == "proxies" else peer.T
        torch.testing.assert_close(gradient, peer, rtol=1e-5, atol=1e-6)  # ours is float32
    elif list(ours.parameters()) and list(theirs.parameters()):
        torch.testing.assert_close(ours.beta.grad, theirs.beta.grad)
