import numpy as np
import pytest
import torch

from uncollapse._base import arrays, check
from uncollapse._base.classes import ClassLayout


def test_labels_of_any_kind_become_class_numbers_without_a_float_cast():
    big = [2**62 + 1, 2**62, 2**62 + 1]
    ids, classes = arrays.class_ids(big, 3)
    assert ids.tolist() == [1, 0, 1]
    assert classes.tolist() == [2**62, 2**62 + 1]
    assert arrays.class_ids(np.array(["x", "y"]), 2)[0].tolist() == [0, 1]
    assert arrays.class_ids(torch.tensor([True, False]), 2)[0].tolist() == [1, 0]
    assert arrays.class_ids(torch.tensor([2.0, 1.0]), 2)[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "n", "message"),
    [
        ([0, 1], 3, "labels: expected 3, one for each row, got 2 labels"),
        ([[0], [1]], 2, r"labels: expected a 1-D array.*got shape \(2, 1\)"),
        ([0.5, 1.0], 2, "labels: expected integers or strings, got float64 values such as 0.5"),
        ([0, 0], 2, "labels: expected at least 2 classes, got 1 class in 2 rows"),
    ],
)
def test_bad_labels_get_an_error_that_names_them(labels, n, message):
    with pytest.raises(check.InputError, match=message):
        arrays.class_ids(labels, n, min_classes=2)


@pytest.mark.parametrize("value", [0, 1.5, True, "3"])
def test_check_int_refuses_what_is_not_a_large_enough_whole_number(value):
    with pytest.raises(ValueError, match="k: expected a whole number of at least 1"):
        check.check_int("k", value)


@pytest.mark.parametrize("value", [-1, float("nan"), "0.2", None, float("inf")])
def test_check_number_refuses_what_is_outside(value):
    with pytest.raises(ValueError, match=r"margin: expected a finite number in \[0, inf\]"):
        check.check_number("margin", value, 0.0)


def test_check_choice_lists_the_words_allowed():
    with pytest.raises(ValueError, match="norm: expected one of 'sup', 'l2', got 'l3'"):
        check.check_choice("norm", "l3", ("sup", "l2"))


def test_many_bad_rows_are_named_in_short():
    x = np.zeros((9, 1))
    x[2:] = np.nan
    with pytest.raises(ValueError, match="rows 2, 3, 4, 5, 6 and 2 more"):
        arrays.points(x)


def test_large_finite_numbers_are_not_taken_for_infinity():
    assert arrays.points(torch.full((4, 4), 3e38)).shape == (4, 4)


def test_layout_lists_positives_and_usable_anchors():
    layout = ClassLayout.of(["b", "a", "b", "c", "b"], 5)
    for row, (others, real) in enumerate(
        zip(layout.positives.tolist(), layout.is_positive.tolist(), strict=True)
    ):
        truth = [j for j in range(5) if j != row and layout.ids[j] == layout.ids[row]]
        assert [o for o, r in zip(others, real, strict=True) if r] == truth
    assert layout.usable.tolist() == [True, False, True, False, True]
    assert layout.members(1).tolist() == [0, 2, 4]


def test_layout_of_one_class_or_of_singletons_has_no_usable_anchor():
    assert not ClassLayout.of([1, 1, 1], 3).usable.any()
    assert not ClassLayout.of([1, 2, 3], 3).usable.any()
    assert not ClassLayout.of([1, 2, 3], 3).is_positive.any()
