"""`Batch`: one run that is several, admitted together: slices of a batch, microbatches.

Parts read the parameters at the same moment, enter their networks one after the other without
another run between them, and live and die together: what ends one of them early ends all.  When
the last has ended, their results and what they assign to buffers are joined, whatever order they
came in; buffers get all of it or nothing.

Instruments are told of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from actorgraph.dual import Dual
from actorgraph.graph import Node
from actorgraph.machines.run import Run
from actorgraph.node import Buffer

__all__ = ["Batch", "Join", "grouped"]

Assigned: TypeAlias = list[tuple[Buffer, Any]]
Join: TypeAlias = Callable[[Sequence[Run]], tuple[dict[Node, Dual], Assigned]]
"""Makes the results of a group, and what it assigns, of those of its parts: all have succeeded."""


class Batch(NamedTuple):
    """What a run consists of.

    Attributes
    ----------
    parts : sequence of Run
        In the order in which they are injected.
    join : callable
        Given the parts, returns results by node and what is assigned to buffers, in this order.
        Called by the thread that ends the last part.
    """

    parts: Sequence[Run]
    join: Join


def grouped(number: int, parts: Sequence[Run], join: Join) -> Run:
    """Return a run made of parts; start it like any run (`Core.start`, `Core.run_directly`).

    Parameters
    ----------
    number : int
        Counts the runs of the user; its parts have numbers of their own, unique in the core.
    parts : sequence of Run
        Not started, of one graph, core and priority, at least one.
    join : callable
        As in `Batch`.
    """
    first = parts[0]
    whole = Run(first.core, first.plan, first.binding, number, first.priority)
    whole.host = first.host
    whole.leaves = [leaf for part in parts for leaf in part.leaves]
    whole.tokens = [True] + [False] * (len(parts) - 1)
    whole.predicted_us = sum([part.predicted_us for part in parts])
    whole.batch = Batch(tuple(parts), join)
    for place, part in enumerate(parts):
        part.group, part.microbatch = whole, place
    return whole
