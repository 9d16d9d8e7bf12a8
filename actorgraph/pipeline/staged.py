"""`StagedPlan`: a compiled pipeline: the tasks of stages, what they exchange, and the results.

A microbatch passes through the tasks of all stages.  A batch is one run, and its result is joined
from those of its microbatches, which the lanes collect.  Nothing here runs anything.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from actorgraph.dual import Dual
from actorgraph.errors import GraphError, ScheduleError
from actorgraph.graph import Node, topological_order
from actorgraph.lower.cost import predicted_us
from actorgraph.lower.cuts import Costs
from actorgraph.lower.joint import Joint, Mode, owner_of
from actorgraph.lower.program import Program, lower_directly
from actorgraph.lower.regions import TaskSpec, by_region, leaving_of, split_backward
from actorgraph.lower.residents import host_operands_of
from actorgraph.machines.batching import Batching, BatchSlice
from actorgraph.machines.compiled import compiled
from actorgraph.machines.plan import Plan
from actorgraph.machines.reader import Collected, Names, Reader
from actorgraph.memory.buffers import Unallocated, is_fresh
from actorgraph.node import Variable
from actorgraph.op import CONSTANT
from actorgraph.pipeline.cutting import cut_by_cost, cut_by_placement, placed
from actorgraph.schedules.actions import Schedule
from actorgraph.store import present
from actorgraph.types import bind_shape

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine
    from actorgraph.machines.run import Run
    from actorgraph.runs import AbstractRun

_DIRECTIONS: dict[str, tuple[Literal["forward", "backward", "weights"], ...]] = {
    "F": ("forward",),
    "B": ("backward",),
    "W": ("weights",),
    "BW": ("backward", "weights"),
}
"""The directions of an action's tasks; a stage has no task for a direction without steps."""

KINDS = {"forward": "F", "backward": "B", "weights": "W"}
"""The action of a task, if backward passes are split."""

_SLACK = 0.02
"""Costs are predictions: a stage may be slower by this share if it sends less."""


@dataclass(slots=True)
class Microbatch:
    """A microbatch of a run: its slice of the batch, and a run of its own for recordings."""

    given: BatchSlice
    run: Run


@dataclass(slots=True)
class StageTask:
    """A task as a function, with the sources of its inputs and the uses of its outputs."""

    spec: TaskSpec
    lane: int
    inputs: list[int]  # ids of joint nodes, in the order of the program's arguments
    outputs: list[int]  # the same, in the order of its results
    lower: Callable[..., Program]  # makes its program, given `tabling`
    waits: bool  # whether it has an op that waits
    looked_at: set[int]  # inputs that only the host's part of ops takes
    foreign: list[int] = field(default_factory=list)  # inputs of other lanes or microbatches
    fresh: set[int] = field(default_factory=set)  # sums in arrays that nobody else needs
    computed: list[int] = field(default_factory=list)  # inputs that tasks have computed
    # Outputs that tasks of the lane need, and results or terms of them, with their places.
    kept: list[tuple[int, int]] = field(default_factory=list)
    gathered: list[tuple[int, int]] = field(default_factory=list)
    # For each lane, the places of the outputs that it needs.
    sends: dict[int, list[int]] = field(default_factory=dict)


class StagedPlan(Plan):
    """A mode of a pipeline, cut into the stages of a schedule.

    `mode` is that of the whole batch.  `symbols` are the sizes of a microbatch, by which stages are
    cut if the user has placed no nodes.  `credits` has for each lane the most microbatches that it
    holds while it does whatever is ready; without them lanes follow the lists of the schedule.
    `stage_tasks` are in the order of `tasks`.
    """

    in_order = "one microbatch after another"
    _in_sequence: StagedPlan | None

    def __init__(
        self,
        machine: Machine,
        batching: Batching,
        mode: Mode,
        schedule: Schedule,
        symbols: Mapping[str, int],
        credits: Sequence[int] | None = None,  # noqa: A002 - the term of flow control
    ) -> None:
        outputs, wrt = machine.outputs, machine.wrt
        read = [*outputs.values(), *[node for node in wrt if not isinstance(node, Variable)]]
        computed = dict.fromkeys([term for node in read for term in batching.terms(node).values()])
        numbered = {str(number): node for number, node in enumerate(computed)}
        compiled_mode = compiled(
            numbered, wrt, batching.mode(mode), machine.device, machine.watch,
            passes=machine.passes, jit=machine.jit, placing=machine._placing,
            native=machine.native,
        )  # fmt: skip
        names = Names(tuple(dict.fromkeys([*outputs.values(), *wrt])), outputs)
        collect = partial(_collected, self, Reader(compiled_mode, ()))
        super().__init__(compiled_mode, self._by_stage, names=names, collect=collect)
        self.credits = credits
        self.batching, self.schedule = batching, schedule
        self.result_count = schedule.devices  # each lane delivers one
        self.stages = self._stages(symbols)
        self.bind(symbols)
        self._check_directions()
        self._sort_results()
        self._make_tasks()
        self._chain_buffers()
        self._route_outputs()

    def _by_stage(self, joint: Joint, costs: Costs) -> list[TaskSpec]:
        """The stages of a schedule, each with its forward and backward actions."""
        return stage_tasks(joint, self.stages, split=self.schedule.splits)

    def one_by_one(self) -> StagedPlan:
        """Return a plan of the same tasks and bits that holds the least memory."""
        if self._in_sequence is None:
            other = copy(self)
            other.schedule, other.credits = self.schedule.in_sequence(), None
            other._bindings, other.latest = OrderedDict(), None
            other.collect = partial(_collected, other, Reader(self.compiled, ()))
            other._in_sequence = self._in_sequence = other
        return self._in_sequence

    @cached_property
    def unstaged(self) -> list[int]:
        """The tasks of no stage: sums of gradients that several stages give to one leaf."""
        count = self.schedule.stages
        return [spec.index for spec in self.partition.tasks if spec.region.index >= count]

    # -- stages -------------------------------------------------------------------------------

    def _stages(self, symbols: Mapping[str, int]) -> list[list[Node]]:
        assigned = [value for _, value in self.compiled.assignments]
        nodes = topological_order([*self.compiled.outputs.values(), *assigned, *self.compiled.wrt])
        if placed(nodes):
            return cut_by_placement(nodes)
        costs = dict.fromkeys([node.id for node in nodes], 0.0)
        for node in self.compiled.joint.order:
            costs[self.compiled.joint.source(node).id] += predicted_us(node, symbols)
        sizes = {
            node.id: float(prod(bind_shape(node.dims, symbols, 1)) * node.dtype.itemsize)
            for node in nodes
        }
        stages = cut_by_cost(nodes, self.schedule.stages, costs=costs, sizes=sizes, slack=_SLACK)
        return self._with_buffers_in_one(stages, nodes)

    def _with_buffers_in_one(
        self, stages: list[list[Node]], nodes: Sequence[Node]
    ) -> list[list[Node]]:
        """Move the nodes between a buffer's reads and its assignment to the latter's stage."""
        stage_of = {node.id: stage for stage, members in enumerate(stages) for node in members}
        for buffer, value in self.compiled.assignments:
            reached = {buffer.id}
            for node in topological_order([value]):
                if any(part.id in reached for part in node.inputs):
                    reached.add(node.id)
                    stage_of[node.id] = stage_of[value.id]
        moved: list[list[Node]] = [[] for _ in stages]
        for node in nodes:
            if node.id in stage_of:
                moved[stage_of[node.id]].append(node)
        return moved

    def _check_directions(self) -> None:
        """Raise if a stage would wait for one that waits for it."""
        stages, tasks = self.schedule.stages, self.partition.tasks
        self.task_of = {step.id: spec.index for spec in tasks for step in spec.steps}
        for spec in tasks:
            for node in _operands(spec):
                if node.id not in self.task_of:
                    continue
                producer = tasks[self.task_of[node.id]]
                if _rank(producer, stages) > _rank(spec, stages):
                    needed = self.compiled.joint.source(node).name
                    raise ScheduleError(
                        f"stage {spec.region.index} needs {needed!r} of "
                        f"stage {producer.region.index} ({producer.direction}) in its "
                        f"{spec.direction} pass, which comes earlier; place both in one stage"
                    )

    # -- tasks --------------------------------------------------------------------------------

    def _sort_results(self) -> None:
        """Decide which results lanes list by microbatch, and which they sum."""
        joint, batching = self.compiled.joint, self.batching
        self.listed = {joint.values[node].id for node in self.compiled.outputs.values()}
        self.summed: set[int] = set()
        for node, derivative in joint.derivatives.items():
            whole = self.compiled.mode.kind == "backward" and batching.axis_of(node) is None
            (self.summed if whole else self.listed).add(derivative.id)

    def _make_tasks(self) -> None:
        stages, home = self.schedule.stages, self.schedule.device_of
        self.at = {(spec.region.index, spec.direction): spec.index for spec in self.partition.tasks}
        bound = {node.id for node in self.partition.bound}
        wanted = {part.id for spec in self.partition.tasks for part in _operands(spec)}
        wanted |= {node.id for node in self.compiled.result_of}
        self.stage_tasks: list[StageTask] = []
        for spec in self.partition.tasks:
            inputs = _operands(spec)
            outputs = [step for step in spec.steps if step.id in wanted]
            # A task that waits is inside several microbatches at once, which would share memory.
            buffered = leaving = frozenset[int]()
            if not (waits := spec.waits):
                buffered = self.partition.buffered[spec.index]
                leaving = self.partition.leaving[spec.index]
            region = spec.region.index
            if region >= stages:
                # Cotangents reach the first stage last.
                makers = [self.task_of.get(node.id) for node in inputs]
                regions = [0 if i is None else self.partition.tasks[i].region.index for i in makers]
                region = min(regions)
            lower = partial(
                lower_directly, spec.steps, inputs, outputs, buffered, bound, leaving=leaving
            )
            self.stage_tasks.append(
                StageTask(
                    spec,
                    home[region],
                    [node.id for node in inputs],
                    [node.id for node in outputs],
                    lower,
                    waits,
                    host_operands_of(spec),
                )
            )
        for task in self.stage_tasks:
            for number in task.inputs:
                index = self.task_of.get(number)
                producer = None if index is None else self.stage_tasks[index]
                if producer is not None and producer.lane != task.lane:
                    task.foreign.append(number)
                    places = producer.sends.setdefault(task.lane, [])
                    place = producer.outputs.index(number)
                    if place not in places:
                        places.append(place)

    def _chain_buffers(self) -> None:
        """Have each microbatch read the buffers that the previous one has assigned."""
        self.chained: dict[int, int] = {}
        self.assigned = {
            self.compiled.joint.values[value].id for _, value in self.compiled.assignments
        }
        leaf_of = {leaf.source: leaf.node.id for leaf in self.compiled.joint.leaves}
        for buffer, value in self.compiled.assignments:
            index = self.task_of.get(self.compiled.joint.values[value].id)
            if index is None:
                raise GraphError(
                    f"buffer {buffer.name!r} is assigned {value.name!r}, which no stage computes; "
                    "assign the result of an op"
                )
            region = self.partition.tasks[index].region.index
            forwards = [a.microbatch for lane in self.schedule.lanes for a in lane
                        if a.kind == "F" and a.stage == region]  # fmt: skip
            if forwards != sorted(forwards):
                raise ScheduleError(
                    f"stage {region} assigns buffer {buffer.name!r} in every microbatch, so its "
                    "forward actions have to be in their order"
                )
            leaf = leaf_of.get(buffer)
            for task in self.stage_tasks:
                if leaf not in task.inputs:
                    continue
                assert leaf is not None
                if task.spec.region.index != region:
                    raise ScheduleError(
                        f"buffer {buffer.name!r} is read in stage {task.spec.region.index}, but "
                        f"assigned in stage {region}; place both in one stage"
                    )
                task.foreign.append(leaf)
                self.chained[self.compiled.joint.values[value].id] = leaf

    def _route_outputs(self) -> None:
        """Set the uses of the inputs and outputs of tasks."""
        results = self.listed | self.assigned
        needed = results.union(*[task.inputs for task in self.stage_tasks])
        computed = self.task_of.keys() | self.chained.values()
        for task in self.stage_tasks:
            fresh = [step.id for step in task.spec.steps if is_fresh(step)]
            task.fresh = (self.summed - needed).intersection(fresh)
            task.computed = [number for number in task.inputs if number in computed]
            outputs = [(number, place) for place, number in enumerate(task.outputs)]
            used = {n for one in self.stage_tasks if one.lane == task.lane for n in one.inputs}
            task.kept = [one for one in outputs if one[0] in used]
            task.gathered = [one for one in outputs if one[0] in results | self.summed]

    def tasks_of(self, stage: int, kind: str) -> tuple[int, ...]:
        """Return the tasks of an action, in order."""
        indices = [self.at.get((stage, direction)) for direction in _DIRECTIONS[kind]]
        return tuple([index for index in indices if index is not None])

    def uses(self, lane: int) -> Counter[int]:
        """Return how many tasks of a lane need each computed value."""
        mine = [task for task in self.stage_tasks if task.lane == lane]
        return Counter(number for task in mine for number in task.computed)


def _collected(plan: StagedPlan, reader: Reader, run: AbstractRun) -> Collected:
    """Return the Duals of a batch, joined from the results of its lanes, and new buffers."""
    joined, values = _Joined(plan, reader, run), plan.compiled.joint.values
    slot = "tangent" if plan.compiled.mode.kind == "tangents" else "grad"
    duals: dict[Node, Dual] = {}
    for node in plan.names.nodes:
        try:
            duals[node] = dual = Dual(joined.value(node), None, None, node)
            setattr(dual, slot, joined.derivative(node, dual.value))
        except MemoryError as error:
            made = [node, *plan.batching.terms(node).values()]
            terms = [values[term] for term in made if term in values]
            raise Unallocated(terms, run.binding.symbols) from error
    return duals, [
        (buffer, joined.lists[values[value].id][-1]) for buffer, value in plan.compiled.assignments
    ]


class _Joined:
    """Joins the results of one run, in arrays of the caller's own."""

    def __init__(self, plan: StagedPlan, reader: Reader, run: AbstractRun) -> None:
        self.plan, self.batching = plan, plan.batching
        self.parts: Sequence[Microbatch] = run.microbatches
        self.given = [part.given for part in self.parts]
        self.lists: dict[int, list[Any]] = {}
        self.sums: dict[int, Any] = {}
        for lists, sums in run.results:
            self.lists.update(lists)
            self.sums.update(sums)
        taken = {id(leaf) for part in self.parts for leaf in part.run.leaves}
        self._owned = partial(reader.own, taken=taken)

    def value(self, node: Node) -> Any:
        if isinstance(node, Variable):
            array = self._of(node)[0]  # the same array that the run has read
            return present(array) if self.plan.compiled.mode.fetch is True else array
        return self._owned(self.batching.joined(node, self._of, self.given))

    def derivative(self, node: Node, value: Any) -> Any:
        """Return the gradient or tangent of a node, None if none was requested."""
        compiled, slopes = self.plan.compiled, self.plan.compiled.joint.derivatives
        slope, total = slopes.get(node), None
        if compiled.mode.kind == "tangents":
            total = self.batching.joined(node, self._tangents_of, self.given)
        elif slope is not None and self.batching.axis_of(node) is not None:
            total = self.batching.concatenated(node, self._all(slope))
        elif slope is not None:
            summed = self.sums.get(slope.id)
            total = reduce(add, self._all(slope)) if summed is None else summed
        if total is None:
            return np.zeros_like(value) if compiled.derivative_is_zero(node) else None
        return self._owned(total)

    def _tangents_of(self, term: Node) -> list[Any]:
        slope = self.plan.compiled.joint.derivatives.get(term)
        return [None] * len(self.parts) if slope is None else self._all(slope)

    def _of(self, node: Node) -> list[Any]:
        return self._all(self.plan.compiled.joint.values[node])

    def _all(self, node: Node) -> list[Any]:
        """Return the value of a joint node for every microbatch."""
        if node.id in self.lists:
            return self.lists[node.id]
        if node not in self.plan.compiled.leaf_index:
            return [node.attrs["value"]] * len(self.parts)
        index = self.plan.compiled.leaf_index[node]
        return [part.run.leaves[index] for part in self.parts]


def costs_of(seconds: Mapping[tuple[int, str], float], stages: int) -> list[Any]:
    """Return F, B and W of each stage, from those of its tasks by stage and direction."""
    return [tuple([seconds.get((stage, one), 0.0) for one in KINDS]) for stage in range(stages)]


def _operands(spec: TaskSpec) -> list[Node]:
    """Return the inputs of a task: operands that are neither its own steps nor constants."""
    own = {step.id for step in spec.steps}
    parts = [part for step in spec.steps for part in step.inputs]
    operands = {part.id: part for part in parts if part.id not in own and part.op is not CONSTANT}
    return list(operands.values())


def _rank(spec: TaskSpec, stages: int) -> int:
    """Return the position of a task in the order that every schedule keeps for a microbatch."""
    if spec.region.index >= stages:
        return 3 * stages
    if spec.direction == "forward":
        return spec.region.index
    last = 2 * stages - 1 - spec.region.index
    return last if spec.direction == "backward" else last + stages


def stage_tasks(joint: Joint, stages: Sequence[Sequence[Node]], *, split: bool) -> list[TaskSpec]:
    """Cut the joint graph of a microbatch into the tasks of stages, not yet connected.

    A stage is a region of the joint graph: its forward nodes and the fragments that differentiate
    them.  The sum of a weight's cotangents belongs to the stage that uses the weight.  If several
    stages use it, the sum belongs to none and is a task of its own, for which only the end of the
    run waits.

    `stages` are the user's nodes of each.  With `split` the schedule has B and W apart, and an
    action BW is B followed by W.  The region of stage s has the index s; its directions
    ``"forward"``, ``"backward"`` and ``"weights"`` are F, B and W, or F and BW.  A stage may lack
    some: the first has no B if no feed is differentiated.  Regions after the stages hold sums for
    leaves.
    """
    stage_of = {node: number for number, stage in enumerate(stages) for node in stage}
    groups: list[list[Node]] = [[] for _ in stages]
    leaves: list[list[Node]] = []
    users = _users(joint)
    for owner in joint.owners:
        user_stages = {stage_of.get(joint.source(user)) for user in users.get(owner, (owner,))}
        stage = user_stages.pop() if len(user_stages) == 1 else None
        if stage is None:
            leaves.append([owner])
        else:
            groups[stage].append(owner)
    tasks = by_region(joint, [*groups, *leaves])
    if not split:
        return tasks
    leaving = leaving_of(tasks)
    for spec in list(tasks):
        if spec.direction == "backward" and spec.region.index < len(stages):
            inputs, weights = split_backward(spec, leaving)
            if not inputs:
                spec.direction = "weights"
            elif weights:
                spec.steps = inputs
                tasks.append(TaskSpec(len(tasks), spec.region, "weights", weights))
    return tasks


def _users(joint: Joint) -> dict[Node, set[Node]]:
    """Return, for each leaf that owns a sum, the nodes whose cotangents it adds."""
    users: dict[Node, set[Node]] = {}
    for step in joint.order:
        leaf = owner_of(step)
        if leaf.is_leaf:
            owners = {owner_of(part) for part in step.inputs if not part.is_leaf}
            users.setdefault(leaf, set()).update(owners - {leaf})
    return users
