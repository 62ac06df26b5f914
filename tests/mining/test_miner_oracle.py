"""Every positives × negatives pair against float64 loops written from the papers."""

import warnings
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uncollapse._base.extras import without_kernels
from uncollapse.distances.frame import device_path
from uncollapse.mining import FalseNegatives, Miner, NoTripletsWarning
from uncollapse.mining.miner import NEGATIVES, POSITIVES

EVERY = list(product(POSITIVES, NEGATIVES))


class Oracle:
    """What each strategy may pick: all of `many`, or one of `one`."""

    def __init__(self, x, y, *, candidates=None, false_negatives=None, **settings):
        x = np.asarray(x, np.float64)
        self.square = ((x[:, None] - x[None]) ** 2).sum(-1)
        unit = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
        self.unit_square = ((unit[:, None] - unit[None]) ** 2).sum(-1)
        self.y, self.false = np.asarray(y), false_negatives
        defaults = {"margin": 0.2, "epsilon": 0.1, "fallback": "nearest-outside", "keep": "all"}
        vars(self).update(defaults | settings)
        self.candidates = range(len(y)) if candidates is None else candidates

    def on_an_edge(self):
        """Whether a cosine meets a limit of multi-similarity but for rounding: either may be so."""
        cosine = 1 - self.unit_square / 2
        for a in range(len(self.y)):
            own, other = self.own(a), self.other(a)
            if own and other:
                low = np.abs(cosine[a, other] - (cosine[a, own].min() - self.epsilon))
                high = np.abs(cosine[a, own] - (cosine[a, other].max() + self.epsilon))
                if min(low.min(), high.min()) < 1e-12:
                    return True
        return False

    def own(self, a):
        return [j for j in self.candidates if j != a and self.y[j] == self.y[a]]

    def other(self, a):
        """Negatives of anchor a, without those its filter suspects."""
        other = self.of_other_classes(a)
        if self.false is None or not self.own(a):
            return other
        return [j for j in other if not self.suspect(a, j, other)]

    def of_other_classes(self, a):
        return [j for j in self.candidates if self.y[j] != self.y[a]]

    def suspect(self, a, j, other):
        d, rules = self.square[a], self.false
        if rules.absolute is not None and np.sqrt(d[j]) < rules.absolute:
            return True
        if rules.relative is not None and d[j] < rules.relative**2 * min(d[self.own(a)]):
            return True
        if rules.quantile is not None:
            nearest = sorted(other, key=lambda i: (d[i], i))
            if j in nearest[: int(rules.quantile * len(other) + 1e-9)]:
                return True
        if rules.agreement is not None:
            others = [i for i in self.candidates if i != j]
            near = sorted(others, key=lambda i: (self.square[j, i], i))[: rules.neighbours]
            votes = sum(self.y[i] == self.y[a] for i in near)
            return votes > rules.agreement * len(near)
        return False

    def near_a_limit(self):
        """Whether a distance meets a limit of the filter but for rounding."""
        for a in range(len(self.y)):
            other, d = self.of_other_classes(a), self.square[a]
            for limit in self.limits(a) if other else ():
                if np.any(np.abs(d[other] - limit) <= 1e-12 * limit):
                    return True
        return False

    def limits(self, a):
        if self.false.absolute is not None:
            yield self.false.absolute**2
        if self.false.relative is not None and self.own(a):
            yield self.false.relative**2 * min(self.square[a][self.own(a)])

    def positives(self, kind, a):
        """(`many` | `one`, rows)."""
        d, own, other = self.square[a], self.own(a), self.other(a)
        if kind in ("easy", "inside"):
            return "many", [min(own, key=lambda j: (d[j], j))]
        if kind == "hard":
            return "many", [min(own, key=lambda j: (-d[j], j))]
        if kind == "random":
            return "one", own
        if kind == "semihard":
            return "one", [j for j in own if d[j] > min(d[other])] or own
        if kind == "all":
            return "many", own
        s = 1 - self.unit_square[a] / 2
        return "many", [j for j in own if s[j] < max(s[other]) + self.epsilon]

    def negatives(self, kind, a, p):
        d, other = self.square[a], self.other(a)
        if kind == "hard":
            return "many", [min(other, key=lambda j: (d[j], j))]
        if kind == "easy":
            return "many", [min(other, key=lambda j: (-d[j], j))]
        if kind == "semihard":
            window = [j for j in other if d[j] > d[p]]
            if self.fallback == "skip":
                limit = np.sqrt(d[p]) + self.margin
                window = [j for j in window if np.sqrt(d[j]) < limit]
            if not window and self.fallback == "farthest":
                return "many", [min(other, key=lambda j: (-d[j], j))]
            return "many", [min(window, key=lambda j: (d[j], j))] if window else []
        if kind == "random":
            return "one", other
        if kind == "distance":
            return "one", [j for j in other if self.unit_square[a, j] < 1.4**2]
        if kind == "all":
            return "many", other
        s = 1 - self.unit_square[a] / 2
        return "many", [j for j in other if s[j] > min(s[self.own(a)]) - self.epsilon]

    def inside(self, a, n):
        d, own = self.square[a], self.own(a)
        nearer = [j for j in own if d[j] < d[n]]
        if nearer:
            return min(nearer, key=lambda j: (-d[j], j))
        return min(own, key=lambda j: (d[j], j))

    def kept(self, a, p, n):
        near, far = np.sqrt(self.square[a, p]), np.sqrt(self.square[a, n])
        return {
            "all": True,
            "hard": far <= near,
            "violating": far < near + self.margin,
            "semihard": near < far < near + self.margin,
        }[self.keep]

    def check(self, triplets, positives, negatives):
        got = sorted(zip(*(index.tolist() for index in triplets), strict=True))
        assert got == list(zip(*(index.tolist() for index in triplets), strict=True)) or (
            positives == "inside"
        ), "triplets come in ascending order"
        for a in range(len(self.y)):
            own_pairs = [(p, n) for b, p, n in got if b == a]
            if not self.own(a) or not self.other(a):
                assert own_pairs == []
                continue
            self.check_anchor(a, own_pairs, positives, negatives)

    def check_anchor(self, a, pairs, positives, negatives):
        how, allowed = self.positives(positives, a)
        if positives == "inside":
            how_n, allowed_n = self.negatives(negatives, a, allowed[0])
            chosen = [n for _, n in pairs]
            self.check_chosen(chosen, how_n, allowed_n)
            assert all(p == self.inside(a, n) for p, n in pairs)
            return
        if how == "one":
            chosen = sorted({p for p, _ in pairs})
            assert len(chosen) <= 1
            assert set(chosen) <= set(allowed)
            if not chosen:
                # The one drawn had no negative: some of the allowed ones have none.
                assert any(not self.negatives(negatives, a, p)[1] for p in allowed)
            allowed = chosen
        for p in allowed:
            how_n, allowed_n = self.negatives(negatives, a, p)
            if how_n == "many":
                allowed_n = [n for n in allowed_n if self.kept(a, p, n)]
            self.check_chosen([n for q, n in pairs if q == p], how_n, allowed_n)
        assert {p for p, _ in pairs} <= set(allowed)

    @staticmethod
    def check_chosen(chosen, how, allowed):
        if how == "many":
            assert sorted(chosen) == sorted(allowed)
        else:
            assert len(chosen) == (1 if allowed else 0)
            assert set(chosen) <= set(allowed)


def mine(x, y, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoTripletsWarning)
        return Miner(*args, generator=torch.Generator().manual_seed(7), **kwargs)(x, y)


def assert_as_oracle(batch, positives, negatives, **settings):
    """The triplets are those of the loop, unless rounding decides about one; gives them back."""
    oracle = Oracle(*batch, **settings)
    assume(oracle.false is None or not oracle.near_a_limit())
    assume("multi_similarity" not in (positives, negatives) or not oracle.on_an_edge())
    triplets = mine(*batch, positives, negatives, **settings)
    oracle.check(triplets, positives, negatives)
    return triplets


@st.composite
def batches(draw):
    """Labelled points of every kind that has misled a miner."""
    n, dim = draw(st.integers(2, 26)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    y = rng.integers(0, draw(st.integers(1, 8)), n)
    kind = draw(st.sampled_from(["plain", "grid", "far", "tight", "tiny", "copies", "mixed"]))
    x = rng.standard_normal((n, dim))
    if kind == "grid":
        x = np.round(x)
    elif kind == "far":
        x = x * 1e-6 + rng.standard_normal(dim) * 10 ** rng.uniform(0, 3)
    elif kind == "tight":
        x = 1e-5 * x + rng.standard_normal((9, dim))[y]
    elif kind == "tiny":
        x = x * 1e-30
    elif kind == "copies":
        x = x[rng.integers(0, max(1, n // 3), n)]
    elif kind == "mixed":
        x = 10.0 ** rng.integers(-7, 1, (n, 1)) * x + 100
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return torch.from_numpy(x).to(dtype), torch.from_numpy(y)


@pytest.mark.parametrize(("positives", "negatives"), EVERY)
@given(batch=batches())
def test_triplets_are_those_of_a_float64_loop(positives, negatives, batch):
    assert_as_oracle(batch, positives, negatives)


@pytest.mark.parametrize("elsewhere", [without_kernels, device_path])
@pytest.mark.parametrize("positives", POSITIVES)
@settings(max_examples=10)
@given(batch=batches(), negatives=st.sampled_from(NEGATIVES))
def test_elsewhere_the_triplets_are_those_of_the_loop_too(elsewhere, positives, negatives, batch):
    with elsewhere():
        triplets = assert_as_oracle(batch, positives, negatives)
    if positives in ("easy", "hard", "inside") and negatives in ("hard", "semihard", "easy"):
        assert all(map(torch.equal, triplets, mine(*batch, positives, negatives)))


@pytest.mark.parametrize("positives", ["easy", "hard", "all", "inside"])
@pytest.mark.parametrize("fallback", ["farthest", "skip"])
@given(batch=batches(), margin=st.sampled_from([0.0, 0.2, 1.0, 3.0]))
def test_semihard_fallbacks_are_those_of_a_float64_loop(positives, fallback, batch, margin):
    assert_as_oracle(batch, positives, "semihard", margin=margin, fallback=fallback)


@pytest.mark.parametrize("keep", ["violating", "hard", "semihard"])
@pytest.mark.parametrize("negatives", ["all", "hard", "easy"])
@given(batch=batches(), margin=st.sampled_from([0.0, 0.2, 1.0]))
def test_kept_triplets_are_those_of_a_float64_loop(keep, negatives, batch, margin):
    assert_as_oracle(batch, "all", negatives, margin=margin, keep=keep)


@given(batch=batches(), epsilon=st.sampled_from([0.0, 0.5]))
def test_epsilon_widens_multi_similarity_as_in_the_paper(batch, epsilon):
    assert_as_oracle(batch, "multi_similarity", "multi_similarity", epsilon=epsilon)


FILTERS = [
    FalseNegatives(absolute=1.0),
    FalseNegatives(relative=0.8),
    FalseNegatives(relative=1.5),
    FalseNegatives(quantile=0.3),
    FalseNegatives(agreement=0.5, neighbours=3),
    FalseNegatives(agreement=0.6, neighbours=40),
    FalseNegatives(absolute=0.3, relative=0.9, quantile=0.1, agreement=0.5, neighbours=1),
]
FILTERED = pytest.mark.parametrize("rules", FILTERS, ids=repr)


@FILTERED
@pytest.mark.parametrize("positives", POSITIVES)
@settings(max_examples=10)
@given(batch=batches(), negatives=st.sampled_from(NEGATIVES))
def test_a_filter_of_false_negatives_is_that_of_a_float64_loop(positives, negatives, rules, batch):
    assert_as_oracle(batch, positives, negatives, false_negatives=rules)


@FILTERED
@pytest.mark.parametrize("elsewhere", [without_kernels, device_path])
@given(batch=batches())
def test_elsewhere_the_filter_is_the_same(rules, elsewhere, batch):
    usual = mine(*batch, "easy", "hard", false_negatives=rules)
    with elsewhere():
        assert all(map(torch.equal, usual, mine(*batch, "easy", "hard", false_negatives=rules)))


@FILTERED
@given(batch=batches())
def test_with_references_the_filter_is_that_of_a_float64_loop(rules, batch):
    x, y = batch
    half = len(x) // 2
    oracle = Oracle(x, y, false_negatives=rules, candidates=range(half, len(x)))
    assume(not oracle.near_a_limit())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoTripletsWarning)
        mined = Miner("all", "all", false_negatives=rules)(x[:half], y[:half], x[half:], y[half:])
    pairs = set(zip(mined.anchor.tolist(), (mined.negative + half).tolist(), strict=True))
    assert pairs == {(a, n) for a in range(half) if oracle.own(a) for n in oracle.other(a)}
