"""Bounded FIFO channels between node actors, in both directions.

Forward channels carry Duals to consumers, reverse channels carry cotangents back.

Invariants:

- Messages leave in the order in which they came.  A channel has one sender and one receiver.
- A channel holds at most `capacity` messages.  Credits keep the bound: the sender spends one for
  each message, and the receiver returns it.  If the number of runs in flight bounds the channel
  already (one message per run), `credits` is None.
- ``deque.append`` and ``deque.popleft`` are atomic; no lock is taken.  Generated actors use
  `queue` and `credits` directly, because a method call per message would be measurable.
- A channel is never closed: it ends with its machine.
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
        Messages that it holds now.
    sent, received, peak_depth : int or None
        None unless the channel was made with ``counted=True``, like the times below.
    waited_s : float or None
        Seconds that messages have waited in the channel, added up.
    longest_wait_s : float or None
        The longest wait of a message, in seconds.
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

    - `capacity`: at least 1
    - `name`: for errors and statistics, such as ``"x -> tanh_3"``; or a function that returns it
    - `direction`: "forward" or "reverse"
    - `credited`: whether credits keep the bound; False if something else does
    - `counted`: whether to count messages and to time their waits

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
        self, capacity: int, name: str | Callable[[], str] = "channel",
        direction: Literal["forward", "reverse"] = "forward", *, credited: bool = True,
        counted: bool = False,
    ) -> None:  # fmt: skip
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
        """Return the channel's state; takes no lock."""
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
        """What messages are appended to and popped from: the channel itself if it counts them.

        The caller makes sure that there is room, or a message.
        """
        return self if self.counted else self.messages

    def append(self, message: Any) -> None:
        """Append a message, and count it."""
        self._arrivals.append(perf_counter())
        self.messages.append(message)
        self._sent += 1
        self._peak = max(self._peak, len(self.messages))

    def popleft(self) -> Any:
        """Pop the oldest message, and count it."""
        message = self.messages.popleft()
        self._received += 1
        waited_s = perf_counter() - self._arrivals.popleft()
        self._waited_s += waited_s
        self._longest_wait_s = max(self._longest_wait_s, waited_s)
        return message

    def __repr__(self) -> str:
        return f"<Channel {self.name!r} {len(self.messages)}/{self.capacity}>"
