"""Errors told apart by their fields, so that a reworded message breaks no test."""

import pytest

from uncollapse._base.check import InputError
from uncollapse.data import DataError


def refused(name):
    """Expect the `InputError` of the argument `name`."""
    return pytest.raises(InputError, check=lambda error: error.name == name)


def refuses(function, arguments, /, **wrong):
    """Expect `function` to refuse each of the `wrong` values of an argument by the argument's name.

    `arguments` are right ones; each call has one of them replaced.
    """
    for name, values in wrong.items():
        for value in values:
            with refused(name):
                function(**{**arguments, name: value})


def unusable(message, function, /, *arguments, **options):
    """Expect the `DataError` of a call on what cannot be used, by a pattern of its message."""
    with pytest.raises(DataError, match=message):
        function(*arguments, **options)
