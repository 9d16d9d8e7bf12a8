"""`Network`: the actors and channels of a plan, ready to take runs.

A machine has a network for each mode (forward, backward, tangents), class of priority and
`np.errstate` of its runs, so that messages need not carry these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

from actorgraph.channels import Channel
from actorgraph.graph import Node
from actorgraph.lower.collector import paused
from actorgraph.lower.kernels import alike, with_errstate
from actorgraph.lower.program import (
    CALLS_TILL_ROWS,
    FEWEST_ROWS,
    Program,
    Tabling,
    lower,
    lower_directly,
    numbered,
)
from actorgraph.lower.regions import TaskSpec
from actorgraph.machines.calling import Calling, Steps
from actorgraph.machines.capacities import Capacities, channel_name
from actorgraph.machines.compiled import Binding
from actorgraph.machines.inline import MEMORIES_KEPT
from actorgraph.machines.plan import Plan
from actorgraph.machines.run import Run
from actorgraph.memory.arenas import Arenas
from actorgraph.memory.buffers import Buffers
from actorgraph.memory.free_lists import FreeLists
from actorgraph.node_actor import Dead, Message, Task, blamed, fail
from actorgraph.scheduler import Scheduler

_KEPT = 16
"""Most networks of a machine before idle ones are dropped."""

_MOST_PLAIN = 4000
"""Most steps of a network that begins without tables: making it again must not take long."""


class KernelCache:
    """The lists that programs of a network index: kernels and memory of turns, by binding.

    `guarded` wraps a kernel in the network's `np.errstate`.  `free_lists` makes the free lists of
    arrays that leave a turn; without it such arrays are always fresh.  With `shares` the tasks of a
    run share memory, see `travelling`.  `bound_index` has the index of a node's kernel by its id,
    `memory_index` that of the function that leases a task's arrays.
    """

    def __init__(
        self, plan: Plan, arenas: Arenas, guarded: Callable[[Any, Node], Any],
        free_lists: Callable[[], FreeLists] | None, shares: bool = False,
    ) -> None:  # fmt: skip
        self._plan, self._arenas = plan, arenas
        self._guarded, self._free_lists, self._shares = guarded, free_lists, shares
        self._kept: dict[tuple[int, bool], tuple[Binding, list[Any]]] = {}
        cut = plan.partition
        self.bound_index = {node.id: index for index, node in enumerate(cut.bound)}
        with_memory = [
            index
            for index, written in enumerate(zip(cut.buffered, cut.leaving, strict=True))
            if any(written)
        ]
        first = len(cut.bound)
        self.memory_index = {task: first + place for place, task in enumerate(with_memory)}

    def kernels(
        self, binding: Binding, regular: bool, programs: Sequence[Program | None]
    ) -> list[Any]:
        """Return the list for a binding; `programs` are those of the tasks."""
        key = id(binding), regular
        kept = self._kept.get(key)
        if kept is None or kept[0] is not binding:
            while len(self._kept) >= MEMORIES_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[key] = binding, self._made(binding, regular, programs)
        return kept[1]

    def _made(
        self, binding: Binding, regular: bool, programs: Sequence[Program | None]
    ) -> list[Any]:
        cut, placed = self._plan.partition, self._plan.compiled.placed
        lane_of = cut.lane_of
        kernels: list[Any] = [
            placed(node, self._guarded(found, node), lane_of.get(node.id))
            for node, found in zip(cut.bound, binding.kernels, strict=True)
        ]
        symbols, of_run = binding.symbols, None
        free_lists = None if self._free_lists is None else self._free_lists()
        with paused():
            if self._shares and regular and free_lists is not None:
                of_run = cut.run_memory(free_lists, symbols)
            for index in self.memory_index:
                own = programs[index]
                kernels.append(
                    cut.layout(index, symbols, regular, self._arenas, free_lists, own, of_run)
                )
        return kernels

    def clear(self) -> None:
        """Drop the lists, and the memory that they refer to."""
        self._kept.clear()


class Network:
    """Actors joined by channels.

    A small one begins without tables: they took a tenth of a first run, and only many runs get that
    back.  `is_due` says when one with tables is to replace it.

    `ready` are the ready queues of the class of priority, one per worker; `errors` is the
    `np.errstate` of the runs, None for NumPy's defaults; with `recycling` arrays that leave a turn
    come from free lists; `replaces` is the one without tables.  The tasks share their programs, and
    the tables of these, with those of the network `like`.
    """

    def __init__(
        self, plan: Plan, ready: list[deque[Task]], *, arenas: Arenas, capacities: Capacities,
        max_in_flight: int, errors: Mapping[str, Any] | None, counted: bool, recycling: bool = True,
        replaces: Network | None = None, like: Network | None = None,
    ) -> None:  # fmt: skip
        compiled = plan.compiled
        is_small = len(compiled.joint.order) <= _MOST_PLAIN
        begins = replaces is None and is_small and compiled.may_begin_plain
        self.is_plain: bool = begins if like is None else like.is_plain
        enough = any(len(spec.steps) >= FEWEST_ROWS for spec in plan.partition.tasks)
        self._gets_tables = self.is_plain and enough
        self._calls: int = 0 if replaces is None else replaces.runs
        self.runs: int = self._calls  # taken so far
        self.plan, self.ready, self.arenas, self.errors = plan, ready, arenas, errors
        self.capacities, self.max_in_flight, self.counted = capacities, max_in_flight, counted
        self.replica, self.regular, self._recycling, self._like = 0, True, recycling, like
        self.binding: Binding | None = None
        self.bound_kernels: list[Any] = []
        shares = plan.workers == 1  # several seldom take tasks in the order of the plan of places
        self._kernel_cache = KernelCache(
            plan, arenas, self._guarded, FreeLists if recycling else None, shares
        )
        self.memory_index = self._kernel_cache.memory_index
        self.channels: list[Channel] = []
        self._shared: dict[int, dict[Any, Callable[..., Any]]] = {}  # by lane
        with paused():
            self.tasks = [Task(spec, ready) for spec in plan.partition.tasks]
            self._connect()
        self._like = None  # it may end before this one
        if replaces is not None:
            for task, before in zip(self.tasks, replaces.tasks, strict=True):
                task.turns, task.seconds = before.turns, before.seconds

    def is_due(self) -> bool:
        """Return whether it has no tables, and has taken so many runs that these pay."""
        return self._gets_tables and self.runs >= CALLS_TILL_ROWS

    def inject(self, run: Run, slot: int) -> None:
        """Send a run's leaves to the tasks that read them, and make waiting tasks ready.

        Runs must be injected one at a time; they pass in this order.
        """
        if run.binding is not self.binding or run.regular is not self.regular:
            try:
                self._adopt(run.binding, run.regular)
            except Exception as error:  # noqa: BLE001 - actors send poison, so joins stay aligned
                run.abort(blamed(self.plan.compiled.joint, None, None, error))
        self.runs += 1
        run.kernels = self.bound_kernels
        ready = self.ready[slot]
        for value, targets in zip((*run.values, None), self.entries, strict=True):
            if targets:
                message = Message(value, run)
                for append, queue, task in targets:
                    append(message)
                    if task.wait is queue:
                        ready.append(task)
        for chosen, append, queue, task in self.bundles:
            append(chosen(run.values))
            if task.wait is queue:
                ready.append(task)
        for calling, task in self.fed:
            if task.wait is calling:
                ready.append(task)

    def _adopt(self, binding: Binding, regular: bool) -> None:
        """Switch to another binding: kernels, memory of turns, predictions."""
        programs = [task.program for task in self.tasks]
        self.bound_kernels = self._kernel_cache.kernels(binding, regular, programs)
        self.binding, self.regular = binding, regular
        for task, heavy in zip(self.tasks, binding.heavy, strict=True):
            task.heavy = heavy

    def give_up_memory(self) -> None:
        """Drop the memory of turns, and the free lists."""
        self.binding, self.bound_kernels = None, []
        self._kernel_cache.clear()

    def close(self) -> None:
        """Drop the messages, and the coroutines with everything they hold."""
        for channel in self.channels:
            channel.messages.clear()
        for task in self.tasks:
            task.close()

    def _guarded(self, found: Callable[..., Any], node: Node | None = None) -> Callable[..., Any]:
        return found if self.errors is None else with_errstate(found, self.errors)

    @cached_property
    def _tabling(self) -> Tabling | None:
        return None if self.is_plain else self.plan.tabling(self.errors)

    def _to_device(self, spec: TaskSpec) -> Callable[[Any], Any]:
        return self.plan.compiled.to_device(self.plan.partition.lane(spec.index))

    # -- construction -------------------------------------------------------------------------

    def _connect(self) -> None:
        leaves = self.plan.compiled.leaf_index
        self.entries: list[list[tuple[Any, Any, Task]]] = [[] for _ in range(len(leaves) + 1)]
        self.bundles: list[tuple[Callable[[Any], tuple[Any, ...]], Any, Any, Task]] = []
        interpreted = self.plan.compiled.interpreter is not None
        self.callings = {
            task.spec.index: Calling(task) for task in self.tasks if interpreted or task.spec.waits
        }
        ports = [self._open_ports(task) for task in self.tasks]
        # A `Calling` never waits for a queue: it is made ready once, when all has been brought.
        self.fed = [
            (calling, self.tasks[index])
            for index, calling in self.callings.items()
            if any(port.producer is None for port in self.tasks[index].spec.ports)
        ]
        for task in self.tasks:
            task.joint = self.plan.compiled.joint
        sends: list[list[Channel]] = [[] for _ in self.tasks]
        for task in self.tasks:
            for node, consumer in task.spec.sends:
                sends[task.spec.index].append(ports[consumer][node.id])
            for nodes, consumer in task.spec.bundles:
                sends[task.spec.index].append(ports[consumer][nodes[0].id])
        self.with_credits = any(channel.credits is not None for channel in self.channels)
        for task in self.tasks:
            self._start(task, list(ports[task.spec.index].values()), sends)

    def _open_ports(self, task: Task) -> dict[Any, Channel]:
        """Open the channels into a task, and note the entries for leaves of runs."""
        opened: dict[Any, Channel] = {}
        capacities = self.capacities.of(self.plan.compiled.joint, task.spec, self.max_in_flight)
        direction: Literal["forward", "reverse"]
        direction = "forward" if task.spec.direction == "forward" else "reverse"
        for port, capacity in zip(task.spec.ports, capacities, strict=True):
            key = port.nodes[0].id if port.nodes else port.kind
            channel = opened[key] = Channel(
                capacity,
                partial(channel_name, self.plan.partition.tasks, task.spec, port),
                direction,
                credited=capacity < self.max_in_flight,
                counted=self.counted,
            )
            self.channels.append(channel)
            if port.producer is None:
                places = [self.plan.compiled.leaf_index[node] for node in port.nodes] or [-1]
                entry = channel.queue.append, channel.messages, task
                if port.kind == "bundle":
                    self.bundles.append((itemgetter(*places), *entry))
                else:
                    self.entries[places[0]].append(entry)
        return opened

    def _start(self, task: Task, ports: list[Channel], sends: list[list[Channel]]) -> None:
        spec, task.ports = task.spec, ports
        producers = [-1 if port.producer is None else port.producer for port in spec.ports]
        preferred = producers.index(max(producers))
        kernels = self._kernels(spec)
        outs = sends[spec.index]
        credited_in, credited_out = self._credited(ports), self._credited(outs)
        credited: list[tuple[Any, Any, Task]] = []
        for i in credited_in:
            held, producer = ports[i].credits, self.tasks[producers[i]]
            assert held is not None
            credited.append((held.append, self._signal(producer, held), producer))
        targets: list[tuple[Any, Any, Task]] = []
        for channel, (_, number) in zip(outs, (*spec.sends, *spec.bundles), strict=True):
            consumer = self.tasks[number]
            targets.append((self._signal(consumer, channel.messages), channel.queue, consumer))
        spent: list[Any] = [outs[i].credits for i in credited_out]
        if spec.index in self.callings:
            steps = self._calling_steps(task, kernels)
            self.callings[spec.index].start(steps, ports, credited, targets, spent)
            return
        kernel_of, kernels = numbered(kernels) if len(kernels) > 1 else ((0,), kernels)
        known = None if self._like is None else self._like.tasks[spec.index].program
        program = task.program = known or self._lowered(
            spec, kernel_of, preferred, credited_in, credited_out
        )
        args: list[Any] = [task, Message, Dead, fail]
        for channel in ports:
            args += (channel.messages, channel.queue)
        args += chain.from_iterable(credited)
        called, constants = program.callables(kernels, self._to_device(spec), calls=self._calls)
        args += called
        if spec.index in self.memory_index:
            args += [self.memory_index[spec.index], self.arenas.idle.append]
        args += constants
        args += chain.from_iterable(targets)
        for credits_ in spent:
            args += [credits_, credits_.popleft]
        if spec.results:
            args += [index for _, index in spec.results]
        task.start(program.make(*args), ports[preferred].messages)

    def _lowered(
        self,
        spec: TaskSpec,
        kernel_of: Sequence[int],
        preferred: int,
        credited_in: Sequence[int],
        credited_out: Sequence[int],
    ) -> Program:
        cut, recycling, made = self.plan.partition, self._recycling, list[Program]()
        tabling = self._tabling if len(spec.steps) >= FEWEST_ROWS else None
        if tabling is not None and spec.index in self.memory_index:
            # Without this network, which the program may outlive.
            def buffers(symbols: tuple[tuple[str, int], ...]) -> Buffers:
                return cut.buffers(spec.index, made[0], recycling, dict(symbols))

            tabling = tabling._replace(planned=buffers)
        program = lower(
            spec,
            kernel_of,
            preferred=preferred,
            credited_in=credited_in,
            credited_out=credited_out,
            bound=self._kernel_cache.bound_index,
            long_steps=cut.long_steps,
            buffered=cut.buffered[spec.index],
            leaving=cut.leaving[spec.index],
            bulky=cut.bulky,
            over=cut.over,
            tabling=tabling,
        )
        made.append(program)
        return program

    def _signal(self, task: Task, queue: Any) -> Any:
        """Return what the task's `wait` is compared with: the queue, or the task's `Calling`."""
        return self.callings.get(task.spec.index, queue) if self.callings else queue

    def _calling_steps(self, task: Task, kernels: list[Any]) -> Steps:
        """Return the steps of a task that has a `Calling`."""
        spec, compiled = task.spec, self.plan.compiled
        if compiled.interpreter is not None:
            interpreted: Steps = compiled.interpreter(task, kernels, self._to_device(spec))
            return interpreted
        bound = self._kernel_cache.bound_index
        program = lower_directly(spec.steps, spec.received, spec.outputs, bound=bound)
        task.program = program
        called, constants = program.callables(kernels, self._to_device(spec))
        steps: Steps = program.make(*called, *constants)
        return steps

    def _credited(self, channels: Sequence[Channel]) -> Sequence[int]:
        if not self.with_credits:
            return ()
        return [i for i, channel in enumerate(channels) if channel.credits is not None]

    def _kernels(self, spec: TaskSpec) -> list[Any]:
        """Return for each step its kernel, or the kernel's index if it depends on symbols."""
        kernels: list[Callable[..., Any] | int] = []
        compiled, lane = self.plan.compiled, self.plan.partition.lane(spec.index)
        bound, everywhere = self._kernel_cache.bound_index, compiled.placing is None
        shared = self._shared.setdefault(id(lane), {})
        for node in spec.steps:
            index = bound.get(node.id) if bound else None
            if index is not None:
                kernels.append(index)
                continue
            key = alike(node)
            found = shared.get(key)
            if found is None:
                found = self._guarded(compiled.kernel(node, {}, lane, self.plan.sequential is None))
                if node.op.kernel is None:
                    shared[key] = found
            kernels.append(found if everywhere else compiled.placed(node, found, lane))
        return kernels


class Networks(dict[Any, Network]):
    """The networks of a machine, made with the same options; they change under the core's lock."""

    def __init__(self, scheduler: Scheduler, **options: Any) -> None:
        super().__init__()
        self._scheduler = scheduler
        self.arenas = Arenas()
        self._options = options

    def of(self, run: Run, others: Sequence[Run]) -> Network:
        """Return the network for a run; `others` are queued or in flight.

        There are three classes of priority: below 0, 0, and above.  Within a class the order of
        admission decides, and no run overtakes another in a channel.  A plan that is one sequence
        has a network per worker, so that its runs overlap.
        """
        rank = (run.priority > 0) - (run.priority < 0)
        errors = None if run.errors is None else tuple(run.errors.items())
        replica = self._least_used(run.plan, others) if run.plan.sequential and others else 0
        key = id(run.plan), rank, errors, replica
        network = self.get(key)
        plain = network if type(network) is Network and network.is_due() else None
        if network is None or plain is not None:
            if len(self) >= _KEPT:
                self.drop_idle(others)
            options = self._options if plain is None else {**self._options, "replaces": plain}
            if run.plan.network is None:
                options = {**options, "like": self._alike(run, plain)}
            network = self[key] = (run.plan.network or Network)(
                run.plan,
                self._scheduler.ready_queues(rank),
                arenas=self.arenas,
                errors=run.errors,
                **options,
            )
            network.replica = replica
        return network

    def _alike(self, run: Run, plain: Network | None) -> Network | None:
        """Return a network of a run's plan and `np.errstate`, to replace `plain` one with tables.

        It has tables, if any such network has.
        """
        alike = [one for one in self.values() if one.plan is run.plan and one.errors == run.errors]
        with_tables = [one for one in alike if not one.is_plain]
        return next(iter(with_tables or (() if plain else alike)), None)

    def give_up_memory(self, plan: Plan) -> None:
        """Drop all memory that is kept for later runs, because a run of `plan` ran out of memory.

        Runs in flight keep what they use.
        """
        plan.inline.give_up_memory()
        self.arenas.clear()
        for network in self.values():
            network.give_up_memory()

    def drop_idle(self, runs: Iterable[Run], plan: Plan | None = None) -> None:
        """Drop the networks, of a plan if given, that none of the runs uses."""
        used = {id(run.network) for run in runs}
        for key, network in list(self.items()):
            if id(network) not in used and (plan is None or network.plan is plan):
                del self[key]

    def _least_used(self, plan: Plan, runs: Iterable[Run]) -> int:
        used = [0] * self._scheduler.workers
        for run in runs:
            if run.plan is plan:
                used[run.network.replica] += 1
        return used.index(min(used))


def story(stalled: Iterable[Run]) -> str:
    """Return which tasks wait for what, for the text of a `DeadlockError`."""
    waiting: list[str] = []
    for network in dict.fromkeys([run.network for run in stalled]):
        empty = {id(c.messages): f"a message from {c.name}" for c in network.channels}
        empty |= {id(c.credits): f"room in {c.name}" for c in network.channels}
        for task in network.tasks:
            wait = task.wait.lacks() if isinstance(task.wait, Calling) else task.wait
            if not wait and id(wait) in empty:
                waiting.append(f"{task.spec.name!r} waits for {empty[id(wait)]}")
    return "; ".join(waiting[:20]) or "no task waits"
