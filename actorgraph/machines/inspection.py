"""`Inspectable`: what a machine shows of itself: programs, memory, channels, where time went."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from actorgraph.channels import ChannelStatistics
from actorgraph.graph import Graph, Node
from actorgraph.lower.fusion import HEAVY_US, is_heavy
from actorgraph.lower.joint import Mode
from actorgraph.machines.binding import Binding
from actorgraph.machines.capacities import Capacities
from actorgraph.machines.core import Core
from actorgraph.machines.modes import mode_of, trains
from actorgraph.machines.network import Network
from actorgraph.machines.plan import Plan
from actorgraph.machines.tuner import turns_us
from actorgraph.memory.buffers import peak_bytes

if TYPE_CHECKING:
    from actorgraph.machines.check import Report

__all__ = ["Inspectable", "MemoryPlan"]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Predicted memory of one mode for the sizes of its latest run, leaves not counted.

    Attributes
    ----------
    mode : str
        ``"forward"``, ``"backward"`` or ``"tangents"``; ``"step"`` of a compiled step.
    peak_bytes : int
        Kept memory and, beside it, the other arrays of one run in sequential order at its worst;
        not what an op allocates inside of its call.
    bound_bytes : int
        The liveness lower bound: the most bytes that live at once in sequential order, if every
        array appears when it is computed and dies at its last use.  The peak may be below, where
        steps write over an operand.
    kept_bytes : int
        What stays with the machine between runs, for each worker that works on it at once.
    steps, buffered : int
        Steps of the mode, and how many of them write into kept memory.
    """

    mode: str
    peak_bytes: int
    bound_bytes: int
    kept_bytes: int
    steps: int
    buffered: int


class Inspectable:
    """The part of a `Machine` that answers questions about it."""

    graph: Graph
    outputs: dict[str, Node]
    wrt: tuple[Node, ...]
    _plans: dict[Any, Plan]
    _step_plans: WeakSet[Plan]
    workers: int
    max_in_flight: int
    max_bytes: int | None
    _capacities: Capacities
    _core: Core | None

    def _all_plans(self) -> list[Plan]:
        return [*self._plans.values(), *self._step_plans]

    @property
    def source(self) -> str:
        """The generated programs of every plan compiled so far, with node names as comments."""
        parts = []
        for plan in self._all_plans():
            if plan.inline.program is not None:
                parts.append(f"# mode: {plan.name}")
                parts.append(plan.inline.program.annotated("in the calling thread"))
        for network in self._networks():
            parts.append(f"# mode: {network.plan.name}")
            programs = [(task.program, task.spec.name) for task in network.tasks]
            parts += [program.annotated(name) for program, name in programs if program is not None]
        return "\n\n".join(parts)

    def channels(self) -> list[ChannelStatistics]:
        """Return the state of every channel: depth, and with ``statistics=True`` peaks and waits.

        Blocks nobody.  A channel carries what one task sends another: values, in reverse
        cotangents, and residuals.  What is counted: messages sent and received, the most that
        the channel held, and how long messages waited in it.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", (2,))
        >>> x2 = (x * 2.0).named("double")
        >>> y = np.tanh(x2).named("y")
        >>> with ag.ActorMachine(y, fuse="none", statistics=True) as machine:
        ...     _ = machine.run_sync({"x": np.ones(2, "float32")})
        ...     [_, edge] = machine.channels()
        >>> edge.name, edge.direction, edge.depth, edge.sent, edge.received, edge.peak_depth
        ('double -> y', 'forward', 0, 1, 1, 1)
        >>> 0 < edge.waited_s == edge.longest_wait_s
        True
        """
        return [c.statistics() for network in self._networks() for c in network.channels]

    def check(
        self,
        lanes: Iterable[Iterable[tuple[Any, str, int]]] = (),
        *,
        credits: Mapping[Any, int] | None = None,  # noqa: A002 - the word for it
        backward: bool | Mapping[Any, Any] | None = None,
    ) -> Report:
        """Return whether a mode can block, before it runs; see `machines.check.Report`.

        By themselves, no capacities can block: the oldest run can always move.  Orders that tasks
        have to keep, and credits beside those of the channels, can.  With ``fuse="auto"`` the first
        run of a mode cuts it into tasks; until then one task a node is checked.

        Parameters
        ----------
        lanes : iterable of iterables of (node or name, kind, run)
            For each worker what it does, in order.  The kind is ``"F"``, ``"B"``, or ``"W"`` for
            gradients of weights where these are a task of their own; runs count from 0.  The node
            stands for the task that computes it.  Tasks in no lane are free.
        credits : dict, optional
            ``{((node, kind), (node, kind)): n}``: the first task may be at most n runs ahead of
            the second.
        backward : bool or dict, optional
            The mode, as in `run`.  By default forward and backward, as in a training step, where
            the machine has a wrt and its first output is a scalar with a gradient; else forward.

        Raises
        ------
        GraphError
            There is no such task, or it stands in two lanes or twice in one.

        Examples
        --------
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", (2,))
        >>> a = (x * 2.0).named("a")
        >>> b, c = (a + 1.0).named("b"), (a - 1.0).named("c")
        >>> machine = ag.ActorMachine([b, c], fuse="none", capacity={"a": 1})
        >>> machine.check().ok
        True
        >>> turns = [("b", "F", 0), ("b", "F", 1), ("c", "F", 0), ("c", "F", 1)]
        >>> print(machine.check([turns]))
        forward, 3 tasks, cut one_per_node: can block
          lane 0 is at 'b' of run 1, which waits for a message in a -> b
          'a' is at run 1, which waits for room in a -> c (capacity 1)
          raise the capacity of a -> c from 1 to 2
        """
        from actorgraph.machines import check  # few machines ask

        if backward is None:
            backward = trains(self.outputs, self.wrt)
        mode, _ = mode_of(self.graph, self.outputs, backward, None)
        given = check.Given(
            self._known(mode), self._networks(), self._capacities, self.max_in_flight
        )
        return check.report(given, lanes, {} if credits is None else credits)

    @abstractmethod
    def _known(self, mode: Mode) -> Plan:
        """Return the plan of a mode, which may not have been cut yet."""

    def busiest(self, count: int = 5) -> list[tuple[str, str, float, int]]:
        """Return (node name, op name, seconds, firings) of the nodes that took longest.

        Turns of about 10 us and more are all timed, of shorter ones one in 16; the figures are
        extrapolated.  A region of several nodes goes by the name of its first.  The time of runs
        that the calling thread computed is shared among nodes by predicted cost.
        """
        return _busiest(self._all_plans(), self._networks(), count)

    def costs(self) -> dict[str, float]:
        """Return microseconds a forward call by node name: predicted, or refined by measured time.

        They hold for the sizes of the latest new binding.  A machine that is given them as
        ``costs=`` cuts its regions by them, and never again.
        """
        found: dict[str, float] = {}
        for plan in [*self._plans.values()]:
            if plan.latest is not None:
                symbols, joint = plan.latest.symbols, plan.compiled.joint
                for node in joint.forward:
                    name = joint.source(node).name
                    found.setdefault(name, plan.cost_us(node, symbols))
        return found

    def explain(self) -> str:
        """Return what runs where and why: regions, predicted and measured costs, placement."""
        texts = [
            _explanation(plan, turns_us(plan, self._networks()), self.workers)
            for plan in self._all_plans()
            if plan.latest is not None
        ]
        return "\n\n".join(texts) or "nothing has run yet, and regions are cut at the first run"

    def memory_plan(self) -> list[MemoryPlan]:
        """Return what the memory of each mode that has run is planned to be.

        Nothing of it is measured; figures hold for the sizes of the latest new binding.

        Examples
        --------
        >>> import numpy as np
        >>> import actorgraph as ag
        >>> x = ag.Graph().input("x", shape=(64, 10))
        >>> with ag.TapeMachine([np.tanh(np.tanh(np.tanh(x)))]) as machine:
        ...     _ = machine.run_sync({"x": np.zeros((64, 10), "float32")})
        ...     [plan] = machine.memory_plan()
        >>> plan.peak_bytes, plan.bound_bytes, plan.buffered
        (5120, 5120, 2)
        """
        lends = self.max_bytes is None
        return [_memory_plan(plan, lends) for plan in self._all_plans() if plan.latest is not None]

    def _networks(self) -> list[Network]:
        return list(self._core.networks.values()) if self._core is not None else []


def _busiest(
    plans: Iterable[Plan], networks: Iterable[Network], count: int
) -> list[tuple[str, str, float, int]]:
    found: dict[int, tuple[str, str, float, int]] = {}
    for plan in plans:
        for binding in plan.bindings():
            if binding.direct_turns:
                _share(plan, binding, found)
    for network in networks:
        for actor in network.actors:
            node = network.plan.compiled.joint.source(actor.region.nodes[0])
            _, _, seconds, turns = found.get(node.id, ("", "", 0.0, 0))
            seconds += sum(task.seconds for task in actor.tasks)
            turns += sum(task.turns for task in actor.tasks)
            found[node.id] = node.name, node.op.name, seconds, turns
    return sorted(found.values(), key=_seconds, reverse=True)[:count]


def _share(plan: Plan, binding: Binding, found: dict[int, tuple[str, str, float, int]]) -> None:
    """Add the time of direct runs, by predicted cost, to what each node has taken."""
    part = binding.direct_seconds / binding.predicted_us
    counted = set()
    for step in plan.compiled.joint.order:
        node = plan.compiled.joint.source(step)
        _, _, seconds, turns = found.get(node.id, ("", "", 0.0, 0))
        seconds += part * plan.cost_us(step, binding.symbols)
        turns += 0 if node.id in counted else binding.direct_turns
        counted.add(node.id)
        found[node.id] = node.name, node.op.name, seconds, turns


def _seconds(entry: tuple[str, str, float, int]) -> float:
    return entry[2]


_WAITS = {"loop": "calls wait on the caller's event loop", "thread": "calls wait in threads"}


def _explanation(plan: Plan, spent: Mapping[int, float], workers: int) -> str:
    binding = plan.latest
    assert binding is not None
    sizes = ", ".join(f"{name} = {size}" for name, size in binding.symbols.items())
    costs = "refined by measured time" if plan.factors else "predicted"
    if plan.given_costs is not None:
        costs = "given"
    name = f"mode {plan.name}{f' ({sizes})' if sizes else ''}"
    lines = [
        f"{name}: {len(plan.compiled.joint.order)} steps, {binding.predicted_us:.0f} us {costs}",
        f"cut: {_why(plan)}",
    ]
    if binding.direct_turns:
        mean = binding.direct_seconds / binding.direct_turns * 1e6
        lines.append(
            "small enough to run in the calling thread, without actors: "
            f"{mean:.0f} us each, mean of {binding.direct_turns}"
        )
    rows = [("region", "steps", "predicted us", "measured us", "where")]
    for spec, heavy in zip(plan.partition.tasks, binding.heavy, strict=True):
        cost = sum(plan.cost_us(step, binding.symbols) for step in spec.steps)
        measured = f"{spent[spec.index]:.1f}" if spec.index in spent else "-"
        where = f"any of {workers} workers" if heavy else "after its input, on the same worker"
        if spec.waits:
            kinds = {step.op.runs_on for step in spec.steps if step.op.waits}
            where = " and ".join(sorted(_WAITS[kind] for kind in kinds))
        elif binding.direct_turns and spec.index not in spent:
            where = "in the calling thread"
        rows.append((spec.name, str(len(spec.steps)), f"{cost:.1f}", measured, where))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join([*lines, *("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)])


def _why(plan: Plan) -> str:
    if plan.sequential is not None:
        return f"one sequence, since {plan.sequential}"
    if not plan.weighs:
        text = plan.cut.__doc__ or plan.cut.__name__
        return text.partition("\n")[0].removesuffix(".")
    binding = plan.latest
    assert binding is not None
    steps = [plan.cost_us(step, binding.symbols) for step in plan.compiled.joint.order]
    heavy = sum(cost for cost in steps if is_heavy(cost))
    regions = len({spec.region.index for spec in plan.partition.tasks})
    return (
        f"{regions} regions, since steps of {HEAVY_US:.0f} us and more make up {heavy:.0f} us; "
        "cheap steps join the region of their inputs"
    )


def _memory_plan(plan: Plan, lends: bool) -> MemoryPlan:
    """Return the memory of a plan, whose results are kept for later runs where it `lends` them."""
    assert plan.latest is not None
    symbols = plan.latest.symbols
    results = list(plan.compiled.result_of)
    inline, tasks = plan.inline, plan.partition
    planned: frozenset[int] = inline.buffered
    from actorgraph.memory.packing import assign

    early: dict[int, int] = {}
    order: list[Node]
    if inline.program is not None:
        order = list(inline.steps)
        kept_bytes = assign(order, results, planned, symbols).total_bytes
    else:
        order, kept_bytes = [], 0
        planned = frozenset().union(*tasks.buffered)
        for index, spec in enumerate(tasks.tasks):
            lenders = tasks.lenders(index, symbols) if lends else ()
            early.update(dict.fromkeys(lenders, len(order)))
            order += spec.steps
            laid = assign(spec.steps, spec.kept, tasks.buffered[index], symbols, lenders)
            kept_bytes = max(kept_bytes, laid.total_bytes)
    fresh = peak_bytes(order, results, symbols, without=planned, early=early)
    return MemoryPlan(
        mode=plan.name,
        peak_bytes=kept_bytes + fresh,
        bound_bytes=peak_bytes(order, results, symbols),
        kept_bytes=kept_bytes,
        steps=len(order),
        buffered=len(planned),
    )
