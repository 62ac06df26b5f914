"""Drift, mode drift and their table: formulas against loops, gradient flow, odd batches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.reducers import MeanReducer
from torch.nn.functional import normalize

import uncollapse as uc
from support.errors import refused
from support.oracles import distance_matrix, labelled_sets
from uncollapse.health import direction_drift, drift, mode_drift
from uncollapse.health.drifts import direction_rate
from uncollapse.losses import ContrastiveLoss, MarginLoss, SupConLoss, TrimmedLoss, TripletLoss
from uncollapse.mining import Miner

MINERS = (("hard", "hard"), ("easy", "semihard"), ("all", "all"))
HARD = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
BOTH = pytest.mark.parametrize("rate", [drift, mode_drift])


def cloud(seed=0, classes=3, rows=7, dim=5):
    """Classes in no order, whose neighbourhoods are not mutual."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(rows)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    means = torch.randn(classes, dim, generator=generator)
    z = means[labels] + torch.randn(len(labels), dim, generator=generator)
    return z.double(), labels


def mean_distance(z):
    return float(distance_matrix(z.numpy()).sum()) / (len(z) * (len(z) - 1))


def gradient_of(loss_fn, z, labels):
    leaf = z.clone().requires_grad_(True)
    return torch.autograd.grad(loss_fn(leaf, labels), leaf)[0]


def smoothed(x, labels, k):
    """Means over a row and its k nearest, less their class means, and T with S = TZ: by loops."""
    distance, n = distance_matrix(x), len(x)
    average, own_class = np.zeros((n, n)), [np.flatnonzero(labels == label) for label in labels]
    for i in range(n):
        others = sorted(set(own_class[i]) - {i}, key=lambda j: (distance[i, j], j))
        near = [i, *others[:k]]
        average[i, near] = 1 / len(near)
    transform = average - np.stack([average[own].mean(0) for own in own_class])
    return average @ x, transform @ x, transform


def rates_by_loops(loss_fn, z, labels, k):
    """`value`, `exact` and `inside` of a mode drift."""
    x, gradient = z.numpy(), gradient_of(loss_fn, z, labels).numpy()
    means, s, transform = smoothed(x, labels.numpy(), k)
    unit = len(z) * mean_distance(z)
    inside = (x - means) / ((x - means) ** 2).sum()
    modes, back = (part / (s**2).sum() for part in (s, transform.T @ s))
    return [unit * (part * gradient).sum() for part in (modes, back, inside)]


def rates(result):
    return [result.value, result.exact, result.inside]


def mined_triplets(distance, labels, positives):
    pick, chosen = max if positives == "hard" else min, []
    for a, to_others in enumerate(distance):
        own = [i for i in np.flatnonzero(labels == labels[a]) if i != a]
        other = np.flatnonzero(labels != labels[a])
        if own and len(other):
            chosen.append((a, pick(own, key=to_others.item), min(other, key=to_others.item)))
    return chosen


@given(labelled_sets(max_rows=8))
def test_drift_of_a_triplet_hinge_is_the_mean_of_d_ap_minus_d_an(drawn):
    x, labels = drawn
    distance = distance_matrix(x)
    mean = distance.sum() / (len(x) * (len(x) - 1))
    if mean < 1e-3:
        return
    for positives in ("hard", "easy"):
        triplets = mined_triplets(distance, labels, positives)
        excess = [distance[a, p] - distance[a, n] for a, p, n in triplets]
        if any(abs(e + 0.3) < 1e-9 for e in excess) or not triplets:
            return  # at the hinge itself there is no gradient
        euler = sum(e for e in excess if e + 0.3 > 0) / len(excess)
        loss_fn = TripletLoss(margin=0.3, miner=Miner(positives, "hard"))
        result = drift(loss_fn, torch.from_numpy(x), torch.from_numpy(labels))
        assert result.value == pytest.approx(euler / mean, abs=1e-7)
        loss = sum(max(0.0, e + 0.3) for e in excess) / len(excess)
        assert result.relative_loss == pytest.approx(loss / mean, rel=1e-6, abs=1e-12)


@given(labelled_sets(max_rows=8))
def test_drift_of_a_scale_free_loss_is_zero(drawn):
    z, labels = torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])
    z = torch.cat([z, z + 0.1 * torch.arange(1.0, len(z) + 1)[:, None]])
    for miner in (Miner("hard", "hard"), None):
        loss_fn = TripletLoss(margin=0.2, miner=miner, scale_free=True)
        value = drift(loss_fn, z, torch.cat([labels, labels])).value
        assert value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("on_sphere", [False, True])
@pytest.mark.parametrize("miner", MINERS, ids=" x ".join)
def test_a_small_step_changes_size_and_spread_of_modes_at_these_rates(miner, on_sphere):
    loss_fn = TripletLoss(margin=0.5, miner=Miner(*miner))
    for seed in range(3):
        z, labels = cloud(seed)
        z = normalize(z, dim=1) if on_sphere else z
        gradient = gradient_of(loss_fn, z, labels)
        sizes, modes = [], []
        for step in (1e-6, -1e-6):
            moved = z - step * gradient
            moved = normalize(moved, dim=1) if on_sphere else moved
            sizes.append(float((moved - moved.mean(0)).square().sum()))
            modes.append(math.log((smoothed(moved.numpy(), labels.numpy(), 3)[1] ** 2).sum()))
        speed, mode_speed = ((ends[0] - ends[1]) / 2e-6 for ends in (sizes, modes))
        value = drift(loss_fn, z, labels, normalize=on_sphere).value
        assert value == pytest.approx(-speed / 2 / mean_distance(z), rel=1e-4, abs=1e-6)
        exact = mode_drift(loss_fn, z, labels, k=3, normalize=on_sphere).exact
        expected = -len(z) * mean_distance(z) * mode_speed / 2
        assert exact == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_semi_hard_negatives_never_shrink():
    for seed in range(5):
        for positives in ("hard", "easy", "random"):
            miner = Miner(positives, "semihard", generator=torch.Generator().manual_seed(seed))
            assert drift(TripletLoss(margin=0.2, miner=miner), *cloud(seed, 8, 4, 16)).value <= 1e-9


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("miner", MINERS, ids=" x ".join)
def test_mode_drift_is_its_formulas_by_loops(miner, k):
    loss_fn = TripletLoss(margin=0.5, miner=Miner(*miner))
    for seed in range(3):
        result = mode_drift(loss_fn, *cloud(seed), k=k)
        expected = rates_by_loops(loss_fn, *cloud(seed), k)
        assert rates(result) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(("scale", "shift"), [(1e-200, 0.0), (1e200, 0.0), (1.0, 100.0)])
def test_neither_scale_nor_place_changes_a_rate(scale, shift):
    z, labels = cloud()
    push = torch.randn(z.shape, generator=torch.Generator().manual_seed(9)).double()
    plain, moved = (
        mode_drift(lambda x, y: (push * x).sum(), x, labels) for x in (z, scale * z + shift)
    )
    assert rates(moved) == pytest.approx(rates(plain), rel=1e-7)


def test_small_classes_show_no_modes_but_count_as_negatives():
    z, labels = cloud(1, classes=2, rows=9)
    small, ids = cloud(rows=4)
    z, labels = torch.cat([z, small, small[:2] + 0.3]), torch.cat([labels, ids + 5, ids[:2] + 9])
    expected = rates_by_loops(HARD, z, labels, 5)
    assert rates(mode_drift(HARD, z, labels, k=5)) == pytest.approx(expected, rel=1e-7)
    for k in (3, 4, 10**30):
        assert math.isnan(mode_drift(HARD, small, ids, k=k).value)
    assert math.isfinite(mode_drift(HARD, small, ids, k=2).value)
    alone = mode_drift(lambda x, y: x.square().sum(), z, list(range(len(z))))
    assert math.isnan(alone.value)
    assert math.isnan(alone.exact)


@pytest.mark.parametrize("offset", [0.0, 1 / 3, 1e6])
def test_points_have_no_rate(offset):
    labels = torch.arange(4).repeat_interleave(6)
    z = torch.randn(4, 7, generator=torch.Generator().manual_seed(0))[labels] + offset
    assert math.isnan(mode_drift(TripletLoss(margin=5.0), z, labels).value)
    # Modes that are points have no inside.
    halves = torch.arange(24) // 3
    z = torch.randn(8, 7, generator=torch.Generator().manual_seed(0))[halves] + offset
    result = mode_drift(TripletLoss(margin=5.0), z, labels, k=2)
    assert math.isfinite(result.value)
    assert result.inside == 0.0
    point = torch.ones(24, 3) + offset
    assert math.isnan(mode_drift(TripletLoss(), point, labels).value)
    radial = drift(TripletLoss(margin=0.2), point, labels)
    assert (radial.value, radial.relative_loss) == (0.0, math.inf)


def test_of_equals_the_lowest_index_is_a_neighbour():
    # Rows 1 and 2 are as near to row 0; row 1 is taken, and S has its mean.
    z = torch.tensor([[0.0], [1.0], [-1.0], [9.0], [20.0], [22.0]]).double()
    labels = torch.tensor([0, 0, 0, 0, 1, 1])
    _, s, _ = smoothed(z.numpy(), labels.numpy(), 1)
    assert s[0, 0] == pytest.approx(0.5 - np.mean([0.5, 0.5, -0.5, 5.0]))
    value = mode_drift(lambda x, y: x[0, 0], z, labels, k=1).value
    assert value == pytest.approx(6 * mean_distance(z) * s[0, 0] / (s**2).sum())


@BOTH
def test_any_callable_will_do_and_its_parameters_are_left_alone(rate):
    z, labels = cloud()
    plain = LpDistance(normalize_embeddings=False)
    theirs = pml.TripletMarginLoss(margin=0.5, distance=plain, reducer=MeanReducer())
    ours = TripletLoss(margin=0.5)
    expected = rate(ours, z, labels).value
    assert rate(theirs, z, labels).value == pytest.approx(expected, rel=1e-4)
    both = rate(lambda x, y: 2 * ours(x, y) + SupConLoss()(x, y), z, labels).value
    assert both == pytest.approx(2 * expected + rate(SupConLoss(), z, labels).value, rel=1e-6)
    for loss_fn in (uc.ProxyNCALoss(num_classes=3, dim=5), MarginLoss()):
        rate(loss_fn, z.float(), labels)
        assert all(p.grad is None for p in loss_fn.parameters())
    assert not z.requires_grad
    assert rate(lambda x, y: torch.tensor(3.0), z, labels).value == 0.0
    on_sphere = rate(ours, normalize(z, dim=1), labels, normalize=True).value
    assert rate(ours, z, labels, normalize=True).value == pytest.approx(on_sphere, rel=1e-9)


@BOTH
def test_the_rate_of_batches_is_their_mean_and_standard_deviation(rate):
    batches = [cloud(seed, rows=12) for seed in range(8)]
    over = rate(HARD, batches)
    values = [rate(HARD, z, y).value for z, y in batches]
    assert over.value == pytest.approx(np.mean(values))
    assert over.spread == pytest.approx(np.std(values, ddof=1))
    assert math.isnan(rate(HARD, *batches[0]).spread)
    with torch.no_grad():
        assert rate(HARD, batches) == over
    z, labels = batches[0]
    assert rate(HARD, [(z.requires_grad_(True), labels), *batches[1:]]) == over


def test_batches_that_show_no_modes_are_left_out_of_the_mean():
    good, small = cloud(), cloud(rows=3)
    result = mode_drift(HARD, [good, small])
    assert rates(result) == rates(mode_drift(HARD, *good))
    assert math.isnan(result.spread)
    assert math.isnan(mode_drift(HARD, [small, small]).value)


@BOTH
def test_wrong_arguments_are_named(rate):
    z, labels = cloud()
    with refused("labels"):
        rate(TripletLoss(), z)
    with refused("embeddings"):
        rate(TripletLoss(), [(z, labels)], labels)
    with refused("k"):
        mode_drift(TripletLoss(), z, labels, k=1.5)


# What docs/results/mode-drift/proofs.md proves of the mode drift, and its counterexamples.

PULL = ContrastiveLoss(margin=0.0)  # its negatives are never charged: the pull alone


def groups(seed):
    """Three classes of three tight groups of three rows, anywhere: neighbourhoods are mutual."""
    generator = torch.Generator().manual_seed(seed)
    mode = torch.arange(9).repeat_interleave(3)
    centres = 10 * torch.randn(9, 6, generator=generator).double()
    return centres[mode] + 0.1 * torch.randn(27, 6, generator=generator).double(), mode // 3


@pytest.mark.parametrize("seed", range(3))
def test_the_pull_of_easy_positives_moves_no_mode_and_that_of_others_merges_them(seed):
    z, labels = groups(seed)
    easy = ContrastiveLoss(margin=0.0, miner=Miner("easy", "hard"))
    result = mode_drift(easy, z, labels, k=2)
    assert [result.value, result.exact] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert result.inside > 0
    # Neighbours that are not mutual: the pull is seen.
    assert abs(mode_drift(easy, z, labels, k=1).value) > 1e-6
    for positives in ("random", "all", "hard"):
        miner = Miner(positives, "hard", generator=torch.Generator().manual_seed(seed))
        assert mode_drift(ContrastiveLoss(margin=0.0, miner=miner), z, labels, k=2).value > 0


@pytest.mark.parametrize("seed", range(2))
def test_squared_distances_have_a_closed_form_for_any_groups(seed):
    z, labels = groups(seed)
    mean, size = mean_distance(z), 9
    every = TripletLoss(margin=1e6, distance="squared")
    assert mode_drift(every, z, labels, k=2).value == pytest.approx(4 * mean / (size - 1), rel=1e-6)
    easy = TripletLoss(margin=1e6, distance="squared", miner=Miner("easy", "all"))
    assert mode_drift(easy, z, labels, k=2).value == pytest.approx(-4 * mean, rel=1e-6)


def test_easy_positives_merge_modes_where_negatives_push_them_together():
    # On the line 0, 4 | 5, 9: the modes at 4 and 5 are pushed apart, each towards its other mode.
    z = torch.tensor([0.0, 0, 4, 4, 5, 5, 9, 9]).double()[:, None]
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    loss_fn = TripletLoss(margin=20.0, miner=Miner("easy", "hard"))
    found = mode_drift(loss_fn, z, labels, k=1)
    assert found.value == pytest.approx(mean_distance(z) / 2, rel=1e-9)
    moved = z - 0.1 * gradient_of(loss_fn, z, labels)
    assert float(moved[2] - moved[0]) < 4.0


@pytest.mark.parametrize(("s", "temperature"), [(0.9, 0.1), (-0.5, 0.5), (0.5, 5.0)])
def test_supcon_merges_two_modes_at_any_temperature(s, temperature):
    h, classes = 3, 3
    one = torch.tensor([[1.0, 0.0], [s, math.sqrt(1 - s * s)]]).double()
    z = torch.block_diag(*[one] * classes).repeat_interleave(h, dim=0)
    labels = torch.arange(classes).repeat_interleave(2 * h)
    n = len(z)
    inside, across = (h - 1) * math.exp(1 / temperature), math.exp(s / temperature)
    share = across / (inside + h * across + (n - 2 * h))
    expected = 2 * (1 + s) * h * (1 / (2 * h - 1) - share) / temperature * mean_distance(z)
    loss_fn = SupConLoss(temperature=temperature)
    found = mode_drift(loss_fn, z, labels, k=h - 1, normalize=True)
    assert found.value == pytest.approx(expected, rel=1e-5)
    assert found.value > 0
    easy = SupConLoss(temperature=temperature, miner=Miner("easy", "all"))
    assert mode_drift(easy, z, labels, k=h - 1, normalize=True).value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_trimming_positives_to_those_inside_modes_moves_no_mode(seed):
    z, labels = groups(seed)
    inside = 2 / 8  # of the 8 positives of a row 2 are in its group
    kept = TrimmedLoss(PULL, fraction=inside, on="positives")
    assert mode_drift(kept, z, labels, k=2).value == pytest.approx(0.0, abs=1e-9)
    more = TrimmedLoss(PULL, fraction=2 * inside, on="positives")
    assert mode_drift(more, z, labels, k=2).value > 1e-3


# Directions, without labels.


def two_views(seed=0, rows=12, dim=5):
    """Two views of the same rows, not centred, with norms that differ."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, dim, generator=generator).double() + 0.5
    other = z + 0.5 * torch.randn(rows, dim, generator=generator).double()
    return z * torch.rand(rows, 1, generator=generator).add(0.3), other


def align(a, b):
    return -torch.cosine_similarity(a, b).mean()


def contrast(a, b):
    """NT-Xent of SimCLR."""
    unit = normalize(torch.cat([a, b]), dim=1)
    logits = (unit @ unit.T / 0.2).fill_diagonal_(-math.inf)
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(unit)).roll(len(a)))


def simsiam(a, b):
    """With a fixed predictor."""
    mixing = torch.linspace(-1.0, 2.0, a.shape[1] ** 2).double().view(a.shape[1], -1)
    return (align(a @ mixing, b.detach()) + align(b @ mixing, a.detach())) / 2


def moved(loss_fn, views, by):
    """Directions after a small step of gradient flow on the sphere, and their spread."""
    leaves = [normalize(z, dim=1).requires_grad_(True) for z in views]
    slopes = torch.autograd.grad(loss_fn(*leaves), leaves)
    rows = torch.cat([z.detach() - by * slope for z, slope in zip(leaves, slopes, strict=True)])
    unit = rows / rows.norm(dim=1, keepdim=True)
    return float((unit - unit.mean(0)).square().sum())


@pytest.mark.parametrize("loss_fn", [align, contrast, simsiam])
@pytest.mark.parametrize("seed", range(2))
def test_direction_drift_is_the_fall_of_the_spread_under_gradient_flow(loss_fn, seed):
    views, step = two_views(seed), 1e-5
    fall = (moved(loss_fn, views, -step) - moved(loss_fn, views, step)) / (2 * step)
    expected = len(torch.cat(views)) * fall / 2 / moved(loss_fn, views, 0.0)
    assert abs(expected) > 1e-3
    assert direction_drift(loss_fn, *views) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(2))
def test_alignment_alone_pulls_by_how_far_views_differ_and_how_narrow_the_cone_is(seed):
    z, _ = two_views(seed)
    first = normalize(z, dim=1)
    tangent = torch.randn(first.shape, generator=torch.Generator().manual_seed(seed)).double()
    tangent = normalize(tangent - (tangent * first).sum(1, keepdim=True) * first, dim=1)
    c = 0.8
    second = c * first + math.sqrt(1 - c * c) * tangent
    m = float(torch.cat([first, second]).mean(0).square().sum())
    found = direction_drift(align, first, second)
    assert found == pytest.approx(2 * (1 - c) * m / (1 - m), rel=1e-9)
    assert found > 0


def test_on_the_sphere_direction_drift_is_drift_in_other_units():
    z, labels = cloud()
    unit, loss_fn = normalize(z, dim=1), SupConLoss(temperature=0.3)
    size = float((unit - unit.mean(0)).square().sum())
    radial = drift(loss_fn, z, labels, normalize=True).value
    found = direction_drift(lambda rows: loss_fn(rows, labels), unit)
    assert found == pytest.approx(len(z) * radial * mean_distance(unit) / size, rel=1e-6)


def test_direction_drift_does_not_depend_on_the_norms_of_rows():
    first, second = two_views()
    generator = torch.Generator().manual_seed(3)
    factors = torch.rand(len(first), 1, generator=generator).double().add(0.1)
    found = direction_drift(contrast, first * factors, 7.0 * second)
    assert found == pytest.approx(direction_drift(contrast, first, second), rel=1e-9)


def test_directions_about_the_origin_are_not_pulled_together_by_their_own_turns():
    # Any field that turns all rows together, or moves them along themselves, keeps the spread.
    rows = torch.cat(two_views())
    turn = torch.arange(25.0).double().view(5, 5)
    turned = normalize(rows, dim=1) @ (turn - turn.T) / rows.norm(dim=1, keepdim=True)
    assert direction_rate(rows, turned) == pytest.approx(0.0, abs=1e-9)
    assert direction_rate(rows, 3.0 * rows) == pytest.approx(0.0, abs=1e-9)
    # Alignment of two views whose mean direction is 0 does, too.
    first = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    second = first.roll(1, dims=1) * 0.6 + first * 0.8
    assert direction_drift(align, first, second) == pytest.approx(0.0, abs=1e-9)


def test_direction_drift_counts_a_view_without_gradient_and_leaves_parameters_alone():
    first, second = two_views()
    predictor = torch.nn.Linear(5, 5).double()
    found = direction_drift(lambda a, b: align(predictor(a), b.detach()), first, second)
    leaf = first.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(align(predictor(leaf), second), leaf)
    both = torch.cat([slope, torch.zeros_like(second)])
    assert found == pytest.approx(direction_rate(torch.cat([first, second]), both), rel=1e-9)
    assert all(p.grad is None for p in predictor.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_direction_rate_is_nan_where_nothing_can_be_said(dtype):
    same = torch.randn(1, 8, generator=torch.Generator().manual_seed(0)).to(dtype).expand(6, 8)
    slope = torch.ones(6, 8, dtype=dtype)
    assert math.isnan(direction_rate(same, slope))
    assert math.isnan(direction_rate(torch.full_like(slope, math.nan), slope))
    rows = torch.eye(6, 8).to(dtype)
    assert math.isnan(direction_rate(rows, slope * math.inf))
    assert not math.isnan(direction_rate(rows, slope))
    views = rows.view(2, 3, 8)  # [batch, views, dim]
    assert direction_rate(views, slope.view(2, 3, 8)) == direction_rate(rows, slope)


def test_direction_drift_refuses_what_is_no_loss_or_no_view():
    first, second = two_views()
    with refused("loss_fn"):
        direction_drift(first, second)
    with refused("loss_fn"):
        direction_drift(lambda a, b: a - b, first, second)
    with refused("views"):
        direction_drift(align)
