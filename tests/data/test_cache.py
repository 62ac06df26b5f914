import errno
import io
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import namedtuple

import pytest
import torch

from uncollapse._base import files as base_files
from uncollapse._base import progress as base_progress
from uncollapse.data import CacheError, cache
from uncollapse.data.cache import MappedSource, cached
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef


@pytest.fixture
def files(tmp_path, paint):
    return [paint(tmp_path / "images" / f"{i}.png", seed=i) for i in range(5)]


def source_of(files, size=(6, 6)):
    return FileSource([ImageRef(path) for path in files], Decoding(size))


def watch(calls):
    return lambda done, total: calls.append((done, total))


def rows(source):
    return torch.arange(len(source))


def test_a_cache_holds_what_decoding_gives_and_is_read_not_rebuilt_the_second_time(files):
    source, calls = source_of(files), []
    first = cached(source, "x", progress=watch(calls))
    assert calls == [(5, 5)]
    second = cached(source, "x", progress=watch(calls))
    assert calls == [(5, 5)]
    for found in (first, second):
        assert torch.equal(found.source.read(rows(source)), source.read(rows(source)))
        assert found.rows == (0, 1, 2, 3, 4)


def test_changing_a_file_or_adding_one_rebuilds_and_leaves_one_pixel_file(
    files, paint, cache_of_its_own
):
    calls = []
    before = cached(source_of(files), "x", progress=watch(calls))
    paint(files[2], seed=99)
    os.utime(files[2], ns=(1, 1))
    after = cached(source_of(files), "x", progress=watch(calls))
    more = [*files, paint(files[0].with_name("new.png"), seed=7)]
    cached(source_of(more), "x", progress=watch(calls))
    assert calls == [(5, 5), (5, 5), (6, 6)]
    changed = (before.source.read(rows(files)) != after.source.read(rows(files))).flatten(1).any(1)
    assert changed.tolist() == [False, False, True, False, False]
    assert len(list(cache_of_its_own.glob("*.bin"))) == 1


def test_a_map_that_is_open_survives_a_rebuild(files, paint):
    before = cached(source_of(files), "x").source
    old = before.read(rows(files))
    paint(files[0], seed=50, size=(40, 40))
    cached(source_of(files), "x")
    assert torch.equal(before.read(rows(files)), old)


def test_each_size_and_place_has_its_own_cache(files, cache_of_its_own):
    small = cached(source_of(files), "x", origin="here")
    large = cached(source_of(files, (9, 9)), "x", origin="here")
    there = cached(source_of(files), "x", origin="there")
    assert small.source.shape == (3, 6, 6)
    assert large.source.shape == (3, 9, 9)
    assert len({small.source.path, large.source.path, there.source.path}) == 3
    assert len(list(cache_of_its_own.glob("*.bin"))) == 3


def test_unreadable_images_are_left_out_and_remembered(files, truncate, paint):
    truncate(files[1])
    paint(files[3], "L")
    for _ in range(2):
        found = cached(source_of(files), "x")
        assert found.rows == (0, 2, 3, 4)
        assert len(found.source) == 4
        assert [name.split(" ")[0] for name in found.report.unreadable] == ["images/1.png"]
        assert found.report.converted == {"grey": ("images/3.png",)}


@pytest.mark.parametrize("damage", ["truncated pixels", "no pixels", "broken json", "other json"])
def test_a_damaged_cache_is_never_used(files, truncate, damage):
    calls = []
    found = cached(source_of(files), "x")
    manifest = next(found.source.path.parent.glob("*.json"))
    if damage == "truncated pixels":
        truncate(found.source.path)
    elif damage == "no pixels":
        found.source.path.unlink()
    elif damage == "broken json":
        truncate(manifest)
    else:
        manifest.write_text(json.dumps([1, 2]))
    again = cached(source_of(files), "x", progress=watch(calls))
    assert calls == [(5, 5)]
    assert torch.equal(again.source.read(rows(files)), source_of(files).read(rows(files)))


def test_maps_do_not_travel_to_other_processes_and_batches_are_copies(files):
    found = cached(source_of(files), "x").source
    batch = found.read(torch.tensor([0]))
    batch.zero_()
    assert int(found.read(torch.tensor([0])).sum()) > 0
    assert len(pickle.dumps(found)) < 1000
    again = pickle.loads(pickle.dumps(found))
    assert isinstance(again, MappedSource)
    assert torch.equal(again.read(torch.tensor([3])), found.read(torch.tensor([3])))


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.suffix != ".json"] if folder.exists() else []


def test_a_full_disk_is_said_before_anything_is_decoded(files, monkeypatch, cache_of_its_own):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage(10, 10, 0))
    with pytest.raises(CacheError, match=r"disk is full .*UNCOLLAPSE_CACHE.*cache=False"):
        cached(source_of(files), "x", progress=lambda done, total: pytest.fail("decoded"))
    assert leftovers(cache_of_its_own) == []


def test_a_disk_that_fills_while_writing_leaves_nothing_and_keeps_the_old_cache(
    files, paint, monkeypatch, cache_of_its_own
):
    before = cached(source_of(files), "x")
    paint(files[0], seed=77, size=(30, 30))

    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(base_files, "sync", full)
    with pytest.raises(CacheError, match="disk is full"):
        cached(source_of(files), "x")
    assert leftovers(cache_of_its_own) == [before.source.path.name]


def test_a_disk_that_fills_at_the_very_end_leaves_no_pixels_either(
    files, monkeypatch, cache_of_its_own
):
    def full_at_last(path):
        if path.suffix == ".json":  # the manifest, when the pixels are in place
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(base_files, "sync", full_at_last)
    with pytest.raises(CacheError, match="disk is full"):
        cached(source_of(files), "x")
    assert list(cache_of_its_own.iterdir()) == []


def test_on_a_terminal_a_bar_is_drawn_and_elsewhere_nothing(files, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(base_progress.sys, "stderr", screen)
        cached(source_of(files), "x")
    assert "decoding images" in screen.getvalue()
    cached(source_of(files), "y")
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_a_clear_error(files, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"file/cache: it cannot be written \(Not a directory\)"):
        cached(source_of(files), "x")


SCRIPT = """
import os, signal, sys, torch
from pathlib import Path
from uncollapse.data.cache import cached
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef
source = FileSource([ImageRef(p) for p in sorted(Path(sys.argv[1]).iterdir())], Decoding((6, 6)))
def say(line):
    os.write(1, f"{line}\\n".encode())  # one write: lines of several processes do not mix
def progress(done, total):
    say("built")
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
# Importing takes seconds; forking after it lets the processes really meet.
children = [] if sys.argv[2] == "die" else [os.fork() for _ in range(2)]
found = cached(source, "x", progress=progress)
say(int(found.source.read(torch.arange(len(source))).sum()))
if all(children):
    for child in children:
        os.waitpid(child, 0)
"""


def run(folder, what):
    command = [sys.executable, "-c", SCRIPT, str(folder), what]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.slow
def test_several_processes_build_one_cache_between_them(files, cache_of_its_own):
    lines = run(files[0].parent, "four processes").stdout.split()
    wanted = str(int(source_of(sorted(files)).read(rows(files)).sum()))
    assert sorted(lines) == sorted(["built", wanted, wanted, wanted, wanted])
    assert sorted(p.suffix for p in cache_of_its_own.iterdir()) == [".bin", ".json"]


@pytest.mark.slow
def test_a_build_killed_half_way_is_neither_used_nor_waited_for(files, cache_of_its_own):
    assert run(files[0].parent, "die").returncode == -signal.SIGKILL
    pixels, lock = sorted(cache_of_its_own.iterdir())
    assert (pixels.name[0], pixels.suffix, lock.suffix) == (".", ".bin", ".lock")
    found = cached(source_of(sorted(files)), "x")
    assert torch.equal(found.source.read(rows(files)), source_of(sorted(files)).read(rows(files)))
    assert sorted(p.suffix for p in cache_of_its_own.iterdir()) == [".bin", ".json"]


def test_the_cache_is_in_the_home_folder_unless_said_otherwise(monkeypatch, tmp_path):
    assert cache.cache_folder() == tmp_path / "cache-of-this-test"
    monkeypatch.delenv("UNCOLLAPSE_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache.cache_folder()) == "/home/someone/.cache/uncollapse"
