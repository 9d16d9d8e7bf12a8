"""Runs that the calling thread computes at once where they are brief, on an event loop too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from actorgraph.machines.base import Machine
from actorgraph.machines.run import Run

__all__ = ["start_or_compute"]

_KNOWN = 3
"""Direct runs after which their times go before what is predicted; the first makes a program."""


def start_or_compute(
    machine: Machine,
    feeds: Mapping[str, Any],
    *,
    priority: int,
    most_us: float,
    host: Callable[[Callable[[], object]], object] | None,
) -> Run:
    """Return a forward run that was started, or computed where it takes less than `most_us`.

    Ops of users may block or call anybody, and loops take as long as they like: they are started.

    Parameters
    ----------
    machine : Machine
    feeds : dict
        By name.
    priority : int
    most_us : float
        0 to start it in any case.
    host : callable, optional
        Calls a function on the loop that waits for the run.
    """
    run = machine._prepare(feeds, False, None, priority, None, host=host)
    compiled, latest = run.plan.compiled, run.binding.direct_latest
    needed_us = min(latest) * 1e6 if len(latest) >= _KNOWN else run.predicted_us
    if (
        needed_us < most_us
        and compiled.allows_direct
        and machine._batches is None
        and not (compiled.unsized or compiled.has_own or machine._actors_only)
        and run.core.run_directly(run)
    ):
        return run
    machine._refuse_without_loop(run, looped=host is not None)
    looped = host is not None and compiled.waits and machine._small(run)
    return machine._begin(run, looped=looped)
