"""The callbacks against the real packages; each is skipped where its package is not installed."""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from uncollapse._base.extras import MissingExtraError
from uncollapse.health import CollapseMonitor, measure
from uncollapse.health.loggers import TensorBoardLogger, log_health
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

_BATCHES = 30


def _data() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(48) % 6
    means = torch.randn(6, 16, generator=generator)
    noise = (torch.randn(48, 16, generator=generator) for _ in range(_BATCHES))
    return [(means[labels] + 2 * one, labels) for one in noise]


def _shrink(step: int, model: nn.Linear) -> None:
    """What a collapsing run does to its weights, in a hurry."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)


def test_tensorboard_gets_every_scalar(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

    health = measure(torch.zeros(4, 2), [0, 0, 1, 1])
    with SummaryWriter(str(tmp_path)) as writer:  # type: ignore[no-untyped-call]
        log_health(TensorBoardLogger(writer=writer), health, step=3)
    read = EventAccumulator(str(tmp_path)).Reload()
    tags = read.Tags()["scalars"]
    assert set(tags) == {f"collapse/{name}" for name in health.scalars()}
    assert [(e.step, e.value) for e in read.Scalars("collapse/verdict")] == [(3, 2.0)]
    assert "collapse/verdict/text_summary" in read.Tags()["tensors"]


@pytest.mark.filterwarnings("ignore")
def test_lightning_trainer_feeds_and_saves_the_monitor(tmp_path: Path) -> None:
    packages = [n for n in ("lightning", "pytorch_lightning") if importlib.util.find_spec(n)]
    if not packages:
        pytest.skip("needs lightning or pytorch_lightning")
    name = "lightning.pytorch" if packages[0] == "lightning" else "pytorch_lightning"
    pl = importlib.import_module(name)
    from uncollapse.health.lightning import CollapseCallback

    class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(16, 8)
            self.loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))

        def training_step(self, batch: tuple[Tensor, Tensor], step: int) -> dict[str, Tensor]:
            z = self.net(batch[0])
            _shrink(step, self.net)
            return {"loss": self.loss_fn(z, batch[1]), "embeddings": z, "labels": batch[1]}

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-6)

    def fit(monitor: CollapseMonitor, epochs: int, checkpoint: str | None = None) -> Any:
        trainer = pl.Trainer(
            max_epochs=epochs,
            callbacks=[CollapseCallback(monitor, log_every=1)],
            default_root_dir=tmp_path,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader = torch.utils.data.DataLoader(_data(), batch_size=None)
        trainer.fit(Module(), loader, ckpt_path=checkpoint)
        return trainer

    first = CollapseMonitor()
    trainer = fit(first, 1)
    assert first.verdict == "network-collapse"
    assert trainer.callback_metrics["collapse/verdict"] == 2.0
    trainer.save_checkpoint(tmp_path / "run.ckpt", weights_only=False)
    second = CollapseMonitor()
    fit(second, 2, str(tmp_path / "run.ckpt"))
    assert repr(second.reference) == repr(first.reference)  # NaN is not equal to itself
    assert second.changes[: len(first.changes)] == first.changes


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer_feeds_the_monitor(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from uncollapse.health.huggingface import CollapseCallback

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(16, 8)

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            z = self.net(x)
            _shrink(0, self.net)
            return {
                "loss": TripletLoss(margin=0.2, miner=Miner("hard", "hard"))(z, labels),
                "embeddings": z,
            }

    rows = [{"x": x, "labels": int(y)} for xs, ys in _data() for x, y in zip(xs, ys, strict=True)]
    monitor = CollapseMonitor()
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=48,
        num_train_epochs=1,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        learning_rate=1e-6,
    )
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=rows, callbacks=[CollapseCallback(monitor)]
    )
    trainer.train()
    assert monitor.verdict == "network-collapse"
    assert monitor.health is not None
    assert monitor.health.step == _BATCHES
    assert trainer.state.log_history[0]["collapse/diameter"] > 0
    assert not trainer.model._forward_hooks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("texts", [1, 2])
def test_sentence_transformers_trainer_feeds_the_monitor(tmp_path: Path, texts: int) -> None:
    st = pytest.importorskip("sentence_transformers")
    losses = importlib.import_module("sentence_transformers.losses")
    datasets = pytest.importorskip("datasets")
    from uncollapse.health.huggingface import CollapseCallback

    class Letters(nn.Module):
        """Counts letters: a text encoder that needs no download."""

        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(26, 8)

        def tokenize(self, given: list[str], **_: Any) -> dict[str, Tensor]:
            counts = [[float(text.count(chr(97 + i))) for i in range(26)] for text in given]
            return {"input_ids": torch.tensor(counts)}

        preprocess = tokenize

        def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
            return {**features, "sentence_embedding": self.net(features["input_ids"])}

    model = st.SentenceTransformer(modules=[Letters()])
    names = ["apple pie", "zebra", "quick fox", "lazy dog", "jumble", "vortex"] * 16
    if texts == 1:
        columns = {"text": names, "label": [i % 6 for i in range(len(names))]}
        loss = losses.BatchAllTripletLoss(model)
    else:
        columns = {"anchor": names, "positive": [name + " s" for name in names]}
        loss = losses.MultipleNegativesRankingLoss(model)
    monitor = CollapseMonitor()
    arguments = st.SentenceTransformerTrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=24,
        num_train_epochs=2,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = st.SentenceTransformerTrainer(
        model,
        arguments,
        train_dataset=datasets.Dataset.from_dict(columns),
        loss=loss,
        callbacks=[CollapseCallback(monitor, loss=loss)],
    )
    trainer.train()
    assert monitor.health is not None
    assert monitor.health.step == 8
    assert monitor.health.n == 24 * texts
    assert len(monitor.health.classes) >= 6
    assert math.isfinite(trainer.state.log_history[0]["collapse/diameter"])


@pytest.mark.parametrize(
    ("module", "package"), [("lightning", "lightning"), ("huggingface", "transformers")]
)
def test_a_missing_package_is_named(module: str, package: str) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    home = importlib.import_module(f"uncollapse.health.{module}")
    with pytest.raises(MissingExtraError, match=package):
        home.CollapseCallback()
