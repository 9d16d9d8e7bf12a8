"""`Recorder`: an instrument that records runs, and `assemble`, which makes plain `Records` of that.

For each turn it appends five fields to a flat list of the thread: without a lock, and without a
tuple that the garbage collector would have to visit.  All else is computed when the recording ends.
"""

from __future__ import annotations

import threading
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

from actorgraph.errors import printable
from actorgraph.graph import Node
from actorgraph.instrument import Turns
from actorgraph.machines.instrument import Instrument
from actorgraph.memory.buffers import size_in_bytes
from actorgraph.trace.records import Actor, CallSpan, Edge, MessageSpan, Records, RunSpan, Slice

if TYPE_CHECKING:
    from actorgraph.devices.base import Job
    from actorgraph.lower.regions import Port
    from actorgraph.machines.core import Core
    from actorgraph.machines.network import Network
    from actorgraph.machines.plan import Plan
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task


@dataclass(slots=True)
class RunNotes:
    """The notes on a run; they keep no array alive."""

    plan: Plan
    core: Core
    number: int
    microbatch: int | None
    symbols: dict[str, int]
    network: Network | None = None
    feeds: tuple[float, float, str] | None = None
    direct: tuple[float, float, str] | None = None
    started: float | None = None
    admitted: float | None = None
    ended: float | None = None
    error: str | None = None
    calls: list[tuple[str, float, float]] = field(default_factory=list)


class Recorder(Instrument):
    """Notes the events of runs."""

    def __init__(self) -> None:
        self.began = perf_counter()
        # By thread: its name, and for each turn task, run, microbatch, start and end.
        self.lanes: list[tuple[str, list[Any]]] = []
        self.runs: dict[tuple[Core, int], RunNotes] = {}
        self.networks: dict[Network, None] = {}  # in the order in which they took runs
        self.jobs: list[tuple[Job, float, float]] = []  # of devices, with start and end
        self.turns = Turns(self.lanes)

    def on_job(self, job: Job, started: float, ended: float) -> None:
        self.jobs.append((job, started, ended))

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        self.turns.extend((task, run.number, run.microbatch, started, ended))

    def _notes(self, run: Run) -> RunNotes:
        notes = self.runs.get((run.core, run.number))
        if notes is None:
            symbols = dict(run.binding.symbols)
            notes = RunNotes(run.plan, run.core, run.number, run.microbatch, symbols)
            self.runs[run.core, run.number] = notes
        return notes

    def on_feeds(self, run: Run, started: float, ended: float) -> None:
        """Note how long feeds were checked."""
        self._notes(run).feeds = started, ended, threading.current_thread().name

    def on_run_start(self, run: Run) -> None:
        notes = self._notes(run)
        notes.started, notes.microbatch = perf_counter(), run.microbatch

    def on_run_admitted(self, run: Run) -> None:
        """Note the admission, and the network that the run passes through."""
        notes = self._notes(run)
        notes.admitted, notes.network = perf_counter(), run.network
        self.networks[run.network] = None

    def on_direct(self, run: Run, started: float, ended: float) -> None:
        self._notes(run).direct = started, ended, threading.current_thread().name

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        self._notes(run).calls.append((task.spec.name, started, ended))

    def on_error(self, run: Run, error: BaseException) -> None:
        self._notes(run).error = type(error).__name__

    def on_run_end(self, run: Run) -> None:
        self._notes(run).ended = perf_counter()


def assemble(recorder: Recorder, ended: float) -> Records:
    """Return the records of a recorder that has stopped listening."""
    assembly = _Assembly(recorder)
    assembly.add_actors()
    assembly.add_turns()
    assembly.add_jobs()
    assembly.add_pieces()
    assembly.slices.sort(key=attrgetter("start"))
    assembly.connect()
    return Records(
        duration_s=ended - recorder.began,
        workers=assembly.workers(),
        lanes=tuple(dict.fromkeys([part.lane for part in assembly.slices])),
        actors=tuple(assembly.actors),
        slices=tuple(assembly.slices),
        messages=tuple(sorted(assembly.messages, key=attrgetter("sent"))),
        runs=tuple(assembly.spans()),
        calls=tuple(assembly.calls()),
    )


class _Assembly:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.began = recorder.began
        self.notes = list(recorder.runs.values())
        self.machines = _names(self.notes)
        self.actors: list[Actor] = []
        self.slices: list[Slice] = []
        self.turns_in: dict[str, list[Slice]] = {}  # by thread
        self.messages: list[MessageSpan] = []
        self.actor_of: dict[Task | Plan, int] = {}
        self.machine_of: dict[Task, tuple[str, Any]] = {}
        self.task_of: dict[int, Task] = {}
        self.sizes: dict[Any, int] = {}

    def add_actors(self) -> None:
        for network in self.recorder.networks:
            machine, core = next(
                (self.machines[id(n.core)], n.core) for n in self.notes if n.network is network
            )
            first = len(self.actors)
            for index, task in enumerate(network.tasks, first):
                self.machine_of[task], self.task_of[index] = (machine, core), task
                edges = []
                for channel, port in zip(task.ports, task.spec.ports, strict=True):
                    producer = None if port.producer is None else first + port.producer
                    edges.append(Edge(channel.name, port.kind, producer))
                spec = task.spec
                self._add_actor(
                    task, spec.name, spec.direction, machine, task.joint, spec.steps, edges,
                    task.lane,
                )  # fmt: skip
        for notes in self.notes:
            if notes.direct is not None and notes.plan not in self.actor_of:
                name = ", ".join(printable(node.name) for node in notes.plan.names.nodes[:3])
                joint, machine = notes.plan.compiled.joint, self.machines[id(notes.core)]
                self._add_actor(notes.plan, name, "direct", machine, joint, joint.order)

    def _add_actor(
        self, of: Task | Plan, name: str, direction: str, machine: str, joint: Any,
        steps: Sequence[Node], edges: Sequence[Edge] = (), lane: str | None = None,
    ) -> None:  # fmt: skip
        index = self.actor_of[of] = len(self.actors)
        nodes = dict.fromkeys(joint.source(step).name for step in steps)
        self.actors.append(Actor(index, name, direction, machine, tuple(nodes), tuple(edges), lane))

    def workers(self) -> int:
        own = {core for task, (_, core) in self.machine_of.items() if task.lane is not None}
        cores = {notes.core for notes in self.notes} - own
        return max([core.scheduler.workers for core in cores], default=0)

    def add_turns(self) -> None:
        for lane, turns in self.recorder.lanes:
            fields = iter(turns)
            for task, number, microbatch, started, ended in zip(*[fields] * 5, strict=True):
                if task not in self.actor_of:
                    continue  # its run was in flight before the recording
                machine = self.machine_of[task][0]
                actor = self.actors[self.actor_of[task]]
                self._add(
                    task.lane or lane, started, ended, actor.name, actor.direction, number,
                    machine, microbatch, actor.index,
                )  # fmt: skip
                self.turns_in.setdefault(lane, []).append(self.slices[-1])

    def add_jobs(self) -> None:
        """Add the jobs of devices' lanes, for the turns that launched them."""
        turns = {
            thread: sorted(parts, key=attrgetter("start"))
            for thread, parts in self.turns_in.items()
        }
        for job, started, ended in self.recorder.jobs:
            thread, launched = job.launched or ("", 0.0)
            parts, at = turns.get(thread, []), launched - self.began
            place = bisect(parts, at, key=attrgetter("start")) - 1
            if place >= 0 and at <= parts[place].end:
                part = parts[place]
                self._add(
                    job.lane.name, started, ended, job.name, "device", part.run, part.machine,
                    part.microbatch, None,
                )  # fmt: skip

    def add_pieces(self) -> None:
        """Add the work of runs outside of actors."""
        for notes in self.notes:
            machine = self.machines[id(notes.core)]
            run = notes.number, machine, notes.microbatch
            if notes.feeds is not None:
                started, ended, lane = notes.feeds
                self._add(lane, started, ended, "check feeds", "feeds", *run, None)
            if notes.direct is not None:
                started, ended, lane = notes.direct
                actor = self.actor_of[notes.plan]
                name = self.actors[actor].name
                self._add(lane, started, ended, name, "direct", *run, actor)

    def _add(
        self, lane: str, started: float, ended: float, name: str, kind: str, run: int,
        machine: str, microbatch: int | None, actor: int | None,
    ) -> None:  # fmt: skip
        start = started - self.began
        self.slices.append(
            Slice(
                lane, start, ended - self.began, name, kind, run, machine, microbatch, actor,
                start, 0, 0,
            )
        )  # fmt: skip

    def connect(self) -> None:
        """Find which slice sent to which: each actor fires once per run or microbatch."""
        last: dict[tuple[int, int, int | None], int] = {}
        first: dict[tuple[int, int, int | None], int] = {}
        for index, part in enumerate(self.slices):
            if part.actor is not None:
                key = part.actor, part.run, part.microbatch
                last[key] = index
                first.setdefault(key, index)
        sent_bytes: Counter[int] = Counter()
        updates: dict[int, tuple[float, int]] = {}
        for (actor, run, microbatch), target in first.items():
            task = self.task_of.get(actor)
            if task is None:
                continue
            notes = self.recorder.runs.get((self.machine_of[task][1], run))
            ready, received_bytes = -1.0, 0
            for edge, port in zip(self.actors[actor].edges, task.spec.ports, strict=True):
                producer = edge.producer
                source = None if producer is None else last.get((producer, run, microbatch))
                message = self._message(source, target, edge, port, notes)
                if message is None:
                    continue
                self.messages.append(message)
                ready = max(ready, message.sent)
                received_bytes += message.bytes
                if source is not None:
                    sent_bytes[source] += message.bytes
            updates[target] = ready if ready >= 0 else self.slices[target].start, received_bytes
        for index in updates.keys() | sent_bytes.keys():
            part = self.slices[index]
            ready, received_bytes = updates.get(index, (part.ready, 0))
            self.slices[index] = part._replace(
                ready=min(ready, part.start),
                received_bytes=received_bytes,
                sent_bytes=sent_bytes[index],
            )

    def _message(
        self, source: int | None, target: int, edge: Edge, port: Port, notes: RunNotes | None
    ) -> MessageSpan | None:
        to = self.slices[target]
        if source is not None:
            sender = self.slices[source]
            # Sent during the turn; another worker may have used it before the turn's end.
            sent = max(sender.start, min(sender.end, to.start))
        elif edge.producer is None and notes is not None and notes.admitted is not None:
            sent = min(notes.admitted - self.began, to.start)
        else:
            return None
        symbols = {} if notes is None else notes.symbols
        size = sum(self._size(node, symbols) for node in port.nodes)
        return MessageSpan(source, target, edge, sent, max(sent, to.start), size)

    def _size(self, node: Node, symbols: Mapping[str, int]) -> int:
        key = id(node), tuple(symbols.items())  # by id, as `==` on nodes builds a node
        if key not in self.sizes:
            self.sizes[key] = size_in_bytes(node, symbols)
        return self.sizes[key]

    def spans(self) -> list[RunSpan]:
        spans = [
            RunSpan(
                self.machines[id(notes.core)], notes.number, notes.microbatch,
                self._since(notes.started), self._since(notes.admitted), self._since(notes.ended),
                notes.error,
            )
            for notes in self.notes
        ]  # fmt: skip
        return sorted(spans, key=_beginning)

    def calls(self) -> list[CallSpan]:
        calls = [
            CallSpan(name, self.machines[id(notes.core)], notes.number, start - self.began,
                 end - self.began)
            for notes in self.notes
            for name, start, end in notes.calls
        ]  # fmt: skip
        return sorted(calls, key=attrgetter("start"))

    def _since(self, time: float | None) -> float | None:
        return None if time is None else max(0.0, time - self.began)


def _names(notes: Sequence[RunNotes]) -> dict[int, str]:
    """Name each machine by its graph, with a number if several have graphs of one name."""
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for one in notes:
        if id(one.core) not in names:
            graph = str(one.plan.names.nodes[0].graph.name)
            seen[graph] += 1
            names[id(one.core)] = graph if seen[graph] == 1 else f"{graph} ({seen[graph]})"
    return names


def _beginning(span: RunSpan) -> float:
    return next((at for at in (span.started, span.admitted, span.ended) if at is not None), 0.0)
