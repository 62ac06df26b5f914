"""What a guard saw or did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uncollapse.health.race import Race

__all__ = ["GuardEvent"]


@dataclass(frozen=True)
class GuardEvent:
    """Something the guard saw or did, in words."""

    step: int
    kind: str  # "warning", "stop", "rescue" or "return"
    text: str
    race: Race | None = None  # what a rescue chose by

    def __str__(self) -> str:
        return f"step {self.step}: {self.text}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a file."""
        race = {} if self.race is None else {"race": self.race.to_dict()}
        return {"step": self.step, "kind": self.kind, "text": self.text, **race}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> GuardEvent:
        """The inverse of `to_dict`."""
        race = given.get("race")
        known = {"race": None if race is None else Race.from_dict(race)}
        return cls(given["step"], given["kind"], given["text"], **known)
