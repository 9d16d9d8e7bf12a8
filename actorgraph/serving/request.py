"""`Request` and `RequestBatch`: what waits in a model's queue, and what runs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from actorgraph.graph import Node
from actorgraph.machines import Run
from actorgraph.serving.caller_loops import CallerLoop
from actorgraph.serving.signature import Array

Answer: TypeAlias = dict[str, Array] | BaseException
"""Results by name, or the exception to raise."""

PROTOCOL = ContextVar("actorgraph_protocol", default="python")
"""The protocol by which the current request has arrived."""


@dataclass(eq=False, slots=True)
class Request:
    """A request from its admission to its answer; it changes under the model's lock.

    Times are those of `monotonic`.
    """

    arrays: Mapping[Node, Array]
    rows: int  # how much room it takes in a batch
    batch_key: Any  # only requests of equal keys are joined
    order: tuple[int, int]  # priority, then arrival number
    arrived: float
    due: float  # when it stops waiting for others to join its batch
    deadline: float
    loop: CallerLoop
    waiter: Awaitable[Any] | None
    context: Context | None = None  # the caller's, if the model has user ops that may read it
    continues: bool = False  # a later step of a stream that was admitted already
    batch: RequestBatch | None = None  # in which it runs
    answer: Answer | None = None
    protocol: str = ""
    cost: float = 0.0  # counts against `max_queued_cost`
    span: Any = None  # of OpenTelemetry
    has_queue_span: bool = False

    def next_event(self, now: float) -> float:
        """Return when the request needs its loop to check the time."""
        return self.due if self.batch is None and self.due > now else self.deadline


@dataclass(eq=False, slots=True)
class RequestBatch:
    """Requests in one run."""

    members: list[Request]
    formed: float  # when it was taken out of the queue, by `monotonic`
    started: float = 0.0  # when its run began
    run: Run | None = None  # None until it has started
    span: Any = None  # of OpenTelemetry
    starter: int | None = None  # the thread that is starting the run just now

    @property
    def rows(self) -> int:
        """The rows of all its requests."""
        return sum(request.rows for request in self.members)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for its results."""
        return all(request.answer is not None for request in self.members)

    @property
    def priority(self) -> int:
        """The priority of its most urgent request."""
        return min(request.order[0] for request in self.members)


BATCH = ContextVar[RequestBatch | None]("actorgraph_batch", default=None)
"""The batch for which a user op is running."""


def cancelled() -> bool:
    """Return, inside a user op, whether nobody waits for its result any more.

    That is so when all requests of its batch were cancelled or are late; the op may then return or
    raise anything.  False outside served runs.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> def search(xp, x):
    ...     for _ in range(1000):
    ...         if ag.serving.cancelled():
    ...             return x
    ...         x = xp.cos(x)
    ...     return x
    >>> search(np, np.ones(2)).round(3)
    array([0.739, 0.739])
    """
    batch = BATCH.get()
    return batch is not None and batch.abandoned
