"""The command `actorgraph trace FILE.py:function`: runs what the function returns, recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from actorgraph._target import outputs_and_feeds
from actorgraph.machines import ActorMachine, LispMachine, Machine, TapeMachine
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import record

MACHINES: dict[str, Callable[..., Machine]] = {
    "actor": ActorMachine,
    "lisp": LispMachine,
    "tape": TapeMachine,
}
"""Machines by their names on the command line."""


def trace(
    target: str, *, machine: str = "actor", workers: int | None = None, fuse: str = "auto",
    runs: int = 1, backward: bool = False, cold: bool = False,
) -> Trace:  # fmt: skip
    """Call the function of a target, and record runs of its outputs; blocks until they have ended.

    The first run, which compiles the machine, is recorded only if `cold`.
    """
    outputs, feeds = outputs_and_feeds(target)
    with MACHINES[machine](outputs, workers=workers, fuse=fuse) as instance:
        if not cold:
            instance.run_sync(feeds, backward=backward)
        return _recorded(instance, feeds, runs, backward)


def _recorded(machine: Machine, feeds: Mapping[Any, Any], runs: int, backward: bool) -> Trace:
    if runs == 1:
        with record() as trace:
            machine.run_sync(feeds, backward=backward)
        return trace

    async def stream() -> Trace:
        # Recorded inside the loop, whose import and start take longer than many runs.
        with record() as trace:
            async for _ in machine.stream([feeds] * runs, backward=backward):
                pass
        return trace

    return anyio.run(stream)


def hint(trace: Trace) -> str | None:
    """Return advice if a recording shows no actors, or None."""
    if all(actor.direction == "direct" for actor in trace.actors):
        return (
            "small runs are computed in one piece by their caller; "
            "--fuse none gives each node an actor"
        )
    return None
