import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.errors import refused, refuses
from uncollapse._base import arrays, check
from uncollapse._base.arrays import ClassLayout, rows_of_texts, texts_of_rows

PLAIN = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
WIDE = np.arange(12, dtype=np.float64).reshape(2, 6)
READ_ONLY = np.array(PLAIN)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (PLAIN, torch.float64),
        ([[0, 1, 2], [3, 4, 5]], torch.float64),
        *((np.array(PLAIN, kind), torch.float32) for kind in ("f4", "f2", ">f4", ">f2")),
        *((np.array(PLAIN, kind), torch.float64) for kind in ("g", ">f8", ">i4", "u2", "u8")),
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
    rows = arrays.points(given)
    assert (rows.dtype, rows.tolist()) == (dtype, PLAIN)


def test_strides_of_any_kind_are_followed_and_booleans_are_numbers():
    for view in (WIDE[::-1], WIDE[:, ::-2], WIDE.astype(">f8")[::-1, 1::2], WIDE > 3):
        assert arrays.points(view).tolist() == view.tolist()
    assert arrays.points(np.broadcast_to(WIDE[0], (3, 6))).tolist() == [WIDE[0].tolist()] * 3


def test_a_tensor_keeps_its_graph_and_an_array_its_memory():
    leaf = torch.ones(2, 2, requires_grad=True)
    arrays.points(leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    array = np.zeros((2, 2))
    assert arrays.points(array).data_ptr() == array.ctypes.data
    assert arrays.points64(leaf).dtype == np.float64


def test_what_is_no_point_set_is_refused_by_name():
    no_numbers = [[["a", "b"]], [[1.0], [1.0, 2.0]], [[None, 1.0]], [[10**400]], [[1 + 2j]]]
    no_numbers += [torch.zeros(2, 2, dtype=torch.complex64), [torch.ones(2, requires_grad=True)]]
    no_numbers += [np.array([["2020-01-01"]], "datetime64[D]"), [[np.inf]], [[np.nan]]]
    no_rows = [[1.0, 2.0], 3.0, np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((2, 2, 2))]
    refuses(arrays.points, {}, x=no_numbers + no_rows)
    refuses(arrays.points, {"min_rows": 2}, x=[[[1.0]]])
    with pytest.raises(check.InputError) as raised:
        arrays.points([[0.0], [0.0], [np.nan], [0.0], [np.inf]])
    assert raised.value.given == "NaN or infinity in row 2 and 1 more"


def test_large_finite_numbers_are_not_taken_for_infinity():
    assert arrays.points(torch.full((4, 4), 3e38)).shape == (4, 4)
    assert arrays.points(torch.full((1, 1), np.inf), check_finite=False).isinf().all()


@pytest.mark.parametrize("labels", [[10**30, 10**30 + 1, 10**30], [2**63 + 1, -1, 2**63]])
def test_integers_that_no_type_of_numpy_holds_keep_their_digits(labels):
    ids, classes = arrays.class_ids(labels, 3)
    assert [classes[i] for i in ids] == labels
    assert classes.tolist() == sorted(set(labels))


@pytest.mark.parametrize(
    "labels",
    [
        [2**62 + 1, 2**62, 2**62 + 1],  # no float tells them apart
        np.array([3, 1, 3], ">i4"),
        np.array([9, 3, 1, 3])[:0:-1],
        np.array([3, 1, 3], np.uint64),
        np.array([3, 1, 3], np.float16),
        torch.tensor([3, 1, 3], dtype=torch.bfloat16),
        torch.tensor([3, 1, 3], dtype=torch.uint8),
        torch.tensor([True, False, True]),
        np.array([b"3", b"1", b"3"]),
        np.array(["3", "1", "3"], object),
    ],
)
def test_labels_of_every_kind_are_numbered(labels):
    assert arrays.class_ids(labels, 3)[0].tolist() == [1, 0, 1]


def test_what_names_no_classes_is_refused():
    fractions = [[0.5, 1.0], [1.0, np.inf], [1.0, np.nan]]
    others = [[1 + 0j, 2], torch.tensor([1j, 2]), [None, "a"], [[1], [1, 2]], [[0], [1]], [0, 1, 0]]
    refuses(arrays.class_ids, {"n": 2}, labels=fractions + others)
    refuses(arrays.class_ids, {"n": 2, "min_classes": 2}, labels=[[0, 0]])
    refuses(arrays.class_ids, {"n": None}, labels=[[]])
    with refused("fine_labels"):
        arrays.ClassLayout.of([3, 3], 2, "fine_labels", min_classes=2)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_a_layout_is_what_the_labels_say(labels):
    layout = ClassLayout.of(labels, len(labels))
    assert len(layout.ids) == len(labels)
    assert [layout.classes[c] for c in layout.ids] == labels
    for c, label in enumerate(layout.classes):
        rows = [row for row, other in enumerate(labels) if other == label]
        assert layout.members(c).tolist() == rows
        assert layout.counts[c] == len(rows)


WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_texts_come_back_as_they_were(texts):
    rows = rows_of_texts(texts)
    assert rows.dtype == torch.int16
    for kind in (torch.int16, torch.uint8, torch.int64):
        assert texts_of_rows(rows.to(kind)) == texts


@given(WORDS, st.integers(min_value=1, max_value=12))
def test_a_long_text_is_cut_between_two_characters(text, length):
    rows = rows_of_texts([text], length)
    assert tuple(rows.shape) == (1, length)
    (kept,) = texts_of_rows(rows)
    assert text.startswith(kept)
    following = text[len(kept) : len(kept) + 1]
    assert not following or len((kept + following).encode()) > length


def test_an_empty_text_has_a_row_of_its_own():
    assert texts_of_rows(rows_of_texts(["", ""])) == ["", ""]
    assert tuple(rows_of_texts([]).shape) == (0, 1)
