"""Each line of the table of docs/pml-names.md: both sides run, and agree or differ as it says.

And where else pytorch-metric-learning 2.9 defines the same choice, the same choice is made.
"""

import numpy as np
import pytest
import torch
from pytorch_metric_learning import distances, losses, miners
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch.nn.functional import normalize

import uncollapse as uc
from peers.pml_page import (
    LINES,
    PAGE,
    C,
    assert_is_pml_s,
    give_proxies,
    line,
    lines,
    pml_batch,
    run,
    same,
    step,
)
from support.errors import refused
from uncollapse.losses.proxies import ProxyLoss
from uncollapse.losses.registry import LOSSES
from uncollapse.mining import Triplets, as_pairs, as_triplets

SEEDS = pytest.mark.parametrize("seed", range(2))
TUPLES = {
    "all": lambda x, y: None,
    "hard": miners.BatchHardMiner(),
    "easy": miners.BatchEasyHardMiner("easy", "hard"),
    "pairs": miners.MultiSimilarityMiner(0.1),
}


def spheres(seed=1, n=32, spread=0.7):
    """Rows of length 1: PML's distances normalise by default, ours take what they are given."""
    x, y = pml_batch(n, seed, spread)
    return normalize(x, dim=1), y


def rows(tuples):
    return sorted(zip(*(index.tolist() for index in tuples), strict=True))


def test_every_line_of_the_table_is_read():
    table = PAGE
    assert len(LINES) == sum(row.startswith("| `") for row in table.splitlines())
    kinds = ("miners.", "losses.", "samplers.", "AccuracyCalculator")
    assert sum(len(lines(kind)) for kind in kinds) == len(LINES)


@pytest.mark.parametrize("kind", LOSSES.values(), ids=LOSSES)
def test_a_loss_that_pml_has_too_has_a_line_there(kind):
    if hasattr(losses, kind.info.pml or kind.__name__) and kind is not uc.losses.SmoothAPLoss:
        assert any(ours.startswith(f"{kind.__name__}(") for _, ours, _ in LINES)


@pytest.mark.parametrize("tuples", TUPLES)
@pytest.mark.parametrize(("theirs", "ours"), lines("losses.", "nu=0.1, num_classes"))
def test_a_loss_has_the_value_and_the_gradients_of_pml_s(theirs, ours, tuples):
    if tuples != "all" and ("NPair" in ours or "num_classes" in ours):
        return  # what these do with tuples differs: see below
    if tuples == "pairs" and "Margin" in ours:
        return  # PML counts a pair once for each triplet it makes of the pairs; here once
    x, labels = pml_batch()
    assert_is_pml_s(run(ours), run(theirs), TUPLES[tuples](x, labels))
    # With references PML's swap reads the positives' rows as anchors.
    if tuples == "all" and not any(word in ours for word in ("num_classes", "NPair", "swap")):
        references = {"ref_emb": x.flip(0) + 0.5, "ref_labels": labels.flip(0)}
        assert_is_pml_s(run(ours), run(theirs), **references)


# At a margin of 1, the distance of a zero row to all others, rounding decides what PML counts.
AT_THE_MARGIN = ("losses.ContrastiveLoss()", "ContrastiveLoss(distance")


@pytest.mark.parametrize(
    ("theirs", "ours"), lines("losses.", "nu=0.1, num_classes", *AT_THE_MARGIN)
)
def test_a_batch_with_rows_of_zeros_costs_what_it_costs_with_pml(theirs, ours):
    x, labels = pml_batch()
    x[[3, 5, 6]] = 0.0  # one of a class, and two of another
    loss, peer = run(ours), run(theirs)
    if isinstance(loss, ProxyLoss):
        give_proxies(loss, peer)
    (value, slope), (expected, its_slope) = (step(f, x, labels) for f in (loss, peer))
    other = x.any(1)  # over a norm of 1e-12, PML's gradient of a zero row is of no use
    same((value, slope[other]), (expected, its_slope[other]))
    assert slope.isfinite().all()


def assert_mined_alike(miner, peer, x, y):
    """The same triplets; those of PML's miner of pairs are compared as pairs."""
    ours, theirs = miner(x, y), peer(x.clone(), y)
    assert len(ours.anchor) > 0
    if isinstance(peer, miners.MultiSimilarityMiner):
        pairs = as_pairs(ours, unique=True)
        assert rows(pairs[:2]) == rows(theirs[:2])
        assert rows(pairs[2:]) == rows(theirs[2:])
    else:
        assert rows(ours) == rows(as_triplets(theirs, y))


@SEEDS
@pytest.mark.parametrize(("theirs", "ours"), lines("miners.", "Distance"))
def test_a_miner_names_the_tuples_pml_s_names(theirs, ours, seed):
    assert_mined_alike(run(ours), run(theirs), *spheres(seed))


def test_a_semihard_positive_that_does_not_exist_is_the_nearest_without_keep():
    x, y = spheres(spread=0.0)
    kept, every = uc.Miner("inside", "hard", keep="semihard", margin=4), uc.Miner("inside", "hard")
    named = miners.BatchEasyHardMiner("semihard", "hard")(x, y)
    theirs = set(rows(as_triplets(named, y)))
    assert set(rows(kept(x, y))) == theirs
    others = set(rows(every(x, y))) - theirs
    assert len(others) == len(x) - len(theirs) > 0
    nearest = {a: p for a, p, _ in rows(uc.Miner("easy", "hard")(x, y))}
    assert all(nearest[a] == p for a, p, _ in others)


@pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
def test_a_triplet_exactly_at_the_margin_is_pml_s_and_not_ours():
    x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1])
    plain = distances.LpDistance(normalize_embeddings=False)
    # Anchor 0: d(a, p) = 1, d(a, n) = 2, and the margin 1. Anchor 1 has d(a, p) = d(a, n) = 1.
    for theirs, keep, expected, ours in (
        ("all", "violating", [(0, 1, 2), (1, 0, 2)], [(1, 0, 2)]),
        ("semihard", "semihard", [(0, 1, 2)], []),
        ("hard", "hard", [(1, 0, 2)], [(1, 0, 2)]),
    ):
        assert rows(miners.TripletMarginMiner(1.0, theirs, distance=plain)(x, y)) == expected
        assert rows(uc.Miner("all", "all", margin=1.0, keep=keep)(x, y)) == ours
    assert float(uc.TripletLoss(margin=1.0)(x, y, [torch.tensor([i]) for i in (0, 1, 2)])) == 0


def test_distance_weighted_counts_are_as_the_page_says():
    x, y = spheres(spread=0.0)
    peer, ours = line("miners.DistanceWeightedMiner")
    theirs, every, drawn = peer(x, y), ours(x, y), uc.Miner("random", "distance")(x, y)
    assert torch.bincount(theirs[0], minlength=32).tolist() == [4] * 32
    assert torch.bincount(every.anchor, minlength=32).tolist() == [3] * 32
    assert torch.bincount(drawn.anchor, minlength=32).tolist() == [1] * 32
    assert len(set(rows(every[:2]))) == 32 * 3


@pytest.mark.parametrize("four", [miners.MultiSimilarityMiner(0.5), None])
def test_margin_counts_a_pair_once_where_pml_counts_its_triplets(four):
    x, y = pml_batch()
    tuples = None if four is None else four(normalize(x, dim=1), y)
    theirs, ours = losses.MarginLoss(), uc.MarginLoss(normalize=True)
    expected = step(theirs, x, y, tuples)
    same(step(ours, x, y, as_triplets(tuples, y)), expected)
    once = step(ours, x, y, tuples)[0]
    assert abs(float(once) - float(expected[0])) > 1e-3


def test_nu_weighs_the_betas_of_classes_as_the_page_says():
    x, y = pml_batch()
    theirs, ours = line("losses.MarginLoss(learn_beta=True, nu=0.1, num_classes")
    bare = run("MarginLoss(normalize=True, beta_per='class', size=C, miner=Miner('all', 'all'))")
    values = torch.linspace(0.5, 1.9, C)
    for loss in (theirs, ours, bare):
        loss.beta.data.copy_(values)
    without = bare(x, y).item()
    assert ours(x, y).item() - without == pytest.approx(0.1 * float(values.mean()), rel=1e-6)
    active = int((bare.elements(x, y).loss > 0).sum())
    expected = 0.1 * values[y[as_triplets(None, y).anchor]].sum().item() / active
    assert theirs(x, y).item() - without == pytest.approx(expected, rel=1e-5)


def test_nu_of_a_boundary_that_is_not_learned_costs_nothing_in_either():
    x, y = pml_batch()
    ours = uc.MarginLoss(normalize=True, nu=0.3, learn_beta=False, miner=uc.Miner("all", "all"))
    torch.testing.assert_close(ours(x, y), losses.MarginLoss(nu=0.3)(x, y), rtol=1e-5, atol=0)


def test_n_pairs_of_a_miner_are_all_here_and_one_per_class_in_pml():
    x, y = pml_batch()
    theirs, ours = line("losses.NPairsLoss")
    hard = miners.BatchHardMiner()(x, y)
    first = [int((y[hard[0]] == c).nonzero()[0]) for c in range(C)]
    same(step(ours, x, y, tuple(index[first] for index in hard)), step(theirs, x, y, hard))
    assert len(ours.elements(x, y, hard).loss) == len(x)


def test_the_samplers_draw_batches_of_the_same_shape():
    theirs, ours = line("samplers.")
    y = pml_batch()[1]
    for drawn in (list(theirs)[:32], next(iter(ours))):
        assert np.bincount(y[drawn], minlength=C).tolist() == [4] * C
    assert isinstance(ours, torch.utils.data.BatchSampler)


def test_precision_at_1_is_recall_at_1():
    calculator, retrieval = line("AccuracyCalculator")
    x, y = pml_batch()
    theirs = calculator.get_accuracy(x.float(), y)["precision_at_1"]
    assert retrieval(x.float(), y).recall[1] == pytest.approx(theirs)
    assert 0.1 < theirs < 0.9


@SEEDS
def test_tuples_convert_as_theirs_do(seed):
    x, y = spheres(seed)
    four = miners.MultiSimilarityMiner(0.1)(x.clone(), y)
    three = miners.BatchHardMiner()(x, y)
    assert all(map(torch.equal, as_triplets(four, y), lmu.convert_to_triplets(four, y)))
    assert all(map(torch.equal, as_triplets(three, y), three))
    assert all(map(torch.equal, as_pairs(three, y), lmu.convert_to_pairs(three, y)))
    assert all(map(torch.equal, as_pairs(four, y), four))
    assert rows(as_triplets(None, y)) == rows(lmu.get_all_triplets_indices(y))
    assert all(map(torch.equal, as_pairs(None, y), lmu.get_all_pairs_indices(y)))


def test_tuples_without_rows_stay_so():
    none = torch.empty(0, dtype=torch.int64)
    assert [len(index) for index in as_triplets((none, none, none, none), [0, 1])] == [0, 0, 0]
    assert [len(index) for index in as_pairs((none, none, none), [0, 1], unique=True)] == [0] * 4
    assert [len(index) for index in as_triplets(None, [0, 1])] == [0, 0, 0]


def test_tuples_that_do_not_fit_are_refused():
    first, both = torch.tensor([0]), torch.tensor([0, 1])
    with refused("tuples"):
        as_triplets((first, both, first), [0, 0])
    for outside in (2, -1):
        with refused("tuples"):
            as_pairs(Triplets(first, first, torch.tensor([outside])), [0, 0])
