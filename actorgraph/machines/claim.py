"""`Claim`: the memory that a run needs to be admitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeAlias

from actorgraph import devices
from actorgraph.options import positive

HOST = "cpu"
"""The name of the host's memory in claims."""

Limits: TypeAlias = "int | Mapping[Any, int] | None"
"""Bytes on each device, or by device name; None for no limit."""


def checked_limits(max_bytes: Any) -> Limits:
    """Return a machine's `max_bytes`, with devices by name, or raise."""
    if max_bytes is None:
        return None
    if not isinstance(max_bytes, Mapping):
        return positive("max_bytes", max_bytes)
    return {
        devices.get(device).root.name: positive("max_bytes", given)
        for device, given in max_bytes.items()
    }


def limit_of(limits: Limits, device: str) -> float:
    """Return the bytes that runs may hold on a device."""
    if isinstance(limits, Mapping):
        return limits.get(device, inf)
    return inf if limits is None else limits


@dataclass(frozen=True, slots=True)
class Claim:
    """The most bytes that a run can hold at once, in whatever order its tasks run.

    `kept` is what outlives its turn (messages, residuals, results), as if all of it were alive at
    once.  The turns of a device's lane follow one another.
    """

    kept: int
    turn: int  # what a running turn needs in addition, at its worst moment
    arena: int  # planned memory of a turn, which the machine keeps
    tasks: int  # how many turns can run at once
    on: Mapping[str, int] = field(default_factory=dict)  # by name of device, beside the host

    def alone(self, workers: int) -> dict[str, int]:
        """Return the bytes by device if this is the only run."""
        on_host = self.kept + min(self.tasks, workers) * (self.turn + self.arena)
        return {**self.on, HOST: on_host + self.on.get(HOST, 0)}
