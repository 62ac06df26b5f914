import math
import pickle

import numpy as np
import pytest

from support.errors import refused
from uncollapse._base import check


def test_what_is_not_allowed_is_refused_by_name():
    for value in (0, 1.5, True, "3"):
        with refused("k"):
            check.check_int("k", value)
    for value in (-1, 2.5, math.nan, "0.2", None, math.inf, True):
        with refused("margin"):
            check.check_number("margin", value, 0.0, 2.0)
    with refused("norm"):
        check.check_choice("norm", "l3", ("sup", "l2"))
    with refused("y"):
        check.check_paired(np.zeros((2, 3)), np.zeros((3, 2)), ("x", "y"))


def test_numbers_of_numpy_are_numbers():
    assert check.check_int("k", np.int32(3)) == 3
    assert check.check_number("margin", np.float32(0.5)) == 0.5
    assert type(check.check_int("k", np.int64(1))) is int
    assert [check.check_number("margin", value, 0.0, 2.0) for value in (0, 2.0)] == [0.0, 2.0]


def test_an_error_carries_the_argument_the_value_and_what_is_allowed():
    with pytest.raises(check.InputError) as caught:
        check.check_int("k", "3")
    error = caught.value
    assert (error.name, error.given) == ("k", "3")
    assert error.allowed == "a whole number of at least 1"
    assert str(error) == "k: expected a whole number of at least 1, got '3'"
    conflict = check.InputError.conflict("pass tuples or a miner, not both")
    assert (conflict.name, conflict.given, conflict.allowed) == (None, None, None)


class _ErrorWithMore(check.InputError):
    def __init__(self, errors):
        ValueError.__init__(self, f"{len(errors)} errors")
        self.errors = errors


@pytest.mark.parametrize(
    "error",
    [
        check.InputError("k", 0, "a whole number"),
        check.InputError("progress", print, "a function", shown="nothing"),
        check.InputError.conflict("pass one of them"),
        _ErrorWithMore((check.InputError("k", 0, "a whole number"),)),
    ],
)
def test_an_error_survives_pickling(error):
    same = pickle.loads(pickle.dumps(error))
    assert type(same) is type(error)
    assert str(same) == str(error)
    assert (same.name, same.allowed) == (error.name, error.allowed)
    assert str(same.given) == str(error.given)
    assert len(getattr(same, "errors", ())) == len(getattr(error, "errors", ()))


def test_a_value_that_cannot_be_pickled_travels_as_text():
    error = check.InputError("distance", lambda x: x, "a word")
    assert "lambda" in pickle.loads(pickle.dumps(error)).given
