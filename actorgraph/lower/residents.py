"""The values that a machine has on devices, and the kernels that launch there.

A variable's copy stays on a device until the variable has another array.  The run that reads an
array holds it, so nobody writes to it meanwhile.  A feed is copied once to each device that needs
it.  `placing.Placing` is the subclass that machines use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, final
from weakref import WeakKeyDictionary, WeakSet

from actorgraph.devices import Device, Handed, Lane, Placement, base
from actorgraph.devices.capture import CapturedSteps
from actorgraph.errors import GraphError
from actorgraph.graph import Graph, Node
from actorgraph.lower.cuts import Costs, Cut
from actorgraph.lower.joint import Joint
from actorgraph.lower.regions import TaskSpec
from actorgraph.store import PROMISES, promised


@final
class Brought:
    """A value that a run brings, and its copies on devices, each made when it is first needed.

    `kind` is the kind of transfer, `array` identifies a parameter's value, and a failed copy names
    `node`.
    """

    __slots__ = ("array", "kind", "node", "on", "value")

    def __init__(self, value: Any, kind: str, array: Any = None, node: Node | None = None) -> None:
        self.value, self.kind, self.array, self.node = value, kind, array, node
        self.on: dict[Device | None, Any] = {}  # None: the host


class Residents(ABC):
    """The values on the devices of a machine, and where its nodes run.

    Nodes that the user has not placed run on `devices`, each with that many `lanes`.

    - `used`: all devices that the machine needs
    - `transfers`: number of copies by kind; "edges" are those between devices
    - `captured`: whether steps on a device become CUDA graphs where possible
    - `graphs`: these graphs; their memory is freed when the machine closes
    """

    captured = False

    def __init__(self, graph: Graph, devices: Sequence[Device], lanes: int) -> None:
        self._devices, self._count = devices, lanes
        self.transfers = dict.fromkeys(("parameters", "feeds", "edges", "results"), 0)
        self._residents: dict[Node, Brought] = {}
        self.graphs: WeakSet[CapturedSteps] = WeakSet()
        self._constants: WeakKeyDictionary[Handed, Node] = WeakKeyDictionary()
        nodes, placed = graph.nodes, graph.placements.items()
        named = {nodes[number].id: self._resolved(where) for number, where in placed}
        self._explicit: dict[int, Placement] = named
        self.used = [*dict.fromkeys([*devices, *[where.device for where in named.values()]])]

    @classmethod
    def of(cls, *given: Any) -> Self | None:
        """Return an instance, None if all devices are the host."""
        made = cls(*given)
        return None if all(one.is_host for one in made.used) else made

    def _resolved(self, where: Placement) -> Placement:
        """Return a user's placement, on the machine's wrapper of the device if there is one."""
        for one in self._devices:
            if one.root is where.device:
                where = Placement(one, where.lane)
        if where.lane is not None and where.device in self._devices and where.lane >= self._count:
            raise GraphError(
                f"a node is placed on lane {where.lane} of {where.device.name}, but the machine "
                f"has lanes={self._count}; lanes are numbered from 0"
            )
        return where

    @abstractmethod
    def cut(self, cut: Cut) -> Cut:
        """Return the cut that a machine with this cut shall use."""

    @abstractmethod
    def connected(
        self, tasks: list[TaskSpec], result_of: Mapping[Node, int], joint: Joint, costs: Costs,
        symbols: Mapping[str, int],
    ) -> tuple[list[TaskSpec], list[Lane | None]]:  # fmt: skip
        """Return tasks with ports and sends, and the lane of each, None for the host."""

    @abstractmethod
    def kernel(
        self, step: Node, found: Any, lane: Lane | None, joint: Joint, *, fetch: bool | str
    ) -> Any:
        """Return the kernel of a step on a lane or the host, made of its kernel `found`."""

    @staticmethod
    def sources(joint: Joint) -> None:
        """Let errors of copies of leaves name the user's nodes."""
        for leaf in joint.leaves:
            joint.sources.setdefault(leaf.node.id, leaf.source)

    def retain(self) -> None:
        """Count a started machine as a user of its devices."""
        for one in self.used:
            one.retain()

    def release(self, join: bool = True) -> None:
        """Undo `retain`; with `join` free the memory of captured graphs too."""
        for one in self.used:
            one.release(join)
        with base.issuing:
            for graph in [*self.graphs] if join else ():
                graph.clear()

    def brought(self, joint: Joint, leaves: Sequence[Any]) -> list[Brought]:
        """Return the leaves of a run, each with the copies that it has on devices.

        Constants whose copy has failed are copied again.
        """
        with base.issuing:
            for made, constant in [*self._constants.items()]:
                if made.cell.failed is not None:
                    made.become(made.lane.device.bring(constant.attrs["value"], constant))
        return [
            self.resident(leaf.source, value, leaf.node)
            if leaf.kind == "variable"
            else Brought(value, "feeds", node=leaf.node)
            for leaf, value in zip(joint.leaves, leaves, strict=True)
        ]

    def resident(self, variable: Node, array: Any, node: Node | None = None) -> Brought:
        """Return a variable's array and its copies on devices."""
        with base.issuing:
            kept = self._residents.get(variable)
            if kept is None or kept.array is not array:
                there = promised(array) if PROMISES.given else None
                kept = Brought(array if there is None else there, "parameters", array, node)
                self._residents[variable] = kept
            return kept

    def constant(self, lane: Lane, node: Node) -> Handed:
        """Return a constant as a value of a lane; later runs copy it again if that fails."""
        made = lane.device.bring(node.attrs["value"], node)
        self._constants[made] = node
        return made

    def bring(self, brought: Brought, device: Device, step: Node | None) -> Handed:
        """Return a value on a device, copied unless it is there."""
        with base.issuing:
            value, copy = brought.value, brought.on.get(device)
            if copy is None or copy.cell.failed is not None:
                if isinstance(value, Handed) and value.lane.device is device:
                    copy = value
                elif brought.kind != "edges" and _is_on(value, device):
                    copy = device.hold(value.result())
                else:
                    copy = device.bring(value, brought.node if step is None else step)
                    self.transfers[brought.kind] += 1
                brought.on[device] = copy
            return copy

    def fetch(self, value: Any, kind: str, step: Node | None = None) -> Any:
        """Return a value on the host, copied unless it is there."""
        if not isinstance(value, Handed):
            return value
        with base.issuing:
            self.transfers[kind] += 1
            return value.lane.device.fetch(value, step)


def _with_host_operands(found: Any, places: tuple[int, ...]) -> Callable[..., Any]:
    """Return a kernel that takes some operands as NumPy arrays, and waits for their copies."""

    def kernel(*operands: Any) -> Any:
        return found(*[
            one.get() if place in places and hasattr(one, "get") else one
            for place, one in enumerate(operands)
        ])  # fmt: skip

    return kernel


def launched_name(step: Node, joint: Joint) -> str:
    """Return the name of a step in traces and findings."""
    source = joint.source(step)
    return f"{source.name} (backward)" if joint.is_backward(step) else source.name


def launching(lane: Lane, step: Node, joint: Joint, kernel: Any) -> Callable[..., Handed]:
    """Return a function that launches a step's kernel on a lane."""
    if step.op.on_host:
        kernel = _with_host_operands(kernel, step.op.on_host)
    name, fresh = launched_name(step, joint), step.op.makes_own
    on_host, hold = bool(step.op.on_host), lane.device.hold

    def launched(*operands: Any) -> Handed:
        if on_host:
            operands = tuple([one if isinstance(one, Handed) else hold(one) for one in operands])
        lane.await_credit()
        return lane.launch(kernel, operands, name=name, node=step, fresh=fresh)

    return launched


def _is_on(value: Any, device: Device) -> bool:
    """Return whether an earlier run left a feed on a device."""
    return isinstance(value, Handed) and value.lane.device.root is device.root


def host_operands_of(spec: TaskSpec) -> set[int]:
    """Return the ids of the nodes that a task reads only as host operands."""
    host_only: set[int] = set()
    launched: set[int] = set()
    for step in spec.steps:
        for place, part in enumerate(step.inputs):
            (host_only if place in step.op.on_host else launched).add(part.id)
    return host_only - launched
