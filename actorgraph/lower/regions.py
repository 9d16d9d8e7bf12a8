"""Regions of a joint graph, and their tasks.

A region is a set of forward nodes that runs as one unit; it owns the differentiation fragments of
its nodes.  A region becomes up to two tasks, one per direction; gradients of weights and additions
of large cotangents may have tasks of their own.  A value of one task that another uses travels in a
message; what a backward task needs of its own forward task travels in one message, the residual.

Cuts (`lower.cuts`) call `by_region` and the functions that split tasks; `connect` comes once, after
the cut.  Invariant: a cut follows the build order or chains, so tasks form no cycle; `connect`
raises where one of a user does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import compress
from math import prod
from operator import attrgetter, not_
from typing import Literal, NamedTuple

from actorgraph.errors import DeadlockError, GraphError, printable
from actorgraph.graph import Node
from actorgraph.lower.fusion import is_heavy
from actorgraph.lower.joint import Joint, owner_of
from actorgraph.memory.buffers import takes_out
from actorgraph.op import CONSTANT

BUNDLED = 4
"""Least values from one task to another that travel in one message, as a tuple."""

LARGE_BYTES = 64 * 1024
"""Least size of terms that are added as they arrive: such an addition takes 5 us or more, a turn
1 us."""


@dataclass(slots=True)
class Region:
    """Forward nodes (of the joint graph) that run as one unit."""

    index: int
    nodes: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the first node, and the number of others."""
        more = f" and {len(self.nodes) - 1} more" if len(self.nodes) > 1 else ""
        return f"{printable(self.nodes[0].name)}{more}"


class Port(NamedTuple):
    """An input of a task: values of `nodes` from the task `producer`, or from the run (None).

    `kind` is ``"value"``, ``"bundle"`` (many values in one message), ``"residual"`` (the bundle
    saved by the region's forward task) or ``"trigger"`` (a message without a value, for a task that
    would receive none).
    """

    kind: Literal["value", "bundle", "residual", "trigger"]
    nodes: tuple[Node, ...]
    producer: int | None


@dataclass(slots=True)
class TaskSpec:
    """A task: what one direction of a region receives, computes, sends and delivers.

    - `direction`: ``"weights"`` is the part of the backward direction that only gradients of leaves
      need, if it is a task of its own; ``"sum"`` is one addition of cotangents
    - `sends`, `bundles`: pairs of a node, or of nodes, and the consumer task
    - `results`: pairs of a node and the index of the run's result
    - `exclusive`: ports whose message only this task receives, so that it may send it on with
      another value
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
        """The values that outlive a turn, sent or delivered, one entry a consumer."""
        bundled = [node for nodes, _ in self.bundles for node in nodes]
        return [*(node for node, _ in (*self.sends, *self.results)), *bundled]

    @property
    def outputs(self) -> list[Node]:
        """The values that outlive a turn, each once."""
        return list(dict.fromkeys(self.kept))

    @property
    def received(self) -> list[Node]:
        """The values of all ports, in order."""
        return [node for port in self.ports for node in port.nodes]

    @property
    def waits(self) -> bool:
        """Whether a step's op waits."""
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
        owner = owner_of(node)
        region = region_of.get(owner.id)
        if region is None:
            raise GraphError(
                f"the groups leave out {owner!r}; put each node of joint.owners into one of them"
            )
        direction: Literal["forward", "backward"]
        direction = "backward" if joint.is_backward(node) else "forward"
        key = region.index, direction
        if key not in specs:
            specs[key] = TaskSpec(len(specs), region, direction)
        specs[key].steps.append(node)
    return list(specs.values())


def split_backward(spec: TaskSpec, leaving: Collection[int]) -> tuple[list[Node], list[Node]]:
    """Split the steps of a backward task into its B and its W part; `leaving` as of `leaving_of`.

    B is what cotangents for other regions' forward nodes depend on; W is the rest, which only
    gradients of leaves need and which may run at any later time.  So W includes transposes and
    masks of weight gradients and sums for tied weights: what counts is where a cotangent goes, not
    which op it comes from.

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

    Then the gradient of a layer's weights runs in parallel with the backward of the layer before.
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
    """Give each partial sum of many large cotangents a task of its own.

    In one task, no addition could start before the last term arrives, and all terms would live
    until then: those of a weight that an LSTM uses in every step.  A partial sum depends on nothing
    that its region did not depend on, so tasks form no new cycle.
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
    """Return, by id, the large additions that feed another one and need nothing of their task."""
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
    """Return a lower bound of a value's bytes: its size with every symbol 1."""
    return prod([dim for dim in node.dims if isinstance(dim, int)]) * node.dtype.itemsize


def accumulating(tasks: Iterable[TaskSpec]) -> frozenset[int]:
    """Return the ids of the partial sums, of connected tasks, that may overwrite the one before.

    The overwritten array must be exclusive to the task, with the layout of a fresh result.
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
    """Return the ids of values that some other task needs, not counting tasks of leaves."""
    task_of = {step.id: spec for spec in tasks for step in spec.steps}
    found: set[int] = set()
    for spec in tasks:
        if any(not owner.is_leaf for owner in spec.region.nodes):
            parts = {part.id for step in spec.steps for part in step.inputs}
            found.update([number for number in parts if task_of.get(number, spec) is not spec])
    return found


def connect(tasks: list[TaskSpec], results: Mapping[Node, int]) -> list[TaskSpec]:
    """Give the tasks, fresh from a cut, their ports, sends and results; return them.

    `results` maps joint nodes, none a leaf, to the indices of the run's results.  Raises
    `DeadlockError` if tasks form a cycle.
    """
    task_of = {node.id: spec for spec in tasks for node in spec.steps}
    forward = {spec.region.index: spec for spec in tasks if spec.direction == "forward"}
    sends: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)
    bundles: defaultdict[int, list[tuple[tuple[Node, ...], int]]] = defaultdict(list)
    delivered: defaultdict[int, list[tuple[Node, int]]] = defaultdict(list)
    for spec in tasks:
        # Only forward and backward tasks have residuals; others receive plain values.
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
            # The worker goes on with the last consumer: one that only frees memory goes there.
            ends = [_only_ends(tasks[taker], sends, bundles) for _, taker in sent]
            sent = [*compress(sent, map(not_, ends)), *compress(sent, ends)]
        spec.sends = tuple(sent)
        spec.bundles = tuple(bundles.get(spec.index, ()))
        spec.results = tuple(delivered.get(spec.index, ()))
        spec.exclusive = tuple(
            [i for i, p in enumerate(spec.ports) if p.kind == "value" and uses[p.nodes[0].id] == 1]
        )
    check_order(tasks)
    return tasks


def check_order(specs: Sequence[TaskSpec]) -> None:
    """Raise `DeadlockError`, which names a cycle, if connected tasks form one; takes linear time.

    If every task is free to fire and every capacity is at least 1, no other check is needed: any
    other cycle of the network goes through the free slots of an edge, and so holds a token.
    """
    before = {
        spec.index: [one.producer for one in spec.ports if one.producer is not None]
        for spec in specs
    }
    last = [spec.steps[-1].id if spec.steps else -1 for spec in specs]
    for place in (range(len(specs)), last):  # in most cuts, one of these shows an order
        if all([place[one] < place[task] for task, ones in before.items() for one in ones]):  # noqa: C419
            return
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        cycle = [specs[task].name for task in reversed(error.args[1])]
        waits = " waits for ".join(map(repr, cycle))
        raise DeadlockError(f"tasks wait for each other: {waits}") from None


def _only_ends(spec: TaskSpec, sends: Collection[int], bundles: Collection[int]) -> bool:
    """Return whether a task only adds up or delivers what it receives, which frees memory."""
    return spec.direction in ("weights", "sum") or not (
        spec.index in sends or spec.index in bundles
    )


def _ports(
    spec: TaskSpec, forward: TaskSpec | None, task_of: Mapping[int, TaskSpec]
) -> tuple[Port, ...]:
    """Return the ports of a task: values first, then bundles."""
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
            bundles.append(Port("bundle", _sorted(nodes), index))
        else:
            values += [Port("value", (node,), index) for node in nodes]
    if forward is not None and saved:
        bundles.append(Port("residual", _sorted(saved), forward.index))
    if not values:
        values.append(Port("trigger", (), None))  # a message says which run it is
    return (*values, *bundles)


def _sorted(nodes: list[Node]) -> tuple[Node, ...]:
    """Return nodes in build order, in which most are neighbours where they come from.

    So texts take them as slices of few lists.
    """
    return tuple(sorted(nodes, key=attrgetter("id")))


def _at_hand(forward: TaskSpec) -> dict[int, Node]:
    """Return the values that a forward task holds when it ends: computed and received ones."""
    found = {node.id: node for node in forward.steps}
    for step in forward.steps:
        for node in step.inputs:
            found[node.id] = node
    return found
