import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Decoded images and features are kept with the tests' own files."""
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
