"""Bounded FIFO channels between node actors, in both directions.

Forward channels carry Duals from an actor to a consumer, reverse channels carry cotangents back.

Invariants:

- Messages leave in the order in which they came, one sender and one receiver each.
- A channel holds at most `capacity` messages.  The bound is kept by credits: the receiver gives
  one back for each message it takes, the sender spends one for each message.  Where the number of
  runs in flight bounds the channel already (one message per run), `credits` is None.
- ``deque.append`` and ``deque.popleft`` are atomic; no lock is taken.  The generated actors use
  `queue` and `credits` directly: a method call per message would be felt.
- A channel is never closed: it goes with its machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """State of a channel at one moment.

    Attributes
    ----------
    direction : "forward" or "reverse"
    capacity : int
        Most messages that it may hold.
    depth : int
        Messages that it holds.
    sent, received, peak_depth : int or None
        Counted where the channel was made with ``counted=True``.
    waited_s : float or None
        Seconds that messages have waited in the channel, together.
    longest_wait_s : float or None
        Seconds that the message waited that waited longest.
    """

    name: str
    direction: str
    capacity: int
    depth: int
    sent: int | None
    received: int | None
    peak_depth: int | None
    waited_s: float | None
    longest_wait_s: float | None


class Channel:
    """A bounded FIFO channel.

    Parameters
    ----------
    capacity : int
        At least 1.
    name : str or callable
        For errors and statistics, such as ``"x -> tanh_3"``; or what returns it when asked.
    direction : "forward" or "reverse"
    credited : bool
        Whether the bound is kept by credits; False where something else keeps it.
    counted : bool
        Whether to count messages and to time their wait.

    Examples
    --------
    >>> channel = Channel(capacity=1)
    >>> channel.queue.append("a")
    >>> channel.queue.popleft()
    'a'
    """

    __slots__ = (
        "_arrivals", "_longest_wait_s", "_name", "_peak", "_received", "_sent", "_waited_s",
        "capacity", "counted", "credits", "direction", "messages",
    )  # fmt: skip

    def __init__(
        self,
        capacity: int,
        name: str | Callable[[], str] = "channel",
        direction: Literal["forward", "reverse"] = "forward",
        *,
        credited: bool = True,
        counted: bool = False,
    ) -> None:
        if not isinstance(capacity, int) or capacity < 1:
            name = name if isinstance(name, str) else name()
            raise ValueError(f"the capacity of {name!r} is an int of at least 1, got {capacity!r}")
        self._name, self.capacity = name, capacity
        self.direction, self.counted = direction, counted
        self.messages: deque[Any] = deque()
        self.credits: deque[None] | None = deque([None] * capacity) if credited else None
        if counted:
            self._arrivals: deque[float] = deque()
            self._sent = self._received = self._peak = 0
            self._waited_s = self._longest_wait_s = 0.0

    @property
    def name(self) -> str:
        """For errors and statistics."""
        return self._name if isinstance(self._name, str) else self._name()

    def statistics(self) -> ChannelStatistics:
        """Return the channel's state; blocks nobody."""
        counted = self.counted
        return ChannelStatistics(
            name=self.name,
            direction=self.direction,
            capacity=self.capacity,
            depth=len(self.messages),
            sent=self._sent if counted else None,
            received=self._received if counted else None,
            peak_depth=self._peak if counted else None,
            waited_s=self._waited_s if counted else None,
            longest_wait_s=self._longest_wait_s if counted else None,
        )

    @property
    def queue(self) -> Channel | deque[Any]:
        """What has `append` and `popleft` for messages: the channel itself where it counts them.

        Room, or a message, must be there.
        """
        return self if self.counted else self.messages

    def append(self, message: Any) -> None:
        """Count a message, and put it into the channel."""
        self._arrivals.append(perf_counter())
        self.messages.append(message)
        self._sent += 1
        self._peak = max(self._peak, len(self.messages))

    def popleft(self) -> Any:
        """Count the oldest message, and take it out of the channel."""
        message = self.messages.popleft()
        self._received += 1
        waited_s = perf_counter() - self._arrivals.popleft()
        self._waited_s += waited_s
        self._longest_wait_s = max(self._longest_wait_s, waited_s)
        return message

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} {len(self.messages)}/{self.capacity}>"
