"""CUDA graphs: consecutive steps replaced by one step that replays them, and one for each result.

It runs after transfers, when tasks have steps and lanes, so that nothing else knows of it.  Steps
that Python must run each time stay outside: forwards of users, draws and other ops that read
numbers of the host, and unknown dims.  Whatever else a device cannot capture, it refuses when it is
asked to (`devices.capture`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any
from weakref import WeakSet

from actorgraph.devices import Lane
from actorgraph.devices.capture import CapturedSteps, GraphStep
from actorgraph.graph import Node
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.lower.kernels import kernel
from actorgraph.lower.regions import TaskSpec
from actorgraph.lower.residents import launched_name, launching
from actorgraph.op import Op, attrs_key, never
from actorgraph.rewrite.exact import restated
from actorgraph.types import UNKNOWN, Checks

OnLanes = Callable[[Sequence[Node]], Sequence[int]]


def _graph_kernel(node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> CapturedSteps:
    """Return the kernel of a graph: it launches or replays the steps."""
    lane, joint, steps = node.attrs["lane"], node.attrs["joint"], node.attrs["steps"]
    xp = lane.device.root.products
    number_of = {part.id: number for number, part in enumerate((*node.inputs, *steps))}
    graph_steps = []
    for step, on in zip(steps, node.attrs["on"], strict=True):
        call = kernel(step, xp, symbols, watch=watch)
        reads = tuple([number_of[part.id] for part in step.inputs])
        launched = launching(lane, step, joint, call)
        name = launched_name(step, joint)
        types = tuple([part.dtype for part in (step, *step.inputs)])
        kind = step.op, attrs_key(step.attrs), types
        graph_steps.append(
            GraphStep(call, launched, reads, on, step.op.makes_own, step, name, kind)
        )
    results = [number_of[step.id] for step in node.attrs["results"]]
    made = CapturedSteps(lane, graph_steps, len(node.inputs), results)
    node.attrs["graphs"].add(made)
    return made


def _predicted(node: Node, symbols: Mapping[str, int]) -> float:
    return sum([predicted_us(step, symbols) for step in node.attrs["steps"]])


def _part_kernel(node: Node, symbols: Mapping[str, int], watch: tuple[str, ...]) -> Any:
    """Return the kernel that picks one of a graph's results; it launches nothing."""
    place = node.attrs["place"]

    def taken(run: Any, results: tuple[Any, ...]) -> Any:
        return results[place]

    return taken


GRAPH = Op("graph", "a[*s] -> a[*s]", never, kernel=_graph_kernel, predicted=_predicted)
"""Captured steps; the value is the tuple of their results."""

PART = Op("part", "a[*s] -> a[*s]", never, kernel=_part_kernel)
"""One result of a graph."""


def _by_python(step: Node) -> str | None:
    """Return why Python must call a step in every run, None if it need not."""
    if step.op.checked:
        return "its forward is a function of yours, which Python calls in every run"
    if step.op.on_host:
        return "it looks at numbers of the host, which differ from run to run"
    if any(dim is UNKNOWN for part in (step, *step.inputs) for dim in part.dims):
        return "it has a dim that only a run knows"
    return None


def captured(
    spec: TaskSpec, lane: Lane, joint: Joint, numbers: Iterator[int], transfers: Collection[Op],
    on_lanes: OnLanes, graphs: WeakSet[CapturedSteps],
) -> list[Node]:  # fmt: skip
    """Return the steps of a task, with each run of capturable steps replaced by a graph.

    `transfers` are ops that launch nothing on the lane, or a copy; `on_lanes` returns the streams
    of steps, 0 being the lane's; the captured steps of each binding are added to `graphs`.
    """

    def may_be(step: Node) -> bool:
        return step.op not in transfers and _by_python(step) is None

    needed = {node.id for node in spec.kept}
    result: list[Node] = []
    for possible, row in groupby(spec.steps, may_be):
        steps = list(row)
        if not possible or len(steps) == 1:
            result += steps
            continue
        members = {step.id for step in steps}
        read_ids = needed | {
            part.id for step in spec.steps if step.id not in members for part in step.inputs
        }
        inputs = {part.id: part for step in steps for part in step.inputs if part.id not in members}
        results = [step for step in steps if step.id in read_ids]
        last = steps[-1]
        attrs = {
            "lane": lane, "joint": joint, "steps": steps, "on": on_lanes(steps), "results": results,
            "graphs": graphs,
        }  # fmt: skip
        graph = Node(
            last.graph, next(numbers), GRAPH, tuple(inputs.values()), attrs, last.type, Checks(),
            last.line, owner_of(last), f"graph up to {last.name}",
        )  # fmt: skip
        result.append(graph)
        for place, step in enumerate(results):
            result.append(restated(step, PART, (graph,), {"place": place}))
    return result


def notes(
    tasks: Sequence[TaskSpec], lanes: Sequence[Lane | None], joint: Joint, kernels: Sequence[Any]
) -> list[str]:
    """Return lines that say which steps of tasks are captured, and why others are not."""
    lines = [line for one in kernels if isinstance(one, CapturedSteps) for line in one.notes()]
    for spec, lane in zip(tasks, lanes, strict=True):
        if lane is not None and lane.device.refused is None:
            lines.append(f"{spec.name} is launched step by step: {lane.device.name} has no graphs")
        for step in spec.steps if lane is not None else ():
            reason = _by_python(step)
            if reason is not None and step.op not in (GRAPH, PART):
                lines.append(f"  {launched_name(step, joint)} is launched by itself: {reason}")
    return lines
