"""The callbacks against the real packages; each is skipped where its package is not installed."""

import importlib

import pytest
import torch
from torch import nn

from uncollapse._base.extras import MissingExtraError
from uncollapse.health import CollapseMonitor
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner

_BATCHES = 30


def _data():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(48) % 6
    means = torch.randn(6, 16, generator=generator)
    noise = (torch.randn(48, 16, generator=generator) for _ in range(_BATCHES))
    return [(means[labels] + 2 * rows, labels) for rows in noise]


def _shrink(model):
    """What a collapsing run does to its weights, in a hurry."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning_trainer_feeds_and_saves_the_monitor(tmp_path):
    from uncollapse.integrations.lightning import CollapseCallback, _installed

    if not _installed:
        pytest.skip("needs lightning or pytorch_lightning")
    pl = importlib.import_module(_installed[0])

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(16, 8)
            self.loss_fn = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))

        def training_step(self, batch, step):
            z = self.net(batch[0])
            _shrink(self.net)
            return {"loss": self.loss_fn(z, batch[1]), "embeddings": z, "labels": batch[1]}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-6)

    def fit(monitor, epochs, checkpoint=None):
        quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        options = {"default_root_dir": tmp_path, "accelerator": "cpu"} | dict.fromkeys(quiet, False)
        callback = CollapseCallback(monitor, log_every=1)
        trainer = pl.Trainer(max_epochs=epochs, callbacks=[callback], **options)
        loader = torch.utils.data.DataLoader(_data(), batch_size=None)
        trainer.fit(Module(), loader, ckpt_path=checkpoint)
        if checkpoint is None:  # a tenth of the run's time, whose steps the trainer knows
            assert callback.watch.guard._state.race_left == pytest.approx(0.07 * _BATCHES)
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer_feeds_the_monitor(tmp_path):
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from uncollapse.integrations.huggingface import CollapseCallback

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(16, 8)

        def forward(self, x, labels):
            z = self.net(x)
            _shrink(self.net)
            return {
                "loss": TripletLoss(margin=0.2, miner=Miner("hard", "hard"))(z, labels),
                "embeddings": z,
            }

    rows = [{"x": x, "labels": int(y)} for xs, ys in _data() for x, y in zip(xs, ys, strict=True)]
    monitor = CollapseMonitor(look_every=1)
    options = {"save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    options |= {"per_device_train_batch_size": 48, "num_train_epochs": 1, "logging_steps": 5}
    arguments = transformers.TrainingArguments(str(tmp_path), learning_rate=1e-6, **options)
    callback = CollapseCallback(monitor)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=rows, callbacks=[callback])
    trainer.train()
    assert callback.watch.guard._state.race_left == pytest.approx(0.07 * _BATCHES)
    assert monitor.verdict == "network-collapse"
    assert monitor.health.step == _BATCHES
    assert trainer.state.log_history[0]["collapse/diameter"] > 0
    assert not trainer.model._forward_hooks


@pytest.mark.parametrize("module", ["lightning", "huggingface"])
def test_a_missing_package_is_named(module):
    home = importlib.import_module(f"uncollapse.integrations.{module}")
    if home._installed:
        pytest.skip("its package is installed")
    with pytest.raises(MissingExtraError, match=module):
        home.CollapseCallback()
