"""The update of a solver as compiled loops: all parameters in few calls (``jit=True``).

Its lines (`solvers.Loop`) are written once as a function of one parameter, which loops over the
elements; a *chunk* calls it for several, since calls are what small parameters cost.  Each line is
rounded as NumPy rounds it, so the bits are those of `AbstractSolver.update`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, final

import numpy as np

from actorgraph.jit.compiler import COMPILER, CompiledLoop
from actorgraph.jit.loops import HEADER, LoopParameter, Source
from actorgraph.lower.rates import path
from actorgraph.solvers import Loop, LoopSolver

__all__ = ["Updates"]

Array = np.ndarray[Any, Any]

_CHUNK = 8
"""Parameters a call."""

_DTYPES = frozenset({"float32", "float64"})


class _ArrayKind(NamedTuple):
    """What the text says of a parameter."""

    dtype: str
    axes: int


@final
class Updates:
    """The updates of some parameters by a solver, once they are compiled.

    Parameters
    ----------
    solver : LoopSolver
    values : sequence of ndarray
        That the parameters have at present.
    wait : bool
        Whether to block until the loops are compiled.
    """

    def __init__(
        self,
        solver: LoopSolver[Any],
        values: Sequence[Array],
        *,
        wait: bool,
    ) -> None:
        self._solver, self._wait = solver, wait
        self._kinds = [_ArrayKind(value.dtype.name, value.ndim) for value in values]
        # What the solver keeps has the layout of the first value.
        self._fits = all(
            value.dtype.name in _DTYPES and value.flags.c_contiguous for value in values
        )
        self._loop: Loop
        self._compiled: list[CompiledLoop] = []
        self._pending: list[CompiledLoop] = []
        self._request(solver.loop())

    def __call__(
        self,
        states: Sequence[Any],
        grads: Sequence[Array],
        values: Sequence[Array],
        outs: Sequence[Array],
    ) -> Sequence[Any] | None:
        """Write the stepped parameters to `outs` and return the states after; None: not done."""
        loop = self._solver.loop()
        if loop is not self._loop:
            self._request(loop)
        if self._pending:
            self._pending = [one for one in self._pending if one.function is None]
        ready = self._compiled and not self._pending
        ahead = self._solver.ahead(states) if ready else None
        if ahead is None:
            return None
        numbers, after = ahead
        rows: list[Sequence[Array]] = [values, grads, outs]
        for name in loop.arrays:
            rows += [[getattr(one, name) for one in states], [getattr(one, name) for one in after]]
        given = list(chain.from_iterable(zip(*rows, strict=True)))
        size = _CHUNK * len(rows)
        for number, compiled in enumerate(self._compiled):
            chunk = given[number * size : (number + 1) * size]
            function: Any = compiled.function
            try:
                function(*numbers, *chunk)
            except TypeError:
                _through_copies(function, numbers, chunk, len(rows))
        return after

    def _request(self, loop: Loop) -> None:
        """Ask for the functions of a loop, a chunk each."""
        self._loop, self._compiled = loop, []
        if self._fits:
            directory = os.path.dirname(path())
            for first in range(0, len(self._kinds), _CHUNK):
                source = _write(loop, tuple(self._kinds[first : first + _CHUNK]))
                found = COMPILER.request(source.text, source.parameters, directory)
                self._compiled.append(found)
                if self._wait:
                    found.done.wait()
        self._pending = self._compiled


def _through_copies(
    function: Any, numbers: Sequence[float], given: Sequence[Array], each: int
) -> None:
    """Call loops with copies of arrays that have gaps or another order of axes."""
    copies = [np.array(array, order="C") for array in given]
    function(*numbers, *copies)
    for place, (array, copied) in enumerate(zip(given, copies, strict=True)):
        if _is_written(place % each):
            array[...] = copied


def _is_written(place: int) -> bool:
    """Return whether this array of a parameter is a result: the third, then every second."""
    return place >= 2 and place % 2 == 0


@cache
def _write(loop: Loop, kinds: tuple[_ArrayKind, ...]) -> Source:
    """Return the text of one call for parameters of these kinds."""
    names = ["p", "g", "out", *chain.from_iterable((name, f"{name}_after") for name in loop.arrays)]
    text: list[str] = []
    for dtype in sorted({kind.dtype for kind in kinds}):
        text += _update(loop, names, dtype)
    parameters = [LoopParameter("float64", None) for _ in loop.numbers]
    calls, arguments = [], list(loop.numbers)
    for number, kind in enumerate(kinds):
        given = [f"{name}{number}" for name in names]
        flat = [f"{name}.reshape({given[0]}.size)" for name in given]
        calls.append(f"    update_{kind.dtype}({', '.join([*flat, *loop.numbers])})")
        arguments += given
        parameters += [LoopParameter(*kind, _is_written(place)) for place in range(len(names))]
    text += [f"def kernel({', '.join(arguments)}):", *calls, "    return True"]
    return Source(HEADER + "\n".join(text) + "\n", tuple(parameters))


def _update(loop: Loop, names: Sequence[str], dtype: str) -> list[str]:
    """Return the text of the update of one parameter, all of whose arrays have one axis."""
    given = [f"{name}s" for name in names]
    lines = [
        "@njit",
        f"def update_{dtype}({', '.join([*given, *loop.numbers])}):",
        *[f"    {name} = {dtype}({name})" for name in loop.numbers],
        "    for j in range(ps.size):",
        *[f"        {name} = {name}s[j]" for name in ("p", "g", *loop.arrays)],
    ]
    for line in loop.lines:
        name, _, value = line.partition(" = ")
        lines.append(f"        {name} = {dtype}({value})")
    lines += [f"        {name}_afters[j] = {name}" for name in loop.arrays]
    return [*lines, "        outs[j] = p", ""]
