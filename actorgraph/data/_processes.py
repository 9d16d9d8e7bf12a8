"""`Processes`: what threads ask for is computed in processes."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

from actorgraph.errors import GraphError, text_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


@final
class Processes:
    """A function of two arguments, the first of which each process has once.

    There is a process for each call at once.  They begin when they are needed, each a pipe away
    from the thread that asks, and end with this object.

    Parameters
    ----------
    function : callable
    first : object

    Raises
    ------
    GraphError
        `first` cannot be pickled.
    """

    def __init__(self, function: Callable[[Any, Any], Any], first: Any) -> None:
        try:
            self._given = pickle.dumps((function, first))
        except Exception as error:
            raise GraphError(
                f"a process cannot be given the loader: {text_of(error)}; its dataset, transform "
                "and collate have to be pickled, so no lambdas, or leave process=True out"
            ) from error
        self._idle: list[tuple[int, Connection]] = []  # and whose they are

    def __call__(self, argument: Any) -> Any:
        """Return what a process computes."""
        mine = os.getpid()
        owner = -1
        while self._idle and owner != mine:  # those of a parent are its own
            owner, connection = self._idle.pop()
        if owner != mine:
            connection = self._begun()
        try:
            connection.send(argument)
            done, made = connection.recv()
        except (EOFError, OSError) as error:
            raise GraphError(
                "a process that makes batches has ended; a script that uses process=True begins "
                'with if __name__ == "__main__":'
            ) from error
        self._idle.append((mine, connection))
        if not done:
            raise made
        return made

    def _begun(self) -> Connection:
        from multiprocessing import get_context

        context = get_context("spawn")
        here, there = context.Pipe()
        context.Process(target=_work, args=(there, self._given), daemon=True).start()
        there.close()
        return here


def _work(connection: Connection, given: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    function, first = pickle.loads(given)
    while True:
        try:
            argument = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(first, argument)
        except Exception as error:  # noqa: BLE001 - raised where the result is taken
            answer = False, error
        try:
            connection.send(answer)
        except Exception as error:  # noqa: BLE001 - it cannot be pickled
            connection.send((False, GraphError(f"what a process has made: {text_of(error)}")))
