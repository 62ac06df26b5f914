"""`uncollapse embed` and `uncollapse export`: use a trained network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import uncollapse as uc
from uncollapse._base.check import InputError
from uncollapse.cli import options
from uncollapse.cli.printing import say, status, warn, warn_of_skipped

if TYPE_CHECKING:
    from torch import nn

    from uncollapse.data.sources import Origin, Source

_LONGEST = 1_000  # characters of a text that stand for it as its name


@options.grouped
def command(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|BACKBONE",
            help="A run directory, or an untrained text backbone, sentence:NAME.",
        ),
    ],
    run_options: options.RunOptions,
    out: Annotated[Path, typer.Option(help="The file to write: .npz, .parquet or .safetensors.")],
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
) -> None:
    """Embed images, texts or a split of the run's dataset, and write them to a file.

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

    source = network.embed(*network.load(images if texts is None else [texts], run_options))
    path = write_embeddings(source, out)
    start = None if source.origin is None else source.origin.start
    scale = "" if start is None else f"; reference: {start}"
    say(f"wrote {len(source):,} embeddings to {path}: {network.about}{scale}")


def export_command(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path, typer.Option(help="The ONNX file.")] = Path("model.onnx"),
    best: Annotated[bool, typer.Option("--best", help="Use the best checkpoint.")] = False,
    trust: options.TrustOption = False,
) -> None:
    """Export the network to ONNX, and check that it computes the same."""
    network = open_network(run, options.RunOptions(best=best, trust=trust))
    from uncollapse.training.export import ExportError, export_onnx

    if network.on_texts:
        raise ExportError(f"{run} is a run on texts: only networks for images are exported to ONNX")
    difference = export_onnx(network.model, network.shape, out)
    say(f"wrote {out}: {network.about}; its outputs differ from torch's by {difference:.1e}")


def is_backbone(name: Path) -> bool:
    """Whether a text backbone is named where a run might be."""
    return str(name).startswith("sentence:")


@dataclass(frozen=True)
class Rows:
    """Embeddings, a line about the network that made them, and the pictures of some rows."""

    source: Source
    about: str = ""
    pictures: Callable[[Sequence[int]], Sequence[Any]] | None = None


def open_rows(
    path: Path,
    columns: options.Columns,
    run_options: options.RunOptions,
    images: Path | None = None,
) -> Rows:
    """The rows of a file, or the samples of a run's split; options for the other are refused."""
    if options.is_run(path):
        options.only_for_files(columns, images=images)
        network = open_network(path, run_options)
        return network.rows(*network.load(None, run_options))
    options.only_for("runs", f"{path.name} is a file of embeddings", run_options)
    source = options.open_file(path, columns)
    if images is None:
        return Rows(source)
    pictures = source.find_pictures(images)
    if len(pictures) != len(source):
        raise InputError("--images", f"{len(pictures)} images", f"{len(source)}, one for each row")
    return Rows(source, pictures=lambda rows: [pictures[row] for row in rows])


def open_network(name: Path, run_options: options.RunOptions, **others: object) -> Network:
    """The last or best network of a run, or a text backbone, for which `others` are refused.

    Warns if another checkpoint is used in place of the one asked for.
    """
    if is_backbone(name):
        of_runs = {"best": run_options.best, "trust": run_options.trust, **others}
        options.only_for("runs", f"{name} is a backbone", **of_runs)
        from uncollapse.backbones import Embedder, Head
        from uncollapse.backbones.sentences import PREFIX, load_sentences

        trunk = load_sentences(str(name).removeprefix(PREFIX))
        model = Embedder(trunk, Head(trunk.features, None), trunk.features).eval()
        return Network(model, f"{name}, not fine-tuned", on_texts=True)
    options.must_exist(name)
    run = uc.Run.open(name, trust=run_options.trust)
    chosen = run.choose("best" if run_options.best else "last")
    for text in chosen.warnings:
        warn(text)
    step, shape = chosen.checkpoint.step, chosen.checkpoint.state["shape"]
    on_texts = uc.training.assemble.trains_on_texts(run.config)
    return Network(chosen.model, f"network of step {step:,}", on_texts, run, step, shape)


@dataclass(frozen=True)
class Network:
    """The network of a `run` at a step, or a text backbone without a run; `about` says which."""

    model: nn.Module
    about: str
    on_texts: bool
    run: uc.Run | None = None
    step: int = 0
    shape: Sequence[int] = ()

    def load(
        self, files: Sequence[str | Path] | None, run_options: options.RunOptions
    ) -> tuple[uc.data.LabelledImages, str | None]:
        """Images or texts of these files, or a split of the run's dataset and its name."""
        if files and self.on_texts:
            return _load_texts(files, run_options.split, run_options.data_root), None
        assert self.run is not None  # backbones are for texts, and texts of files alone
        if files:
            return uc.training.evaluation.images_of_files(files, self.run), None
        name = run_options.split or usual_split(self.run)
        config = self.run.config.with_root(run_options.data_root)
        data = uc.training.assemble.load_eval_data(config, name)
        warn_of_skipped(data, name)
        return data, name

    def embed(
        self, data: uc.data.LabelledImages, split: str | None, *, by_name: bool = False
    ) -> Source:
        """Embeddings with names, and labels where they are known: of a split, or of texts.

        The labels of texts are words, those of a split numbers, or words too if `by_name`.
        """
        from uncollapse.data.sources import Source
        from uncollapse.training.measures import name_labels

        with status(f"embedding {len(data):,} samples"):
            source = Source(uc.embed(self.model, data).numpy(), title="the texts")
        if self.run is not None:
            origin = _origin(self.run, self.step, split)
            source = replace(source, origin=origin, title=self.run.path.resolve().name)
        texts, fine = data.texts(), data.fine_labels
        if texts is not None:
            names, is_labelled = [text[:_LONGEST] for text in texts], bool(data.class_names)
        else:
            classes = [data.class_names.get(label, label) for label in data.labels.tolist()]
            numbered = [f"{row} ({name})" for row, name in enumerate(classes)]
            names, is_labelled = list(data.files or numbered), split is not None
        source = replace(source, names=np.array(names))
        if not is_labelled:
            return source
        in_words = by_name or texts is not None
        labels = name_labels(data.labels, data.class_names if in_words else {})
        fines = None if fine is None else name_labels(fine, data.fine_names if in_words else {})
        cameras = {} if data.cameras is None else {"cameras": data.cameras.numpy()}
        return replace(source, labels=labels, fine_labels=fines, columns=cameras)

    def rows(self, data: uc.data.LabelledImages, split: str | None) -> Rows:
        """The same with labels by name, and pictures where the samples are images."""
        source, about = self.embed(data, split, by_name=True), self.about
        if self.run is not None and split is not None:
            source = replace(source, title=f"{source.title}, split {split}")
            if split == self.run.config.data.train_split:
                about += ", which was trained on these labels"
        if data.holds_texts or len(data.shape) != 3:
            return Rows(source, about)
        return Rows(source, about, lambda rows: list(data.pixels(list(rows))))


def usual_split(run: uc.Run) -> str:
    """The last split the run is evaluated on, or the one it is trained on."""
    splits = run.config.data
    return [splits.train_split, *splits.eval_splits][-1]


def _load_texts(
    sources: Sequence[str | Path], split: str | None, root: Path | None
) -> uc.data.LabelledImages:
    """The texts of a dataset or a labelled file, or those of several files without labels.

    All rows of a file unless a split is named; of a dataset the split `train`.
    """
    from uncollapse.data.own import TEXT_TABLES, read_texts
    from uncollapse.data.readers import read_table

    first = Path(sources[0])
    if len(sources) == 1 and str(first) in uc.data.DATASETS and not first.exists():
        if not uc.data.describe(str(first)).texts:
            raise InputError("--texts", first, "a file of texts, or a dataset of texts")
        return uc.load(str(first), root, split)
    is_table = len(sources) == 1 and first.suffix in TEXT_TABLES and first.is_file()
    if is_table and {"text", "label"} <= set(read_table(first, fill=True)):
        return uc.load("texts", first, split or "all")
    if split is not None:
        raise InputError.conflict(f"--split {split}: only one file of texts with labels has splits")
    return unlabelled_texts([text for source in sources for text in read_texts(Path(source))])


def unlabelled_texts(texts: Sequence[str]) -> uc.data.LabelledImages:
    """Texts as samples; their labels, all 0 and without a name, are not known."""
    import torch

    from uncollapse.data.listing import TextSource

    return uc.data.LabelledImages(
        TextSource(tuple(texts)), torch.zeros(len(texts), dtype=torch.long)
    )


def _origin(run: uc.Run, step: int, split: str | None) -> Origin:
    """The run that rows come from, with its first scale; warns where that is not known.

    The user's own images get none: a few images, or of another kind, say nothing about shrinking.
    """
    from uncollapse._base.files import DamagedFileError
    from uncollapse.data.sources import Origin

    start = None
    try:
        start = None if split is None else run.start_scale(split)
    except (DamagedFileError, uc.training.NotMeasuredError) as error:
        warn(f"{error}. The file holds no scale to compare with")
    return Origin(run.path.resolve().name, step, split, start, run.config.loss.normalizes)
