import pytest

from uncollapse.training.config import apply_overrides


def test_overrides_are_read_as_toml_and_else_as_text():
    values = apply_overrides({}, ["a.b=3", "a.c=x y", "d=[1, 2]", "e=true", "f=0.5", "g="])
    assert values == {"a": {"b": 3, "c": "x y"}, "d": [1, 2], "e": True, "f": 0.5, "g": ""}


def test_overrides_leave_the_given_values_alone():
    given = {"a": {"b": 1}}
    apply_overrides(given, ["a.b=2"])
    assert given == {"a": {"b": 1}}


def test_the_last_override_of_a_key_counts_and_blanks_do_not():
    assert apply_overrides({}, ["a.b=1", " a.b = 2 "]) == {"a": {"b": 2}}


@pytest.mark.parametrize("override", ["batch.p", "=3"])
def test_an_override_without_key_or_value_is_refused(override):
    with pytest.raises(ValueError, match="--set: expected key=value"):
        apply_overrides({}, [override])


def test_an_override_below_a_value_is_refused():
    with pytest.raises(ValueError, match="seed to be a section"):
        apply_overrides({"seed": 1}, ["seed.x=2"])
