"""`Claim`: the memory that a run needs to be admitted, and the plan by which it fits `max_bytes`.

A run whose claim is too large even alone gets another plan of the same bits: the sequential order,
in which arrays die as early as they can.  If it does not fit either, the run is refused before it
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from typing import Any, TypeAlias

from actorgraph import devices
from actorgraph.devices import Lane
from actorgraph.errors import MemoryLimitError
from actorgraph.graph import Node
from actorgraph.machines.compiled import Binding
from actorgraph.machines.plan import Plan
from actorgraph.memory.buffers import is_fresh, size_in_bytes, usage
from actorgraph.node import Parameter
from actorgraph.options import positive

_NAMED = 5
"""Nodes that a refusal names."""

HOST = "cpu"
"""The name of the host's memory in claims."""

Limits: TypeAlias = "int | Mapping[Any, int] | None"
"""Bytes on each device, or by device name; None for no limit."""


def checked_limits(max_bytes: Any) -> Limits:
    """Return a machine's `max_bytes`, with devices by name, or raise."""
    if max_bytes is None:
        return None
    if not isinstance(max_bytes, Mapping):
        return positive("max_bytes", max_bytes)
    return {
        devices.get(device).root.name: positive("max_bytes", limit)
        for device, limit in max_bytes.items()
    }


def limit_of(limits: Limits, device: str) -> float:
    """Return the bytes that runs may hold on a device."""
    if isinstance(limits, Mapping):
        return limits.get(device, inf)
    return inf if limits is None else limits


def over_limit(claimed: Mapping[str, int], limits: Limits) -> str | None:
    """Return a device on which too much is claimed, or None."""
    return next((one for one, size in claimed.items() if size > limit_of(limits, one)), None)


@dataclass(frozen=True, slots=True)
class Claim:
    """The most bytes that a run can hold at once, in whatever order its tasks run.

    `kept` is what outlives its turn (messages, residuals, results), as if all of it were alive at
    once.  The turns of a device's lane follow one another.
    """

    kept: int
    turn: int  # what a running turn needs in addition, at its worst moment
    arena: int  # planned memory of a turn, which the machine keeps
    tasks: int  # how many turns can run at once
    on: Mapping[str, int] = field(default_factory=dict)  # by name of device, beside the host

    def alone(self, workers: int) -> dict[str, int]:
        """Return the bytes by device if this is the only run."""
        on_host = self.kept + min(self.tasks, workers) * (self.turn + self.arena)
        return {**self.on, HOST: on_host + self.on.get(HOST, 0)}


def fitted(
    plan: Plan, binding: Binding, regular: bool, max_bytes: Limits, workers: int,
    claims: Callable[[Any, Binding, bool], Claim] | None = None,
    in_sequence: Callable[[Any], Plan] = Plan.in_sequence,
) -> tuple[Plan, Binding, Claim]:  # fmt: skip
    """Return a plan by which a run fits into `max_bytes`: its own, or that in sequential order.

    `claims` computes the claim of a run, default `claim_of`; `in_sequence` returns the plan that
    needs least memory.  Raises `MemoryLimitError` if not even that one fits.
    """
    claims = claims or claim_of
    claim = claims(plan, binding, regular)
    if over_limit(claim.alone(workers), max_bytes) is None:
        return plan, binding, claim
    sequence = in_sequence(plan)
    binding = sequence.bind(binding.symbols)
    claim = claims(sequence, binding, regular)
    needed = claim.alone(workers)
    device = over_limit(needed, max_bytes)
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
