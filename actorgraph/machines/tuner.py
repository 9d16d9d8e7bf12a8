"""`Tuner`: chooses the plan of a mode by measured time.

Costs decide where nodes run, never what they compute.  After some runs the tuner compares predicted
costs with measured time, and has the mode cut anew if they were off.  Later it tries several tasks
against one sequence.  No prediction tells what a second core is worth on a shared machine, nor what
hand-overs of the GIL cost; so it compares times of runs that did not overlap others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, final

from actorgraph.errors import GraphError, counted
from actorgraph.graph import Graph, Node
from actorgraph.lower.cuts import sequential
from actorgraph.machines.compiled import Binding
from actorgraph.machines.feeds import by_node
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan
from actorgraph.node_actor import LATEST

CUT_AFTER = 8
"""Runs of a mode after which its cut is compared with measured time; also the runs of a trial."""

TRIAL_AFTER = 16
"""Runs after which several tasks are tried against one sequence."""

ROWS_AFTER = 640
"""Runs after which several tasks are tried again, now that tables have rows (`lower.table`).

Rows are requested after 100 runs, and written in the background of some hundred more."""

ROWS_TRIED = 512
"""Runs of that trial, in which the sequence gets rows, too."""

_BRIEF_S = 0.005
"""Longest runs that are tried again: longer ones gain little by rows."""

_TRIED_NODES = 2000
"""Most nodes for a trial: with more, compiling the sequence takes 0.1 s and more."""

_LOOKS = frozenset((3, CUT_AFTER, TRIAL_AFTER, ROWS_TRIED, ROWS_AFTER))
"""Runs after which it decides or measures anew; the first runs start threads and touch memory."""

_WORTH = 2.0
"""Predictions that are off by a smaller factor are kept: another cut would gain little."""

_TURNS = 3
"""Fewest timed turns of a task for its time to count."""


@final
class Tuner:
    """Chooses the plan of one mode; it decides under the core's lock."""

    __slots__ = ("_incumbent_s", "_trials", "incumbent", "measured_s", "plan", "runs")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan  # of later runs
        self.runs = 0  # started so far; during a trial, since its start
        # Seconds of runs of the plan that did not overlap others.
        self.measured_s: deque[float] = deque(maxlen=LATEST)
        self.incumbent: Plan | None = None  # during a trial, the plan that stays if it is faster
        self._incumbent_s = 0.0
        self._trials = 0

    def is_due(self) -> bool:
        """Count a run; return whether `look` is due."""
        self.runs += 1
        return self.runs in _LOOKS

    def is_done(self) -> bool:
        """Return whether the plan is final."""
        last = ROWS_AFTER if self._gets_rows() else TRIAL_AFTER
        return self.runs >= last and self.incumbent is None

    def _gets_rows(self) -> bool:
        """Return whether the plan has won a trial, and tables will make its tasks faster."""
        plan = self.plan
        won = plan.sequential is None and 0.0 < self._incumbent_s < _BRIEF_S
        return won and bool(plan.compiled.native)

    def note(self, plan: Plan, seconds: float) -> None:
        """Record the time of a run that did not overlap others."""
        if plan is self.plan:
            self.measured_s.append(seconds)

    def look(self, networks: Collection[Network], *, tries: bool) -> Plan | None:
        """Choose the plan of later runs; return the plan that it replaces, if any.

        `tries` allows a trial.
        """
        plan, binding = self.plan, self.plan.only_binding
        if self.incumbent is not None:
            enough = CUT_AFTER if self._trials == 1 else ROWS_TRIED
            return self._decide() if self.runs >= enough else None
        if self.runs in (TRIAL_AFTER, ROWS_AFTER) and tries and self._is_worth_a_trial():
            self._begin_trial()
            return None
        # Times are compared for one set of sizes; with several bindings nothing is known.
        factors = None
        if self.runs == CUT_AFTER and binding is not None:
            factors = _refined(plan, binding, turns_us(plan, networks))
        self._forget(networks)
        if factors is None:
            return None
        self.plan = plan.cut_anew(plan.cut, factors)
        return plan

    def _forget(self, networks: Iterable[Network]) -> None:
        """Drop all measurements."""
        for network in networks:
            if network.plan is self.plan:
                for task in network.tasks:
                    task.latest = ()
        self.measured_s.clear()
        if self.plan.latest is not None:
            self.plan.latest.direct_latest.clear()

    def _is_worth_a_trial(self) -> bool:
        plan = self.plan
        return (
            plan.sequential is None
            and not plan.compiled.waits
            and len(plan.partition.tasks) > 1
            and len(self.measured_s) >= _TURNS
            and plan.only_binding is not None
            and len(plan.compiled.joint.order) <= _TRIED_NODES
        )

    def _begin_trial(self) -> None:
        """Start a trial of one sequence against the plan."""
        incumbent, tasks = self.plan, len(self.plan.partition.tasks)
        self.incumbent, self._incumbent_s = incumbent, _median(self.measured_s)
        reason = f"it is on trial against {counted(tasks, 'task')}"
        self.plan = incumbent.cut_anew(sequential, incumbent.factors, reason)
        self.measured_s.clear()
        self.runs, self._trials = 0, self._trials + 1

    def _decide(self) -> Plan:
        """Choose the faster one of the plan on trial and the incumbent; return the other."""
        tried, incumbent, binding = self.plan, self.incumbent, self.plan.only_binding
        assert incumbent is not None
        seconds = self.measured_s or (binding.direct_latest if binding is not None else ())
        self.incumbent, self.runs = None, TRIAL_AFTER if self._trials == 1 else ROWS_AFTER
        if len(seconds) < _TURNS or _median(seconds) > self._incumbent_s:
            self.plan = incumbent
            self.measured_s.clear()
            return tried
        if binding is not None:
            binding.run_us = _median(seconds) * 1e6
        tried.sequential = (
            f"runs took {_median(seconds) * 1e6:.0f} us so, and {self._incumbent_s * 1e6:.0f} us "
            f"as {counted(len(incumbent.partition.tasks), 'task')} on {incumbent.workers} workers"
        )
        return incumbent


def checked_costs(graph: Graph, requested: Any) -> dict[Node, float] | None:
    """Return a user's microseconds, by node or name, as a mapping by node, or raise."""
    if requested is None:
        return None
    costs = by_node(requested, {node.name: node for node in graph.nodes}, "cost")
    for node, cost in costs.items():
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not cost > 0:
            raise GraphError(f"the cost of {node!r} is microseconds above 0, got {cost!r}")
    return costs


def turns_us(plan: Plan, networks: Iterable[Network]) -> dict[int, float]:
    """Return the measured microseconds of a turn, by task of the plan.

    It is the median of the latest turns: other work on the machine makes some much longer.
    """
    medians: dict[int, float] = {}
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                if len(task.latest) >= _TURNS:
                    medians[task.spec.index] = _median(task.latest) * 1e6
    return medians


def _median(seconds: Collection[float]) -> float:
    # The module `statistics` takes 4 ms to import.
    return sorted(seconds)[len(seconds) // 2]


def _refined(
    plan: Plan, binding: Binding, measured_us: Mapping[int, float]
) -> dict[Node, float] | None:
    """Return factors corrected by measured time, None if the predictions are good enough."""
    ratios = _ratios(plan, binding, measured_us)
    if all(1 / _WORTH < ratio < _WORTH for ratio in ratios.values()):
        return None
    factors = dict(plan.factors)
    for node, ratio in ratios.items():
        factors[node] = factors.get(node, 1.0) * ratio
    return factors


def _ratios(plan: Plan, binding: Binding, measured_us: Mapping[int, float]) -> dict[Node, float]:
    """Return measured over predicted time by user's node."""
    joint = plan.compiled.joint
    sources = dict.fromkeys(joint.source(node) for node in joint.order)
    if len(binding.direct_latest) >= _TURNS:
        ratio = _median(binding.direct_latest) * 1e6 / binding.predicted_us
        return dict.fromkeys(sources, ratio)
    measured: dict[Node, float] = {}
    predicted: dict[Node, float] = {}
    for spec in plan.partition.tasks:
        if spec.index not in measured_us:
            continue
        costs = [plan.cost_us(step, binding.symbols) for step in spec.steps]
        ratio = measured_us[spec.index] / sum(costs)
        for step, cost in zip(spec.steps, costs, strict=True):
            source = joint.source(step)
            measured[source] = measured.get(source, 0.0) + cost * ratio
            predicted[source] = predicted.get(source, 0.0) + cost
    return {node: measured[node] / predicted[node] for node in measured}
