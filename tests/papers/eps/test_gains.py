"""What easy positives add, with its interval: from hits kept beside runs."""

from types import SimpleNamespace

import pytest

from uncollapse._base.files import write_json
from uncollapse.papers.eps.scores import Column, paired_claim, paired_gain

RECALL = Column("R@1", "test", k=1)


@pytest.fixture
def kept(tmp_path):
    """Runs whose hits by class are known: `kept(name, hits)`, of classes of 10 and 30."""

    def write(name, *hits):
        folder = tmp_path / name
        folder.mkdir()
        write_json(folder / "hits.json", {RECALL.key: [hits, [10, 30]]})
        return SimpleNamespace(path=folder)

    return write


def test_a_gain_is_the_mean_over_seeds_of_all_rows_in_points(kept):
    easy, plain = [kept("e0", 9, 24), kept("e1", 8, 25)], [kept("p0", 5, 20), kept("p1", 6, 21)]
    gain = paired_gain([(easy, plain)], RECALL)
    assert gain.value == pytest.approx(100 * ((8 / 40) + (6 / 40)) / 2)
    assert 0.0 < gain.low <= gain.value <= gain.high
    assert paired_claim("X", "+2.0", gain).holds is True
    assert paired_claim("X", "+2.0", paired_gain([(plain, easy)], RECALL)).holds is False


def test_a_gain_whose_interval_holds_zero_is_not_judged(kept):
    easy, plain = [kept("e0", 9, 20)], [kept("p0", 5, 24)]  # one class gains what the other loses
    claim = paired_claim("X", "", paired_gain([(easy, plain)], RECALL))
    assert claim.holds is None
    assert "which holds 0" in claim.ours


def test_pairs_together_are_their_mean(kept):
    first = [kept("e0", 9, 24)], [kept("p0", 5, 20)]
    second = [kept("e1", 5, 20)], [kept("p1", 5, 20)]
    alone, both = (paired_gain(pairs, RECALL).value for pairs in ([first], [first, second]))
    assert both == pytest.approx(alone / 2)
