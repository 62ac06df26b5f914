"""Small images in many modes, a cache of the test's own, and no dataset from the environment."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REAL_DATA = os.environ.get("UNCOLLAPSE_DATA")


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path, monkeypatch):
    folder = tmp_path / "cache-of-this-test"
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(folder))
    monkeypatch.delenv("UNCOLLAPSE_DATA", raising=False)
    return folder


@pytest.fixture
def real_data(monkeypatch):
    """The folder of real datasets, for tests that are skipped without one."""
    if not REAL_DATA:
        pytest.skip("UNCOLLAPSE_DATA is not set")
    monkeypatch.setenv("UNCOLLAPSE_DATA", REAL_DATA)
    return Path(REAL_DATA)


@pytest.fixture
def paint():
    """Write a small image of any mode: paint(path, mode="RGB", size=(width, height), seed=0)."""

    def write(path, mode="RGB", size=(12, 10), seed=0):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        bands = {"L": 1, "1": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
        shape = (size[1], size[0]) if bands == 1 else (size[1], size[0], bands)
        array = rng.integers(0, 256, shape, dtype=np.uint8)
        if mode in ("1", "P"):
            image = Image.fromarray(array).convert(mode)
        else:
            image = Image.frombytes(mode, size, array.tobytes())
        image.save(path)
        return path

    return write


@pytest.fixture
def truncate():
    """Cut a file in half, as an interrupted download does."""

    def cut(path):
        data = Path(path).read_bytes()
        Path(path).write_bytes(data[: len(data) // 2])

    return cut
