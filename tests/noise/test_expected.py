import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from noise.noise_oracles import direct_distances, equidistant_classes, loss_by_loops
from support.errors import refuses
from uncollapse._base.check import InputError
from uncollapse.noise import NoiseModel, blobs, expected, expected_loss, minimise
from uncollapse.noise.theorems import margin_bound, triplet_bound

DIAGONALS = ("independent", "distinct", "true")
OBJECTIVES = ("contrastive", "triplet", "margin", "eps-triplet", "eps-margin")


def normal(n, dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


def fast_and_slow(objective, z, ids, noise, *, margin, diagonal, beta):
    """The loss and the oracle's, with gradients of points and boundaries where they are asked."""
    given_beta = beta if objective.endswith("margin") else None
    options = {"margin": margin, "diagonal": diagonal}
    fast = expected_loss(objective, z, ids, noise, beta=given_beta, **options)
    # Class numbers are what the labels stand for, so the oracle sees them as they are ranked.
    ranked = ids.unique(return_inverse=True)[1]
    return fast, loss_by_loops(objective, z, ranked, noise, beta=beta, **options)


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(st.data())
def test_losses_are_the_sums_over_tuples_or_labellings(objective, data):
    """Points with ties and duplicates (a coarse grid) or without, any class sizes."""
    easy = objective.startswith("eps")
    t, n = data.draw(st.integers(2, 3 if easy else 4)), data.draw(st.integers(1, 4 if easy else 7))
    ids = torch.tensor(data.draw(st.lists(st.integers(0, t - 1), min_size=n, max_size=n)))
    z = normal(n, 2, data.draw(st.integers(0, 10_000)))
    z = z.round() if data.draw(st.booleans()) else z
    fast, slow = fast_and_slow(
        objective,
        z,
        ids,
        NoiseModel(t, data.draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]))),
        margin=data.draw(st.sampled_from([0.0, 0.7, 1.0])),
        diagonal=data.draw(st.sampled_from(DIAGONALS[: 2 if easy else 3])),
        beta=torch.linspace(-0.5, 1.5, n, dtype=torch.float64),
    )
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)


@pytest.mark.parametrize(
    ("objective", "diagonal"),
    [(o, d) for o in OBJECTIVES for d in DIAGONALS if not (o.startswith("eps") and d == "true")],
)
def test_gradients_of_points_and_boundaries_are_those_of_the_sums(objective, diagonal):
    ids = torch.tensor([0, 0, 1, 2] if objective.startswith("eps") else [0, 0, 1, 1, 2, 2, 0])
    z, noise = normal(len(ids), 2, seed=3).requires_grad_(), NoiseModel(3, 0.65)
    beta = torch.full((len(ids),), 0.9, dtype=torch.float64, requires_grad=True)
    both = fast_and_slow(objective, z, ids, noise, margin=0.8, diagonal=diagonal, beta=beta)
    fast, slow = (torch.autograd.grad(v, (z, beta), allow_unused=True) for v in both)
    torch.testing.assert_close(fast[0], slow[0], rtol=0, atol=1e-11)
    if objective.endswith("margin"):
        torch.testing.assert_close(fast[1], slow[1], rtol=0, atol=1e-11)


def test_an_anchor_that_is_its_own_easy_positive_only_pushes():
    noise, z = NoiseModel(3, 0.7), normal(9, 2)
    d, ids = direct_distances(z), noise.labels(9)
    equal = noise.probabilities[ids] @ noise.probabilities[ids].T
    off = 1 - torch.eye(9, dtype=torch.float64)
    push = float(((1 - equal) * (1 - d).relu() * off).sum())
    value = expected_loss("eps-triplet", z, ids, noise, diagonal="true")
    assert float(value) == pytest.approx(push)
    push = float(((1 - equal) * (0.5 - d + 1).relu() * off).sum() + 9 * 0.5)
    value = expected_loss("eps-margin", z, ids, noise, beta=0.5, diagonal="true")
    assert float(value) == pytest.approx(push)


def test_a_triplet_on_its_kink_is_seen_alike_from_both_sides():
    # distances whose difference is α only up to rounding: the counts must still agree
    noise = NoiseModel(2, 0.6)
    z = equidistant_classes(2, 4, inside=0.5, between=1.5)
    value = float(expected_loss("triplet", z, noise.labels(8), noise))
    assert value == pytest.approx(triplet_bound(noise, 8, diagonal="distinct"), abs=1e-10)


def test_blocks_of_rows_change_nothing(monkeypatch):
    noise, z = NoiseModel(3, 0.8), normal(12, 2, seed=2)
    whole = float(expected_loss("eps-triplet", z, noise.labels(12), noise))
    monkeypatch.setattr(expected, "_ELEMENTS", 100)
    parts = float(expected_loss("eps-triplet", z, noise.labels(12), noise))
    assert parts == pytest.approx(whole)


def test_float32_far_from_the_origin_keeps_its_digits():
    noise = NoiseModel(2, 0.7)
    near = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).mul(64).round() / 64
    values = [
        float(expected_loss("triplet", z, noise.labels(12), noise))
        for z in (near, near + 4096.0)  # exact in float32
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-12)


def test_collapsed_points_get_a_finite_gradient():
    noise = NoiseModel(2, 0.7)
    z = blobs(noise, 8)[0].requires_grad_()
    expected_loss("triplet", z, noise.labels(8), noise).backward()
    assert bool(torch.isfinite(z.grad).all())


def test_wrong_arguments_are_refused_by_name():
    rows = {"embedding": [[0.0], [1.0], [2.0]], "labels": [0, 1, 0], "model": NoiseModel(2, 0.9)}
    good = rows | {"objective": "margin", "beta": 1.0}
    refuses(expected_loss, good, margin=[-1.0], diagonal=["all"], beta=[torch.zeros(2)])
    refuses(expected_loss, good, labels=[[0, 1, 2]])  # more classes than the model has
    for change in ({"beta": None}, {"objective": "triplet"}):
        with pytest.raises(InputError, match="beta"):
            expected_loss(**good | change)
    refuses(minimise, {"model": NoiseModel(2, 0.8), "n": 8, "dim": 2}, objective=["proxy"])


# ---- minima


@pytest.mark.slow
def test_with_the_anchor_as_its_own_positive_theorem_1_fails():
    best = minimise("triplet", NoiseModel(2, 0.6), 8, 2, diagonal="true", starts=10, steps=700)
    assert best.values["collapsed"] == pytest.approx(92.16, abs=1e-3)
    assert best.value == pytest.approx(84.42, abs=0.01)
    assert not best.collapsed


@pytest.mark.slow
def test_three_noisy_classes_fall_into_one_point_under_the_margin_loss():
    noise = NoiseModel(3, 0.6)
    best = minimise("margin", noise, 9, 2, starts=2, steps=600)
    assert best.value == pytest.approx(46.08, abs=1e-3)
    assert best.value == pytest.approx(margin_bound(noise, 9), abs=1e-3)
    assert best.collapsed
    assert best.class_gap < 0.01
    assert torch.allclose(best.beta, torch.tensor(-1.0, dtype=torch.float64), atol=0.01)
    # the structured start ends there; so do the random ones
    assert sorted(best.values.values())[2] == pytest.approx(46.08, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("t", "n", "p", "diagonal"),
    [(2, 8, 0.6, "independent"), (2, 8, 0.9, "distinct"), (3, 9, 0.4, "distinct")],
)
def test_random_starts_of_the_triplet_loss_end_collapsed_at_the_bound(t, n, p, diagonal):
    noise = NoiseModel(t, p)
    best = minimise("triplet", noise, n, 2, diagonal=diagonal, starts=3, steps=500)
    bound = triplet_bound(noise, n, diagonal=diagonal)
    random = min(value for name, value in best.values.items() if name.startswith("random"))
    assert [best.value, random] == pytest.approx([bound, bound], rel=1e-4)
    assert best.collapsed
    assert best.class_gap == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
def test_two_classes_collapse_under_the_margin_loss_at_twice_the_margin():
    noise = NoiseModel(2, 0.7)
    best = minimise("margin", noise, 8, 2, margin=0.5, starts=2, steps=600)
    assert best.value == pytest.approx(margin_bound(noise, 8, margin=0.5), rel=1e-4)
    assert best.collapsed
    assert best.class_gap == pytest.approx(1.0, abs=0.01)
    best = minimise("contrastive", NoiseModel(3, 0.8), 9, 2, starts=2, steps=400)
    assert best.collapsed
    assert best.beta is None
    assert best.class_gap == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["eps-triplet", "eps-margin"])
def test_easy_positives_keep_classes_from_collapsing(objective):
    best = minimise(objective, NoiseModel(2, 0.8), 16, 2, starts=2, steps=300)
    assert not best.collapsed
    assert float(best.class_diameters.min()) > 0.5
    assert best.value < 0.95 * best.values["collapsed"]


@pytest.mark.parametrize(
    ("objective", "t", "dim", "diagonal"),
    [
        ("eps-margin", 2, 2, "distinct"),
        ("margin", 2, 2, "independent"),
        ("triplet", 4, 1, "distinct"),
    ],
)
def test_the_value_is_that_of_the_points_and_boundaries_returned(objective, t, dim, diagonal):
    noise = NoiseModel(t, 0.8)  # four classes have no room to be equidistant on a line
    best = minimise(objective, noise, 8, dim, starts=2, steps=40, diagonal=diagonal)
    options = {"beta": best.beta, "diagonal": diagonal}
    value = expected_loss(objective, best.embedding, best.labels, noise, **options)
    assert best.value == min(best.values.values()) == pytest.approx(float(value), rel=1e-9)


def test_a_generator_makes_other_starts_and_the_same_one_the_same():
    runs = [
        minimise("triplet", NoiseModel(2, 0.8), 6, 2, steps=20, generator=generator)
        for generator in (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
    ]
    assert torch.equal(runs[0].embedding, runs[1].embedding)
    assert runs[0].values != runs[2].values
