"""`Request` and `RequestBatch`: what waits for a model, and what runs."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeAlias

from actorgraph.graph import Node
from actorgraph.machines import Run
from actorgraph.serving.desks import Desk
from actorgraph.serving.signature import Array

Answer: TypeAlias = dict[str, Array] | BaseException
"""Results by name, or what is raised."""


@dataclass(eq=False, slots=True)
class Request:
    """A request from its admission to its answer; the model's lock is held for changes.

    Attributes
    ----------
    arrays : dict
        Its inputs.
    rows : int
        How much room it takes in a batch.
    kind : hashable
        Only requests of equal kind are joined.
    order : tuple
        Priority, then number: who comes first.
    born, due, until : float
        When it came, when it waits for company no longer, and its deadline, by `monotonic`.
    desk : Desk
        Where it waits.
    bell : awaitable
        What it waits for.
    context : Context or None
        The caller's, where the model has ops that may look at it.
    continues : bool
        Whether it is a later step of a stream: it has been admitted.
    batch : RequestBatch or None
        Which it runs in.
    answer : dict, exception or None
    protocol : str
    cost : float
        What it counts against `max_queued_cost`.
    span : opentelemetry.trace.Span or None
    has_waited : bool
        Whether a span has told of the waiting.
    """

    arrays: Mapping[Node, Array]
    rows: int
    kind: Any
    order: tuple[int, int]
    born: float
    due: float
    until: float
    desk: Desk
    bell: Awaitable[Any] | None
    context: Context | None = None
    continues: bool = False
    batch: RequestBatch | None = None
    answer: Answer | None = None
    protocol: str = ""
    cost: float = 0.0
    span: Any = None
    has_waited: bool = False

    def looks_at(self, now: float) -> float:
        """Return when the time is to be looked at for the request."""
        return self.due if self.batch is None and self.due > now else self.until


@dataclass(eq=False, slots=True)
class RequestBatch:
    """Requests in one run.

    Attributes
    ----------
    members : list of Request
    formed, started : float
        When it was taken out of the queue, and when its run began, by `monotonic`.
    run : Run or None
        None until it has started.
    span : opentelemetry.trace.Span or None
    starter : int or None
        The thread that is starting it just now.
    """

    members: list[Request]
    formed: float
    started: float = 0.0
    run: Run | None = None
    span: Any = None
    starter: int | None = None

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
