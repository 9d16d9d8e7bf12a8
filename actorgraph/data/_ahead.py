"""`Ahead`: results that threads compute ahead, in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from actorgraph.errors import GraphError
from actorgraph.scheduler import Threads

_A = TypeVar("_A")
_R = TypeVar("_R")
_END: Any = object()


class Ahead(Generic[_R]):
    """Calls `make` with each of `arguments` in threads; the results come in order.

    Each job reads one argument, under a lock, and its number: result `n` is made from argument `n`,
    whichever thread is faster.  A job is added for each result taken, after `window` jobs at the
    start, so at most `window` results wait.

    - `arguments`: read in the threads, by one at a time
    """

    def __init__(
        self, make: Callable[[_A], _R], arguments: Iterator[_A], threads: int, window: int
    ) -> None:
        self._make, self._arguments = make, arguments
        self._limit, self._window = threads, window
        self._reading, self._adding = threading.Lock(), threading.Lock()
        self._changed = threading.Condition()
        self._threads = Threads("loader-", self._adding)
        self._read = 0
        self._results: dict[int, tuple[Any, BaseException | None]] = {}
        self._closed = False
        self._process = os.getpid()

    def __iter__(self) -> Iterator[_R]:
        try:
            for _ in range(self._window):
                self._add()
            number = 0
            while True:
                if os.getpid() != self._process:
                    raise GraphError(
                        "the threads of this loader do not exist after a fork; "
                        "begin a new iteration in the child"
                    )
                with self._changed:
                    while number not in self._results:
                        self._changed.wait()
                    made, error = self._results.pop(number)
                if error is not None:
                    raise error
                if made is _END:
                    return
                self._add()
                number += 1
                yield made
        finally:
            self._closed = True
            self._threads.end(join=False)

    def _add(self) -> None:
        with self._adding:
            self._threads.add(self._job, self._limit)

    def _job(self) -> None:
        if self._closed:
            return
        made, error = _END, None
        with self._reading:
            number = self._read
            self._read += 1
            try:
                argument = next(self._arguments, _END)
            except BaseException as raised:  # noqa: BLE001 - raised by `__iter__`
                argument, error = _END, raised
        if argument is not _END:
            try:
                made = self._make(argument)
            except BaseException as raised:  # noqa: BLE001 - raised by `__iter__`
                error = raised
        with self._changed:
            self._results[number] = made, error
            self._changed.notify_all()
