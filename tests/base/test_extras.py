import sys

import pytest

from uncollapse._base import extras
from uncollapse._base.extras import MissingExtraError, import_extra, kernels, without_kernels


def test_a_package_that_is_there_is_imported():
    assert import_extra("json.decoder", extra="x").JSONDecoder


def test_a_missing_package_names_the_extra_to_install():
    with pytest.raises(MissingExtraError, match=r"'no_such'.*pip install 'uncollapse\[plots\]'"):
        import_extra("no_such.part", extra="plots")


def test_a_package_that_itself_lacks_something_is_not_taken_for_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed") as raised:
        import_extra("half_there", extra="plots")
    assert not isinstance(raised.value, MissingExtraError)


def test_a_broken_package_tells_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_there.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError):
        import_extra("broken_there", extra="plots")


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A module in the place of the kernels, made by its text."""

    def make(text, name):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    yield make
    extras._load.cache_clear()
    for name in ("kernels_there", "kernels_gone", "kernels_nowhere"):
        sys.modules.pop(name, None)


def test_the_kernels_are_a_module_or_none_without_numba(room):
    assert kernels(room("value = 3", "kernels_there")).value == 3
    assert kernels(room("import surely_not_installed", "kernels_gone")) is None
    assert kernels(room("raise RuntimeError('no locator')", "kernels_nowhere")) is None


def test_without_kernels_holds_inside_nested_and_after_an_error(room):
    name = room("", "kernels_there")

    def fail():
        with without_kernels():
            raise ValueError

    with without_kernels():
        with without_kernels():
            assert kernels(name) is None
        assert kernels(name) is None
    assert kernels(name) is not None
    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert kernels(name) is not None
