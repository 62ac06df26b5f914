import numpy as np
import pytest
import torch

from uncollapse._base import arrays, check

PLAIN = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
WIDE = np.arange(12, dtype=np.float64).reshape(2, 6)
READ_ONLY = np.array(PLAIN)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (PLAIN, torch.float64),
        (tuple(map(tuple, PLAIN)), torch.float64),
        ([[0, 1, 2], [3, 4, 5]], torch.float64),
        (np.array(PLAIN, np.float32), torch.float32),
        (np.array(PLAIN, np.float16), torch.float32),
        (np.array(PLAIN, np.longdouble), torch.float64),
        (np.array(PLAIN, ">f4"), torch.float32),
        (np.array(PLAIN, ">f8"), torch.float64),
        (np.array(PLAIN, ">f2"), torch.float32),
        (np.array(PLAIN, ">i4"), torch.float64),
        (np.array(PLAIN, np.uint16), torch.float64),
        (np.array(PLAIN, np.uint64), torch.float64),
        (np.array(PLAIN)[::-1, ::-1][::-1, ::-1], torch.float64),
        (np.asfortranarray(PLAIN), torch.float64),
        (READ_ONLY, torch.float64),
        (torch.tensor(PLAIN, dtype=torch.bfloat16), torch.float32),
        (torch.tensor(PLAIN, dtype=torch.int8), torch.float64),
        ([np.array(row) for row in PLAIN], torch.float64),
        ([torch.tensor(row) for row in PLAIN], torch.float32),
    ],
)
def test_numbers_of_every_kind_become_points(given, dtype):
    found = arrays.points(given)
    assert found.dtype == dtype
    assert found.tolist() == PLAIN


def test_strides_of_any_kind_are_followed():
    assert arrays.points(WIDE[::-1]).tolist() == WIDE[::-1].tolist()
    assert arrays.points(WIDE[:, ::-2]).tolist() == WIDE[:, ::-2].tolist()
    assert arrays.points(WIDE.astype(">f8")[::-1, 1::2]).tolist() == WIDE[::-1, 1::2].tolist()
    assert arrays.points(np.broadcast_to(WIDE[0], (3, 6))).tolist() == [WIDE[0].tolist()] * 3


def test_booleans_are_numbers():
    assert arrays.points(np.array([[True, False]])).tolist() == [[1.0, 0.0]]


def test_a_tensor_keeps_its_graph_and_an_array_its_memory():
    leaf = torch.ones(2, 2, requires_grad=True)
    arrays.points(leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    array = np.zeros((2, 2))
    assert arrays.points(array).data_ptr() == array.ctypes.data


def test_points64_is_a_float64_array_off_the_graph():
    found = arrays.points64(torch.ones(2, 1, requires_grad=True))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 2), complex), "x: expected real numbers, got torch.complex128"),
        (torch.zeros(2, 2, dtype=torch.complex64), "x: expected real numbers"),
        ([["a", "b"]], "x: expected a 2-D array of numbers, got list"),
        ([[1.0], [1.0, 2.0]], "x: expected a 2-D array of numbers, got list"),
        ([[None, 1.0]], r"x: expected a 2-D array of numbers, got list \(object values\)"),
        ([[10**400]], "x: expected a 2-D array of numbers"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "x: expected a 2-D array of numbers"),
        ([1.0, 2.0], r"x: expected a 2-D array, one row a point, got shape \(2,\)"),
        (3.0, "x: expected a 2-D array, one row a point"),
        (np.zeros((0, 2)), r"x: expected at least 1 row and 1 column, got shape \(0, 2\)"),
        (np.zeros((2, 0)), "x: expected at least 1 row and 1 column"),
        ([[np.inf]], "x: expected finite numbers, got NaN or infinity in row 0"),
        ([torch.ones(2, requires_grad=True)], "x: expected a 2-D array of numbers"),
    ],
)
def test_what_is_no_point_set_is_refused_by_name(given, message):
    with pytest.raises(check.InputError, match=message):
        arrays.points(given)


def test_many_bad_rows_are_named_in_short():
    x = np.zeros((9, 1))
    x[2:] = np.nan
    with pytest.raises(ValueError, match="row 2 and 6 more"):
        arrays.points(x)


def test_large_finite_numbers_are_not_taken_for_infinity():
    assert arrays.points(torch.full((4, 4), 3e38)).shape == (4, 4)


def test_whether_numbers_are_finite_is_left_to_those_who_ask_for_it():
    assert arrays.points(torch.full((1, 1), np.inf), check_finite=False).isinf().all()


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
        ([0.5, 1.0], 2, "labels: expected integers or strings, got 0.5 in row 0"),
        ([0, 0], 2, "labels: expected at least 2 classes, got 1 class in 2 rows"),
    ],
)
def test_bad_labels_get_an_error_that_names_them(labels, n, message):
    with pytest.raises(check.InputError, match=message):
        arrays.class_ids(labels, n, min_classes=2)


def test_integers_that_no_type_of_numpy_holds_keep_their_digits():
    for labels in ([10**30, 10**30 + 1, 10**30], [2**63 + 1, -1, 2**63]):
        ids, classes = arrays.class_ids(labels, 3)
        assert [classes[i] for i in ids] == labels
        assert classes.tolist() == sorted(set(labels))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, 1, 3], ">i4"),
        np.array([9, 3, 1, 3])[:0:-1],
        np.array([3, 1, 3], np.uint64),
        np.array([3, 1, 3], np.float16),
        torch.tensor([3, 1, 3], dtype=torch.bfloat16),
        torch.tensor([3, 1, 3], dtype=torch.uint8),
        np.array([b"3", b"1", b"3"]),
        np.array(["3", "1", "3"], object),
    ],
)
def test_labels_of_every_kind_are_numbered(labels):
    assert arrays.class_ids(labels, 3)[0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, np.inf], "labels: expected integers or strings, got inf in row 1"),
        ([1.0, np.nan], "labels: expected integers or strings, got nan in row 1"),
        ([1.0, 2.5], "labels: expected integers or strings, got 2.5 in row 1"),
        ([1 + 0j, 2], "labels: expected integers or strings, got "),
        (torch.tensor([1j, 2]), "labels: expected integers or strings, got "),
        ([None, "a"], "labels: expected integers or strings, got None in row 0"),
        ([[1], [1, 2]], "labels: expected a 1-D array, one label per row, got a ragged list"),
    ],
)
def test_labels_that_are_no_names_of_classes_are_refused(labels, message):
    with pytest.raises(check.InputError, match=message):
        arrays.class_ids(labels, 2)
