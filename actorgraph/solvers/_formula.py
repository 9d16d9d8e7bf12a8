"""`Formula`: a solver that is a few lines of arithmetic on the elements of a parameter.

The lines are written once (`Loop`): NumPy computes them here, in blocks that stay in the cache, and
a compiler makes loops of them where a machine compiles.  Both give the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from actorgraph.solvers._base import Loop, LoopSolver

__all__ = ["Arrays", "Formula", "penalised"]

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 1 << 14
"""Elements that are computed at once: a few arrays of them fit into the cache."""

_KNOWN = {"abs": np.abs, "maximum": np.maximum, "sign": np.sign, "sqrt": np.sqrt}


class Arrays:
    """Number of steps, and arrays by name as attributes.

    `other` is the state before, whose arrays the state after takes over.
    """

    step: int
    other: Arrays | None

    def __init__(self, step: int, arrays: Mapping[str, Array]) -> None:
        self.__dict__.update(arrays, step=step, other=None)

    def after(self, names: Sequence[str]) -> Arrays:
        """Return the state after the next step, whose arrays are still to be written."""
        after = self.other
        if after is None:
            empty = {name: np.empty_like(self.__dict__[name]) for name in names}
            after = self.other = Arrays(0, empty)
            after.other = self
        after.step = self.step + 1
        return after


@cache
def _compiled(loop: Loop) -> Callable[..., tuple[Array, ...]]:
    """Return the lines as a function of p, g, arrays and numbers, that returns p and arrays."""
    names = ["p", "g", *loop.arrays, *loop.numbers]
    lines = [*loop.lines, f"return {', '.join(('p', *loop.arrays))},"]
    known: dict[str, Any] = {**_KNOWN}
    text = f"def step({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(text, "<solver>", "exec"), known)
    return known["step"]  # type: ignore[no-any-return]


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
        after = state.after(loop.arrays)
        step, numbers = _compiled(loop), self.numbers(after.step)
        given = [current, grad, *[getattr(state, name) for name in loop.arrays]]
        made = [out, *[getattr(after, name) for name in loop.arrays]]
        if out.ndim and out.size <= _BLOCK and out.dtype.kind != "c":
            new = step(*given, *numbers)
            np.copyto(out, new[0])
            after.__dict__.update(zip(loop.arrays, new[1:], strict=True))
            return after
        # The real and the imaginary part of a complex parameter are two parameters.
        for part in zip(*[_parts(array) for array in (*given, *made)], strict=True):
            for block in _blocks(part):
                new = step(*[one[block] for one in part[: len(given)]], *numbers)
                for one, value in zip(part[len(given) :], new, strict=True):
                    one[block] = value
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


def _blocks(arrays: Sequence[Array]) -> Iterator[Any]:
    """Yield indices of the blocks of arrays of one shape; rows stay whole."""
    shape = arrays[0].shape
    if not shape or not arrays[0].size:
        yield ...
        return
    rows = max(_BLOCK * shape[0] // arrays[0].size, 1)
    for start in range(0, shape[0], rows):
        yield slice(start, start + rows)


def _parts(array: Array) -> list[Array]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]
