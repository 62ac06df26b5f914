"""Ctrl-C and SIGTERM as a request that a run can answer between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["requests_to_stop"]


@contextmanager
def requests_to_stop(*, patient: bool = False) -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM ask the loop to stop after its step; a second one stops at once.

    `patient` ignores the second: torchrun passes on a Ctrl-C that a rank may have got already, and
    itself ends those that take longer than half a minute. After an error it goes on ignoring them:
    torchrun ends the ranks that are left when one dies, and they must have time to say so.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set() and not patient:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    failed = False
    try:
        yield asked
    except BaseException:
        failed = True
        raise
    finally:
        if not (failed and patient):
            for number, handler in before.items():
                signal.signal(number, handler)
