"""Which texts a command is asked about, with labels where they are known; and who embeds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.backbones import Embedder
    from uncollapse.data import LabelledImages
    from uncollapse.data.sources import Embeddings
    from uncollapse.data.readers import Origin

__all__ = ["GivenTexts", "asked_texts", "given_texts", "is_text_backbone", "text_backbone"]

_LONGEST = 1_000  # characters of a text that stand for it as its name


@dataclass(frozen=True)
class GivenTexts:
    """Texts as samples; `known` says whether their labels are, or only zeros."""

    data: LabelledImages
    known: bool

    @property
    def names(self) -> list[str]:
        """The texts, or the beginning of those that are long."""
        return [text[:_LONGEST] for text in self.data.texts() or []]

    @property
    def labels(self) -> Array | None:
        """The class of each text by its name."""
        from uncollapse.training.measures import name_labels

        return name_labels(self.data.labels, self.data.class_names) if self.known else None

    @property
    def fine_labels(self) -> Array | None:
        """The fine class of each text by its name."""
        from uncollapse.training.measures import name_labels

        fine = self.data.fine_labels
        return None if fine is None else name_labels(fine, self.data.fine_names)

    @property
    def all_labels(self) -> Array | None:
        """Both in one: `class / fine class`."""
        import numpy as np

        coarse, fine = self.labels, self.fine_labels
        if coarse is None or fine is None:
            return coarse
        return np.array([f"{one} / {two}" for one, two in zip(coarse, fine, strict=True)])

    def described(self, points: Array, origin: Origin | None = None) -> Embeddings:
        """Their embeddings with all that is known of them: what a file keeps."""
        import numpy as np

        from uncollapse.data.sources import Embeddings

        return Embeddings(points, self.labels, self.fine_labels, np.array(self.names), origin)


def given_texts(sources: Sequence[str | Path], split: str | None, root: Path | None) -> GivenTexts:
    """The texts of a file or of a dataset, or those of several files together, without labels.

    All rows of a file unless a split is named; of a dataset the split `train`.
    """
    from uncollapse._base.check import InputError
    from uncollapse.data import DATASETS, describe, load
    from uncollapse.data.readers import read_table
    from uncollapse.data.own import TEXT_TABLES, read_texts

    first = str(sources[0])
    if len(sources) == 1 and first in DATASETS and not Path(first).exists():
        if not describe(first).texts:
            raise InputError("--texts", first, "a file of texts, or a dataset of texts")
        return GivenTexts(load(first, root, split), known=True)
    path = Path(first)
    if len(sources) == 1 and path.suffix in TEXT_TABLES and path.is_file():
        columns = read_table(path, fill=True)
        if "text" in columns and "label" in columns:
            return GivenTexts(load("texts", path, split or "all"), known=True)
    if split is not None:
        raise InputError("--split", split, "nothing: only one file of texts with labels has splits")
    return _unknown([text for source in sources for text in read_texts(Path(source))])


def asked_texts(queries: Sequence[str]) -> GivenTexts:
    """Queries as texts: each a text, or a file of them."""
    from uncollapse.data.own import TEXT_TABLES, read_texts

    found: list[str] = []
    for query in queries:
        is_file = query.endswith((".txt", *TEXT_TABLES)) and not any(map(str.isspace, query))
        found += read_texts(Path(query)) if is_file else [query]
    return _unknown(found)


def is_text_backbone(name: str | Path) -> bool:
    """Whether a backbone is named where a run might be."""
    return str(name).startswith("sentence:")


def text_backbone(name: str | Path) -> Embedder:
    """The backbone as it comes, without a layer of ours: its own vectors are the embeddings."""
    from uncollapse.backbones import Embedder, Head
    from uncollapse.backbones.sentences import PREFIX, load_sentences

    trunk = load_sentences(str(name).removeprefix(PREFIX))
    return Embedder(trunk, Head(trunk.features, None), trunk.features).eval()


def _unknown(texts: list[str]) -> GivenTexts:
    import torch

    from uncollapse.data import LabelledImages
    from uncollapse.data.listing import TextSource

    labels = torch.zeros(len(texts), dtype=torch.long)
    data = LabelledImages(TextSource(tuple(texts)), labels, name="texts")
    return GivenTexts(data, known=False)
