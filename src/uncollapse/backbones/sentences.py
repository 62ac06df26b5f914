"""Networks for texts through sentence-transformers: `sentence:NAME` or `sentence:PATH`."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from uncollapse._base.arrays import texts_of_rows
from uncollapse._base.check import InputError
from uncollapse._base.extras import MissingExtraError, import_extra

__all__ = ["PREFIX", "SentenceTrunk", "load_sentences"]

PREFIX = "sentence:"
_MODULES = "modules.json"  # lists the parts of a model; beside it lie their weights
_OURS = "sentence_transformers."


class SentenceTrunk(nn.Module):
    """A sentence-transformers model from rows of bytes to sentence vectors, all of it trainable.

    Texts are cut at the model's longest input; what it does last (pooling, the unit sphere) stays.
    """

    reads_texts = True

    def __init__(self, sentences: Any) -> None:
        super().__init__()
        self.sentences = sentences.float()  # some are stored in 16 bits, which training is not for
        size = getattr(sentences, "get_embedding_dimension", None)
        self.features = int((size or sentences.get_sentence_embedding_dimension)())

    def forward(self, rows: Tensor) -> Tensor:
        """`[B, L]` bytes, as `data` gives texts, to `[B, features]`."""
        if rows.ndim != 2 or rows.is_floating_point():
            given = f"{rows.dtype} of shape {tuple(rows.shape)}"
            raise InputError("samples", given, "texts as rows of bytes, [B, L] whole numbers")
        # Earlier versions know it by another name.
        tokens = getattr(self.sentences, "preprocess", None) or self.sentences.tokenize
        found = {
            name: value.to(rows.device) if isinstance(value, Tensor) else value
            for name, value in tokens(texts_of_rows(rows)).items()
        }
        vectors: Tensor = self.sentences(found)["sentence_embedding"]
        return vectors


def load_sentences(name: str) -> SentenceTrunk:
    """The model of a folder, of an installed package that carries one, or of a name on the hub.

    Nothing is imported that a model brings along: one with code of its own is refused.
    """
    try:
        package = import_extra("sentence_transformers", extra="text")
    except (MissingExtraError, ModuleNotFoundError):
        raise
    except Exception as error:  # it imports much, and each of that may not fit
        reason = f"sentence-transformers is installed but cannot be imported ({error})"
        raise ImportError(reason) from error
    place = _find(name)
    if place is not None:
        _check_parts(name, place)
    try:
        with _without_bars():
            found = package.SentenceTransformer(
                name if place is None else str(place), device="cpu", trust_remote_code=False
            )
    except Exception as error:  # of the hub, of files, of configs: each has errors of its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _refusal(name, reason) from error
    return SentenceTrunk(found)


def _find(name: str) -> Path | None:
    """The folder named, or that of an installed package; None for a name on the hub."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    word = name.replace("-", "_")
    if not word.isidentifier():
        return None
    spec = importlib.util.find_spec(word)  # a name without a dot: nothing is imported
    for place in [] if spec is None else spec.submodule_search_locations or []:
        for inner in (Path(place), *sorted(p for p in Path(place).iterdir() if p.is_dir())):
            if (inner / _MODULES).is_file():
                return inner
    return None


def _check_parts(name: str, folder: Path) -> None:
    """Refuse a model whose parts are classes of its own: earlier versions would import them."""
    path = folder / _MODULES
    if not path.is_file():
        return
    try:
        kinds = [str(part["type"]) for part in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise _refusal(name, f"its {_MODULES} cannot be read: {error!r}") from None
    strange = next((kind for kind in kinds if not kind.startswith(_OURS)), None)
    if strange is not None:
        raise _refusal(name, f"its part {strange!r} is code of its own")


def _refusal(name: str, reason: str) -> InputError:
    allowed = (
        "sentence: and a folder of a sentence-transformers model, an installed package that "
        f"carries one, or a name on its hub ({reason})"
    )
    return InputError("name", repr(PREFIX + name), allowed)


@contextmanager
def _without_bars() -> Iterator[None]:
    """No progress bars of transformers: a run has its own."""
    bars = importlib.import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()
