import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse._base.arrays import ClassLayout


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_a_layout_is_what_the_labels_say(labels):
    layout = ClassLayout.of(labels, len(labels))
    assert len(layout.ids) == len(labels)
    assert [layout.classes[c] for c in layout.ids] == labels
    assert layout.row_counts.tolist() == [labels.count(label) for label in labels]
    for c, label in enumerate(layout.classes):
        rows = [row for row, other in enumerate(labels) if other == label]
        assert layout.members(c).tolist() == rows
        assert layout.counts[c] == len(rows)


def test_labels_of_any_size_keep_their_classes_and_their_order():
    layout = ClassLayout.of([10**30, -1, 10**30 + 1, 10**30], 4)
    assert layout.ids.tolist() == [1, 0, 2, 1]
    assert layout.classes.tolist() == [-1, 10**30, 10**30 + 1]
    assert layout.order.dtype == np.int64


def test_too_few_classes_are_refused_under_the_argument_s_name():
    with refused("fine_labels"):
        ClassLayout.of([3, 3], 2, "fine_labels", min_classes=2)
