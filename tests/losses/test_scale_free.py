"""Forms of the scale-free triplet loss: over the mean distance, or that to hardest negatives."""

import pytest
import torch
from hypothesis import given
from torch import Tensor

from losses.loss_oracles import assert_same, batches, clouds, distances
from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.data import load
from uncollapse.health import drift
from uncollapse.health.strategy import apply_strategy, rank_strategies, strategy_of
from uncollapse.losses import MultipleLosses, TripletLoss, VarianceCovarianceLoss
from uncollapse.mining import Miner
from uncollapse.training import parse_config
from uncollapse.training.assemble import build_loss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")
HARDEST = "hardest-negative"


def quaterion(z, labels, margin):
    """Batch-hard over the mean hardest-negative distance, anchor by anchor; gradient through it."""
    d, near, far = distances(z), [], []
    for a in range(len(z)):
        own = [d[a, p] for p in range(len(z)) if p != a and labels[p] == labels[a]]
        others = [d[a, n] for n in range(len(z)) if labels[n] != labels[a]]
        if own and others:
            near.append(max(own, key=Tensor.item))  # of equals the first
            far.append(min(others, key=Tensor.item))
    if not near:
        return z.sum() * 0
    divisor = torch.stack(far).mean()
    if float(divisor.detach()) == 0:
        divisor = torch.ones_like(divisor)
    excess = (torch.stack(near) - torch.stack(far)) / divisor + margin
    return torch.relu(excess).mean()


@given(batches())
def test_over_the_hardest_negatives_it_is_quaterion_s(batch):
    x, labels = batch
    loss = TripletLoss(margin=0.3, miner=Miner("hard", "hard"), scale_free=HARDEST)
    assert_same(lambda z: loss(z, labels), lambda z: quaterion(z, labels, 0.3), x, 1e-6)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize(
    "miner",
    [None, Miner("hard", "hard"), Miner("easy", "hard"), Miner("hard", "semihard")],
    ids=str,
)
def test_its_drift_is_zero_whatever_is_mined_at_any_spread(miner, soft):
    x, labels = clouds(n=60, dtype=torch.float64)
    loss = TripletLoss(margin=0.2, miner=miner, soft=soft, scale_free=HARDEST)
    value = loss(x, labels).item()
    for spread in (1.0, 1e-3, 1e-6):
        rows = 5.0 + spread * x
        assert abs(drift(loss, rows, labels).value * spread) < 1e-8
        assert loss(rows, labels).item() == pytest.approx(value, rel=1e-6)


def test_without_the_gradient_through_the_divisor_the_drift_would_be_the_plain_loss_s():
    """So it is the gradient through the divisor that takes the pull away, not the division."""
    x, labels = clouds(n=60, dtype=torch.float64)
    nearest = Miner("hard", "hard")(x, labels)
    divisor = torch.linalg.vector_norm(x[nearest.anchor] - x[nearest.negative], dim=1).mean()

    def plain(z, y, scale=1.0):
        a, p, n = nearest
        far = torch.linalg.vector_norm(z[a] - z[n], dim=1)
        near = torch.linalg.vector_norm(z[a] - z[p], dim=1)
        return ((near - far) / scale + 9.0).relu().mean()  # so much that every anchor counts

    held = drift(lambda z, y: plain(z, y, divisor), x, labels).value
    assert held == pytest.approx(drift(plain, x, labels).value / float(divisor), rel=1e-9)
    assert held > 0.01


def test_it_grows_without_bound_where_classes_touch_and_over_the_mean_it_does_not():
    places, values = clouds(n=20, dtype=torch.float64)[0], {}
    labels = torch.cat([torch.arange(20) % 5, 5 + torch.arange(20) % 5])
    for gap in (1e-2, 1e-6):
        touching = torch.cat([places, places + gap])  # each sample beside one of another class
        for form in ("mean", HARDEST):
            loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"), scale_free=form)
            values[form, gap] = loss(touching, labels).item()
    assert values["mean", 1e-6] < 2 * values["mean", 1e-2] < 10
    assert values[HARDEST, 1e-6] > 1e3 * values[HARDEST, 1e-2]


def test_the_first_form_goes_by_two_names():
    x, labels = clouds(n=40)
    loss = TripletLoss(scale_free="mean")
    assert loss.scale_free is True
    assert torch.equal(loss(x, labels), TripletLoss(scale_free=True)(x, labels))
    with refused("scale_free"):
        loss.scale_free = "median"
    assert loss.scale_free is True


def test_labels_are_needed_with_tuples_too():
    x, labels = clouds(n=40)
    tuples = Miner("easy", "hard")(x, labels)
    with refused("labels"):
        TripletLoss(scale_free=HARDEST)(x, None, tuples)
    mined = TripletLoss(scale_free=HARDEST, miner=Miner("easy", "hard"))(x, labels)
    assert torch.equal(TripletLoss(scale_free=HARDEST)(x, labels, tuples), mined)


def test_with_references_the_hardest_negatives_are_among_them():
    x, labels = clouds(n=40, dtype=torch.float64)
    loss = TripletLoss(scale_free=HARDEST, miner=Miner("easy", "hard"))
    first, then = (loss(x, labels, ref_embeddings=k * x + 1, ref_labels=labels) for k in (1, 3))
    assert first.item() != then.item()


@pytest.mark.parametrize("x", [torch.ones(8, 3), torch.ones(8, 3) * torch.arange(8)[:, None] // 4])
def test_rows_that_coincide_have_a_finite_value_and_gradient(x):
    leaf = x.float().requires_grad_()
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"), scale_free=HARDEST)
    value = loss(leaf, torch.arange(8) % 4)
    value.backward()
    assert bool(torch.isfinite(value))
    assert bool(torch.isfinite(leaf.grad).all())


def test_a_guard_and_an_adviser_keep_the_form_that_was_chosen():
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"), scale_free=HARDEST)
    own = strategy_of(loss)
    assert str(own) == "hard x hard, scale-free (hardest-negative)"
    ranked = rank_strategies(own)
    assert {one.scale_free for one in ranked} == {HARDEST}
    apply_strategy(loss, ranked[0])
    assert (loss.scale_free, loss.miner.positives) == (HARDEST, "inside")


def test_in_a_config_it_is_a_word_beside_true_and_false():
    for given_value, expected in ((True, True), ("mean", True), (HARDEST, HARDEST), (False, False)):
        config = parse_config({"loss": {"name": "triplet", "scale_free": given_value}})
        assert build_loss(config, load("digits")).scale_free == expected
    with pytest.raises(InputError, match=r"loss\.scale_free"):
        parse_config({"loss": {"scale_free": "median"}})
    config = parse_config({"loss": {"scale_free": HARDEST, "distance": "cosine"}})
    with pytest.raises(InputError) as caught:
        build_loss(config, load("digits"))
    assert caught.value.name == "distance"


def test_it_can_have_a_regulariser_beside_it():
    x, labels = clouds(n=40)
    triplet = TripletLoss(scale_free=HARDEST, miner=Miner("hard", "hard"))
    both = MultipleLosses([triplet, VarianceCovarianceLoss()], weights=[1.0, 0.1])
    expected = triplet(x, labels) + 0.1 * VarianceCovarianceLoss()(x)
    torch.testing.assert_close(both(x, labels), expected)
