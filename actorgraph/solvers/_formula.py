"""`Formula`: a solver that is a few lines of arithmetic on the elements of a parameter.

The lines are written once (`Loop`): NumPy computes them here, in blocks that stay in the cache, and
a compiler makes loops of them where a machine compiles.  Both give the same bits.
"""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from actorgraph.solvers._base import Loop, LoopSolver

__all__ = ["Arrays", "Formula", "penalised", "stepped"]

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 14
"""Elements that are computed at once: a few arrays of them fit into the cache."""

_OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}


class Arrays:
    """Number of steps, and arrays by name as attributes.

    Attributes
    ----------
    step : int
    other : Arrays
        The state before, whose arrays the state after takes over.
    scratch : list of ndarray
        Room for what a line computes on the way, which both share.
    """

    step: int
    other: Arrays | None
    scratch: list[Array]

    def __init__(self, step: int, arrays: Mapping[str, Array]) -> None:
        self.__dict__.update(arrays, step=step, other=None, scratch=[])

    def after(self, names: Sequence[str]) -> Arrays:
        """Return the state after the next step, whose arrays are still to be written."""
        after = self.other
        if after is None:
            empty = {name: np.empty_like(self.__dict__[name]) for name in names}
            after = self.other = Arrays(0, empty)
            after.other, after.scratch = self, self.scratch
        after.step = self.step + 1
        return after


class _UfuncWriter:
    """Writes lines as calls of ufuncs that allocate nothing: ``multiply(g, rest1, s0)``.

    What is computed, in which order, is what Python makes of the lines; so are the bits.
    """

    def __init__(self, loop: Loop) -> None:
        self.calls: list[str] = []
        self.registers = 0
        self._numbers = set(loop.numbers)
        self._free: list[str] = []
        self._lent: set[str] = set()  # what operands are in that are used once
        self._grad: str | None = None  # where `g` is, if a line sets it
        self._values = {"p": "p", "g": "g", **{name: name for name in loop.arrays}}
        for line in loop.lines:
            self._line(line)

    def _line(self, line: str) -> None:
        (one,) = ast.parse(line).body
        assert isinstance(one, ast.Assign)
        assert isinstance(one.targets[0], ast.Name)
        name = one.targets[0].id
        if isinstance(one.value, ast.Name):  # of what no later line changes
            self._values[name] = self._values[one.value.id]
            return
        into = f"new_{name}"
        if name == "g":  # the given one is only read
            into = self._grad = self._grad or self._take()
        self._write(one.value, into)
        self._values[name] = into

    def _take(self) -> str:
        if self._free:
            return self._free.pop()
        self.registers += 1
        return f"s{self.registers - 1}"

    def _is_number(self, part: ast.expr) -> bool:
        names = [one.id for one in ast.walk(part) if isinstance(one, ast.Name)]
        return all(name in self._numbers for name in names)

    def _write(self, part: ast.expr, into: str | None) -> str:
        """Write calls that compute a part, and return where its value is."""
        if isinstance(part, ast.Name) and part.id in self._values:
            return self._values[part.id]
        if self._is_number(part):
            return ast.unparse(part)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            ufunc, operands = part.func.id, part.args
        else:
            assert isinstance(part, ast.BinOp)
            ufunc, operands = _OPERATORS[type(part.op)], [part.left, part.right]
        given = [self._write(one, None) for one in operands]
        self._free += [one for one in given if one in self._lent]
        self._lent.difference_update(given)
        if into is None:
            into = self._take()
            self._lent.add(into)
        # NumPy takes no other form of `maximum`; the operators' are faster without the word.
        word = "out=" if isinstance(part, ast.Call) else ""
        self.calls.append(f"{ufunc}({', '.join(given)}, {word}{into})")
        return into


@cache
def _compiled(loop: Loop, xp: Any = np) -> tuple[Callable[..., None], int]:
    """Return the lines as a function of arrays of `xp`, and how many of scratch it needs.

    It takes p, g and the arrays, what to write in the place of p and the arrays, the scratch, and
    the numbers.
    """
    writer = _UfuncWriter(loop)
    scratch = [f"s{number}" for number in range(writer.registers)]
    new = [f"new_{name}" for name in ("p", *loop.arrays)]
    names = ["p", "g", *loop.arrays, *new, *scratch, *loop.numbers]
    known: dict[str, Any] = {name: getattr(xp, name) for name in (*_OPERATORS.values(), *_CALLED)}
    text = f"def step({', '.join(names)}):\n" + "".join(f"    {one}\n" for one in writer.calls)
    exec(compile(text, "<solver>", "exec"), known)
    return known["step"], writer.registers


_CALLED = ("abs", "maximum", "sign", "sqrt")


def stepped(
    xp: Any, loop: Loop, numbers: Sequence[float], value: Any, grad: Any, arrays: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the parameter and the arrays of its state after a step, all of them new."""
    step, registers = _compiled(loop, xp)
    new = [xp.empty_like(value) for _ in range(1 + len(arrays))]
    parts = [*zip(*map(_parts, (value, grad, *arrays, *new)), strict=True)]
    scratch = [xp.empty(value.shape, parts[0][0].dtype) for _ in range(registers)]
    for part in parts:
        step(*part, *scratch, *numbers)
    return tuple(new)


class Formula(LoopSolver[Arrays]):
    """A solver whose step is `loop`, with numbers that depend on the number of the step."""

    starts: Mapping[str, float] = {}
    """What arrays of the state begin with, where it is not 0."""

    @abstractmethod
    def loop(self) -> Loop:
        """Return the step as lines; see `LoopSolver.loop`."""

    @abstractmethod
    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines for a step, counted from 1."""

    def init(self, value: Array) -> Arrays:
        """Return the arrays before the first step; see `AbstractSolver.init`."""
        made = {}
        for name in self.loop().arrays:
            made[name] = np.zeros_like(value)
            if name in self.starts:
                for part in _parts(made[name]):
                    part[...] = self.starts[name]
        return Arrays(0, made)

    def update(self, state: Arrays, grad: Array, current: Array, out: Array) -> Arrays:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        loop = self.loop()
        step, registers = _compiled(loop)
        after = state.after(loop.arrays)
        parts = _parts(out)
        numbers = self.numbers(after.step)
        before, then = state.__dict__, after.__dict__
        arrays = [current, grad, *[before[name] for name in loop.arrays], out]
        arrays += [then[name] for name in loop.arrays]
        scratch = state.scratch
        if len(scratch) < registers:
            shape = (_rows(out), *out.shape[1:]) if out.ndim else ()
            more = range(registers - len(scratch))
            scratch += [np.empty(shape, parts[0].dtype) for _ in more]
        if out.size <= _BLOCK and len(parts) == 1:
            step(*arrays, *scratch, *numbers)
            return after
        # The real and the imaginary part of a complex parameter are two parameters.
        for part in zip(*map(_parts, arrays), strict=True):
            for block in _blocks(out):
                rows = [one[block] for one in part]
                room = scratch if block is ... else [one[: len(rows[0])] for one in scratch]
                step(*rows, *room, *numbers)
        return after

    def ahead(self, states: Sequence[Arrays]) -> tuple[tuple[float, ...], Sequence[Arrays]] | None:
        """Return the numbers of a step and the states after; see `LoopSolver.ahead`."""
        step = states[0].step + 1
        if any(state.step + 1 != step for state in states):
            return None
        return self.numbers(step), [state.after(self.loop().arrays) for state in states]

    def pack(self, state: Arrays) -> dict[str, Any]:
        """Return the count and the arrays; see `AbstractSolver.pack`."""
        return {"step": state.step, **{name: getattr(state, name) for name in self.loop().arrays}}

    def unpack(self, state: Arrays, packed: Mapping[str, Any]) -> Arrays:
        """Return a state of the count and the arrays; see `AbstractSolver.unpack`."""
        arrays = {
            name: np.array(packed[name]).astype(getattr(state, name).dtype)
            for name in self.loop().arrays
        }
        return Arrays(int(packed["step"]), arrays)


@cache
def _penalised(
    penalty: bool, lines: tuple[str, ...], arrays: tuple[str, ...], numbers: tuple[str, ...]
) -> Loop:
    first = ("g = g + decay * p",) if penalty else ()
    return Loop((*first, *lines), arrays, ("decay", *numbers))


def penalised(
    decay: float, lines: Sequence[str], arrays: tuple[str, ...], numbers: tuple[str, ...]
) -> Loop:
    """Return lines after an L2 penalty, if there is one; ``decay`` is the first of the numbers."""
    return _penalised(decay != 0, tuple(lines), arrays, numbers)


def _rows(array: Array) -> int:
    """Return how many rows of an array make a block."""
    return min(max(_BLOCK * len(array) // max(array.size, 1), 1), len(array))


def _blocks(array: Array) -> Iterator[Any]:
    """Yield indices of the blocks of arrays of one shape; rows stay whole."""
    if not array.ndim:
        yield ...
        return
    rows = max(_rows(array), 1)
    for start in range(0, len(array), rows):
        yield slice(start, start + rows)


def _parts(array: Array) -> list[Array]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]
