"""`TapeMachine`: the whole graph as one straight-line program, no channels inside."""

from __future__ import annotations

from typing import final

from actorgraph.lower.cuts import Cut, sequential
from actorgraph.machines.base import Machine

__all__ = ["TapeMachine"]


@final
class TapeMachine(Machine):
    """Run a graph in sequential order in one thread at a time; lowest latency for small graphs.

    Parameters are those of `Machine`; `fuse` has no meaning here, and `workers` matters for large
    matrix products and convolutions only, of which other threads take parts while the one waits.
    """

    _one_task = True

    def _cut(self) -> Cut:
        return sequential
