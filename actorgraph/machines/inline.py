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

__all__ = ["Inline", "MEMORIES_KEPT"]

MEMORIES_KEPT = 4
"""Of so many bindings the buffers are kept: a batch, the rest of the batches, and their kind."""


class Inline:
    """A mode as a function of the values of its leaves, made where it is needed first.

    Parameters
    ----------
    compiled : Compiled
    keeps_derivatives : bool
        Whether derivatives are handed out; else they are read before the function is given back.

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
        self._keeps_derivatives = keeps_derivatives
        self._with_memory: list[Binding] = []

    def take(self, binding: Binding, in_buffers: bool) -> Direct:
        """Return a function that computes the results from the values of the leaves.

        It is the caller's until `give`.  With buffers it wants leaves that are C-contiguous.
        """
        try:
            return binding.direct[in_buffers].pop()
        except LookupError:
            return self._make(binding, in_buffers)

    def give(self, binding: Binding, in_buffers: bool, function: Direct) -> None:
        """Take back a function, whose results nobody reads out of any more."""
        binding.direct.setdefault(in_buffers, []).append(function)

    def give_up_memory(self) -> None:
        """Let go of the functions that nobody runs, and their buffers."""
        for binding in list(self._with_memory):
            binding.direct = {}

    def _make(self, binding: Binding, in_buffers: bool) -> Direct:
        compiled, symbols = self._compiled, binding.symbols
        results = list(compiled.result_of)
        with THIS.making:
            program = self.program or self._lower(symbols, results)
        steps = self.steps
        kernels = [compiled.kernel(node, symbols) for node in steps]
        fixed = [compiled.device.to_device(node.attrs["value"]) for node in program.constants]
        with THIS.making:
            if all(other is not binding for other in self._with_memory):
                self._with_memory.append(binding)
                for other in self._with_memory[:-MEMORIES_KEPT]:
                    other.direct = {}
                del self._with_memory[:-MEMORIES_KEPT]
        buffers: list[Any] = [None] * len(self.buffered)
        if in_buffers:
            from actorgraph.memory.packing import assign

            buffers = assign(steps, results, self.buffered, symbols).arrays(steps, symbols)
        made: Direct = program.make(*kernels, *fixed, *buffers)
        return made

    def _lower(self, symbols: Mapping[str, int], results: Sequence[Node]) -> Program:
        """Return the program, which is told last: others look for it unlocked."""
        from actorgraph.lower.simplify import combined_steps

        compiled, joint = self._compiled, self._compiled.joint
        steps = combined_steps(joint, compiled.late)
        if compiled.jit:
            from actorgraph.jit import lowering as jit

            [steps] = jit.fused([steps], results, symbols)
        elif compiled.shares:
            from actorgraph.lower.sharing import shared

            steps = shared(steps, joint)
        self.steps = steps
        values = set(joint.values.values())
        kept = [node for node in results if self._keeps_derivatives or node in values]
        self.buffered = writable(steps, kept, regular(steps))
        leaves = [leaf.node for leaf in joint.leaves]
        self.program = lower_directly(steps, leaves, results, self.buffered)
        return self.program
