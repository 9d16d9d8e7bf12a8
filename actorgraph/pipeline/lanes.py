"""Lanes: the actors of a pipeline, one for each device, which act in the order of a schedule.

A lane is one task of the scheduler.  Its inbox is a channel; a message has the values that another
lane has computed for one microbatch.  In each turn the lane takes its messages and does the next
action of its list, if that has all its inputs.  It keeps values until its last task has used them.

`Lanes` is the network, `PipelineLane` an actor, `LaneRun` its state of a run in flight.  An `Order`
yields the next action: by the list of the schedule (`_in_order`), or by credits (`_by_credits`).

Invariants:

- A lane does the actions of one run exactly in the order of its list, one at a time.  If the next
  action of a run has to wait, or the current one waits for a call, and a later run is in flight,
  the lane goes on with that run: so streams have no bubbles.
- Only the worker that runs a lane touches its state; others send messages.
- A lane that meets a dead run drops it and wakes the others, so no lane waits for it; the run
  ends when every lane has dropped it.

Callers: `Core` injects runs, under its lock; workers resume the tasks of lanes; answers of ops that
wait come from event loops and other threads, through the inbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from actorgraph import instrument, scratch
from actorgraph.channels import Channel
from actorgraph.devices import Handed
from actorgraph.flag import Flag
from actorgraph.graph import Node
from actorgraph.lower.kernels import with_errstate
from actorgraph.lower.regions import Region, TaskSpec
from actorgraph.lower.residents import Brought
from actorgraph.machines.calls import Call, resumed
from actorgraph.machines.capacities import channel_name
from actorgraph.machines.network import KernelCache
from actorgraph.memory.buffers import Unallocated, may_take_out
from actorgraph.memory.free_lists import FreeLists, Recycling
from actorgraph.node_actor import Dead, Task, blamed, guarded
from actorgraph.pipeline.claims import sent_at_once
from actorgraph.pipeline.devices import COMPLETION, Stages, arrived, is_fetched
from actorgraph.pipeline.staged import Microbatch, StagedPlan, StageTask
from actorgraph.warned import runs_steps

if TYPE_CHECKING:
    from actorgraph.machines.capacities import Capacities
    from actorgraph.machines.run import Run
    from actorgraph.memory.arenas import Arenas

_TIMES_KEPT = 256
"""The number of latest turns of a task whose durations are kept, for `stage_costs`."""

_LARGEST_BYTES = 1 << 20
"""The largest result that rows of lanes write; other lanes need no GIL while rows are walked."""

Push = Callable[[Task], None]

_T = TypeVar("_T")
Acting: TypeAlias = Generator[None, None, _T]
"""A part of an action, which pauses while the run waits for a call."""


@dataclass(frozen=True, slots=True)
class Work:
    """An action of a lane: its tasks in order, and the ids of the values they need of others."""

    tasks: tuple[int, ...]
    microbatch: int
    foreign: tuple[int, ...]


Order: TypeAlias = Iterator[Work | None]
"""The actions of a lane in a run, in order; None while the next one has to wait."""

Held: TypeAlias = list[dict[int, Any]]
"""For each microbatch, values by the id of their node."""


def _in_order(works: Sequence[Work], held: Held) -> Order:
    """Yield the actions of a list."""
    for work in works:
        while not _ready(work, held):
            yield None
        yield work


def _by_credits(forward: Sequence[Work], backward: Sequence[Work], limit: int, held: Held) -> Order:
    """Yield backward actions first, and forward ones only while fewer than `limit` are open.

    The rule is that of `pipeline.dynamic`.
    """
    begun = 0
    open_: list[int] = []
    while begun < len(forward) or open_:
        number = next((number for number in open_ if _ready(backward[number], held)), None)
        if number is not None:
            open_.remove(number)
            yield backward[number]
        elif begun < len(forward) and len(open_) < limit and _ready(forward[begun], held):
            open_.append(begun)
            begun += 1
            yield forward[begun - 1]
        else:
            yield None


def _ready(work: Work, held: Held) -> bool:
    """Return whether all values that an action needs of others have come."""
    values = held[work.microbatch]
    for number in work.foreign:  # noqa: SIM110 - `all` takes thrice the time
        if number not in values:
            return False
    return True


class Sum:
    """A gradient's sum over microbatches, added in their order whatever order terms arrive in.

    If it is `owned`, nobody else needs the first term's array, so that others are added to it in
    place.  `added` returns the sum of two terms.
    """

    __slots__ = ("_added", "_owned", "_waiting", "count", "total")

    def __init__(self, owned: bool, added: Callable[[Any, Any], Any]) -> None:
        self._added = added
        self.total: Any = None
        self.count = 0  # of the terms added
        self._owned = owned
        self._waiting: dict[int, Any] = {}

    def add(self, number: int, value: Any) -> None:
        """Add the term of a microbatch, once those before have arrived."""
        self._waiting[number] = value
        while self.count in self._waiting:
            value = self._waiting.pop(self.count)
            if not self.count:
                self.total = value
            elif self._owned and type(self.total) is np.ndarray:
                np.add(self.total, value, out=self.total)
            else:
                # From the second term on nobody else has the sum's array.
                self.total = self._added(self.total, value)
                self._owned = type(self.total) is np.ndarray
            self.count += 1


LaneMessage = tuple["LaneRun", int, Mapping[int, Any] | None]
"""The run, the microbatch, and values by the id of their node; values of None mean a new run."""


class LaneRun:
    """The state of a run in flight in one lane."""

    __slots__ = (
        "acting", "call", "held", "lane", "left", "lists", "microbatches", "order", "run",
        "siblings", "sums", "unstaged", "uses",
    )  # fmt: skip

    def __init__(self, lane: PipelineLane, run: Run, siblings: list[LaneRun]) -> None:
        self.lane, self.run, self.siblings = lane, run, siblings
        self.microbatches: Sequence[Microbatch] = run.microbatches
        self.acting: Acting[None] | None = None  # the paused action
        self.call: Call | None = None  # that it waits for
        self.unstaged = deque(lane.unstaged)
        self.lists: dict[int, list[Any]] = {}
        self.sums: dict[int, Sum] = {}
        self.uses = [dict(lane.uses) for _ in run.microbatches]
        chained = lane.network.chained
        self.held: Held = [
            {
                leaf: part.run.values[index]
                for leaf, index in lane.leaves
                if not number or leaf not in chained
            }
            for number, part in enumerate(run.microbatches)
        ]
        self.order, self.left = lane.new_order(self.held), lane.count

    def next(self) -> Work | None:
        """Return the next action, None if it has to wait."""
        if self.unstaged and _ready(self.unstaged[0], self.held):
            return self.unstaged.popleft()
        work = next(self.order, None)
        self.left -= work is not None
        return work

    def over(self) -> bool:
        """Return whether all actions were taken."""
        return not (self.left or self.unstaged)

    def take_arrived(self) -> None:
        """Replace ended copies to the host by their arrays."""
        for total in self.sums.values():
            total.total = arrived(total.total)
        for values in self.lists.values():
            values[:] = map(arrived, values)

    def gathered(self) -> tuple[dict[int, list[Any]], dict[int, Any]]:
        """Return the results: lists over microbatches, and sums, by the ids of their nodes."""
        return self.lists, {number: total.total for number, total in self.sums.items()}


class PipelineLane:
    """The actor of a device."""

    uses: dict[int, int]
    leaves: list[tuple[int, int]]
    unstaged: list[Work]
    new_order: Callable[[Held], Order]
    count: int

    def __init__(self, network: Lanes, number: int, name: str) -> None:
        plan = network.plan
        self.network, self.number, self.name = network, number, name
        self.runs: list[LaneRun] = []
        self.inbox = Channel(network.room, f"other lanes -> {name}", credited=False,
                             counted=network.counted)  # fmt: skip
        self.uses = plan.uses(number)
        needed = {one for task in plan.stage_tasks if task.lane == number for one in task.inputs}
        self.leaves = [
            (leaf.id, index)
            for leaf, index in plan.compiled.leaf_index.items()
            if leaf.id in needed
        ]
        count = plan.schedule.microbatches
        self.unstaged = [
            Work((index,), microbatch, tuple(plan.stage_tasks[index].inputs))
            for microbatch in range(count)
            for index in plan.unstaged
            if plan.stage_tasks[index].lane == number
        ]
        self.new_order, self.count = network.order_of(number)
        self.task = Task(TaskSpec(number, Region(number), "forward"), network.ready)
        self.task.heavy = True  # each turn is an action, so wake other workers for other lanes
        self.task.start(self._turns(), self.inbox.messages)
        self.task.observed = self.task.send  # it reports its turns itself
        queue: Any = self.inbox.queue
        self._put, self._take = queue.append, queue.popleft

    def tell(self, message: LaneMessage, push: Push) -> None:
        """Send a message to this lane."""
        self._put(message)
        if self.task.wait is self.inbox.messages:
            push(self.task)

    def _turns(self) -> Generator[Task | None, Push, None]:
        task, queue = self.task, self.inbox.messages
        self.push = yield None
        while True:
            self._receive()
            if self._step() and self.runs:
                task.wait = ()
                self.push = yield task  # the worker wakes others, then resumes this lane
            else:  # park after the last run too: a ready lane would wake a thread for nothing
                task.wait = queue
                self.push = yield None

    def _receive(self) -> None:
        while self.inbox.messages:
            lane_run, microbatch, values = self._take()
            if values is None:
                self.runs.append(lane_run)
            elif lane_run.held:
                if self.network.stages is not None:  # `Brought` copies each only once
                    values = {number: Brought(one, "edges") for number, one in values.items()}
                lane_run.held[microbatch].update(values)

    def _step(self) -> bool:
        """Do the next action of a run; return whether there was one."""
        for lane_run in self.runs:
            if lane_run.acting is not None:
                if lane_run.call is not None and lane_run.call.answer is None:
                    continue
                self._resume(lane_run, lane_run.acting)
                return True
            if lane_run.run.dead is not None:
                self._end(lane_run)
                return True
            work = lane_run.next()
            if work is not None:
                self._resume(lane_run, self._act(lane_run, work))
                return True
        return False

    def _resume(self, lane_run: LaneRun, acting: Acting[None]) -> None:
        """Run an action until it waits for a call, or ends."""
        for _ in acting:
            lane_run.acting = acting
            return
        lane_run.acting = None
        if lane_run.over():
            self._end(lane_run)

    def _act(self, lane_run: LaneRun, work: Work) -> Acting[None]:
        for index in work.tasks:
            if lane_run.run.dead is None:  # in a dead run an input may be missing
                yield from self._run_task(lane_run, index, work.microbatch)
        if self.network.stages is not None and lane_run.over():
            yield from self._fetch_results(lane_run)

    @runs_steps("known")
    def _run_task(self, lane_run: LaneRun, index: int, microbatch: int) -> Acting[None]:
        """Run a task for a microbatch; send and keep the outputs that are needed."""
        network, run = self.network, lane_run.run
        task, held = network.plan.stage_tasks[index], lane_run.held[microbatch]
        part = lane_run.microbatches[microbatch].run
        started, known = perf_counter(), network.tasks[index]
        args = [held[number] for number in task.inputs]
        if network.stages is not None:
            args = yield from self._bring_inputs(lane_run, index, args)
        outputs = None if args is None else guarded(run, known, self._call, part, index, args)
        del args
        if task.waits and outputs is not None:
            outputs = yield from self._run_steps(lane_run, index, outputs)
        if outputs is None:
            return
        self._forget(lane_run, task, microbatch)
        self._send(lane_run, index, microbatch, outputs)
        if guarded(run, known, self._keep, lane_run, index, microbatch, outputs):
            self._record_time(part, index, started)

    def _forget(self, lane_run: LaneRun, task: StageTask, microbatch: int) -> None:
        """Drop values after their last use, before messages are sent: receivers may reuse them."""
        held, uses = lane_run.held[microbatch], lane_run.uses[microbatch]
        for number in task.computed:
            uses[number] -= 1
            if not uses[number]:
                del held[number]

    def _send(self, lane_run: LaneRun, index: int, microbatch: int, outputs: list[Any]) -> None:
        """Send other lanes the outputs that they need, before anything else is done with them."""
        network, task = self.network, self.network.plan.stage_tasks[index]
        for lane, places in task.sends.items():
            values = {task.outputs[place]: outputs[place] for place in places}
            if network.stages is not None:
                network.stages.mark(values.values())
            other = lane_run.siblings[lane]
            other.lane.tell((other, microbatch, values), self.push)
        if task.sends and task.gathered:
            network.flag.set()  # the sum that follows releases the GIL

    def _record_time(self, part: Run, index: int, started: float) -> None:
        """Record how long a task took, and report the turn to listeners."""
        known, ended = self.network.tasks[index], perf_counter()
        known.turns += 1
        known.seconds += ended - started
        self.network.times[index].append(ended - started)
        if instrument.listening_to_turns:
            instrument.tell("on_turn", known, part, started, ended)

    def _call(self, part: Run, index: int, args: list[Any]) -> Any:
        """Call the function of a task, with the arrays that it writes into."""
        network = self.network
        place = network.memory_index.get(index)
        out: Sequence[Any] = ()
        arena = None
        if place is not None and not network.plan.stage_tasks[index].waits:
            *out, arena = part.kernels[place](part)
        try:
            if index in network.unflagged:
                network.flag.set()  # a lane with a message finds the GIL free
            return network.functions[index](part, out, *args)
        finally:
            if arena is not None:
                network.give(arena)

    def _run_steps(self, lane_run: LaneRun, index: int, steps: Any) -> Acting[Any]:
        """Run the steps of a task; the action pauses while an op waits."""
        known, answer = self.network.tasks[index], None
        while type(result := guarded(lane_run.run, known, resumed, steps, answer)) is tuple:
            answer = yield from self._await_call(lane_run, known, *result)
            if answer is None:
                return None
        return result

    def _bring_inputs(self, lane_run: LaneRun, index: int, args: list[Any]) -> Acting[Any]:
        """Return the inputs of a task on its device, None if the run has died."""
        network, stages, run = self.network, self.network.stages, lane_run.run
        task, known = network.plan.stage_tasks[index], network.tasks[index]
        lane = network.plan.partition.lane(index)
        assert stages is not None
        places = [None if number in task.looked_at else lane for number in task.inputs]
        placed = guarded(run, known, _mapped, stages.at, args, places)
        coming = [one for one in placed or () if is_fetched(one)]
        if not coming:
            return placed
        done = yield from self._await_copies(lane_run, known, coming)
        return guarded(run, known, _mapped, arrived, placed) if done else None

    def _fetch_results(self, lane_run: LaneRun) -> Acting[None]:
        """Copy the results of a run to the host, but for gradients that are to stay."""
        network, stages, run = self.network, self.network.stages, lane_run.run
        assert stages is not None
        if run.dead is not None:
            return
        if network.plan.compiled.mode.fetch is True:
            for total in lane_run.sums.values():
                total.total = stages.fetch(total.total, "results")
        totals = [total.total for total in lane_run.sums.values()]
        values = [*totals, *chain.from_iterable(lane_run.lists.values())]
        coming, known = list(filter(is_fetched, values)), network.tasks[0]
        if coming and (yield from self._await_copies(lane_run, known, coming)):
            guarded(run, known, lane_run.take_arrived)

    def _await_copies(
        self, lane_run: LaneRun, known: Task, values: Sequence[Handed]
    ) -> Acting[bool | None]:
        """Wait until copies to the host are done; return a false value if the run has died."""
        answer = yield from self._await_call(lane_run, known, COMPLETION, (values,))
        if answer is None:
            return None
        done: bool | None = guarded(lane_run.run, known, answer)
        return done

    def _await_call(self, lane_run: LaneRun, known: Task, op: Any, args: Any) -> Acting[Any]:
        """Issue a call and return its answer, None if the run is dead."""
        call = lane_run.call = Call(
            lane_run.run, lane_run, self.task, known, self._on_answer, self.inbox.messages, op, args
        )
        try:
            call.run.core.calls.issue(call)
        except Dead:
            return None
        while call.answer is None:
            yield
        answer, lane_run.call = call.answer, None
        return answer

    def _on_answer(self, call: Call) -> None:
        self._put((call.owner, 0, {}))

    def _keep(self, lane_run: LaneRun, index: int, microbatch: int, outputs: list[Any]) -> bool:
        """Store the outputs of a task; return True."""
        task, held = self.network.plan.stage_tasks[index], lane_run.held[microbatch]
        for number, place in task.kept:
            held[number] = outputs[place]
        for number, place in task.gathered:
            self._gather(lane_run, task, number, microbatch, outputs[place])
        return True

    def _gather(
        self, lane_run: LaneRun, task: StageTask, number: int, microbatch: int, value: Any
    ) -> None:
        """Store a result, or add a term to one."""
        plan, stages = self.network.plan, self.network.stages
        if number in plan.summed:
            total = lane_run.sums.get(number)
            if total is None:
                total = Sum(number in task.fresh, self.network.added[number])
                lane_run.sums[number] = total
            try:
                total.add(microbatch, value)
            except MemoryError as error:
                summed = [step for step in task.spec.steps if step.id == number]
                symbols = lane_run.microbatches[microbatch].run.binding.symbols
                raise Unallocated(summed, symbols) from error
            if lane_run.run.on_sum is not None and total.count == len(lane_run.held):
                lane_run.run.on_sum(number, total.total)
        if number in plan.listed:
            value = value if stages is None else stages.fetch(value, "results")
            lane_run.lists.setdefault(number, [None] * len(lane_run.held))[microbatch] = value
        if number in plan.assigned:
            self._assign(lane_run, number, microbatch, value)

    def _assign(self, lane_run: LaneRun, number: int, microbatch: int, value: Any) -> None:
        """Pass a buffer's new value to the next microbatch; the last one is a result."""
        leaf = self.network.plan.chained.get(number)
        following = microbatch + 1
        if leaf is not None and following < len(lane_run.held):
            lane_run.held[following][leaf] = value
        if number not in self.network.plan.listed:
            stages = self.network.stages
            if stages is not None and following == len(lane_run.held):
                value = stages.fetch(value, "results")
            lane_run.lists[number] = [value]

    def _end(self, lane_run: LaneRun) -> None:
        """Deliver the results of a run; if it is dead, wake the other lanes too."""
        run, siblings, network = lane_run.run, lane_run.siblings, self.network
        self.runs.remove(lane_run)
        lane_run.held, lane_run.siblings, lane_run.order = [], [], iter(())
        if run.dead is not None:
            for other in siblings:
                if other is not lane_run:
                    other.lane.tell((other, 0, {}), self.push)
        network.reserve_scratch()
        run.deliver(self.number, lane_run.gathered())


def _mapped(function: Callable[..., Any], *lists: Sequence[Any]) -> list[Any]:
    return list(map(function, *lists))


class Lanes:
    """The network of a pipeline, in place of `machines.network.Network`.

    `tasks` are those of stages, for recordings: lanes run them.  `times` has the seconds of the
    latest turns of each.
    """

    def __init__(
        self, plan: StagedPlan, ready: list[deque[Task]], *, arenas: Arenas, capacities: Capacities,
        max_in_flight: int, errors: Mapping[str, Any] | None, counted: bool, recycling: bool,
        flag: Flag,
    ) -> None:  # fmt: skip
        self.plan, self.ready, self.errors, self.counted = plan, ready, errors, counted
        self.flag = flag
        self.replica, self.give = 0, arenas.idle.append
        # Streams hold the microbatches of several runs, and a caller the gradients of one more.
        self._live = (max_in_flight + 1) * plan.schedule.microbatches
        self._recycling, self._arenas = recycling, arenas
        self._written = frozenset().union(*plan.partition.buffered, *plan.partition.leaving)
        self._reserved: dict[int, int] = {}
        if recycling and plan.latest is not None:
            self._reserved = sent_at_once(plan, plan.latest)
        self._kernel_cache = KernelCache(
            plan, arenas, self._guarded, partial(FreeLists, self._live, self._reserved)
        )
        self.memory_index = self._kernel_cache.memory_index
        placing = plan.compiled.placing
        self.stages = placing if isinstance(placing, Stages) else None
        tabling = plan.tabling(errors)
        if tabling is not None:
            tabling = tabling._replace(largest=_LARGEST_BYTES, flag=flag)
        self._programs = [task.lower(tabling=tabling) for task in plan.stage_tasks]
        self.unflagged = {i for i, one in enumerate(self._programs) if not one.begins_with_walk}
        self._make_functions()
        self.times: list[deque[float]] = [deque(maxlen=_TIMES_KEPT) for _ in plan.partition.tasks]
        self.chained = frozenset(plan.chained.values())
        self.room = max_in_flight * (2 + len(plan.partition.tasks) * plan.schedule.microbatches)
        names = plan.schedule.lane_names
        self.tasks = [self._recorded_task(spec, names) for spec in plan.partition.tasks]
        self.lanes = [PipelineLane(self, number, name) for number, name in enumerate(names)]
        self.channels = [lane.inbox for lane in self.lanes]
        self._threads = min(len(ready), len(self.lanes))

    def _recorded_task(self, spec: TaskSpec, names: Sequence[str]) -> Task:
        task = Task(spec, self.ready)
        task.joint = self.plan.compiled.joint
        task.program = self._programs[spec.index]
        task.lane = names[self.plan.stage_tasks[spec.index].lane]
        task.ports = [
            Channel(1, partial(channel_name, self.plan.partition.tasks, spec, port), credited=False)
            for port in spec.ports
        ]
        return task

    def work(self, tasks: tuple[int, ...], microbatch: int) -> Work:
        """Return tasks as an action for a microbatch."""
        foreign = [
            number
            for index in tasks
            for number in self.plan.stage_tasks[index].foreign
            if microbatch or number not in self.chained
        ]
        return Work(tasks, microbatch, tuple(dict.fromkeys(foreign)))

    def order_of(self, device: int) -> tuple[Callable[[Held], Order], int]:
        """Return a function that makes a device's `Order`, and how many actions that has."""
        schedule, tasks_of = self.plan.schedule, self.plan.tasks_of
        works = {
            (kind, microbatch, stage): self.work(tasks, microbatch)
            for stage, kind, microbatch, _ in schedule.lanes[device]
            if (tasks := tasks_of(stage, kind)) or self.plan.credits
        }
        if self.plan.credits is None:
            return partial(_in_order, list(works.values())), len(works)
        forward, backward = [
            [works[kind, number, device] for number in range(schedule.microbatches)]
            for kind in ("F", "BW")
        ]
        return partial(_by_credits, forward, backward, self.plan.credits[device]), len(works)

    def _guarded(self, kernel: Callable[..., Any], node: Node) -> Callable[..., Any]:
        kernel = kernel if self.errors is None else with_errstate(kernel, self.errors)
        unplanned = node.id not in self._written and may_take_out(node) and not node.op.waits
        return self._recycled(kernel, node.id) if unplanned else kernel

    def _recycled(self, kernel: Callable[..., Any], number: int) -> Callable[..., Any]:
        """Have a kernel with a large result reuse arrays of a free list."""
        large = number in self.plan.partition.bulky and self.stages is None
        if not (large and self._recycling):
            return kernel
        recycling = Recycling(kernel, self._live, self._reserved.get(number, 0))
        self._arenas.add(recycling)
        return recycling

    def _function(self, task: StageTask) -> Callable[..., Any]:
        compiled, bound = self.plan.compiled, self._kernel_cache.bound_index
        lane = self.plan.partition.lane(task.spec.index)
        kernels = [
            bound[node.id]
            if node.id in bound
            else compiled.placed(node, self._guarded(compiled.kernel(node, {}, lane), node), lane)
            for node in task.spec.steps
        ]
        program = self._programs[task.spec.index]
        called, constants = program.callables(kernels, compiled.to_device(lane))
        function: Callable[..., Any] = program.make(*called, *constants)
        return function

    def _make_functions(self) -> None:
        """Make the functions of tasks, and those that add the first two terms of sums."""
        self.functions = [self._function(task) for task in self.plan.stage_tasks]
        added: Callable[..., Any] = np.add if self.stages is None else self.stages.added
        self.added = {number: self._recycled(added, number) for number in self.plan.summed}

    def give_up_memory(self) -> None:
        """Drop the memory that functions write into."""
        self._kernel_cache.clear()
        self._make_functions()

    def inject(self, run: Run, slot: int) -> None:
        """Send every lane a new run; its parts share the variables that it has taken."""
        places = self.plan.compiled.passed_places
        for part in run.microbatches:
            one, leaves = part.run, [*run.leaves]
            for place, given in zip(places, one.leaves, strict=True):
                leaves[place] = given
            one.leaves = one.values = leaves
            if self.stages is not None:
                one.values = self.stages.brought(self.plan.compiled.joint, leaves)
            one.context = run.context
            # With `max_bytes` turns keep no memory, for no run has claimed it.
            in_memory = one.regular and self._recycling
            try:
                one.kernels = self._kernel_cache.kernels(one.binding, in_memory, self._programs)
            except Exception as error:  # noqa: BLE001 - each lane meets the dead run
                run.abort(blamed(self.plan.compiled.joint, None, None, error))
        if self._recycling:
            self._arenas.reserve(self._threads)
        runs: list[LaneRun] = []
        runs += [LaneRun(lane, run, runs) for lane in self.lanes]
        push = self.ready[slot].append
        for lane_run in runs:
            lane_run.lane.tell((lane_run, 0, None), push)

    def reserve_scratch(self) -> None:
        """Reserve scratch for all lanes once one has used it: others may need it in later runs."""
        if self._recycling:
            scratch.reserve(self._threads)

    def close(self) -> None:
        """Drop the messages of inboxes, and the coroutines with their values."""
        for lane in self.lanes:
            lane.inbox.messages.clear()
            lane.runs.clear()
            lane.task.close()
