"""`ActorMachine`: node actors joined by channels, on workers.  The product."""

from __future__ import annotations

from typing import final

from actorgraph.lower.cuts import Cut, by_cost, checked, fewest, one_per_node
from actorgraph.lower.joint import Mode
from actorgraph.machines.base import Machine
from actorgraph.machines.core import Core
from actorgraph.machines.plan import Plan
from actorgraph.machines.refine import CUT_AFTER, TRIAL_AFTER, decided, forget, on_trial, refined

__all__ = ["ActorMachine"]

CUTS = {"none": one_per_node, "auto": by_cost, "all": fewest}


@final
class ActorMachine(Machine):
    """Run a graph as concurrent actors.

    Every region of the graph (with ``fuse="none"`` every node) is a `NodeActor`: it waits on its
    input channels, emits Duals downstream, and returns cotangents through reverse channels.
    Results do not depend on the number of workers, on the seed, or on timing: bit for bit.

    Regions are cut by predicted cost; after 8 runs of a mode the cut is compared with measured time
    and made anew where that was off by a factor of two.  After 16 runs that a thread waited for,
    several regions are tried against one sequence, and the faster one stays: other regions, same
    bits.  `costs` freezes the cut.

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

    def _cut(self) -> Cut:
        return CUTS[self.fuse] if isinstance(self.fuse, str) else checked(self.fuse)

    def _looked_at(self, mode: Mode, plan: Plan) -> Plan:
        """Cut by measured time where predictions were wrong; runs in flight keep their regions."""
        core = self._core
        if self.fuse != "auto" or self._given_costs is not None or core is None:
            return plan
        with core.lock:
            current = self._plans.get(mode.key, plan)
            # Else two threads have counted to the same number, and the other was faster.
            return self._better(mode, plan, core) if current is plan else current

    def _better(self, mode: Mode, plan: Plan, core: Core) -> Plan:
        if plan.rival is not None and plan.runs >= CUT_AFTER:
            better, worse = decided(plan, self.workers)
            self._plans[mode.key] = better
            core.retire(worse)
            return better
        if plan.runs == TRIAL_AFTER and self.max_bytes is None:
            tried = on_trial(plan)
            if tried is not None:
                self._plans[mode.key] = tried
                return tried
        factors = refined(plan, self._networks()) if plan.runs == CUT_AFTER else None
        forget(plan, self._networks())
        if factors is None:
            return plan
        better = self._plans[mode.key] = plan.with_factors(factors)
        core.retire(plan)
        return better
