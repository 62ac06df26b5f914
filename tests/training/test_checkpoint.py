"""Checkpoints: kept, verified, and what is left where one is damaged or cannot be written."""

import os
import pickle
import shutil

import pytest
import torch
from safetensors import SafetensorError

from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.manifest import record_files

FULL = OSError(28, "No space left on device")


def checkpoint(step):
    weights = {"w": torch.randn(3, 2, generator=torch.Generator().manual_seed(step))}
    return Checkpoint(step, weights, {"rng": torch.get_rng_state(), "best": 0.5, "list": [1, 2]})


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints")


def test_what_was_saved_is_what_is_loaded(store):
    assert store.load_last() == (None, [])
    assert store.best() == (None, None)
    store.save(checkpoint(5))
    loaded, complaints = store.load_last()
    assert (loaded.step, complaints) == (5, [])
    assert torch.equal(loaded.weights["w"], checkpoint(5).weights["w"])
    assert loaded.state["list"] == [1, 2]


def test_the_last_two_and_the_best_are_kept_and_a_lost_best_is_missed(store):
    for step in (1, 2, 3, 4, 5):
        store.save(checkpoint(step), best=step == 2)
    assert store.steps() == [2, 4, 5]
    assert store.best() == (2, None)
    shutil.rmtree(store.place(2))
    step, complaint = store.best()
    assert step is None
    assert "step-00000002, the best checkpoint, is missing" in complaint


@pytest.mark.parametrize("file", ["weights.safetensors", "state.pt"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_detected_and_the_one_before_used(store, file, harm):
    store.save(checkpoint(1))
    victim = store.save(checkpoint(2)) / file
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 0xFF
    victim.write_bytes(content if harm == "flip" else content[: len(content) // 2])
    if harm == "remove":
        victim.unlink()
    loaded, complaints = store.load_last()
    assert loaded.step == 1
    assert len(complaints) == 1
    assert "damaged" in complaints[0]
    with pytest.raises(CheckpointError):
        store.load(2)


def test_leftovers_of_a_killed_write_and_other_names_are_no_checkpoints(store):
    store.save(checkpoint(1))
    leftover = store.folder / ".step-00000002.999999"
    shutil.copytree(store.folder / "step-00000001", leftover)
    for name in ("step-²", "step-1", "step-0000000x"):
        (store.folder / name).mkdir()
    (store.folder / "step-00000009").touch()
    assert store.steps() == [1]
    store.save(checkpoint(3))
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("torch.save", FULL),
        ("uncollapse.training.manifest.write_json", FULL),
        ("uncollapse.training.checkpoint.save_file", SafetensorError("No space left")),
    ],
)
def test_a_full_disk_leaves_the_last_checkpoint_intact(store, monkeypatch, function, error):
    store.save(checkpoint(1))

    def full(*_):
        raise error

    monkeypatch.setattr(function, full)
    with pytest.raises(CheckpointError, match=r"step 2.*No space left.*step 1 is intact"):
        store.save(checkpoint(2), best=True)
    assert store.steps() == [1]
    assert not list(store.folder.glob(".*"))
    assert store.load_last()[0].step == 1


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint of step 1"):
        CheckpointStore(tmp_path / "file" / "x").save(checkpoint(1))


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "null", "2", '{"files": {}}'])
def test_without_a_manifest_nothing_is_verified_and_that_is_said(store, text):
    store.save(checkpoint(1))
    store.save(checkpoint(2), best=True)
    path = store.folder.parent / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    assert "not verified" in store.manifest().complaint
    assert store.load_last()[0].step == 2
    assert store.best() == (None, None)


def test_a_checkpoint_that_the_manifest_does_not_list_was_not_finished(store):
    store.save(checkpoint(1))
    kept = (store.folder.parent / "manifest.json").read_bytes()
    store.save(checkpoint(2))
    (store.folder.parent / "manifest.json").write_bytes(kept)  # killed before it was written
    assert store.steps() == [1]
    assert store.load_last()[0].step == 1
    store.save(checkpoint(3))
    assert store.steps() == [1, 3]


def test_a_pickle_in_place_of_the_state_is_neither_run_nor_advised(store, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    store.save(checkpoint(1))
    victim = store.save(checkpoint(2)) / "state.pt"
    victim.write_bytes(pickle.dumps(Trap()))
    record_files(store.folder.parent, "checkpoints/step-00000002/state.pt")
    loaded, complaints = store.load_last()
    assert loaded.step == 1
    assert "state.pt cannot be read" in complaints[0]
    assert "weights_only" not in complaints[0]
    assert not (tmp_path / "sprung").exists()
