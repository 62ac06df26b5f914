"""Networks for texts through sentence-transformers: `sentence:NAME` or `sentence:PATH`."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from uncollapse._base.arrays import texts_of_rows
from uncollapse._base.check import InputError
from uncollapse._base.extras import MissingExtraError, import_extra

PREFIX = "sentence:"
_MODULES = "modules.json"  # lists the parts of a model; beside it lie their weights


class SentenceTrunk(nn.Module):
    """A sentence-transformers model from rows of bytes to sentence vectors, all of it trainable.

    Texts are cut at the model's longest input; its last steps (pooling, normalisation) are kept.
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
        inputs = {
            name: value.to(rows.device) if isinstance(value, Tensor) else value
            for name, value in tokens(texts_of_rows(rows)).items()
        }
        vectors: Tensor = self.sentences(inputs)["sentence_embedding"]
        return vectors


def load_sentences(name: str) -> SentenceTrunk:
    """Load a model from a folder, from an installed package that contains one, or from the Hub.

    Code in a model folder is never imported: a model that needs its own code is refused.
    """
    package = import_whole("sentence_transformers", extra="text")
    folder = _find(name)
    if folder is not None:
        _check_parts(name, folder)
    try:
        path = str(folder or name)
        model = package.SentenceTransformer(path, device="cpu", trust_remote_code=False)
    except Exception as error:  # of the hub, of files, of configs: each has errors of its own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise _refusal(name, reason) from error
    return SentenceTrunk(model)


def import_whole(module: str, extra: str) -> ModuleType:
    """Import an optional package; an error explains if it is installed but cannot be imported."""
    try:
        return import_extra(module, extra)
    except (MissingExtraError, ModuleNotFoundError):
        raise
    except Exception as error:  # it imports much, and each of that may not fit this torch
        raise ImportError(f"{module} does not work with the torch installed ({error})") from error


def _find(name: str) -> Path | None:
    """The folder of that name, or of an installed package; None for a name on the Hub."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    word = name.replace("-", "_")
    if not word.isidentifier():
        return None
    spec = importlib.util.find_spec(word)  # a name without a dot: nothing is imported
    for root in map(Path, (spec and spec.submodule_search_locations) or []):
        for inner in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
            if (inner / _MODULES).is_file():
                return inner
    return None


def _check_parts(name: str, folder: Path) -> None:
    """Refuse a model with classes of its own: earlier sentence-transformers would import them."""
    path = folder / _MODULES
    if not path.is_file():
        return
    try:
        kinds = [str(part["type"]) for part in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise _refusal(name, f"its {_MODULES} cannot be read: {error!r}") from None
    strange = next((kind for kind in kinds if not kind.startswith("sentence_transformers.")), None)
    if strange is not None:
        raise _refusal(name, f"its part {strange!r} is code of its own")


def _refusal(name: str, reason: str) -> InputError:
    allowed = "sentence: and the folder, package or Hub name of a sentence-transformers model"
    return InputError("name", f"{PREFIX + name!r} ({reason})", allowed)
