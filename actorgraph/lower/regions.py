"""Regions of a joint graph, and their tasks.

A region is a set of forward nodes that runs as one unit; it owns the differentiation fragments of
its nodes.  A region becomes up to two tasks, one per direction, and large sums of many cotangents
have a task for each addition.  Where the value of one task is used in another, a message travels;
where a backward task needs what its own forward task had or made, the forward task saves it (a
residual).

Invariant: the cut is by build order or along chains, so tasks form no cycle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import prod
from operator import not_
from typing import Literal, NamedTuple

from actorgraph.errors import printable
from actorgraph.graph import Node
from actorgraph.lower.fusion import is_heavy
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.memory.buffers import takes_out
from actorgraph.op import CONSTANT

BUNDLED = 8
"""So many values and more that come to a task from one place travel in one message, a tuple."""

LARGE_BYTES = 64 * 1024
"""Terms of a sum from this size on are added as they come: such an addition takes 5 us and more, a
turn 1 us."""


@dataclass(slots=True)
class Region:
    """Forward nodes (of the joint graph) that run as one unit."""

    index: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the first node, and how many more there are."""
        more = f" and {len(self.nodes) - 1} more" if len(self.nodes) > 1 else ""
        return f"{printable(self.nodes[0].name)}{more}"


class Port(NamedTuple):
    """Where a task receives: values of `nodes` from task `producer` (None: brought by the run).

    `kind` is ``"value"``, ``"bundle"`` (many values in one message), ``"residual"`` (the bundle
    that the region's forward task has saved) or ``"trigger"`` (for a task that receives no value).
    """

    kind: Literal["value", "bundle", "residual", "trigger"]
    nodes: tuple[Node, ...]
    producer: int | None

    @property
    def node(self) -> Node | None:
        """The node of a single value."""
        return self.nodes[0] if self.kind == "value" else None


@dataclass(slots=True)
class TaskSpec:
    """What one direction of a region receives, computes, sends and delivers.

    ``"weights"`` is the part of the backward direction that only gradients of leaves need, where
    that is a task of its own; ``"sum"`` is one addition of its cotangents.
    `sends` holds (node, consumer task), `bundles` (nodes, consumer task), `results` (node, index of
    the run's result).  `exclusive` are the ports whose message nobody else receives, so that the
    task may send it on with another value.
    """

    index: int
    region: Region
    direction: Literal["forward", "backward", "weights", "sum"]
    steps: list[Node] = field(default_factory=list)
    ports: Sequence[Port] = ()
    sends: Sequence[tuple[Node, int]] = ()
    bundles: Sequence[tuple[tuple[Node, ...], int]] = ()
    exclusive: Sequence[int] = ()
    results: Sequence[tuple[Node, int]] = ()

    @property
    def kept(self) -> list[Node]:
        """What outlives a turn: values that are sent or delivered."""
        bundled = [node for nodes, _ in self.bundles for node in nodes]
        return [*(node for node, _ in (*self.sends, *self.results)), *bundled]

    @property
    def outputs(self) -> list[Node]:
        """What outlives a turn, each value once."""
        return list(dict.fromkeys(self.kept))

    @property
    def received(self) -> list[Node]:
        """What the ports bring, in order."""
        return [node for port in self.ports for node in port.nodes]

    @property
    def waits(self) -> bool:
        """Whether it has an op that waits."""
        return any([step.op.waits for step in self.steps])  # noqa: C419

    @property
    def name(self) -> str:
        """Region and direction, for errors and traces."""
        return f"{self.region.name}{'' if self.direction == 'forward' else f' ({self.direction})'}"


def by_region(joint: Joint, groups: Sequence[list[Node]]) -> list[TaskSpec]:
    """Return the tasks of regions given as groups of forward nodes (and of owning leaves)."""
    regions = [Region(index, nodes) for index, nodes in enumerate(groups)]
    region_of = {node.id: region for region in regions for node in region.nodes}
    specs: dict[tuple[int, str], TaskSpec] = {}
    for node in joint.order:
        region = region_of[owner_of(node).id]
        direction: Literal["forward", "backward"]
        direction = "backward" if joint.is_backward(node) else "forward"
        key = region.index, direction
        if key not in specs:
            specs[key] = TaskSpec(len(specs), region, direction)
        specs[key].steps.append(node)
    return list(specs.values())


def split_backward(spec: TaskSpec, leaving: Collection[int]) -> tuple[list[Node], list[Node]]:
    """Return the steps of a backward task as its B and its W part, given what leaves tasks.

    B is what a cotangent that leaves the region for another one's forward nodes needs; W is the
    rest, which only gradients of leaves need and which may run at any later time.  With
    ``x @ W.T`` the transpose of the weight gradient is W as well, and so are masks of weights and
    the sums of tied ones: what counts is where a cotangent goes, not which op it comes from.

    Source: P. Qi et al., Zero bubble pipeline parallelism, 2023.
    """
    needed: set[int] = set()
    for step in reversed(spec.steps):
        if step.id in leaving or step.id in needed:
            needed.add(step.id)
            needed.update(part.id for part in step.inputs)
    b_part = [step for step in spec.steps if step.id in needed]
    return b_part, [step for step in spec.steps if step.id not in needed]


def with_weights_apart(tasks: list[TaskSpec], costs: Mapping[int, float]) -> list[TaskSpec]:
    """Give the W part of a backward task a task of its own where both parts have heavy steps.

    So the gradient of a layer's weights is computed beside that of the layer before.
    """
    found = list(tasks)
    backward = [spec for spec in tasks if spec.direction == "backward"]
    heavy = {step.id for spec in backward for step in spec.steps if is_heavy(costs[step.id])}
    if len(heavy) < 2:
        return found
    leaving = leaving_of(tasks)
    for spec in backward:
        parts = split_backward(spec, leaving)
        if all(not heavy.isdisjoint([step.id for step in part]) for part in parts):
            spec.steps, weights = parts
            found.append(TaskSpec(len(found), spec.region, "weights", weights))
    return found


def with_sums_apart(tasks: list[TaskSpec], joint: Joint) -> list[TaskSpec]:
    """Give each partial sum of many large cotangents a task of its own, as terms come.

    In one task with what follows, an addition could not begin before the last term is there, and
    all of them would live until then: those of a weight that an LSTM uses in every step.  What a
    partial sum waits for, its region has waited for before, so tasks form no new cycle.
    """
    sums: list[TaskSpec] = []
    for spec in tasks:
        if spec.direction != "forward":
            apart = _partial_sums(spec.steps)
            if apart:
                spec.steps = [step for step in spec.steps if step.id not in apart]
                sums += [TaskSpec(0, spec.region, "sum", [step]) for step in apart.values()]
    if not sums:
        return tasks
    places = {step.id: place for place, step in enumerate(joint.order)}
    by_place = {places[spec.steps[0].id]: spec for spec in (*tasks, *sums)}
    found = [by_place[place] for place in sorted(by_place)]
    for index, spec in enumerate(found):
        spec.index = index
    return found


def _partial_sums(steps: Sequence[Node]) -> dict[int, Node]:
    """Return, by id, the large additions whose sums go on, and which need nothing of the task."""
    found: dict[int, Node] = {}
    additions = [step for step in steps if step.op.ufunc == "add"]
    if len(additions) < 2:
        return found
    own = {step.id for step in steps}
    goes_on = {step.inputs[0].id: step for step in additions}
    for step in additions:
        further = goes_on.get(step.id)
        if (
            further is not None
            and further.owner is step.owner
            and own.isdisjoint([part.id for part in step.inputs])
            and _least_bytes(step) >= LARGE_BYTES
        ):
            found[step.id] = step
            own.remove(step.id)
    return found


def _least_bytes(node: Node) -> int:
    """Return the size of a value by the dims that every run has."""
    return prod([dim for dim in node.dims if isinstance(dim, int)]) * node.dtype.itemsize


def accumulating(tasks: Iterable[TaskSpec]) -> frozenset[int]:
    """Return the ids of the connected partial sums that can be written over the one before.

    That is an array which nobody else has seen, and whose layout a new one would have.
    """
    own: set[int] = set()
    found: set[int] = set()
    for spec in tasks:
        step = spec.steps[0]
        if (
            spec.direction == "sum"
            and takes_out(step)
            and all(part.dims == step.dims for part in step.inputs)
            and all(part.id in own or part.op.memory.layout == "c" for part in step.inputs)
        ):
            own.add(step.id)
            received = [spec.ports[place].nodes[0].id for place in spec.exclusive]
            if step.inputs[0].id in own and step.inputs[0].id in received:
                found.add(step.id)
    return frozenset(found)


def leaving_of(tasks: Sequence[TaskSpec]) -> set[int]:
    """Return the ids of values that another task, of forward nodes and not of a leaf, needs."""
    task_of = {step.id: spec for spec in tasks for step in spec.steps}
    found: set[int] = set()
    for spec in tasks:
        if any(not owner.is_leaf for owner in spec.region.nodes):
            parts = {part.id for step in spec.steps for part in step.inputs}
            found.update([number for number in parts if task_of.get(number, spec) is not spec])
    return found


def connect(tasks: list[TaskSpec], results: Mapping[Node, int]) -> list[TaskSpec]:
    """Give the tasks, fresh from a cut, their ports, sends and results; return them.

    `results` leads from joint nodes, no leaves, to the index of the result that each delivers.
    """
    task_of = {node.id: spec for spec in tasks for node in spec.steps}
    forward = {spec.region.index: spec for spec in tasks if spec.direction == "forward"}
    sends: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)
    bundles: defaultdict[int, list[tuple[tuple[Node, ...], int]]] = defaultdict(list)
    delivered: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)
    for spec in tasks:
        # What other tasks need of their region travels like any other value.
        own = forward.get(spec.region.index) if spec.direction in ("forward", "backward") else None
        spec.ports = _ports(spec, own, task_of)
        for port in spec.ports:
            if port.producer is not None and port.kind == "value":
                sends[port.producer].append((port.nodes[0], spec.index))
            elif port.producer is not None:
                bundles[port.producer].append((port.nodes, spec.index))
    for node, index in results.items():
        delivered[task_of[node.id].index].append((node, index))
    values = [p.nodes[0].id for spec in tasks for p in spec.ports if p.kind == "value"]
    uses = Counter(values)
    uses.update([node.id for node in results])
    for spec in tasks:
        # Most tasks have no more than one of each.
        sent = sends.get(spec.index, [])
        if len(sent) > 1:
            # The last is gone on with: what only uses values up comes before what makes more.
            ends = [_only_ends(tasks[taker], sends, bundles) for _, taker in sent]
            sent = [*compress(sent, map(not_, ends)), *compress(sent, ends)]
        spec.sends = tuple(sent)
        spec.bundles = tuple(bundles.get(spec.index, ()))
        spec.results = tuple(delivered.get(spec.index, ()))
        spec.exclusive = tuple(
            [i for i, p in enumerate(spec.ports) if p.kind == "value" and uses[p.nodes[0].id] == 1]
        )
    return tasks


def _only_ends(spec: TaskSpec, sends: Collection[int], bundles: Collection[int]) -> bool:
    """Return whether a task only adds up or delivers what it receives, and so frees memory."""
    return spec.direction in ("weights", "sum") or not (
        spec.index in sends or spec.index in bundles
    )


def _ports(
    spec: TaskSpec, forward: TaskSpec | None, task_of: Mapping[int, TaskSpec]
) -> tuple[Port, ...]:
    """Return where the task receives what its steps need: values first, then bundles."""
    seen = {node.id for node in spec.steps}
    at_hand = _at_hand(forward) if forward is not None and spec is not forward else {}
    saved: list[Node] = []
    needed: dict[int | None, list[Node]] = {}
    for step in spec.steps:
        for node in step.inputs:
            if node.id in seen or node.op is CONSTANT:
                continue
            seen.add(node.id)
            if node.id in at_hand:
                saved.append(node)
            else:
                producer = task_of.get(node.id)
                needed.setdefault(None if producer is None else producer.index, []).append(node)
    values: list[Port] = []
    bundles: list[Port] = []
    for index, nodes in needed.items():
        if len(nodes) >= BUNDLED:
            bundles.append(Port("bundle", tuple(nodes), index))
        else:
            values += [Port("value", (node,), index) for node in nodes]
    if forward is not None and saved:
        bundles.append(Port("residual", tuple(saved), forward.index))
    if not values:
        values.append(Port("trigger", (), None))  # messages say whose run it is
    return (*values, *bundles)


def _at_hand(forward: TaskSpec) -> dict[int, Node]:
    """Return what a forward task has seen when it ends: its own values and what it received."""
    found = {node.id: node for node in forward.steps}
    for step in forward.steps:
        for node in step.inputs:
            found[node.id] = node
    return found
