"""Programs inside a step: the compiled bodies of branches and loops.

Kernels of ops whose attributes hold graphs (`control`) call them: `Inner` a body, `InnerLoop` a
whole loop.  A loop has two forms with the same bits (unless `quick`): a Python program with the
body's steps inline, and a table that machine code walks (`loop_table`).  It starts with the first
and goes over to the second once that is ready.  An error in either is raised by the Python form, as
`InBody` with the iteration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from types import TracebackType
from typing import Any

import numpy as np

from actorgraph.errors import counted
from actorgraph.graph import Node, topological_order
from actorgraph.lower.asking import TRIES, Asking, given_up
from actorgraph.lower.kernels import is_silent, kernel
from actorgraph.lower.program import Program, lower_directly, lower_loop
from actorgraph.lower.slices import with_slices_written_once
from actorgraph.lower.spots import Unfit
from actorgraph.lower.text import Dead
from actorgraph.memory.buffers import Unallocated, is_fresh, regular, writable
from actorgraph.memory.packing import assign
from actorgraph.op import CONSTANT
from actorgraph.warned import UnderWay, asked, runs_steps

__all__ = ["Dead", "InBody", "Inner", "InnerLoop", "between", "frame_of"]


_CALLS = 3
"""Calls of a loop before its rows are written."""

_ENDLESS = 1 << 60


class InBody(Exception):
    """An op has failed in a body, at a position (None in a branch); the cause is chained.

    The traceback of `cause` goes through the function of `program`.
    """

    def __init__(self, program: Program, iteration: int | None, cause: Exception) -> None:
        super().__init__()
        self.program = program
        self.iteration = iteration
        self.cause = cause


class _Body:
    __slots__ = ("program",)
    program: Program

    @property
    def under_way(self) -> UnderWay:
        """For warnings and errors: the program that runs during a call."""
        return UnderWay(self.program)


class Inner(_Body):
    """A compiled body: the steps between nodes of one graph, for one binding.

    ``call(run, (), *values)`` returns a list of the results; `nodes` are inputs, steps and results.
    """

    __slots__ = ("call", "nodes")

    def __init__(
        self, inputs: Sequence[Node], results: Sequence[Node], symbols: Mapping[str, int],
        watch: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        computed, constants = _steps(inputs, results)
        self.nodes = inputs, computed, results
        fixed = [node.attrs["value"] for node in constants]
        self.program = lower_directly(computed, [*inputs, *constants], results, bound=())
        kernels = [kernel(node, np, symbols, watch=watch) for node in computed]
        values = _constants(self.program)
        made: Callable[..., list[Any]] = self.program.make(*kernels, *values)
        self.call = _with_constants(made, fixed) if fixed else made


def _steps(inputs: Sequence[Node], results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return the steps, and the constants that are results and so leaves of the program."""
    given = {node.id for node in inputs}
    steps = [node for node in between(inputs, results) if node.id not in given]
    constants = dict.fromkeys([node for node in results if node.op is CONSTANT])
    computed = [node for node in steps if node.op is not CONSTANT]
    (written,) = with_slices_written_once([computed], [node.id for node in results])
    return [*written], [*constants]


def _constants(program: Program) -> list[Any]:
    """Return the constants of a program; 0-d floats as scalars, which are faster with scalars."""
    values = [node.attrs["value"] for node in program.constants]
    return [one[()] if one.dtype.kind == "f" and not one.ndim else one for one in values]


class InnerLoop(_Body):
    """A compiled loop.

    - `inputs`: those of the body by group: position, captures, carries, elements
    - `results`: the carries after an iteration, then the stacked values
    - `saved`: numbers of the carries that are saved as they enter an iteration
    - `test`: whether there is another iteration, of captures of its own and the carries
    - `stored`: whether saved and stacked values are written into arrays, not passed to functions
    """

    def __init__(
        self, inputs: Sequence[Sequence[Node]], results: Sequence[Node], saved: Sequence[int],
        test: Inner | None, symbols: Mapping[str, int], watch: tuple[str, ...] = (),
        stored: bool = False,
    ) -> None:  # fmt: skip
        position, captured, carries, elements = inputs
        computed, constants = _steps([*position, *captured, *carries, *elements], results)
        self._fixed = [node.attrs["value"] for node in constants]
        leaves = [*position, *captured, *constants, *carries, *elements]
        planned = _planned(computed, leaves, results, len(carries), stored)
        self._memory = _BodyMemory(computed, results, planned, symbols)
        self.program = lower_loop(
            computed, leaves, results, carries=len(carries), elements=len(elements), saved=saved,
            tested=None if test is None else len(test.nodes[0]) - len(carries), buffered=planned,
            stored=stored,
        )  # fmt: skip
        self._kernels = [kernel(node, np, symbols, watch=watch) for node in computed]
        values = _constants(self.program)
        self._call = self.program.make(Dead, np.int64, *self._kernels, *values)
        self._test = test
        self._stored = stored
        # The arguments of a `LoopTable`.
        self._given = inputs, computed, results, saved, test, symbols
        self._table: Asking | None = None
        self._why, self._calls = "", 0  # why there is no table; the calls before it is written
        self._wait, self._quick, self._threads = False, False, 1

    def allow_tables(self, wait: bool, quick: bool, threads: int = 1) -> None:
        """Allow a table for this loop, or else for loops in its body.

        It is written after some calls, or with `wait` at the first.  With `quick` last bits may
        change.  At most `threads` may walk it at the same time.
        """
        self._wait, self._quick, self._threads = wait, quick, threads
        self._table = Asking(self._write, _CALLS, wait)
        self._calls = self._table.calls

    @property
    def story(self) -> str:
        """Who computes the iterations, for users; empty without a call, or an allowed table."""
        made, table = self._made, self._table
        if made is not None:
            found: str = made.story
            return found
        if table is None or self._why or table.calls == self._calls:
            return self._why
        if not table.tries:
            return "computed by Python: arrays were never as the table was written for"
        if table.calls >= 0:
            left = counted(table.calls + 1, "more call")
            return f"computed by Python; a table is written after {left}"
        return "computed by Python, until its table is written"

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept between calls."""
        inner = [getattr(one, "kept_bytes", 0) for one in (self._made, *self._kernels)]
        return self._memory.kept_bytes + sum(inner)

    @property
    def _made(self) -> Any:
        return None if self._table is None else self._table.made

    def _write(self) -> Any:
        from actorgraph.lower.loop_table import LoopTable

        inputs, computed, results, saved, test, symbols = self._given
        tested = None if test is None else (*test.nodes[:2], test.nodes[2][0])
        # Stacked values of unknown size or number have no arrays that rows could write.
        if self._stored or not (saved or len(results) > len(inputs[2])):
            try:
                return LoopTable(
                    inputs, computed, results, saved, tested, symbols, self._quick, self._wait,
                    self._threads,
                )  # fmt: skip
            except Unfit as unfit:
                self._why = f"no table: {str(unfit) or 'a step has no row'}"
            except Exception as error:  # noqa: BLE001 - the Python form stays
                self._why = f"no table: {given_up(error)}"
        else:
            self._why = "no table: the sizes of what it stacks are known only afterwards"
        for one in self._kernels:
            if hasattr(one, "allow_tables"):
                one.allow_tables(self._wait, self._quick)
        return None

    @runs_steps("self")
    def __call__(
        self, run: Any, positions: Iterable[int], limit: int | None, tested: Sequence[Any],
        captured: Sequence[Any], carries: Sequence[Any], arrays: Sequence[Any], keep: Sequence[Any],
        stack: Sequence[Any],
    ) -> tuple[list[Any], int]:  # fmt: skip
        """Return the last carries and the number of iterations; see `lower_loop`."""
        test = None if self._test is None else self._test.call
        operands = captured, carries, arrays
        table = self._table
        if table is not None and table.calls >= 0:
            table.count()
        if table is not None and table.made is not None:
            result = self._walked(table, run, positions, limit, tested, operands, [*keep, *stack])
            if result is not None:
                return result
        buffers = self._memory.take(operands)
        try:
            done: tuple[list[Any], int] = self._call(
                run, positions, test, limit, tested, [*captured, *self._fixed], carries, arrays,
                keep, stack, buffers,
            )  # fmt: skip
        except Dead:
            raise
        except Exception as error:
            raise self._stopped(error) from error
        self._memory.give(buffers)
        return done

    def _walked(
        self, table: Asking, run: Any, positions: Any, limit: int | None, tested: Sequence[Any],
        operands: tuple[Sequence[Any], ...], stacks: Sequence[Any],
    ) -> tuple[list[Any], int] | None:  # fmt: skip
        """Return the result of the table, or None where the Python form must compute it."""
        walk, (captured, carries, arrays) = table.made, operands
        if self._test is not None:
            positions = range(_ENDLESS if limit is None else limit)
        if not walk.fits(positions) or (self._quick and not is_silent(asked())):
            return None
        try:
            if self._test is not None and not self._test.call(run, (), *tested, *carries)[0]:
                return None
            result: tuple[list[Any], int] = walk(
                run, positions, [*captured, *tested], carries, arrays, stacks
            )
        except Dead:
            raise
        except Exception:  # noqa: BLE001 - the Python form decides whether it is an error
            table.decline()
            return None
        table.tries = TRIES
        return result

    def _stopped(self, error: Exception) -> InBody:
        trace = frame_of(self.program, error.__traceback__)
        assert trace is not None
        within = None if self._test is None else frame_of(self._test.program, trace.tb_next)
        program = self.program if within is None or self._test is None else self._test.program
        return InBody(program, trace.tb_frame.f_locals.get("position", 0), error)


def _planned(
    steps: Sequence[Node], leaves: Sequence[Node], results: Sequence[Node], carries: int,
    stored: bool,
) -> frozenset[int]:  # fmt: skip
    """Return the ids of the steps that write into the same array in all iterations."""
    ordered, leaf_ids = regular(steps), {leaf.id for leaf in leaves}
    for node in results[:carries]:
        # New carries must be as contiguous as the initial ones, since operand layouts decide bits.
        if node.dims and node.id not in leaf_ids and (node.id not in ordered or not is_fresh(node)):
            return frozenset()
    return writable(steps, results[:carries] if stored else results, ordered)


_KEPT_BYTES = 1 << 20
"""Most bytes that a loop keeps between calls: allocating more is cheap compared with its use."""


class _BodyMemory:
    """Buffers of a loop's steps; a call takes one set and returns it for the next call."""

    def __init__(
        self, steps: Sequence[Node], results: Sequence[Node], planned: Collection[int],
        symbols: Mapping[str, int],
    ) -> None:  # fmt: skip
        self._steps, self._symbols = steps, symbols
        self._laid = assign(steps, results, planned, symbols)
        self._none: list[Any] = [None] * len(planned)
        self._idle: deque[list[Any]] = deque()

    @property
    def kept_bytes(self) -> int:
        """The bytes of idle buffers."""
        return len(self._idle) * self._laid.total_bytes

    def take(self, given: Iterable[Sequence[Any]]) -> list[Any]:
        """Return an array for each planned step; None each if an operand is not C-contiguous."""
        if not self._none:
            return self._none
        for value in chain.from_iterable(given):
            if type(value) is np.ndarray and not value.flags.c_contiguous:
                return self._none
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return self._laid.arrays(self._steps, self._symbols)
        except Unallocated:  # each step allocates by itself, and an error names the step
            return self._none

    def give(self, buffers: list[Any]) -> None:
        """Keep arrays for the next call."""
        if buffers is not self._none and self._laid.total_bytes <= _KEPT_BYTES:
            self._idle.append(buffers)


def frame_of(program: Program, trace: TracebackType | None) -> TracebackType | None:
    """Return the entry of a traceback that is in the code of a program, None if there is none."""
    while trace is not None and program.code.place(trace.tb_frame, trace.tb_lineno) is None:
        trace = trace.tb_next
    return trace


def _with_constants(
    call: Callable[..., list[Any]], fixed: Sequence[Any]
) -> Callable[..., list[Any]]:
    def completed(*values: Any) -> list[Any]:
        return call(*values, *fixed)

    return completed


def between(inputs: Sequence[Node], results: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes that `results` depend on, up to and including `inputs`, in build order."""
    known = {node.id for node in inputs}

    def inputs_of(node: Node) -> Sequence[Node]:
        return () if node.id in known else node.inputs

    return topological_order(results, inputs_of)
