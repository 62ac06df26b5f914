"""What went wrong while a dataset was loaded: an error, or a report of what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["DataError", "LoadReport"]


class DataError(ValueError):
    """A copy of a dataset that cannot be used; the message says what was looked for, and where."""


@dataclass(frozen=True)
class LoadReport:
    """What was left out or changed while loading, by name.

    `missing`: named by the dataset's own lists, not there. `unreadable`: there, but not an image
    that can be decoded. `ignored`: files that are no images, such as `Thumbs.db`. `converted`: by
    what they were (`grey`, `CMYK`, `alpha`, ...), images turned into the channels asked for.

    >>> report = LoadReport(ignored=("Thumbs.db",), converted={"grey": ("a.jpg", "b.jpg")})
    >>> report.clean, report.summary()
    (False, '1 ignored (Thumbs.db); 2 converted from grey (a.jpg, b.jpg)')
    """

    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    converted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether there is nothing to report."""
        return not (self.missing or self.unreadable or self.ignored or self.converted)

    @property
    def skipped(self) -> dict[str, tuple[str, ...]]:
        """Files that a user would expect among the samples, by why they are not.

        Of the `ignored`, what a system leaves in folders (`Thumbs.db`, hidden files) is not meant.
        """
        ignored = tuple(name for name in self.ignored if not _is_litter(name))
        kinds = {"missing": self.missing, "unreadable": self.unreadable, "ignored": ignored}
        return {kind: found for kind, found in kinds.items() if found}

    def skipped_summary(self, names: int = 3) -> str:
        """One line about what was skipped: counts and the first names; empty if nothing was."""
        return _summary(self.skipped, names)

    def summary(self, names: int = 3) -> str:
        """One line: counts, and the first few names of each kind."""
        kinds = {kind: getattr(self, kind) for kind in ("missing", "unreadable", "ignored")}
        kinds |= {f"converted from {mode}": found for mode, found in self.converted.items()}
        return _summary(kinds, names) or "nothing left out or changed"


def _summary(kinds: Mapping[str, Sequence[str]], names: int) -> str:
    parts = []
    for kind, found in kinds.items():
        if found:
            more = ", ..." if len(found) > names else ""
            parts.append(f"{len(found)} {kind} ({', '.join(found[:names])}{more})")
    return "; ".join(parts)


def _is_litter(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last.startswith(".") or last.lower() in ("thumbs.db", "desktop.ini")
