import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners as pml_miners
from torch.nn import functional

from losses.loss_oracles import (
    assert_same,
    batches,
    clouds,
    distances,
    measured,
    oracle,
    triplets,
    unit,
)
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse._base.extras import without_kernels
from uncollapse.distances import tiles
from uncollapse.losses import (
    TripletLoss,
)
from uncollapse.mining import Miner, NoTripletsWarning, Triplets

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def excesses(x, labels, margin, normalize=False, scale_free=False):
    d = distances(unit(x) if normalize else x)
    n = len(x)
    if scale_free and n > 1 and float(d.detach().max()) > 0:
        d = d / (d.sum() / (n * (n - 1)))
    found = triplets(labels)
    if not found:
        return x.sum() * torch.zeros(0, dtype=x.dtype)
    return torch.stack([d[a, p] - d[a, k] + margin for a, p, k in found])


def reduced(excess, soft=False, reduction="mean"):
    loss = functional.softplus(excess) if soft else excess.clamp(min=0)
    if len(loss) == 0:
        return loss.sum()
    if reduction == "max":
        return loss.max()
    count = int((loss > 0).sum()) if reduction == "nonzero" else len(loss)
    return loss.sum() / max(count, 1)


@given(
    batches(),
    st.sampled_from(["mean", "nonzero", "max"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_all_triplets_equal_the_definition(batch, reduction, soft, scale_free, normalize):
    x, labels = batch

    def truth(wide):
        return reduced(excesses(wide, labels, 0.3, normalize, scale_free), soft, reduction)

    loss = TripletLoss(
        margin=0.3, soft=soft, scale_free=scale_free, normalize=normalize, reduction=reduction
    )
    if reduction == "max":  # several triplets may be the hardest: any of their gradients is right
        assert measured(lambda z: loss(z, labels), x)[0] == pytest.approx(
            oracle(truth, x)[0], abs=1e-9
        )
    else:
        assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@given(batches(grid=True), st.sampled_from([0.0, 1.0]), st.booleans())
def test_ties_and_margin_zero_keep_the_value(batch, margin, soft):
    x, labels = batch
    value, gradient = measured(lambda z: TripletLoss(margin=margin, soft=soft)(z, labels), x)
    assert value == pytest.approx(float(reduced(excesses(x, labels, margin), soft)), abs=1e-12)
    assert bool(torch.isfinite(gradient).all())


@given(
    batches(), st.sampled_from(["hard", "easy", "inside"]), st.sampled_from(["hard", "semihard"])
)
def test_mined_triplets_equal_the_definition_on_the_same_triplets(batch, positives, negatives):
    x, labels = batch
    miner = Miner(positives, negatives)
    chosen = miner(x, labels)

    def truth(wide):
        if len(chosen.anchor) == 0:
            return wide.sum() * 0
        d = distances(wide)
        return reduced(d[chosen.anchor, chosen.positive] - d[chosen.anchor, chosen.negative] + 0.3)

    assert_same(lambda z: TripletLoss(margin=0.3, miner=miner)(z, labels), truth, x, 1e-7)
    assert_same(lambda z: TripletLoss(margin=0.3)(z, labels, chosen), truth, x, 1e-7)


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


@pytest.mark.parametrize("miner", [None, Miner("hard", "hard"), Miner("easy", "hard")])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5, 1e-7])
def test_float32_gradient_is_right_near_collapse(miner, normalize, noise):
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(32) // 4
    x = 1.0 + noise * torch.randn(32, 64, generator=g)

    def truth(wide):
        if miner is None:
            return reduced(excesses(wide, labels, 0.2, normalize))
        y = unit(wide) if normalize else wide
        t = miner(y, labels)
        d = distances(y)
        return reduced(d[t.anchor, t.positive] - d[t.anchor, t.negative] + 0.2)

    loss = TripletLoss(margin=0.2, miner=miner, normalize=normalize)
    value, gradient = measured(lambda z: loss(z, labels), x)
    true_value, true_gradient = oracle(truth, x)
    assert value == pytest.approx(true_value, rel=1e-5)
    assert float((gradient - true_gradient).norm()) <= 1e-5 * float(true_gradient.norm())


@pytest.mark.parametrize("miner", [None, Miner("hard", "hard")])
def test_tight_classes_far_apart_keep_their_gradient_in_float32(miner):
    g = torch.Generator().manual_seed(2)
    labels = torch.arange(24) // 4
    x = 1e-6 * torch.randn(24, 32, generator=g) + torch.randn(6, 32, generator=g)[labels]
    # Rounded to float32 first: the oracle is of the numbers the loss is given.

    def truth(wide):
        if miner is None:
            return reduced(excesses(wide, labels, 20.0))
        t = miner(x, labels)
        d = distances(wide)
        return reduced(d[t.anchor, t.positive] - d[t.anchor, t.negative] + 20.0)

    assert_same(lambda z: TripletLoss(margin=20.0, miner=miner)(z, labels), truth, x, 1e-5)


def test_many_mined_triplets_go_through_the_matrix_with_the_same_result():
    x, labels = clouds(n=20, dtype=torch.float64)
    chosen = Miner("all", "all")(x, labels)
    few = Triplets(*(index[:50] for index in chosen))
    repeated = Triplets(*(index[:50].repeat(20) for index in chosen))
    a = measured(lambda z: TripletLoss()(z, labels, few), x)
    b = measured(lambda z: TripletLoss()(z, labels, repeated), x)
    assert a[0] == pytest.approx(b[0], rel=1e-12)
    torch.testing.assert_close(a[1], b[1], rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("miner", [None, Miner("hard", "hard"), Miner("easy", "semihard")])
@pytest.mark.parametrize("soft", [False, True])
def test_a_scale_free_loss_has_no_radial_drift_at_any_spread(miner, soft):
    g = torch.Generator().manual_seed(3)
    labels = torch.arange(16) // 4
    shape = torch.randn(16, 8, generator=g)
    values = []
    for spread in (1e3, 1.0, 1e-10, 1e-20, 1e-30):
        x = (spread * shape).requires_grad_()
        loss = TripletLoss(margin=0.2, miner=miner, soft=soft, scale_free=True)(x, labels)
        loss.backward()
        gradient = x.grad.double() * spread
        assert bool(torch.isfinite(x.grad).all())
        centred = (x.detach() / spread).double()
        centred -= centred.mean(0)
        drift = float((centred * gradient).sum())
        assert abs(drift) <= 1e-6 * float(centred.norm() * gradient.norm())
        values.append(loss.item())
    assert values == pytest.approx([values[1]] * 5, rel=1e-5)


@pytest.mark.parametrize("scale_free", [False, True])
@pytest.mark.parametrize(
    ("soft", "margin", "value"), [(0, 0.2, 0.2), (1, 0.0, 0.6931), (0, 0.0, 0.0)]
)
@pytest.mark.parametrize("miner", [None, Miner("hard", "hard"), Miner("easy", "hard")])
def test_when_all_coincide_the_loss_is_the_margin_and_the_gradient_zero(
    scale_free, soft, margin, value, miner
):
    for row in (torch.zeros(1, 5), torch.full((1, 5), 0.1)):
        x = row.repeat(12, 1)
        loss = TripletLoss(margin=margin, miner=miner, soft=bool(soft), scale_free=scale_free)
        got, gradient = measured(lambda z, f=loss: f(z, [0, 0, 0, 1, 1, 1] * 2), x)
        assert got == pytest.approx(value, abs=1e-4)
        assert not gradient.any()


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_in_gives_a_half_precision_gradient(dtype):
    x, labels = clouds(n=24)
    half = x.to(dtype)
    value, gradient = measured(lambda z: TripletLoss()(z, labels), half)
    true_value, true_gradient = measured(lambda z: TripletLoss()(z, labels), half.float())
    assert value == pytest.approx(true_value, rel=1e-6)
    torch.testing.assert_close(gradient.to(dtype), true_gradient.to(dtype))


@pytest.mark.parametrize("miner", [None, Miner("easy", "hard")])
def test_autocast_changes_nothing(miner):
    x, labels = clouds(n=24)
    x = 1.0 + 1e-4 * x
    loss = TripletLoss(margin=0.2, miner=miner, scale_free=True)
    plain = measured(lambda z: loss(z, labels), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = measured(lambda z: loss(z, labels), x)
    assert plain[0] == cast[0]
    assert torch.equal(plain[1], cast[1])


@pytest.mark.parametrize("options", [{}, {"soft": True}, {"scale_free": True}, {"normalize": True}])
def test_gradcheck_passes_in_float64(options):
    x, labels = clouds(n=10, k=3, dim=3, dtype=torch.float64)
    loss = TripletLoss(margin=0.7, **options)
    assert torch.autograd.gradcheck(lambda z: loss(z, labels), x.requires_grad_())


@pytest.mark.parametrize("soft", [False, True])
def test_all_triplets_equal_pml(soft):
    x, labels = clouds(n=40)
    theirs = pml_losses.TripletMarginLoss(margin=0.3, smooth_loss=soft)
    ours = TripletLoss(margin=0.3, soft=soft, normalize=True, reduction="nonzero")
    a, b = (measured(lambda z, f=f: f(z, labels), x) for f in (ours, theirs))
    assert a[0] == pytest.approx(b[0], abs=1e-5)
    torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Miner("hard", "hard"), pml_miners.BatchHardMiner()),
        (Miner("easy", "hard"), pml_miners.BatchEasyHardMiner("easy", "hard")),
        (
            Miner("all", "all", margin=0.2, keep="semihard"),
            pml_miners.TripletMarginMiner(0.2, "semihard"),
        ),
    ],
)
def test_mined_triplets_equal_pml_and_pml_tuples_are_taken(ours, theirs):
    x, labels = clouds(n=48)
    loss = TripletLoss(margin=0.2, miner=ours, normalize=True, reduction="nonzero")
    pml = pml_losses.TripletMarginLoss(margin=0.2)
    mined = theirs(x, labels)
    a = measured(lambda z: loss(z, labels), x)
    b = measured(lambda z: pml(z, labels, mined), x)
    c = measured(lambda z: loss(z, labels, mined), x)
    assert a[0] == pytest.approx(b[0], abs=1e-5)
    assert c[0] == pytest.approx(b[0], abs=1e-5)
    torch.testing.assert_close(a[1], b[1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(c[1], b[1], rtol=1e-4, atol=1e-6)


def test_near_collapse_pml_differs_because_its_float32_distances_do():
    x = 1.0 + 1e-5 * torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(32) // 4
    truth = oracle(lambda z: reduced(excesses(z, labels, 0.2, normalize=True)), x)[1]
    ours = measured(lambda z: TripletLoss(normalize=True)(z, labels), x)[1]
    theirs = measured(lambda z: pml_losses.TripletMarginLoss(margin=0.2)(z, labels), x)[1]
    assert float((ours - truth).norm() / truth.norm()) < 1e-5
    assert float((theirs - truth).norm() / truth.norm()) > 0.5


def test_the_maximum_is_the_hardest_triplets_loss():
    x = torch.tensor([[0.0], [1.0], [3.0], [3.5]])
    assert TripletLoss(margin=2.0, reduction="max")(x, [0, 0, 1, 1]).item() == pytest.approx(1.0)


@pytest.mark.parametrize("margin", [-0.1, math.nan, "0.2"])
def test_an_impossible_margin_is_named(margin):
    with refused("margin"):
        TripletLoss(margin=margin)


def test_an_unknown_reduction_lists_the_known_ones():
    with pytest.raises(InputError, match="'mean', 'nonzero', 'max'"):
        TripletLoss(reduction="sum")


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


def test_a_negative_index_is_named():
    with refused("tuples"):
        TripletLoss()(torch.randn(3, 2), [0, 0, 1], [torch.tensor([i]) for i in (0, -1, 2)])


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
@pytest.mark.parametrize("compiled", [False, True])
def test_large_and_small_classes_equal_the_definition(k, window, compiled):
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
    if compiled:
        assert_same(lambda z: loss(z, labels), truth, x, 1e-8)
    else:
        with without_kernels():
            assert_same(lambda z: loss(z, labels), truth, x, 1e-8)
