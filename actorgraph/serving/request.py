"""`Request` and `RequestBatch`: what waits for a model, and what runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeAlias

from actorgraph.graph import Node
from actorgraph.machines import Run
from actorgraph.serving.signature import Array

__all__ = ["Answer", "Request", "RequestBatch", "chosen"]

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
    kind : tuple
        Only requests of equal kind are joined.
    order : tuple
        Priority, then number: who comes first.
    born, due, until : float
        When it came, when it waits for company no longer, and its deadline, by `monotonic`.
    host : callable
        Calls a function where the request waits, on its loop or in its thread; from any thread.
        False where nobody is there any more.
    wake : callable
        Ends the waiting; to be called there.
    continues : bool
        Whether it is a later step of a stream: it has been admitted.
    batch : RequestBatch or None
        Which it runs in.
    answer : dict, exception or None
    span : opentelemetry.trace.Span or None
    has_waited : bool
        Whether a span has told of the waiting.
    """

    arrays: Mapping[Node, Array]
    rows: int
    kind: tuple[Any, ...]
    order: tuple[int, int]
    born: float
    due: float
    until: float
    host: Callable[[Callable[[], object]], object]
    wake: Callable[[], object]
    continues: bool = False
    batch: RequestBatch | None = None
    answer: Answer | None = None
    span: Any = None
    has_waited: bool = False

    def left_s(self) -> float:
        """Return the seconds after which who waits for the request has to look after it."""
        now = monotonic()
        waits = self.batch is None and self.due > now
        return max(0.0, (self.due if waits else self.until) - now)


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
    """

    members: list[Request]
    formed: float
    started: float = 0.0
    run: Run | None = None
    span: Any = None

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


def chosen(queue: list[Request], most_rows: int, now: float) -> list[Request]:
    """Return the requests of the next batch, of those that wait in their order; or none yet.

    A batch is due when it is full, or when one of its requests has waited long enough.
    """
    seen = set()
    for head in queue:
        if head.kind in seen:
            continue
        seen.add(head.kind)
        found, rows, due = [head], head.rows, head.due
        for one in queue:
            if one is head or one.kind != head.kind:
                continue
            if rows + one.rows > most_rows:
                due = now  # full
                break
            found.append(one)
            rows += one.rows
            due = min(due, one.due)
        if rows >= most_rows or due <= now:
            return found
    return []
