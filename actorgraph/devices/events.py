"""Events: marks in the queues of lanes, which are passed when all work before them is done."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from actorgraph.devices.base import Lane


class Event(ABC):
    """A mark in a queue: passed when all work before it is done.

    Attributes
    ----------
    clock : dict
        Vector clock: by lane, how many of its jobs are done when the event is passed.
    """

    def __init__(self) -> None:
        self.clock: dict[Lane, int] = {}

    @property
    @abstractmethod
    def passed(self) -> bool:
        """Whether all work before it is done."""

    @abstractmethod
    def block(self) -> None:
        """Block until it is passed."""

    @abstractmethod
    def then(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it is passed."""


@final
class HostEvent(Event):
    """An event that a host thread sets."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def passed(self) -> bool:
        return self._passed.is_set()

    def set(self) -> None:
        """Mark it as passed; called once, in the order of its queue."""
        with self._lock:
            self._passed.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def block(self) -> None:
        self._passed.wait()

    def then(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it is passed, in the thread that sets it; perhaps at once."""
        with self._lock:
            if not self.passed:
                self._callbacks.append(callback)
                return
        callback()
