import pickle

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from support.errors import refused, unusable
from uncollapse.data import LabelledImages, LoadReport, TensorSource
from uncollapse.samplers import PKSampler


@pytest.fixture
def data():
    pixels = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 2, 2).contiguous()
    return LabelledImages(
        TensorSource(pixels),
        labels=torch.tensor([3, 3, 5, 5, 9, 9]),
        fine_labels=torch.tensor([30, 31, 50, 51, 90, 90]),
        cameras=torch.tensor([1, 2, 1, 2, 1, 2]),
        fine_names={30: "thirty"},
    )


def test_every_kind_of_index_gives_the_same_batch(data):
    for kind in (list, tuple, np.array, torch.tensor):
        images, labels = data[kind([4, 1])]
        assert labels.tolist() == [9, 3]
        assert torch.equal(images[:, 0, 0, 0], torch.tensor([4.0, 1.0]) / 255)
    mask = np.array([True, False, False, False, False, True])
    assert data[mask][1].tolist() == data[torch.from_numpy(mask)][1].tolist() == [3, 9]
    assert data[1:3][1].tolist() == [3, 5]
    assert len(data[[]][1]) == 0


def test_an_integer_gives_one_sample_and_iteration_ends(data):
    assert data[torch.tensor(2)][1] == data[np.int64(2)][1] == 5
    image, label = data[-1]
    assert (tuple(image.shape), label) == ((1, 2, 2), 9)
    assert [label for _, label in data] == data.labels.tolist()
    with pytest.raises(IndexError, match="6 of 6"):
        data[6]


def test_images_are_scaled_for_batches_only_and_features_never(data):
    assert data.pixels([5]).dtype == torch.uint8
    assert int(data.pixels([5]).max()) == 5
    assert data[[5]][0].dtype == torch.float32
    features = torch.tensor([[300.0, -2.0]])
    vectors = LabelledImages(TensorSource(features), labels=torch.tensor([0]))
    assert vectors.shape == (2,)
    assert torch.equal(vectors[[0]][0], features)
    assert vectors.texts() is None
    assert not vectors.holds_texts


def test_transform_sees_the_whole_batch(data):
    seen = []
    data.transform = lambda batch: seen.append(batch.shape) or batch + 1
    images, _ = data[[0, 1, 2]]
    assert seen == [(3, 1, 2, 2)]
    assert float(images.min()) == 1.0


def test_a_subset_keeps_every_column_and_may_be_nested_and_pickled(data):
    part = data.subset([5, 2, 0]).subset(torch.tensor([True, True, False]))
    for rows in (part, pickle.loads(pickle.dumps(part))):
        assert rows.labels.tolist() == [9, 5]
        assert rows.fine_labels.tolist() == [90, 50]
        assert rows.cameras.tolist() == [2, 1]
        assert rows.pixels()[:, 0, 0, 0].tolist() == [5, 2]


def test_fine_labels_can_be_trained_on(data):
    fine = data.by_fine_labels()
    assert fine.labels.tolist() == [30, 31, 50, 51, 90, 90]
    assert fine.class_names == {30: "thirty"}
    unusable("no fine labels", fine.by_fine_labels)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels", torch.tensor([1])),
        ("cameras", torch.tensor([0.5, 1.0])),
        ("labels", [10**30, 1]),
        ("labels", ["cat", "dog"]),
        ("labels", [[1, 2], [3]]),
        ("labels", 10**30),
    ],
)
def test_labels_that_do_not_fit_are_refused_by_name(name, values):
    with refused(name):
        LabelledImages(TensorSource(torch.zeros(2, 3)), **({"labels": [1, 2]} | {name: values}))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_loader_gives_the_same_as_indexing(data):
    batches = list(PKSampler(data.labels, p=2, k=2, seed=0))
    samplers = [PKSampler(data.labels, p=2, k=2, seed=0) for _ in range(2)]
    loaders = DataLoader(data, batch_sampler=samplers[0]), data.loader(samplers[1])
    for loader in (*loaders, data.loader(batches, workers=2)):
        for (images, labels), rows in zip(loader, batches, strict=True):
            assert torch.equal(images, data[rows][0])
            assert torch.equal(labels, data[rows][1])


def test_a_report_counts_and_names_what_was_odd():
    report = LoadReport(missing=("a", "b", "c", "d"), converted={"CMYK": ("e",)})
    assert not report.clean
    assert report.summary() == "4 missing (a, b, c, ...); 1 converted from CMYK (e)"
    assert LoadReport().clean
    assert LoadReport().summary() == "nothing left out or changed"
