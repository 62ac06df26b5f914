"""Options of `evaluate --rerank`: which numbers k-reciprocal re-ranking takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncollapse.metrics import ReRanking

__all__ = ["K1Option", "K2Option", "LambdaOption", "RerankOption", "re_ranking_of", "said"]

_PANEL = "Re-ranking"

RerankOption = Annotated[
    bool,
    typer.Option(
        "--rerank",
        help="Also show the figures after k-reciprocal re-ranking.",
        rich_help_panel=_PANEL,
    ),
]
K1Option = Annotated[
    int | None,
    typer.Option(
        "--k1",
        help="Size of the k-reciprocal neighbourhoods.  \\[default: 20]",
        rich_help_panel=_PANEL,
    ),
]
K2Option = Annotated[
    int | None,
    typer.Option(
        "--k2", help="Rows averaged in query expansion.  \\[default: 6]", rich_help_panel=_PANEL
    ),
]
LambdaOption = Annotated[
    float | None,
    typer.Option(
        "--lambda",
        help="Weight of the original distance, 0 to 1.  \\[default: 0.3]",
        rich_help_panel=_PANEL,
    ),
]


def re_ranking_of(
    asked: bool, k1: int | None, k2: int | None, lambda_value: float | None
) -> ReRanking | None:
    """Settings of the re-ranking asked for; `InputError` names the option that is wrong."""
    from uncollapse._base.check import InputError, check_int, check_number

    given = {"--k1": k1, "--k2": k2, "--lambda": lambda_value}
    if not asked:
        for option, value in given.items():
            if value is not None:
                raise InputError(option, value, "nothing without --rerank")
        return None
    from uncollapse.metrics import ReRanking

    usual = ReRanking()
    return ReRanking(
        k1=usual.k1 if k1 is None else check_int("--k1", k1),
        k2=usual.k2 if k2 is None else check_int("--k2", k2),
        lambda_value=usual.lambda_value
        if lambda_value is None
        else check_number("--lambda", lambda_value, 0.0, 1.0),
    )


def said(settings: ReRanking) -> str:
    """The settings in a sentence.

    >>> from uncollapse.metrics import ReRanking
    >>> said(ReRanking())
    're-ranked by k-reciprocal neighbours: k1 = 20, k2 = 6, λ = 0.3'
    """
    numbers = f"k1 = {settings.k1}, k2 = {settings.k2}, λ = {settings.lambda_value:g}"
    return f"re-ranked by k-reciprocal neighbours: {numbers}"
