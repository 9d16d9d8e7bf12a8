"""The plain records of a recording, which keep no array, graph or machine alive.

All times are seconds since the start of the recording.  Records per turn are named tuples, as there
may be a million.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Edge:
    """A channel into an actor.

    Attributes
    ----------
    name : str
        The channel's name, such as ``"x -> tanh"``.
    kind : str
        "value", "bundle", "residual" or "trigger".
    producer : int or None
        Index of the actor that sends; None for leaves of the run.
    """

    name: str
    kind: str
    producer: int | None


@dataclass(frozen=True, slots=True)
class Actor:
    """One direction of a region, or a mode that the calling thread computes.

    Attributes
    ----------
    index : int
        Its place in `Trace.actors`.
    direction : str
        "forward", "backward", "weights" and "sum" for parts of it that are tasks of their own, or
        "direct" for direct runs.
    nodes : tuple of str
        Names of the user's nodes that its steps belong to.
    lane : str or None
        In a pipeline, the lane in which it always runs; None if any worker may run it.
    """

    index: int
    name: str
    direction: str
    machine: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    lane: str | None = None


class Slice(NamedTuple):
    """A span of work of one thread, or of a lane of a device.

    Attributes
    ----------
    lane : str
        Name of the thread, or of the lane.
    name, kind : str
        The actor's name and direction; or "check feeds" and "feeds"; or a node's name and "device",
        if a lane of a device has computed it.
    run : int
        Number of the run, counted by its machine.
    microbatch : int or None
        None outside pipelines.
    actor : int or None
        Index of the actor.
    ready : float
        When its last message was sent.
    received_bytes, sent_bytes : int
        Size of the arrays in its messages, by the types of nodes; unknown dims count as 0.
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
        """Its duration."""
        return self.end - self.start

    @property
    def waited_s(self) -> float:
        """How long its messages waited for a worker."""
        return max(0.0, self.start - self.ready)


class MessageSpan(NamedTuple):
    """A message from one slice to another, or from a run to a slice (`source` is None).

    Attributes
    ----------
    source, target : int or None, int
        Indices in `Trace.slices`.
    sent, received : float
        The latest possible time of sending, and the earliest of receiving; the exact times are not
        recorded.
    """

    source: int | None
    target: int
    edge: Edge
    sent: float
    received: float
    bytes: int


@dataclass(frozen=True, slots=True)
class RunSpan:
    """The times of a run; None for those before or after the recording.

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
        """How long it waited for admission."""
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
class Records:
    """The content of a trace, sorted by time.

    `workers` is that of the largest machine, without lanes of pipelines.
    """

    duration_s: float
    workers: int
    lanes: tuple[str, ...]
    actors: tuple[Actor, ...]
    slices: tuple[Slice, ...]
    messages: tuple[MessageSpan, ...]
    runs: tuple[RunSpan, ...]
    calls: tuple[CallSpan, ...]


@dataclass(frozen=True, slots=True)
class PredictedSlice:
    """A slice of a timeline that was computed, not measured."""

    lane: str
    start: float
    end: float
    label: str

    def later(self, seconds: float) -> PredictedSlice:
        """Return the same slice, moved by some seconds."""
        return replace(self, start=self.start + seconds, end=self.end + seconds)

    @classmethod
    def of(cls, item: Any, unit_s: float) -> PredictedSlice:
        """Return a slice of any object with lane, start, end and label.

        Raises
        ------
        TypeError
            The object lacks one of them, or start and end are no numbers in this order.
        """
        try:
            start, end = float(item.start) * unit_s, float(item.end) * unit_s
            if not 0 <= end - start < inf:
                raise ValueError("it should end after its start, both at finite times")
            return cls(str(item.lane), start, end, str(item.label))
        except (AttributeError, TypeError, ValueError) as problem:
            raise TypeError(
                f"a predicted slice has lane, start, end (numbers) and label, got {item!r}: "
                f"{problem}"
            ) from None
