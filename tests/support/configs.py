"""The config of a small run on the digits, with some keys changed."""

from uncollapse.training import parse_config

SMALL = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 4, "k": 3},
    "evaluate": {"max_samples": 100},
    "train": {"steps": 4},
}
# Every part that has a state: random mining, a β per class, momentum, a schedule, clipping.
STATEFUL = {
    "model": {"normalize": True},
    "mining": {"positives": "random", "negatives": "distance"},
    "loss": {"name": "margin", "beta_per": "class"},
    "optimizer": {"schedule": "cosine", "warmup": 5, "clip": 1.0},
}


def merged(base, changes):
    """Nested values with the keys of each section in `changes` on top; a None removes one."""
    sections = {**base, **{k: {**base.get(k, {}), **v} for k, v in changes.items()}}
    return {name: _without_none(section) for name, section in sections.items()}


def small_config(seed=0, **changes):
    """`small_config(batch={"p": 5})`: a small run with other values of these sections."""
    return parse_config({"seed": seed, **merged(SMALL, changes)})


def _without_none(section):
    return {key: value for key, value in section.items() if value is not None}
