"""`LiveBytes`: the memory that a machine and its callers hold now; computed only on request."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from actorgraph.machines.plan import Plan
from actorgraph.machines.run import Run
from actorgraph.memory.packing import assign
from actorgraph.scratch import scratch_bytes

if TYPE_CHECKING:
    from actorgraph.graph import Graph
    from actorgraph.machines.core import Core


@dataclass(frozen=True, slots=True)
class LiveBytes:
    """Bytes in use, by owner; no array is counted twice.

    Attributes
    ----------
    parameters : int
        Parameters and buffers of the graph, their gradient slots, and the second arrays that
        updates write into.
    arenas : int
        Memory that the machine keeps for later runs.
    results : int
        Results of ended runs that are still referenced, and arrays of 1 MB and more (and some
        smaller ones) that are referenced without their runs.
    feeds : int
        Feeds of runs that have not ended.
    scratch : int
        Temporary memory of ops and solvers, which the whole process shares.
    peak : LiveBytes or None
        The most of each owner, perhaps at different moments.  Results of 1 MB and more, and the
        feeds of runs that have such feeds or results, are tracked as they come and go: a result
        counts until its array is freed, feeds until their run ends.  For smaller ones it is the
        most that a call has found; so it is for parameters, arenas and scratch, which only grow.
        Arrays that a machine keeps for its next run still count, so with several modes the peak of
        results is an upper bound.
    """

    parameters: int
    arenas: int
    results: int
    feeds: int
    scratch: int
    peak: LiveBytes | None = None

    @property
    def total(self) -> int:
        """The sum over all owners."""
        return sum([getattr(self, name) for name in _OWNERS])


_OWNERS = [one.name for one in fields(LiveBytes) if one.name != "peak"]

_PEAKS: WeakKeyDictionary[Any, LiveBytes] = WeakKeyDictionary()
"""The most of each owner so far, for machines that were asked."""


def live_bytes(machine: Any, graph: Graph, core: Core | None, plans: Sequence[Plan]) -> LiveBytes:
    """Return the bytes in use; takes as long as a garbage collection."""
    known: set[int] = set()
    gc.collect()
    holders = [node.held for node in (*graph.parameters, *graph.buffers)]
    parameters = _new([array for held in holders for array in held.arrays()], known)
    arenas = sum([_direct(plan) for plan in plans])
    feeds = results = 0
    if core is not None:
        runs = [one for one in gc.get_objects() if type(one) is Run and one.core is core]
        feeds = _new([leaf for run in runs for leaf in run.leaves], known)
        idle, lent = core.networks.arenas.kept()
        arenas += _new(idle, known)
        duals = [dual for run in runs for dual in run.duals.values()]
        parts = [part for one in duals for part in (one.value, one.grad, one.tangent)]
        results = _new([*parts, *core.tally.arrays(), *lent], known)
        del runs, duals, parts
        tasks = [task for network in core.networks.values() for task in network.tasks]
        programs = dict.fromkeys([task.program for task in tasks])  # networks may share them
        arenas += sum([one.walked_bytes for one in programs if one is not None])
    live = LiveBytes(parameters, arenas, results, feeds, scratch_bytes())
    peak = _most(live, _PEAKS.get(machine, live))
    if core is not None:
        peak = _most(peak, replace(live, results=core.tally.most, feeds=core.tally.fed))
    _PEAKS[machine] = peak
    return replace(live, peak=peak)


def _most(one: LiveBytes, other: LiveBytes) -> LiveBytes:
    return LiveBytes(**{name: max(getattr(one, name), getattr(other, name)) for name in _OWNERS})


def _new(arrays: Iterable[Any], known: set[int]) -> int:
    """Return the bytes of the arrays whose memory is not in `known`, and add it there."""
    total = 0
    for array in arrays:
        if isinstance(array, np.ndarray):
            owner = array
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            total += 0 if id(owner) in known else owner.nbytes
            known.add(id(owner))
    return total


def _direct(plan: Plan) -> int:
    """Return the memory of the programs of direct runs."""
    inline = plan.inline
    total: int = sum([one.kept_bytes for one in plan.compiled.loops])
    results = list(plan.compiled.result_of)
    for binding in plan.bindings():
        count = len(binding.direct.get(inline.first + True, ()))
        if count:
            laid = assign(inline.steps, results, inline.buffered, binding.symbols)
            total += count * laid.total_bytes
    return total + (0 if inline.program is None else inline.program.walked_bytes)
