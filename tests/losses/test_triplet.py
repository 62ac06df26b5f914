import warnings
from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from losses import loss_oracles
from losses.loss_oracles import Definition, Given, assert_same, clouds, distances, measured, unit
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse._base.extras import without_kernels
from uncollapse.data import load
from uncollapse.distances import tiles
from uncollapse.health import drift
from uncollapse.health.strategy import apply_strategy, rank_strategies, strategy_of
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner, NoTripletsWarning
from uncollapse.training import parse_config
from uncollapse.training.assemble import build_loss

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
        rows = [[d[a, n] for n in other] for a, (own, other) in sets if own and other]
        nearest = [min(row, key=torch.Tensor.item) for row in rows]  # of equals the first
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
            "normalize": [False, True],
            "reduction": ["mean", "nonzero"],
        },
        forms=[{"scale_free": form} for form in (False, True, HARDEST)],
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


@MINED
@pytest.mark.parametrize("scale_free", [False, True, HARDEST])
def test_swapped_negatives_are_those_of_the_definition(miner, scale_free):
    """On rows without ties: where d_an is d_pn, any of two gradients is right."""
    x, labels = clouds(n=14, dim=3, dtype=torch.float64)
    options = {"margin": 0.3, "scale_free": scale_free, "swap": True}
    tuples = None if miner is None else miner(x, labels)
    assert_same(
        lambda z: TripletLoss(**options, miner=miner)(z, labels),
        lambda z: triplet_loss(Given(z, labels.tolist(), tuples), **options),
        x,
        1e-7,
    )


@given(loss_oracles.batches(), st.booleans(), st.booleans(), st.booleans())
def test_the_largest_loss_is_that_of_the_definition(batch, soft, scale_free, normalize):
    x, labels = batch
    options = {"margin": 0.3, "soft": soft, "scale_free": scale_free, "reduction": "max"}
    truth = triplet_loss(Given(unit(x) if normalize else x, labels.tolist()), **options)
    # Several triplets may be the hardest: any of their gradients is right.
    value, gradient = measured(lambda z: TripletLoss(**options, normalize=normalize)(z, labels), x)
    assert value == pytest.approx(truth.item(), abs=1e-9)
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
    x = 1e-6 * torch.randn(24, 32, generator=g) + torch.randn(6, 32, generator=g)[labels]
    return x, labels, 20.0


@MINED
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    "batch",
    [*(near_a_point(noise) for noise in (1e-1, 1e-3, 1e-5, 1e-7)), tight_classes()],
    ids=["1e-1", "1e-3", "1e-5", "1e-7", "tight classes"],
)
def test_float32_gradient_is_right_near_collapse(miner, normalize, batch):
    x, labels, margin = batch

    def truth(wide):
        y = unit(wide) if normalize else wide
        d = distances(y)
        a, p, n = every_triplet(labels) if miner is None else miner(y.detach(), labels)
        return (d[a, p] - d[a, n] + margin).relu().mean()

    loss = TripletLoss(margin=margin, miner=miner, normalize=normalize)
    value, gradient = measured(lambda z: loss(z, labels), x)
    true_value, true_gradient = loss_oracles.oracle(truth, x)
    assert value == pytest.approx(true_value, rel=1e-5)
    assert float((gradient - true_gradient).norm()) <= 1e-5 * float(true_gradient.norm())


@pytest.mark.parametrize("form", ["mean", HARDEST])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "miner",
    [None, Miner("hard", "hard"), Miner("easy", "hard"), Miner("hard", "semihard")],
    ids=str,
)
def test_a_scale_free_loss_has_no_drift_whatever_is_mined_at_any_spread(miner, soft, form):
    x, labels = clouds(n=24, dim=8)
    loss = TripletLoss(margin=0.2, miner=miner, soft=soft, scale_free=form)
    expected = measured(lambda z: loss(z, labels), x)[0]
    for spread in (1e3, 1.0, 1e-10, 1e-20, 1e-30):
        value, gradient = measured(lambda z: loss(z, labels), spread * x)
        assert value == pytest.approx(expected, rel=1e-5)
        centred = x.double() - x.double().mean(0)
        radial = float((centred * gradient * spread).sum())
        assert abs(radial) <= 1e-6 * float(centred.norm() * gradient.norm() * spread)
    beside = TripletLoss(margin=0.2, miner=miner, soft=soft, scale_free=form)
    assert abs(drift(beside, 5.0 + 1e-3 * x.double(), labels).value * 1e-3) < 1e-8


def test_with_a_constant_divisor_the_drift_would_be_the_plain_loss_s_over_it():
    """So it is the gradient through the divisor that takes the pull away, not the division."""
    x, labels = clouds(n=60, dtype=torch.float64)
    a, p, n = Miner("hard", "hard")(x, labels)
    divisor = float((x[a] - x[n]).norm(dim=1).mean())

    def plain(z, y, scale=1.0):
        gap = (z[a] - z[p]).norm(dim=1) - (z[a] - z[n]).norm(dim=1)
        return (gap / scale + 9.0).relu().mean()  # so much that every anchor counts

    held = drift(lambda z, y: plain(z, y, divisor), x, labels).value
    assert held == pytest.approx(drift(plain, x, labels).value / divisor, rel=1e-9)
    assert held > 0.01


def test_the_forms_of_a_scale_free_loss_are_words_and_the_first_is_true_too():
    assert TripletLoss(scale_free="mean").scale_free is True
    loss = TripletLoss(scale_free=HARDEST, miner=Miner("hard", "hard"))
    with refused("scale_free"):
        loss.scale_free = "median"
    own = strategy_of(loss)  # a guard and an adviser keep the form that was chosen
    assert str(own) == "hard x hard, scale-free (hardest-negative)"
    ranked = rank_strategies(own)
    assert {strategy.scale_free for strategy in ranked} == {HARDEST}
    apply_strategy(loss, ranked[0])
    assert (loss.scale_free, loss.miner.positives) == (HARDEST, "inside")


def test_in_a_config_a_scale_free_form_is_a_word_beside_true_and_false():
    data = load("digits")
    for value, expected in ((True, True), ("mean", True), (HARDEST, HARDEST), (False, False)):
        config = parse_config({"loss": {"name": "triplet", "scale_free": value}})
        assert build_loss(config, data).scale_free == expected
    with pytest.raises(InputError, match=r"loss\.scale_free"):
        parse_config({"loss": {"scale_free": "median"}})
    with refused("distance"):
        build_loss(parse_config({"loss": {"scale_free": HARDEST, "distance": "cosine"}}), data)


def every_triplet(labels):
    same = labels[:, None] == labels
    positive = same & ~torch.eye(len(labels), dtype=torch.bool)
    return (positive[:, :, None] & ~same[:, None]).nonzero().T


def assert_ties_are_not_active(x, labels, margin, free=False, nonzero=False):
    """At d_ap - d_an + margin = 0 the derivative is 0, as relu's: rounding does not decide."""
    a, p, n = every_triplet(labels)

    def truth(wide):
        d = distances(wide)
        d = d / (d.sum() / (len(d) * (len(d) - 1))) if free else d
        excess = d[a, p] - d[a, n] + margin
        cost = torch.where(excess.abs() < 1e-9, 0.0, excess).relu()  # a tie, up to rounding
        return cost.sum() / ((cost > 0).sum().clamp(min=1) if nonzero else len(cost))

    loss = TripletLoss(margin=margin, scale_free=free, reduction="nonzero" if nonzero else "mean")
    assert_same(lambda z: loss(z, labels), truth, x, 2e-5)


KERNELS = pytest.mark.parametrize("kernels", [nullcontext, without_kernels])


@KERNELS
@pytest.mark.parametrize("kind", ["grid", "far"])
@pytest.mark.parametrize("free", [True, False])
@given(seed=st.integers(0, 10_000), margin=st.sampled_from([0.0, 0.2, 1.0]), nonzero=st.booleans())
def test_ties_of_rows_with_few_values_are_not_active(kernels, kind, free, seed, margin, nonzero):
    g = torch.Generator().manual_seed(seed)
    n, dim = int(torch.randint(8, 24, (), generator=g)), int(torch.randint(1, 4, (), generator=g))
    if kind == "grid":
        x = torch.randint(-3, 4, (n, dim), generator=g).float()
    else:
        x = torch.randn(n, dim, generator=g) * 1e-3 + 1e4  # a thousandth is one step there
    if len(torch.unique(x, dim=0)) > 1:
        with kernels():
            assert_ties_are_not_active(x, torch.arange(n) % 3, margin, free, nonzero)


@KERNELS
@pytest.mark.parametrize("seed", [0, 1])
def test_ties_of_a_large_grid_are_not_active_and_others_are_left_alone(kernels, seed):
    g, labels = torch.Generator().manual_seed(seed), torch.arange(150) % 5
    with kernels():
        grid = torch.randint(-3, 4, (150, 2), generator=g).float()
        assert_ties_are_not_active(grid, labels, 0.0)
        assert_ties_are_not_active(torch.randn(150, 2, generator=g), labels, 0.0)


@KERNELS
@pytest.mark.parametrize("miner", [None, Miner("all", "all"), Miner("hard", "hard")])
def test_every_triplet_counts_in_a_nonzero_mean_of_softplus(kernels, miner):
    # Distances of some hundreds: float32 rounds the softplus of most triplets to 0.
    g = torch.Generator().manual_seed(0)
    y = torch.arange(24) % 4
    x = torch.randn(24, 3, generator=g) * 20 + 400 * torch.eye(4, 3)[y] + 30 * (y[:, None] == 3)
    some = TripletLoss(margin=0.0, soft=True, reduction="nonzero", miner=miner)
    every = TripletLoss(margin=0.0, soft=True, miner=miner)
    with kernels():
        assert some(x, y).item() == every(x, y).item()
        wide, elements = some(x.double(), y).item(), some.elements(x, y)
        assert some(x, y).item() == pytest.approx(wide, rel=1e-5)
        assert some.reduce(elements).item() == pytest.approx(wide, rel=1e-5)
    if miner is None:
        assert (elements.loss == 0).any()
        truth = triplet_loss(Given(x.double(), y.tolist()), 0.0, soft=True)
        assert wide == pytest.approx(truth.item(), rel=1e-9)


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
@KERNELS
def test_large_and_small_classes_equal_the_definition(k, window, kernels):
    x, labels = clouds(n=130, k=k, dtype=torch.float64)

    def truth(wide):
        d, (a, p, n) = distances(wide), every_triplet(labels)
        excess = d[a, p] - d[a, n] + 0.5
        kept = (d[a, n] > d[a, p]) & (excess > 0) if window else excess > -torch.inf
        return excess[kept].relu().mean()

    keep = "semihard" if window else "all"
    loss = TripletLoss(margin=0.5, miner=Miner("all", "all", margin=0.5, keep=keep))
    with kernels():
        assert_same(lambda z: loss(z, labels), truth, x, 1e-8)
