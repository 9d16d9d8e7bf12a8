"""`Tuner`: which plan the runs of a mode go by, as measured time tells.

A cost decides where nodes run, never what they compute.  After some runs it compares the predicted
costs with measured time, and has the mode cut anew where they were off.  Later it tries several
tasks against one sequence: no prediction tells what a second core is worth on a machine that others
use too, nor what the GIL costs when it changes hands, only runs that met no other do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, final

from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.lower.cuts import sequential
from actorgraph.machines.compiled import Binding
from actorgraph.machines.feeds import by_node
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan
from actorgraph.node_actor import LATEST

CUT_AFTER = 8
"""Runs of a mode after which its cut is compared with measured time, and a trial is decided."""

TRIAL_AFTER = 16
"""Runs after which several tasks have to show that they are faster than one sequence."""

ROWS_AFTER = 640
"""Runs after which rows stand for steps (`lower.table`): several tasks have to show it again.

Rows are asked for after 100 runs, and written beside some hundred more."""

ROWS_TRIED = 512
"""Runs of that trial, in which the one sequence gets rows, too."""

_BRIEF_S = 0.005
"""Runs above that gain little by rows, and are not tried again."""

_TRIED_NODES = 2000
"""Nodes above which nothing is tried: compiling the sequence alone takes 0.1 s and more."""

_LOOKS = frozenset((3, CUT_AFTER, TRIAL_AFTER, ROWS_TRIED, ROWS_AFTER))
"""Runs after which it decides, or measures anew: at first threads start and memory is touched."""

_WORTH = 2.0
"""Predictions off by less than this are left alone: another cut would gain little."""

_TURNS = 3
"""Timed turns of a task below which its figure counts for nothing."""


@final
class Tuner:
    """Watches the runs of one mode; the lock of the machine's core is held where it decides."""

    __slots__ = ("_incumbent_s", "_trials", "incumbent", "measured_s", "plan", "runs")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan  # by which the runs to come go
        self.runs = 0  # that were begun; during a trial, since it began
        # Seconds of runs of the plan during which no other was in flight.
        self.measured_s: deque[float] = deque(maxlen=LATEST)
        self.incumbent: Plan | None = None  # it stays if the plan on trial is no faster
        self._incumbent_s = 0.0
        self._trials = 0

    def is_due(self) -> bool:
        """Count a run; return whether it is time to look at what is measured."""
        self.runs += 1
        return self.runs in _LOOKS

    def is_done(self) -> bool:
        """Return whether the plan stays."""
        last = ROWS_AFTER if self._gets_rows() else TRIAL_AFTER
        return self.runs >= last and self.incumbent is None

    def _gets_rows(self) -> bool:
        """Return whether the plan has won a trial, and machine code changes what tasks take."""
        plan = self.plan
        won = plan.sequential is None and 0.0 < self._incumbent_s < _BRIEF_S
        return won and bool(plan.compiled.native)

    def note(self, plan: Plan, seconds: float) -> None:
        """Note how long a run of a plan took that met no other."""
        if plan is self.plan:
            self.measured_s.append(seconds)

    def look(self, networks: Collection[Network], *, tries: bool) -> Plan | None:
        """Choose the plan of the runs to come; return the one that is given up, if any.

        `tries` allows a trial.
        """
        plan, binding = self.plan, self.plan.only_binding
        if self.incumbent is not None:
            enough = CUT_AFTER if self._trials == 1 else ROWS_TRIED
            return self._decide() if self.runs >= enough else None
        if self.runs in (TRIAL_AFTER, ROWS_AFTER) and tries and self._is_worth_a_trial():
            self._begin_trial()
            return None
        # Figures are compared for one set of dims: where several were run, nothing is known.
        factors = None
        if self.runs == CUT_AFTER and binding is not None:
            factors = _refined(plan, binding, turns_us(plan, networks))
        self._forget(networks)
        if factors is None:
            return None
        self.plan = plan.cut_anew(plan.cut, factors)
        return plan

    def _forget(self, networks: Iterable[Network]) -> None:
        """Begin to measure anew."""
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
        """Try one sequence against the plan."""
        incumbent, tasks = self.plan, len(self.plan.partition.tasks)
        self.incumbent, self._incumbent_s = incumbent, _median(self.measured_s)
        reason = f"it is on trial against {tasks} tasks"
        self.plan = incumbent.cut_anew(sequential, incumbent.factors, reason)
        self.measured_s.clear()
        self.runs, self._trials = 0, self._trials + 1

    def _decide(self) -> Plan:
        """Keep the faster one of the plan on trial and the incumbent; return the other."""
        tried, incumbent, binding = self.plan, self.incumbent, self.plan.only_binding
        assert incumbent is not None
        seconds = self.measured_s or (binding.direct_latest if binding is not None else ())
        self.incumbent, self.runs = None, TRIAL_AFTER if self._trials == 1 else ROWS_AFTER
        if len(seconds) < _TURNS or _median(seconds) > self._incumbent_s:
            self.plan = incumbent
            self.measured_s.clear()
            return tried
        tried.sequential = (
            f"runs took {_median(seconds) * 1e6:.0f} us so, and {self._incumbent_s * 1e6:.0f} us "
            f"as {len(incumbent.partition.tasks)} tasks on {incumbent.workers} workers"
        )
        return incumbent


def checked_costs(graph: Graph, given: Any) -> dict[Node, float] | None:
    """Return microseconds by node from what a user gave by node or name, or raise."""
    if given is None:
        return None
    found = by_node(given, {node.name: node for node in graph.nodes}, "cost")
    for node, cost in found.items():
        if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not cost > 0:
            raise GraphError(f"the cost of {node!r} is microseconds above 0, got {cost!r}")
    return found


def turns_us(plan: Plan, networks: Iterable[Network]) -> dict[int, float]:
    """Return the measured microseconds of a turn, by task of the plan.

    The median of the latest: other work on the machine makes some turns many times as long.
    """
    found: dict[int, float] = {}
    for network in networks:
        if network.plan is plan:
            for task in network.tasks:
                if len(task.latest) >= _TURNS:
                    found[task.spec.index] = _median(task.latest) * 1e6
    return found


def _median(seconds: Collection[float]) -> float:
    # The module `statistics` takes 4 ms to import.
    return sorted(seconds)[len(seconds) // 2]


def _refined(plan: Plan, binding: Binding, spent: Mapping[int, float]) -> dict[Node, float] | None:
    """Return better factors by measured time, None where the predictions will do."""
    ratios = _ratios(plan, binding, spent)
    if all(1 / _WORTH < ratio < _WORTH for ratio in ratios.values()):
        return None
    factors = dict(plan.factors)
    for node, ratio in ratios.items():
        factors[node] = factors.get(node, 1.0) * ratio
    return factors


def _ratios(plan: Plan, binding: Binding, spent: Mapping[int, float]) -> dict[Node, float]:
    """Return measured over predicted time by user's node."""
    joint = plan.compiled.joint
    sources = dict.fromkeys(joint.source(node) for node in joint.order)
    if len(binding.direct_latest) >= _TURNS:
        ratio = _median(binding.direct_latest) * 1e6 / binding.predicted_us
        return dict.fromkeys(sources, ratio)
    measured: dict[Node, float] = {}
    predicted: dict[Node, float] = {}
    for spec in plan.partition.tasks:
        if spec.index not in spent:
            continue
        costs = [plan.cost_us(step, binding.symbols) for step in spec.steps]
        ratio = spent[spec.index] / sum(costs)
        for step, cost in zip(spec.steps, costs, strict=True):
            source = joint.source(step)
            measured[source] = measured.get(source, 0.0) + cost * ratio
            predicted[source] = predicted.get(source, 0.0) + cost
    return {node: measured[node] / predicted[node] for node in measured}
