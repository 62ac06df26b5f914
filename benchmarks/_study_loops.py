"""Loops that a user may write, watched by `uc.watch`: with a loss of ours, PML's or one's own.

Network, batches, rates and weights at the start are those of the engine's run. "views" has no
labels: two noisy views of each sample are a class, as in SimCLR.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import uncollapse as uc
from _study import Setting
from uncollapse.data import LabelledImages
from uncollapse.training.session import Session

__all__ = ["Loop"]

NOISE = 0.3  # of a view, in deviations of the batch


class Loop:
    """What the study needs of a session, made by hand."""

    def __init__(self, setting: Setting, train: LabelledImages) -> None:
        config = setting.config().with_changes({"guard": {"action": "off"}})
        self.session, self.setting = Session(config, train), setting
        own = {"pml": PMLBatchHard, "own": OwnBatchHard}.get(setting.loop)
        self.criterion = self.session.loss if own is None else own()
        self.model, self.step, self.stopped = self.session.model, 0, False
        self.guard: uc.Guard | None = None
        if setting.guard != "off":
            parts = self.model, self.criterion, self.session.optimizer
            self.watch = uc.watch(*parts, action=setting.guard, steps=setting.steps)
            self.guard = self.watch.guard

    def advance(self) -> dict[str, float]:
        """One step, and its loss."""
        session = self.session
        session.begin_step()  # the schedule
        images, rows = session.take_batch()
        labels = session.class_of[rows]
        if self.setting.loop == "views":
            images = torch.cat([images, images])
            images = images + NOISE * images.std() * torch.randn_like(images)
            labels = rows.repeat(2)
        self.step = session.step = session.step + 1
        z = self.model(images)
        if not bool(torch.isfinite(z).all()):
            events = self.guard.after_step(z, step=self.step) if self.guard else []
            return {} if any(event.kind == "rescue" for event in events) else {"loss": math.nan}
        loss = self.criterion(z, labels)
        session.optimizer.zero_grad()
        loss.backward()
        session.optimizer.step()
        self.stopped = self.guard is not None and self.guard.stopped
        return {"loss": float(loss.detach())}


class PMLBatchHard(nn.Module):
    """Batch-hard of pytorch-metric-learning, on directions, as it is by default."""

    def __init__(self) -> None:
        super().__init__()
        from pytorch_metric_learning.losses import TripletMarginLoss
        from pytorch_metric_learning.miners import BatchHardMiner

        self.loss, self.miner = TripletMarginLoss(margin=0.2), BatchHardMiner()

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(z, labels, self.miner(z, labels))
        return loss


class OwnBatchHard(nn.Module):
    """Batch-hard as one writes it."""

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        distance = torch.cdist(z, z)
        same = labels[:, None] == labels[None, :]
        near = distance.masked_fill(~same, 0.0).amax(1)
        far = distance.masked_fill(same, torch.inf).amin(1)
        return (near - far + 0.2).clamp(min=0.0).mean()
