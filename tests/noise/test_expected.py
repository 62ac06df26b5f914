import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncollapse._base.check import InputError
from uncollapse.noise import (
    NoiseModel,
    blobs,
    expected_loss,
    triplet_bound,
)

DIAGONALS = ("independent", "distinct", "true")


@st.composite
def cases(draw, max_n=7):
    """Points with ties and duplicates (a coarse grid) or without, any class sizes, t up to 4."""
    t = draw(st.integers(2, 4))
    n = draw(st.integers(1, max_n))
    ids = draw(st.lists(st.integers(0, t - 1), min_size=n, max_size=n))
    seed = draw(st.integers(0, 10_000))
    z = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if draw(st.booleans()):
        z = z.round()
    noise = NoiseModel(t, draw(st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0])))
    return z, torch.tensor(ids), noise, draw(st.sampled_from([0.0, 0.7, 1.0]))


@given(case=cases(), diagonal=st.sampled_from(DIAGONALS))
def test_triplet_is_the_sum_over_triplets(oracle, case, diagonal):
    z, ids, noise, margin = case
    # class numbers are what the labels stand for, so the oracle sees them as they are ranked
    ranked = ids.unique(return_inverse=True)[1]
    fast = expected_loss("triplet", z, ids, noise, margin=margin, diagonal=diagonal)
    slow = oracle["triplet"](z, ranked, noise, margin, diagonal)
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)


@pytest.mark.parametrize("diagonal", DIAGONALS)
@pytest.mark.parametrize("seed", range(4))
def test_triplet_gradient_is_that_of_the_sum(oracle, seed, diagonal):
    g = torch.Generator().manual_seed(seed)
    noise = NoiseModel(3, 0.65)
    ids = torch.randint(0, 3, (8,), generator=g).unique(return_inverse=True)[1]
    fast, slow = (torch.randn(8, 3, generator=g, dtype=torch.float64) for _ in range(2))
    slow.copy_(fast)
    fast.requires_grad_()
    slow.requires_grad_()
    expected_loss("triplet", fast, ids, noise, margin=0.8, diagonal=diagonal).backward()
    oracle["triplet"](slow, ids, noise, 0.8, diagonal).backward()
    assert torch.allclose(fast.grad, slow.grad, atol=1e-11)


@given(case=cases(), diagonal=st.sampled_from(DIAGONALS))
def test_contrastive_and_margin_are_the_sums_over_pairs(oracle, case, diagonal):
    z, ids, noise, margin = case
    ranked = ids.unique(return_inverse=True)[1]
    beta = torch.linspace(-0.5, 1.5, len(z), dtype=torch.float64)
    fast = expected_loss("contrastive", z, ids, noise, margin=margin, diagonal=diagonal)
    slow = oracle["pairs"]("contrastive", z, ranked, noise, margin, diagonal)
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)
    fast = expected_loss("margin", z, ids, noise, beta=beta, margin=margin, diagonal=diagonal)
    slow = oracle["pairs"]("margin", z, ranked, noise, margin, diagonal, beta)
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)


@pytest.mark.parametrize("diagonal", DIAGONALS)
def test_margin_gives_points_and_boundaries_their_gradients(oracle, diagonal):
    g = torch.Generator().manual_seed(3)
    noise, ids = NoiseModel(3, 0.7), torch.tensor([0, 0, 1, 1, 2, 2])
    z = torch.randn(6, 2, generator=g, dtype=torch.float64)
    leaves = [z.clone().requires_grad_() for _ in range(2)]
    betas = [torch.full((6,), 0.9, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    expected_loss("margin", leaves[0], ids, noise, beta=betas[0], diagonal=diagonal).backward()
    oracle["pairs"]("margin", leaves[1], ids, noise, 1.0, diagonal, betas[1]).backward()
    assert torch.allclose(leaves[0].grad, leaves[1].grad, atol=1e-12)
    assert torch.allclose(betas[0].grad, betas[1].grad, atol=1e-12)


@pytest.mark.parametrize("diagonal", ["distinct", "true"])
@pytest.mark.parametrize("seed", range(2))
def test_losses_are_the_means_over_sampled_labels(oracle, draw_labels, seed, diagonal):
    g = torch.Generator().manual_seed(seed)
    n, noise = 24, NoiseModel(3, 0.65)
    ids, z = noise.labels(n), torch.randn(n, 2, generator=g, dtype=torch.float64)
    d, beta, off = oracle["distances"](z), 0.9, 1 - torch.eye(n, dtype=torch.float64)
    hinge = (d[:, :, None] - d[:, None, :] + 1).relu()
    contrastive, triplet, margin = [], [], []
    for labels in draw_labels(noise, ids, 1500, seed):
        same = (labels[:, None] == labels).double()
        positive = same * off if diagonal == "distinct" else same
        triplet.append(torch.einsum("ij,ik,ijk->", positive, 1 - same, hinge))
        contrastive.append((same * d + (1 - same) * (1 - d).relu()).sum())
        terms = positive * (d - beta + 1).relu() + (1 - same) * (beta - d + 1).relu()
        margin.append(terms.sum())
    for sampled, value in (
        (contrastive, expected_loss("contrastive", z, ids, noise, diagonal=diagonal)),
        (triplet, expected_loss("triplet", z, ids, noise, diagonal=diagonal)),
        (margin, expected_loss("margin", z, ids, noise, beta=beta, diagonal=diagonal)),
    ):
        draws = torch.stack(sampled)
        # four standard errors of the mean
        assert abs(float(draws.mean() - value)) < 4 * float(draws.std()) / 1500**0.5


def test_a_triplet_on_its_kink_is_seen_alike_from_both_sides(equidistant_classes):
    # distances whose difference is α only up to rounding: the counts must still agree
    noise = NoiseModel(2, 0.6)
    z = equidistant_classes(2, 4, inside=0.5, between=1.5)
    value = float(expected_loss("triplet", z, noise.labels(8), noise))
    assert value == pytest.approx(triplet_bound(noise, 8, diagonal="distinct"), abs=1e-10)


def test_float32_far_from_the_origin_keeps_its_digits():
    noise = NoiseModel(2, 0.7)
    near = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).mul(64).round() / 64
    far, labels = near + 4096.0, noise.labels(12)  # exact in float32
    assert float(expected_loss("triplet", far, labels, noise)) == pytest.approx(
        float(expected_loss("triplet", near, labels, noise)), rel=1e-12
    )


def test_collapsed_points_get_a_finite_gradient():
    noise = NoiseModel(2, 0.7)
    z = blobs(noise, 8)[0].requires_grad_()
    expected_loss("triplet", z, noise.labels(8), noise).backward()
    assert bool(torch.isfinite(z.grad).all())


def test_labels_may_be_words_and_one_number_serves_as_beta():
    noise = NoiseModel(2, 0.9)
    z = torch.tensor([[0.0], [1.0], [2.0]])
    by_word = expected_loss("margin", z, ["x", "y", "x"], noise, beta=0.5)
    assert float(by_word) == float(
        expected_loss("margin", z, [0, 1, 0], noise, beta=torch.full((3,), 0.5))
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margin": -1.0}, "margin: expected"),
        ({"diagonal": "all"}, "diagonal: expected one of 'independent', 'distinct', 'true'"),
        ({"beta": torch.zeros(2)}, "beta: expected one number, or 3"),
        ({"beta": None}, "beta is needed for the margin losses"),
        ({"objective": "triplet"}, "beta is needed for the margin losses, and for them only"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    given_args = {"objective": "margin", "beta": 1.0, "model": NoiseModel(2, 0.9)} | change
    with pytest.raises(InputError, match=message):
        expected_loss(embedding=[[0.0], [1.0], [2.0]], labels=[0, 1, 0], **given_args)
