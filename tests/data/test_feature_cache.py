"""Features of a frozen network: computed once, read as batches, never of something else."""

import pickle

import pytest
import torch

from uncollapse.data import CacheError, LabelledImages, TensorSource, with_features
from uncollapse.data.cache import MappedSource


def samples(count=5, seed=0):
    pixels = torch.randint(0, 256, (count, 3, 4, 4), dtype=torch.uint8)
    pixels.random_(0, 256, generator=torch.Generator().manual_seed(seed))
    return LabelledImages(TensorSource(pixels), torch.arange(count) % 2)


class Means:
    """Counts the samples it is given."""

    def __init__(self):
        self.seen = 0

    def __call__(self, images):
        self.seen += len(images)
        return images.mean((2, 3))


def test_every_sample_goes_through_the_network_once(tmp_path):
    data, network = samples(150), Means()
    made = with_features(data, network, "means", folder=tmp_path)
    again = with_features(data, network, "means", folder=tmp_path)
    assert network.seen == 150
    for one in (made, again):
        assert torch.allclose(one[:][0], data[:][0].mean((2, 3)))
        assert torch.equal(one.pixels(), data.pixels())
        assert one.shape == (3, 4, 4)


def test_a_subset_and_another_process_read_the_same(tmp_path):
    made = with_features(samples(), Means(), "means", folder=tmp_path)
    part = made.subset([3, 1])
    assert torch.equal(part[:][0], made[[3, 1]][0])
    assert torch.equal(pickle.loads(pickle.dumps(part))[:][0], part[:][0])


def test_other_samples_or_another_network_are_another_file(tmp_path):
    network = Means()
    for data, identity in ((samples(), "a"), (samples(), "b"), (samples(seed=1), "a")):
        with_features(data, network, identity, folder=tmp_path)
    assert network.seen == 15
    assert len(list(tmp_path.glob("*.bin"))) == 3


def test_images_of_a_cache_are_known_by_its_name(tmp_path):
    pixels = samples(4).pixels()
    for name in ("one.bin", "two.bin"):
        (tmp_path / name).write_bytes(pixels.numpy().tobytes())
    network, labels = Means(), torch.arange(4)
    for name in ("one.bin", "one.bin", "two.bin"):
        source = MappedSource(tmp_path / name, 4, (3, 4, 4))
        with_features(LabelledImages(source, labels), network, "a", folder=tmp_path / "cache")
    assert network.seen == 8


def test_a_network_that_fails_leaves_no_file(tmp_path):
    def fails(images):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        with_features(samples(), fails, "fails", folder=tmp_path)
    assert not list(tmp_path.glob("*.bin"))


def test_a_folder_that_cannot_be_written_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match=r"feature cache in .*UNCOLLAPSE_CACHE"):
        with_features(samples(), Means(), "means", folder=tmp_path / "file" / "inner")
