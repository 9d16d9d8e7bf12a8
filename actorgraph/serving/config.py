"""`Config`: the bounds within which a model is served."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from actorgraph.errors import near_names
from actorgraph.options import choice, positive, seconds, text, whole

__all__ = ["Config"]


@dataclass(frozen=True, slots=True)
class Config:
    """The keywords of `Server.add`.

    Attributes
    ----------
    max_inflight : int
        Requests in runs at once.
    max_queued : int
        Requests that wait; 0 takes only those that can start at once.
    overflow : "reject", "wait" or "shed_oldest"
        What becomes of a request too many: it is refused, or waits all the same (how many may wait
        is then the callers' to bound), or the oldest of the least urgent is refused for it.
    request_timeout_s : float
        The longest deadline; a request may ask for a shorter one.
    max_batch_size : int
        Rows of a batch; 1 switches batching off.  A request of more rows runs by itself.
    batch_wait_s : float
        How long a request may wait for company while a worker is free, at most half of the time to
        its deadline.
    batch_by : str, optional
        The symbolic dim; default the one that inputs have as their first.
    max_concurrent_batches : int, optional
        Runs at once; default 1 with batching, else the machine's `max_in_flight`.
    priority_levels, default_priority : int
        Levels count from 1, the most urgent.
    on_disconnect : "cancel" or "ignore"
        What becomes of a request whose client has left.
    shutdown_grace_s : float
        How long `drain` waits before it refuses what has not ended.
    max_request_bytes : int
        Bytes of the inputs, and of a body of HTTP.
    """

    max_inflight: int = 64
    max_queued: int = 100
    overflow: str = "reject"
    request_timeout_s: float = 30.0
    max_batch_size: int = 1
    batch_wait_s: float = 0.0
    batch_by: str | None = None
    max_concurrent_batches: int | None = None
    priority_levels: int = 1
    default_priority: int = 1
    on_disconnect: str = "cancel"
    shutdown_grace_s: float = 30.0
    max_request_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        for name in ("max_inflight", "max_batch_size", "priority_levels", "default_priority"):
            positive(name, getattr(self, name))
        for name in ("request_timeout_s", "batch_wait_s", "shutdown_grace_s"):
            seconds(name, getattr(self, name))
        if whole("max_queued", self.max_queued) < 0:
            raise ValueError(f"max_queued must be at least 0, got {self.max_queued}")
        if whole("max_request_bytes", self.max_request_bytes) < 1:
            raise ValueError(f"max_request_bytes must be at least 1, got {self.max_request_bytes}")
        if self.max_concurrent_batches is not None:
            positive("max_concurrent_batches", self.max_concurrent_batches)
        choice("overflow", self.overflow, ("reject", "wait", "shed_oldest"))
        choice("on_disconnect", self.on_disconnect, ("cancel", "ignore"))
        if self.batch_by is not None:
            text("batch_by", self.batch_by)
        if self.default_priority > self.priority_levels:
            raise ValueError(
                f"default_priority is {self.default_priority}, but there are only "
                f"{self.priority_levels} priority_levels"
            )

    @classmethod
    def of(cls, given: dict[str, Any]) -> Config:
        """Return the config of keywords, or raise `TypeError` for an unknown one."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(
                    f"unknown keyword {name!r} of a model{near_names(name, known)}; "
                    f"known are {', '.join(known)}"
                )
        return cls(**given)
