"""Caches of decoded images and of frozen features: built once, and never of something else."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from support.small_copies import paint
from uncollapse._base import files as base_files
from uncollapse.data import CacheError, LabelledImages, TensorSource, cache, with_features
from uncollapse.data.cache import MappedSource, cached
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef


@pytest.fixture
def files(tmp_path):
    return [paint(tmp_path / "images" / f"{i}.png", seed=i) for i in range(5)]


def source_of(files, size=(6, 6)):
    return FileSource([ImageRef(path) for path in files], Decoding(size))


def every(source):
    return source.read(torch.arange(len(source)))


@pytest.fixture
def built(files):
    """Build or read the cache of the files; `built.calls` says what was decoded."""

    def build(files=files, size=(6, 6), name="x", **options):
        def progress(done, total):
            build.calls.append((done, total))

        return cached(source_of(files, size), name, progress=progress, **options)

    build.calls = []
    return build


def test_a_cache_is_what_decoding_gives_and_follows_its_files(files, built, cache_of_its_own):
    for images in (built(), built()):
        assert torch.equal(every(images.source), every(source_of(files)))
        assert images.rows == (0, 1, 2, 3, 4)
    old = every(images.source)
    paint(files[2], seed=99)
    os.utime(files[2], ns=(1, 1))
    changed = (every(built().source) != old).flatten(1).any(1)
    assert changed.tolist() == [False, False, True, False, False]
    assert torch.equal(every(images.source), old)  # a map that is open survives
    built([*files, paint(files[0].with_name("new.png"), seed=7)])
    assert built.calls == [(5, 5), (5, 5), (6, 6)]
    assert len(list(cache_of_its_own.glob("*.bin"))) == 1


def test_each_size_and_place_has_its_own_cache(built, cache_of_its_own):
    small, large = built(origin="here").source, built(size=(9, 9), origin="here").source
    assert (small.shape, large.shape) == ((3, 6, 6), (3, 9, 9))
    built(origin="there")
    assert len(list(cache_of_its_own.glob("*.bin"))) == 3


def test_unreadable_images_are_left_out_and_remembered(files, built, truncate):
    truncate(files[1])
    paint(files[3], "L")
    for _ in range(2):
        images = built()
        assert images.rows == (0, 2, 3, 4)
        assert len(images.source) == 4
        assert [name.split(" ")[0] for name in images.report.unreadable] == ["images/1.png"]
        assert images.report.converted == {"grey": ("images/3.png",)}


@pytest.mark.parametrize("damage", ["truncated pixels", "no pixels", "broken json", "other json"])
def test_a_damaged_cache_is_never_used(files, built, truncate, damage):
    pixels = built().source.path
    manifest = next(pixels.parent.glob("*.json"))
    {
        "truncated pixels": lambda: truncate(pixels),
        "no pixels": pixels.unlink,
        "broken json": lambda: truncate(manifest),
        "other json": lambda: manifest.write_text("[1, 2]"),
    }[damage]()
    assert torch.equal(every(built().source), every(source_of(files)))
    assert len(built.calls) == 2


def test_maps_do_not_travel_to_other_processes_and_batches_are_copies(built):
    source = built().source
    every(source).zero_()
    assert int(every(source).sum()) > 0
    stored = pickle.dumps(source)
    assert len(stored) < 1000
    assert torch.equal(every(pickle.loads(stored)), every(source))


def test_a_full_disk_is_said_before_anything_is_decoded(built, monkeypatch, cache_of_its_own):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(CacheError, match=r"disk is full .*UNCOLLAPSE_CACHE.*cache=False"):
        built()
    assert built.calls == []
    assert not list(cache_of_its_own.glob("*.bin"))


@pytest.mark.parametrize("filled_by", [".bin", ".json"])  # the manifest is written at the very end
def test_a_disk_that_fills_while_writing_leaves_nothing_and_keeps_the_old_cache(
    files, built, monkeypatch, cache_of_its_own, filled_by
):
    before = built().source
    paint(files[0], seed=77, size=(30, 30))

    def sync(path):
        if path.suffix == filled_by:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(base_files, "sync", sync)
    with pytest.raises(CacheError, match="disk is full"):
        built()
    assert [path.name for path in cache_of_its_own.glob("*.bin")] == [before.path.name]
    assert not [path for path in cache_of_its_own.iterdir() if path.name.startswith(".")]


def test_the_environment_says_where_the_cache_is(built, monkeypatch, tmp_path, cache_of_its_own):
    assert cache.cache_folder() == cache_of_its_own
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CacheError, match=r"image cache in .*UNCOLLAPSE_CACHE"):
        built()
    with pytest.raises(CacheError, match=r"feature cache in .*UNCOLLAPSE_CACHE"):
        with_features(samples(), Means(), "means")
    monkeypatch.delenv("UNCOLLAPSE_CACHE")
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache.cache_folder()) == "/home/someone/.cache/uncollapse"


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
images = cached(source, "x", progress=progress)
say(int(images.source.read(torch.arange(len(source))).sum()))
if all(children):
    for child in children:
        os.waitpid(child, 0)
"""


def run(folder, what):
    command = [sys.executable, "-c", SCRIPT, str(folder), what]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)


@pytest.mark.processes
def test_several_processes_build_one_cache_between_them(files, cache_of_its_own):
    lines = run(files[0].parent, "four processes").stdout.split()
    wanted = str(int(every(source_of(files)).sum()))
    assert sorted(lines) == sorted(["built", wanted, wanted, wanted, wanted])
    assert sorted(p.suffix for p in cache_of_its_own.iterdir()) == [".bin", ".json"]


@pytest.mark.processes
def test_a_build_killed_half_way_is_neither_used_nor_waited_for(files, built, cache_of_its_own):
    assert run(files[0].parent, "die").returncode == -signal.SIGKILL
    pixels, lock = sorted(cache_of_its_own.iterdir())
    assert (pixels.name[0], pixels.suffix, lock.suffix) == (".", ".bin", ".lock")
    assert torch.equal(every(built().source), every(source_of(files)))
    assert sorted(p.suffix for p in cache_of_its_own.iterdir()) == [".bin", ".json"]


# Features of a frozen network.


def samples(count=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 4, 4), generator=generator, dtype=torch.uint8)
    return LabelledImages(TensorSource(pixels), torch.arange(count) % 2)


class Means:
    """Counts the samples it is given."""

    def __init__(self):
        self.seen = 0

    def __call__(self, images):
        self.seen += len(images)
        return images.mean((2, 3))


def test_every_sample_goes_through_the_network_once_and_subsets_read_the_same():
    data, network = samples(150), Means()
    for _ in range(2):
        made = with_features(data, network, "means")
        assert torch.allclose(made[:][0], data[:][0].mean((2, 3)))
        assert torch.equal(made.pixels(), data.pixels())
        assert made.shape == (3, 4, 4)
    assert network.seen == 150
    part = made.subset([3, 1])
    assert torch.equal(part[:][0], made[[3, 1]][0])
    assert torch.equal(pickle.loads(pickle.dumps(part))[:][0], part[:][0])


def test_other_samples_or_another_network_are_another_file(cache_of_its_own):
    network, first = Means(), samples()
    parts = (first.subset([0, 1]), "a"), (first.subset([1, 0]), "a")
    for data, identity in ((first, "a"), (first, "b"), (samples(seed=1), "a"), *parts):
        with_features(data, network, identity)
    assert network.seen == 19
    assert len(list(cache_of_its_own.glob("*.bin"))) == 5


def test_images_of_a_cache_are_known_by_its_name(tmp_path):
    pixels = samples(4).pixels()
    network, labels = Means(), torch.arange(4)
    for name in ("one.bin", "one.bin", "two.bin"):
        (tmp_path / name).write_bytes(pixels.numpy().tobytes())
        source = MappedSource(tmp_path / name, 4, (3, 4, 4))
        with_features(LabelledImages(source, labels), network, "a")
    assert network.seen == 8


def test_a_network_that_fails_leaves_no_file(cache_of_its_own):
    with pytest.raises(AttributeError, match="no_such_method"):
        with_features(samples(), lambda images: images.no_such_method(), "fails")
    assert not list(cache_of_its_own.glob("*.bin"))


def test_feature_maps_are_kept_in_half_precision_and_within_its_range():
    data = samples(5)
    made = with_features(data, lambda images: 1e5 * images, "maps")
    maps = made[:][0]
    assert maps.dtype == torch.float16
    wanted = (1e5 * data[:][0]).clamp(max=torch.finfo(torch.float16).max)
    assert torch.allclose(maps.float(), wanted, rtol=1e-3)
