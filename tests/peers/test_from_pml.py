"""Each line of the tables of docs/from-pml.md: both sides run, and agree or differ as it says."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from pytorch_metric_learning import distances, losses, miners, samplers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch.nn.functional import normalize

import uncollapse as uc
from docs.pages import ROOT
from losses.pml_tester import give_proxies

PAGE = (ROOT / "docs" / "from-pml.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(.+?)` \| `(.+?)` \| ?(.*?) ?\|$", PAGE, re.MULTILINE)
C, DIM = 8, 6


def batch(seed=0, n=48, spread=0.7):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % C
    x = torch.randn(n, DIM, generator=g) + spread * torch.randn(C, DIM, generator=g)[y]
    return x.double(), y


def run(code):
    names = {"losses": losses, "miners": miners, "distances": distances, "samplers": samplers}
    names |= {"C": C, "dim": DIM, "labels": batch()[1], "AccuracyCalculator": AccuracyCalculator}
    names |= {name: getattr(uc, name) for name in ("Miner", "PKSampler", "retrieval")}
    names |= {name: getattr(uc.losses, name) for name in uc.losses.__all__ if name[-4:] == "Loss"}
    return eval(code, names)


def lines(prefix):
    return [pytest.param(*line, id=line[0]) for line in LINES if line[0].startswith(prefix)]


def line(start):
    """Both sides of the one line that starts so."""
    (found,) = [pair for pair in LINES if pair[0].startswith(start)]
    return run(found[0]), run(found[1])


def rows(tuples):
    return sorted(zip(*(index.tolist() for index in tuples), strict=True))


def step(loss, *args):
    x = args[0].clone().requires_grad_()
    value = loss(x, *args[1:])
    value.backward()
    return value.detach(), x.grad


def same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)


def test_every_line_of_the_table_is_read():
    table = PAGE[PAGE.index("## Names") : PAGE.index("## In PML's wrappers")]
    assert len(LINES) == sum(row.startswith("| `") for row in table.splitlines())
    kinds = ("miners.", "losses.", "samplers.", "AccuracyCalculator")
    assert sum(len(lines(kind)) for kind in kinds) == len(LINES)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("theirs", "ours", "note"), [p for p in lines("miners.") if "Distance" not in p.id]
)
def test_a_miner_names_the_tuples_pml_s_names(theirs, ours, note, seed):
    x, y = batch(seed)
    x = normalize(x, dim=1)
    found, expected = run(ours)(x, y), run(theirs)(x.clone(), y)
    assert len(found.anchor) > 0
    if "MultiSimilarity" in theirs:
        assert rows(uc.mining.as_pairs(found, unique=True)[:2]) == rows(expected[:2])
        assert rows(uc.mining.as_pairs(found, unique=True)[2:]) == rows(expected[2:])
    else:
        assert rows(found) == rows(uc.mining.as_triplets(expected, y))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tuples", [None, "hard"])
@pytest.mark.parametrize(
    ("theirs", "ours", "note"), [p for p in lines("losses.") if "nu=0.1, num_classes" not in p.id]
)
def test_a_loss_has_the_value_and_the_gradient_of_pml_s(theirs, ours, note, tuples, seed):
    x, y = batch(seed)
    mine, peer = run(ours), run(theirs)
    if "num_classes" in ours:
        give_proxies(mine, peer)
    given = miners.BatchHardMiner()(x, y) if tuples else None
    if tuples and ("NPair" in ours or "num_classes" in ours):
        pytest.skip("what these do with tuples differs: see the next tests")
    same(step(mine, x, y, given), step(peer, x, y, given))
    if "learn_beta" in theirs:
        torch.testing.assert_close(mine.beta.grad, peer.beta.grad)


def test_a_semihard_positive_that_does_not_exist_is_the_nearest_without_keep():
    x, y = batch(spread=0.0)
    x = normalize(x, dim=1)
    kept, every = uc.Miner("inside", "hard", keep="semihard", margin=4), uc.Miner("inside", "hard")
    found = miners.BatchEasyHardMiner("semihard", "hard")(x, y)
    theirs = set(rows(uc.mining.as_triplets(found, y)))
    assert set(rows(kept(x, y))) == theirs
    others = set(rows(every(x, y))) - theirs
    assert len(others) == len(x) - len(theirs) > 0
    nearest = {a: p for a, p, _ in rows(uc.Miner("easy", "hard")(x, y))}
    assert all(nearest[a] == p for a, p, _ in others)


@pytest.mark.parametrize(("theirs", "keep"), [("all", "violating"), ("semihard", "semihard")])
def test_a_triplet_exactly_at_the_margin_is_pml_s_and_not_ours(theirs, keep):
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1])
    plain = distances.LpDistance(normalize_embeddings=False)
    # Anchor 0: d(a, p) = 1, d(a, n) = 2, and the margin 1. Anchor 1 has d(a, p) = d(a, n) = 1.
    found = miners.TripletMarginMiner(1.0, theirs, distance=plain)(x, y)
    assert (0, 1, 2) in rows(found)
    ours = uc.Miner("all", "all", margin=1.0, keep=keep)
    assert rows(found) == [(0, 1, 2), (1, 0, 2)] if keep == "violating" else [(0, 1, 2)]
    if keep == "violating":
        assert rows(ours(x, y)) == [(1, 0, 2)]
    else:
        with pytest.warns(uc.mining.NoTripletsWarning):
            assert rows(ours(x, y)) == []
    assert float(uc.TripletLoss(margin=1.0)(x, y, [torch.tensor([i]) for i in (0, 1, 2)])) == 0
    hard = miners.TripletMarginMiner(1.0, "hard", distance=plain)(x, y)
    assert rows(hard) == rows(uc.Miner("all", "all", margin=1.0, keep="hard")(x, y)) == [(1, 0, 2)]


def test_distance_weighted_counts_are_as_the_page_says():
    x, y = batch(spread=0.0)
    x = normalize(x, dim=1)
    k, (peer, ours) = 48 // C, line("miners.DistanceWeightedMiner")
    theirs, every, one = peer(x, y), ours(x, y), uc.Miner("random", "distance")(x, y)
    assert torch.bincount(theirs[0], minlength=48).tolist() == [k] * 48
    assert torch.bincount(every.anchor, minlength=48).tolist() == [k - 1] * 48
    assert torch.bincount(one.anchor, minlength=48).tolist() == [1] * 48
    assert len(set(zip(every.anchor.tolist(), every.positive.tolist(), strict=True))) == 48 * (
        k - 1
    )


@pytest.mark.parametrize("four", [miners.MultiSimilarityMiner(0.5), None])
def test_margin_counts_a_pair_once_where_pml_counts_its_triplets(four):
    x, y = batch()
    tuples = None if four is None else four(normalize(x, dim=1), y)
    theirs, ours = losses.MarginLoss(), uc.MarginLoss(normalize=True)
    expected = step(theirs, x, y, tuples)
    same(step(ours, x, y, uc.mining.as_triplets(tuples, y)), expected)
    once = step(ours, x, y, tuples)[0]
    assert abs(float(once) - float(expected[0])) > 1e-3
    a, p, b, n = uc.mining.as_pairs(tuples, y)
    d = torch.cdist(normalize(x, dim=1), normalize(x, dim=1))
    charged = torch.cat([d[a, p] - 1.2 + 0.2, 1.2 - d[b, n] + 0.2]).clamp(min=0)
    torch.testing.assert_close(once, charged.sum() / (charged > 0).sum())


def test_nu_weighs_the_betas_of_classes_as_the_page_says():
    x, y = batch()
    theirs, ours = line("losses.MarginLoss(learn_beta=True, nu=0.1, num_classes")
    with torch.no_grad():
        values = torch.linspace(0.5, 1.9, C)
        theirs.beta.copy_(values), ours.beta.copy_(values)
    bare = [run("MarginLoss(normalize=True, beta_per='class', size=C, miner=Miner('all', 'all'))")]
    bare[0].beta.data.copy_(values)
    without = bare[0](x, y).item()
    assert ours(x, y).item() - without == pytest.approx(0.1 * float(values.mean()), rel=1e-6)
    a = uc.mining.as_triplets(None, y).anchor
    elements = bare[0].elements(x, y).loss
    expected = 0.1 * values[y[a]].sum().item() / int((elements > 0).sum())
    assert theirs(x, y).item() - without == pytest.approx(expected, rel=1e-5)


def test_nu_of_a_boundary_that_is_not_learned_costs_nothing_in_either():
    x, y = batch()
    ours = uc.MarginLoss(normalize=True, nu=0.3, learn_beta=False, miner=uc.Miner("all", "all"))
    torch.testing.assert_close(ours(x, y), losses.MarginLoss(nu=0.3)(x, y), rtol=1e-5, atol=0)


def test_n_pairs_of_a_miner_are_all_here_and_one_per_class_in_pml():
    x, y = batch()
    theirs, ours = line("losses.NPairsLoss")
    hard = miners.BatchHardMiner()(x, y)
    first = [int((y[hard[0]] == c).nonzero()[0]) for c in range(C)]
    same(step(theirs, x, y, hard), step(ours, x, y, tuple(index[first] for index in hard)))
    assert len(ours.elements(x, y, hard).loss) == len(x)


def test_the_samplers_draw_batches_of_the_same_shape():
    theirs, ours = line("samplers.")
    y = batch()[1]
    for rows_of in (list(theirs)[:32], next(iter(ours))):
        assert np.bincount(y[rows_of], minlength=C).tolist() == [4] * C
    assert isinstance(ours, torch.utils.data.BatchSampler)


def test_precision_at_1_is_recall_at_1():
    calculator, retrieval = line("AccuracyCalculator")
    x, y = batch(spread=1.0)
    theirs = calculator.get_accuracy(x.float(), y)["precision_at_1"]
    assert retrieval(x.float(), y).recall[1] == pytest.approx(theirs)
    assert 0.1 < theirs < 0.9
