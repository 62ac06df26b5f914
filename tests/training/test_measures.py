"""The files of a run's measures: what is written is what is read, and what is wrong is said."""

import json
from dataclasses import replace

import pytest
import torch

from uncollapse._base.files import DamagedFileError
from uncollapse.geometry import diameter_lower_bound
from uncollapse.health import measure
from uncollapse.training import NotMeasuredError
from uncollapse.training.measures import (
    BatchFigures,
    Measures,
    Moment,
    RunFolder,
    Samples,
    SplitFacts,
    SplitFigures,
    SplitRows,
    measures_file,
    write_measures,
    write_tensors,
)


def points(seed=0):
    return torch.randn(30, 3, generator=torch.Generator().manual_seed(seed))


def moment(step, scale=1.0):
    labels = ["a", "b", "c"] * 9 + ["only one", "a", "b"]
    figures = SplitFigures(measure(scale * points(), labels), {"recall@1": 0.25, "nmi+": 0.5})
    batches = BatchFigures(8, 4.0, 1.5, 0.7, 0.1, 1.0)
    return Moment(step, batches, {"test": figures})


FACTS = {"test": SplitFacts("digits", (1, 8, 8), 599, 30, {0: "a", 7: "b"}, {})}


def test_measures_survive_the_way_to_the_file_and_back(tmp_path):
    measures = Measures(FACTS, moment(0), moment(9, 0.5))
    write_measures(tmp_path, measures)
    found = RunFolder(tmp_path).measures()
    assert found.splits == FACTS
    assert found.before.batches == measures.before.batches
    health, expected = found.after.splits["test"].health, moment(9, 0.5).splits["test"].health
    # NaN (the tightness of a class with one member) is not equal to itself.
    assert repr(health.classes) == repr(expected.classes)
    assert replace(health, classes=(), thickness=None) == replace(
        expected, classes=(), thickness=None
    )
    assert found.after.splits["test"].scores == {"recall@1": 0.25, "nmi+": 0.5}
    before = measures_file(tmp_path).read_bytes()
    write_measures(tmp_path, found)
    assert measures_file(tmp_path).read_bytes() == before
    documented = json.loads(before)
    assert documented.keys() == {"format", "splits", "before", "after", "settings", "defaults"}
    assert documented["before"].keys() == {"step", "batches", "splits"}
    assert documented["before"]["splits"]["test"].keys() == {"health", "scores"}


def test_the_bound_is_hnm_17_and_unknown_without_a_triplet_loss():
    measures = Measures(FACTS, moment(0))
    assert measures.bound() == diameter_lower_bound(measures.before.diameter, 1.5, 2.0)
    assert measures.bound(1.0) == measures.before.diameter - 1.5
    batches = replace(measures.before.batches, hard_mined_loss=None)
    assert replace(measures, before=replace(measures.before, batches=batches)).bound() is None


def test_a_folder_without_measures_is_refused_with_what_to_do(tmp_path):
    folder = RunFolder(tmp_path)
    for read, names in (
        (folder.measures, ()),
        (folder.rows, ("after", "test")),
        (folder.samples, ("test",)),
    ):
        with pytest.raises(NotMeasuredError, match=r"uncollapse report RUN --measure"):
            read(*names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "expected a dict"),
        ('{"format": 99}', "format 99"),
        ('{"format": 1, "splits": {}}', "not the measures of a run"),
        ('{"format": 1, "splits": {"test": {}}, "before": {}}', "not the measures of a run"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, why):
    measures_file(tmp_path).write_text(text)
    with pytest.raises(DamagedFileError, match=rf"measures\.json is damaged: .*{why}"):
        RunFolder(tmp_path).measures()


def test_rows_of_several_splits_are_kept_apart(tmp_path):
    one = SplitRows(torch.arange(30), torch.arange(30) % 3, points())
    two = SplitRows(torch.arange(5), torch.zeros(5).long(), points(1)[:5], torch.arange(5))
    write_tensors(tmp_path / "embeddings-before.safetensors", 0, {"val": one, "test": two})
    found = RunFolder(tmp_path).rows("before", "val")
    assert found.fine_labels is None
    assert torch.equal(found.embeddings, one.embeddings)
    assert torch.equal(RunFolder(tmp_path).rows("before", "test").fine_labels, two.fine_labels)
    with pytest.raises(NotMeasuredError, match="of the split 'other'"):
        RunFolder(tmp_path).rows("before", "other")
    path = tmp_path / "embeddings-before.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DamagedFileError, match=r"embeddings-before\.safetensors is damaged"):
        RunFolder(tmp_path).rows("before", "val")


def test_samples_without_pictures_are_kept_without_them(tmp_path):
    near = torch.tensor([[1, 2], [0, 2]])
    sample = Samples(torch.tensor([0, 1]), near, torch.arange(3), None)
    write_tensors(tmp_path / "samples.safetensors", 4, {"test": sample})
    found = RunFolder(tmp_path).samples("test")
    assert found.pixels is None
    assert torch.equal(found.neighbours, near)
