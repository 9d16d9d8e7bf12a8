"""`Group`: one run that is several, admitted together: slices of a batch, microbatches.

Parts read the parameters at the same moment, enter their networks one after the other without
another run between them, and live and die together: what ends one of them early ends all.  When
the last has ended, their results and what they assign to buffers are joined, whatever order they
came in; buffers get all of it or nothing.

Instruments are told of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, final

from actorgraph.dual import Dual
from actorgraph.graph import Node
from actorgraph.machines.run import Run
from actorgraph.node import Buffer

__all__ = ["Group", "Join"]

Assigned: TypeAlias = list[tuple[Buffer, Any]]
Join: TypeAlias = Callable[[Sequence[Run]], tuple[dict[Node, Dual], Assigned]]
"""Makes the results of a group, and what it assigns, of those of its parts: all have succeeded."""


@final
class Group(Run):
    """A run made of parts; start it like any run (`Core.start`, `Core.run_directly`).

    Parameters
    ----------
    number : int
        Counts the runs of the user; its parts have numbers of their own, unique in the core.
    parts : sequence of Run
        Not started, of one graph, core and priority, at least one; in the order in which they are
        injected.
    join : callable
        Given the parts, returns results by node and what is assigned to buffers, in this order.
        Called by the thread that ends the last part.
    """

    __slots__ = ("_join", "_parts")
    told: ClassVar[bool] = False

    def __init__(self, number: int, parts: Sequence[Run], join: Join) -> None:
        first = parts[0]
        super().__init__(first.core, first.plan, first.binding, number, first.priority)
        self.host, self.awaited = first.host, first.awaited
        self.leaves = [leaf for part in parts for leaf in part.leaves]
        self.tokens = [True] + [False] * (len(parts) - 1)
        self._parts, self._join = tuple(parts), join
        for place, part in enumerate(parts):
            part.group, part.microbatch = self, place

    @property
    def parts(self) -> Sequence[Run]:
        """Its parts, in order."""
        return self._parts

    @property
    def predicted_us(self) -> float:
        """Microseconds that the steps of all parts are taken to need together."""
        return sum(part.predicted_us for part in self._parts)

    def _results(self) -> tuple[dict[Node, Dual], Assigned]:
        """Join the results of the parts."""
        return self._join(self._parts)

    def complete(self) -> None:
        """Let go of the parts, and wake who waits."""
        self._parts = ()
        super().complete()
