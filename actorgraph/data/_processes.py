"""`Processes`: computes the calls of threads in processes."""

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
    """A function of two arguments, of which `first` is sent to each process once.

    There are as many processes as calls at once.  They start when needed, talk to the calling
    thread through a pipe, and end with this object.

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
                f"the loader cannot be sent to a process: {text_of(error)}; its dataset, transform "
                "and collate have to be picklable, so use no lambdas, or leave process=True out"
            ) from error
        self._idle: list[tuple[int, Connection]] = []  # with the process that owns each

    def __call__(self, argument: Any) -> Any:
        """Return the function's result, computed in a process."""
        mine = os.getpid()
        owner = -1
        while self._idle and owner != mine:  # after a fork those of the parent are dropped
            owner, connection = self._idle.pop()
        if owner != mine:
            connection = self._start()
        try:
            connection.send(argument)
            done, made = connection.recv()
        except (EOFError, OSError) as error:
            raise GraphError(
                "a process that makes batches has ended; a script that uses process=True needs "
                'if __name__ == "__main__":'
            ) from error
        self._idle.append((mine, connection))
        if not done:
            raise made
        return made

    def _start(self) -> Connection:
        from multiprocessing import get_context

        context = get_context("spawn")
        here, there = context.Pipe()
        context.Process(target=_work, args=(there, self._given), daemon=True).start()
        there.close()
        return here


def _work(connection: Connection, given: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    function, first = pickle.loads(given)
    while True:
        try:
            argument = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(first, argument)
        except Exception as error:  # noqa: BLE001 - raised in the calling thread
            answer = False, error
        try:
            connection.send(answer)
        except Exception as error:  # noqa: BLE001 - it cannot be pickled
            connection.send((False, GraphError(f"the result of a process: {text_of(error)}")))
