import warnings
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from losses.loss_oracles import (
    Definition,
    Given,
    assert_same,
    batches,
    clouds,
    distances,
    measured,
    oracle,
    unit,
)
from support.errors import refused
from uncollapse._base.extras import without_kernels
from uncollapse.distances import tiles
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner, NoTripletsWarning, Triplets

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
HARDEST = "hardest-negative"
MINED = pytest.mark.parametrize("miner", [None, Miner("hard", "hard"), Miner("easy", "hard")])


def triplet_loss(
    given, margin, soft=False, scale_free=False, normalize=False, reduction="mean", swap=False
):
    """HNM (4); scale-free over the mean distance, or over that to hardest negatives (Quaterion)."""
    d, n = given.distance, len(given.rows)
    size = torch.zeros(())
    if scale_free == HARDEST:
        sets = enumerate(Given(given.rows, given.labels).sets)
        nearest = [d[a, other].min() for a, (own, other) in sets if own and other]
        size = torch.stack(nearest).mean() if nearest else size
    elif scale_free:
        size = d.sum() / max(n * (n - 1), 1)
    if float(size.detach()) > 0:
        d = d / size
    if not given.triplets:
        return given.rows.sum() * 0
    a, p, k = (list(index) for index in zip(*given.triplets, strict=True))
    far = torch.minimum(d[a, k], d[p, k]) if swap else d[a, k]
    excess = d[a, p] - far + margin
    loss = functional.softplus(excess) if soft else excess.relu()
    if reduction == "max":
        return loss.max()
    active = reduction == "nonzero" and not soft
    return loss.sum() / max(int((loss > 0).sum()) if active else len(loss), 1)


DEFINITIONS = {
    TripletLoss: Definition(
        triplet_loss,
        drawn={
            "margin": [0.3],
            "soft": [False, True],
            "scale_free": [False, True, HARDEST],
            "normalize": [False, True],
            "reduction": ["mean", "nonzero"],
            "swap": [False, True],
        },
        refused={"margin": -0.1},
        collapsed=[
            ({"miner": miner, "scale_free": form, **settings}, value)
            for miner in (None, Miner("hard", "hard"), Miner("easy", "hard"))
            for form in (False, True, HARDEST)
            for settings, value in (
                ({"margin": 0.2}, 0.2),
                ({"margin": 0.0}, 0.0),
                ({"margin": 0.0, "soft": True}, 0.693147),
            )
        ],
    )
}


@given(batches(), st.booleans(), st.booleans(), st.booleans())
def test_the_largest_loss_is_that_of_the_definition(batch, soft, scale_free, normalize):
    x, labels = batch
    options = {"margin": 0.3, "soft": soft, "scale_free": scale_free, "reduction": "max"}
    truth = triplet_loss(Given(unit(x) if normalize else x, labels.tolist()), **options)
    # Several triplets may be the hardest: any of their gradients is right.
    value, gradient = measured(lambda z: TripletLoss(**options, normalize=normalize)(z, labels), x)
    assert value == pytest.approx(truth.item(), abs=1e-9)
    assert bool(torch.isfinite(gradient).all())


@given(batches(grid=True), st.sampled_from([0.0, 1.0]), st.booleans())
def test_ties_and_margin_zero_keep_the_value(batch, margin, soft):
    x, labels = batch
    value, gradient = measured(lambda z: TripletLoss(margin=margin, soft=soft)(z, labels), x)
    truth = triplet_loss(Given(x, labels.tolist()), margin, soft)
    assert value == pytest.approx(float(truth), abs=1e-12)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("keep", ["all", "violating", "semihard"])
@pytest.mark.parametrize("reduction", ["mean", "nonzero"])
def test_fused_mining_equals_the_listed_triplets(keep, reduction):
    x, labels = clouds(n=60, dtype=torch.float64)
    miner = Miner("all", "all", margin=0.4, keep=keep)
    loss = TripletLoss(margin=0.4, miner=miner, reduction=reduction)
    fused = measured(lambda z: loss(z, labels), x)
    listed = measured(lambda z: loss(z, labels, miner(x, labels)), x)
    assert fused[0] == pytest.approx(listed[0], rel=1e-10)
    torch.testing.assert_close(fused[1], listed[1], rtol=1e-8, atol=1e-12)


def near_a_point(noise):
    g = torch.Generator().manual_seed(1)
    return 1.0 + noise * torch.randn(32, 64, generator=g), torch.arange(32) // 4, 0.2


def tight_classes():
    g = torch.Generator().manual_seed(2)
    labels = torch.arange(24) // 4
    return (
        1e-6 * torch.randn(24, 32, generator=g) + torch.randn(6, 32, generator=g)[labels],
        labels,
        20.0,
    )


@MINED
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "batch",
    [*(near_a_point(noise) for noise in (1e-1, 1e-3, 1e-5, 1e-7)), tight_classes()],
    ids=["1e-1", "1e-3", "1e-5", "1e-7", "tight classes"],
)
def test_float32_gradient_is_right_near_collapse(miner, normalize, batch):
    x, labels, margin = batch
    same = labels[:, None] == labels

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        if miner is None:
            other = same & ~torch.eye(len(x), dtype=torch.bool)
            a, p, n = (other[:, :, None] & ~same[:, None]).nonzero().T
        else:
            a, p, n = miner(y.detach(), labels)
        return (d[a, p] - d[a, n] + margin).relu().mean()

    loss = TripletLoss(margin=margin, miner=miner, normalize=normalize)
    value, gradient = measured(lambda z: loss(z, labels), x)
    true_value, true_gradient = oracle(truth, x)
    assert value == pytest.approx(true_value, rel=1e-5)
    assert float((gradient - true_gradient).norm()) <= 1e-5 * float(true_gradient.norm())


def test_many_mined_triplets_go_through_the_matrix_with_the_same_result():
    x, labels = clouds(n=20, dtype=torch.float64)
    chosen = Miner("all", "all")(x, labels)
    few = Triplets(*(index[:50] for index in chosen))
    repeated = Triplets(*(index[:50].repeat(20) for index in chosen))
    a = measured(lambda z: TripletLoss()(z, labels, few), x)
    b = measured(lambda z: TripletLoss()(z, labels, repeated), x)
    assert a[0] == pytest.approx(b[0], rel=1e-12)
    torch.testing.assert_close(a[1], b[1], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [5]])
@pytest.mark.parametrize("miner", [None, Miner("easy", "hard"), Miner("all", "all")])
@pytest.mark.parametrize("scale_free", [False, True])
def test_a_batch_without_a_triplet_costs_a_differentiable_zero(labels, miner, scale_free):
    x = torch.randn(len(labels), 3)
    loss = TripletLoss(margin=0.2, miner=miner, scale_free=scale_free)
    value, gradient = measured(lambda z: loss(z, labels), x)
    assert value == 0.0
    assert not gradient.any()


@pytest.mark.filterwarnings("default::uncollapse.mining.NoTripletsWarning")
@pytest.mark.parametrize("words", [("easy", "hard"), ("all", "all")])
def test_a_batch_without_a_triplet_is_warned_of_once_and_says_why(words):
    loss = TripletLoss(margin=0.2, miner=Miner(*words))
    with pytest.warns(NoTripletsWarning, match="all 3 samples have one label"):
        loss(torch.randn(3, 2), [0, 0, 0])
    with warnings.catch_warnings(record=True) as second:
        loss(torch.randn(3, 2), [0, 0, 0])
    assert not second


def test_an_index_below_zero_is_named():
    with refused("tuples"):
        TripletLoss()(torch.randn(3, 2), [0, 0, 1], [torch.tensor([i]) for i in (0, -1, 2)])


def test_fewer_digits_in_products_change_nothing():
    x, labels = clouds()
    plain = measured(lambda z: TripletLoss()(z, labels), x)
    torch.set_float32_matmul_precision("medium")
    try:
        coarse = measured(lambda z: TripletLoss()(z, labels), x)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert coarse[0] == pytest.approx(plain[0], rel=1e-6)
    torch.testing.assert_close(coarse[1], plain[1], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("rows", [4, 200])
def test_rows_that_normalise_to_one_point_cost_the_margin_not_their_rounding(rows):
    lengths = torch.linspace(0.3, 2.0, rows, dtype=torch.float64)[:, None]
    x = lengths * torch.tensor([[-0.4989, 0.3, 1.7]], dtype=torch.float64)
    loss = TripletLoss(margin=0.3, normalize=True, scale_free=True)
    assert float(loss(x, torch.arange(rows) % 2)) == pytest.approx(0.3)


@pytest.mark.parametrize("soft", [False, True])
def test_blocks_of_a_batch_too_large_to_keep_whole_add_up_to_the_same(soft, monkeypatch):
    x, labels = clouds(n=300, dtype=torch.float64)
    whole = measured(lambda z: TripletLoss(soft=soft)(z, labels), x)
    monkeypatch.setattr(tiles, "_KEPT", 0)
    blocks = measured(lambda z: TripletLoss(soft=soft)(z, labels), x)
    assert whole[0] == pytest.approx(blocks[0], rel=1e-12)
    torch.testing.assert_close(whole[1], blocks[1], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize("kernels", [nullcontext, without_kernels])
def test_large_and_small_classes_equal_the_definition(k, window, kernels):
    x, labels = clouds(n=130, k=k, dtype=torch.float64)

    def truth(wide):
        d = distances(wide)
        same = labels[:, None] == labels
        kept = (same & ~torch.eye(len(x), dtype=torch.bool))[:, :, None] & ~same[:, None]
        excess = (d[:, :, None] - d[:, None]) + 0.5
        if window:
            kept = kept & (d[:, None] > d[:, :, None]) & (excess > 0)
        return excess[kept].clamp(min=0).mean()

    keep = "semihard" if window else "all"
    loss = TripletLoss(margin=0.5, miner=Miner("all", "all", margin=0.5, keep=keep))
    with kernels():
        assert_same(lambda z: loss(z, labels), truth, x, 1e-8)
