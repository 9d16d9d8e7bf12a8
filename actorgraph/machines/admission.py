"""`Admission`: which run is next, and whether there is room for it: in number, and in bytes.

The most urgent of the queued runs is next, among equals the oldest.  No other run is admitted
before it, so none starves.  With `max_bytes` a run is admitted only if all runs in flight could
reach their worst moments at the same time.  Then no run in flight ever waits for memory, so all
finish.  This is the banker's algorithm with whole claims; checking before every turn would admit
more runs, but cost time in each turn.

A run whose claim is too large even alone gets another plan of the same bits: the sequential order,
in which arrays die as early as they can.  If it does not fit either, the run is refused before it
starts.

The same holds for each device by itself.

Sources: E. W. Dijkstra, The mathematics behind the banker's algorithm (EWD 623), 1977.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from actorgraph.devices import Lane
from actorgraph.errors import MemoryLimitError
from actorgraph.graph import Node
from actorgraph.machines.claim import HOST, Claim, Limits, limit_of
from actorgraph.machines.compiled import Binding
from actorgraph.machines.plan import Plan
from actorgraph.machines.run import Run
from actorgraph.memory.arenas import Arenas
from actorgraph.memory.buffers import is_fresh, size_in_bytes, usage
from actorgraph.node import Parameter

_NAMED = 5
"""Nodes that a refusal names."""


class Admission:
    """The runs of a machine that are queued and in flight; they change under the core's lock."""

    def __init__(self, max_in_flight: int, max_bytes: Limits, workers: int) -> None:
        self.max_in_flight = max_in_flight
        self.max_bytes = max_bytes
        self.workers = workers
        self.queued: list[tuple[int, int, Run]] = []
        self.in_flight: dict[int, Run] = {}
        # One entry per direct run under way; these count in `max_in_flight`, not in `max_bytes`.
        self.direct: deque[Run] = deque()
        # The run in flight that assigns parameters; the next such run waits for it.
        self.stepping: Run | None = None

    @property
    def runs(self) -> list[Run]:
        """Runs in flight, then those that are queued."""
        return [*self.in_flight.values(), *self.waiting]

    @property
    def under_way(self) -> int:
        """How many runs have not ended."""
        return len(self.in_flight) + len(self.queued) + len(self.direct)

    @property
    def waiting(self) -> list[Run]:
        """Runs that are queued."""
        return [run for _, _, run in self.queued]

    def enter(self, run: Run) -> bool:
        """Admit a direct run; return False if it would have to wait.

        At its end the caller pops an entry of `direct`.
        """
        if self.queued or len(self.in_flight) + len(self.direct) >= self.max_in_flight:
            return False
        self.direct.append(run)
        return True

    def add(self, run: Run) -> None:
        """Queue a run."""
        priority = (
            0 if run.plan.compiled.updates_parameters else run.priority
        )  # these keep their order
        heapq.heappush(self.queued, (priority, run.number, run))

    def remove(self, run: Run) -> bool:
        """Remove a run from the queue; return whether it was there."""
        entries = [entry for entry in self.queued if entry[2] is run]
        if entries:
            self.queued.remove(entries[0])
            heapq.heapify(self.queued)
        return bool(entries)

    def admitted(self, arenas: Arenas) -> Iterator[Run]:
        """Move runs from the queue into flight while there is room, and yield them.

        If nothing is in flight, there is room: runs that need too many bytes were refused, and the
        arenas of earlier runs are dropped.
        """
        while self.queued:
            run = self.queued[0][2]
            if len(self.in_flight) + len(self.direct) >= self.max_in_flight:
                return
            if self.max_bytes is not None and _over(self.claimed(arenas, run), self.max_bytes):
                if self.in_flight:
                    return
                arenas.clear()
            if run.plan.compiled.updates_parameters:
                if self.stepping is not None:
                    return
                self.stepping = run
            heapq.heappop(self.queued)
            self.in_flight[run.number] = run
            yield run

    def claimed(self, arenas: Arenas, *more: Run) -> dict[str, int]:
        """Return the most bytes, by device, that the runs in flight and `more` can hold."""
        runs = (*self.in_flight.values(), *more)
        claims = [run.claim for run in runs if run.claim is not None]
        turns = min(self.workers, sum([claim.tasks for claim in claims]))
        turn = max([claim.turn for claim in claims], default=0)
        arena = max([arenas.bytes, *(claim.arena for claim in claims)])
        kept = sum([claim.kept for claim in claims])
        total = {HOST: kept + turns * turn + max(turns, arenas.count) * arena}
        for claim in claims:
            for device, size in claim.on.items():
                total[device] = total.get(device, 0) + size
        return total


def _over(claimed: Mapping[str, int], limits: Limits) -> str | None:
    """Return a device on which too much is claimed, or None."""
    return next((one for one, size in claimed.items() if size > limit_of(limits, one)), None)


def fitted(
    plan: Plan,
    binding: Binding,
    regular: bool,
    max_bytes: Limits,
    workers: int,
    claims: Callable[[Any, Binding, bool], Claim] | None = None,
    in_sequence: Callable[[Any], Plan] = Plan.in_sequence,
) -> tuple[Plan, Binding, Claim]:
    """Return a plan by which a run fits into `max_bytes`: its own, or that in sequential order.

    `claims` computes the claim of a run, default `claim_of`; `in_sequence` returns the plan that
    needs least memory.  Raises `MemoryLimitError` if not even that one fits.
    """
    claims = claims or claim_of
    claim = claims(plan, binding, regular)
    if _over(claim.alone(workers), max_bytes) is None:
        return plan, binding, claim
    sequence = in_sequence(plan)
    binding = sequence.bind(binding.symbols)
    claim = claims(sequence, binding, regular)
    needed = claim.alone(workers)
    device = _over(needed, max_bytes)
    if device is None:
        return sequence, binding, claim
    raise MemoryLimitError(
        _refusal(sequence, binding, device, needed[device], limit_of(max_bytes, device))
    )


def claim_of(plan: Plan, binding: Binding, regular: bool) -> Claim:
    """Return the claim of a run, predicted from its dims.

    Not counted: dims of None, what an op allocates inside of its call, and arrays that the user
    owns: feeds, parameters, and results of ended runs.  Only a `regular` run, whose leaves are all
    C-contiguous, uses an arena.
    """
    claim = binding.claims.get(regular)
    if claim is None:
        kept, cut = _copied_bytes(plan, binding.symbols), plan.partition
        turn = arena = tasks = 0
        on: dict[str, int] = {}
        turns: dict[Lane, int] = {}
        brought = _brought(plan, on, binding.symbols)
        for spec, buffered in zip(cut.tasks, cut.buffered, strict=True):
            lane = cut.lane(spec.index)
            planned = buffered if regular else frozenset()
            more, most = bytes_of(spec.steps, spec.kept, planned | cut.over | brought, binding)
            if lane is not None:
                name = lane.device.root.name
                on[name] = on.get(name, 0) + more
                turns[lane] = max(turns.get(lane, 0), most)
                continue
            kept, tasks = kept + more, tasks + 1
            if spec.waits:  # all runs in flight may be in the middle of its turns
                kept += most
            else:
                turn = max(turn, most)
            if planned:
                from actorgraph.memory.packing import assign

                slots = assign(spec.steps, spec.kept, planned, binding.symbols)
                arena = max(arena, slots.total_bytes)
        for lane, most in turns.items():
            on[lane.device.root.name] += most
        claim = binding.claims[regular] = Claim(kept, turn, arena, tasks, on)
    return claim


def _brought(plan: Plan, on: dict[str, int], symbols: Mapping[str, int]) -> frozenset[int]:
    """Add the copies of leaves to the bytes `on` devices; return the steps that make them.

    Copies of parameters stay on the device, and belong to no run.
    """
    joint, cut, copying = plan.compiled.joint, plan.partition, set()
    if not cut.lanes:
        return frozenset()
    from actorgraph.lower.placing import KEEP, MOVE  # late: rarely needed

    kinds = {leaf.node.id: leaf.kind for leaf in joint.leaves}
    copied: set[tuple[str, int]] = set()
    for spec, lane in zip(cut.tasks, cut.lanes, strict=True):
        for step in spec.steps:
            leaf = step.inputs[0].id if step.op in (KEEP, MOVE) else None
            if leaf not in kinds:
                continue
            copying.add(step.id)
            if lane is not None and step.op is MOVE and kinds[leaf] != "variable":
                key = lane.device.root.name, leaf
                if key not in copied:
                    copied.add(key)
                    on[key[0]] = on.get(key[0], 0) + size_in_bytes(step, symbols)
    return frozenset(copying)


def _copied_bytes(plan: Plan, symbols: Mapping[str, int]) -> int:
    """Return the most bytes that copies of results take, which make them the caller's own."""
    joint, result_of = plan.compiled.joint, plan.compiled.result_of
    total = sum([size_in_bytes(node, symbols) for node in result_of if not is_fresh(node)])
    read = set(joint.values.values())
    for node in plan.names.nodes:
        value, derivative = joint.values[node], joint.derivatives.get(node)
        size = size_in_bytes(value, symbols)
        total += size * (value not in result_of and not isinstance(node, Parameter))
        if derivative is None:
            total += size * plan.compiled.derivative_is_zero(node)
        else:
            total += size * (derivative not in result_of or derivative in read)
            read.add(derivative)
    return total


def bytes_of(
    steps: Sequence[Node], kept: Sequence[Node], planned: frozenset[int], binding: Binding
) -> tuple[int, int]:
    """Return the bytes of a task that outlive its turn, and the most of the others at once.

    A value that may be a view counts as an array, and keeps its possible base alive.
    """
    lives, after = usage(steps, kept, binding.symbols), len(steps)
    change, outliving = [0] * (after + 1), 0
    for position, step in enumerate(steps):
        size = 0 if step.id in planned else allocated(step, binding)
        if lives.last[step.id] == after:
            outliving += size
        else:
            change[position] += size
            change[lives.last[step.id] + 1] -= size
    return outliving, max(accumulate(change))


def allocated(step: Node, binding: Binding) -> int:
    """Return the bytes that a step allocates for its value."""
    return 0 if step.op.memory.is_view else size_in_bytes(step, binding.symbols)


def _refusal(plan: Plan, binding: Binding, device: str, needed: int, limit: float) -> str:
    largest: dict[Node, int] = {}
    joint = plan.compiled.joint
    for step in joint.order:
        node = joint.source(step)
        largest[node] = max(largest.get(node, 0), allocated(step, binding))
    ranked = sorted(largest, key=largest.__getitem__, reverse=True)[:_NAMED]
    sizes = ", ".join(f"{node.name!r} {largest[node]:_}" for node in ranked)
    dims = ", ".join(f"{name} = {size}" for name, size in binding.symbols.items())
    return (
        f"a run needs {needed:_} bytes{'' if device == HOST else f' on {device}'} even "
        f"{plan.in_order}{f' ({dims})' if dims else ''}, but max_bytes is {limit:_}; "
        "the largest values, by node: "
        f"{sizes}; feed smaller arrays, ask for fewer outputs, use ag.checkpoint, or give more"
    )
