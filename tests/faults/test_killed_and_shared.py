"""A few kills and contests of those that `tools/kills.py` makes in great numbers."""

import sys

import pytest
from PIL import Image

import hostile_processes as hostile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="forks, and looks into /proc"),
]


def test_a_process_killed_after_its_first_checkpoint_loses_nothing(tmp_path):
    assert hostile.kill_alone(2, tmp_path) == 2


def test_a_rank_killed_under_torchrun_loses_nothing(tmp_path):
    assert hostile.kill_ranks(1, tmp_path) == 1


def test_a_sweep_killed_loses_nothing(tmp_path):
    assert hostile.kill_sweep(1, tmp_path) == 1


def test_of_two_processes_in_one_folder_one_says_why_it_does_not_train(tmp_path):
    assert hostile.meet_in_a_folder(2, tmp_path) == 2


def test_of_two_processes_in_one_sweep_one_says_why_it_does_not_begin(tmp_path):
    assert hostile.meet_in_a_sweep(1, tmp_path) == 1


def test_two_processes_share_one_image_cache(tmp_path):
    files = [tmp_path / f"{i}.png" for i in range(5)]
    for i, file in enumerate(files):
        Image.new("RGB", (9, 9), (i, 2 * i, 3 * i)).save(file)
    assert hostile.meet_in_a_cache(2, files, tmp_path / "caches") == 2
