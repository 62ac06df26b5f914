"""A cache of the test's own, and no dataset from the environment."""

import os
from pathlib import Path

import pytest

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
def truncate():
    """Cut a file in half, as an interrupted download does."""

    def cut(path):
        data = Path(path).read_bytes()
        Path(path).write_bytes(data[: len(data) // 2])

    return cut
