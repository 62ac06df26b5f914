import importlib

import pytest

import uncollapse


@pytest.mark.parametrize("name", uncollapse.__all__)
def test_every_name_at_the_top_exists(name):
    assert getattr(uncollapse, name) is not None
    assert name in dir(uncollapse)


@pytest.mark.parametrize("home", [h for h in uncollapse._HOMES if h != "distances"])
def test_the_top_names_are_public_in_their_modules(home):
    module = importlib.import_module(f"uncollapse.{home}")
    assert set(uncollapse._HOMES[home]) <= set(module.__all__)


def test_the_whole_geometry_is_at_the_top():
    from uncollapse import geometry

    assert set(geometry.__all__) == set(uncollapse._HOMES["geometry"])


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        uncollapse.nonsense  # noqa: B018
