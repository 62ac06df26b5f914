"""Code that a run's config names is imported only where the run is one's own.

`train` signs the name of one's own backbone (`module:function`) into the run folder, with a key
that stays in one's home. A folder that came from elsewhere, or whose config was made to name
something else, has no such signature.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path

from uncollapse._base.files import write_text
from uncollapse.backbones import BACKBONES
from uncollapse.training.config import Config

__all__ = ["SIGNATURE", "UntrustedCodeError", "check_trusted", "names_code", "sign_run"]

SIGNATURE = "signature"  # in the run folder
_RUN_FILES = ("checkpoints", "metrics.jsonl", "summary.json", "measures.json")


class UntrustedCodeError(ValueError):
    """A run of unknown origin whose config names code; the message says how to go on."""

    def __init__(self, folder: Path, name: str) -> None:
        module = name.partition(":")[0]
        super().__init__(
            f"{folder}: its config names code (model.backbone = {name!r}), and this run was not "
            f"trained by you on this account. Nothing of it was imported. Read the module "
            f"{module!r} as your Python finds it; then pass --trust, or trust=True to Run.open"
        )


def names_code(config: Config) -> bool:
    """Whether building the config's network imports a function by name.

    >>> names_code(Config())
    False
    """
    name = config.model.backbone
    return name not in BACKBONES and not name.startswith(("timm:", "sentence:")) and ":" in name


def sign_run(folder: Path, config: Config) -> None:
    """Mark a run that is being trained as one's own; only where its config names code."""
    # Without a home to keep a key in, the run is as good, and --trust is asked for later.
    if names_code(config):
        with contextlib.suppress(OSError):
            write_text(folder / SIGNATURE, _signature(_key(), config) + "\n")


def check_trusted(folder: Path, config: Config, *, trust: bool = False) -> None:
    """Raise `UntrustedCodeError` if the run's config names code and the run is not one's own.

    A folder that is no run, where a config lies that somebody wrote by hand, is not judged.
    """
    if trust or not names_code(config) or not _is_run(folder):
        return
    try:
        found = (folder / SIGNATURE).read_bytes()[:200].strip()
        known = _signature(_key(make=False), config).encode()
    except OSError:
        found, known = b"", b"none"
    if not hmac.compare_digest(found, known):
        raise UntrustedCodeError(folder, config.model.backbone)


def _is_run(folder: Path) -> bool:
    config = (folder / "config.toml").is_file()
    return config and any((folder / name).exists() for name in _RUN_FILES)


def _signature(key: bytes, config: Config) -> str:
    return hmac.new(key, config.model.backbone.encode(), "sha256").hexdigest()


def _key(*, make: bool = True) -> bytes:
    """The key of this account, made when first needed; it never leaves its folder."""
    path = _state_folder() / "key"
    if make and not path.is_file():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        write_text(path, secrets.token_hex(32) + "\n")
    return path.read_bytes().strip()


def _state_folder() -> Path:
    """`UNCOLLAPSE_STATE`, or `uncollapse` in `XDG_STATE_HOME` or `~/.local/state`."""
    own = os.environ.get("UNCOLLAPSE_STATE")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return (Path(own) if own else Path(state) / "uncollapse").expanduser()
