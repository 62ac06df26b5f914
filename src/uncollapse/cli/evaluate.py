"""`uncollapse evaluate`: how good a run's embedding is, or that of any file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.files import write_json
from uncollapse.cli import options, printing
from uncollapse.cli.embed import open_network
from uncollapse.cli.printing import ScoreLine, say, show, status, warn

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array
    from uncollapse.data.sources import Source
    from uncollapse.metrics import ReidResult, ReRanking, RetrievalResult
    from uncollapse.training import Config, Run
    from uncollapse.training.sections import EvaluateConfig

_CLUSTERED = 10_000  # rows that NMI is of unless it is asked for: k-means of more takes minutes
_TITLES = {"mAP": "mAP", "map@r": "MAP@R", "r_precision": "R-precision", "mrr": "MRR"}

_of_run = partial(typer.Option, rich_help_panel="For a run directory")
_of_file = partial(typer.Option, rich_help_panel="For a file of embeddings")


@options.grouped
def evaluate_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FILE",
            help="A run directory; or embeddings: .npz, .npy, .safetensors, .parquet or .csv.",
        ),
    ],
    columns: options.Columns,
    run_options: options.RunOptions,
    clusters: Annotated[
        int | None,
        typer.Option(
            help="NMI of k-means: 1 for as many clusters as classes, 10 also for ten times as many "
            "(NMI+ of the EPS paper), 0 for none.  \\[default: 1 for a file searched in itself]",
            min=0,
        ),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            metavar="K1,K2,LAMBDA",
            help="Also show the figures after k-reciprocal re-ranking; usual are 20,6,0.3.",
        ),
    ] = None,
    split: Annotated[
        list[str] | None, _of_run(help="Splits to evaluate.  \\[default: the config's]")
    ] = None,
    measure: Annotated[
        bool, _of_run("--measure", help="Measure the run for reports, if it has no measures.")
    ] = False,
    queries: Annotated[
        str | None,
        _of_file(metavar="COLUMN=VALUE", help="The rows that search, such as split=query."),
    ] = None,
    gallery: Annotated[
        str | None,
        _of_file(
            metavar="FILE|COLUMN=VALUE",
            help="The rows searched in.  \\[default: each row searches all others]",
        ),
    ] = None,
    cameras: Annotated[
        str | None,
        _of_file(
            metavar="COLUMN", help="The cameras: use the Market-1501 re-identification protocol."
        ),
    ] = None,
    metric: options.MetricOption = "euclidean",
    k: Annotated[str, _of_file("-k", metavar="RANKS", help="Ranks to report.")] = "1,2,4,8",
    intervals: Annotated[
        str,
        _of_file(
            metavar="queries|classes",
            help="What the bootstrap resamples: queries, or whole classes (wider).",
        ),
    ] = "queries",
    max_rows: Annotated[
        int,
        _of_file(
            help="Score at most this many queries and cluster at most this many rows, sampled from "
            "more. The gallery is searched whole.",
            min=8,
        ),
    ] = 30_000,
    json: Annotated[Path | None, _of_file(help="Write the figures to this file.")] = None,
) -> None:
    """Evaluate a run on any split, or a file of embeddings, by coarse and fine labels.

    A file: R@k, mAP, MAP@R, R-precision and NMI; with --cameras mAP, CMC and mINP. The queries of a
    run's dataset that has a gallery with cameras: R@k (CMC), mAP and mINP, as Market-1501 has it.
    Pairs of a run's dataset (lfw's, or data.pairs): accuracy over folds, AUC, EER and TAR at FAR.
    """
    re_ranking = None if rerank is None else _re_ranking(rerank)
    if options.is_run(source):
        of_files = {"queries": queries, "gallery": gallery, "cameras": cameras, "json": json}
        options.only_for_files(columns, **of_files)
        _evaluate_run(source, split, run_options, clusters or 0, measure, re_ranking)
        return
    instead = f"{source.name} is a file; --queries COLUMN=VALUE chooses rows of it"
    options.only_for("runs", instead, run_options, split=split, measure=measure)
    check_choice("--intervals", intervals, ("queries", "classes"))
    scores = _FileScores(
        *_open_sides(source, columns, queries, gallery, cameras),
        cameras,
        normalize=options.normalizes(metric),
        ks=_ranks(k),
        by_class=intervals == "classes",
        max_rows=max_rows,
        clusters=clusters,
    )
    lines = scores.lines(re_ranking)
    say(scores.describe(metric))
    if re_ranking is not None:
        say(_described(re_ranking))
    show(printing.line_table(lines))
    unit = "whole classes" if scores.by_class else "queries"
    say(f"Intervals: bootstrap over {unit}. Ties count as wrong.")
    if json is not None:
        figures = {
            "file": str(source),
            "gallery": None if scores.gallery is None else scores.gallery.title,
            "dim": scores.queries.points.shape[1],
            "queries": len(scores.queries),
            "gallery_rows": len(scores.searched),
            "metric": metric,
            "intervals": intervals,
            "figures": [line.to_dict() for line in lines],
        }
        write_json(json, figures | ({"rerank": asdict(re_ranking)} if re_ranking else {}))
        say(f"wrote {json}")


def _open_sides(
    path: Path,
    columns: options.Columns,
    queries: str | None,
    gallery: str | None,
    cameras: str | None,
) -> tuple[Source, Source | None, str]:
    """Queries, the gallery (None: the queries), and how many rows are neither, in words."""
    gallery_file = None
    if gallery is not None and ("=" not in gallery or Path(gallery).exists()):
        gallery_file, gallery = Path(gallery), None
    chosen = {}
    for option, text in {"--queries": queries, "--gallery": gallery}.items():
        if text is not None:
            column, equals, value = text.partition("=")
            if not equals:
                raise InputError(option, text, "COLUMN=VALUE, such as split=query")
            chosen[option] = column, value
    names = {option: column for option, (column, _) in chosen.items()}
    whole = options.open_file(path, columns, names | {"--cameras": cameras})
    whole.need_labels()
    rows = {option: _rows_with(whole, option, *choice) for option, choice in chosen.items()}
    asked = whole.select(rows["--queries"]) if queries else whole
    if gallery_file is not None:
        if columns.fine_labels is not None:
            why = "give both files a column fine_labels"
            raise InputError.conflict(f"--fine-labels cannot be used with a gallery file: {why}")
        other = options.open_file(
            gallery_file, replace(columns, labels=None), {"--cameras": cameras}
        )
        other.need_labels()
        if other.points.shape[1] != whole.points.shape[1]:
            allowed = f"a file of {whole.points.shape[1]} dimensions, as {path.name} has"
            given = f"{gallery_file.name} with {other.points.shape[1]}"
            raise InputError("--gallery", given, allowed)
        return asked, other, ""
    if gallery is None or gallery == queries:
        spare = len(whole) - len(asked)
        return asked, None, f"{spare:,} other rows left out" if spare else ""
    spare = len(whole) - len(np.union1d(*rows.values())) if queries else 0
    return asked, whole.select(rows["--gallery"]), f"{spare:,} rows are neither" if spare else ""


def _rows_with(source: Source, option: str, column: str, value: str) -> Array:
    words = source.columns[column].astype(str)
    rows = np.flatnonzero(words == value)
    if not len(rows):
        values, counts = np.unique(words, return_counts=True)
        pairs = list(zip(values.tolist(), counts, strict=True))[:8]
        there = ", ".join(f"{word!r} ({count:,} rows)" for word, count in pairs)
        allowed = f"a value of column {column!r} of {source.title}: {there}"
        raise InputError(option, repr(value), allowed)
    return rows


@dataclass(frozen=True)
class _FileScores:
    """Queries that search a gallery (None: each other), and how they are scored."""

    queries: Source
    gallery: Source | None
    left_out: str
    cameras: str | None
    normalize: bool
    ks: tuple[int, ...]
    by_class: bool
    max_rows: int
    clusters: int | None

    @property
    def searched(self) -> Source:
        return self.queries if self.gallery is None else self.gallery

    @property
    def sides(self) -> list[Source]:
        return [self.queries] if self.gallery is None else [self.queries, self.gallery]

    def describe(self, metric: str) -> str:
        """What searches what, and which rows are left out."""
        rows, dim = self.queries.points.shape
        about = [f"{self.queries.title}: {rows:,} rows x {dim}; each row against all others"]
        if self.gallery is not None:
            other = self.gallery.title
            of = f" of {other}" if other != self.queries.title else ""
            about = [f"{self.queries.title}: {rows:,} queries x {dim}"]
            about[0] += f" against {len(self.gallery):,} rows{of}"
        about[0] += f", {metric}"
        if self.cameras is not None:
            ids = _identities(self.searched).astype(str)
            junk, distractors = (int((ids == number).sum()) for number in ("-1", "0"))
            about.append("same id and camera left out")
            about += [f"{junk:,} junk rows (-1) left out"] * bool(junk)
            about += [f"{distractors:,} distractors (0)"] * bool(distractors)
        return "; ".join(filter(None, [*about, self.left_out]))

    def lines(self, rerank: ReRanking | None) -> list[ScoreLine]:
        """Every figure."""
        if rerank is not None and (self.cameras is None or self.gallery is None):
            raise InputError.conflict("--rerank needs --cameras and --gallery")
        lines = self._retrieved() if self.cameras is None else self._identified(None)
        if rerank is not None:
            lines += self._identified(rerank)
        alone = self.gallery is None and self.cameras is None
        if self.clusters or (alone and self.clusters is None):
            with status("clustering"):
                lines += self._clustered()
        return lines

    def _retrieved(self) -> list[ScoreLine]:
        from uncollapse.metrics import retrieval

        queries, gallery, lines = self.queries, self.gallery, []
        rows = _sample(len(queries), self.max_rows)
        settings: dict[str, Any] = {"ks": self.ks, "full_map": True, "normalize": self.normalize}
        for by, labels in self._labels().items():
            own, others = labels[: len(queries)], labels[len(queries) :]
            if gallery is None:
                result = retrieval(queries.points, own, rows=rows, **settings)
            else:
                asked = queries.points[rows], own[rows]
                result = retrieval(*asked, gallery.points, others, **settings)
            titles = {f"recall@{k}": f"R@{k}" for k in result.recall} | _TITLES
            lines += self._with_intervals(result, titles, own[rows], len(queries), by)
        return lines

    def _identified(self, rerank: ReRanking | None) -> list[ScoreLine]:
        """The Market-1501 protocol; rows that search each other leave out each one itself."""
        from uncollapse.metrics import reid
        from uncollapse.metrics.re_identification import searching_rows

        ids, others = _identities(self.queries), _identities(self.searched)
        people = searching_rows(ids)
        if not len(people):
            raise InputError("labels", "-1 and 0 (junk, distractors) only", "ids of persons")
        rows = people[_sample(len(people), self.max_rows)]
        column = str(self.cameras)
        cameras, other_cameras = self.queries.columns[column], self.searched.columns[column]
        asked = self.queries.points[rows], ids[rows], cameras[rows]
        gallery = self.searched.points, others, other_cameras
        result = reid(*asked, *gallery, ks=self.ks, normalize=self.normalize, rerank=rerank)
        titles = {"mAP": "mAP"} | {f"cmc@{k}": f"CMC@{k}" for k in result.cmc} | {"mINP": "mINP"}
        lines = self._with_intervals(result, titles, ids[rows], len(people), "label")
        if rerank is None:
            return lines
        return [replace(line, name=f"reranked/{line.name}", by="re-ranked") for line in lines]

    def _clustered(self) -> list[ScoreLine]:
        from uncollapse.metrics import clustering

        points, kinds = np.concatenate([side.points for side in self.sides]), self._labels()
        if self.cameras is not None:  # junk and distractors are no class
            ids = np.concatenate([_identities(side) for side in self.sides]).astype(str)
            people = (ids != "-1") & (ids != "0")
            points, kinds = points[people], {"label": kinds["label"][people]}
        most_rows = self.max_rows if self.clusters else min(_CLUSTERED, self.max_rows)
        rows = _sample(len(points), most_rows)
        of = "" if len(rows) == len(points) else f" of {len(points):,}"
        lines = []
        for by, labels in kinds.items():
            # With one cluster per sample any embedding would look alike.
            most = max(1, len(rows) // (2 * len(np.unique(labels[rows]))))
            for name, times in {"nmi": 1, "nmi+": self.clusters or 1}.items():
                if name == "nmi+" and times == 1:
                    continue
                sample, times = (points[rows], labels[rows]), min(times, most)
                result = clustering(*sample, multiplier=times, normalize=self.normalize)
                over = f"{len(rows):,}{of} rows, {result.clusters:,} clusters"
                lines.append(ScoreLine(name, name.upper(), result.nmi, over, by=by))
        return lines

    def _labels(self) -> dict[str, Array]:
        """Of queries and gallery; fine ones as numbers, for they name a class inside a label."""
        from uncollapse._base.arrays import class_ids

        kinds = {"label": _joined([side.need_labels() for side in self.sides])}
        fine = [side.fine_labels for side in self.sides if side.fine_labels is not None]
        if len(fine) == len(self.sides):
            coarse, finer = (class_ids(one, None)[0] for one in (kinds["label"], _joined(fine)))
            kinds["fine label"] = coarse * (finer.max() + 1) + finer
        return kinds

    def _with_intervals(
        self,
        result: RetrievalResult | ReidResult,
        titles: dict[str, str],
        labels: Array,
        total: int,
        by: str,
    ) -> list[ScoreLine]:
        """The figures, and how many queries they are over: drawn from more, or without a match."""
        from uncollapse.metrics import confidence

        drawn = f" of {total:,}" if result.queries < total else ""
        over, lost = f"{result.queries:,}{drawn} queries", result.queries_without_match
        over += f", less {lost:,} without a match" if lost else ""
        if result.queries == lost:
            return [ScoreLine(name, title, None, over, by=by) for name, title in titles.items()]
        groups = labels if self.by_class else None
        return [
            ScoreLine.between(name, title, confidence(result, name, groups=groups), over, by)
            for name, title in titles.items()
        ]


def _joined(labels: list[Array]) -> Array:
    """Labels of both sides; as words, where one of them has words."""
    if len({values.dtype.kind in "iu" for values in labels}) > 1:
        labels = [values.astype(str) for values in labels]
    return np.concatenate(labels)


def _identities(source: Source) -> Array:
    """Ids as numbers where all are written as such (0002, -1), which junk and distractors need."""
    labels = source.need_labels()
    if labels.dtype.kind != "U" or not all(v.removeprefix("-").isdecimal() for v in labels):
        return labels
    return labels.astype(np.int64)


def _sample(count: int, most: int) -> Array:
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def _ranks(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise InputError("-k", repr(text), "whole numbers, such as 1,5,10")
    return tuple(sorted({int(word) for word in words}))


def _re_ranking(text: str) -> ReRanking:
    from uncollapse.metrics import ReRanking

    try:
        k1, k2, weight = text.split(",")
        numbers = int(k1), int(k2), float(weight)
    except ValueError:
        allowed = "k1, k2 and lambda, such as 20,6,0.3"
        raise InputError("--rerank", repr(text), allowed) from None
    check_int("--rerank K1", numbers[0])
    check_int("--rerank K2", numbers[1])
    check_number("--rerank LAMBDA", numbers[2], 0.0, 1.0)
    return ReRanking(*numbers)


def _described(rerank: ReRanking) -> str:
    numbers = f"k1 = {rerank.k1}, k2 = {rerank.k2}, λ = {rerank.lambda_value:g}"
    return f"re-ranked by k-reciprocal neighbours: {numbers}"


def _evaluate_run(
    path: Path,
    splits: list[str] | None,
    run_options: options.RunOptions,
    clusters: int,
    measure: bool,
    rerank: ReRanking | None,
) -> None:
    from uncollapse import training
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_checks, find_searches
    from uncollapse.training.run import ends_below

    run = training.Run.open(path, trust=run_options.trust)
    if measure:
        with status("measuring the network before and after training"):
            training.measure_run(run, data_root=run_options.data_root, warn=warn)
    config = run.config.with_root(run_options.data_root)
    training.keep_memory()
    changes = {"clustering": clusters > 0, "multiplier": max(1, clusters)}
    settings = config.evaluate.model_copy(update=changes)
    network = open_network(path, run_options)
    scores: dict[str, float] = {}
    notes: list[str] = []
    for name in splits or config.data.eval_splits:
        data = load_eval_data(config, name)
        printing.warn_of_skipped(data, name)
        searches, unsearched = find_searches(config, {name: data})
        checks, unchecked = find_checks(config, {name: data}, searches)
        for text in [*unsearched, *unchecked]:
            warn(text)
        if rerank is not None and name not in searches:
            raise InputError.conflict(
                f"--rerank: the split {name!r} has no queries that search a gallery, both with "
                "cameras; choose one that has with --split"
            )
        for search in searches.values():
            printing.warn_of_skipped(search.gallery, "gallery")
            notes.append(f"{name}: {search.describe(settings)}")
        notes += [f"{name}: {check.describe()}" for check in checks.values()]
        with status(f"embedding {len(data):,} samples of {name}"):
            scores |= evaluate_splits(
                network.model,
                {name: data},
                settings,
                searches=searches,
                checks=checks,
                rerank=rerank,
            ).flat()
    start = _scores_before(run, config, settings, scores)
    show(*printing.split_tables(scores, start))
    notes = [*ends_below(start, scores), *notes]
    for line in [*([] if rerank is None else [_described(rerank)]), *notes]:
        say(line)
    say(f"{network.about}: {run.path}")


def _scores_before(
    run: Run, config: Config, settings: EvaluateConfig, scores: Mapping[str, float]
) -> dict[str, float]:
    """What the network before training had of these scores, by the same names.

    Where the run's measures lack one (another split, NMI), the network is built again for it; where
    that cannot be done, a warning says why and the score is left out.
    """
    from uncollapse.data import DataError
    from uncollapse.training import CheckpointError, measurer
    from uncollapse.training.assemble import load_eval_data
    from uncollapse.training.evaluation import evaluate_splits, find_searches
    from uncollapse.training.measures import measures_file
    from uncollapse.training.run import find_damage, start_scores

    damage = [text for text in find_damage(run) if text.startswith(str(measures_file(run.path)))]
    for text in damage:
        warn(f"{text}; the scores before training are made again")
    known = {} if damage else start_scores(run)
    missing = list(dict.fromkeys(key.partition("/")[0] for key in scores if key not in known))
    if missing:
        try:
            with status("embedding with the network before training"):
                network = measurer.start_network(run, config)
                for name in missing:
                    splits = {name: load_eval_data(config, name)}
                    searches, _ = find_searches(config, splits)
                    known |= evaluate_splits(network, splits, settings, searches=searches).flat()
        except (DataError, CheckpointError) as error:
            warn(f"no scores before training of {', '.join(missing)}: {error}")
    return {key: value for key, value in known.items() if key in scores}
