"""`Compiled`: what a mode of a machine compiles to, whatever it is cut into and fed.

What only compiling needs is imported where it is used: importing the package does not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from actorgraph.devices import Device, Lane
from actorgraph.graph import Node, topological_order
from actorgraph.lower.asking import moving
from actorgraph.lower.collector import paused
from actorgraph.lower.joint import Joint, Mode, join
from actorgraph.lower.kernels import is_silent, kernel
from actorgraph.lower.program import Tabling, constant_value
from actorgraph.node import Parameter, Variable
from actorgraph.rewrite import Pass
from actorgraph.types import UNKNOWN

if TYPE_CHECKING:
    from actorgraph.lower.residents import Residents


_STRANDED_BYTES = 512 * 1024
"""Results above which a row gains nothing where threads walk rows beside each other."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """A mode: its joint graph, and what follows from it; see `compiled`."""

    mode: Mode
    outputs: Mapping[str, Node]
    wrt: tuple[Node, ...]
    joint: Joint  # after all passes
    assignments: list[tuple[Variable, Node]]  # what a run assigns to which buffers and parameters
    late: tuple[Pass, ...]  # those that tasks are rewritten by, too
    device: Device
    watch: tuple[str, ...]
    # What stands for the generated programs (`LispMachine`): returns the `Steps` of a task.
    interpreter: Callable[..., Any] | None
    jit: bool | str
    placing: Residents | None = None  # where nodes run, if not all on the host
    native: bool | str = False  # whether steps may be walked as tables (see `lower.table`)
    strands: int = 1  # threads that may walk a table beside each other

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that a run may be asked for, once each."""
        return tuple(dict.fromkeys((*self.outputs.values(), *self.wrt)))

    @cached_property
    def result_of(self) -> dict[Node, int]:
        """The number of each result; a leaf needs none, the run has it."""
        joint = self.joint
        found = [*joint.values.values(), *joint.derivatives.values()]
        results = dict.fromkeys([node for node in found if not node.is_leaf])
        return {node: number for number, node in enumerate(results)}

    @cached_property
    def allows_direct(self) -> bool:
        """Whether a thread may compute runs by itself: assignments keep the order of runs."""
        return not (self.assignments or self.interpreter or self.placing)

    @cached_property
    def steps(self) -> bool:
        """Whether a run assigns parameters, so that the next reads what it has assigned."""
        return any(isinstance(one, Parameter) for one, _ in self.assignments)

    @cached_property
    def walks(self) -> bool:
        """Whether steps may be walked as tables."""
        on_host = self.placing is None and self.device.is_host
        if not self.native or self.watch or self.interpreter is not None or not on_host:
            return False
        from actorgraph.devices import native  # with the first program

        return native.expected() is None

    def is_apart(self, step: Node, symbols: Mapping[str, int]) -> bool:
        """Return whether a step is computed faster by itself than in a group of `jit`."""
        if not self.walks:
            return False
        from actorgraph.lower.quick_rows import is_along

        return is_along(step, symbols)

    def tabling(
        self,
        symbols: Mapping[str, int],
        ordered: Collection[int],
        errors: Mapping[str, Any] | None = None,
    ) -> Tabling | None:
        """Return how steps are walked as tables, None where they are not.

        The strides of steps in `ordered` are in C order; `errors` is the `np.errstate` of all runs,
        None for that of each caller.
        """
        if not self.walks:
            return None
        quick = bool(self.jit) and (errors is None or is_silent(errors))
        wait = "wait" in (self.native, self.jit)
        tabling = Tabling(symbols, wait, errors, ordered, quick=quick, known={})
        if not quick:
            largest = _STRANDED_BYTES if self.strands > 1 else None
            return tabling._replace(strands=self.strands, largest=largest)
        from actorgraph.jit import lowering as jit

        return tabling._replace(others=jit.ROWS)

    @cached_property
    def has_waves(self) -> bool:
        """Whether loops may feed one another (see `control.waves`)."""
        return self.overlaps and sum(["loop" in node.attrs for node in self.joint.order]) > 1

    @cached_property
    def overlaps(self) -> bool:
        """Whether loops, or parts of one, may be made at the same time."""
        return not (self.placing or self.interpreter or self.watch)

    @cached_property
    def shares(self) -> bool:
        """Whether ops of a task that begin alike may share that (see `lower.sharing`)."""
        return (
            not (self.interpreter or self.jit)
            and any(one.name == "share" for one in self.late)
            and any(node.op.split is not None for node in self.joint.order)
        )

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
        """The place of each leaf of the joint graph among the values of a run."""
        return {leaf.node: index for index, leaf in enumerate(self.joint.leaves)}

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """What is fed, in order."""
        return tuple(leaf.source for leaf in self.joint.leaves if leaf.kind == "feed")

    @cached_property
    def given(self) -> list[tuple[str, Node]]:
        """Kind and source of the leaves that a run is given when it is made, in order."""
        leaves = self.joint.leaves
        return [(leaf.kind, leaf.source) for leaf in leaves if leaf.kind != "variable"]

    @cached_property
    def places(self) -> list[int]:
        """The places of what is `given` among all leaves."""
        leaves = enumerate(self.joint.leaves)
        return [place for place, leaf in leaves if leaf.kind != "variable"]

    @cached_property
    def held(self) -> list[int]:
        """The places of the other leaves, which are variables, in the graph's store."""
        read = [leaf.source for leaf in self.joint.leaves if leaf.kind == "variable"]
        return [node.place for node in read if isinstance(node, Variable)]

    @cached_property
    def store(self) -> Any:
        """The arrays of the graph's variables."""
        return self.nodes[0].graph.store

    @cached_property
    def loops(self) -> WeakSet[Any]:
        """The kernels of loops, which have memory of their own."""
        return WeakSet()

    @cached_property
    def checked(self) -> list[Node]:
        """Nodes with equations of dims that every run decides."""
        return [node for node in self.joint.order if node.checks]

    @cached_property
    def unsized(self) -> bool:
        """Whether feeds have dims without a symbol: only the sizes of a run give its cost."""
        return any(dim is UNKNOWN for node in self.inputs for dim in node.dims)

    # -- ops ----------------------------------------------------------------------------------

    @cached_property
    def waits(self) -> bool:
        """Whether there are ops that wait, on a loop or in threads."""
        return any(node.op.waits for node in self.joint.order)

    @cached_property
    def needs_loop(self) -> bool:
        """Whether there are asynchronous ops."""
        return any(node.op.runs_on == "loop" for node in self.joint.order)

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
    def has_own(self) -> bool:
        """Whether there are ops of users, which see the context of the run's caller.

        A body may hold one.
        """
        return any(node.op.checked or node.op.kernel is not None for node in self.joint.order)

    def placed(self, node: Node, found: Any, lane: Lane | None) -> Any:
        """Return what programs call in place of a kernel, for a node on a lane or the host."""
        placing = self.placing
        if placing is None:
            return found
        return placing.kernel(node, found, lane, self.joint, fetch=self.mode.fetch)

    def to_device(self, lane: Lane | None) -> Callable[[Any], Any]:
        """Return what makes the node of a constant a value of a lane, or of the host."""
        if lane is None or self.placing is None:
            return constant_value
        return partial(self.placing.constant, lane)

    def lowered(
        self, parts: Sequence[Sequence[Node]], symbols: Mapping[str, int]
    ) -> list[list[Node]]:
        """Return the steps of each task after the passes that need to know which one has which."""
        found = [list(steps) for steps in parts]
        if self.jit:
            from actorgraph.jit import lowering as jit

            found = jit.fused(found, self.result_of, symbols, self.is_apart)
        elif self.shares:
            from actorgraph.lower.sharing import shared

            found = [shared(steps, self.joint) for steps in found]
        if self.has_waves:
            from actorgraph.control.waves import with_waves

            found = [with_waves(steps, self.joint) for steps in found]
        return found

    def kernel(
        self, node: Node, symbols: Mapping[str, int], lane: Lane | None = None,
        beside: bool = False,
    ) -> Callable[..., Any]:  # fmt: skip
        """Return the kernel of a node on the device, or on that of a lane.

        `beside` says that workers may be busy with other tasks of the run.
        """
        if self.jit:
            from actorgraph.jit import lowering as jit

            if node.op in jit.OWN:
                return jit.fused_kernel(node, symbols, wait=self.jit == "wait")
        xp = np if lane is None else lane.device.products or lane.device.xp
        waits, quick = "wait" in (self.native, self.jit), self.jit and self.walks
        found: Callable[..., Any] = kernel(node, xp, symbols, watch=self.watch)
        if self.walks and node.op.moves_windows:
            found = moving(found, waits)
        if quick:
            from actorgraph.control.in_blocks import IN_BLOCKS
            from actorgraph.lower.quick_rows import quick_kernel, quick_product

            wait = self.jit == "wait"
            if node.op is IN_BLOCKS:
                found = quick_product(found, wait)
            else:
                found = quick_kernel(node, found, symbols, wait)
        if self.walks and hasattr(found, "allow_tables"):  # a loop
            found.allow_tables(waits, bool(self.jit), 1 if beside else self.strands)
        if self.overlaps and hasattr(found, "parts"):
            found.parts = None
        if hasattr(found, "kept_bytes"):
            self.loops.add(found)
        return found


def compiled(
    outputs: Mapping[str, Node],
    wrt: Sequence[Node],
    mode: Mode,
    device: Device,
    watch: tuple[str, ...] = (),
    interpreter: Callable[..., Any] | None = None,
    passes: Sequence[Pass] = (),
    jit: bool | str = False,
    placing: Residents | None = None,
    native: bool | str = False,
    strands: int = 1,
) -> Compiled:
    """Differentiate and rewrite what a machine is asked for in a mode.

    Early passes rewrite the forward nodes, late ones the whole; nothing that is watched or
    interpreted is fused and compiled by `jit`.
    """
    from actorgraph.lower.simplify import simplified

    assignments = _assignments((*outputs.values(), *wrt))
    early = [one for one in passes if not one.late]
    # What is watched is looked at node by node, as it was written.
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
    """Return which buffers and parameters a run of `nodes` assigns, and what."""
    declared = nodes[0].graph.assignments
    if not declared:
        return []
    computed = set(topological_order(nodes))
    return [(buffer, value) for buffer, value, on in declared if on in computed]
