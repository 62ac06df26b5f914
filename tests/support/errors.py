"""Errors told apart by their fields, so that a reworded message breaks no test."""

import pytest

from uncollapse._base.check import InputError


def refused(name):
    """Expect the `InputError` of the argument `name`."""
    return pytest.raises(InputError, check=lambda error: error.name == name)
