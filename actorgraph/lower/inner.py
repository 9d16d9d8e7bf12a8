"""Programs inside of a step: what an op whose attributes hold graphs calls, once an iteration."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import chain
from types import TracebackType
from typing import Any

import numpy as np

from actorgraph.graph import Node, topological_order
from actorgraph.lower.asking import TRIES, Asking
from actorgraph.lower.kernels import is_silent, kernel
from actorgraph.lower.program import Program, lower_directly, lower_loop
from actorgraph.lower.slices import with_slices_written_once
from actorgraph.lower.text import Dead
from actorgraph.memory.buffers import Unallocated, is_fresh, regular, writable
from actorgraph.memory.packing import assign
from actorgraph.op import CONSTANT
from actorgraph.warned import UnderWay, asked, runs_steps

__all__ = ["ALONE", "Dead", "InBody", "Inner", "InnerLoop", "between", "frame_of"]


_CALLS = 3
"""Calls before rows are written."""

_ENDLESS = 1 << 60


class InBody(Exception):
    """An op has failed in a body, at a position (None in a branch); the cause is chained.

    Frames of the function of `program` are in the traceback of `cause`.
    """

    def __init__(self, program: Program, iteration: int | None, cause: Exception) -> None:
        super().__init__()
        self.program = program
        self.iteration = iteration
        self.cause = cause


class _Alone:
    """Stands for the run where a thread computes one by itself, which nobody can cancel."""

    dead = None

    @property
    def context(self) -> Context:
        return copy_context()


ALONE = _Alone()
"""The run of a direct call."""


class _Body:
    __slots__ = ("program",)
    program: Program

    @property
    def under_way(self) -> UnderWay:
        """What runs while it is called."""
        return UnderWay(self.program)


class Inner(_Body):
    """A compiled body: what is between any nodes of one graph, for what the run binds the dims to.

    ``call(run, (), *values)`` returns a list of the results; `nodes` are inputs, steps and results.
    """

    __slots__ = ("call", "nodes")

    def __init__(
        self,
        inputs: Sequence[Node],
        results: Sequence[Node],
        symbols: Mapping[str, int],
        watch: tuple[str, ...] = (),
    ) -> None:
        computed, constants = _steps(inputs, results)
        self.nodes = inputs, computed, results
        fixed = [node.attrs["value"] for node in constants]
        self.program = lower_directly(computed, [*inputs, *constants], results, bound=())
        kernels = [kernel(node, np, symbols, watch=watch) for node in computed]
        values = _constants(self.program)
        made: Callable[..., list[Any]] = self.program.make(*kernels, *values)
        self.call = _with(made, fixed) if fixed else made


def _steps(inputs: Sequence[Node], results: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return what is computed, and the constants that are results: leaves of the program."""
    given = {node.id for node in inputs}
    steps = [node for node in between(inputs, results) if node.id not in given]
    constants = dict.fromkeys([node for node in results if node.op is CONSTANT])
    computed = [node for node in steps if node.op is not CONSTANT]
    (written,) = with_slices_written_once([computed], [node.id for node in results])
    return [*written], [*constants]


def _constants(program: Program) -> list[Any]:
    """Return the constants of a program, floats as scalars, with which scalars are quick."""
    values = [node.attrs["value"] for node in program.constants]
    return [one[()] if one.dtype.kind == "f" and not one.ndim else one for one in values]


class InnerLoop(_Body):
    """A compiled loop.

    `inputs` are those of the body by group: position, captures, carries, elements.  `results` are
    the carries after an iteration and what is stacked, `saved` the carries that are kept as they
    enter; both are written into arrays where they are `stored`, else handed on.  The test takes
    captures of its own and the carries.
    """

    def __init__(
        self,
        inputs: Sequence[Sequence[Node]],
        results: Sequence[Node],
        saved: Sequence[int],
        test: Inner | None,
        symbols: Mapping[str, int],
        watch: tuple[str, ...] = (),
        stored: bool = False,
    ) -> None:
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
        # What a table is made of.
        self._given = inputs, computed, results, saved, test, symbols
        self._table: Asking | None = None
        self._wait, self._quick, self._threads = False, False, 1

    def allow_tables(self, wait: bool, quick: bool, threads: int = 1) -> None:
        """Let iterations be walked as tables, after some calls or at once; or those in the body.

        With `quick` last bits may change.  So many threads may walk one beside each other.
        """
        self._wait, self._quick, self._threads = wait, quick, threads
        self._table = Asking(self._write, _CALLS, wait)

    @property
    def kept_bytes(self) -> int:
        """The memory that stays there between calls."""
        inner = [getattr(one, "kept_bytes", 0) for one in (self._made, *self._kernels)]
        return self._memory.kept_bytes + sum(inner)

    @property
    def _made(self) -> Any:
        return None if self._table is None else self._table.made

    def _write(self) -> Any:
        from actorgraph.lower.loop_table import LoopTable

        inputs, computed, results, saved, test, symbols = self._given
        tested = None if test is None else (*test.nodes[:2], test.nodes[2][0])
        # Else nobody knows how much there will be.
        if self._stored or not (saved or len(results) > len(inputs[2])):
            with suppress(Exception):  # the loop in Python goes on
                return LoopTable(
                    inputs, computed, results, saved, tested, symbols, self._quick, self._wait,
                    self._threads,
                )  # fmt: skip
        for one in self._kernels:
            if hasattr(one, "allow_tables"):
                one.allow_tables(self._wait, self._quick)
        return None

    @runs_steps("self")
    def __call__(
        self,
        run: Any,
        positions: Iterable[int],
        limit: int | None,
        tested: Sequence[Any],
        captured: Sequence[Any],
        carries: Sequence[Any],
        arrays: Sequence[Any],
        keep: Sequence[Any],
        stack: Sequence[Any],
    ) -> tuple[list[Any], int]:
        """Return the last carries and the number of iterations; see `lower_loop`."""
        test = None if self._test is None else self._test.call
        given = captured, carries, arrays
        table = self._table
        if table is not None and table.calls >= 0:
            table.count()
        if table is not None and table.made is not None:
            found = self._walked(table, run, positions, limit, tested, given, [*keep, *stack])
            if found is not None:
                return found
        buffers = self._memory.take(given)
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
        self,
        table: Asking,
        run: Any,
        positions: Any,
        limit: int | None,
        tested: Sequence[Any],
        given: tuple[Sequence[Any], ...],
        stacks: Sequence[Any],
    ) -> tuple[list[Any], int] | None:
        """Return what the loop in Python would, or None where that has to do it."""
        made, (captured, carries, arrays) = table.made, given
        if self._test is not None:
            positions = range(_ENDLESS if limit is None else limit)
        if not made.fits(positions) or (self._quick and not is_silent(asked())):
            return None
        try:
            if self._test is not None and not self._test.call(run, (), *tested, *carries)[0]:
                return None
            found: tuple[list[Any], int] = made(
                run, positions, [*captured, *tested], carries, arrays, stacks
            )
        except Dead:
            raise
        except Exception:  # noqa: BLE001 - the loop in Python raises it, or does not
            table.decline()
            return None
        table.tries = TRIES
        return found

    def _stopped(self, error: Exception) -> InBody:
        trace = frame_of(self.program, error.__traceback__)
        assert trace is not None
        within = None if self._test is None else frame_of(self._test.program, trace.tb_next)
        program = self.program if within is None or self._test is None else self._test.program
        return InBody(program, trace.tb_frame.f_locals.get("position", 0), error)


def _planned(
    steps: Sequence[Node],
    leaves: Sequence[Node],
    results: Sequence[Node],
    carries: int,
    stored: bool,
) -> frozenset[int]:
    """Return the ids of the steps that write into one array in all iterations."""
    found, given = regular(steps), {leaf.id for leaf in leaves}
    for node in results[:carries]:
        # The next iteration is given what this one has made, as contiguous as what came first.
        if node.dims and node.id not in given and (node.id not in found or not is_fresh(node)):
            return frozenset()
    return writable(steps, results[:carries] if stored else results, found)


_KEPT_BYTES = 1 << 20
"""Memory of a loop that stays there between calls; to get more takes no time beside its use."""


class _BodyMemory:
    """Where the steps of a loop write: memory that a call takes, and leaves to the next one."""

    def __init__(
        self,
        steps: Sequence[Node],
        results: Sequence[Node],
        planned: Collection[int],
        symbols: Mapping[str, int],
    ) -> None:
        self._steps, self._symbols = steps, symbols
        self._laid = assign(steps, results, planned, symbols)
        self._none: list[Any] = [None] * len(planned)
        self._idle: deque[list[Any]] = deque()

    @property
    def kept_bytes(self) -> int:
        """The memory that waits for a call."""
        return len(self._idle) * self._laid.total_bytes

    def take(self, given: Iterable[Sequence[Any]]) -> list[Any]:
        """Return an array for each step that is planned, None where operands are out of order."""
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
        except Unallocated:  # so each step asks by itself, and the one that gets none is named
            return self._none

    def give(self, buffers: list[Any]) -> None:
        """Take arrays back for the next call."""
        if buffers is not self._none and self._laid.total_bytes <= _KEPT_BYTES:
            self._idle.append(buffers)


def frame_of(program: Program, trace: TracebackType | None) -> TracebackType | None:
    """Return where a traceback goes through the text of a program."""
    while trace is not None and trace.tb_frame.f_code.co_filename != program.filename:
        trace = trace.tb_next
    return trace


def _with(call: Callable[..., list[Any]], fixed: Sequence[Any]) -> Callable[..., list[Any]]:
    def completed(*values: Any) -> list[Any]:
        return call(*values, *fixed)

    return completed


def between(inputs: Sequence[Node], results: Sequence[Node]) -> tuple[Node, ...]:
    """Return what `results` depend on without seeing beyond `inputs`, in build order."""
    known = {node.id for node in inputs}

    def inputs_of(node: Node) -> Sequence[Node]:
        return () if node.id in known else node.inputs

    return topological_order(results, inputs_of)
