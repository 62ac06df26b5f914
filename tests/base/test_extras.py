import sys
import types

import pytest

from uncollapse._base import extras
from uncollapse._base.extras import MissingExtraError, compiled, import_extra, without_kernels
from uncollapse.geometry import nearest_separated


def test_a_package_that_is_there_is_imported():
    assert import_extra("json.decoder", extra="x").JSONDecoder


def test_a_missing_package_names_the_extra_to_install():
    with pytest.raises(MissingExtraError, match=r"'no_such'.*pip install 'uncollapse\[frames\]'"):
        import_extra("no_such.part", extra="frames")


def test_a_package_that_itself_lacks_something_is_not_taken_for_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed") as raised:
        import_extra("half_there", extra="frames")
    assert not isinstance(raised.value, MissingExtraError)


def test_a_broken_package_tells_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_there.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ZeroDivisionError):
        import_extra("broken_there", extra="frames")


def test_the_kernels_are_loaded_once_when_first_asked_for(monkeypatch):
    loaded = []

    def load(name):
        loaded.append(name)
        return types.ModuleType(name)

    monkeypatch.setattr(extras.importlib, "import_module", load)
    fresh = extras._Compiled()
    assert loaded == []
    assert fresh.kernels is fresh.kernels
    assert loaded == ["uncollapse._kernels"]


@pytest.mark.parametrize("error", [ImportError("no numba"), RuntimeError("no locator")])
def test_without_numba_or_a_place_for_its_cache_there_are_no_kernels(monkeypatch, error):
    def load(name):
        raise error

    monkeypatch.setattr(extras.importlib, "import_module", load)
    assert extras._Compiled().kernels is None


def test_without_kernels_holds_inside_nested_and_after_an_error(monkeypatch):
    room = types.ModuleType("room")
    monkeypatch.setattr(compiled, "kernels", room)

    def fail():
        with without_kernels():
            raise ValueError

    with without_kernels():
        with without_kernels():
            assert compiled.kernels is None
        assert compiled.kernels is None
    assert compiled.kernels is room
    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert compiled.kernels is room


def test_without_the_cone_solver_its_extra_is_named_and_a_line_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    assert nearest_separated([[0.0], [3.0], [-1.0]], [0, 0, 1]).method == "exact on the line"
    cross = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    with pytest.raises(MissingExtraError, match=r"pip install 'uncollapse\[geometry\]'"):
        nearest_separated(cross, [0, 0, 1, 1])
