"""Which tests are slow: those that start processes, open a browser, or compute for seconds.

A file stands for all its tests, `file::test` for one and its parameters.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent
SLOW = {
    "src/uncollapse/noise/expected.py",
    "src/uncollapse/noise/theorems.py",
    "tests/cli/test_diagnose.py::test_a_small_file_loads_no_package_that_it_does_not_need",
    "tests/cli/test_diagnose_runs.py",
    "tests/cli/test_forecast.py",
    "tests/cli/test_runs.py",
    "tests/cli/test_skipped_files.py",
    "tests/cli/test_start.py",
    "tests/test_automation.py",
    "tests/cli/test_sweep.py",
    "tests/data/test_cache.py::test_a_build_killed_half_way_is_neither_used_nor_waited_for",
    "tests/data/test_cache.py::test_several_processes_build_one_cache_between_them",
    "tests/docs/test_docs.py",
    "tests/docs/test_docs_commands.py",
    "tests/docs/test_picture.py",
    "tests/faults/test_damaged_runs.py",
    "tests/faults/test_killed_and_shared.py",
    "tests/geometry/test_nearest.py",
    "tests/health/test_class_watch.py::test_a_real_run_is_warned_of_within_30_updates",
    "tests/health/test_divergence.py",
    "tests/health/test_guard.py",
    "tests/kernels/test_without_the_room.py",
    "tests/metrics/test_modes.py::test_a_single_lump_of_another_shape_is_one_mode",
    "tests/metrics/test_modes.py::test_lumps_that_are_apart_are_counted",
    "tests/metrics/test_intervals.py::"
    "test_a_95_percent_interval_covers_the_truth_about_95_times_in_100",
    "tests/mining/test_miner_behaviour.py::test_a_pool_is_uniform",
    "tests/mining/test_miner_behaviour.py::test_distance_weights_are_those_of_the_paper",
    "tests/mining/test_miner_behaviour.py::test_random_choices_are_uniform",
    "tests/mining/test_miner_behaviour.py::"
    "test_semihard_positives_are_uniform_over_those_beyond_the_nearest_negative",
    "tests/noise/test_claims.py",
    "tests/noise/test_minimise.py",
    "tests/noise/test_noise_probe.py",
    "tests/noise/test_theorems.py",
    "tests/papers/eps/test_eps_items.py",
    "tests/papers/eps/test_eps_theory.py",
    "tests/papers/hnm/test_diameter_figures.py",
    "tests/papers/hnm/test_hnm_geometry.py",
    "tests/peers/test_distributed.py",
    "tests/peers/test_miner_peers.py::test_distance_draws_as_the_distance_weighted_miner_does",
    "tests/report/test_browser.py",
    "tests/report/test_forecast_page.py",
    "tests/report/test_hostile_text.py",
    "tests/samplers/test_batches.py::test_a_loader_with_workers_resumes_after_what_was_consumed",
    "tests/samplers/test_batches.py::test_ranks_share_the_batch_of_one_process",
    "tests/samplers/test_check.py::test_the_chance_is_what_batches_show",
    "tests/sweep/test_faults.py",
    "tests/sweep/test_grid.py",
    "tests/sweep/test_optuna_search.py",
    "tests/sweep/test_ray.py",
    "tests/test_entry_points.py",
    "tests/test_package.py::test_each_walk_crosses_eight_files_at_most",
    "tests/training/test_distributed.py",
    "tests/training/test_distributed_torchrun.py",
    "tests/training/test_divergence.py",
    "tests/training/test_engine.py",
    "tests/training/test_export.py",
    "tests/training/test_gallery_search.py",
    "tests/training/test_measurer.py",
    "tests/training/test_run_noise_probe.py",
    "tests/training/test_sample_transforms.py::"
    "test_mean_and_std_hold_in_training_evaluation_and_search",
    "tests/training/test_trust.py",
}

# `make check`: as hypothesis's own profile `ci`, on a fifth of the examples.
settings.register_profile("check", parent=settings.get_profile("ci"), max_examples=20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(ROOT):
            file = item.path.relative_to(ROOT).as_posix()
            test = item.name.partition("[")[0]
            if file in SLOW or f"{file}::{test}" in SLOW:
                item.add_marker(pytest.mark.slow)


def pytest_sessionstart() -> None:
    missing = sorted(name for name in SLOW if not (ROOT / name.partition("::")[0]).is_file())
    if missing:
        raise pytest.UsageError(f"tests/conftest.py names files that are gone: {missing}")
