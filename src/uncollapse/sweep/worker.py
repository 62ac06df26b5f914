"""A process that makes one run after another: jobs come in on stdin, results go out on stdout.

It ends when stdin does, so it never outlives the driver, however that one died.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from uncollapse.sweep.jobs import perform

__all__ = ["main"]


def main() -> None:
    """Serve until the driver is gone."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        job = jobs.get()
        result = perform(job["config"], job["path"])
        answers.write(json.dumps(result) + "\n")
        answers.flush()


def _listen(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)  # the driver is gone: the run goes on from its checkpoint another time


if __name__ == "__main__":
    main()
