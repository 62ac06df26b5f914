"""Health: cost of a watch, verdicts on known states beside the usual figures, drift, training.

python benchmarks/health.py              cost, delay, known states and the table of figures
python benchmarks/health.py --watch      cost alone
python benchmarks/health.py --measure    what `measure` costs where classes have merged
python benchmarks/health.py --drift      drift of every loss with every miner
python benchmarks/health.py --training   the monitor on Omniglot letters (UNCOLLAPSE_DATA)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from _drift_table import DriftRow, drift_table
from _timing import interleaved, one_thread
from uncollapse.backbones import build
from uncollapse.backbones.networks import Conv2
from uncollapse.data import LabelledImages, load
from uncollapse.health import CollapseMonitor, Guard, RunSettings, Watch, measure
from uncollapse.losses import TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.mining import Miner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.known_states import known_states

DELAY_BAR = 30
DIMS = (2, 4, 16, 64, 256, 1024)
SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)
DTYPES = (torch.float32, torch.bfloat16)
COLLAPSING = (
    ("hard x hard, margin 0.2", 18, 8, TripletLoss(margin=0.2, miner=Miner("hard", "hard"))),
    ("hard x hard, margin 0", 18, 8, TripletLoss(margin=0.0, miner=Miner("hard", "hard"))),
    (
        "hard x hard, softplus",
        18,
        8,
        TripletLoss(margin=0.0, miner=Miner("hard", "hard"), soft=True),
    ),
)
SURVIVING = (
    ("hard x hard, margin 0.2", 4, 4, TripletLoss(margin=0.2, miner=Miner("hard", "hard"))),
    ("easy x hard, margin 0.2", 18, 8, TripletLoss(margin=0.2, miner=Miner("easy", "hard"))),
    (
        "hard x semihard, margin 0.2",
        18,
        8,
        TripletLoss(margin=0.2, miner=Miner("hard", "semihard")),
    ),
    (
        "hard x hard, scale-free",
        18,
        8,
        TripletLoss(margin=0.2, miner=Miner("hard", "hard"), scale_free=True),
    ),
)


def cost() -> bool:
    """Share of a training step that a watch takes, beside looking at every step by hand.

    Batches of 128 rows. The network itself is timed alone; what watches it is timed in the same
    loop around a network that repeats its output, so that a large one need not run so often.
    """
    torch.manual_seed(0)
    images = torch.rand(128, 3, 32, 32)
    features = torch.rand(128, 1024)
    head = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 128))
    settings = (
        ("ResNet-18, 32 x 32", build("resnet18", dim=128, shape=(3, 32, 32)), images, 0.01),
        ("conv2, 32 x 32", nn.Sequential(Conv2(3), nn.Linear(Conv2.features, 128)), images, 0.01),
        ("head on 1,024 features", head, features, 0.05),
        ("linear layer", nn.Linear(1024, 128), features, None),
    )
    print("| network | step, ms | watch | watch, rescue | monitor, each step | guard, each step |")
    print("|---|---|---|---|---|---|")
    within = []
    for name, model, inputs, bar in settings:
        step = interleaved({"step": partial(_step, model, inputs)}, rounds=3)["step"]
        shares = [_watching(model, inputs, how) / step for how in HOWS]
        print(f"| {name} | {step * 1e3:.1f} | " + " | ".join(f"{x:.2%}" for x in shares) + " |")
        within.append(bar is None or shares[0] <= bar)
    print(f"bar 1 %, of a head 5 %: {'pass' if all(within) else 'MISS'}")
    return all(within)


HOWS = ("watch", "rescue", "monitor", "guard")
LABELS = torch.arange(128) // 8


class Repeated(nn.Module):
    """A network's parameters, and an output that costs nothing."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.output = nn.Parameter(torch.randn(128, 128))

    def forward(self, inputs: Tensor) -> Tensor:
        """The same rows, whatever is given."""
        return self.output * 1.0


def _step(model: nn.Module, inputs: Tensor, loss_fn: nn.Module | None = None) -> None:
    loss_fn = loss_fn or TripletLoss(margin=0.2, miner=Miner("easy", "hard"))
    optimizer = torch.optim.Adam(model.parameters())
    loss_fn(model(inputs), LABELS).backward()
    optimizer.step()


def _watching(network: nn.Module, inputs: Tensor, how: str, steps: int = 200) -> float:
    """Seconds of a step that go into watching: the loop's time with it, less without it."""
    model = Repeated(network)
    loss_fn = TripletLoss(margin=0.2, miner=Miner("easy", "hard"))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    watch = monitor = guard = None
    if how in ("watch", "rescue"):
        watch = Watch(model, loss_fn, optimizer, action="warn" if how == "watch" else how)
        watch.step = 1000  # past the first steps, which are all looked at
    elif how == "monitor":
        monitor = CollapseMonitor(loss_fn)
    else:
        guard = Guard(model, optimizer, loss_fn)

    def loop() -> None:
        for _ in range(steps):
            z = model(inputs)
            loss = loss_fn(z, LABELS)
            loss.backward()
            optimizer.step()
            if monitor is not None:
                monitor.update(z, LABELS, loss)
            if guard is not None:
                guard.after_step(z, LABELS, loss)

    def alone() -> None:
        if watch is not None:
            watch.close()
        nonlocal monitor, guard
        monitor = guard = None
        loop()

    watched = interleaved({"loop": loop}, rounds=3)["loop"]
    return (watched - interleaved({"alone": alone}, rounds=3)["alone"]) / steps


def delay(onset: int = 203) -> bool:
    """Updates from the onset of class collapse to the warning, by the shape of a batch."""
    late = []
    for p, k in ((18, 8), (2, 60), (2, 2), (40, 2)):
        monitor, generator = CollapseMonitor(), torch.Generator().manual_seed(0)
        means = torch.randn(40, 64, generator=generator)
        for step in range(onset + 200):
            labels = torch.randperm(40, generator=generator)[:p].repeat_interleave(k)
            inside = 0.5 if step < onset else 1e-3
            z = means[labels] + inside * torch.randn(p * k, 64, generator=generator)
            monitor.update(z, labels, step=step)
        late.append(monitor.changes[0][0] - onset if monitor.changes else onset)
        print(f"class collapse, P{p} K{k}: said {late[-1]} updates after its onset")
    return max(late) <= DELAY_BAR


def verdicts(seeds: int = 10) -> bool:
    """Every known state, all dimensions, scales, dtypes and seeds."""
    right, wrong = Counter[str](), Counter[str]()
    for dim in DIMS:
        for scale in SCALES:
            for dtype in DTYPES:
                for seed in range(seeds):
                    for state in known_states(dim, scale, dtype, seed):
                        found = measure(
                            state.embeddings,
                            state.labels,
                            reference=state.reference,
                            modes=False,
                            cosine=state.cosine,
                        )
                        (right if found.verdict == state.verdict else wrong)[state.name] += 1
    total = sum(right.values()) + sum(wrong.values())
    print(f"\nknown states: {sum(right.values())} of {total} right; wrong: {dict(wrong) or 0}")
    return not wrong


def usual_figures(z: Tensor) -> tuple[float, float, float, float]:
    """RankMe, std of normalised rows (1/sqrt(d) is ideal), first PCA fraction, uniformity."""
    x = z.double()
    values = torch.linalg.svdvals(x)
    shares = values / values.sum()
    rank = float(torch.exp(-(shares * (shares + 1e-12).log()).sum()))
    unit = nn.functional.normalize(x, dim=1)
    std = float(unit.std(0).mean()) * x.shape[1] ** 0.5
    variance = torch.linalg.svdvals(x - x.mean(0)).square()
    squares = torch.pdist(unit).square()
    return rank, std, float(variance[0] / variance.sum()), float((-2 * squares).exp().mean().log())


def table(dim: int = 64) -> None:
    """The usual figures of collapse beside ours, on the same states."""
    print(f"\n{dim} dimensions, float32, seed 0\n")
    print("| state | RankMe | std·√d | PCA | uniformity | diameter | verdict |")
    print("|---|---|---|---|---|---|---|")
    for state in known_states(dim):
        rank, std, first, uniform = usual_figures(state.embeddings)
        found = measure(
            state.embeddings,
            state.labels,
            reference=state.reference,
            modes=False,
            cosine=state.cosine,
        )
        print(
            f"| {state.name} | {rank:.1f} | {std:.2f} | {first:.2f} | {uniform:.2f} "
            f"| {found.diameter:.2g} | {found.verdict} |"
        )


def drifts() -> None:
    """Every loss with every miner on one batch of digits through an untrained network."""
    data = load("digits")
    torch.manual_seed(0)
    model = nn.Sequential(Conv2(1), nn.Linear(Conv2.features, 64))
    rows = torch.cat([(data.labels == c).nonzero().flatten()[:12] for c in range(6)])
    images, labels = data[rows]
    with torch.no_grad():
        z = model(images)
    found = drift_table(z, labels)
    for modes in (False, True):
        for name in dict.fromkeys(row.loss for row in found):
            print_drifts(name, [row for row in found if row.loss == name], modes=modes)


def print_drifts(name: str, rows: list[DriftRow], *, modes: bool = False) -> None:
    """Positives down, negatives across: the drift of each, or its mode drift."""

    def shown(row: DriftRow) -> str:
        return f"{row.modes.value if modes else row.drift.value:+.3f}"

    negatives = list(dict.fromkeys(row.negatives for row in rows if row.negatives))
    print(f"\n**{name}**{', mode drift' * modes} (without a miner: {shown(rows[0])})\n")
    print("| positives | " + " | ".join(negatives).replace("_", "-") + " |")
    print("|---" * (len(negatives) + 1) + "|")
    values = {(row.positives, row.negatives): shown(row) for row in rows}
    for positive in dict.fromkeys(row.positives for row in rows if row.positives):
        cells = (values[positive, negative] for negative in negatives)
        print(f"| {positive.replace('_', '-')} | " + " | ".join(cells) + " |")


def merged(bar: float = 3.0) -> bool:
    """CPU seconds of `measure` on 2,000 x 64 rows, with modes and without."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2000, 64, generator=generator)
    lumps = torch.randn(10, 64, generator=generator)
    tails = rows / torch.rand(2000, 1, generator=generator)
    kinds = {
        "ten lumps, labels at random": 5 * lumps[torch.arange(2000) * 7919 % 10] + rows,
        "four lumps that classes share": 5 * lumps[torch.arange(2000) // 7 % 4] + 0.01 * rows,
        "a point": 1 + 1e-7 * rows,
        "mostly zeros": (rows - 2).clamp(min=0),
        "heavy tails": 1e-4 * tails,
    }
    measure(rows, torch.arange(2000) % 10)  # what loads once
    good = True
    for classes in (2, 10, 100, 1000):
        labels = torch.randperm(2000, generator=generator) % classes
        for name, z in kinds.items():
            seconds = []
            for modes in (False, True):
                start = time.process_time()
                verdict = measure(z, labels, modes=modes).verdict
                seconds.append(time.process_time() - start)
            good &= seconds[1] <= bar
            line = f"{classes:5d} classes, {name:30s} {seconds[0]:5.2f} s without modes"
            print(f"{line}, {seconds[1]:5.2f} s with ({verdict})", flush=True)
    return good


def training(seeds: int, steps: int) -> bool:
    """The monitor on letters: its verdict against the step at which R@1 reaches chance."""
    data, test = (load("omniglot", split=split, size=32) for split in ("train", "test"))
    first = test.fine_labels < test.fine_labels.min() + 20
    images, letters = test[first.nonzero().flatten()][0], test.fine_labels[first]
    ok = True
    for settings, collapses in ((COLLAPSING, True), (SURVIVING, False)):
        for name, p, k, loss_fn in settings:
            for seed in range(seeds):
                run = list(_run(data, images, letters, loss_fn, p, k, seed, steps))
                monitor, scores = run[-1][2], [(step, score) for step, score, _ in run]
                lost = next((step for step, score in scores if score <= 0.05), None)
                alarm = next(
                    (step for step, verdict in monitor.changes if verdict != "healthy"), None
                )
                as_said = (lost is not None) == collapses and (alarm is not None) == collapses
                in_time = lost is None or (alarm is not None and alarm < lost)
                ok &= as_said and in_time
                print(
                    f"{name:30} P{p} K{k} seed {seed}: R@1 {scores[0][1]:.2f} -> "
                    f"{scores[-1][1]:.2f}, chance at {lost}, verdicts {monitor.changes} "
                    f"{'pass' if as_said and in_time else 'MISS'}",
                    flush=True,
                )
    return ok


def _run(
    data: LabelledImages,
    images: Tensor,
    letters: Tensor,
    loss_fn: TripletLoss,
    p: int,
    k: int,
    seed: int,
    steps: int,
) -> Iterator[tuple[int, float, CollapseMonitor]]:
    torch.manual_seed(seed)
    model = nn.Sequential(Conv2(1), nn.Linear(Conv2.features, 64))
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    monitor = CollapseMonitor(loss_fn, settings=RunSettings(lr=1e-3))
    rows = [(data.fine_labels == c).nonzero().flatten() for c in data.fine_labels.unique()]
    for step in range(steps):
        classes = torch.randperm(len(rows))[:p].tolist()
        batch = torch.cat([rows[c][torch.randperm(len(rows[c]))[:k]] for c in classes])
        z, labels = model(data[batch][0]), data.fine_labels[batch]
        loss = loss_fn(z, labels)
        monitor.update(z, labels, loss, step)
        if step % 2 == 0 if step < 40 else step % 20 == 0 or step == steps - 1:
            with torch.no_grad():
                score = retrieval(model(images), letters, ks=(1,), progress=False).recall[1]
            yield step, score, monitor
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--drift", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    chosen = parser.parse_args()
    one_thread()
    if chosen.watch:
        return 0 if cost() else 1
    if chosen.measure:
        return 0 if merged() else 1
    if chosen.drift:
        drifts()
        return 0
    if chosen.training:
        return 0 if training(chosen.seeds, chosen.steps) else 1
    table()
    return 0 if all([cost(), delay(), verdicts()]) else 1


if __name__ == "__main__":
    sys.exit(main())
