"""`LoopSolver`: a solver that is a few lines of arithmetic on the elements of a parameter.

The lines are written once (`Loop`).  Machine code computes them for all parameters in one call,
where llvmlite is installed and has made it (`devices.elementwise`); before and elsewhere NumPy
does, in blocks that stay in the cache.  Both give the same bits.

The call writes what the solver keeps where it is: no signal handler runs in between, so that all is
stepped or nothing.  It cannot fail, and where `np.errstate` raises, NumPy computes, into other
arrays.
"""

from __future__ import annotations

import ast
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.options import NATIVE
from actorgraph.solvers._base import AbstractSolver, Loop, OneCall
from actorgraph.warned import asked

if TYPE_CHECKING:
    from actorgraph.devices.elementwise import ElementCode

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK_BYTES = 1 << 17
"""What is computed at once of each array: a few such blocks fit into the cache."""

_SOON, _LARGE = 32, 1 << 17
"""Steps, or elements, from which on machine code is worth the second that it takes to make."""

_SILENT = frozenset({"ignore", "warn"})
_TOLD = {
    "divide": "divide by zero",
    "over": "overflow",
    "under": "underflow",
    "invalid": "invalid value",
}

OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
"""Of lines: the ufuncs that they mean."""


class Arrays:
    """Number of steps, and arrays by name.

    Attributes
    ----------
    step : int
    arrays : dict
    other : Arrays or None
        The state before, whose arrays the state after takes over.
    scratch : list of ndarray
        Room for what a line computes on the way, which both share.
    """

    __slots__ = ("arrays", "other", "scratch", "step")

    def __init__(self, step: int, arrays: dict[str, Array]) -> None:
        self.step, self.arrays = step, arrays
        self.other: Arrays | None = None
        self.scratch: list[Array] = []

    def after(self, names: Sequence[str]) -> Arrays:
        """Return the state after the next step, whose arrays of these names are to be written."""
        after = self.other
        if after is None or not len(names) == len(self.arrays) == len(after.arrays):
            empty = {name: np.empty_like(self.arrays[name]) for name in names}
            after = Arrays(0, {**self.arrays, **empty})
            after.scratch = self.scratch
            if len(names) == len(self.arrays):  # else both have some arrays
                after.other, self.other = self, after
        after.step = self.step + 1
        return after


class _UfuncWriter:
    """Writes lines as calls of ufuncs that allocate nothing: ``multiply(g, rest1, s0)``.

    What is computed, in which order, is what Python makes of the lines; so are the bits.
    """

    def __init__(self, loop: Loop) -> None:
        self.calls: list[str] = []
        self.registers = 0
        self._numbers, self._kept = set(loop.numbers), set(loop.arrays)
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
            given = self._values[one.value.id]
            self._values[name] = given
            if name in self._kept:
                self.calls.append(f"positive({given}, out=new_{name})")
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
            ufunc, operands = OPERATORS[type(part.op)], [part.left, part.right]
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
    known: dict[str, Any] = {name: getattr(xp, name) for name in (*OPERATORS.values(), *_CALLED)}
    text = f"def step({', '.join(names)}):\n" + "".join(f"    {one}\n" for one in writer.calls)
    exec(compile(text, "<solver>", "exec"), known)
    return known["step"], writer.registers


_CALLED = ("abs", "maximum", "positive", "sign", "sqrt")


def stepped(
    xp: Any, value: Any, grad: Any, *arrays: Any, solver: LoopSolver, numbers: Sequence[float]
) -> tuple[Any, ...]:
    """Return the parameter and the arrays of its state after a step, all of them new."""
    step, registers = _compiled(solver.loop(), xp)
    given = [value, grad, *arrays, *[xp.empty_like(value) for _ in range(1 + len(arrays))]]
    parts = [*zip(*map(_parts, given), strict=True)] if solver.by_parts else [given]
    scratch = [xp.empty(value.shape, parts[0][0].dtype) for _ in range(registers)]
    for part in parts:
        step(*part, *scratch, *numbers)
    new, *rest = given[2 + len(arrays) :]
    return solver.whole(xp, numbers, value, new), *rest


class LoopSolver(AbstractSolver[Arrays]):
    """A solver whose step is the lines of `loop`, for each element by itself.

    Subclasses implement `loop` and `numbers`.  Where llvmlite is installed (the extra ``native`` or
    ``jit``), machine code computes the lines, with NumPy's bits.

    Examples
    --------
    >>> import types
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> class SignDescent(ag.solvers.LoopSolver):
    ...     def loop(self):
    ...         return ag.solvers.Loop(("p = p - sign(g) * rate",), (), ("rate",))
    ...     def numbers(self, step):
    ...         return (0.1,)
    >>> weight = types.SimpleNamespace(value=np.ones(2), grad=np.array([3.0, -2.0]))
    >>> SignDescent().step([weight])
    >>> weight.value
    array([0.9, 1.1])
    """

    starts: Mapping[str, float] = {}
    """What arrays of the state begin with, where it is not 0."""

    by_parts = True
    """Whether the real and the imaginary part of a complex parameter are two parameters."""

    @abstractmethod
    def loop(self) -> Loop:
        """Return the step as lines; the same object while settings are the same."""

    @abstractmethod
    def numbers(self, step: int) -> tuple[float, ...]:
        """Return the numbers of the lines for a step, counted from 1."""

    def whole(self, xp: Any, numbers: Sequence[float], before: Any, after: Any) -> Any:
        """Return a parameter after a step, where that is not what the lines have made of it."""
        return after

    @property
    def has_loop(self) -> bool:
        """Whether a step is the lines, and what `whole` makes of them."""
        return getattr(self.update, "__func__", None) is LoopSolver.update

    def init(self, value: Array) -> Arrays:
        """Return the arrays before the first step; see `AbstractSolver.init`."""
        state = Arrays(0, {})
        self.complete(state, self.loop().arrays, value)
        return state

    def complete(self, state: Arrays, names: Sequence[str], value: Array) -> None:
        """Make arrays that a state lacks, as at first, or where a setting has changed."""
        for name in names:
            if name not in state.arrays:
                made = state.arrays[name] = np.zeros_like(value)
                if name in self.starts:
                    for part in _parts(made):
                        part[...] = self.starts[name]

    def update(self, state: Arrays, grad: Array, current: Array, out: Array) -> Arrays:
        """Write the stepped parameter to `out`; see `AbstractSolver.update`."""
        loop = self.loop()
        if out is current and not self._is_lines:
            current = current.copy()
        self.complete(state, loop.arrays, current)
        after = state.after(loop.arrays)
        given: Any = self.numbers(after.step)
        numbers = given
        if out.dtype.kind == "V":  # of bfloat16: no number is of its kind
            numbers = tuple([np.asarray(one, out.dtype) for one in given])
        kept = [state.arrays[name] for name in loop.arrays]
        arrays = [current, grad, *kept, out, *[after.arrays[name] for name in loop.arrays]]
        if self._by_code(loop, arrays, given):
            if not self._is_lines:
                out[...] = self.whole(np, given, current, out)
            return after
        step, registers = _compiled(loop)
        parts = [arrays]
        if self.by_parts and out.dtype.kind == "c":
            parts = [[one.real for one in arrays], [one.imag for one in arrays]]
        elif out.nbytes > _BLOCK_BYTES and all(one.flags.c_contiguous for one in arrays):
            parts = [[one.reshape(-1) for one in arrays]]
        like, scratch = parts[0][0], state.scratch
        if len(scratch) < registers or (scratch and scratch[0].ndim != like.ndim):
            shape = (_rows(like), *like.shape[1:]) if like.ndim else ()
            scratch[:] = [np.empty(shape, like.dtype) for _ in range(registers)]
        small = like.nbytes <= _BLOCK_BYTES
        for part in parts:
            if small:
                step(*part, *scratch[:registers], *numbers)
            for block in () if small else _blocks(like):
                rows = [one[block] for one in part]
                room = [one[: len(rows[0])] for one in scratch[:registers]]
                step(*rows, *room, *numbers)
        if not self._is_lines:
            out[...] = self.whole(np, given, current, out)
        return after

    def _by_code(self, loop: Loop, arrays: Sequence[Array], numbers: Sequence[float]) -> bool:
        """Let machine code compute one parameter; return whether there is any that can."""
        errors, like, count = asked(), arrays[0], len(loop.arrays)
        char = like.dtype.char
        if char not in ("fdFD" if self.by_parts else "fd"):
            return False
        plain = [one.flags.c_contiguous and one.dtype == like.dtype for one in arrays]
        if not (all(plain) and _SILENT.issuperset(errors.values())):
            return False
        code = _code(loop, char.lower(), like.size >= _LARGE or self._main.steps >= _SOON)
        if code is None:
            return False
        # Lanes step parameters one by one, and need their cores themselves.
        shared = self._main.helped and not self._is_lines
        size = like.size * (2 if char in "FD" else 1)
        block = code.block(numbers, [size], 3 + 2 * count, shared)
        pairs = zip(arrays[2 : 2 + count], arrays[3 + count :], strict=True)
        assert code.call is not None
        code.call((block, arrays[0], arrays[1], arrays[2 + count], *chain(*pairs)))
        self._tell([(code, block)], errors)
        return True

    @property
    def _is_lines(self) -> bool:
        """Whether the lines are all of a step."""
        return type(self).whole is LoopSolver.whole

    def in_one_call(
        self,
        slots: Sequence[Any],
        grads: Sequence[Array],
        values: Sequence[Array],
        outs: Sequence[Array],
    ) -> OneCall | None:
        """Return the step of all parameters as calls of machine code; None where there is none."""
        if not (self.has_loop and self._is_lines):
            return None
        errors = asked()
        if not _SILENT.issuperset(errors.values()):
            return None
        calls: list[tuple[Any, ...]] = []
        blocks: list[tuple[ElementCode, Array]] = []
        for (char, step, _), places in self._alike(slots).items():
            solver = slots[places[0]].solver
            loop, size = solver.loop(), sum([slots[place].size for place in places])
            wanted = size >= _LARGE or self._main.steps >= _SOON
            code = _code(loop, char.lower(), wanted) if char in "fdFD" else None
            if code is None or (char in "FD" and not self.by_parts):
                return None
            given: list[Any] = [None]
            for place in places:
                slot, value, grad = slots[place], values[place], grads[place]
                arrays = slot.state.arrays
                if not value.flags.c_contiguous:  # what is held always is
                    return None
                try:
                    own = [arrays[name] for name in loop.arrays for _ in (0, 1)]
                except KeyError:  # a setting has changed
                    return None
                grad = grad if grad.flags.c_contiguous else np.ascontiguousarray(grad)
                given += [value, grad, outs[place], *own]
                calls.append((setattr, slot.state, "step", step + 1))
            parts = 2 if char in "FD" else 1
            sizes = [parts * slots[place].size for place in places]
            numbers, arrays_each = solver.numbers(step + 1), 3 + len(loop.arrays)
            given[0] = code.block(numbers, sizes, arrays_each, self._main.helped)
            blocks.append((code, given[0]))
            calls.insert(0, (code.call, tuple(given)))
        return OneCall(calls, partial(self._tell, blocks, errors))

    def await_code(self, slots: Sequence[Any]) -> None:
        """Have the machine code made that a step of these parameters needs, and wait for it."""
        for slot in slots:
            char = slot.dtype.char.lower()
            if char in "fd":
                _code(slot.solver.loop(), char, True, wait=True)

    def _alike(self, slots: Sequence[Any]) -> dict[tuple[Any, ...], list[int]]:
        """Return the places of parameters that have the same numbers and dtype."""
        found: dict[tuple[Any, ...], list[int]] = {}
        for place, slot in enumerate(slots):
            key = slot.dtype.char, slot.state.step, id(slot.solver)
            found.setdefault(key, []).append(place)
        return found

    def _tell(self, blocks: Sequence[tuple[ElementCode, Array]], errors: Mapping[str, Any]) -> None:
        """Warn of floating-point errors, where `np.errstate` says so."""
        raised = 0
        for code, block in blocks:
            raised |= code.raised(block)
        if not raised:
            return
        from actorgraph.devices.native import ERRORS

        for kind, flag in ERRORS.items():
            if raised & flag and errors[kind] == "warn":
                warnings.warn(
                    f"{_TOLD[kind]} encountered in a step of {type(self).__name__}",
                    RuntimeWarning, stacklevel=2,
                )  # fmt: skip

    def pack(self, state: Arrays) -> dict[str, Any]:
        """Return the count and the arrays; see `AbstractSolver.pack`."""
        return {"step": state.step, **state.arrays}

    def unpack(self, state: Arrays, packed: Mapping[str, Any]) -> Arrays:
        """Return a state of the count and the arrays; see `AbstractSolver.unpack`."""
        arrays = {
            name: np.array(packed[name], like.dtype, order="C")
            for name, like in state.arrays.items()
        }
        return Arrays(int(packed["step"]), arrays)


def _code(loop: Loop, char: str, wanted: bool, wait: bool = False) -> ElementCode | None:
    """Return the machine code of lines if it is there; have it made if it is `wanted`."""
    found = _codes.get((loop, char))
    if found is not None and found.call is not None:
        return found
    wait = wait or os.environ.get(NATIVE) == "wait"
    if found is None:
        if not (wanted or wait):
            return None
        from actorgraph.devices.elementwise import code_of  # with what makes it, which few need
        from actorgraph.lower.rates import path

        found = _codes[loop, char] = code_of(loop, char, os.path.dirname(path()))
    if wait:
        found.done.wait()
    return found if found.call is not None else None


_codes: dict[tuple[Loop, str], ElementCode] = {}
"""What was asked for in this process."""


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
    return min(max(_BLOCK_BYTES * len(array) // max(array.nbytes, 1), 1), len(array))


def _blocks(array: Array) -> Iterator[Any]:
    """Yield indices of the blocks of arrays of one shape; rows stay whole."""
    rows = max(_rows(array), 1)
    for start in range(0, len(array), rows):
        yield slice(start, start + rows)


def _parts(array: Array) -> list[Array]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]
