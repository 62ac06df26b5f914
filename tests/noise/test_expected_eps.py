import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncollapse.noise import NoiseModel, expected_loss
from uncollapse.noise import expected as easy


@given(
    t=st.integers(2, 3),
    ids=st.lists(st.integers(0, 2), min_size=1, max_size=5),
    p=st.sampled_from([0.0, 0.4, 0.8, 1.0]),
    seed=st.integers(0, 10_000),
    coarse=st.booleans(),
    margin=st.sampled_from([0.0, 0.7]),
)
def test_easy_losses_are_the_sums_over_all_labellings(oracle, t, ids, p, seed, coarse, margin):
    noise = NoiseModel(t, p)
    labels = torch.tensor([i % t for i in ids]).unique(return_inverse=True)[1]
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(len(labels), 2, generator=g, dtype=torch.float64)
    z = z.round() if coarse else z
    beta = torch.full((len(labels),), 0.6, dtype=torch.float64)
    fast = expected_loss("eps-triplet", z, labels, noise, margin=margin)
    slow = oracle["easy"]("triplet", z, labels, noise, margin)
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)
    fast = expected_loss("eps-margin", z, labels, noise, beta=0.6, margin=margin)
    slow = oracle["easy"]("margin", z, labels, noise, margin, beta)
    assert float(fast) == pytest.approx(float(slow), abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_easy_gradients_are_those_of_the_sums(oracle, seed):
    g = torch.Generator().manual_seed(seed)
    noise, ids = NoiseModel(2, 0.7), torch.tensor([0, 0, 1, 1, 0])
    z = torch.randn(5, 2, generator=g, dtype=torch.float64)
    for kind in ("triplet", "margin"):
        fast, slow = z.clone().requires_grad_(), z.clone().requires_grad_()
        betas = [torch.full((5,), 0.6, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        if kind == "triplet":
            expected_loss("eps-triplet", fast, ids, noise).backward()
        else:
            expected_loss("eps-margin", fast, ids, noise, beta=betas[0]).backward()
        oracle["easy"](kind, slow, ids, noise, 1.0, betas[1]).backward()
        assert torch.allclose(fast.grad, slow.grad, atol=1e-12)
        if kind == "margin":
            assert torch.allclose(betas[0].grad, betas[1].grad, atol=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_easy_losses_are_the_means_over_sampled_labels(oracle, draw_labels, seed):
    g = torch.Generator().manual_seed(seed)
    n, noise, beta = 40, NoiseModel(4, 0.7), 0.9
    ids, z = noise.labels(n), torch.randn(n, 2, generator=g, dtype=torch.float64)
    d = oracle["distances"](z)
    self_pair = torch.eye(n, dtype=torch.bool)
    triplet, margin = [], []
    for labels in draw_labels(noise, ids, 2000, seed):
        same = labels[:, None] == labels
        nearest = d.masked_fill(~same | self_pair, torch.inf).min(1).values
        has = nearest.isfinite()
        hinge = (nearest[has, None] - d[has] + 1).relu()
        triplet.append((hinge * ~same[has]).sum())
        push = ((beta - d + 1).relu() * ~same).sum()
        margin.append((nearest[has] - beta + 1).relu().sum() + push)
    for sampled, value in (
        (triplet, expected_loss("eps-triplet", z, ids, noise)),
        (margin, expected_loss("eps-margin", z, ids, noise, beta=beta)),
    ):
        draws = torch.stack(sampled)
        # four standard errors of the mean
        assert abs(float(draws.mean() - value)) < 4 * float(draws.std()) / 2000**0.5


def test_the_order_of_equally_far_samples_does_not_matter():
    noise = NoiseModel(3, 0.7)
    corners = torch.tensor(
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.0, 0.0]]
    )
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    order = torch.tensor([5, 3, 1, 0, 2, 4])
    assert float(expected_loss("eps-triplet", corners, labels, noise)) == pytest.approx(
        float(expected_loss("eps-triplet", corners[order], labels[order], noise)), abs=1e-12
    )


def test_an_anchor_that_is_its_own_positive_only_pushes(oracle):
    noise = NoiseModel(3, 0.7)
    z = torch.randn(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    d, ids = oracle["distances"](z), noise.labels(9)
    equal = noise.probabilities[ids] @ noise.probabilities[ids].T
    off = 1 - torch.eye(9, dtype=torch.float64)
    push = ((1 - equal) * (1 - d).relu() * off).sum()
    assert float(expected_loss("eps-triplet", z, ids, noise, diagonal="true")) == pytest.approx(
        float(push)
    )
    push = ((1 - equal) * (0.5 - d + 1).relu() * off).sum() + 9 * 0.5
    value = expected_loss("eps-margin", z, ids, noise, beta=0.5, diagonal="true")
    assert float(value) == pytest.approx(float(push))


@pytest.mark.parametrize("kind", ["triplet", "margin"])
def test_independent_gives_each_anchor_a_twin_with_a_label_of_its_own(kind):
    # for each anchor, the row of a set in which it stands a second time
    noise = NoiseModel(2, 0.8)
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ids = noise.labels(4)
    total = 0.0
    for i in range(4):
        twin = torch.cat([z[i : i + 1], z])
        distances = torch.linalg.vector_norm(twin[:, None] - twin, dim=-1)
        labels = torch.cat([ids[i : i + 1], ids])
        first = easy.first_positive(labels[0], labels[1:][distances[0, 1:].argsort()], noise)
        d = distances[0, 1:].sort().values
        others = 1 - noise.probabilities[labels[1:][distances[0, 1:].argsort()]]
        for j in range(4):
            if kind == "margin":
                total += float(first[j].sum() * (d[j] - 0.6 + 1).relu())
                equal = noise.probabilities[ids[i]] @ noise.probabilities[ids[j]]
                total += float((1 - equal) * (0.6 - distances[0, 1 + j] + 1).relu())
                continue
            for k in range(4):
                weight = first[j] * others[j + 1 :][k - j - 1] if k > j else first[j]
                weight = weight.sum() if k != j else torch.tensor(0.0)
                total += float(weight * (d[j] - d[k] + 1).relu())
    if kind == "margin":
        value = expected_loss("eps-margin", z, ids, noise, beta=0.6, diagonal="independent")
    else:
        value = expected_loss("eps-triplet", z, ids, noise, diagonal="independent")
    assert float(value) == pytest.approx(total, abs=1e-10)


def test_blocks_of_rows_change_nothing(monkeypatch):
    noise = NoiseModel(3, 0.8)
    z = torch.randn(12, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole = expected_loss("eps-triplet", z, noise.labels(12), noise)
    monkeypatch.setattr(easy, "_ELEMENTS", 100)
    assert float(expected_loss("eps-triplet", z, noise.labels(12), noise)) == pytest.approx(
        float(whole)
    )


def test_clean_easy_loss_of_one_sample_a_class_is_zero():
    noise = NoiseModel(3, 1.0)
    z = torch.tensor([[0.0], [0.1], [0.2]])
    assert float(expected_loss("eps-triplet", z, [0, 1, 2], noise)) == 0.0
    assert float(expected_loss("eps-triplet", z[:1], [0], noise)) == 0.0
