"""`Request` and `RequestBatch`: what waits for a model, and what runs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from actorgraph.graph import Node
from actorgraph.machines import Run
from actorgraph.serving.desks import Desk
from actorgraph.serving.signature import Array

Answer: TypeAlias = dict[str, Array] | BaseException
"""Results by name, or what is raised."""

PROTOCOL = ContextVar("actorgraph_protocol", default="python")
"""By which a request has come."""


@dataclass(eq=False, slots=True)
class Request:
    """A request from its admission to its answer; the model's lock is held for changes."""

    arrays: Mapping[Node, Array]
    rows: int  # how much room it takes in a batch
    kind: Any  # only requests of equal kind are joined
    order: tuple[int, int]  # priority, then number: who comes first
    born: float  # when it came, by `monotonic`
    due: float  # when it waits for company no longer
    until: float  # its deadline
    desk: Desk
    bell: Awaitable[Any] | None  # what it waits for
    context: Context | None = None  # the caller's, where the model has ops that may look at it
    continues: bool = False  # it is a later step of a stream: it has been admitted
    batch: RequestBatch | None = None  # in which it runs
    answer: Answer | None = None
    protocol: str = ""
    cost: float = 0.0  # what it counts against `max_queued_cost`
    span: Any = None  # of OpenTelemetry
    has_waited: bool = False  # a span has told of the waiting

    def looks_at(self, now: float) -> float:
        """Return when the time is to be looked at for the request."""
        return self.due if self.batch is None and self.due > now else self.until


@dataclass(eq=False, slots=True)
class RequestBatch:
    """Requests in one run."""

    members: list[Request]
    formed: float  # when it was taken out of the queue, by `monotonic`
    started: float = 0.0  # when its run began
    run: Run | None = None  # None until it has started
    span: Any = None  # of OpenTelemetry
    starter: int | None = None  # the thread that is starting it just now

    @property
    def rows(self) -> int:
        """Those of its requests together."""
        return sum(one.rows for one in self.members)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for its results."""
        return all(one.answer is not None for one in self.members)

    @property
    def priority(self) -> int:
        """That of the most urgent."""
        return min(one.order[0] for one in self.members)


BATCH = ContextVar[RequestBatch | None]("actorgraph_batch", default=None)
"""What an op of a user works for."""


def cancelled() -> bool:
    """Return, to an op of a user, whether nobody waits any more for what it computes.

    All requests of its batch have left or are late: it may return or raise what it likes.  Outside
    of served runs it is False.

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
