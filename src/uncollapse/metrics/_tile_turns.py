"""Tiles of a comparison shared between threads, so that no two write to the same queries at once.

The order of the tiles changes no rank, so the result is the same whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Condition

import torch

__all__ = ["Turns", "in_turn"]

Tile = tuple[int, int]  # the first row and the first column
Work = Callable[[int, int], None]


class Turns:
    """Hands out the tiles of `rows` and `columns`, those of one row of tiles one after another.

    With `both` a tile counts for the queries of its rows and of its columns, and columns begin at
    the row's own; else for those of its rows alone. No tile is handed out while another is at work
    on its queries. Rows of tiles that nobody has begun take no memory.

    >>> turns = Turns(range(3), range(3), both=True)
    >>> first, second = turns.take(), turns.take()
    >>> first, second, turns.take(done=first)
    ((0, 0), (1, 1), (0, 2))
    """

    def __init__(self, rows: range, columns: range, *, both: bool) -> None:
        self._columns, self._both = columns, both
        self._closed = list(rows)
        self._open: dict[int, list[int]] = {}
        self._busy: set[int] = set()
        self._changed = Condition()

    def take(self, done: Tile | None = None) -> Tile | None:
        """The next tile for who is `done` with another; None when there are none, or on `stop`.

        Waits while all that is left must wait for others.
        """
        with self._changed:
            if done is not None:
                self._busy -= self._written(done)
                self._changed.notify_all()
            while self._closed or self._open:
                tile = self._free(None if done is None else done[0])
                if tile is not None:
                    self._busy |= self._written(tile)
                    return tile
                self._changed.wait()
            return None

    def stop(self) -> None:
        """Hand out no more."""
        with self._changed:
            self._closed, self._open = [], {}
            self._changed.notify_all()

    def _free(self, row: int | None) -> Tile | None:
        begun = [a for a in self._open if a != row]
        for a in [*([row] if row in self._open else []), *begun]:
            tile = self._first_of(a)
            if tile is not None:
                return tile
        for n, a in enumerate(self._closed):
            if a not in self._busy:
                del self._closed[n]
                self._open[a] = [c for c in self._columns if c >= a or not self._both]
                return self._first_of(a)
        return None

    def _first_of(self, a: int) -> Tile | None:
        if a in self._busy:
            return None
        left = self._open[a]
        for n, c in enumerate(left):
            if not self._both or c not in self._busy:
                del left[n]
                if not left:
                    del self._open[a]
                return a, c
        return None

    def _written(self, tile: Tile) -> set[int]:
        return set(tile) if self._both else {tile[0]}


def in_turn(turns: Turns, worker: Callable[[], Work], threads: int) -> Iterator[None]:
    """Do all tiles, each by one of the workers; yields after each tile.

    `worker` is called once in each of the `threads`, which divide torch's own among them.
    """
    if threads == 1:
        work = worker()
        tile = turns.take()
        while tile is not None:
            work(*tile)
            yield
            tile = turns.take(tile)
        return
    before = torch.get_num_threads()
    ended: SimpleQueue[BaseException | bool] = SimpleQueue()

    def run() -> None:
        try:
            torch.set_num_threads(max(before // threads, 1))  # of this thread alone
            work, tile = worker(), turns.take()
            while tile is not None:
                work(*tile)
                ended.put(False)
                tile = turns.take(tile)
            ended.put(True)
        except BaseException as error:
            turns.stop()
            ended.put(error)

    try:
        with ThreadPoolExecutor(threads, "uncollapse-tiles") as pool:
            for _ in range(threads):
                pool.submit(run)
            try:
                at_work = threads
                while at_work:
                    news = ended.get()
                    if isinstance(news, BaseException):
                        raise news
                    at_work -= news
                    if not news:
                        yield
            finally:
                turns.stop()
    finally:
        torch.set_num_threads(before)  # for threads that are yet to begin
