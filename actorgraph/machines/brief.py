"""Runs that the calling thread computes at once where they are brief, on an event loop too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from actorgraph.machines.base import Machine
from actorgraph.machines.run import Run

_KNOWN = 3
"""Direct runs after which their times go before what is predicted; the first makes a program."""


def direct_us(machine: Machine, run: Run, share: float = 1.0) -> float:
    """Return the microseconds that one thread needs for a run; infinite where it may not.

    What is predicted of a run whose like was not measured counts by `share`.  Ops of users may
    block or call anybody, and loops take as long as they like: actors run them.
    """
    compiled, latest = run.plan.compiled, run.binding.direct_latest
    if (
        not compiled.allows_direct
        or machine._batches is not None
        or compiled.unsized
        or compiled.has_own
        or machine._actors_only
    ):
        return inf
    return min(latest) * 1e6 if len(latest) >= _KNOWN else run.predicted_us * share


def share_of(run: Run, least: float) -> float:
    """Return how much of its prediction a run has taken, or `least` where that is less or unknown.

    Predictions are made for any machine, and of large batches they are several times too long.
    """
    latest = run.binding.direct_latest
    return min(least, min(latest) * 1e6 / run.predicted_us) if len(latest) >= _KNOWN else least


def start_or_compute(
    machine: Machine,
    feeds: Mapping[str, Any],
    *,
    priority: int,
    most_us: float,
    share: float = 1.0,
    host: Callable[[Callable[[], object]], object] | None,
) -> Run:
    """Return a forward run that was started, or computed where it takes less than `most_us`.

    `host` calls a function on the loop that waits for the run, None where a thread waits.
    """
    run = machine._prepare(feeds, False, None, priority, None, host=host)
    if direct_us(machine, run, share) < most_us and run.core.run_directly(run):
        return run
    machine._refuse_without_loop(run, looped=host is not None)
    looped = host is not None and run.plan.compiled.waits and machine._small(run)
    return machine._begin(run, looped=looped)
