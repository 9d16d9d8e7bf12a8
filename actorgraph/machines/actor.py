"""`ActorMachine`: node actors joined by channels, on workers.  The product."""

from __future__ import annotations

from typing import final

from actorgraph.machines.base import Machine

__all__ = ["ActorMachine"]


@final
class ActorMachine(Machine):
    """Run a graph as concurrent actors.

    Every region of the graph (with ``fuse="none"`` every node) is a `NodeActor`: it waits on its
    input channels, emits Duals downstream, and returns cotangents through reverse channels.
    Results do not depend on the number of workers, on the seed, or on timing: bit for bit.

    Parameters are those of `Machine`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=(3,))
    >>> w = g.parameter("w", np.ones(3, "float32"))
    >>> loss = (x * w).sum()
    >>> with ag.ActorMachine([loss], workers=2) as machine:
    ...     run = machine.run_sync({"x": np.arange(3, dtype="float32")}, backward=True)
    >>> run[w].grad
    array([0., 1., 2.], dtype=float32)
    """

    def _cut(self) -> str:
        return self.fuse
