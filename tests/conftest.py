"""Which tests are slow: those that start other processes, open a browser or train many networks."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
SLOW = {
    "cli/test_runs.py",
    "cli/test_sweep.py",
    "docs/test_docs.py",
    "docs/test_docs_commands.py",
    "docs/test_picture.py",
    "health/test_guard.py",
    "kernels/test_without_the_room.py",
    "papers/eps/test_eps_items.py",
    "papers/hnm/test_diameter_figures.py",
    "peers/test_distributed.py",
    "report/test_browser.py",
    "report/test_hostile_text.py",
    "sweep/test_faults.py",
    "sweep/test_grid.py",
    "sweep/test_optuna_search.py",
    "sweep/test_ray.py",
    "training/test_distributed.py",
    "training/test_distributed_torchrun.py",
    "training/test_engine.py",
    "training/test_measurer.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.path.relative_to(HERE).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_sessionstart() -> None:
    missing = sorted(name for name in SLOW if not (HERE / name).is_file())
    if missing:
        raise pytest.UsageError(f"tests/conftest.py names files that are gone: {missing}")
