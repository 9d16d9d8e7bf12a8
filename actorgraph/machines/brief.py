"""Runs that the calling thread computes at once if they are short, also on an event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from actorgraph.machines.base import Machine
from actorgraph.machines.run import Run

_KNOWN = 3
"""Direct runs whose times are preferred to predictions; the first one makes the program."""


def direct_us(machine: Machine, run: Run, share: float = 1.0) -> float:
    """Return the microseconds that one thread needs for a run; infinite if it needs actors.

    Before such runs were measured, it is the prediction times `share`.
    """
    compiled, latest = run.plan.compiled, run.binding.direct_latest
    if (
        not (compiled.allows_direct and compiled.fits_any_thread)
        or machine._batches is not None
        or machine._actors_only
    ):
        return inf
    return min(latest) * 1e6 if len(latest) >= _KNOWN else run.binding.predicted_us * share


def share_of(run: Run, least: float) -> float:
    """Return measured over predicted time of a run, at most `least`, which also means unknown.

    Predictions are made for any machine, and are several times too long for large batches.
    """
    latest = run.binding.direct_latest
    return (
        min(least, min(latest) * 1e6 / run.binding.predicted_us) if len(latest) >= _KNOWN else least
    )


def start_or_compute(
    machine: Machine, feeds: Mapping[str, Any], *, priority: int, most_us: float,
    share: float = 1.0, host: Callable[[Callable[[], object]], object] | None,
) -> Run:  # fmt: skip
    """Return a forward run that was started, or computed if it takes less than `most_us`.

    `host` calls a function on the loop that waits for the run; None if a thread waits.
    """
    run = machine._prepare(feeds, False, None, priority, None, host=host)
    if direct_us(machine, run, share) < most_us and run.core.run_directly(run):
        return run
    return machine._begin(run, in_loop=host is not None)
