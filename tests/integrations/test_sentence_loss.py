"""Our losses in sentence-transformers' own trainer; skipped where it is not installed."""

import importlib
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import uncollapse as uc
from support.errors import refused
from uncollapse.integrations import SentenceLoss
from uncollapse.integrations.huggingface import CollapseCallback
from uncollapse.losses import ColumnLoss, MultipleNegativesRankingLoss, ProxyNCALoss, TripletLoss
from uncollapse.mining import Miner

st = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORDS = ["apple pie", "zebra", "quick fox", "lazy dog", "jumble", "vortex", "ink", "wavy"]


class Letters(nn.Module):
    """Counts letters: a text encoder that needs no download."""

    def __init__(self, unit=False):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 8))
        self.unit = unit

    def tokenize(self, given, **_):
        counts = [[float(text.count(chr(97 + i))) for i in range(26)] for text in given]
        return {"input_ids": torch.tensor(counts)}

    preprocess = tokenize

    def forward(self, features):
        features["token_embeddings"] = features["input_ids"]  # as theirs do: into what is given
        z = self.net(features["input_ids"])
        features["sentence_embedding"] = functional.normalize(z, dim=1) if self.unit else z
        return features


def network(seed=0, unit=False):
    torch.manual_seed(seed)
    return st.SentenceTransformer(modules=[Letters(unit)], device="cpu")


def network_with(inner, **options):
    """A network and a loss of ours around it."""
    model = network(unit=options.pop("unit", False))
    return model, SentenceLoss(model, inner, **options)


def texts(rows=96):
    generator = torch.Generator().manual_seed(0)
    tails = torch.randint(97, 123, (rows, 6), generator=generator)
    names = [f"{WORDS[i % 8]} {''.join(map(chr, tail))}" for i, tail in enumerate(tails.tolist())]
    return {"text": names, "label": [i % 8 for i in range(rows)]}


def tuples(columns, rows=96):
    names = ["anchor", "positive", "negative", "other"][:columns]
    every = texts(rows)["text"]
    return {
        name: [text + " " + WORDS[k] for text in every[k:] + every[:k]]
        for k, name in enumerate(names)
    }


def fitted(folder, model, loss, data, **options):
    resume = options.pop("resume", None)
    callbacks = options.pop("callbacks", [loss])
    evaluation = options.pop("eval_dataset", None)
    known = {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    known |= {"per_device_train_batch_size": 24, "max_steps": 8, "logging_steps": 2}
    trainer = st.SentenceTransformerTrainer(
        model,
        st.SentenceTransformerTrainingArguments(str(folder), **{**known, **options}),
        train_dataset=datasets.Dataset.from_dict(data) if type(data) is dict else data,
        eval_dataset=evaluation,
        loss=loss,
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def their_loss(name, model):
    return getattr(importlib.import_module("sentence_transformers.losses"), name)(model)


def watched(loss):
    """The guard of a loss that was trained, and the health it last saw."""
    return loss.guard, loss.guard.monitor.health


def most_rows_of_a_class(monitor):
    _, labels = monitor.recent.rows()
    return int(max(torch.bincount(torch.as_tensor(labels))))


def test_another_package_s_loss_is_rescued_or_left_alone(tmp_path):
    pml = pytest.importorskip("pytorch_metric_learning.losses")
    model, loss = network_with(pml.TripletMarginLoss(), action="rescue")
    trainer = fitted(tmp_path, model, loss, texts(), max_steps=40)
    assert trainer.state.global_step == 40
    assert watched(loss)[1].n == 24


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_labels_pairs_and_triplets_are_trained_and_watched(tmp_path, columns):
    model, loss = network_with(TripletLoss(margin=0.5, miner=Miner("hard", "hard")))
    before = model[0].net[0].weight.detach().clone()
    trainer = fitted(tmp_path, model, loss, texts() if columns == 1 else tuples(columns))
    assert not torch.equal(before, model[0].net[0].weight)
    guard, health = watched(loss)
    assert (health.step, health.n) == (8, 24 * columns)
    assert trainer.state.log_history[0]["collapse/diameter"] > 0
    assert guard.monitor.settings.positives == "hard"


@pytest.mark.parametrize("columns", [2, 3])
def test_training_is_as_with_sentence_transformers_own_loss(tmp_path, columns):
    (model, loss), other = network_with(MultipleNegativesRankingLoss()), network()
    fitted(tmp_path, model, loss, tuples(columns), learning_rate=1e-2)
    loss = their_loss("MultipleNegativesRankingLoss", other)
    fitted(tmp_path, other, loss, tuples(columns), learning_rate=1e-2, callbacks=[])
    for ours, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_micro_batches_are_judged_together_and_pairs_stay_apart(tmp_path):
    model, loss = network_with(MultipleNegativesRankingLoss())
    fitted(tmp_path, model, loss, tuples(2), gradient_accumulation_steps=2, max_steps=4)
    guard, health = watched(loss)
    assert (health.step, health.n) == (4, 96)
    assert most_rows_of_a_class(guard.monitor) == 2


def test_evaluation_is_not_watched(tmp_path):
    model, loss = network_with(TripletLoss(margin=0.5), action="rescue")
    data = datasets.Dataset.from_dict(texts())
    options = {"eval_dataset": data, "eval_strategy": "steps", "eval_steps": 2}
    trainer = fitted(tmp_path, model, loss, data, **options)
    assert any("eval_loss" in line for line in trainer.state.log_history)
    assert watched(loss)[0].monitor._counts.step == 8


HARD = {"learning_rate": 3e-2, "max_steps": 150, "per_device_train_batch_size": 48}


def noise(rows=480):
    """Texts that say little of their labels: batch-hard shrinks these to a point."""
    generator = torch.Generator().manual_seed(1)
    tails = torch.randint(97, 123, (rows, 12), generator=generator).tolist()
    return {
        "text": ["".join(map(chr, tail)) for tail in tails],
        "label": [i % 6 for i in range(rows)],
    }


@pytest.mark.parametrize("unit", [False, pytest.param(True, marks=pytest.mark.night)])
def test_a_run_that_degenerates_is_warned_of_stopped_and_rescued(tmp_path, unit):
    ends = {}
    for action in ("warn", "stop", "rescue"):
        events, hard = [], TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
        model, loss = network_with(hard, unit=unit, action=action, on_event=events.append)
        trainer = fitted(tmp_path / action, model, loss, noise(), **HARD)
        ends[action] = (watched(loss)[0], events, trainer.state.global_step)
    guard, events, steps = ends["warn"]
    assert steps == 150
    assert {event.kind for event in events} == {"warning"}
    assert guard.monitor.verdict in ("network-collapse", "cone")
    guard, events, steps = ends["stop"]
    assert guard.stopped
    assert steps < 150
    assert {event.kind for event in events} == {"warning", "stop"}
    guard, events, steps = ends["rescue"]
    assert steps == 150
    assert "rescue" in {event.kind for event in events}
    assert guard.monitor.verdict not in ("network-collapse", "cone", "shrinking")
    assert guard.strategy != guard.first
    assert events[0].race is not None  # chosen by trial, on the trainer's own batches


def test_a_rescue_s_rate_stays_under_the_schedule(tmp_path):
    events, hard = [], TripletLoss(margin=0.2, miner=Miner("hard", "hard"), scale_free=False)
    model, loss = network_with(_Breaks(hard), action="rescue", on_event=events.append)
    options = {"learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_steps": 9}
    trainer = fitted(tmp_path, model, loss, texts(), **options)
    assert [event.kind for event in events] == ["rescue"]
    assert loss.guard.lr_factor == pytest.approx(0.1)  # of the schedule's rate, for good
    rates = {line["learning_rate"] for line in trainer.state.log_history if "loss" in line}
    assert rates == {1e-2}  # which itself goes on as it was


class _Breaks(nn.Module):
    """A loss that is infinite once."""

    def __init__(self, loss):
        super().__init__()
        self.inner, self.calls = loss, 0

    def forward(self, z, labels):
        self.calls += 1
        value: Tensor = self.inner(z, labels)
        return value * float("inf") if self.calls == 5 else value


def test_a_resumed_run_goes_on_with_its_loss_monitor_and_guard(tmp_path):
    modules = importlib.import_module("sentence_transformers.sentence_transformer.modules")

    def parts():
        torch.manual_seed(0)
        bag = modules.BoW(vocab=sorted({word for text in WORDS for word in text.split()}))
        dense = modules.Dense(bag.get_embedding_dimension(), 8)
        model = st.SentenceTransformer(modules=[bag, dense], device="cpu")
        generator = torch.Generator().manual_seed(0)
        proxies = ProxyNCALoss(num_classes=8, dim=8, generator=generator)
        return model, SentenceLoss(model, proxies, action="rescue")

    options = {"save_strategy": "steps", "save_steps": 4, "learning_rate": 1e-2}
    model, whole = parts()
    fitted(tmp_path / "a", model, whole, texts(), **options)
    again, resumed = parts()
    checkpoint = tmp_path / "a" / "checkpoint-4"
    assert (checkpoint / "uncollapse.pt").is_file()
    fitted(tmp_path / "a", again, resumed, texts(), **options, resume=str(checkpoint))
    for ours, expected in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, expected)
    first, second = (watched(loss)[0].monitor for loss in (whole, resumed))
    assert first._counts.step == second._counts.step == 8
    assert repr(first.reference) == repr(second.reference)


def test_embeddings_that_are_lost_do_not_stop_a_rescued_run(tmp_path):
    events, calls = [], []
    model, loss = network_with(TripletLoss(margin=0.2), action="rescue", on_event=events.append)

    def spoil(module, given):
        calls.append(0)
        if len(calls) == 4:
            with torch.no_grad():
                module.net[0].weight.fill_(float("nan"))

    model[0].register_forward_pre_hook(spoil)
    fitted(tmp_path, model, loss, texts())
    assert [event.kind for event in events] == ["rescue"]
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_the_other_callback_works_with_it(tmp_path):
    model, loss = network_with(MultipleNegativesRankingLoss())
    callback = CollapseCallback(loss=loss)
    fitted(tmp_path, model, loss, tuples(2), callbacks=[callback])
    assert loss.guard is None  # not among the callbacks: a loss and no more
    assert most_rows_of_a_class(callback.monitor) == 2


@pytest.mark.parametrize("columns", [1, 2])
def test_the_other_callback_works_with_their_losses(tmp_path, columns):
    model = network()
    name = "BatchAllTripletLoss" if columns == 1 else "MultipleNegativesRankingLoss"
    loss = their_loss(name, model)
    callback = CollapseCallback(loss=loss)
    data = texts() if columns == 1 else tuples(2)
    trainer = fitted(tmp_path, model, loss, data, callbacks=[callback])
    health = callback.monitor.health
    assert (health.step, health.n) == (8, 24 * columns)
    assert len(health.classes) >= 6
    assert math.isfinite(trainer.state.log_history[0]["collapse/diameter"])


def test_a_batch_costs_what_the_loss_of_its_rows_does():
    model, loss = network_with(MultipleNegativesRankingLoss())
    features = [model[0].tokenize(column) for column in tuples(3, 8).values()]
    rows = [model(dict(column))["sentence_embedding"] for column in features]
    wanted = ColumnLoss(MultipleNegativesRankingLoss())(*uc.losses.join_columns(*rows))
    torch.testing.assert_close(loss(features), wanted)
    assert "sentence_embedding" not in features[0]  # nothing is kept alive by the batch


@pytest.mark.parametrize(("columns", "labels"), [(1, None), (2, torch.zeros(4))])
def test_labels_beside_columns_and_their_lack_are_refused(columns, labels):
    model, loss = network_with(TripletLoss())
    with refused("labels"):
        loss([model[0].tokenize(WORDS[:4])] * columns, labels)


def test_wrong_arguments_are_named(tmp_path):
    model, loss = network_with(TripletLoss())
    several = datasets.DatasetDict({name: datasets.Dataset.from_dict(texts()) for name in "ab"})
    with refused("train_dataset"):
        fitted(tmp_path, model, loss, several)
    with refused("action"):
        SentenceLoss(model, TripletLoss(), action="save")
    with refused("loss"):
        SentenceLoss(model, "triplet")
