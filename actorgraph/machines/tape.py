"""`TapeMachine`: the whole graph as one straight-line program, without channels."""

from __future__ import annotations

from typing import final

from actorgraph.lower.cuts import Cut, sequential
from actorgraph.machines.base import Machine


@final
class TapeMachine(Machine):
    """Run a graph in sequential order in one thread at a time; lowest latency for small graphs.

    Parameters are those of `Machine`; `fuse` has no effect, and `workers` only for large matrix
    products and convolutions, of which other threads compute parts.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (3,))
    >>> with ag.TapeMachine([(x * x).sum()], wrt=[x]) as machine:
    ...     run = machine.run_sync({"x": np.arange(3, dtype="float32")}, backward=True)
    >>> run[x].grad
    array([0., 2., 4.], dtype=float32)
    """

    _one_task = True

    def _cut(self) -> Cut:
        return sequential
