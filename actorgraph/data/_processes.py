"""`Processes`: what threads ask for is computed in processes."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from actorgraph.errors import GraphError, text_of

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

__all__ = ["Processes"]


@final
class Processes:
    """A function of two arguments, the first of which each process has once.

    Processes begin at the first call and end with this object.

    Parameters
    ----------
    function : callable
    first : object
    count : int

    Raises
    ------
    GraphError
        `first` cannot be pickled.
    """

    def __init__(self, function: Callable[[Any, Any], Any], first: Any, count: int) -> None:
        try:
            self._given = pickle.dumps((function, first))
        except Exception as error:
            raise GraphError(
                f"a process cannot be given the loader: {text_of(error)}; its dataset, transform "
                "and collate have to be pickled, so no lambdas, or leave process=True out"
            ) from error
        self._count, self._owner = count, -1
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, argument: Any) -> Any:
        """Return what a process computes."""
        from concurrent.futures.process import BrokenProcessPool

        pool = self._begun()
        try:
            return pool.submit(_work, argument).result()
        except BrokenProcessPool as error:
            self._owner = -1  # the next call begins others
            raise GraphError(
                "a process that makes batches has ended; a script that uses process=True begins "
                'with if __name__ == "__main__":'
            ) from error

    def _begun(self) -> ProcessPoolExecutor:
        if self._pool is None or self._owner != os.getpid():
            from concurrent.futures import ProcessPoolExecutor
            from multiprocessing import get_context

            self._owner = os.getpid()
            self._pool = ProcessPoolExecutor(
                self._count, get_context("spawn"), _begin, (self._given,)
            )
        return self._pool


_PART: list[Any] = []
"""In a process: the function and its first argument."""


def _begin(given: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    _PART[:] = pickle.loads(given)


def _work(argument: Any) -> Any:
    function, first = _PART
    return function(first, argument)
