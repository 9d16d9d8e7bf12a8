"""What a recording holds: plain records, which keep no array, graph or machine alive.

All times are seconds since the beginning of the recording.  What there is one of a turn is a named
tuple: a recording may hold a million.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Edge:
    """Where an actor receives from.

    Attributes
    ----------
    name : str
        As the channel is called: ``"x -> tanh"``.
    kind : str
        "value", "bundle", "residual" or "trigger".
    producer : int or None
        Index of the actor that sends; None where the run brings it.
    """

    name: str
    kind: str
    producer: int | None


@dataclass(frozen=True, slots=True)
class Actor:
    """One direction of a region, or what a calling thread computes by itself.

    Attributes
    ----------
    index : int
        Its place in `Trace.actors`.
    direction : str
        "forward", "backward", "weights" and "sum" for parts of it that are tasks of their own, or
        "direct" for a run that its caller computes.
    nodes : tuple of str
        Names of the user's nodes that its steps belong to.
    lane : str or None
        In a pipeline, the lane in which it always runs; None where any worker may run it.
    """

    index: int
    name: str
    direction: str
    machine: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    lane: str | None = None


class Slice(NamedTuple):
    """Something that one thread has done.

    Attributes
    ----------
    lane : str
        Name of the thread.
    name, kind : str
        The actor's name and direction; or "check feeds" and "feeds"; or a node and "device", where
        a lane of a device has computed it.
    run : int
        Number of the run, counted by its machine.
    microbatch : int or None
        None outside pipelines.
    actor : int or None
        Index of the actor.
    ready : float
        When the last message that it needs had been sent.
    received_bytes, sent_bytes : int
        Size of the arrays in its messages, by the types of the nodes; unknown dims count as 0.
    """

    lane: str
    start: float
    end: float
    name: str
    kind: str
    run: int
    machine: str
    microbatch: int | None
    actor: int | None
    ready: float
    received_bytes: int
    sent_bytes: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start

    @property
    def waited_s(self) -> float:
        """How long its messages waited for a worker."""
        return max(0.0, self.start - self.ready)


class MessageSpan(NamedTuple):
    """What one slice has sent to another, or a run to a slice (`source` is None).

    Attributes
    ----------
    source, target : int or None, int
        Indices in `Trace.slices`.
    sent, received : float
        At the latest and at the earliest: the program is not stopped to look at the moment.
    """

    source: int | None
    target: int
    edge: Edge
    sent: float
    received: float
    bytes: int


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The life of a run; None for what was before or after the recording.

    `error` is the name of the error that it ended with, or None.
    """

    machine: str
    number: int
    microbatch: int | None
    started: float | None
    admitted: float | None
    ended: float | None
    error: str | None

    @property
    def admission_wait_s(self) -> float:
        """How long it waited for its admission."""
        if self.started is None or self.admitted is None:
            return 0.0
        return self.admitted - self.started


@dataclass(frozen=True, slots=True)
class CallSpan:
    """A call of an asynchronous op, on an event loop."""

    name: str
    machine: str
    run: int
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class PredictedSlice:
    """A slice of a timeline that was computed, not measured."""

    lane: str
    start: float
    end: float
    label: str

    def later(self, seconds: float) -> PredictedSlice:
        """Return the same slice, so many seconds later."""
        return replace(self, start=self.start + seconds, end=self.end + seconds)

    @classmethod
    def of(cls, found: Any, unit_s: float) -> PredictedSlice:
        """Return what any object with lane, start, end and label says.

        Raises
        ------
        TypeError
            The object has not got them, or its start and end are no numbers in this order.
        """
        try:
            start, end = float(found.start) * unit_s, float(found.end) * unit_s
            if not 0 <= end - start < inf:
                raise ValueError("it should end after its start, both at finite times")
            return cls(str(found.lane), start, end, str(found.label))
        except (AttributeError, TypeError, ValueError) as problem:
            raise TypeError(
                f"a predicted slice has lane, start, end (numbers) and label, got {found!r}: "
                f"{problem}"
            ) from None
