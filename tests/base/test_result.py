import sys

import numpy as np
import pytest

from uncollapse._base.extras import MissingExtraError
from uncollapse.metrics import clustering, compare_seeds, modes_per_class, over_seeds, retrieval
from uncollapse.metrics.ranking import parse_bytes

X = [[0.0], [1.0], [5.0], [6.0]]
LABELS = ["a", "a", "b", "b"]
RESULTS = {
    "retrieval": lambda: retrieval(X, LABELS),
    "clustering": lambda: clustering(X, LABELS),
    "modes": lambda: modes_per_class(np.zeros((20, 2)), ["a"] * 10 + ["b"] * 10),
    "seeds": lambda: over_seeds([1.0, 2.0]),
    "comparison": lambda: compare_seeds([1.0, 2.0], [1.0, 3.0]),
}


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_becomes_a_dict_of_plain_values_and_a_frame_of_one_row(kind):
    result = RESULTS[kind]()
    numbers = result.to_dict()
    assert all(isinstance(value, int | float | str) for value in numbers.values())
    frame = result.to_frame()
    assert frame.to_dict("records") == [numbers]
    assert str(result)


def test_a_frame_without_pandas_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"uncollapse\[frames\]"):
        retrieval(X, LABELS).to_frame()


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1KB", 1000), ("1.5 MiB", 3 << 19), ("2gb", 2 * 10**9), ("77", 77), (12, 12)],
)
def test_memory_may_be_written_as_people_do(text, bytes_):
    assert parse_bytes(text) == bytes_
