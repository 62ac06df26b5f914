"""`uncollapse embed`: a trained run put to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse._base.check import InputError
from uncollapse.cli import options
from uncollapse.cli.printing import say, status, warn, warn_of_skipped

if TYPE_CHECKING:
    from torch import nn

    from uncollapse.data import LabelledImages
    from uncollapse.data.sources import Origin, Source
    from uncollapse.training import Run

_LONGEST = 1_000  # characters of a text that stand for it as its name


@options.grouped
def embed_command(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|BACKBONE",
            help="A run directory, or an untrained text backbone, sentence:NAME.",
        ),
    ],
    run_options: options.RunOptions,
    out: Annotated[Path, typer.Option(help="A .npz, .parquet or .safetensors file.")],
    images: Annotated[
        list[Path] | None, typer.Option(help="Image files or folders, instead of a split.")
    ] = None,
    texts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|DATASET",
            help="Texts, instead of a split: a .csv, .jsonl, .parquet or .txt file.",
        ),
    ] = None,
    split: options.SplitOption = None,
) -> None:
    """Embed images or texts, or a split of the run's dataset, into a file.

    The file keeps the names of the images or the texts, and for a split its labels, cameras where
    there are any, and the run's scale before training, which `uncollapse diagnose` compares with.
    """
    if is_backbone(run) and texts is None:
        raise InputError("--texts", "nothing", "a file or dataset of texts for this backbone")
    network = open_network(run, run_options, images=images)
    if network.on_texts:
        options.only_for("runs on images", "name texts with --texts", images=images)
    else:
        options.only_for("runs on texts", "name images with --images", texts=texts)
    from uncollapse.data.sources import write_embeddings

    files = [texts] if texts is not None else images
    data, name = load_samples(network, files, split, run_options.data_root)
    with status(f"embedding {len(data):,} samples"):
        source = embed_samples(network, data, name)
    path = write_embeddings(source, out)
    start = None if source.origin is None else source.origin.start
    scale = "" if start is None else f"; reference: {start}"
    say(f"wrote {len(data):,} embeddings to {path}: {network.about}{scale}")


@dataclass(frozen=True)
class Network:
    """The network of a `run` at a step, or a text backbone as it comes; `about` says which."""

    model: nn.Module
    about: str
    on_texts: bool
    run: Run | None = None
    step: int = 0
    shape: Sequence[int] = ()


def is_backbone(name: Path) -> bool:
    """Whether a text backbone is named where a run might be."""
    return str(name).startswith("sentence:")


def open_network(name: Path, run_options: options.RunOptions, **others: object) -> Network:
    """The last or best network of a run, or a text backbone, for which `others` are refused.

    A warning says where another checkpoint stands in for the one that was asked for.
    """
    if is_backbone(name):
        options.only_for(
            "runs",
            f"{name} is a backbone",
            best=run_options.best,
            trust=run_options.trust,
            **others,
        )
        from uncollapse.backbones import Embedder, Head
        from uncollapse.backbones.sentences import PREFIX, load_sentences

        trunk = load_sentences(str(name).removeprefix(PREFIX))
        model = Embedder(trunk, Head(trunk.features, None), trunk.features).eval()
        return Network(model, f"{name} as it comes", on_texts=True)
    options.must_exist(name)
    from uncollapse.training import Run
    from uncollapse.training.assemble import trains_on_texts

    run = Run.open(name, trust=run_options.trust)
    chosen = run.choose("best" if run_options.best else "last")
    for text in chosen.warnings:
        warn(text)
    shape = chosen.checkpoint.state["shape"]
    about, on_texts = f"network of step {chosen.step:,}", trains_on_texts(run.config)
    return Network(chosen.model, about, on_texts, run, chosen.step, shape)


def usual_split(run: Run) -> str:
    """The last split the run is evaluated on, or the one it is trained on."""
    splits = run.config.data
    return [splits.train_split, *splits.eval_splits][-1]


def load_samples(
    network: Network, files: Sequence[str | Path] | None, split: str | None, root: Path | None
) -> tuple[LabelledImages, str | None]:
    """Images or texts of these files, or a split of the run's dataset and its name."""
    if files and network.on_texts:
        return _load_texts(files, split, root), None
    assert network.run is not None  # backbones are for texts, and texts of files alone
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import images_of_files

    if files:
        return images_of_files(files, network.run), None
    name = split or usual_split(network.run)
    data = load_eval_data(network.run.config.with_root(root), name)
    warn_of_skipped(data, name)
    return data, name


def _load_texts(
    sources: Sequence[str | Path], split: str | None = None, root: Path | None = None
) -> LabelledImages:
    """The texts of a dataset or a labelled file, or those of several files without labels.

    All rows of a file unless a split is named; of a dataset the split `train`.
    """
    from uncollapse.data import DATASETS, describe, load
    from uncollapse.data.own import TEXT_TABLES, read_texts
    from uncollapse.data.readers import read_table

    first = Path(sources[0])
    if len(sources) == 1 and str(first) in DATASETS and not first.exists():
        if not describe(str(first)).texts:
            raise InputError("--texts", first, "a file of texts, or a dataset of texts")
        return load(str(first), root, split)
    is_table = len(sources) == 1 and first.suffix in TEXT_TABLES and first.is_file()
    if is_table and {"text", "label"} <= set(read_table(first, fill=True)):
        return load("texts", first, split or "all")
    if split is not None:
        raise InputError.conflict(f"--split {split}: only one file of texts with labels has splits")
    return unlabelled_texts([text for source in sources for text in read_texts(Path(source))])


def unlabelled_texts(texts: Sequence[str]) -> LabelledImages:
    """Texts as samples; their labels, all 0 and without a name, are not known."""
    import torch

    from uncollapse.data import LabelledImages
    from uncollapse.data.listing import TextSource

    return LabelledImages(TextSource(tuple(texts)), torch.zeros(len(texts), dtype=torch.long))


def embed_samples(network: Network, data: LabelledImages, split: str | None) -> Source:
    """Embeddings with names, and labels where they are known: of a split, or of labelled texts."""
    import numpy as np

    from uncollapse.data.sources import Source
    from uncollapse.training import embed
    from uncollapse.training.measures import name_labels

    points = embed(network.model, data).numpy()
    title = "the texts" if network.run is None else network.run.path.resolve().name
    origin = None if network.run is None else _origin(network.run, network.step, split)
    texts = data.texts()
    if texts is not None:
        names = np.array([text[:_LONGEST] for text in texts])
        labels = name_labels(data.labels, data.class_names) if data.class_names else None
        fine = data.fine_labels
        fines = None if fine is None else name_labels(fine, data.fine_names)
        return Source(points, labels, fines, names, origin, title=title)
    if data.files is not None:
        names = np.array(data.files)
    else:
        classes = [data.class_names.get(int(c), str(int(c))) for c in data.labels]
        names = np.array([f"{row} ({name})" for row, name in enumerate(classes)])
    if split is None:
        return Source(points, names=names, origin=origin, title=title)
    fines = None if data.fine_labels is None else data.fine_labels.numpy()
    cameras = {} if data.cameras is None else {"cameras": data.cameras.numpy()}
    labels = data.labels.numpy()
    return Source(points, labels, fines, names, origin, columns=cameras, title=title)


def _origin(run: Run, step: int, split: str | None) -> Origin:
    """Where rows come from, with the run's first scale; a warning where that is not known.

    Images of one's own get none: a few of them, or of another kind, say nothing about shrinking.
    """
    from uncollapse._base.files import DamagedFileError
    from uncollapse.data.sources import Origin
    from uncollapse.training import NotMeasuredError

    start = None
    try:
        start = None if split is None else run.measures().start(split)
    except (DamagedFileError, NotMeasuredError) as error:
        warn(f"{error}. The file holds no scale to compare with")
    return Origin(run.path.resolve().name, step, split, start, run.config.loss.normalizes)
