"""What `uncollapse reproduce --list` lists: every item in a line, without what makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["CATALOGUE", "SCALES", "Entry"]

# Embedded data in seconds; real data on two cores; the paper's own protocol on a GPU.
SCALES = ("smoke", "laptop", "paper")
_TRAINED = ("laptop", "smoke", "paper")  # of an item whose usual scale is the laptop's


@dataclass(frozen=True)
class Entry:
    """A figure, table or set of claims: what it shows, what data it needs, how long it takes.

    `time` is one for all scales, or one per scale. The first of the `scales` is the usual one.
    """

    name: str
    summary: str
    needs: str
    time: str | Mapping[str, str]
    scales: tuple[str, ...] = ("laptop",)

    def time_at(self, scale: str) -> str:
        """How long it takes at a scale; empty where it has none."""
        if scale not in self.scales:
            return ""
        return self.time if isinstance(self.time, str) else self.time[scale]


def _drawn(name: str, summary: str, time: str = "seconds") -> Entry:
    return Entry(name, summary, "the extra geometry", time)  # nearest separated points


def _diameters(name: str, summary: str, needs: str = "Market-1501") -> Entry:
    times = {"smoke": "seconds", "laptop": "half an hour", "paper": "days, GPU"}
    return Entry(name, summary, needs, times, SCALES)


def _trained(
    name: str, summary: str, needs: str, laptop: str = "minutes", paper: str = "hours, GPU"
) -> Entry:
    times = {"smoke": "seconds", "laptop": laptop, "paper": paper}
    return Entry(name, summary, f"{needs} (smoke: nothing)", times, _TRAINED)


_HNM = (
    Entry(
        "fig1",
        "HNM Fig. 1: a triplet and the boundary of a separated class",
        "nothing more",
        "seconds",
    ),
    _drawn("fig2", "HNM Fig. 2: five points and the nearest separated ones (d_haus)"),
    _drawn("fig3", "HNM Fig. 3: the isometric error and the hardest triplet of five points"),
    _drawn("fig4", "HNM Fig. 4: what 50 gradient steps reach beside the nearest separated points"),
    _drawn(
        "claims-hnm",
        "truth table of HNM's claims on examples and counterexamples, recomputed",
        "half a minute",
    ),
    _diameters("fig5a", "HNM Fig. 5, left: collapse against the batch size (ResNet-18)"),
    _diameters("fig5b", "HNM Fig. 5, right: collapse against the dimension (ResNet-18)"),
    _diameters("fig6", "HNM Fig. 6: collapse against the batch size, margins 0.01 and 0.05"),
    _diameters("fig7", "HNM Fig. 7: collapse against the dimension, margins 0.01 and 0.05"),
    _diameters(
        "fig8", "HNM Fig. 8: collapse on Stanford Online Products", "Stanford Online Products"
    ),
    _diameters(
        "fig9",
        "HNM Fig. 9: collapse against the batch size on CUB200 and Cars196",
        "CUB200, Cars196",
    ),
    _diameters("fig10", "HNM Fig. 10: collapse of a ResNet-50"),
    _diameters("fig11", "HNM Fig. 11: collapse of a GoogLeNet"),
    _diameters(
        "fig12",
        "HNM Fig. 12: collapse of a two-layer convnet",
        "Market-1501, or Omniglot on a laptop",
    ),
    Entry(
        "market-strategies",
        "Beyond HNM: Market-1501 by strategy, untrained, batch-hard and rescued",
        "Market-1501 (smoke: nothing)",
        {"smoke": "seconds", "laptop": "half an hour"},
        ("laptop", "smoke"),
    ),
)
_EPS = (
    Entry(
        "claims-eps",
        "EPS §3, §4, appendices A and B: what is true, with the conditions and the numbers",
        "nothing",
        "seconds",
    ),
    Entry(
        "fig-noise",
        "EPS §4: what label noise does to the best embedding, with and without easy positives",
        "nothing more",
        "a minute",
        _TRAINED,
    ),
    _trained(
        "table1",
        "EPS Table 1: MNIST by odd and even, R@1, 5, 10 by digit",
        "MNIST",
        "20 minutes",
        "hours",
    ),
    _trained(
        "table2",
        "EPS Table 2: Cars196 and CUB200, four losses with and without easy positives",
        "Cars196 and CUB200",
    ),
    _trained(
        "table3",
        "EPS Table 3: Omniglot letters and languages, four losses with and without EPS",
        "Omniglot",
        "half an hour",
    ),
    _trained(
        "table4",
        "EPS Table 4: Omniglot's training alphabets, where languages fit worse and letters better",
        "Omniglot",
        "minutes after table3",
    ),
    _trained(
        "table5",
        "EPS Table 5: std of R@1 over seeds, and whether the gain is significant",
        "Omniglot; Cars196 and CUB200 where they are",
        "minutes after table3",
    ),
    _trained(
        "table6",
        "EPS Table 6: multi-similarity with dimension 512, with and without EPS",
        "Cars196 and CUB200",
    ),
    _trained(
        "eps-fig2",
        "EPS Fig. 2: the digits in the plane, with random and with easy positives",
        "MNIST",
        "seconds after table1",
        "hours",
    ),
    _trained(
        "eps-fig3a",
        "EPS Fig. 3a: R@1 of Omniglot's letters by epoch, with and without EPS",
        "Omniglot",
        "seconds after table3",
    ),
    _trained(
        "eps-fig3b",
        "EPS Fig. 3b: R@1 of Omniglot's letters against the positives in the batch",
        "Omniglot",
        "half an hour",
    ),
    _trained(
        "eps-fig4", "EPS Fig. 4: nearest neighbours of some cars, without and with EPS", "Cars196"
    ),
    _trained(
        "eps-fig5", "EPS Fig. 5: t-SNE of Cars196 training classes, without and with EPS", "Cars196"
    ),
    _trained(
        "eps-fig6",
        "EPS Fig. 6: trimmed losses, R@1 of Omniglot's letters by share trimmed",
        "Omniglot",
        "half an hour",
    ),
    Entry(
        "coarse-to-fine",
        "Beyond EPS: coarse labels, fine judgement, on digits, letters, sentences and cars",
        "MNIST, Omniglot, CLINC150, Cars196: those that are there (smoke: nothing)",
        {"smoke": "seconds", "laptop": "an hour"},
        ("laptop", "smoke"),
    ),
)

CATALOGUE = {entry.name: entry for entry in (*_HNM, *_EPS)}
