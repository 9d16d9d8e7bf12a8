"""`Plan`: what one mode of a machine compiles to, once; and its bindings, one per set of dims.

What only compiling needs is imported where it is used: importing the package does not pay for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from actorgraph.devices import Device, Lane
from actorgraph.errors import FeedError
from actorgraph.graph import Node, topological_order
from actorgraph.lower.collector import paused
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.cuts import Costs, Cut, by_cost, sequential
from actorgraph.lower.fusion import gains, is_heavy, one_after_another, sharing
from actorgraph.lower.joint import Joint, Mode, join
from actorgraph.lower.kernels import alike, depends_on_symbols, kernel
from actorgraph.lower.matmul import tile_count
from actorgraph.lower.program import Program, lower_directly
from actorgraph.lower.regions import TaskSpec, accumulating, connect
from actorgraph.machines.binding import Binding, Direct
from actorgraph.machines.process import THIS
from actorgraph.machines.repeats import Repeats
from actorgraph.machines.results import Results
from actorgraph.memory.arenas import Arenas, Layout, in_parts
from actorgraph.memory.buffers import bulky, leaving, regular, size_in_bytes, writable
from actorgraph.memory.rings import RECYCLED_BYTES, Ring, Rings
from actorgraph.node import Buffer, Variable
from actorgraph.node_actor import LATEST
from actorgraph.op import attrs_key
from actorgraph.rewrite import Pass
from actorgraph.types import UNKNOWN, UnboundDim, bind_shape

if TYPE_CHECKING:
    from actorgraph.lower.placing import Placing

__all__ = ["MEMORIES_KEPT", "Plan"]

_BINDINGS_KEPT = 32  # twice what `Repeats` keeps
MEMORIES_KEPT = 4
"""Of so many bindings the buffers are kept: a batch, the rest of the batches, and their kind."""

LEASING_US = 5.0
"""Turns predicted to take less allocate what they write: leasing memory costs a turn 0.5 us."""


class Plan(Results):
    """The compiled form of (outputs, wrt, mode).

    Parameters
    ----------
    outputs : dict
        Name under which an output is read, to node.
    wrt : sequence of Node
    mode : Mode
    cut : callable
        How the joint graph becomes tasks, see `lower.cuts`.
    device : Device
    watch : tuple of str
    interpreter : callable, optional
        What stands for the generated programs (`LispMachine`): returns the `Steps` of a task.
    passes : sequence of Pass
        How the forward nodes are rewritten, and the late ones the whole.
    costs : dict, optional
        Microseconds of the user's nodes, forward, instead of predictions.
    workers : int
        How many may run its tasks.
    jit : bool or "wait"
        Whether steps are fused and compiled (see `jit`); nothing that is watched or interpreted.
    placing : Placing, optional
        Where nodes run, if not all on the host.
    """

    keeps_derivatives = True
    """Whether derivatives are handed out; else they are read before `give_direct`."""

    over: frozenset[int] = frozenset()
    """The steps that write over their first operand."""

    network: Callable[..., Any] | None = None
    """What makes the plan's networks, where they are not those of `machines.network`."""

    in_order = "in sequential order"
    """How runs pass through `in_sequence`, in words."""

    def __init__(
        self,
        outputs: Mapping[str, Node],
        wrt: Sequence[Node],
        mode: Mode,
        cut: Cut,
        device: Device,
        watch: tuple[str, ...] = (),
        interpreter: Callable[..., Any] | None = None,
        passes: Sequence[Pass] = (),
        costs: Mapping[Node, float] | None = None,
        workers: int = 1,
        jit: bool | str = False,
        placing: Placing | None = None,
    ) -> None:
        from actorgraph.lower.simplify import simplified

        self.mode, self.workers = mode, workers
        self.jit = False if watch or interpreter else jit
        self.given_costs = costs
        self.interpreter = interpreter
        self.wrt = tuple(wrt)
        self.device = device
        self.placing = placing
        self.on_host = placing is None
        self.watch = watch
        by_name = {node.name: node for node in (*wrt, *outputs.values())}
        self.readables = {**by_name, **outputs}
        self.outputs = tuple(dict.fromkeys(outputs.values()))
        self.nodes = tuple(dict.fromkeys((*outputs.values(), *wrt)))
        self.assignments = _assignments(self.nodes)
        assigned = [value for _, value in self.assignments]
        early = [one for one in passes if not one.late]
        with paused():
            joint = join([*outputs.values(), *assigned], wrt, mode, early)
            # What is watched is looked at node by node, as it was written.
            self.late = () if watch else tuple([one for one in passes if one.late])
            self.joint: Joint = simplified(joint, self.late)
        self._shares = (
            not (interpreter or self.jit)
            and any(one.name == "share" for one in self.late)
            and any(node.op.split is not None for node in self.joint.order)
        )
        leaves = self.joint.leaves
        self.inputs = tuple(leaf.source for leaf in leaves if leaf.kind == "feed")
        self.needed = frozenset(self.inputs)
        given = [(place, leaf) for place, leaf in enumerate(leaves) if leaf.kind != "variable"]
        self.given = [(leaf.kind, leaf.source) for _, leaf in given]
        self.places = [place for place, _ in given]
        self.store = self.nodes[0].graph.store
        read = [leaf.source for leaf in leaves if leaf.kind == "variable"]
        self.held = [node.held.place for node in read if isinstance(node, Variable)]
        self._place_results()
        self.bound = list(filter(depends_on_symbols, self.joint.order))
        self.checked = [node for node in self.joint.order if node.checks]
        # Feeds of dims that no symbol tells: their cost is known only from their sizes.
        self.unsized = any(dim is UNKNOWN for node in self.inputs for dim in node.dims)
        self.direct: Program | None = None
        self.direct_steps: Sequence[Node] = ()
        self.direct_buffered: frozenset[int] = frozenset()
        self.allows_direct = not (self.assignments or interpreter or placing)
        self.runs = 0
        self._begin(cut, {})

    def _begin(self, cut: Cut, factors: Mapping[Node, float]) -> None:
        """Make ready to be cut, at the first run, and to be measured from then on."""
        self.cut, self.factors = cut, factors
        # Why the whole is one sequence, None where it is not; decided at the first run.
        self.sequential: str | None = None
        self.tasks: list[TaskSpec] = []
        self.lanes: list[Lane | None] = []  # of the tasks, where there is a placing
        self.long_steps: set[int] = set()
        self.bulky: set[int] = set()
        self.buffered: list[frozenset[int]] = []
        self.leaving: list[frozenset[int]] = []
        self.repeats = Repeats(self.inputs)
        self.latest: Binding | None = None
        self.walls: deque[float] = deque(maxlen=LATEST)  # seconds of runs that were alone
        self.rival: Plan | None = None  # what stays if this one, on trial, is no faster
        self._in_sequence: Plan | None = None
        self._with_memory: list[Binding] = []
        self._bindings: OrderedDict[tuple[tuple[str, int], ...], Binding] = OrderedDict()

    @cached_property
    def waits(self) -> bool:
        """Whether there are ops that wait, on a loop or in threads."""
        return any(node.op.waits for node in self.joint.order)

    @cached_property
    def fits_loop(self) -> bool:
        """Whether an event loop can compute a run: its ops that wait do so there, in a chain."""
        latest: Node | None = None
        following: set[int] = set()  # what needs the latest
        for node in self.joint.order:
            follows = any(part is latest or part.id in following for part in node.inputs)
            on_loop = node.op.runs_on == "loop" and (latest is None or follows)
            if node.op.waits and not on_loop:
                return False
            if node.op.waits:
                latest, following = node, set()
            elif follows:
                following.add(node.id)
        return True

    @cached_property
    def needs_loop(self) -> bool:
        """Whether there are asynchronous ops."""
        return any(node.op.runs_on == "loop" for node in self.joint.order)

    @cached_property
    def has_own(self) -> bool:
        """Whether there are ops of users, which see the context of the run's caller."""
        return any(node.op.checked for node in self.joint.order)

    # -- bindings -----------------------------------------------------------------------------

    def bind(self, symbols: Mapping[str, int]) -> Binding:
        """Return the binding for these symbols; those used latest are kept."""
        key = tuple(sorted(symbols.items()))
        try:
            self._bindings.move_to_end(key)
            return self._bindings[key]
        except KeyError:  # also where another thread has dropped it meanwhile
            return self._bind(key, symbols)

    def _bind(self, key: tuple[tuple[str, int], ...], symbols: Mapping[str, int]) -> Binding:
        with THIS.making:
            found = self._bindings.get(key)  # another thread was faster
            if found is not None:
                return found
            try:
                with paused():
                    found = self._make_binding(dict(symbols))
            except UnboundDim as missing:
                raise FeedError(
                    f"no feed binds the dim {missing.args[0]!r}; feed an input that has it, "
                    "though no result depends on its values"
                ) from None
            self._bindings[key] = self.latest = found
            while len(self._bindings) > _BINDINGS_KEPT:
                self._bindings.popitem(last=False)
        return found

    def _make_binding(self, symbols: Mapping[str, int]) -> Binding:
        if self.given_costs and not self.factors:
            self.factors = self._given_factors(self.given_costs, symbols)
        by_node = self._costs(symbols)
        if not self.tasks:
            # The first run's dims decide the cut; it stands for all later ones.
            self.long_steps = {number for number, cost in by_node.items() if is_heavy(cost)}
            # The parts of a program are for what one thread computes.
            self.bulky = (
                bulky(self.joint.order, symbols)
                if self.on_host
                else {node.id for node in self.joint.order}
            )
            try:
                self._cut(by_node, symbols)
            except BaseException:
                self.tasks = []  # Ctrl-C in the middle: the next run cuts anew
                raise
        costs = [_spent_us(spec, by_node) for spec in self.tasks]
        lane_of = {
            step.id: lane
            for spec, lane in zip(self.tasks, self.lanes, strict=False)
            for step in spec.steps
        }
        return Binding(
            symbols=symbols,
            kernels=[self.kernel(node, symbols, lane_of.get(node.id)) for node in self.bound],
            heavy=tuple(
                any(is_heavy(by_node.get(n.id, 0.0)) and not n.op.waits for n in spec.steps)
                for spec in self.tasks
            ),
            predicted_us=sum(costs) or 1.0,  # leaves alone have no steps; ratios divide by it
        )

    def _cut(self, costs: Costs, symbols: Mapping[str, int]) -> None:
        """Make the tasks: as `cut` says, or one sequence where several are not worth it."""
        if self.weighs:
            self.sequential = one_after_another(self.joint.order, costs, self.workers)
        if self.sequential is None:
            self.tasks = self._connected(self.cut, costs, symbols)
            if self.weighs and not (self.waits or self._gains(costs, symbols)):
                self.sequential = f"{self.workers} workers would end hardly sooner than one"
        if self.sequential is not None:
            self.tasks = self._connected(sequential, costs, symbols)
        self._plan_buffers(costs)

    def _gains(self, costs: Costs, symbols: Mapping[str, int]) -> bool:
        """Return whether the tasks are expected to end clearly sooner than one sequence."""
        before = [
            [port.producer for port in spec.ports if port.producer is not None]
            for spec in self.tasks
        ]
        spent = [_spent_us(spec, costs) for spec in self.tasks]
        alone_us = sum(
            costs[node.id] / sharing(tile_count(node, symbols), self.workers)
            for node in self.joint.order
        )
        return gains(before, spent, self.workers, alone_us)

    def _connected(self, cut: Cut, costs: Costs, symbols: Mapping[str, int]) -> list[TaskSpec]:
        from actorgraph.lower.deadlock import check_order
        from actorgraph.lower.simplify import combined

        tasks = combined(cut(self.joint, costs), self.joint, self.late)
        if self.jit:
            from actorgraph.jit import lowering as jit

            steps = jit.fuse(tasks, self.result_of, symbols)
            self.bound = [step for step in steps if depends_on_symbols(step)]
        elif self._shares:
            from actorgraph.lower.sharing import shared

            for spec in tasks:
                spec.steps = shared(spec.steps, self.joint)
        if self.placing is not None:
            tasks = self.placing.split(tasks, self.joint)
        specs = connect(tasks, self.result_of)
        check_order(specs)
        if self.placing is not None:
            self.lanes = self.placing.assign(specs, self.joint, costs, symbols)
            specs = self.placing.with_transfers(specs, self.lanes, self.joint)
        return specs

    def _given_factors(
        self, costs: Mapping[Node, float], symbols: Mapping[str, int]
    ) -> dict[Node, float]:
        forward = [(self.joint.source(node), node) for node in self.joint.forward]
        return {
            source: costs[source] / predicted_us(node, symbols)
            for source, node in forward
            if source in costs
        }

    def cost_us(self, node: Node, symbols: Mapping[str, int]) -> float:
        """Return the microseconds that a joint node is taken to need."""
        cost = predicted_us(node, symbols)
        return cost * self.factors.get(self.joint.source(node), 1.0) if self.factors else cost

    def _costs(self, symbols: Mapping[str, int]) -> dict[int, float]:
        """Return the costs of all nodes by id; equal types, which are one object, cost the same."""
        known: dict[Any, float] = {}
        found = {}
        for node in self.joint.order:
            key: Any = alike(node)
            if node.attrs:
                key = key, attrs_key(node.attrs)
            cost = None if self.factors else known.get(key)
            if cost is None:
                cost = known[key] = self.cost_us(node, symbols)
            found[node.id] = cost
        return found

    @property
    def weighs(self) -> bool:
        """Whether one sequence stands for the tasks of the cut where these gain too little."""
        return self.cut is by_cost

    @property
    def name(self) -> str:
        """What users call the plan."""
        return self.mode.kind

    @property
    def only_binding(self) -> Binding | None:
        """The binding of all runs so far, None where there were several or none."""
        return self.latest if len(self._bindings) == 1 else None

    def bindings(self) -> list[Binding]:
        """Return those that are kept."""
        return list(self._bindings.values())

    def with_factors(self, factors: Mapping[Node, float]) -> Plan:
        """Return a plan of the same joint graph that is cut anew, by other costs.

        Runs of this one go on as they are.
        """
        return self._cut_anew(self.cut, factors)

    def in_sequence(self) -> Plan:
        """Return a plan of the same joint graph, and of the same bits, in sequential order."""
        if self.sequential is not None or len(self.tasks) < 2:
            return self
        if self._in_sequence is None:
            self._in_sequence = self._cut_anew(sequential, self.factors)
            self._in_sequence.sequential = "only so it fits into max_bytes"
        return self._in_sequence

    def _cut_anew(self, cut: Cut, factors: Mapping[Node, float]) -> Plan:
        other = copy(self)
        other._begin(cut, factors)
        return other

    def take_direct(self, binding: Binding, in_buffers: bool) -> Direct:
        """Return a function that computes the results from the values of the leaves.

        It is the caller's until `give_direct`.  With buffers it wants leaves that are C-contiguous.
        """
        try:
            return binding.direct[in_buffers].pop()
        except LookupError:
            return self._make_direct(binding, in_buffers)

    def give_direct(self, binding: Binding, in_buffers: bool, program: Direct) -> None:
        """Take back a function of `take_direct`, whose results nobody reads out of any more."""
        binding.direct.setdefault(in_buffers, []).append(program)

    def give_up_memory(self) -> None:
        """Let go of the direct programs that nobody runs, and their buffers."""
        for binding in list(self._with_memory):
            binding.direct = {}

    def _make_direct(self, binding: Binding, in_buffers: bool) -> Direct:
        results = list(self.result_of)
        with THIS.making:
            program = self.direct or self._lower_directly(binding, results)
        steps = self.direct_steps
        kernels = [self.kernel(node, binding.symbols) for node in steps]
        fixed = [self.device.to_device(node.attrs["value"]) for node in program.constants]
        with THIS.making:
            if all(other is not binding for other in self._with_memory):
                self._with_memory.append(binding)
                for other in self._with_memory[:-MEMORIES_KEPT]:
                    other.direct = {}
                del self._with_memory[:-MEMORIES_KEPT]
        buffers: list[Any] = [None] * len(self.direct_buffered)
        if in_buffers:
            from actorgraph.memory.packing import assign

            plan = assign(steps, results, self.direct_buffered, binding.symbols)
            buffers = plan.arrays(steps, binding.symbols)
        made: Direct = program.make(*kernels, *fixed, *buffers)
        return made

    def _lower_directly(self, binding: Binding, results: Sequence[Node]) -> Program:
        """Return the program of direct runs, which is told last: others look for it unlocked."""
        from actorgraph.lower.simplify import combined_steps

        order = combined_steps(self.joint, self.late)
        if self.jit:
            from actorgraph.jit import lowering as jit

            [order] = jit.fused([order], results, binding.symbols)
        elif self._shares:
            from actorgraph.lower.sharing import shared

            order = shared(order, self.joint)
        self.direct_steps = order
        leaves = [leaf.node for leaf in self.joint.leaves]
        values = set(self.joint.values.values())
        handed_out = [node for node in results if self.keeps_derivatives or node in values]
        self.direct_buffered = writable(order, handed_out, regular(order))
        self.direct = lower_directly(order, leaves, results, self.direct_buffered)
        return self.direct

    # -- buffers ------------------------------------------------------------------------------

    def _plan_buffers(self, costs: Costs) -> None:
        """Decide which steps of the tasks write into buffers, and which into arrays that leave."""
        none: frozenset[int] = frozenset()
        self.over = accumulating(self.tasks) if self.on_host else none
        if self.interpreter is not None or not self.on_host:
            self.buffered = self.leaving = [none] * len(self.tasks)
            return
        regular_ids = regular(self.joint.order)
        self.buffered, self.leaving = [], []
        for spec in self.tasks:
            if _spent_us(spec, costs) < LEASING_US:
                self.buffered.append(none)
                self.leaving.append(none)
                continue
            inside = len(spec.steps) > 1
            # What begins several steps (`lower.sharing`) is laid out like its operand.
            begun = [step for step in spec.steps if step.id < 0] if self._shares else ()
            regular_ids.update([step.id for step in begun if step.inputs[0].id in regular_ids])
            planned = writable(spec.steps, spec.kept, regular_ids) if inside else none
            self.buffered.append(planned)
            self.leaving.append(leaving(spec.steps, planned, regular_ids) - self.over)

    def layout(
        self,
        index: int,
        binding: Binding,
        in_buffers: bool,
        arenas: Arenas,
        rings: Rings | None,
        sizes: Sequence[int],
    ) -> Callable[[], list[Any]]:
        """Return what gives a turn of a task its arrays and their arena, or as many None.

        They are in lists of these `sizes` where the task has parts.
        """
        planned, out = self.buffered[index], self.leaving[index]
        if not in_buffers:
            return partial(list, in_parts([None] * (len(planned) + len(out) + 1), sizes))
        from actorgraph.memory.packing import assign

        spec, symbols = self.tasks[index], binding.symbols
        results = {node.id for node, _ in spec.results}
        found: dict[int, Ring | None] = {}
        for step in spec.steps:
            if step.id in out:
                shape, handed_out = bind_shape(step.dims, symbols, 0), step.id in results
                ring = None if rings is None else rings.of(shape, step.dtype, handed_out, 2)
                found[step.id] = ring
        lenders = () if rings is None else self.lenders(index, symbols)
        buffers = assign(spec.steps, spec.kept, planned, symbols, lenders)
        return Layout(arenas, buffers, spec.steps, symbols, found, sizes).lease

    def lenders(self, index: int, symbols: Mapping[str, int]) -> list[int]:
        """Return the steps of a task whose arrays leave it and are there from its beginning."""
        out = self.leaving[index]
        return [
            step.id
            for step in self.tasks[index].steps
            if step.id in out and size_in_bytes(step, symbols) >= RECYCLED_BYTES
        ]

    def placed_kernel(self, node: Node, found: Any, lane: Lane | None) -> Any:
        """Return what programs call for a node that runs on a lane, or on the host (None)."""
        assert self.placing is not None
        return self.placing.kernel(node, found, lane, self.joint, fetch=self.mode.fetch)

    def kernel(
        self, node: Node, symbols: Mapping[str, int], lane: Lane | None = None
    ) -> Callable[..., Any]:
        """Return the kernel of a node on this plan's device, or that of a lane."""
        if self.jit:
            from actorgraph.jit import lowering as jit

            if node.op in jit.OWN:
                return jit.fused_kernel(node, symbols, wait=self.jit == "wait")
        device = self.device if lane is None else lane.device
        found: Callable[..., Any] = kernel(node, device.xp, symbols, watch=self.watch)
        return found


def _spent_us(spec: TaskSpec, costs: Mapping[int, float]) -> float:
    """Return what workers spend; what steps share (`lower.sharing`) is a part of what they cost."""
    return sum([costs.get(node.id, 0.0) for node in spec.steps if not node.op.waits])


def _assignments(nodes: Sequence[Node]) -> list[tuple[Buffer, Node]]:
    """Return which buffers a run of `nodes` assigns, and what."""
    declared = nodes[0].graph.assignments
    if not declared:
        return []
    computed = set(topological_order(nodes))
    return [(buffer, value) for buffer, value, on in declared if on in computed]
