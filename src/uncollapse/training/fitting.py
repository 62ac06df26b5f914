"""Whether a checkpoint is of this run: made with its config, for its network."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from uncollapse.training.checkpoint import Checkpoint, CheckpointError
from uncollapse.training.config import Config
from uncollapse.training.identity import changed_keys, is_of_the_network

__all__ = ["check_config", "check_tensors"]


def check_config(checkpoint: Checkpoint, config: Config, *, looking: bool = False) -> list[str]:
    """Raise `CheckpointError` for a checkpoint that was made with another config.

    Keys that only say how a network is looked at (`[evaluate]`, `data.root`, ...) are refused too
    with `looking`; without, a line about each is returned.
    """
    changed = changed_keys(checkpoint.config, config)
    lines = []
    for key, (old, new) in changed.items():
        said = f"was made with {key} = {old!r}, where config.toml says {new!r}"
        if looking or is_of_the_network(key):
            which = f"the checkpoint of step {checkpoint.step} is of another run: it"
            raise CheckpointError(f"{which} {said.replace('config.toml', 'the config')}")
        lines.append(f"the run {said}")
    return lines


def check_tensors(step: int, given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` unless names and shapes are those of the network."""
    shapes = {name: list(tensor.shape) for name, tensor in given.items()}
    for name, tensor in wanted.items():
        if shapes.pop(name, None) != list(tensor.shape):
            found = list(given[name].shape) if name in given else "missing"
            what = f"{name} is {found}, and should be {list(tensor.shape)}"
            break
    else:
        if not shapes:
            return
        what = f"{next(iter(shapes))} is not a part of it"
    raise CheckpointError(f"the checkpoint of step {step} is of another network: {what}")
