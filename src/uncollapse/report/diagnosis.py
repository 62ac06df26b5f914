"""Diagnose any embedding: a verdict in words, and one page that shows why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, as_rows, label_array
from uncollapse._base.check import InputError, check_bool, check_int
from uncollapse._base.extras import give_back_memory
from uncollapse._base.result import Card, Shown
from uncollapse._base.table import Cell, Table, percent
from uncollapse.charts import Chart, bars
from uncollapse.health.advice import RunSettings, advise
from uncollapse.health.figures import measure, with_modes
from uncollapse.health.verdict import VERDICTS, Health, Reference, Thresholds, cosine_text
from uncollapse.metrics import Interval, confidence, evaluate_rows
from uncollapse.metrics.collapse import spectrum
from uncollapse.metrics.evaluation import fine_classes, sample_words
from uncollapse.metrics.nearest_rows import nearest_of
from uncollapse.metrics.ranking import QUERIES, sample_queries
from uncollapse.metrics.repair import CONE_ROWS, CosineFigures, cone_effects
from uncollapse.metrics.spoiled_rows import SpoiledRows, find_spoiled
from uncollapse.report import neighbours, parts
from uncollapse.report.page import Page

# What a baseline allows to be lost; below a quarter of a reference's scale rows are shrinking too.
_LOST = {"effective_rank": 0.1, "diameter": 0.75}
_HUB_SPOILS = 0.25  # a row among the nearest of so many spoils the figures
_KINDS = {"label": "", "fine label": "fine "}  # what the names of scores by them begin with
_MODE_ROWS = 10_000  # sampled evenly over classes, whose modes are counted
_COUNTED = 20  # classes whose modes are counted on all rows without fine labels: it takes a while


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Shown):
    """The result; prints as a short text, `save` writes the page.

    `health` holds every figure, `scores` retrieval and clustering by kind of labels and name, on
    the `scored` ones of the rows, which search all rows; `intervals` are those of retrieval.
    `compared_with` says what the reference is, where that is known, `split` what the rows are of;
    `cone` what a cone does to searches by cosine, where the verdict is that. `spoiled` are rows
    that distort the figures; `without` is R@1 by kind of labels without them, where there are some.
    The page draws its map by t-SNE if `tsne`.
    """

    title: str
    health: Health
    embeddings: Array
    labels: Array | None
    fine_labels: Array | None
    names: Array | None
    images: neighbours.Images | None
    tsne: bool
    scored: Array
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    intervals: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    cone: Sequence[CosineFigures] = ()
    compared_with: str = ""
    split: str = ""
    spoiled: SpoiledRows | None = None
    without: Mapping[str, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.images is not None and len(self.images) != self.health.n:
            images = f"{len(self.images)} images"
            raise InputError("images", images, f"{self.health.n}, one for each row")

    @property
    def verdict(self) -> str:
        """One of `uncollapse.health.VERDICTS`, such as `healthy` or `class-collapse`."""
        return self.health.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in plain words with the numbers."""
        return self.health.reasons

    @property
    def scored_rows(self) -> str:
        """How many rows the scores are of, in words."""
        of = f" of {self.split}" * bool(self.split)
        return sample_words(len(self.scored), self.health.n) + of

    @property
    def finite(self) -> bool:
        """Whether there is something to draw."""
        return math.isfinite(self.health.diameter)

    @property
    def figures(self) -> dict[str, float]:
        """Every single number by name: scores, counts of spoiled rows, figures of health."""
        numbers = {
            f"{_KINDS[kind]}{name}": value
            for kind, values in self.scores.items()
            for name, value in values.items()
        }
        numbers |= {} if self.spoiled is None else self.spoiled.figures()
        numbers["invalid_rows"] = self.health.invalid_rows
        numbers |= {"rows": self.health.n, "dim": self.health.dim} | self.health.scalars()
        del numbers["verdict"]
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Verdict, reasons and figures with their intervals, as `diagnose --json` writes them."""
        bounds = {
            f"{_KINDS[kind]}{name}": [interval.low, interval.high]
            for kind, known in self.intervals.items()
            for name, interval in known.items()
        }
        words = {"title": self.title, "verdict": self.verdict, "reasons": list(self.reasons)}
        spoiled = {} if self.spoiled is None else self.spoiled.sentences(self.names)
        words |= {"advice": self.health.advice, "spoiled": list(spoiled.values())}
        return words | {"figures": self.figures, "intervals": bounds, "scored": self.scored_rows}

    def worse_than(self, baseline: Mapping[str, Any]) -> list[str]:
        """What is worse than in an earlier `to_dict()`, a sentence each.

        The verdict, where it was healthy; scores beyond both intervals; the share of spoiled rows;
        an effective rank that fell by more than a tenth, a diameter by more than three quarters.
        """
        own, now = self.to_dict(), self.figures
        then = {k: math.nan if known is None else known for k, known in baseline["figures"].items()}
        worse = []
        if baseline["verdict"] == "healthy" != self.verdict:
            worse.append(f"the verdict is {self.verdict}, it was healthy")
        for name, (low, _) in baseline["intervals"].items():
            if name in own["intervals"]:
                slack = math.hypot(then[name] - low, own["intervals"][name][1] - now[name])
                if now[name] < then[name] - slack:
                    fell = f"from {percent(then[name])} to {percent(now[name])}"
                    worse.append(f"{name} fell {fell}, more than its interval ({percent(slack)})")
        for name in ("invalid_rows", "zero_rows", "duplicate_rows", "hubs"):
            if now.get(name, 0) / now["rows"] > then.get(name, 0) / then["rows"]:
                worse.append(f"{name} rose from {then.get(name, 0):,} to {now[name]:,}")
        for name, lost in _LOST.items():
            size, was = (figures.get(name, math.nan) for figures in (now, then))
            if size < (1 - lost) * was:
                worse.append(f"{name} fell from {was:.3g} to {size:.3g}")
        return worse

    def spread_rows(self, most: int) -> Array:
        """At most so many rows, sampled evenly over classes; without labels drawn from all."""
        labels = self.fine_labels if self.labels is None else self.labels
        return neighbours.spread_rows(labels, self.health.n, most)

    def page(self) -> Page:
        """The page, to render or to save."""
        return Page("diagnosis.html.j2", diagnosis_content(self))

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that needs no network."""
        return self.page().save(path)

    def card(self) -> Card:
        """The card of the health, with the scores."""
        shares: dict[str, float] = {}
        for kind, values in self.scores.items():
            shares |= {f"{name} by {kind}": value for name, value in values.items()}
        return replace(self.health.card(), shares=shares)

    def show(self, height: int = 800) -> None:
        """Show the whole page inside a notebook, in so many pixels; elsewhere, say how to save."""
        self.page().show(height)

    def spoiled_lines(self) -> list[str]:
        """Which rows distort the figures, and R@1 without them, a sentence each."""
        known = {} if self.spoiled is None else self.spoiled.sentences(self.names)
        without = (f"by {kind} R@1 {x.text}" for kind, x in self.without.items())
        lines = [line for line in known.values() if line not in self.reasons]
        return lines + [f"without these rows: {', '.join(without)}"] * bool(self.without)

    def __str__(self) -> str:
        lines = [str(self.health)]
        lines += [f"  {line}" for line in self.spoiled_lines()]
        if self.compared_with:
            lines.append(f"  reference: {self.compared_with}")
        if self.health.diameter_most is not None:
            most = f"at most {self.health.diameter_most:.3g}"
            lines.append(
                f"  diameter: {most}; of {self.health.n:,} rows not all pairs are compared"
            )
        for kind, values in self.scores.items():
            texts = {name: percent(value) for name, value in values.items()}
            if "R@1" in self.intervals.get(kind, {}):
                texts["R@1"] = self.intervals[kind]["R@1"].text
            listed = ", ".join(f"{name} {text}" for name, text in texts.items())
            lines.append(f"  by {kind}, on {self.scored_rows}: {listed}")
        if self.cone:
            lines += [f"  {line}" for line in cone_lines(self.cone, self.health.n)]
        return "\n".join(lines)


def diagnose(
    embeddings: ArrayLike,
    labels: ArrayLike | None = None,
    fine_labels: ArrayLike | None = None,
    images: neighbours.Images | None = None,
    *,
    names: ArrayLike | None = None,
    title: str = "Embedding diagnosis",
    reference: Health | Reference | float | None = None,
    before: ArrayLike | None = None,
    thresholds: Thresholds | None = None,
    tsne: bool = False,
    max_rows: int = QUERIES,
    modes: bool = True,
    cosine: bool = True,
    settings: RunSettings | None = None,
) -> Diagnosis:
    """Measure embeddings of any origin, `[N, dim]`, and say whether and how they have collapsed.

    `labels` and `fine_labels` are integers or strings, one per row. `images` (arrays, tensors,
    paths or Pillow images, one per row) are shown as nearest neighbours; `names` stand in where
    there are none. `reference` is a healthy earlier state or its diameter: without it, whether the
    scale is small cannot be decided (see `uncollapse.health`). `before`, the embeddings of the same
    rows at the start, shows whether the modes inside classes have merged. For retrieval a sample of
    at most `max_rows` rows searches all, and is clustered, as in `uncollapse evaluate`; text and
    page state it. The verdict looks at all rows; a few that are NaN or infinite are left out.
    `modes=False` leaves out the modes of each class, which take the most time; `cosine=False` says
    that rows are compared by Euclidean distance alone. The advice is for the training's `settings`.

    >>> import torch
    >>> z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> diagnose(z, torch.arange(60) % 6).verdict, diagnose(torch.ones(9, 2)).reasons
    ('healthy', ('all embeddings are equal',))
    """
    z = as_rows(embeddings, "embeddings").detach().cpu()
    check_int("max_rows", max_rows, 8)
    given = {"labels": labels, "fine_labels": fine_labels, "names": names}
    coarse, fine, named = (
        None if values is None else label_array(values, len(z), name)
        for name, values in given.items()
    )
    spoiled = find_spoiled(z, progress=None)
    # Where there are few classes or fine labels, modes are counted on more rows.
    many = fine is None and coarse is not None and len(np.unique(coarse)) > _COUNTED
    how: dict[str, Any] = {"fine_labels": fine, "before": before, "cosine": cosine}
    how |= {"spoiled": spoiled, "names": named}
    counted = check_bool("modes", modes) and many
    give_back_memory()  # before and after, for what comes next would add to it
    health = measure(z, coarse, thresholds, reference, modes=counted, **how)
    give_back_memory()
    rows = (z.float() if z.dtype == torch.bfloat16 else z).numpy()
    known = (coarse, fine, named, images, check_bool("tsne", tsne), np.zeros(0, np.int64))
    result = _judged(Diagnosis(title, health, rows, *known, spoiled=spoiled))
    advice = advise(result.health, settings or RunSettings())
    result = replace(result, health=replace(result.health, advice=advice))
    return _scored(result, max_rows, modes=modes and not many)


def _judged(result: Diagnosis) -> Diagnosis:
    """The result without rows that are not finite, and with the verdict that a hub gives.

    A hub near very many rows is worth saying where nothing worse is.
    """
    health, spoiled, names = result.health, result.spoiled, result.names
    assert spoiled is not None
    if health.n < spoiled.n:
        kept, lost = spoiled.kept(["invalid"]), spoiled.sentences(names)["invalid"]
        health = replace(health, reasons=(*health.reasons[:-1], f"{lost}; left out"))
        z, images = result.embeddings[kept], result.images
        labels = (result.labels, result.fine_labels)
        coarse, fine = (None if some is None else some[kept] for some in labels)
        names = np.arange(spoiled.n).astype(str)[kept] if names is None else names[kept]
        images = None if images is None else [images[row] for row in kept.tolist()]
        spoiled, known = find_spoiled(z, progress=None), (coarse, fine, names, images, result.tsne)
        result = Diagnosis(result.title, health, z, *known, result.scored, spoiled=spoiled)
    hub_spoils = (spoiled.reach >= _HUB_SPOILS).any()
    if hub_spoils and health.verdict in ("healthy", "uninformative"):
        reasons = (spoiled.sentences(names)["hubs"], *health.reasons)
        health = replace(health, verdict="spoiled-rows", reasons=reasons)
    return replace(result, health=health)


def _scored(result: Diagnosis, max_rows: int, *, modes: bool) -> Diagnosis:
    """The result with what is counted on a sample of rows: modes, scores, effects of a cone."""
    health, coarse, fine = result.health, result.labels, result.fine_labels
    if modes and coarse is not None:
        few = result.spread_rows(_MODE_ROWS)
        finer = None if fine is None else fine[few]
        health = with_modes(health, result.embeddings[few], coarse[few], finer)
    result = replace(result, health=health, scored=sample_queries(health.n, max_rows))
    if not result.finite or health.n < 3:
        return result
    if coarse is not None and fine is not None:
        fine = fine_classes(coarse, fine)
    every = {"label": coarse, "fine label": fine}
    kinds = {kind: known for kind, known in every.items() if known is not None}
    scores, intervals = _scores(result.embeddings, kinds, max_rows)
    result = replace(result, scores=scores, intervals=intervals)
    clean = None if result.spoiled is None else result.spoiled.kept()
    if clean is not None and 2 < len(clean) < health.n:
        others = {kind: known[clean] for kind, known in kinds.items()}
        again = _scores(result.embeddings[clean], others, max_rows)[1]
        result = replace(result, without={k: r["R@1"] for k, r in again.items() if "R@1" in r})
    if health.verdict != "cone":
        return result
    few = result.spread_rows(CONE_ROWS)
    some = None if coarse is None else coarse[few]
    return replace(result, cone=cone_effects(result.embeddings[few], some))


def _scores(z: Array, kinds: Mapping[str, Array], max_rows: int) -> tuple[Any, Any]:
    """Scores and their intervals, each by the kind of labels."""
    several = {kind: labels for kind, labels in kinds.items() if len(np.unique(labels)) > 1}
    scored = {kind: score(z, labels, max_rows) for kind, labels in several.items()}
    return {k: one[0] for k, one in scored.items()}, {k: one[1] for k, one in scored.items()}


def score(
    embeddings: ArrayLike, labels: Array, max_rows: int = QUERIES
) -> tuple[dict[str, float], dict[str, Interval]]:
    """R@1, 2, 4, 8, MAP@R, and NMI where there are two rows for each class; and their intervals.

    >>> rows = np.array([[0.0], [0.1], [9.0], [9.2]])
    >>> score(rows, np.array([0, 0, 1, 1]))[0]["R@1"]
    1.0
    """
    sampled = labels[sample_queries(len(labels), max_rows)]
    once = [1] * (1 < len(np.unique(sampled)) <= len(sampled) // 2)
    how: dict[str, Any] = {"clusters": once, "max_rows": max_rows, "progress": None}
    scores = evaluate_rows(embeddings, labels, **how)
    values, ranked = scores.values, scores.ranked
    titles = {name: name.replace("recall@", "R@") for name in values if name.startswith("recall@")}
    titles |= {name: name.upper() for name in ("map@r", "nmi") if name in values}
    known = ranked.per_query if ranked.queries > ranked.queries_without_match else ()
    intervals = {t: confidence(ranked, name) for name, t in titles.items() if name in known}
    return {title: values[name] for name, title in titles.items()}, intervals


# What a cone does to searches by cosine, and what centring or whitening would give, in words.

_SPACING = float(np.finfo(np.float16).epsneg)  # of float16 just below 1


def cone_lead(cone: Sequence[CosineFigures], n: int) -> str:
    """How many of the n rows were measured, and what is left for a threshold."""
    low, high = cosine_text(cone[0].low), cosine_text(cone[0].high)
    some = f"{n:,} rows" if n <= CONE_ROWS else f"{CONE_ROWS:,} of {n:,}"
    most = f"Of {some}: 80 % of cosines lie in {low} to {high}"
    return f"{most}; a threshold outside passes all pairs or none."


def cone_lines(cone: Sequence[CosineFigures], n: int) -> list[str]:
    """What the cone does, and what centring would give, a line each."""
    now, centred = cone[:2]
    lines = [
        cone_lead(cone, n),
        f"float16 (steps of {_SPACING:.2g}): {percent(now.float16)} of nearest neighbours "
        f"change; centred, {percent(centred.float16)}",
        f"int8 index: {percent(now.int8)} of nearest neighbours change; "
        f"centred, {percent(centred.int8)}",
    ]
    if now.recall is not None:
        scores = (f"{percent(one.recall)} {one.name}" for one in cone)
        lines.append(f"R@1 by label: {', '.join(scores)}")
    return lines


# The page: verdict, distances, spectrum, map, classes, scores, neighbours, all figures.

_AXES = 40  # bars of the spectrum
_MAPPED = 5_000  # rows on the map; fewer with pictures, and by t-SNE
_NEAR, _JUDGES = 5, 10  # neighbours that a point of the map shows, and that make it a suspect


def diagnosis_content(result: Diagnosis) -> dict[str, Any]:
    """What the template shows; `finite` is False where there is nothing to draw."""
    health = result.health
    classes = f", {len(health.classes):,} classes" if health.classes else ""
    reference = f"; reference: {result.compared_with}" if result.compared_with else ""
    verdict = parts.verdict_content(health)
    content = {
        "title": result.title,
        "lead": f"{health.n:,} embeddings of {health.dim:,} dimensions{classes}{reference}",
        "verdict": verdict | {"reasons": [*health.reasons, *result.spoiled_lines()]},
        "finite": result.finite,
    }
    if not result.finite:
        return content | {"summary": _summary(result, {})}
    drawn = _map(result) if health.n > 2 else None
    flags = drawn["data"]["flags"] if drawn else {}
    figures = {"diameter": health.diameter} | parts.class_figures(health)
    if result.scores:
        kind, values = next(iter(result.scores.items()))
        figures[f"R@1, by {kind}, on {result.scored_rows}"] = percent(values["R@1"])
    return content | {
        "figures": figures | {f"effective rank, of {health.room:,}": health.effective_rank},
        "cone": _cone_content(result.cone, health.n) if result.cone else None,
        "distances": [parts.distance_chart(health), *_spectrum(result)],
        "summary": _summary(result, flags),
        "map": drawn,
        "classes": parts.class_table(health),
        "scores": _score_table(result) if result.scores else None,
        "scored": len(result.scored),
        "neighbours": _neighbours(result),
        "health": health,
    }


_FINDS = 0.5  # of the way from guessing to always right: searches work


def _summary(result: Diagnosis, flags: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The diagnosis for someone who knows nothing of embeddings, by heading.

    `flags` are points of the map by kind.
    """
    known = VERDICTS[result.verdict]
    good, bad, advice = ([text] if text else [] for text in (known.good, known.bad, known.act))
    usable, finds = result.verdict not in ("network-collapse", "diverging"), False
    if result.scores and usable:
        finds, sentence = _searches(result)
        (good if finds else bad).append(sentence)
    elif usable:
        advice.append(
            "Give labels: only with them is it known whether searches find what they should."
        )
    counts = []
    if result.spoiled is not None and usable:
        zero, copies, hubs = result.spoiled.zero, result.spoiled.duplicates, result.spoiled.hubs
        kinds = {"of zeros": zero, "copied from others": copies, "similar to very many": hubs}
        counts = [f"{len(rows):,} {words}" for words, rows in kinds.items() if len(rows)]
    if counts or result.verdict == "spoiled-rows":
        words = ": ".join(filter(None, ["Some rows distort searches", ", ".join(counts)]))
        shares = [percent(known.value) for known in result.without.values()][:1]
        bad += [f"{words}.", *(f"Without them the share above is {share}." for share in shares)]
        if result.verdict != "spoiled-rows":
            advice.append("Leave such rows out (--drop), or mend them where they come from.")
    suspects = flags.get("suspect", ())
    if suspects and finds:  # else it is not the labels
        bad.append(f"{len(suspects):,} of the rows on the map lie amid rows of another label.")
        advice.append("Choose “suspect” beside the map and look whether their labels are right.")
    texts = {"Good": good, "Not good": bad, "What to do": advice or ["Nothing."]}
    return {heading: " ".join(lines) for heading, lines in texts.items() if lines}


def _searches(result: Diagnosis) -> tuple[bool, str]:
    """Whether searches work, and a sentence that says how often, beside guessing."""
    kind, values = next(iter(result.scores.items()))
    share, known = values["R@1"], result.intervals.get(kind, {}).get("R@1")
    labels = result.fine_labels if result.labels is None else result.labels
    counts = np.unique(labels, return_counts=True)[1] if labels is not None else np.zeros(1)
    guess = float(((counts / result.health.n) ** 2).sum())
    bounds = f" (between {percent(known.low)} and {percent(known.high)})" if known else ""
    sentence = f"For {percent(share)} of the rows{bounds} the most similar one has the same {kind}"
    finds = share - guess > _FINDS * (1 - guess)
    return finds, f"{sentence}; guessing would give {percent(guess, 2)}."


def _cone_content(cone: Sequence[CosineFigures], n: int) -> dict[str, Any]:
    """What the cone does, and what centring would give."""
    labelled = cone[0].recall is not None
    head = ["rows", "mean cosine", "float16", "int8", *["R@1, by cosine"] * labelled]
    rows = [
        [
            one.name,
            Cell(cosine_text(one.cosine), one.cosine),
            *map(parts.share_cell, (one.float16, one.int8, *[one.recall] * labelled)),
        ]
        for one in cone
    ]
    return {"lead": cone_lead(cone, n), "table": Table(head, rows)}


def _spectrum(result: Diagnosis) -> list[Chart]:
    if result.health.n < 3:
        return []
    shares = spectrum(result.embeddings[result.scored]).shares.tolist()
    more = f", first {_AXES} of {len(shares):,}" * (len(shares) > _AXES)
    axes = result.health.axes
    chart = bars(
        "Spectrum",
        shares[:_AXES],
        x_label="principal axis",
        note=f"share of the variance on each principal axis{more}",
        split=(axes, f"99 % in {axes}"),
        percent=True,
    )
    return [chart]


def _map(result: Diagnosis) -> dict[str, Any]:
    few = result.tsne or result.images is not None
    rows = _mapped_rows(result, parts.PICTURES if few else _MAPPED)
    plane = parts.project(result.embeddings[rows], tsne=result.tsne)
    note = parts.projection_name(result.health.dim, tsne=result.tsne)
    if len(rows) < result.health.n:
        note += f", a sample of {len(rows):,} of {result.health.n:,} rows, evenly over classes"
    z = as_rows(result.embeddings, "embeddings")
    near = nearest_of(z, rows, min(_JUDGES, len(z) - 1))
    kinds = {"By label": result.labels, "By fine label": result.fine_labels}
    known = {title: labels for title, labels in kinds.items() if labels is not None}
    views = [
        parts.MapView(title, plane, near[:, :_NEAR], known.get(title), note, not result.tsne)
        for title in known or ("All embeddings",)
    ]
    flags = _flags(result, rows, near)
    return parts.pointed_map(views, rows, names=result.names, images=result.images, flags=flags)


def _mapped_rows(result: Diagnosis, most: int) -> Array:
    """Rows sampled evenly over classes, with those that spoil figures as far as there is room."""
    if result.spoiled is None or result.health.n <= most:
        return result.spread_rows(most)
    spoiled = (result.spoiled.hubs, result.spoiled.zero, result.spoiled.duplicates)
    first = np.concatenate(spoiled)[: most // 4]
    return np.union1d(first, result.spread_rows(most - len(first)))


def _flags(result: Diagnosis, rows: Array, near: Array) -> dict[str, Array]:
    """Rows to look at, by why: those amid another class, hubs, duplicates, rows of zeros."""
    flags = {}
    if result.labels is not None:
        ids = np.unique(result.labels, return_inverse=True)[1]
        voted = ids[near]
        votes = (voted[:, :, None] == voted[:, None, :]).sum(axis=2)
        winner = np.take_along_axis(voted, votes.argmax(axis=1)[:, None], axis=1)[:, 0]
        outvoted = (2 * votes.max(axis=1) > near.shape[1]) & (winner != ids[rows])
        # A class too small to win says nothing of its rows.
        large = 2 * (np.bincount(ids)[ids[rows]] - 1) > near.shape[1]
        flags["suspect"] = rows[outvoted & large]
    if result.spoiled is not None:
        kinds = {"hub": "hubs", "duplicate": "duplicates", "zero": "zero"}
        flags |= {name: getattr(result.spoiled, kind) for name, kind in kinds.items()}
    return flags


def _score_table(result: Diagnosis) -> Table:
    names = list(dict.fromkeys(name for values in result.scores.values() for name in values))
    table = Table(["by", "rows", *names])
    for kind, values in result.scores.items():
        known = result.intervals.get(kind, {})
        notes = {name: f"{percent(i.low)} to {percent(i.high)}" for name, i in known.items()}
        cells = (Cell(percent(values.get(n)), values.get(n), notes.get(n, "")) for n in names)
        table.add(kind, Cell(result.scored_rows, len(result.scored)), *cells)
    return table


def _neighbours(result: Diagnosis) -> dict[str, Any] | None:
    coarse, fine, images, names = result.labels, result.fine_labels, result.images, result.names
    if result.health.n < 3 or (images is None and names is None):
        return None
    # Queries are spread over the finest labels there are, and judged by the coarse ones.
    near = neighbours.neighbourhood(result.embeddings, coarse if fine is None else fine)
    near = near if coarse is None else near.by(coarse)
    sheets, lists = [], []
    if images is not None:
        judged = {"label": near} | ({} if fine is None else {"fine label": near.by(fine)})
        draw = neighbours.sheet_picture
        sheets = [draw(one, images, kind=kind) for kind, one in judged.items()]
    elif names is not None:
        lists = [neighbours.word_lists(near, names, coarse, fine)]
    return {"judged": near.right is not None, "sheets": sheets, "lists": lists}
