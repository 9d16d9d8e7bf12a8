"""`Inline`: a mode as one function, for direct runs: no actors, no messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from actorgraph.graph import Node
from actorgraph.lower.collector import paused
from actorgraph.lower.program import CALLS_TILL_ROWS, Program, lower_directly
from actorgraph.machines.compiled import Binding, Compiled, Direct
from actorgraph.machines.process import THIS
from actorgraph.memory.arenas import in_parts
from actorgraph.memory.buffers import Buffers, bulky, regular, writable
from actorgraph.warned import UnderWay

MEMORIES_KEPT = 4
"""Bindings whose large buffers are kept, such as those of full batches and of the last one."""

_SMALL_BYTES = 256 * 1024
"""Buffers up to this size are always kept: batches of requests have many sizes."""

_NEVER = 1 << 62


class Inline:
    """A mode as a function of the values of its leaves, made when it is first needed.

    With `keeps_derivatives` derivatives outlive the call; else they are read before the function is
    given back.  `program` is None before the first direct run.  The `buffered` steps write into
    memory that the function keeps.

    Functions begin without tables: these took a tenth of a first run, and most graphs run too
    seldom to get that back.  After `plain_turns` turns of a binding the `Inline` of `with_tables`
    replaces this one, `replaces`.  `first` is the key of its functions without buffers in
    `Binding.direct`, ``first + 1`` of those with them, so functions of the two do not mix.
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        keeps_derivatives: bool = True,
        replaces: Inline | None = None,
    ) -> None:
        self.program: Program | None = None
        self.steps: Sequence[Node] = ()
        self.buffered: frozenset[int] = frozenset()
        self.first = 0 if replaces is None else 2
        self.plain_turns = _NEVER
        self._compiled = compiled
        self._keeps_derivatives, self._plain = keeps_derivatives, replaces is None
        self._ordered: Collection[int] = ()
        self._with_memory: list[Binding] = []
        if replaces is not None:
            self.steps, self._ordered = replaces.steps, replaces._ordered
            self.buffered = replaces.buffered

    @property
    def under_way(self) -> UnderWay:
        """The code that runs while the function is called."""
        return UnderWay(self.program, joint=self._compiled.joint)

    def take(self, binding: Binding, in_buffers: bool) -> Direct:
        """Return a function that computes the results from the values of the leaves.

        The caller owns it until `give`.  With `in_buffers` leaves have to be C-contiguous.
        """
        try:
            return binding.direct[self.first + in_buffers].pop()
        except LookupError:
            return self.make(binding, in_buffers)

    def give(self, binding: Binding, in_buffers: bool, function: Direct) -> bool:
        """Take back a function whose results have been read.

        Return whether it is time for `with_tables`.
        """
        binding.direct.setdefault(self.first + in_buffers, []).append(function)
        return binding.direct_turns >= self.plain_turns

    def with_tables(self) -> Inline:
        """Return an `Inline` whose functions have tables from the beginning."""
        return Inline(self._compiled, keeps_derivatives=self._keeps_derivatives, replaces=self)

    def give_up_memory(self) -> None:
        """Drop the functions that are not in use, and their buffers."""
        for binding in list(self._with_memory):
            binding.direct = {}

    def make(self, binding: Binding, in_buffers: bool) -> Direct:
        """Return a new function."""
        with paused():
            return self._make(binding, in_buffers)

    def _make(self, binding: Binding, in_buffers: bool) -> Direct:
        with THIS.making:
            self.program = self.program or self._lower(binding.symbols)
        program, steps = self.program, self.steps
        compiled, symbols = self._compiled, binding.symbols
        kernels = [compiled.kernel(node, symbols) for node in steps]
        called, fixed = program.callables(
            kernels, compiled.to_device(None), symbols, binding.direct_turns
        )
        buffers: list[Any] = [None] * len(self.buffered)
        if in_buffers:
            laid = self._laid(tuple(symbols.items()))
            if laid.total_bytes > _SMALL_BYTES:
                self._keep_memory(binding)
            buffers = laid.arrays(steps, symbols)
        made: Direct = program.make(*called, *fixed, *in_parts(buffers, program.arrays))
        return made

    def _keep_memory(self, binding: Binding) -> None:
        """Keep the functions of a binding with large buffers; drop those of the oldest."""
        with THIS.making:
            if all(other is not binding for other in self._with_memory):
                self._with_memory.append(binding)
                for other in self._with_memory[:-MEMORIES_KEPT]:
                    other.direct = {}
                del self._with_memory[:-MEMORIES_KEPT]

    def _laid(self, symbols: tuple[tuple[str, int], ...]) -> Buffers:
        """Return where the steps of a function with buffers write."""
        from actorgraph.memory.packing import assign

        results, program = list(self._compiled.result_of), self.program
        together = () if program is None else program.stretches
        return assign(
            self.steps, results, self.buffered, dict(symbols), together=together, lends=True
        )

    def _lower(self, symbols: Mapping[str, int]) -> Program:
        """Return the program; the caller sets it last, as other threads read it without a lock."""
        compiled = self._compiled
        if not self.steps:
            self._choose(symbols)
        steps, results = self.steps, list(compiled.result_of)
        leaves, tabling = [leaf.node for leaf in compiled.joint.leaves], None
        if self._plain and compiled.may_begin_plain:
            self.plain_turns = CALLS_TILL_ROWS
        else:
            tabling = compiled.tabling(symbols, self._ordered)
        if tabling is not None:
            tabling = tabling._replace(planned=self._laid)
        large = bulky(steps, symbols)
        return lower_directly(steps, leaves, results, self.buffered, tabling=tabling, bulky=large)

    def _choose(self, symbols: Mapping[str, int]) -> None:
        """Set the steps, and which of them write into buffers."""
        from actorgraph.lower.simplify import combined_steps

        compiled, joint = self._compiled, self._compiled.joint
        [self.steps] = compiled.lowered([combined_steps(joint, compiled.late)], symbols)
        self._ordered = regular(self.steps)
        values = set(joint.values.values())
        outliving = [
            node for node in compiled.result_of if self._keeps_derivatives or node in values
        ]
        self.buffered = writable(self.steps, outliving, self._ordered)
