"""`Compiled`, what a mode compiles to, and `Binding`, what depends on the sizes of a run.

What only compiling needs is imported locally, so that importing the package stays fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet

import numpy as np

from actorgraph.devices import Device, Lane
from actorgraph.graph import Node, topological_order
from actorgraph.lower.asking import moving
from actorgraph.lower.collector import paused
from actorgraph.lower.joint import Joint, Mode, join
from actorgraph.lower.kernels import class_numbers, is_silent, kernel
from actorgraph.lower.program import Tabling, constant_value
from actorgraph.memory.buffers import may_borrow
from actorgraph.node import Parameter, Variable
from actorgraph.node_actor import LATEST
from actorgraph.options import has_global_lock, proves_tables
from actorgraph.rewrite import Pass
from actorgraph.scratch import borrowing
from actorgraph.types import UNKNOWN

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents
    from actorgraph.op import Op


_QUICK_BYTES = 128 * 1024
"""Largest result of a row with `jit`: helpers share the longer steps."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A mode of a machine: its joint graph, and what follows from it; made by `compiled`."""

    mode: Mode
    outputs: Mapping[str, Node]
    wrt: tuple[Node, ...]
    joint: Joint  # after all passes
    # Buffers and parameters, with the nodes assigned to them.
    assignments: list[tuple[Variable, Node]]
    late: tuple[Pass, ...]  # passes that rewrite tasks, too
    device: Device
    watch: tuple[str, ...]
    # In place of generated programs (`LispMachine`): returns the `Steps` of a task.
    interpreter: Callable[..., Any] | None
    jit: bool | str
    placing: Residents | None = None  # where nodes run, if not all on the host
    native: bool | str = False  # whether steps may be run as tables (see `lower.table`)
    strands: int = 1  # threads that may walk a table at the same time

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Outputs and wrt, without duplicates."""
        return tuple(dict.fromkeys((*self.outputs.values(), *self.wrt)))

    @cached_property
    def result_of(self) -> dict[Node, int]:
        """The number of each result; leaves are none, for a run has them already."""
        joint = self.joint
        computed = [*joint.values.values(), *joint.derivatives.values()]
        results = dict.fromkeys([node for node in computed if not node.is_leaf])
        return {node: number for number, node in enumerate(results)}

    @cached_property
    def classes(self) -> dict[int, int]:
        """The `class_numbers` of all nodes."""
        return class_numbers(self.joint.order)

    @cached_property
    def allows_direct(self) -> bool:
        """Whether one thread may compute a run directly; assignments need the order of runs."""
        return not (self.assignments or self.interpreter or self.placing)

    @cached_property
    def updates_parameters(self) -> bool:
        """Whether a run assigns parameters, so that the next run has to wait for it."""
        return any(isinstance(variable, Parameter) for variable, _ in self.assignments)

    @cached_property
    def allows_native(self) -> bool:
        """Whether machine code may compute steps, where there is any."""
        on_host = self.placing is None and self.device.is_host
        return bool(self.native) and not self.watch and self.interpreter is None and on_host

    @cached_property
    def walks(self) -> bool:
        """Whether steps may be run as tables; there are none where structs are not as expected."""
        return self.allows_native and proves_tables() and has_global_lock()

    @property
    def may_begin_plain(self) -> bool:
        """Whether the first runs may do without tables: nothing waits for these or is fused."""
        return bool(self.native) and self.native != "wait" and not self.jit

    def is_apart(self, step: Node, symbols: Mapping[str, int]) -> bool:
        """Return whether a step is computed faster alone than in a fusion group of `jit`."""
        if not self.walks:
            return False
        from actorgraph.lower.quick_rows import is_along

        return is_along(step, symbols)

    def tabling(
        self, symbols: Mapping[str, int], ordered: Collection[int],
        errors: Mapping[str, Any] | None = None,
    ) -> Tabling | None:  # fmt: skip
        """Return how steps are run as tables, None if they are not.

        Results of steps in `ordered` have strides in C order.  `errors` is the `np.errstate` of all
        runs, None for that of each caller.
        """
        if not self.walks:
            return None
        quick = bool(self.jit) and (errors is None or is_silent(errors))
        wait = "wait" in (self.native, self.jit)
        tabling = Tabling(
            symbols, wait, ordered, errors, quick=quick, known={}, classes=self.classes,
            strands=self.strands,
        )  # fmt: skip
        if not quick:
            return tabling
        from actorgraph.jit import lowering as jit

        return tabling._replace(others=jit.ROWS, largest=_QUICK_BYTES)

    @cached_property
    def has_waves(self) -> bool:
        """Whether loops may feed one another (see `control.waves`)."""
        return self.overlaps and sum(["loop" in node.attrs for node in self.joint.order]) > 1

    @cached_property
    def overlaps(self) -> bool:
        """Whether loops, or parts of one, may run at the same time."""
        return not (self.placing or self.interpreter or self.watch)

    def derivative_is_zero(self, node: Node) -> bool:
        """Return whether the node's derivative is zero because nothing depends on it."""
        if node.dtype.kind not in "fcV" or self.mode.kind == "forward":
            return False
        return self.mode.kind == "tangents" or node in self._wrt_nodes

    @cached_property
    def _wrt_nodes(self) -> frozenset[Node]:
        return frozenset(self.wrt)

    # -- leaves -------------------------------------------------------------------------------

    @cached_property
    def leaf_index(self) -> dict[Node, int]:
        """The index of each leaf of the joint graph among the leaves of a run."""
        return {leaf.node: index for index, leaf in enumerate(self.joint.leaves)}

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The placeholders that runs feed, in the order of leaves."""
        return tuple(leaf.source for leaf in self.joint.leaves if leaf.kind == "feed")

    @cached_property
    def passed(self) -> list[tuple[str, Node]]:
        """Kind and source of the leaves that are no variables, in order."""
        leaves = self.joint.leaves
        return [(leaf.kind, leaf.source) for leaf in leaves if leaf.kind != "variable"]

    @cached_property
    def only_fed(self) -> bool:
        """Whether the `passed` leaves are the feeds."""
        return all(kind == "feed" for kind, _ in self.passed)

    @cached_property
    def passed_places(self) -> list[int]:
        """The indices of the `passed` leaves among all leaves."""
        leaves = enumerate(self.joint.leaves)
        return [place for place, leaf in leaves if leaf.kind != "variable"]

    @cached_property
    def variable_places(self) -> list[int]:
        """The places of the leaves that are variables in the graph's store."""
        read = [leaf.source for leaf in self.joint.leaves if leaf.kind == "variable"]
        return [node.place for node in read if isinstance(node, Variable)]

    @cached_property
    def variables_in(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Takes the variables of the leaves, in order, from the arrays of the store."""
        return _taker(self.variable_places)

    @cached_property
    def arranged(self) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        """Takes the leaves, in order, from the `passed` ones with the variables behind them."""
        kinds = [leaf.kind == "variable" for leaf in self.joint.leaves]
        passed, variables = count(), count(kinds.count(False))
        return _taker([next(variables if one else passed) for one in kinds])

    @cached_property
    def store(self) -> Any:
        """The `Store` of the graph's variables."""
        return self.nodes[0].graph.store

    @cached_property
    def loops(self) -> WeakSet[Any]:
        """The kernels of loops, which keep memory between runs."""
        return WeakSet()

    @cached_property
    def checked(self) -> list[Node]:
        """Nodes with equations between dims that each run has to check."""
        return [node for node in self.joint.order if node.checks]

    @cached_property
    def unsized(self) -> bool:
        """Whether feeds have dims of None, so that no cost can be predicted."""
        return any(dim is UNKNOWN for node in self.inputs for dim in node.dims)

    # -- ops ----------------------------------------------------------------------------------

    @cached_property
    def _ops(self) -> frozenset[Op]:
        """The distinct ops, far fewer than nodes."""
        return frozenset([node.op for node in self.joint.order])

    @cached_property
    def waits(self) -> bool:
        """Whether there are asynchronous or blocking ops, or values of lanes to wait for."""
        return any(op.waits for op in self._ops)

    @cached_property
    def needs_loop(self) -> bool:
        """Whether there are asynchronous ops."""
        return any(op.runs_on == "loop" for op in self._ops)

    @cached_property
    def fits_loop(self) -> bool:
        """Whether an event loop can compute a run: ops that wait are async, and in a chain."""
        latest: Node | None = None
        following: set[int] = set()  # nodes that depend on the latest
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
    def has_user_ops(self) -> bool:
        """Whether there are, or may be in bodies, ops of users, which see the caller's context."""
        return any(op.calls_others for op in self._ops)

    @cached_property
    def fits_any_thread(self) -> bool:
        """Whether predictions tell how long a run keeps a thread, which need not be a worker.

        Ops of users may block or call anything, and dims of None have no cost.
        """
        return not (self.waits or self.has_user_ops or self.placing or self.unsized)

    @cached_property
    def fits_loop_thread(self) -> bool:
        """As `fits_any_thread`, for that of the loop, which calls asynchronous ops anyway."""
        others = [op for op in self._ops if op.runs_on != "loop"]
        calls = any(op.waits or op.calls_others for op in others)
        return not (calls or self.placing or self.unsized)

    def placed(self, node: Node, kernel: Any, lane: Lane | None) -> Any:
        """Return what programs call for a node on a lane or the host, given its kernel."""
        placing = self.placing
        if placing is None:
            return kernel
        return placing.kernel(node, kernel, lane, self.joint, fetch=self.mode.fetch)

    def to_device(self, lane: Lane | None) -> Callable[[Any], Any]:
        """Return a function from a constant's node to its value on a lane, or on the host."""
        if lane is None or self.placing is None:
            return constant_value
        return partial(self.placing.constant, lane)

    def lowered(
        self, parts: Sequence[Sequence[Node]], symbols: Mapping[str, int]
    ) -> list[list[Node]]:
        """Return the steps of each task after the passes that depend on the cut."""
        lowered = [list(steps) for steps in parts]
        if self.jit:
            from actorgraph.jit import lowering as jit

            lowered = jit.fused(lowered, self.result_of, symbols, self.is_apart)
        if self.has_waves:
            from actorgraph.control.waves import with_waves

            lowered = [with_waves(steps, self.joint) for steps in lowered]
        return lowered

    def kernel(
        self, node: Node, symbols: Mapping[str, int], lane: Lane | None = None,
        beside: bool = False,
    ) -> Callable[..., Any]:  # fmt: skip
        """Return the kernel of a node on the host, or on a lane's device.

        `beside` says that workers may be busy with other tasks of the run.
        """
        if self.jit:
            from actorgraph.jit import lowering as jit

            if node.op in jit.OWN:
                return jit.fused_kernel(node, symbols, wait=self.jit == "wait")
        xp = np if lane is None else lane.device.products or lane.device.xp
        waits = "wait" in (self.native, self.jit)
        made: Callable[..., Any] = kernel(node, xp, symbols, watch=self.watch)
        # `walks` imports modules that few kernels need, so it is asked last; windows ask later.
        if node.op.moves_windows and self.allows_native:
            made = moving(made, waits)
        if self.jit and self.walks:
            from actorgraph.control.in_blocks import IN_BLOCKS
            from actorgraph.lower.quick_rows import quick_kernel, quick_product

            wait = self.jit == "wait"
            if node.op is IN_BLOCKS:
                made = quick_product(made, wait)
            else:
                made = quick_kernel(node, made, symbols, wait)
        if type(made) is np.ufunc:
            return made
        if hasattr(made, "allow_tables") and self.walks:  # a loop
            made.allow_tables(waits, bool(self.jit), 1 if beside else self.strands)
        if hasattr(made, "parts") and self.overlaps:
            made.parts = None
        if hasattr(made, "kept_bytes"):
            self.loops.add(made)
        return borrowing(made) if lane is None and may_borrow(node) else made


def compiled(
    outputs: Mapping[str, Node], wrt: Sequence[Node], mode: Mode, device: Device,
    watch: tuple[str, ...] = (), interpreter: Callable[..., Any] | None = None,
    passes: Sequence[Pass] = (), jit: bool | str = False, placing: Residents | None = None,
    native: bool | str = False, strands: int = 1,
) -> Compiled:  # fmt: skip
    """Differentiate and rewrite the graph of a machine for a mode.

    Early passes rewrite the forward nodes, late ones the joint graph.  With `watch` or an
    `interpreter`, `jit` compiles nothing.
    """
    from actorgraph.lower.simplify import simplified

    assignments = _assignments((*outputs.values(), *wrt))
    early = [one for one in passes if not one.late]
    # `watch` checks every node as it was written.
    late = () if watch else tuple([one for one in passes if one.late])
    with paused():
        joint = join([*outputs.values(), *[value for _, value in assignments]], wrt, mode, early)
        joint = simplified(joint, late)
    jit = False if watch or interpreter else jit
    return Compiled(
        mode, outputs, tuple(wrt), joint, assignments, late, device, watch, interpreter, jit,
        placing, native, strands,
    )  # fmt: skip


def _assignments(nodes: Sequence[Node]) -> list[tuple[Variable, Node]]:
    """Return the buffers and parameters that a run of `nodes` assigns, and what to each."""
    declared = nodes[0].graph.assignments
    if not declared:
        return []
    computed = set(topological_order(nodes))
    return [(buffer, value) for buffer, value, on in declared if on in computed]


def _taker(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes the items at some places, at least one, from a tuple, as a tuple."""
    first = places[0]
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(first, first + 1))


COUNTED_BYTES = 1 << 20
"""Smallest arrays that `Tally` counts, which takes 1.5 us; making one takes 80 us and more."""

Direct: TypeAlias = Callable[..., list[Any]]
"""A program of direct runs, which only one thread at a time may call."""


@dataclass(slots=True)
class Binding:
    """What depends on the sizes of a run: kernels, and predictions.

    `direct` has the programs of direct runs that are not in use, by their `Inline` and whether they
    write into buffers; see `Inline.take`.
    """

    symbols: Mapping[str, int]
    kernels: list[Any]  # of the nodes that depend on symbols; programs index it
    heavy: tuple[bool, ...]  # per task: whether a turn is worth waking another worker
    predicted_us: float  # of all steps
    fed_bytes: int
    is_large: bool  # whether `Tally` counts feeds or results
    # `Claim`, which knows plans, by whether a run may use buffers
    claims: dict[bool, Any] = field(default_factory=dict)
    direct: dict[int, list[Direct]] = field(default_factory=dict)
    # Runs computed without actors so far, their seconds, and those of the latest in one piece.
    direct_turns: int = 0
    direct_seconds: float = 0.0
    direct_latest: deque[float] = field(default_factory=partial(deque, maxlen=LATEST))
    # What a run takes: predicted, or measured if it has won a trial as one sequence.  Predictions
    # may be refined by turns that other work has delayed, and then are much too long.
    run_us: float = field(init=False)

    def __post_init__(self) -> None:
        self.run_us = self.predicted_us
