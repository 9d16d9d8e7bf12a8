"""What a machine has on devices: copies of what runs bring along, and kernels that launch.

A variable stays where it was copied to until its array is another one; a run holds that one, so
nobody writes to it.  What is fed is copied once to each device that needs it.
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
    """What a run brings along, and its copies on devices, each made when first asked for.

    `kind` is that of transfers; by `array` a parameter is known; `node` is blamed where a copy
    fails.
    """

    __slots__ = ("array", "kind", "node", "on", "value")

    def __init__(self, value: Any, kind: str, array: Any = None, node: Node | None = None) -> None:
        self.value, self.kind, self.array, self.node = value, kind, array, node
        self.on: dict[Device | None, Any] = {}  # None: the host


class Residents(ABC):
    """What stays on the devices of a machine, and who runs where.

    Nodes that the user has placed nowhere run on `devices`, of which each has so many `lanes`.
    `used` are all devices that the machine needs; `transfers` counts copies by kind, "edges" being
    those between devices.  What runs on a device is a CUDA graph where that is possible and
    `captured`; the memory of `graphs` goes with the machine's last run.
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
        """Return where all runs, None where that is the host, as it is anyway."""
        found = cls(*given)
        return None if all(one.is_host for one in found.used) else found

    def _resolved(self, where: Placement) -> Placement:
        """Return a placement by the user, on the machine's wrapper of its device if it has one."""
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
        """Return what stands for the cut of a machine."""

    @abstractmethod
    def connected(
        self,
        tasks: list[TaskSpec],
        result_of: Mapping[Node, int],
        joint: Joint,
        costs: Costs,
        symbols: Mapping[str, int],
    ) -> tuple[list[TaskSpec], list[Lane | None]]:
        """Return tasks with ports and sends, and the lane of each, None for the host."""

    @abstractmethod
    def kernel(
        self, step: Node, found: Any, lane: Lane | None, joint: Joint, *, fetch: bool | str
    ) -> Any:
        """Return what a program calls for a step on a lane, or on the host, in place of `found`."""

    @staticmethod
    def sources(joint: Joint) -> None:
        """Have errors of copies of leaves name the user's nodes."""
        for leaf in joint.leaves:
            joint.sources.setdefault(leaf.node.id, leaf.source)

    def retain(self) -> None:
        """Count a machine that has started as a user of its devices."""
        for one in self.used:
            one.retain()

    def release(self, join: bool = True) -> None:
        """Count it less."""
        for one in self.used:
            one.release(join)
        with base.issuing:
            for graph in [*self.graphs] if join else ():
                graph.clear()

    def brought(self, joint: Joint, leaves: Sequence[Any]) -> list[Brought]:
        """Return what a run brings along, so that each is copied once to where it is needed."""
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
        """Return a variable's array with its copies on devices."""
        with base.issuing:
            kept = self._residents.get(variable)
            if kept is None or kept.array is not array:
                there = promised(array) if PROMISES.given else None
                kept = Brought(array if there is None else there, "parameters", array, node)
                self._residents[variable] = kept
            return kept

    def constant(self, lane: Lane, node: Node) -> Handed:
        """Return a constant as a value of a lane; later runs try again if that fails."""
        made = lane.device.bring(node.attrs["value"], node)
        self._constants[made] = node
        return made

    def bring(self, brought: Brought, device: Device, step: Node | None) -> Handed:
        """Return a value on a device, where it may have been before."""
        with base.issuing:
            given, kept = brought.value, brought.on.get(device)
            if kept is None or kept.cell.failed is not None:
                if isinstance(given, Handed) and given.lane.device is device:
                    kept = given
                elif brought.kind != "edges" and _is_there(given, device):
                    kept = device.hold(given.result())
                else:
                    kept = device.bring(given, brought.node if step is None else step)
                    self.transfers[brought.kind] += 1
                brought.on[device] = kept
            return kept

    def fetch(self, value: Any, kind: str, step: Node | None = None) -> Any:
        """Return a value that is copied to the host, if it is not there."""
        if not isinstance(value, Handed):
            return value
        with base.issuing:
            self.transfers[kind] += 1
            return value.lane.device.fetch(value, step)


def _with_host_operands(found: Any, places: tuple[int, ...]) -> Callable[..., Any]:
    """Return a kernel that gets some operands as NumPy's; it waits for those that are not."""

    def kernel(*operands: Any) -> Any:
        return found(*[
            one.get() if place in places and hasattr(one, "get") else one
            for place, one in enumerate(operands)
        ])  # fmt: skip

    return kernel


def launched_name(step: Node, joint: Joint) -> str:
    """Return what traces and findings call a step."""
    source = joint.source(step)
    return f"{source.name} (backward)" if joint.is_backward(step) else source.name


def launching(lane: Lane, step: Node, joint: Joint, found: Any) -> Callable[..., Handed]:
    """Return what launches the kernel of a step on a lane."""
    if step.op.on_host:
        found = _with_host_operands(found, step.op.on_host)
    name, fresh = launched_name(step, joint), step.op.makes_own
    on_host, hold = bool(step.op.on_host), lane.device.hold

    def launched(*operands: Any) -> Handed:
        if on_host:
            operands = tuple([one if isinstance(one, Handed) else hold(one) for one in operands])
        lane.await_credit()
        return lane.launch(found, operands, name=name, node=step, fresh=fresh)

    return launched


def _is_there(value: Any, device: Device) -> bool:
    """Return whether a feed was left on a device by an earlier run."""
    return isinstance(value, Handed) and value.lane.device.root is device.root


def looked_at(spec: TaskSpec) -> set[int]:
    """Return the numbers of the nodes that only the host's part of a task's ops takes."""
    found: set[int] = set()
    launched: set[int] = set()
    for step in spec.steps:
        for place, part in enumerate(step.inputs):
            (found if place in step.op.on_host else launched).add(part.id)
    return found - launched
