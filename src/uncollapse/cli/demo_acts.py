"""The two acts of `uncollapse demo` as data: what is trained, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uncollapse.training import Config

__all__ = ["ACTS", "Act", "Part"]

# Letters that the package draws itself; every figure is of 48 letters never trained on.
_BASE: Mapping[str, Any] = {
    "data": {"name": "letters", "eval_splits": ["test"]},
    "model": {"backbone": "conv2", "dim": 64},
    "loss": {"name": "triplet", "margin": 0.2},
    "evaluate": {"ks": [1]},
}
_HARD: Mapping[str, Any] = {  # HNM §3: the batches and the loss that collapse
    "data": {"labels": "fine"},
    "batch": {"p": 18, "k": 8},
    "mining": {"positives": "hard", "negatives": "hard"},
}
_COARSE: Mapping[str, Any] = {  # EPS §5: labels that say less than there is to see
    "model": {"normalize": True},
    "batch": {"p": 10, "k": 20},
    "optimizer": {"lr": 3e-3},
}


@dataclass(frozen=True, eq=False)
class Part:
    """A run: its name, a line about it, its sections beside the act's, its length and rhythm."""

    name: str
    line: str
    changes: Mapping[str, Mapping[str, Any]]
    steps: int
    every: int

    @property
    def folder(self) -> str:
        """Its place in the demo's folder."""
        return self.name.replace(",", "").replace(" ", "-")


@dataclass(frozen=True, eq=False)
class Act:
    """Runs that differ in one thing; `score` is the R@1 that they are told by.

    `scale` says whether it is about the size of the embedding, or about R@1 alone.
    """

    title: str
    text: str
    score: str
    scale: bool
    common: Mapping[str, Mapping[str, Any]]
    parts: tuple[Part, ...]

    def config(self, part: Part, seed: int, steps: int | None = None) -> Config:
        """The config of one of its runs, of at most so many steps."""
        from uncollapse.training import parse_config

        length = part.steps if steps is None else min(part.steps, steps)
        every = min(part.every, length)
        train = {
            "steps": length,
            "log_every": min(5, every),
            "evaluate_every": every,
            "checkpoint_every": length,
            "threads": 1,  # the same figures everywhere, and no slower beside other work
            "tensorboard": "off",
        }
        return parse_config(
            _joined(_BASE, self.common, part.changes) | {"seed": seed, "train": train}
        )


ACTS = (
    Act(
        "Network collapse",
        "120 letters, labelled by letter. The loss is batch-hard: each sample's farthest positive "
        "and nearest negative, margin 0.2. Both runs start from the same weights and see the same "
        "batches; the second has a guard that may act.",
        "test/recall@1",
        True,
        _HARD,
        (
            Part("batch-hard", "nobody acts", {"guard": {"every": 10}}, 150, 15),
            Part(
                "batch-hard, rescued",
                'the same with guard.action = "rescue"',
                {"guard": {"every": 10, "action": "rescue"}},
                150,  # enough for the guard to race: races take a tenth at most
                15,
            ),
        ),
    ),
    Act(
        "Class collapse",
        "The same letters, labelled by alphabet only: ten classes of twelve letters each. The "
        "runs differ in the positive alone: any sample of the anchor's alphabet, or the nearest "
        "one. The figure is how often the nearest neighbour is the same letter, though no letter "
        "was ever named.",
        "test/fine/recall@1",
        False,
        _COARSE,
        (
            Part(
                "random positives",
                "any sample of the alphabet",
                {"mining": {"positives": "random", "negatives": "semihard"}},
                100,
                20,
            ),
            Part(
                "easy positives",
                "the nearest sample of the alphabet",
                {"mining": {"positives": "easy", "negatives": "semihard"}},
                100,
                20,
            ),
        ),
    ),
)


def _joined(*parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Sections of several configs, later keys first."""
    found: dict[str, Any] = {}
    for part in parts:
        for name, section in part.items():
            found[name] = {**found.get(name, {}), **section}
    return found
