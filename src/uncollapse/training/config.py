"""What a run is made of: a TOML file, checked key by key, and `--set a.b=c` on top of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, ValidationError

from uncollapse._base.files import read_toml
from uncollapse.training.key_errors import explain
from uncollapse.training.loss_sections import AnyLoss, TripletConfig
from uncollapse.training.overrides import apply_overrides
from uncollapse.training.run_sections import (
    BatchConfig,
    DataConfig,
    DistributedConfig,
    EvaluateConfig,
    GuardConfig,
    MiningConfig,
    ModelConfig,
    OptimiserConfig,
    TrainConfig,
)
from uncollapse.training.section_base import Section

__all__ = ["Config", "load_config", "parse_config"]


class Config(Section):
    """A whole run. Every key has a default; unknown keys and impossible values are refused.

    >>> Config().batch.p
    8
    """

    seed: int = Field(0, ge=0, lt=2**63)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    batch: BatchConfig = BatchConfig()
    mining: MiningConfig = MiningConfig()
    loss: AnyLoss = TripletConfig()
    guard: GuardConfig = GuardConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    train: TrainConfig = TrainConfig()
    distributed: DistributedConfig = DistributedConfig()

    def with_root(self, root: str | Path | None) -> Config:
        """The same config with another `data.root`; None leaves it as it is."""
        if root is None:
            return self
        data = self.data.model_copy(update={"root": str(root)})
        return self.model_copy(update={"data": data})

    def to_toml(self) -> str:
        """The config as TOML, as in `to_values`."""
        return tomli_w.dumps(self.to_values())

    def with_changes(self, changes: Mapping[str, Any]) -> Config:
        """The same config with other nested values: `{"batch": {"p": 4}}`.

        With another `loss.name`, the keys that nobody set take the new loss's defaults.
        """
        values = self.to_values()
        for key, change in changes.items():
            inner = isinstance(values.get(key), dict) and isinstance(change, Mapping)
            values[key] = values[key] | change if inner else change
        return parse_config(values)

    def to_values(self) -> dict[str, Any]:
        """Nested values with defaults resolved; keys of the loss that nobody set are left out.

        So `loss.name` can be changed alone, in a run's own config too.
        """
        loss = self.loss.model_dump(exclude_unset=True, exclude_none=True)
        return {**self.model_dump(exclude_none=True), "loss": {"name": self.loss.name, **loss}}

    def value(self, key: str) -> Any:
        """What a dotted key has; None for a key that only another loss has.

        >>> Config().value("batch.p"), Config().value("loss.temperature")
        (8, None)
        """
        found: Any = self
        for part in key.split("."):
            found = getattr(found, part, None)
        return found


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, apply `a.b=c` overrides, and check the result, as `parse_config` does.

    Raises `DamagedFileError` for a file that is no TOML.
    """
    return parse_config(apply_overrides(read_toml(Path(path)), overrides))


def parse_config(values: Mapping[str, Any]) -> Config:
    """Check nested values; an `InputError` names each wrong key, what was given, what is allowed.

    >>> parse_config({"guard": {"action": "resuce"}})
    Traceback (most recent call last):
    uncollapse._base.check.InputError: guard.action: expected 'off', 'warn', 'stop' or 'rescue',
    got 'resuce' (did you mean 'rescue'?)
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise explain(error, Config) from None
