"""Watch a Lightning run with a callback.

pip install 'uncollapse[lightning]'
python examples/lightning_callback.py
"""

import lightning
import torch

import uncollapse as uc
from uncollapse.integrations.lightning import CollapseCallback


class Embedder(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
        )
        self.criterion = uc.TripletLoss(margin=0.2, miner=uc.Miner("hard", "hard"))

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.net(samples)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        samples, labels = batch
        return self.criterion(self(samples), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-2)


def main() -> None:
    lightning.seed_everything(0)
    labels = torch.arange(4096) % 8
    samples = 0.7 * torch.randn(8, 16)[labels] + torch.randn(4096, 16)
    data = torch.utils.data.TensorDataset(samples, labels)
    callback = CollapseCallback(action="rescue", on_event=print)
    trainer = lightning.Trainer(
        max_epochs=4,
        callbacks=[callback],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Embedder(), torch.utils.data.DataLoader(data, 128, shuffle=True))
    print(f"ends {callback.watch.health.verdict}")


if __name__ == "__main__":
    main()
