"""Lanes: the actors of a pipeline, one for each device, which act in the order of a schedule.

A lane is one task of the scheduler.  Its inbox is a channel; a message is what another lane has
computed for one microbatch.  In each turn it takes what has come, finds the next action of its list
and does it if all that this needs is there.  Values stay with the lane that needs them, and go when
its last task has used them.

Invariants:

- A lane does the actions of one run exactly in the order of its list, one at a time.  Where the
  next one of a run has to wait, or the one under way waits for a call, and a later run is in
  flight, the lane goes on with that: so streams have no bubbles.
- Only the worker that runs a lane touches what the lane holds; messages are the one way in.
- A lane that meets a dead run forgets it and wakes the others, so no lane waits for it; the run
  ends when every lane has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from actorgraph import instrument
from actorgraph.channels import Channel
from actorgraph.lower.regions import Region, TaskSpec
from actorgraph.machines.calls import Call, resumed
from actorgraph.machines.inline import MEMORIES_KEPT
from actorgraph.memory.buffers import Unallocated
from actorgraph.node_actor import Dead, NodeActor, Task, blamed
from actorgraph.pipeline.staged import DIRECTIONS, Microbatch, StagedPlan
from actorgraph.pipeline.sums import Sum

if TYPE_CHECKING:
    from actorgraph.machines.capacities import Capacities
    from actorgraph.machines.run import Run
    from actorgraph.memory.arenas import Arenas

__all__ = ["Credited", "Flight", "LaneOrder", "Lanes", "Listed", "PipelineLane", "Work"]

_TIMES_KEPT = 256
"""Of so many turns of a task the durations are kept, for `costs`."""

Push = Callable[[Task], None]

_T = TypeVar("_T")
Acting: TypeAlias = Generator[None, None, _T]
"""A part of an action, which pauses where the flight waits for a call."""


@dataclass(frozen=True, slots=True)
class Work:
    """An action of a lane: its tasks, one after the other, and what has to come before them."""

    tasks: tuple[int, ...]
    microbatch: int
    foreign: tuple[int, ...]


class LaneOrder(Protocol):
    """What a lane does next in a run."""

    def take(self, ready: Callable[[Work], bool]) -> Work | None:
        """Return what is to be done now, None where that has to wait or all is done."""

    def over(self) -> bool:
        """Return whether all is done."""


class Listed:
    """The order of a list."""

    def __init__(self, works: Sequence[Work]) -> None:
        self._works = works
        self._position = 0

    def take(self, ready: Callable[[Work], bool]) -> Work | None:
        """Return the next work of the list if it is ready."""
        if self.over() or not ready(self._works[self._position]):
            return None
        self._position += 1
        return self._works[self._position - 1]

    def over(self) -> bool:
        """Return whether the list is done."""
        return self._position == len(self._works)


class Credited:
    """Backward first, and a forward only while fewer microbatches than credits are held.

    Source: the rule that `pipeline.dynamic` plays.
    """

    def __init__(self, forward: Sequence[Work], backward: Sequence[Work], limit: int) -> None:
        self._forward, self._backward = forward, backward
        self._limit = limit
        self._begun = 0
        self._held: list[int] = []

    def take(self, ready: Callable[[Work], bool]) -> Work | None:
        """Return the oldest backward work that is ready, else the next forward work."""
        for number in self._held:
            if ready(self._backward[number]):
                self._held.remove(number)
                return self._backward[number]
        begun = self._begun
        room = begun < len(self._forward) and len(self._held) < self._limit
        if not room or not ready(self._forward[begun]):
            return None
        self._held.append(begun)
        self._begun += 1
        return self._forward[begun]

    def over(self) -> bool:
        """Return whether every microbatch is done."""
        return self._begun == len(self._forward) and not self._held


Message = tuple["Flight", int, Mapping[int, Any] | None]
"""For which run and microbatch, and values by the id of their node; None tells of a new run."""


class Flight:
    """What one lane holds of one run."""

    __slots__ = (
        "acting", "call", "held", "lane", "lists", "order", "parts", "run", "siblings", "sums",
        "tails", "uses",
    )  # fmt: skip

    def __init__(self, lane: PipelineLane, run: Run, siblings: list[Flight]) -> None:
        self.lane, self.run, self.siblings = lane, run, siblings
        self.parts: Sequence[Microbatch] = run.microbatches
        self.order = lane.new_order()
        self.acting: Acting[None] | None = None  # the action that is under way
        self.call: Call | None = None  # for which it waits
        self.tails = deque(lane.tails)
        self.lists: dict[int, list[Any]] = {}
        self.sums: dict[int, Sum] = {}
        self.uses = [dict(lane.uses) for _ in run.microbatches]
        chained = lane.network.chained
        self.held: list[dict[int, Any]] = [
            {
                leaf: part.leaves[index]
                for leaf, index in lane.leaves
                if not number or leaf not in chained
            }
            for number, part in enumerate(run.microbatches)
        ]

    def ready(self, work: Work) -> bool:
        """Return whether all has come that a work needs of others."""
        held = self.held[work.microbatch]
        return all(number in held for number in work.foreign)

    def over(self) -> bool:
        """Return whether nothing is left to do."""
        return not self.tails and self.order.over()

    def gathered(self) -> tuple[dict[int, list[Any]], dict[int, Any]]:
        """Return the results: lists over microbatches, and sums, by the ids of their nodes."""
        return self.lists, {number: one.total for number, one in self.sums.items()}


class PipelineLane:
    """The actor of a device."""

    def __init__(self, network: Lanes, number: int, name: str) -> None:
        plan = network.plan
        self.network, self.number, self.name = network, number, name
        self.flights: list[Flight] = []
        self.inbox = Channel(network.room, f"other lanes -> {name}", credited=False,
                             counted=network.counted)  # fmt: skip
        self.uses = plan.uses(number)
        self.leaves = [
            (leaf.id, index)
            for leaf, index in plan.compiled.leaf_index.items()
            if leaf.id in self.uses
        ]
        count = plan.schedule.microbatches
        self.tails = [
            Work((index,), microbatch, tuple(plan.stage_tasks[index].inputs))
            for microbatch in range(count)
            for index in plan.tails
            if plan.stage_tasks[index].lane == number
        ]
        self.new_order = network.order_of(number)
        self.task = Task(TaskSpec(number, Region(number), "forward"), network.ready)
        self.task.heavy = True  # each turn is an action: others are to come by
        self.task.start(self._turns(), self.inbox.messages)
        self.task.observed = self.task.send  # it tells of its turns itself
        self._put, self._take = self.inbox.appender(), self.inbox.popper()

    def tell(self, message: Message, push: Push) -> None:
        """Send a message to this lane."""
        self._put(message)
        if self.task.wait is self.inbox.messages:
            push(self.task)

    def _turns(self) -> Generator[Task | None, Push, None]:
        task, queue = self.task, self.inbox.messages
        self.push = yield None
        while True:
            self._receive()
            if self._step():
                task.wait = ()
                self.push = yield task  # the worker goes on here, when it has called others
            else:
                task.wait = queue
                self.push = yield None

    def _receive(self) -> None:
        while self.inbox.messages:
            flight, microbatch, values = self._take()
            if values is None:
                self.flights.append(flight)
            elif flight.held:
                flight.held[microbatch].update(values)

    def _step(self) -> bool:
        """Do what is next; return whether there was anything to do."""
        for flight in self.flights:
            if flight.acting is not None:
                if flight.call is not None and flight.call.answer is None:
                    continue
                self._go_on(flight, flight.acting)
                return True
            if flight.run.dead is not None:
                self._end(flight)
                return True
            work: Work | None
            if flight.tails and flight.ready(flight.tails[0]):
                work = flight.tails.popleft()
            else:
                work = flight.order.take(flight.ready)
            if work is not None:
                self._go_on(flight, self._act(flight, work))
                return True
        return False

    def _go_on(self, flight: Flight, acting: Acting[None]) -> None:
        """Go on with an action until it waits for a call, or to its end."""
        for _ in acting:
            flight.acting = acting
            return
        flight.acting = None
        if flight.over():
            self._end(flight)

    def _act(self, flight: Flight, work: Work) -> Acting[None]:
        for index in work.tasks:
            yield from self._do(flight, index, work.microbatch)

    def _do(self, flight: Flight, index: int, microbatch: int) -> Acting[None]:
        """Compute a task for a microbatch, send and keep what is needed, forget the rest."""
        network, run = self.network, flight.run
        task, held = network.plan.stage_tasks[index], flight.held[microbatch]
        part = flight.parts[microbatch]
        started = perf_counter()
        if run.dead is not None:
            return
        args = part.run, index, [held[number] for number in task.inputs]
        outputs = self._tried(flight, index, self._call, *args)
        del args
        if task.spec.waits and outputs is not None:
            outputs = yield from self._awaited(flight, index, outputs)
        if outputs is None:
            return
        if not self._tried(flight, index, self._keep, flight, index, microbatch, outputs):
            return
        for lane, places in task.sends.items():
            values = {task.outputs[place]: outputs[place] for place in places}
            other = flight.siblings[lane]
            other.lane.tell((other, microbatch, values), self.push)
        ended = perf_counter()
        known = network.tasks[index]
        known.turns += 1
        known.seconds += ended - started
        network.times[index].append(ended - started)
        if instrument.listening_to_turns:
            instrument.tell("on_turn", known, part.run, started, ended)

    def _call(self, part: Run, index: int, args: list[Any]) -> Any:
        """Call a task as a function, which is made where it is needed first."""
        made, network = part.kernels, self.network
        if made[index] is None:
            in_buffers = part.regular and network.recycling
            made[index] = network.plan.function(index, part.binding, in_buffers, network.errors)
        return made[index](*args)

    def _tried(self, flight: Flight, index: int, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a part of a task returns, None where the run dies of it or is dead."""
        plan = self.network.plan
        context = flight.run.context
        try:
            return function(*args) if context is None else context.copy().run(function, *args)
        except Dead:
            return None
        except BaseException as error:  # noqa: BLE001 - becomes the run's
            flight.run.fail(
                blamed(plan.compiled.joint, plan.stage_tasks[index].program, None, error)
            )
            del function, args  # an error keeps this frame
            return None

    def _awaited(self, flight: Flight, index: int, steps: Any) -> Acting[Any]:
        """Go through the steps of a task; the action pauses while an op waits."""
        known, inbox = self.network.tasks[index], self.inbox.messages
        answer = None
        while type(found := self._tried(flight, index, resumed, steps, answer)) is tuple:
            call = flight.call = Call(
                flight.run, flight, self.task, known, self._answered, inbox, *found
            )
            try:
                call.run.core.calls.issue(call)
            except Dead:
                return None
            while call.answer is None:
                yield
            answer, flight.call = call.answer, None
        return found

    def _answered(self, call: Call) -> None:
        self._put((call.owner, 0, {}))

    def _keep(self, flight: Flight, index: int, microbatch: int, outputs: list[Any]) -> bool:
        """Take what a task gives, and let go of what nothing else needs; return True."""
        plan = self.network.plan
        task, held = plan.stage_tasks[index], flight.held[microbatch]
        uses, part = flight.uses[microbatch], flight.parts[microbatch].run
        for number in task.inputs:
            uses[number] -= 1
            if not uses[number]:
                held.pop(number)
        for number, value in zip(task.outputs, outputs, strict=True):
            if number in uses:
                held[number] = value
            if number in plan.summed:
                try:
                    flight.sums.setdefault(number, Sum()).add(microbatch, value)
                except MemoryError as error:
                    summed = [step for step in task.spec.steps if step.id == number]
                    raise Unallocated(summed, part.binding.symbols) from error
            if number in plan.listed:
                flight.lists.setdefault(number, [None] * len(flight.held))[microbatch] = value
            if number in plan.assigned:
                self._assign(flight, number, microbatch, value)
        return True

    def _assign(self, flight: Flight, number: int, microbatch: int, value: Any) -> None:
        """Give the next microbatch what this one assigns to a buffer, and the run the last."""
        leaf = self.network.plan.chained.get(number)
        following = microbatch + 1
        if leaf is not None and following < len(flight.held):
            flight.held[following][leaf] = value
        if number not in self.network.plan.listed:
            flight.lists[number] = [value]

    def _end(self, flight: Flight) -> None:
        """Give the run what was gathered; of a dead one nothing, and tell the others."""
        run, siblings = flight.run, flight.siblings
        self.flights.remove(flight)
        flight.held, flight.siblings = [], []
        if run.dead is not None:
            for other in siblings:
                if other is not flight:
                    other.lane.tell((other, 0, {}), self.push)
        run.deliver(self.number, flight.gathered())


class Lanes:
    """The network of a pipeline; see `machines.network.Network`, whose place it takes.

    Attributes
    ----------
    tasks : list of Task
        What recordings know: the tasks of stages, which lanes do.
    times : list of deque
        Seconds of the latest turns of each.
    """

    actors: Sequence[NodeActor] = ()

    def __init__(
        self,
        plan: StagedPlan,
        ready: list[deque[Task]],
        *,
        arenas: Arenas,
        capacities: Capacities,
        max_in_flight: int,
        errors: Mapping[str, Any] | None,
        counted: bool,
        recycling: bool,
    ) -> None:
        self.plan, self.ready, self.errors, self.counted = plan, ready, errors, counted
        self.replica = 0
        self.recycling = recycling
        self.times: list[deque[float]] = [deque(maxlen=_TIMES_KEPT) for _ in plan.partition.tasks]
        self.chained = frozenset(plan.chained.values())
        self._functions: dict[tuple[int, bool], tuple[Any, list[Any]]] = {}
        self.room = max_in_flight * (2 + len(plan.partition.tasks) * plan.schedule.microbatches)
        names = plan.schedule.lane_names
        self.tasks = [self._known_task(spec, names) for spec in plan.partition.tasks]
        self.lanes = [PipelineLane(self, number, name) for number, name in enumerate(names)]
        self.channels = [lane.inbox for lane in self.lanes]

    def _known_task(self, spec: TaskSpec, names: Sequence[str]) -> Task:
        task = Task(spec, self.ready)
        task.joint = self.plan.compiled.joint
        task.lane = names[self.plan.stage_tasks[spec.index].lane]
        sources = [port.kind if port.node is None else port.node.name for port in spec.ports]
        task.ports = [Channel(1, f"{one} -> {spec.name}", credited=False) for one in sources]
        return task

    def work(self, tasks: tuple[int, ...], microbatch: int) -> Work:
        """Return tasks as something to do for a microbatch."""
        foreign = [
            number
            for index in tasks
            for number in self.plan.stage_tasks[index].foreign
            if microbatch or number not in self.chained
        ]
        return Work(tasks, microbatch, tuple(dict.fromkeys(foreign)))

    def order_of(self, device: int) -> Callable[[], LaneOrder]:
        """Return what makes the order in which a device acts in a run."""
        schedule, at = self.plan.schedule, self.plan.at
        works: dict[tuple[int, str, int], Work] = {}
        for stage, kind, microbatch, _ in schedule.lanes[device]:
            found = [at.get((stage, direction)) for direction in DIRECTIONS[kind]]
            tasks = tuple([index for index in found if index is not None])
            works[stage, kind, microbatch] = self.work(tasks, microbatch)
        if self.plan.credits is None:
            listed = [work for work in works.values() if work.tasks]
            return partial(Listed, listed)
        count = range(schedule.microbatches)
        forward = [works[device, "F", number] for number in count]
        backward = [works[device, "BW", number] for number in count]
        return partial(Credited, forward, backward, self.plan.credits[device])

    def _functions_for(self, part: Run) -> list[Any]:
        """Return the tasks as functions; each is None until a lane needs it, and that lane's only.

        With `max_bytes` they keep no memory between turns, which no run would have claimed.
        """
        key = id(part.binding), part.regular
        kept = self._functions.get(key)
        if kept is None or kept[0] is not part.binding:
            while len(self._functions) >= MEMORIES_KEPT:
                del self._functions[next(iter(self._functions))]
            kept = self._functions[key] = part.binding, [None] * len(self.plan.partition.tasks)
        return kept[1]

    def give_up_memory(self) -> None:
        """Let go of what functions write into."""
        self._functions.clear()

    def inject(self, run: Run, slot: int) -> None:
        """Tell every lane of a run, all parts of which see the variables as they are now."""
        kinds = [leaf.kind for leaf in self.plan.compiled.joint.leaves]
        for part in run.microbatches:
            part.run.kernels = self._functions_for(part.run)
            for index, kind in enumerate(kinds):
                if kind == "variable":
                    part.leaves[index] = run.values[index]
        flights: list[Flight] = []
        flights += [Flight(lane, run, flights) for lane in self.lanes]
        push = self.ready[slot].append
        for flight in flights:
            flight.lane.tell((flight, 0, None), push)

    def close(self) -> None:
        """Drop what the inboxes hold, and the coroutines with all that they hold."""
        for lane in self.lanes:
            lane.inbox.messages.clear()
            lane.flights.clear()
            lane.task.close()
