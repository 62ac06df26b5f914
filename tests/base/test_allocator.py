import subprocess
import sys

import pytest

import uncollapse as uc
from uncollapse._base import extras as allocator
from uncollapse.training.engine import train

GLIBC = allocator._glibc() is not None
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


@pytest.mark.skipif(not GLIBC, reason="only glibc gives memory back that way")
def test_a_block_that_was_freed_is_not_faulted_in_again():
    usual, _, _ = faults("")
    kept, held, left = faults("assert keep_memory()")
    assert kept < 0.3 * usual
    assert left < 0.1 * held  # and it can be returned


def test_the_environment_turns_it_off(monkeypatch):
    monkeypatch.setenv("UNCOLLAPSE_KEEP_MEMORY", "0")
    assert uc.training.keep_memory() is False


def test_another_c_library_is_left_alone(monkeypatch, capsys):
    monkeypatch.setattr(allocator, "_glibc", lambda: None)
    assert uc.training.keep_memory() is False
    allocator.give_back_memory()
    assert capsys.readouterr() == ("", "")


class Old:
    """glibc before 2.35: a threshold above 32 MiB is refused."""

    def __init__(self):
        self.taken = {}

    def mallopt(self, what, value):
        if what == allocator._MMAP_THRESHOLD and value > 2**25:
            return 0
        self.taken[what] = value
        return 1


def test_an_older_glibc_gets_the_largest_threshold_it_takes(monkeypatch):
    old = Old()
    monkeypatch.setattr(allocator, "_glibc", lambda: old)
    assert uc.training.keep_memory()
    assert old.taken == {allocator._MMAP_THRESHOLD: 2**25, allocator._TRIM_THRESHOLD: 2**30}


def test_a_run_keeps_memory_and_gives_it_back(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("uncollapse.training.engine.keep_memory", lambda: called.append("keep"))
    monkeypatch.setattr("uncollapse.training.engine.give_back_memory", lambda: called.append("end"))
    config = uc.training.parse_config(
        {
            "data": {"name": "digits"},
            "model": {"backbone": "mlp", "hidden": [8], "dim": 4},
            "train": {"steps": 1},
        }
    )
    train(config, tmp_path / "run")
    # At the start, around the evaluation, at the end.
    assert called == ["keep", *["end"] * 4]
