"""`ActorMachine`: node actors joined by channels, on workers.  The product."""

from __future__ import annotations

from typing import final

from actorgraph.lower.joint import Mode
from actorgraph.machines.base import Machine
from actorgraph.machines.plan import Plan
from actorgraph.machines.refine import CUTS_AFTER, forget, refined

__all__ = ["ActorMachine"]


@final
class ActorMachine(Machine):
    """Run a graph as concurrent actors.

    Every region of the graph (with ``fuse="none"`` every node) is a `NodeActor`: it waits on its
    input channels, emits Duals downstream, and returns cotangents through reverse channels.
    Results do not depend on the number of workers, on the seed, or on timing: bit for bit.

    Regions are cut by predicted cost; after 8 and after 64 runs of a mode the cut is compared with
    measured time and made anew where that was off by a factor of two: other regions, same bits.
    `costs` freezes it.

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

    def _looked_at(self, mode: Mode, plan: Plan) -> Plan:
        """Cut by measured time where predictions were wrong; runs in flight keep their regions."""
        if self.fuse != "auto" or self._given_costs is not None:
            return plan
        factors = refined(plan, self._networks()) if plan.runs in CUTS_AFTER else None
        forget(plan, self._networks())
        if factors is None or self._core is None:
            return plan
        better = self._plans[mode.key] = plan.with_factors(factors)
        self._core.retire(plan)
        return better
