"""A run is measured once, by definitions that are written down; training does not notice."""

import itertools
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from support.configs import small_config
from support.runs import canonical, copy_of
from uncollapse.data import LabelledImages, TensorSource
from uncollapse.geometry import diameter, hard_mined_loss
from uncollapse.health import measure, mode_drift
from uncollapse.losses import SupConLoss, TripletLoss
from uncollapse.training import Run, measure_run, measurer, train
from uncollapse.training.assemble import build_loss, build_model, build_sampler, load_eval_data
from uncollapse.training.measurer import choose_samples, settled_copy, small_pictures
from uncollapse.training.session import Session

pytestmark = pytest.mark.slow

OFTEN = {"steps": 4, "evaluate_every": 2, "checkpoint_every": 2}
BASE = {"loss": {"margin": 0.3}, "mining": {"positives": "hard", "negatives": "hard"}}
TENSORS = ("embeddings-before", "embeddings-after", "samples")
FILES = ("measures.json", *(f"{name}.safetensors" for name in TENSORS))


def config(model=None, train=OFTEN, **changes):
    model = model or {"backbone": "mnist-cnn", "hidden": None}
    settings = {"evaluate": {"max_samples": 100, "ks": [1, 4]}, "train": OFTEN | train, **BASE}
    return small_config(model=model, **{**settings, **changes})


def files(run):
    return {name: (run.path / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(config(), tmp_path_factory.mktemp("measured") / "run")


def test_before_is_the_first_network_with_the_mean_statistics_of_its_first_batches(run):
    data = load_eval_data(run.config, "train")
    network = build_model(run.config, data.shape).train()
    rows = list(itertools.islice(build_sampler(run.config, data), 8))
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert norms
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # torch's own plain mean
    with torch.no_grad():
        batches = [network(data[batch][0]) for batch in rows]
        expected = network.eval()(load_eval_data(run.config, "test")[:][0])
    before = run.rows("before", "test")
    assert torch.equal(before.rows, torch.arange(599))
    torch.testing.assert_close(before.embeddings, expected, rtol=1e-5, atol=1e-6)
    measures = run.measures()
    assert measures.before.diameter == pytest.approx(diameter(expected), rel=1e-5)
    pairs = zip(batches, rows, strict=True)
    losses = [hard_mined_loss(z, data.labels[batch], 0.3) for z, batch in pairs]
    assert measures.before.batches.hard_mined_loss == pytest.approx(np.mean(losses), rel=1e-5)
    sizes = [diameter(z) for z in batches]
    assert measures.before.batches.diameter == pytest.approx(np.mean(sizes), rel=1e-5)
    assert measures.before.batches.anchors == 1.0
    hardest = measures.before.batches.hard_mined_loss
    assert measures.bound() == measures.before.diameter - 2 * hardest


def test_after_is_the_trained_network_judged_beside_its_start_and_as_logged(run):
    test = load_eval_data(run.config, "test")
    with torch.no_grad():
        expected = run.load_model()(test[:][0])
    found = run.rows("after", "test")
    torch.testing.assert_close(found.embeddings, expected, rtol=1e-5, atol=1e-6)
    measures = run.measures()
    assert measures.after.step == 4
    health = measures.after.splits["test"].health
    first = measures.before.splits["test"].health
    again = measure(found.embeddings, found.labels.numpy(), reference=first)
    assert health.diameter == again.diameter
    assert health.relative_diameter == again.relative_diameter
    assert health.verdict == again.verdict
    assert health.modes_per_class
    lines = [line for line in run.metrics() if "test/recall@1" in line]
    for moment, line in ((measures.before, lines[0]), (measures.after, lines[-1])):
        assert line.pop("step") == moment.step
        assert {f"test/{k}": v for k, v in moment.splits["test"].scores.items()} == line


def test_training_does_not_notice_that_it_is_measured(tmp_path):
    random = {"positives": "random", "negatives": "random"}
    bare = config(mining=random, data={"eval_splits": []})
    measured = train(bare, tmp_path / "measured")
    session = Session(bare, load_eval_data(bare, "train"))
    for _ in range(4):
        session.advance()
    last, _ = measured.checkpoints.load_last()
    for name, value in session.model.state_dict().items():
        assert torch.equal(last.weights[name], value)
    assert torch.equal(last.state["torch"], torch.get_rng_state())
    assert next(iter(measured.measures().splits)) == "train"  # it stands in for the others


def test_frozen_batch_norm_keeps_its_statistics():
    frozen = config(model={"backbone": "mnist-cnn", "hidden": None, "freeze_bn": True})
    data = load_eval_data(frozen, "train")
    model = build_model(frozen, data.shape).train()
    settled, _ = settled_copy(model, build_loss(frozen, data), frozen, data)
    for name, value in model.state_dict().items():
        assert torch.equal(settled.state_dict()[name], value)


def test_a_resumed_run_is_not_measured_twice_and_gives_the_same_files(tmp_path, monkeypatch):
    plain = Run.open(canonical("plain") / "run")
    half = Run.open(copy_of("half", tmp_path) / "run")
    assert half.measures().after is None
    first = (half.path / "embeddings-before.safetensors").stat().st_mtime_ns
    whole = train(plain.config, half.path, resume=True)
    assert (half.path / "embeddings-before.safetensors").stat().st_mtime_ns == first
    assert files(whole) == files(plain)
    # Killed after it was measured, before it could say so: it ends without measuring again.
    whole.summary_file.unlink()
    monkeypatch.setattr(measurer.Measurer, "_moment", None)
    assert train(plain.config, whole.path, resume=True).finished
    assert files(whole) == files(plain)


def test_an_old_run_is_measured_afterwards_or_at_its_end_the_same(run, tmp_path):
    old = Run(shutil.copytree(run.path, tmp_path / "old"))
    for name in FILES:
        (old.path / name).unlink()
    longer = Run(shutil.copytree(old.path, tmp_path / "longer"))
    measure_run(old)
    assert files(old) == files(run)
    train(config(train={"steps": 5}), longer.path, resume=True)
    assert longer.measures().after.step == 5
    before = run.rows("before", "test").embeddings
    assert torch.equal(longer.rows("before", "test").embeddings, before)


def test_rows_are_even_over_the_finest_labels_and_always_the_same():
    fine = torch.tensor([0] * 500 + [1] * 40 + [2] * 60)
    data = LabelledImages(TensorSource(torch.zeros(600, 2)), (fine > 0).long(), fine)
    rows = measurer.fixed_rows(data, 90)
    assert torch.bincount(fine[rows]).tolist() == [30, 30, 30]
    assert torch.equal(rows, measurer.fixed_rows(data, 90))
    assert torch.equal(measurer.fixed_rows(data), torch.arange(600))


def test_every_split_has_its_rows_and_a_loss_that_is_no_triplet_has_no_bound(tmp_path):
    loss, splits = {"name": "contrastive", "margin": 1.0}, {"eval_splits": ["test", "train"]}
    both = config({"backbone": "mlp"}, {"steps": 1}, loss=loss, data=splits, mining={})
    run = train(both, tmp_path / "run")
    measures = run.measures()
    assert list(measures.splits) == ["test", "train"]
    assert len(run.rows("after", "train").rows) == measures.splits["train"].rows == 1198
    assert measures.bound() is None
    assert measures.before.batches.drift is None
    assert measures.before.batches.loss > 0


def test_the_mode_drift_of_the_own_loss_is_measured_at_the_start_and_at_the_end(run, tmp_path):
    assert run.measures().before.batches.modes is None  # K = 3: a class shows no modes
    loss = {"name": "sup-con", "temperature": 0.2}
    given = config({"backbone": "mlp"}, {"steps": 2}, loss=loss, mining={}, batch={"k": 12})
    other = train(given, tmp_path / "run")
    data = load_eval_data(given, "train")
    network = build_model(given, data.shape).train()
    rows = list(itertools.islice(build_sampler(given, data), 8))
    with torch.no_grad():
        batches = [(network(data[batch][0]), data.label_index[batch]) for batch in rows]
    expected = mode_drift(SupConLoss(temperature=0.2), batches, normalize=True).value
    measures = other.measures()
    assert measures.before.batches.modes == pytest.approx(expected, rel=1e-4)
    assert measures.after.batches.modes not in (None, measures.before.batches.modes)


def test_a_uniform_batch_without_a_triplet_costs_nothing():
    uniform = config(batch={"sampler": "uniform", "size": 2})
    data = load_eval_data(uniform, "train")
    alone = LabelledImages(data.source, torch.arange(len(data)))
    model = build_model(uniform, data.shape).train()
    _, found = settled_copy(model, TripletLoss(margin=0.3), uniform, alone)
    assert (found.anchors, found.hard_mined_loss, found.loss, found.drift) == (0.0, 0.0, 0.0, 0.0)
    assert found.diameter > 0


def test_neighbours_are_the_nearest_rows_and_have_their_pictures(run):
    found, rows = run.samples("test"), run.rows("after", "test")
    assert found.queries.shape == (6,)
    distance = torch.cdist(rows.embeddings.double(), rows.embeddings.double())
    distance.fill_diagonal_(torch.inf)
    assert torch.equal(found.neighbours, distance.argsort(dim=1)[found.queries, :6])
    pixels = load_eval_data(run.config, "test").pixels(found.shown)
    assert torch.equal(found.pixels, pixels)
    assert set(found.queries.tolist()) | set(found.neighbours.flatten().tolist()) == set(
        found.shown.tolist()
    )


def test_pictures_are_bytes_of_a_bounded_size():
    large = torch.zeros(2, 3, 300, 150, dtype=torch.uint8)
    large[0] = 200
    small = small_pictures(large)
    assert (small.shape, small.dtype) == ((2, 3, 96, 48), torch.uint8)
    assert small[0].unique().tolist() == [200]
    stretched = small_pictures(torch.tensor([-1.0, 0.0, 3.0, 1.0]).view(1, 1, 2, 2))
    assert stretched.flatten().tolist() == [0, 64, 255, 128]
    bright = small_pictures(torch.full((1, 1, 2, 2), 0.5))
    assert bright.unique().tolist() == [128]


def test_samples_that_are_no_pictures_have_neighbours_only():
    data = LabelledImages(TensorSource(torch.randn(10, 5)), torch.arange(10) % 2)
    found = choose_samples(data, torch.randn(10, 2))
    assert found.pixels is None
    assert choose_samples(data.subset([0]), torch.zeros(1, 2)) is None
