import hashlib
import json
import os
import pickle
import shutil

import pytest
import torch
from safetensors import SafetensorError

from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore


def checkpoint(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    weights = {"w": torch.randn(3, 2, generator=generator)}
    return Checkpoint(step, weights, {"rng": torch.get_rng_state(), "best": 0.5, "list": [1, 2]})


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints")


def test_what_was_saved_is_what_is_loaded(store):
    store.save(checkpoint(5))
    loaded, complaints = store.load_last()
    assert (loaded.step, complaints) == (5, [])
    assert torch.equal(loaded.weights["w"], checkpoint(5).weights["w"])
    assert loaded.state["list"] == [1, 2]


def test_the_last_two_and_the_best_are_kept(store):
    for step in (1, 2, 3, 4, 5):
        store.save(checkpoint(step), best=step == 2)
    assert store.steps() == [2, 4, 5]
    assert store.best_step() == 2


@pytest.mark.parametrize("file", ["weights.safetensors", "state.pt", "manifest.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_detected_and_the_one_before_used(store, file, harm):
    store.save(checkpoint(1))
    victim = store.save(checkpoint(2)) / file
    content = bytearray(victim.read_bytes())
    if harm == "remove":
        victim.unlink()
    elif harm == "cut":
        victim.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0xFF
        victim.write_bytes(content)
    loaded, complaints = store.load_last()
    assert loaded.step == 1
    assert len(complaints) == 1
    assert "damaged" in complaints[0]
    with pytest.raises(CheckpointError):
        store.load(2)


def test_leftovers_of_a_killed_write_are_ignored_and_removed(store):
    store.save(checkpoint(1))
    leftover = store.folder / ".step-00000002.999999"
    shutil.copytree(store.folder / "step-00000001", leftover)
    assert store.steps() == [1]
    store.save(checkpoint(3))
    assert not leftover.exists()


def test_a_disk_that_fills_up_leaves_the_last_checkpoint_intact(store, monkeypatch):
    store.save(checkpoint(1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match=r"No space left.*step 1 is intact"):
        store.save(checkpoint(2))
    assert store.steps() == [1]
    assert [p.name for p in store.folder.iterdir()] == ["step-00000001"]
    assert store.load_last()[0].step == 1


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write the checkpoint of step 1"):
        CheckpointStore(tmp_path / "file" / "x").save(checkpoint(1))


def test_an_empty_store_has_nothing(store):
    assert store.load_last() == (None, [])
    assert store.best_step() is None


@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"step": 2, "sha256": {}}', '{"step": 2, "sha256": []}', "null", "2"]
)
def test_a_manifest_without_checksums_verifies_nothing(store, text):
    store.save(checkpoint(1))
    (store.save(checkpoint(2)) / "manifest.json").write_text(text)
    loaded, complaints = store.load_last()
    assert loaded.step == 1
    assert "step-00000002" in complaints[0]
    assert "damaged" in complaints[0]


def test_a_pickle_in_place_of_the_state_is_neither_run_nor_advised(store, tmp_path):
    store.save(checkpoint(1))
    victim = store.save(checkpoint(2)) / "state.pt"
    victim.write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    manifest = json.loads((victim.parent / "manifest.json").read_text())
    del manifest["seal"]
    manifest["sha256"]["state.pt"] = hashlib.sha256(victim.read_bytes()).hexdigest()
    (victim.parent / "manifest.json").write_text(json.dumps(manifest))
    loaded, complaints = store.load_last()
    assert loaded.step == 1
    assert "state.pt cannot be read" in complaints[0]
    assert "weights_only" not in complaints[0]
    assert not (tmp_path / "sprung").exists()


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("mark", [None, b"", b"step-x", b"\xff\xfe", b"..", b"step-00000002"])
def test_the_best_is_known_without_its_mark_and_said(store, mark):
    for step in (1, 2, 3):
        store.save(checkpoint(step), best=step == 1)
    marker = store.folder / "best"
    marker.unlink() if mark is None else marker.write_bytes(mark)
    step, complaint = store.best()
    assert step == 1
    assert "best is" in complaint
    store.save(checkpoint(4))
    assert store.steps() == [1, 3, 4]  # the best was not dropped
    assert store.repair_best() == complaint
    assert store.best() == (1, None)


def test_a_process_killed_before_it_wrote_the_mark_leaves_no_complaint(store):
    store.save(checkpoint(1), best=True)
    store.save(checkpoint(2), best=True)
    (store.folder / "best").write_text("step-00000001")
    assert store.best() == (2, None)


def test_a_disk_that_fills_up_before_the_mark_does_not_contradict_itself(store, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uncollapse.training.checkpoint.write_text", full)
    with pytest.raises(CheckpointError) as caught:
        store.save(checkpoint(2), best=True)
    said = str(caught.value)
    assert "step 2" in said
    assert "is written and intact, but could not be marked as the best: No space left" in said
    assert "cannot write" not in said
    assert store.load_last()[0].step == 2


def test_an_error_of_safetensors_is_a_sentence_that_says_how_much_is_free(store, monkeypatch):
    store.save(checkpoint(1))

    def full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("uncollapse.training.checkpoint.save_file", full)
    with pytest.raises(CheckpointError, match=r"No space left.* MB are free.*step 1 is intact"):
        store.save(checkpoint(2))


def test_names_that_only_look_like_steps_are_none(store):
    store.save(checkpoint(1))
    for name in ("step-²", "step-1", "step-0000000x"):
        (store.folder / name).mkdir()
    (store.folder / "step-00000009").touch()
    assert store.steps() == [1]
