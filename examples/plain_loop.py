"""Watch a loop of your own: batch-hard mining falls to a point, and a rescue ends well.

    python examples/plain_loop.py

Model, data and optimizer are yours; the only line added is `uc.watch`.
"""

import torch

import uncollapse as uc


def train(action: str, steps: int = 200) -> uc.Health:
    torch.manual_seed(0)
    labels = torch.arange(128) // 16  # eight classes that overlap
    centres = 0.7 * torch.randn(8, 16)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    criterion = uc.TripletLoss(margin=0.2, miner=uc.Miner("hard", "hard"))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with uc.watch(model, criterion, optimizer, action=action, steps=steps, on_event=print) as watch:
        for _ in range(steps):
            loss = criterion(model(centres[labels] + torch.randn(128, 16)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch.health


if __name__ == "__main__":
    for action in ("warn", "rescue"):
        print(f"action = {action!r}")
        print(f"ends {train(action).verdict}\n")
