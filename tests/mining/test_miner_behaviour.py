"""What a miner promises beyond the choice: randomness, pools, warnings, dtypes, devices, sizes."""

import contextlib
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse._base.extras import compiled, without_kernels
from uncollapse.geometry import hard_mined_loss
from uncollapse.mining import Miner, NoTripletsWarning, hardest_triplet
from uncollapse.mining.miner import NEGATIVES, POSITIVES

SEEDS = pytest.mark.parametrize(  # one is enough for a change, more for the night
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.night) for seed in (1, 2))]
)
EVERY = list(itertools.product(POSITIVES, NEGATIVES))


def points(n=60, dim=8, classes=6, seed=0):
    return torch.randn(n, dim, generator=generator(seed)), torch.arange(n) % classes


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def frequencies(miner, x, y, times, column):
    """How often each row is chosen for each anchor, as a share of the anchor's triplets."""
    counts = np.zeros((len(x), len(x)))
    for _ in range(times):
        triplets = miner(x, y)
        np.add.at(counts, (triplets.anchor.numpy(), triplets[column].numpy()), 1)
    return counts / np.maximum(counts.sum(1, keepdims=True), 1)


# ---- randomness


def test_the_same_generator_gives_the_same_triplets():
    x, y = points()
    for words, pool in itertools.product(EVERY, (None, 12)):
        first, second = (Miner(*words, pool=pool, generator=generator(3))(x, y) for _ in range(2))
        assert all(map(torch.equal, first, second)), words


@pytest.mark.slow
def test_threads_do_not_change_the_triplets():
    x, y = points(300, 32, 30)
    threads = torch.get_num_threads()
    try:
        for negatives in NEGATIVES[:-1]:
            chosen = []
            for count in (1, 2):
                torch.set_num_threads(count)
                chosen.append(Miner("easy", negatives, pool=60, generator=generator())(x, y))
            assert all(map(torch.equal, *chosen))
    finally:
        torch.set_num_threads(threads)


def test_without_a_generator_torch_is_the_source():
    x, y = points()
    chosen = []
    for _ in range(2):
        torch.manual_seed(5)
        chosen.append(Miner("random", "random")(x, y))
    assert all(map(torch.equal, *chosen))


@pytest.mark.slow
@SEEDS
def test_random_choices_are_uniform(seed):
    x, y = points(12, 3, 3, seed)
    miner = Miner("random", "random", generator=generator(seed))
    same = (y[:, None] == y).numpy()
    expected = same & ~np.eye(12, dtype=bool)
    # 1000 draws a row: six standard deviations of a share of 1/3 are 0.09, of 1/8 0.063.
    assert np.abs(frequencies(miner, x, y, 1000, 1) - expected / 3).max() < 0.09
    assert np.abs(frequencies(miner, x, y, 1000, 2) - ~same / 8).max() < 0.063


@pytest.mark.slow
@SEEDS
def test_semihard_positives_are_uniform_over_those_beyond_the_nearest_negative(seed):
    x, y = points(16, 2, 2, seed)
    d = torch.cdist(x, x)
    same = y[:, None] == y
    beyond = same & (d > d.masked_fill(same, np.inf).amin(1, keepdim=True))
    beyond.fill_diagonal_(False)
    allowed = torch.where(beyond.any(1, keepdim=True), beyond, same & ~torch.eye(16, dtype=bool))
    expected = (allowed / allowed.sum(1, keepdim=True)).numpy()
    miner = Miner("semihard", "hard", generator=generator(seed))
    assert np.abs(frequencies(miner, x, y, 800, 1) - expected).max() < 0.11


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 16])
def test_distance_weights_are_those_of_the_paper(dim):
    x, y = points(20, dim, 4, dim)
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    d = torch.cdist(unit, unit).clamp(0.5, 2 - 1e-9)
    log_q = (dim - 2) * d.log() + (dim - 3) / 2 * (1 - d**2 / 4).log()
    allowed = (y[:, None] != y) & (d < 1.4)
    weights = torch.where(allowed, -log_q, torch.tensor(-np.inf, dtype=torch.float64))
    expected = torch.softmax(weights, 1).nan_to_num(0.0).numpy()
    got = frequencies(Miner("all", "distance", generator=generator()), x, y, 400, 2)
    assert np.abs(got - expected).max() < 0.08  # 1600 draws a row


@pytest.mark.parametrize("dim", [2, 512, 2048])
def test_one_close_pair_does_not_silence_the_other_anchors(dim):
    """A maximum over the whole batch underflows every other row to zero in high dimension."""
    x, y = points(40, dim, 4)
    x = x + 0.8 * torch.randn(dim, generator=generator(9))
    x[0] = x[1] * (1 + 1e-6)
    triplets = Miner("easy", "distance", generator=generator())(x, y)
    d = torch.cdist(*[torch.nn.functional.normalize(x.double(), dim=1)] * 2)
    reachable = ((y[:, None] != y) & (d < 1.4)).any(1)
    assert triplets.anchor.tolist() == reachable.nonzero().flatten().tolist()
    assert len(triplets.anchor) > 30


# ---- pools


def test_a_pool_limits_what_is_mined():
    x, y = points()
    for words in EVERY:
        triplets = Miner(*words, pool=9, generator=generator())(x, y)
        assert (y[triplets.anchor] == y[triplets.positive]).all()
        assert (y[triplets.anchor] != y[triplets.negative]).all()
        assert (triplets.anchor != triplets.positive).all()
        for a in range(len(x)):
            chosen = triplets.anchor == a
            used = torch.cat([triplets.positive[chosen], triplets.negative[chosen]])
            assert len(used.unique()) <= 9, words


@pytest.mark.parametrize("pool", [2, 5, 20, 57, 58])
def test_a_pool_keeps_the_batch_s_composition(pool):
    x = torch.randn(59, 2)
    y = torch.tensor([0] * 2 + [1] * 7 + [2] * 20 + [3] * 30)
    miner = Miner("all", "all", pool=pool, generator=generator())
    counts = np.zeros((59, 2))
    for _ in range(40):
        triplets = miner(x, y)
        for column in (1, 2):
            pairs = set(zip(triplets.anchor.tolist(), triplets[column].tolist(), strict=True))
            np.add.at(counts, ([a for a, _ in pairs], column - 1), 1)
    counts /= 40
    assert np.allclose(counts.sum(1), pool)
    own = np.bincount(y)[y] - 1
    expected = np.clip(pool * own / 58, np.maximum(1, pool - (58 - own)), np.minimum(own, pool - 1))
    # The number is rounded up or down at random: a mean of 40 is within 0.4 (5 deviations).
    assert np.abs(counts[:, 0] - expected).max() < 0.4


@pytest.mark.slow
@SEEDS
def test_a_pool_is_uniform(seed):
    x, y = points(12, 2, 3, seed)
    got = frequencies(Miner("all", "all", pool=5, generator=generator(seed)), x, y, 600, 2)
    assert np.abs(got - (y[:, None] != y).numpy() / 8).max() < 0.06


def test_a_pool_of_everything_is_no_pool():
    x, y = points(20)
    whole, pooled = Miner("easy", "hard")(x, y), Miner("easy", "hard", pool=19)(x, y)
    assert all(map(torch.equal, whole, pooled))


# ---- nothing to mine


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([3] * 64, "all 64 samples have one label"),
        (list(range(64)), "no label occurs twice among the 64 samples"),
        ([0], "the batch has one sample"),
    ],
)
def test_a_batch_without_triplets_warns_once_and_says_why(labels, reason, recwarn):
    x = torch.randn(len(labels), 2, requires_grad=True)
    miner = Miner()
    for _ in range(3):
        triplets = miner(x, torch.tensor(labels))
        assert [index.dtype for index in triplets] == [torch.int64] * 3
        assert [len(index) for index in triplets] == [0, 0, 0]
    assert [str(w.message) for w in recwarn] == [f"no triplets: {reason}"]


@pytest.mark.parametrize(
    ("settings_", "reason"),
    [
        ({"negatives": "semihard"}, "semi-hard window empty for all anchors .*d_ap < d_an.$"),
        ({"negatives": "semihard", "fallback": "skip"}, "d_ap < d_an < d_ap . 0.2"),
        ({"negatives": "distance"}, "beyond the cutoff 1.4"),
        ({"negatives": "hard", "keep": "semihard"}, "no triplet is 'semihard'"),
    ],
)
def test_an_empty_choice_says_which(settings_, reason):
    # Positives across the circle, negatives nearer: on the line through 0 nothing is semi-hard.
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    with pytest.warns(NoTripletsWarning, match=reason):
        Miner("easy", **settings_)(x, [0, 0, 1, 1])


def test_separated_classes_leave_multi_similarity_nothing():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0], [0.01, 1.0]])
    with pytest.warns(NoTripletsWarning, match="epsilon 0.1"):
        Miner("all", "multi_similarity")(x, [0, 0, 1, 1])


# ---- what goes in


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_float_dtype_is_mined_as_its_float64_values(dtype):
    x, y = points()
    x = x.T.contiguous().T.to(dtype).requires_grad_()  # a view, mined as its values
    triplets = Miner("easy", "semihard")(x, y)
    wide = Miner("easy", "semihard")(x.detach().double(), y)
    assert all(map(torch.equal, triplets, wide))
    assert not any(index.requires_grad for index in triplets)


def test_neither_autocast_nor_a_reduced_precision_reach_the_distances():
    x, y = points(300, 32, 30)
    expected = [Miner(*words)(x, y) for words in (("hard", "hard"), ("easy", "semihard"))]
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert all(map(torch.equal, Miner("hard", "hard")(x, y), expected[0]))
        assert all(map(torch.equal, Miner("easy", "semihard")(x, y), expected[1]))
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("positives", "nearest"),
        ("negatives", "inside"),
        ("pool", 1),
        ("margin", -0.1),
        ("epsilon", float("nan")),
        ("fallback", "none"),
        ("keep", "easy"),
        ("cutoffs", (1.4, 0.5)),
        ("cutoffs", 1.4),
        ("generator", 3),
    ],
)
def test_impossible_settings_are_named(name, value):
    with refused(name):
        Miner(**{name: value})


def test_impossible_batches_are_named():
    with refused("embeddings"):
        Miner()(torch.tensor([[0.0], [float("nan")]]), [0, 1])
    with refused("labels"):
        Miner()(torch.zeros(2, 1), [0, 1, 1])


# ---- larger batches, where several blocks and every stage of the search take part


def brute(x, y):
    """Nearest and farthest of both kinds, and the nearest negative beyond the nearest positive."""
    x = x.double().numpy()
    d = np.stack([((row - x) ** 2).sum(1) for row in x])
    same = y.numpy()[:, None] == y.numpy()
    own = same & ~np.eye(len(x), dtype=bool)
    easy = np.where(own, d, np.inf).argmin(1)
    hard = np.where(own, d, -np.inf).argmax(1)
    negative = np.where(~same, d, np.inf).argmin(1)
    farthest = np.where(~same, d, -np.inf).argmax(1)
    beyond = np.where(~same & (d > d[np.arange(len(x)), easy][:, None]), d, np.inf)
    return easy, hard, negative, farthest, beyond.argmin(1), np.isfinite(beyond.min(1))


@pytest.mark.parametrize("classes", [2, 90])
@pytest.mark.parametrize("kind", ["plain", "collapsed", "tight", "quantised", "equal"])
@pytest.mark.parametrize("dim", [3, 128])
@pytest.mark.parametrize("with_numba", [True, False])
def test_large_batches_near_collapse_are_chosen_as_in_float64(classes, kind, dim, with_numba):
    x, y = points(540, dim, classes, seed=dim)
    if kind == "collapsed":
        x = 1e-6 * x + torch.randn(dim, generator=generator(1))
    elif kind == "tight":
        x = 1e-5 * x + torch.randn(classes, dim, generator=generator(1))[y]
    elif kind == "quantised":
        x = (0.01 * x + 1).bfloat16().float()
    elif kind == "equal":
        x = torch.full_like(x, 0.1)
    easy, hard, negative, farthest, beyond, found = brute(x, y)
    if with_numba and compiled.kernels is None:
        pytest.skip("needs numba")
    with contextlib.nullcontext() if with_numba else without_kernels():
        for name, expected in (("easy", easy), ("hard", hard)):
            triplets = Miner(name, "hard")(x, y)
            assert np.array_equal(triplets.positive.numpy(), expected)
            assert np.array_equal(triplets.negative.numpy(), negative)
        assert np.array_equal(Miner("easy", "easy")(x, y).negative.numpy(), farthest)
        if found.any():
            triplets = Miner("easy", "semihard")(x, y)
            assert np.array_equal(triplets.anchor.numpy(), np.flatnonzero(found))
            assert np.array_equal(triplets.negative.numpy(), beyond[found])


@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-6, 1.0]))
def test_the_hardest_triplet_has_the_hard_mined_loss(seed, scale):
    g = generator(seed)
    x = scale * torch.randn(12, 3, generator=g).double() + 5
    y = torch.randint(0, 4, (12,), generator=g)
    if len(y.unique()) < 2:
        return
    a, p, n = hardest_triplet(x.requires_grad_(), y)
    assert len(a) == 1
    x = x.detach()
    worst = float((x[a] - x[p]).norm() - (x[a] - x[n]).norm() + 1)
    assert worst == pytest.approx(hard_mined_loss(x, y, alpha=1.0), abs=1e-12)
    same = (y[:, None] == y).double()
    d = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    gap = (d * same).amax(1) - (d + 1e9 * same).amin(1)
    assert worst == pytest.approx(float(gap.max()) + 1, abs=1e-12)
