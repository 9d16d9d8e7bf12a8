"""Placing: the device and lane of each task, and the transfers that follow from them.

It runs after the cut, so that cuts, programs and channels know nothing of devices:

1. tasks are split where the user has placed nodes elsewhere (`split`);
2. each task gets a lane: a backward task that of its forward task, others by list scheduling
   (`assign`);
3. in connected tasks, a step that moves its operand is inserted before steps that need a value of
   another device, and tasks that fetch results are added (`with_transfers`).

On a device a program computes with `Handed` values: its kernels launch (`Placing.kernel`).  Where
the host needs a value of a device, the step waits like an asynchronous op.  So no worker blocks,
and poison, deadlines and cancellation work as on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, final

from actorgraph.devices import Device, Handed, Lane, Placement, placement
from actorgraph.graph import Graph, Node
from actorgraph.lower.capturing import GRAPH, PART, captured
from actorgraph.lower.cuts import Costs, Cut, by_cost, sequential, side_by_side
from actorgraph.lower.elements import as_one
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.lower.kernels import Waiting
from actorgraph.lower.regions import Port, Region, TaskSpec, connect
from actorgraph.lower.residents import Brought, Residents, host_operands_of, launching
from actorgraph.memory.buffers import size_in_bytes
from actorgraph.op import Op
from actorgraph.ops._records import ITEM
from actorgraph.rewrite.exact import with_inputs
from actorgraph.types import Checks

_LAUNCH_US = 5.0
"""Assumed cost of launching a step."""

_ELSEWHERE_US = 10.0
"""Assumed cost of waiting for another lane; it keeps a chain on its lane."""

_COPY_US = 50.0
_COPIED_PER_US = 10_000.0
"""Bytes; with `_COPY_US` the assumed cost of a copy to another device."""


def _moved(xp: Any, x: Any) -> Any:
    return x


MOVE = Op("move", "a[*s] -> a[*s]", _moved)
KEEP = Op("keep", "a[*s] -> a[*s]", _moved)
FETCH = Op("fetch", "a[*s] -> a[*s]", _moved, runs_on="lane")
RESULT = Op("result", "a[*s] -> a[*s]", _moved, runs_on="lane")
_TRANSFERS = MOVE, KEEP, FETCH, RESULT


@final
class Placing(Residents):
    """Where the nodes of a machine run.

    `lanes` are those of the machine's own devices, for tasks that the user has not placed.  With
    `exact` only elementwise steps that keep their bits are fused into one kernel; with None none.
    """

    def __init__(
        self, graph: Graph, devices: Sequence[Device], lanes: int, captured: bool = False,
        exact: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(graph, devices, lanes)
        self.captured, self._exact = captured, exact
        self.lanes = [one.lane(i) for i in range(lanes) for one in devices if not one.is_host]

    # -- tasks ------------------------------------------------------------------------------------

    def cut(self, cut: Cut) -> Cut:
        """Return the cut to use: lanes gain from branches where threads would not."""
        if cut is not by_cost:
            return cut
        return side_by_side if len(self.lanes) > 1 and not self.captured else _for_one_lane

    def connected(
        self, tasks: list[TaskSpec], result_of: Mapping[Node, int], joint: Joint, costs: Costs,
        symbols: Mapping[str, int],
    ) -> tuple[list[TaskSpec], list[Lane | None]]:  # fmt: skip
        """Return tasks with ports, sends and transfers, and the lane of each."""
        specs = connect(self.split(tasks, joint), result_of)
        lanes = self.assign(specs, joint, costs, symbols)
        placed = self.with_transfers(specs, lanes, joint)
        numbers = count(-2 * 10**9)  # unused by other steps
        for spec, lane in zip(placed, lanes, strict=True):
            if lane is None or lane.device.refused is None:
                continue
            if self._exact is not None:
                spec.steps = as_one(spec.steps, {node.id for node in spec.kept}, self._exact)
            if self.captured:
                on_lanes = partial(self._side_by_side, lane, joint, costs, symbols)
                spec.steps = captured(spec, lane, joint, numbers, _TRANSFERS, on_lanes, self.graphs)
        return placed, lanes

    def _side_by_side(
        self, home: Lane, joint: Joint, costs: Costs, symbols: Mapping[str, int],
        steps: Sequence[Node],
    ) -> list[int]:  # fmt: skip
        """Return the stream of a captured graph on which each step runs; 0 is that of its lane."""
        where = self._wanted(steps[0], joint)
        alone = where is not None and where.lane is not None
        lanes = [home, *[home.device.lane(number) for number in range(0 if alone else self._count)]]
        streams = {lane: number for number, lane in enumerate(dict.fromkeys(lanes))}
        tasks = [
            TaskSpec(number, Region(number, [owner_of(step)]), "forward", [step])
            for number, step in enumerate(steps)
        ]
        chosen = self.assign(tasks, joint, costs, symbols, list(streams))
        return [streams[lane] for lane in chosen if lane is not None]

    def _wanted(self, step: Node, joint: Joint) -> Placement | None:
        """Return where a step must run, None if its machine may choose."""
        if step.op is ITEM:
            return self._wanted(step.inputs[0], joint)  # a record itself cannot be moved
        if step.op.waits or step.op.kernel is not None:
            return _HOST  # ops that wait; loops and branches, which read values
        return self._explicit.get(joint.source(step).id)

    def split(self, tasks: Sequence[TaskSpec], joint: Joint) -> list[TaskSpec]:
        """Cut tasks where the next step must run elsewhere; each part gets a region."""
        result: list[TaskSpec] = []
        regions = count(1 + max([spec.region.index for spec in tasks], default=0))
        for spec in tasks:
            parts: list[tuple[Placement | None, list[Node]]] = []
            for step in spec.steps:
                where = self._wanted(step, joint)
                if not parts or parts[-1][0] != where:
                    parts.append((where, []))
                parts[-1][1].append(step)
            if len(parts) == 1:
                result.append(replace(spec, index=len(result)))
                continue
            for _, steps in parts:
                region = Region(next(regions), list(dict.fromkeys(map(owner_of, steps))))
                result.append(TaskSpec(len(result), region, spec.direction, steps))
        return result

    def assign(
        self, tasks: Sequence[TaskSpec], joint: Joint, costs: Costs, symbols: Mapping[str, int],
        lanes: Sequence[Lane | None] | None = None,
    ) -> list[Lane | None]:  # fmt: skip
        """Return the lane of each task, None for the host; one of `lanes` if they are given.

        List scheduling: of the tasks whose producers have a lane, the one with the longest path to
        the end gets the lane on which it ends first; of equal ones, one that has its operands.
        Source: HEFT (H. Topcuoglu et al., 2002).
        """
        task_of = {step.id: spec.index for spec in tasks for step in spec.steps}
        before = [_producers(spec, task_of) for spec in tasks]
        cost_us = [sum([costs.get(s.id, 0.0) + _LAUNCH_US for s in spec.steps]) for spec in tasks]
        rank, left = _ranks(before, cost_us), TopologicalSorter(dict(enumerate(before)))
        left.prepare()
        ready = [(-rank[index], index) for index in left.get_ready()]
        heapify(ready)
        chosen: list[Lane | None] = [None] * len(tasks)
        ends = [0.0] * len(tasks)
        free: dict[Lane | None, float] = {}
        of_region: dict[int, Lane | None] = {}
        while ready:
            _, index = heappop(ready)
            spec = tasks[index]
            options = lanes or self._options(spec, joint, of_region)
            if spec.steps[0].op is ITEM:
                record = task_of.get(spec.steps[0].inputs[0].id, index)
                options = options if record == index else [chosen[record]]
            near = [chosen[producer] for producer in before[index]]
            best: tuple[float, bool, int] | None = None
            for place, lane in enumerate(options):
                start = free.get(lane, 0.0)
                for producer, node in before[index].items():
                    transfer_us = _transfer_us(chosen[producer], lane, node, symbols)
                    start = max(start, ends[producer] + transfer_us)
                key = start + cost_us[index], lane not in near, place
                if best is None or key < best:
                    best, chosen[index], ends[index] = key, lane, key[0]
            free[chosen[index]] = ends[index]
            of_region.setdefault(spec.region.index, chosen[index])
            left.done(index)
            for other in left.get_ready():
                heappush(ready, (-rank[other], other))
        return chosen

    def _options(
        self, spec: TaskSpec, joint: Joint, of_region: Mapping[int, Lane | None]
    ) -> Sequence[Lane | None]:
        if spec.region.index in of_region:
            # A backward task runs where its forward task does, which has the residual.
            return [of_region[spec.region.index]]
        where = self._wanted(spec.steps[0], joint)
        if where is None:
            on_host = any([one.is_host for one in self._devices])  # noqa: C419
            return [*self.lanes, None] if on_host else self.lanes
        if where.device.is_host:
            return [None]
        numbers = range(self._count) if where.lane is None else [where.lane]
        return [where.device.lane(number) for number in numbers]

    # -- transfers --------------------------------------------------------------------------------

    def with_transfers(
        self, tasks: Sequence[TaskSpec], lanes: list[Lane | None], joint: Joint
    ) -> list[TaskSpec]:
        """Insert steps that move values from other devices, and tasks that fetch results.

        The lanes of the added tasks are appended to `lanes`.
        """
        self.sources(joint)
        numbers = count(-(10**9), -1)  # unused by other steps
        instead: list[dict[int, Node]] = [{} for _ in tasks]
        added: list[list[Node]] = [[] for _ in tasks]
        # A forward task saves values as moved, so tasks with residuals come last.
        for spec in sorted(tasks, key=_has_residual):
            port_of = list(spec.ports)
            host_operands = host_operands_of(spec)
            for place, port in enumerate(port_of):
                op = _transfer(port.producer, lanes, lanes[spec.index])
                nodes = port.nodes
                if port.kind == "residual" and port.producer is not None:
                    nodes = _with_moved_residual(tasks[port.producer], spec, instead[port.producer])
                    port_of[place] = port._replace(nodes=nodes)
                for node, known in zip(port.nodes, nodes, strict=True):
                    if op is not None:
                        stays = port.producer is None and node.id in host_operands
                        known = _step(next(numbers), KEEP if stays else op, known)
                        added[spec.index].append(known)
                    if known is not node:
                        instead[spec.index][node.id] = known
            spec.ports = tuple(port_of)
        for spec in tasks:
            steps = [with_inputs(step, instead[spec.index]) for step in spec.steps]
            spec.steps = [*added[spec.index], *steps]
        all_tasks = [*tasks]
        for spec, lane in zip(tasks, [*lanes], strict=True):
            if lane is not None and spec.results:
                self._fetch(spec, all_tasks, numbers)
        lanes += [None] * (len(all_tasks) - len(lanes))
        return all_tasks

    @staticmethod
    def _fetch(spec: TaskSpec, tasks: list[TaskSpec], numbers: Iterator[int]) -> None:
        direction: Any = "forward" if spec.direction == "forward" else "backward"
        for node, index in spec.results:
            step = _step(next(numbers), RESULT, node)
            region = Region(1 + max([one.region.index for one in tasks]), [owner_of(node)])
            taker = TaskSpec(len(tasks), region, direction, [step])
            taker.ports = (Port("value", (node,), spec.index),)
            taker.results = ((step, index),)
            spec.sends = (*spec.sends, (node, taker.index))
            tasks.append(taker)
        spec.results = ()

    def kernel(
        self, step: Node, found: Any, lane: Lane | None, joint: Joint, *, fetch: bool | str
    ) -> Any:
        if step.op is RESULT:
            fetched = fetch is True or (fetch == "values" and not _is_slope(step, joint))
            return Waiting(self._fetching(step, "results", fetched), "lane", None)
        if step.op is FETCH:
            return Waiting(self._fetching(step, "edges", True), "lane", None)
        if step.op is MOVE:
            return self._moving(None if lane is None else lane.device, step)
        if step.op is KEEP:
            return self._moving(None, step)
        if lane is None or step.op in (GRAPH, PART):
            return found
        return launching(lane, step, joint, found)

    def _moving(self, device: Device | None, step: Node) -> Callable[[Any], Any]:
        def moved(value: Any) -> Any:
            brought = value if isinstance(value, Brought) else Brought(value, "edges")
            if device is not None:
                return self.bring(brought, device, step)
            given = brought.value
            return given.fetch() if isinstance(given, Handed) else given

        return moved

    def _fetching(self, step: Node, kind: str, fetch: bool) -> Callable[..., None]:
        def fetching(answer: Callable[[Callable[[], Any]], None], value: Handed) -> None:
            if fetch:
                value = self.fetch(value, kind, step)
            elif value.cell.home is not None:  # a later run would reuse that array
                work = value.lane.device.xp.array
                value = value.lane.launch(work, [value], name="copy", node=step, record=True)
            event = value.event or value.lane.record()

            def answered() -> None:
                answer(value.result if fetch else value.left)

            event.then(answered)

        return fetching


_HOST = placement("cpu")


def _for_one_lane(joint: Joint, costs: Costs) -> list[TaskSpec]:
    """Cut into the sequential order, unless ops wait, of which several shall wait at once."""
    waits = any(step.op.waits for step in joint.order)
    return (side_by_side if waits else sequential)(joint, costs)


def _is_slope(result: Node, joint: Joint) -> bool:
    """Return whether a result is a derivative and not also a value."""
    [node] = result.inputs
    return node in {*joint.derivatives.values()} - {*joint.values.values()}


def _producers(spec: TaskSpec, task_of: Mapping[int, int]) -> dict[int, Node]:
    """Return the tasks that a task receives from, with one value of each."""
    producers: dict[int, Node] = {}
    for step in spec.steps:
        for part in step.inputs:
            producer = task_of.get(part.id, spec.index)
            if producer != spec.index:
                producers.setdefault(producer, part)
    return producers


def _ranks(before: Sequence[Mapping[int, Node]], cost_us: Sequence[float]) -> list[float]:
    """Return the length of the longest path from each task to the end."""
    after = [0.0] * len(before)
    rank = list(cost_us)
    for index in reversed([*TopologicalSorter(dict(enumerate(before))).static_order()]):
        rank[index] += after[index]
        for producer in before[index]:
            after[producer] = max(after[producer], rank[index])
    return rank


def _transfer_us(
    home: Lane | None, lane: Lane | None, node: Node, symbols: Mapping[str, int]
) -> float:
    """Return the assumed cost of a value of one lane on another."""
    if home is lane:
        return 0.0
    if home is not None and lane is not None and home.device is lane.device:
        return _ELSEWHERE_US
    return _COPY_US + size_in_bytes(node, symbols) / _COPIED_PER_US


def _transfer(producer: int | None, lanes: Sequence[Lane | None], lane: Lane | None) -> Op | None:
    """Return the op that moves a port's value to a lane, None if it is there."""
    if producer is None:
        return MOVE
    home = lanes[producer]
    if (home and home.device) is (lane and lane.device):
        return None
    return FETCH if lane is None else MOVE


def _step(number: int, op: Op, node: Node) -> Node:
    return Node(
        node.graph, number, op, (node,), {}, node.type, Checks(), node.line, owner_of(node),
        f"{op.name} of {node.name}",
    )  # fmt: skip


def _has_residual(spec: TaskSpec) -> bool:
    return any([port.kind == "residual" for port in spec.ports])  # noqa: C419


def _with_moved_residual(
    producer: TaskSpec, taker: TaskSpec, instead: Mapping[int, Node]
) -> tuple[Node, ...]:
    """Make a task save the moved values of its residual; return what the taker receives."""
    received: tuple[Node, ...] = ()
    bundles = []
    for nodes, index in producer.bundles:
        if index == taker.index:
            nodes = received = tuple([instead.get(node.id, node) for node in nodes])
        bundles.append((nodes, index))
    producer.bundles = tuple(bundles)
    return received
