"""`AbstractRun`: the part of a run that actors, workers, deadlines and instruments use.

`machines.run.Run` implements it and knows plans, which the code that works for a run need not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any


class AbstractRun(ABC):
    """A run, as seen by the code that works for it.

    - `number`: counts the runs of the machine, from 0
    - `priority`: lower is more urgent
    - `done`: whether it has ended, successfully or not
    - `dead`: why it ends early; set once, and read by actors without a lock
    - `context`: the caller's context, if there are ops of users
    - `host`: calls a function on the caller's event loop; returns False if that loop was closed
    - `leaves`, `results`: the values of leaves, and the results that actors have delivered
    - `binding`: what depends on its sizes
    - `microbatches`: the parts of a pipeline's batch
    """

    __slots__ = (
        "__weakref__", "binding", "context", "dead", "done", "host", "leaves", "microbatches",
        "number", "priority", "results",
    )  # fmt: skip

    number: int
    priority: int
    done: bool
    dead: BaseException | None
    context: Context | None
    host: Callable[[Callable[[], object]], object] | None
    leaves: Sequence[Any]
    results: Any
    binding: Any
    microbatches: Sequence[Any]

    @abstractmethod
    def deliver(self, index: int, value: Any) -> None:
        """Store a result, or the poison of a dead run; the last one ends the run.  Never raises."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End the run because of an op's error."""

    @abstractmethod
    def cancel(self) -> bool:
        """Ask the run to end; return whether it had not ended yet."""

    @abstractmethod
    def expire(self) -> None:
        """End the run because its deadline has passed."""
