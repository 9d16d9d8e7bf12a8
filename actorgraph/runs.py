"""`AbstractRun`: what actors, workers, clocks and instruments see of a run.

The whole is `machines.run.Run`, which knows plans; nothing of what works for it needs to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any


class AbstractRun(ABC):
    """A run as those see it who work for it.

    Attributes
    ----------
    number : int
        Counts the runs of the machine, from 0.
    priority : int
        Lower is more urgent.
    done : bool
        Whether it has ended, in whichever way.
    dead : BaseException or None
        What ends it early, set once; actors read it without a lock.
    context : Context or None
        The caller's, where there are ops of users.
    host : callable or None
        Has the caller's event loop call something; returns False where that loop was closed.
    leaves, results : sequence
        What it was given, and what actors have delivered.
    binding : Binding
        What follows from its sizes.
    microbatches : sequence
        Of a pipeline's batch.
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
    leaves: list[Any]
    results: Any
    binding: Any
    microbatches: Sequence[Any]

    @abstractmethod
    def deliver(self, index: int, value: Any) -> None:
        """Take a result (or a mark, of a dead run); the last one ends the run, must not raise."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """End the run because of an op's error."""

    @abstractmethod
    def cancel(self) -> bool:
        """Ask the run to end; return whether it had not ended yet."""

    @abstractmethod
    def expire(self) -> None:
        """End the run because its time is up."""
