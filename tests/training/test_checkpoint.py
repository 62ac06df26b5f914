import shutil

import pytest
import torch

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
