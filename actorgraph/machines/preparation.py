"""Making a run of what it is given, once that has been checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.devices import Handed
from actorgraph.graph import Node
from actorgraph.machines.admission import fitted
from actorgraph.machines.binding import Binding
from actorgraph.machines.feeds import bind_feeds, by_node, check_device, check_dims, check_like
from actorgraph.machines.plan import Plan
from actorgraph.machines.run import Run
from actorgraph.options import whole

if TYPE_CHECKING:
    from actorgraph.machines.base import Machine

__all__ = ["run_of"]


def run_of(
    machine: Machine,
    plan: Plan,
    feeds: Any,
    seeds: Mapping[Node, Any],
    priority: int,
    host: Callable[[Callable[[], object]], object] | None,
    *,
    number: int | None = None,
    drawn: int | None = None,
    trusted: bool = False,
) -> Run:
    """Return a run of a plan, not started; the machine starts its core if it has none.

    Parameters
    ----------
    feeds : dict
        By name or node.
    seeds : dict
        Seeds or tangents by node, and values of the whole batch; `trusted` ones are arrays that
        fit.
    number : int, optional
        Unique in the core; default the next.
    drawn : int, optional
        What random ops draw by; default `number`.

    Raises
    ------
    FeedError, GraphTypeError
        Something does not fit; nothing has started then.
    """
    arrays, binding, regular = plan.repeats.find(feeds) or _checked(machine, plan, feeds)
    core = machine._started()
    number = core.next_number() if number is None else number
    fed = iter(arrays)
    leaves: list[Any] = []
    for kind, source in plan.given:
        if kind == "feed":
            leaves.append(next(fed))
        elif kind == "run_number":
            leaves.append(np.array(number if drawn is None else drawn, np.int64))
        elif trusted or kind == "whole":
            leaves.append(seeds[source])
        else:
            leaves.append(check_like(seeds[source], source, binding.symbols, kind))
            regular = regular and leaves[-1].flags.c_contiguous
    claim = None
    if machine.max_bytes is not None:
        workers = core.scheduler.workers
        plan, binding, claim = fitted(plan, binding, regular, machine.max_bytes, workers)
    run = Run(core, plan, binding, number, whole("priority", priority))
    run.leaves, run.regular, run.claim = leaves, regular, claim
    if host is not None:
        run.host, run.awaited = host, True
    return run


def _checked(
    machine: Machine, plan: Plan, feeds: Any
) -> tuple[Sequence[np.ndarray[Any, Any]], Binding, bool]:
    """Return the arrays of a plan's inputs, their binding, and whether all are C-contiguous."""
    given = {} if feeds is None else by_node(feeds, machine._inputs, "feed")
    for node, value in given.items():
        if isinstance(value, Handed):
            check_device(value, node.name, machine.devices)
    symbols: dict[str, int] = {}
    arrays = bind_feeds(plan.inputs, given, symbols)
    if len(given) > len(arrays):
        # Feeds that this mode does not need are checked too, and may bind symbols.
        bind_feeds([node for node in given if node not in plan.needed], given, symbols)
    check_dims(plan.checked, symbols)
    binding = plan.bind(symbols)
    if len(given) == len(arrays):
        plan.repeats.keep(arrays, binding)
    return arrays, binding, all(array.flags.c_contiguous for array in arrays)
