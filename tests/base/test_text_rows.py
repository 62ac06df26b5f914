import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncollapse._base.arrays import rows_of_texts, texts_of_rows

WORDS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_texts_come_back_as_they_were(texts):
    rows = rows_of_texts(texts)
    assert rows.dtype == torch.int16
    assert texts_of_rows(rows) == texts


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_rows_of_any_whole_numbers_are_read(kind):
    assert texts_of_rows(rows_of_texts(["öl", "a"]).to(kind)) == ["öl", "a"]


@given(WORDS, st.integers(min_value=1, max_value=12))
def test_a_long_text_is_cut_between_two_characters(text, length):
    rows = rows_of_texts([text], length)
    assert tuple(rows.shape) == (1, length)
    (found,) = texts_of_rows(rows)
    assert text.startswith(found)
    following = text[len(found) : len(found) + 1]
    assert not following or len((found + following).encode()) > length


def test_an_empty_text_has_a_row_of_its_own():
    assert texts_of_rows(rows_of_texts(["", ""])) == ["", ""]
    assert tuple(rows_of_texts([]).shape) == (0, 1)
