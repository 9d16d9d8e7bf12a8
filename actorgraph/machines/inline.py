"""`Inline`: a mode as one function, which the calling thread calls: no actors, no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actorgraph.graph import Node
from actorgraph.lower.program import Program, lower_directly
from actorgraph.machines.binding import Binding, Direct
from actorgraph.machines.compiled import Compiled
from actorgraph.machines.process import THIS
from actorgraph.memory.buffers import regular, writable
from actorgraph.warned import UnderWay

__all__ = ["Inline", "MEMORIES_KEPT"]

_TRIES = 8
"""Calls one after another that tables decline before the plain function has them all."""

MEMORIES_KEPT = 4
"""Of so many bindings the buffers are kept: a batch, the rest of the batches, and their kind."""

_SMALL_BYTES = 256 * 1024
"""Buffers up to this size are kept with their binding: batches of requests have many sizes."""


class Inline:
    """A mode as a function of the values of its leaves, made where it is needed first.

    Parameters
    ----------
    compiled : Compiled
    keeps_derivatives : bool
        Whether derivatives outlive the call; else they are read before the function is given back.

    Attributes
    ----------
    program : Program or None
        None until a run was computed so.
    steps : sequence of Node
    buffered : frozenset of int
        The steps that write into memory which the function keeps.
    """

    def __init__(self, compiled: Compiled, *, keeps_derivatives: bool = True) -> None:
        self.program: Program | None = None
        self.steps: Sequence[Node] = ()
        self.buffered: frozenset[int] = frozenset()
        self._compiled = compiled
        self._table: tuple[Program, Sequence[Node], frozenset[int]] | None = None
        self._keeps_derivatives = keeps_derivatives
        self._with_memory: list[Binding] = []

    @property
    def under_way(self) -> UnderWay:
        """What runs while the function is called."""
        return UnderWay(self.program, joint=self._compiled.joint)

    def take(self, binding: Binding, in_buffers: bool) -> Direct:
        """Return a function that computes the results from the values of the leaves.

        It is the caller's until `give`.  With buffers it wants leaves that are C-contiguous.
        """
        try:
            return binding.direct[in_buffers].pop()
        except LookupError:
            if in_buffers and self._tabled():
                return self._either(binding)
            return self._make(binding, in_buffers)

    def give(self, binding: Binding, in_buffers: bool, function: Direct) -> None:
        """Take back a function; nobody reads its results any more."""
        binding.direct.setdefault(in_buffers, []).append(function)

    def give_up_memory(self) -> None:
        """Let go of the functions that nobody runs, and their buffers."""
        for binding in list(self._with_memory):
            binding.direct = {}

    def _make(self, binding: Binding, in_buffers: bool) -> Direct:
        with THIS.making:
            self.program = self.program or self._lower(binding.symbols)
        return self._function(binding, self.program, self.steps, self.buffered, in_buffers)

    def _function(
        self,
        binding: Binding,
        program: Program,
        steps: Sequence[Node],
        buffered: frozenset[int],
        in_buffers: bool,
    ) -> Direct:
        compiled, symbols = self._compiled, binding.symbols
        kernels = [compiled.kernel(node, symbols) for node in steps]
        fixed = [compiled.device.to_device(node.attrs["value"]) for node in program.constants]
        buffers: list[Any] = [None] * len(buffered)
        if in_buffers:
            from actorgraph.memory.packing import assign

            laid = assign(steps, list(compiled.result_of), buffered, symbols)
            if laid.total_bytes > _SMALL_BYTES:
                self._keep_memory(binding)
            buffers = laid.arrays(steps, symbols)
        made: Direct = program.make(*kernels, *fixed, *buffers)
        return made

    def _keep_memory(self, binding: Binding) -> None:
        """Keep the functions of a binding, whose buffers are large, and few others such."""
        with THIS.making:
            if all(other is not binding for other in self._with_memory):
                self._with_memory.append(binding)
                for other in self._with_memory[:-MEMORIES_KEPT]:
                    other.direct = {}
                del self._with_memory[:-MEMORIES_KEPT]

    def _lower(self, symbols: Mapping[str, int]) -> Program:
        """Return the program, which is set last: other threads look for it without a lock."""
        from actorgraph.lower.simplify import combined_steps

        compiled, joint = self._compiled, self._compiled.joint
        results = list(compiled.result_of)
        steps = combined_steps(joint, compiled.late)
        if compiled.jit:
            from actorgraph.jit import lowering as jit

            [steps] = jit.fused([steps], results, symbols)
        elif compiled.shares:
            from actorgraph.lower.sharing import shared

            steps = shared(steps, joint)
        if compiled.has_waves:
            from actorgraph.control.waves import with_waves

            steps = with_waves(steps, joint)
        self.steps = steps
        self.buffered = self._writable(steps)
        return lower_directly(steps, self._leaves, results, self.buffered)

    @property
    def _leaves(self) -> list[Node]:
        return [leaf.node for leaf in self._compiled.joint.leaves]

    def _writable(self, steps: Sequence[Node]) -> frozenset[int]:
        values = set(self._compiled.joint.values.values())
        results = self._compiled.result_of
        kept = [node for node in results if self._keeps_derivatives or node in values]
        return writable(steps, kept, regular(steps))

    # -- tables ---------------------------------------------------------------------------------

    def _tabled(self) -> bool:
        """Return whether the steps are to be walked as tables; asks for what walks them."""
        return self._compiled.tables and self._compiled.asks_for_tables()

    def _either(self, binding: Binding) -> Direct:
        """Return a function that uses tables from when they can be, and where they decline not."""
        from actorgraph.devices import native

        runtime = native.RUNTIME
        plain: Direct | None = None
        tabled: Direct | None = None
        tried, tries = False, _TRIES

        def either(*values: Any) -> list[Any]:
            nonlocal plain, tabled, tried, tries
            if tabled is None and not tried and runtime.walk is not None:
                tried, tabled = True, self._make_tabled(binding)
            if tabled is not None:
                try:
                    found = tabled(*values)
                except Exception:  # noqa: BLE001 - the plain function raises it, or does not
                    tries -= 1
                    tabled = tabled if tries else None
                else:
                    tries = _TRIES
                    return found
            if plain is None:
                plain = self._make(binding, True)
            return plain(*values)

        return either

    def _make_tabled(self, binding: Binding) -> Direct | None:
        """Return a function whose steps are tables, None where none of them is."""
        from actorgraph.lower.table import Unfit, with_tables

        with THIS.making:
            if self._table is None:
                self.program = self.program or self._lower(binding.symbols)
                results = list(self._compiled.result_of)
                steps = with_tables(self.steps, {n.id for n in results}, binding.symbols)
                buffered = self._writable(steps)
                program = lower_directly(steps, self._leaves, results, buffered)
                self._table = program, steps, buffered
        program, steps, buffered = self._table
        if steps is self.steps:
            return None
        try:
            return self._function(binding, program, steps, buffered, True)
        except Unfit:  # for the sizes of this binding
            return None
