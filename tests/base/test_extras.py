import subprocess
import sys
import types

import pytest

import uncollapse as uc
from uncollapse._base import extras
from uncollapse._base.extras import MissingExtraError, compiled, import_extra, without_kernels
from uncollapse.geometry import nearest_separated
from uncollapse.training.engine import train


def test_a_missing_package_names_the_extra_to_install():
    with pytest.raises(MissingExtraError, match=r"'no_such'.*pip install 'uncollapse\[frames\]'"):
        import_extra("no_such.part", extra="frames")


def test_a_package_that_itself_lacks_something_is_not_taken_for_missing(tmp_path, monkeypatch):
    (tmp_path / "half_there.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed") as raised:
        import_extra("half_there", extra="frames")
    assert not isinstance(raised.value, MissingExtraError)


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

    with without_kernels():
        with pytest.raises(ZeroDivisionError), without_kernels():
            assert compiled.kernels is 1 / 0
        assert compiled.kernels is None
    assert compiled.kernels is room


def test_without_the_cone_solver_its_extra_is_named_and_a_line_needs_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    assert nearest_separated([[0.0], [3.0], [-1.0]], [0, 0, 1]).method == "exact on the line"
    cross = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
    with pytest.raises(MissingExtraError, match=r"pip install 'uncollapse\[geometry\]'"):
        nearest_separated(cross, [0, 0, 1, 1])


GLIBC = extras._glibc() is not None
FAULTS = """
import resource
from uncollapse._base.extras import give_back_memory, keep_memory
{first}
def resident():
    return int(open("/proc/self/statm").read().split()[1])
empty = resident()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    bytearray(b"x") * (2 ** 26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(resident() - empty)
give_back_memory()
print(resident() - empty)
"""


def faults(first):
    """Page faults of ten blocks of 64 MiB, pages held then, and after giving back."""
    code = FAULTS.format(first=first)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.processes
@pytest.mark.skipif(not GLIBC, reason="only glibc gives memory back that way")
def test_a_block_that_was_freed_is_not_faulted_in_again():
    usual, _, _ = faults("")
    kept, held, left = faults("assert keep_memory()")
    assert kept < 0.3 * usual
    assert left < 0.1 * held  # and it can be returned


def test_the_environment_or_another_c_library_turns_it_off(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("UNCOLLAPSE_KEEP_MEMORY", "0")
        assert uc.training.keep_memory() is False
    monkeypatch.setattr(extras, "_glibc", lambda: None)
    assert uc.training.keep_memory() is False
    extras.give_back_memory()


class Old:
    """glibc before 2.35: a threshold above 32 MiB is refused."""

    def __init__(self):
        self.taken = {}

    def mallopt(self, what, value):
        if what == extras._MMAP_THRESHOLD and value > 2**25:
            return 0
        self.taken[what] = value
        return 1


def test_an_older_glibc_gets_the_largest_threshold_it_takes(monkeypatch):
    old = Old()
    monkeypatch.setattr(extras, "_glibc", lambda: old)
    assert uc.training.keep_memory()
    assert old.taken == {extras._MMAP_THRESHOLD: 2**25, extras._TRIM_THRESHOLD: 2**30}


@pytest.mark.slow
def test_a_run_keeps_memory_and_gives_it_back(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("uncollapse.training.engine.keep_memory", lambda: called.append("keep"))
    monkeypatch.setattr("uncollapse.training.engine.give_back_memory", lambda: called.append("end"))
    model = {"backbone": "mlp", "hidden": [8], "dim": 4}
    tables = {"data": {"name": "digits"}, "model": model, "train": {"steps": 1}}
    train(uc.training.parse_config(tables), tmp_path / "run")
    # At the start, around the evaluation, at the end.
    assert called == ["keep", *["end"] * 4]
