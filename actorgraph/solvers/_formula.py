"""`LoopSolver`: a solver that is a few lines of arithmetic on the elements of a parameter.

The lines are written once (`Loop`).  Machine code computes them for all parameters in one call
once llvmlite has compiled it (`devices.elementwise`); until then, and without llvmlite, ufuncs
compute them in blocks that stay in the cache.  Both give the same bits.

Both update the solver's state in place, as calls of C functions without a Python instruction in
between (`store.switch`): no signal handler runs there, so all parameters are stepped or none.
They allocate no array and cannot fail; where `np.errstate` raises, ufuncs write into other arrays.
"""

from __future__ import annotations

import ast
import os
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain, starmap
from operator import call
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from actorgraph.options import NATIVE
from actorgraph.scratch import scratch
from actorgraph.solvers._base import AbstractSolver, Loop, OneCall
from actorgraph.solvers._slots import Array, Stepped
from actorgraph.store import at_once, empty_like
from actorgraph.warned import ERRORS, asked, state_of

if TYPE_CHECKING:
    from actorgraph.devices.elementwise import ElementCode

_BLOCK_BYTES, _SHARED_BYTES = 1 << 19, 1 << 23
"""The block size of each array, so large that two threads seldom want the GIL at once; and how many
bytes NumPy's calls of a step write before other threads help."""

_SOON, _LARGE = 32, 1 << 17
"""After so many steps, or from so many elements, compiling machine code (a second) pays."""

_CODED = {np.dtype(char): char for char in "fdFD"}
"""The dtypes of machine code, by which numbers in another byte order have none."""

_SILENT = frozenset({"ignore", "warn"})
_WARNINGS = {
    "divide": "divide by zero",
    "over": "overflow",
    "under": "underflow",
    "invalid": "invalid value",
}

OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide"}
"""The ufuncs of the operators in lines."""


class Arrays:
    """Number of steps, and arrays by name.

    `other` is the previous state, whose arrays the next state takes over.  An array in `arrays` is
    never replaced.  `fitting` has the names of a loop's arrays if all are known to be as machine
    code needs them, and `twice` these arrays: each is read and written.
    """

    __slots__ = ("arrays", "fitting", "other", "step", "twice")

    def __init__(self, step: int, arrays: dict[str, Array]) -> None:
        self.step, self.arrays = step, arrays
        self.other: Arrays | None = None
        self.fitting: tuple[str, ...] | None = None
        self.twice: tuple[Array, ...] = ()

    def fit(self, names: tuple[str, ...], value: Array) -> bool:
        """Set `fitting` and `twice` if arrays of these names are like a parameter's value."""
        if not self.arrays.keys() >= {*names}:  # a setting has changed
            return False
        if not all(map(partial(_is_as, value), self.arrays.values())):  # a subclass made them
            return False
        twice = tuple([self.arrays[name] for name in names for _ in (0, 1)])
        self.fitting, self.twice = names, twice  # Ctrl-C comes before both or after both
        return True

    def after(self, names: Sequence[str]) -> Arrays:
        """Return the next state; the step writes its arrays of these names.

        They are never handed out again: if the step fails, a thread may still be writing them.
        """
        after, self.other = self.other, None
        if after is None or not len(names) == len(self.arrays) == len(after.arrays):
            empty = {name: empty_like(self.arrays[name]) for name in names}
            after = Arrays(0, {**self.arrays, **empty})
        if len(names) == len(self.arrays):  # else both have some arrays
            after.other = self
        after.step = self.step + 1
        return after


class _UfuncWriter:
    """Writes lines as calls of ufuncs that allocate nothing: ``(multiply, g, rest1, s0)``.

    Operations and their order are those of Python's expressions; so are the bits.
    """

    def __init__(self, loop: Loop) -> None:
        self.calls: list[str] = []
        self.constants: dict[str, str] = {}  # names of constants, by their expressions
        self.registers = 0
        self._numbers = set(loop.numbers)
        self._free: list[str] = []
        self._lent: set[str] = set()  # registers of operands that are used once
        self._grad: str | None = None  # where `g` is, if a line sets it
        self._values = {"p": "p", "g": "g", **{name: name for name in loop.arrays}}
        for place, line in enumerate(loop.lines):
            (assignment,) = ast.parse(line).body
            if (
                not isinstance(assignment, ast.Assign)
                or ast.unparse(assignment.targets[0]) not in self._values
            ):
                raise _unreadable(assignment)
            self._line(assignment, [later.partition(" ")[0] for later in loop.lines[place + 1 :]])

    def _line(self, assignment: ast.Assign, later: Sequence[str]) -> None:
        assert isinstance(assignment.targets[0], ast.Name)
        name, source = assignment.targets[0].id, assignment.value
        into = f"new_{name}"
        if name == "g":  # the given one is only read
            if isinstance(source, ast.Name) and source.id not in later:
                self._values[name] = self._values[source.id]
                return
            into = self._grad = self._grad or self._take()
        if isinstance(source, ast.Name):
            if source.id not in self._values:
                raise _unreadable(assignment)
            self.calls.append(f"(positive, {self._values[source.id]}, {into})")
        else:
            self._write(source, into)
        self._values[name] = into

    def _take(self) -> str:
        if self._free:
            return self._free.pop()
        self.registers += 1
        return f"s{self.registers - 1}"

    def _is_number(self, part: ast.expr) -> bool:
        names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
        return all(name in self._numbers for name in names)

    def _write(self, part: ast.expr, into: str | None) -> str:
        """Write calls that compute a part, and return where its value is."""
        if isinstance(part, ast.Name) and part.id in self._values:
            return self._values[part.id]
        if self._is_number(part):
            return self.constants.setdefault(ast.unparse(part), f"k{len(self.constants)}")
        if isinstance(part, ast.Call) and ast.unparse(part.func) in _CALLED:
            ufunc, operands = ast.unparse(part.func), part.args
        elif isinstance(part, ast.BinOp) and type(part.op) in OPERATORS:
            ufunc, operands = OPERATORS[type(part.op)], [part.left, part.right]
        else:
            raise _unreadable(part)
        given = [self._write(one, None) for one in operands]
        self._free += [one for one in given if one in self._lent]
        self._lent.difference_update(given)
        if into is None:
            into = self._take()
            self._lent.add(into)
        # NumPy takes no other form of `maximum`; others are faster without the word.
        if ufunc == "maximum":
            self.calls.append(f"(partial(maximum, out={into}), {', '.join(given)})")
        else:
            self.calls.append(f"({ufunc}, {', '.join(given)}, {into})")
        return into


def _unreadable(part: ast.AST) -> ValueError:
    return ValueError(
        f"cannot read {ast.unparse(part)!r} in the lines of a Loop; each assigns to p, g or an "
        "array of the state, and may use these, the numbers, + - * /, sqrt, abs, sign and maximum"
    )


class _Formula(NamedTuple):
    """The lines as functions.

    `calls` takes p, g and the arrays, where the new p and arrays go, registers for intermediate
    results, and the constants; it returns ufuncs with their arguments.
    """

    calls: Callable[..., tuple[Any, ...]]
    constants: Callable[..., list[float]]  # those that follow from the numbers
    registers: int  # how many `calls` takes
    ufuncs: int  # how many calls it returns


@cache
def _compiled(loop: Loop, xp: Any = np) -> _Formula:
    """Return the lines as functions of arrays of `xp`."""
    writer = _UfuncWriter(loop)
    room = [f"s{number}" for number in range(writer.registers)]
    new = [f"new_{name}" for name in ("p", *loop.arrays)]
    names = ["p", "g", *loop.arrays, *new, *room, *writer.constants.values()]
    known: dict[str, Any] = {name: getattr(xp, name) for name in (*OPERATORS.values(), *_CALLED)}
    known["partial"] = partial
    text = f"calls = lambda {', '.join(names)}: ({', '.join(writer.calls)},)\n"
    text += f"constants = lambda {', '.join(loop.numbers)}: [{', '.join(writer.constants)}]"
    exec(compile(text, "<solver>", "exec"), known)
    return _Formula(known["calls"], known["constants"], writer.registers, len(writer.calls))


_CALLED = ("abs", "maximum", "positive", "sign", "sqrt")


def stepped(
    xp: Any, value: Any, grad: Any, *arrays: Any, solver: LoopSolver, numbers: Sequence[float]
) -> tuple[Any, ...]:
    """Return the parameter and the arrays of its state after a step, all of them new."""
    calls, constants, registers, _ = _compiled(solver.loop(), xp)
    given = [value, grad, *arrays, *[xp.empty_like(value) for _ in range(1 + len(arrays))]]
    parts = [*zip(*map(_parts, given), strict=True)] if solver.by_parts else [given]
    room = [xp.empty(value.shape, parts[0][0].dtype) for _ in range(registers)]
    for part in parts:
        at_once(calls(*part, *room, *constants(*numbers)))
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
    """Initial values of arrays of the state, where they are not 0."""

    by_parts = True
    """Whether the real and the imaginary part of a complex parameter are stepped separately."""

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
        state = Arrays(0, {})
        self.complete(state, self.loop().arrays, value)
        return state

    def complete(self, state: Arrays, names: Sequence[str], value: Array) -> None:
        """Make arrays that a state lacks, as at first, or where a setting has changed."""
        for name in names:
            if name not in state.arrays:
                array = state.arrays[name] = empty_like(value)
                state.fitting = None
                for part in _parts(array):
                    part[...] = self.starts.get(name, 0.0)

    def update(self, state: Arrays, grad: Array, current: Array, out: Array) -> Arrays:
        return updated([(self, state, grad, current, out)], False)[0]

    def by_lines(self, given: Stepped[Arrays], shared: bool) -> list[Arrays] | None:
        if not all(slot.solver.has_loop for slot in given[0]):
            return None
        each = zip(*given, strict=True)
        return updated([(slot.solver, slot.state, *others) for slot, *others in each], shared)

    def _by_code(
        self, loop: Loop, arrays: Sequence[Array], numbers: Sequence[float], shared: bool
    ) -> bool:
        """Compute one parameter by machine code; return whether there is any for it."""
        errors, like, count = asked(), arrays[0], len(loop.arrays)
        char = _CODED.get(like.dtype, "")
        if not char or (char in "FD" and not self.by_parts):
            return False
        plain = all(map(partial(_is_as, like), arrays))
        if not (plain and _SILENT.issuperset(errors.values())):
            return False
        code = _code(loop, char.lower(), like.size >= _LARGE or self._main.steps >= _SOON)
        if code is None:
            return False
        size = like.size * (2 if char in "FD" else 1)
        block = code.block(numbers, [size], 3 + 2 * count, shared)
        pairs = zip(arrays[2 : 2 + count], arrays[3 + count :], strict=True)
        assert code.call is not None
        code.call((block, arrays[0], arrays[1], arrays[2 + count], *chain(*pairs)))
        self._report([(code, block)], errors)
        return True

    @property
    def is_lines(self) -> bool:
        """Whether the lines are all of a step."""
        return type(self).whole is LoopSolver.whole

    def in_one_call(self, given: Stepped[Arrays]) -> OneCall | None:
        """Return the step of all parameters as calls, or None if it is more than its lines."""
        errors = asked()
        if not (self.has_loop and self.is_lines and _SILENT.issuperset(errors.values())):
            return None
        return self._code_call(errors, given) or self._ufunc_calls(errors, given)

    def _code_call(self, errors: Mapping[str, Any], given: Stepped[Arrays]) -> OneCall | None:
        """Return the step as calls of machine code, or None if there is none."""
        slots, grads, values, outs = given
        calls: list[tuple[Any, ...]] = []
        blocks: list[tuple[ElementCode, Array]] = []
        for (dtype, step, _), places in self._by_kind(slots).items():
            solver, char = slots[places[0]].solver, _CODED.get(dtype, "")
            loop, sizes = solver.loop(), [slots[place].size for place in places]
            wanted = sum(sizes) >= _LARGE or self._main.steps >= _SOON
            code = _code(loop, char.lower(), wanted) if char else None
            if code is None or (char in "FD" and not self.by_parts):
                return None
            called: list[Any] = [None]
            for place in places:
                slot, value = slots[place], values[place]
                state = slot.state
                if state.fitting is not loop.arrays and not state.fit(loop.arrays, value):
                    return None
                if slot.held is None and not value.flags.c_contiguous:  # what is held always is
                    return None
                # It may have gaps, or be a scalar of NumPy: a result without dims.
                grad = np.ascontiguousarray(grads[place], dtype)
                called += value, grad, outs[place], *state.twice
                calls.append((setattr, state, "step", step + 1))
            if char in "FD":
                sizes = [2 * size for size in sizes]
            numbers, arrays_each = _numbers(solver, loop, step + 1), 3 + 2 * len(loop.arrays)
            called[0] = code.block(numbers, sizes, 3 + len(loop.arrays), self._main.helped)
            blocks.append((code, called[0]))
            calls.insert(0, (code.routine(sum(sizes) * arrays_each), tuple(called)))
        return OneCall(calls, partial(self._report, blocks, errors))

    def _ufunc_calls(self, errors: Mapping[str, Any], given: Stepped[Arrays]) -> OneCall | None:
        """Return the step as calls of ufuncs, which helpers share where they are long.

        There are none where an array has not the shape of its parameter: a call would fail.
        """
        slots, grads, values, outs = given
        after: list[tuple[Any, ...]] = []
        pieces: list[tuple[_Plan, Sequence[Array]]] = []
        size = 0
        for (_, step, _), places in self._by_kind(slots).items():
            first = slots[places[0]]
            plan = _Plan(first.solver, step + 1, first.dtype)
            for place in places:
                state, out = slots[place].state, outs[place]
                first.solver.complete(state, plan.loop.arrays, values[place])
                kept = [state.arrays[name] for name in plan.loop.arrays]
                if state.fitting is None and any(one.shape != out.shape for one in kept):
                    return None
                pieces += plan.pieces([values[place], grads[place], *kept, out, *kept])
                size += out.nbytes * plan.ufuncs
                after.append((setattr, state, "step", step + 1))
        encountered: dict[str, int] = {}
        state = state_of({"all": "call", "call": encountered.setdefault})
        shared = self._main.helped and size >= _SHARED_BYTES
        calls = _shared_calls(pieces, shared, state, [])
        calls = [(ERRORS.set, state), *calls, (ERRORS.set, ERRORS.get()), *after]
        return OneCall(calls, partial(self._warn, encountered, errors))

    def await_code(self, slots: Sequence[Any]) -> None:
        """Compile the machine code that a step of these parameters needs, and wait for it."""
        for slot in slots:
            char = _CODED.get(slot.dtype, "").lower()
            if char:
                _code(slot.solver.loop(), char, True, wait=True)

    def _by_kind(self, slots: Sequence[Any]) -> dict[tuple[Any, ...], Sequence[int]]:
        """Group the places of parameters by dtype, step and solver, which give the numbers."""
        kinds = [(slot.dtype, slot.state.step, id(slot.solver)) for slot in slots]
        groups: dict[tuple[Any, ...], Sequence[int]] = dict.fromkeys(kinds, range(len(kinds)))
        if len(groups) > 1:
            for kind in groups:
                groups[kind] = [place for place, one in enumerate(kinds) if one == kind]
        return groups

    def _report(
        self, blocks: Sequence[tuple[ElementCode, Array]], errors: Mapping[str, Any]
    ) -> None:
        """Warn of floating-point errors, where `np.errstate` says so."""
        raised = 0
        for code, block in blocks:
            raised |= code.raised(block)
        if not raised:
            return
        from actorgraph.devices.native import ERRORS

        self._warn({_WARNINGS[kind] for kind, flag in ERRORS.items() if raised & flag}, errors)

    def _warn(self, encountered: Collection[str], errors: Mapping[str, Any]) -> None:
        for kind, what in _WARNINGS.items():
            if what in encountered and errors[kind] == "warn":
                text = f"{what} encountered in a step of {type(self).__name__}"
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    def pack(self, state: Arrays) -> dict[str, Any]:
        return {"step": state.step, **state.arrays}

    def unpack(self, state: Arrays, packed: Mapping[str, Any]) -> Arrays:
        arrays = {}
        for name, like in state.arrays.items():
            array = np.asarray(packed[name], like.dtype)
            if array.shape != like.shape:
                raise ValueError(f"{name} of shape {array.shape}, expected {like.shape}")
            arrays[name] = empty_like(array)
            arrays[name][...] = array
        return Arrays(int(packed["step"]), arrays)


def _numbers(solver: LoopSolver, loop: Loop, step: int) -> tuple[float, ...]:
    """Return the numbers of a step; machine code would take others that follow them for sizes."""
    numbers, names = solver.numbers(step), loop.numbers
    if len(numbers) != len(names):
        raise ValueError(
            f"{type(solver).__name__}.numbers returned {len(numbers)} numbers, its lines have "
            f"{len(names)}: {', '.join(names)}"
        )
    return numbers


def _is_as(like: Array, array: Any) -> bool:
    """Return whether machine code may take an array beside one of a parameter."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype == like.dtype
        and array.shape == like.shape
        and array.flags.c_contiguous
        and array.flags.aligned  # stores past the caches need it
    )


def _code(loop: Loop, char: str, wanted: bool, wait: bool = False) -> ElementCode | None:
    """Return the machine code of lines if it is compiled; start compiling if it is `wanted`."""
    code = _codes.get((loop, char))
    if code is not None and code.call is not None:
        return code
    wait = wait or os.environ.get(NATIVE) == "wait"
    if code is None:
        if not (wanted or wait):
            return None
        from actorgraph.devices.elementwise import code_of  # imports the compiler, which few need

        _compiled(loop)  # refuses lines that are none, with or without machine code
        code = _codes[loop, char] = code_of(loop, char)
    if wait:
        code.done.wait()
    return code if code.call is not None else None


_codes: dict[tuple[Loop, str], ElementCode] = {}
"""Machine code that this process has asked for."""


@cache
def penalised(
    penalty: bool, lines: tuple[str, ...], arrays: tuple[str, ...], numbers: tuple[str, ...]
) -> Loop:
    """Return lines after an L2 penalty, if there is one; ``decay`` is the first of the numbers."""
    first = ("g = g + decay * p",) if penalty else ()
    return Loop((*first, *lines), arrays, ("decay", *numbers))


class _Plan:
    """What parameters of one solver, step and dtype share in a step."""

    def __init__(self, solver: LoopSolver, number: int, dtype: np.dtype[Any]) -> None:
        self.loop = solver.loop()
        self.numbers = _numbers(solver, self.loop, number)
        self.parted = solver.by_parts and dtype.kind == "c"
        self.whole = None if solver.is_lines else solver.whole
        self._calls, constants, self._registers, self.ufuncs = _compiled(self.loop)
        self.dtype = np.dtype(dtype.char.lower()) if self.parted else dtype
        # With arrays of the dtype calls are faster.
        self.constants = [np.asarray(one, self.dtype) for one in constants(*self.numbers)]

    def pieces(self, arrays: Sequence[Array]) -> list[tuple[_Plan, Sequence[Array]]]:
        """Return the plan with each block of the arrays."""
        if arrays[0].nbytes <= _BLOCK_BYTES and not self.parted:
            return [(self, arrays)]
        if all(array.flags.c_contiguous for array in arrays):
            arrays = [array.reshape(-1) for array in arrays]
        parts = [arrays]
        if self.parted:
            parts = [[array.real for array in arrays], [array.imag for array in arrays]]
        like = parts[0][0]
        count, blocks = len(like), -(-like.nbytes // _BLOCK_BYTES)
        rows = -(-count // max(blocks, 1)) or 1
        return [
            (self, [array[start : start + rows] for array in part])
            for part in parts
            for start in range(0, count, rows)
        ]

    def room(self, size: int) -> list[Array]:
        """Return arrays for intermediate results."""
        return [scratch(np, (size,), self.dtype) for _ in range(self._registers)]

    def calls(self, arrays: Sequence[Array], room: Sequence[Array]) -> tuple[Any, ...]:
        """Return the calls that compute a step of arrays."""
        return self._calls(*arrays, *room, *self.constants)


def updated(places: Sequence[tuple[Any, ...]], shared: bool) -> list[Arrays]:
    """Step parameters, given as (solver, state, gradient, value, output); return the new states."""
    afters: list[Arrays] = []
    pieces: list[tuple[_Plan, Sequence[Array]]] = []
    plans: dict[Any, _Plan] = {}
    wholes, size = [], 0
    for solver, state, grad, current, out in places:
        key = id(solver), state.step, out.dtype
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = _Plan(solver, state.step + 1, out.dtype)
        names = plan.loop.arrays
        if plan.whole is not None:
            current = current.copy() if out is current else current
            wholes.append((plan.whole, plan.numbers, current, out))
        solver.complete(state, names, current)
        after = state.after(names)
        kept, new = state.arrays, after.arrays
        arrays = [current, grad, *[kept[name] for name in names]]
        arrays += [out, *[new[name] for name in names]]
        afters.append(after)
        if solver._by_code(plan.loop, arrays, plan.numbers, shared):
            continue
        pieces += plan.pieces(arrays)
        size += out.nbytes * plan.ufuncs
    failures: list[BaseException] = []
    shared = shared and size >= _SHARED_BYTES
    at_once(_shared_calls(pieces, shared, state_of(asked()) if shared else None, failures))
    if failures:
        raise failures[0]
    for whole, numbers, current, out in wholes:
        out[...] = whole(np, numbers, current, out)
    return afters


def _drawn(
    pieces: Sequence[tuple[_Plan, Sequence[Array]]], parts: Iterable[int]
) -> tuple[Iterable[object], Callable[[], None]]:
    """Return an iterator that makes the calls of the pieces whose numbers it draws from `parts`.

    The second result drops its arrays: a helper may hold the iterator for longer.
    """
    most: dict[_Plan, int] = {}
    for plan, block in pieces:
        most[plan] = max(block[0].size, most.get(plan, 0))
    whole = {plan: plan.room(size) for plan, size in most.items()}
    rooms: dict[Any, list[Array]] = {}
    rows = []
    for plan, block in pieces:
        like, key = block[0], (plan, block[0].shape)
        if key not in rooms:
            rooms[key] = [room[: like.size].reshape(like.shape) for room in whole[plan]]
        rows.append(plan.calls(block, rooms[key]))
    return starmap(call, chain.from_iterable(map(rows.__getitem__, parts))), rows.clear


def _shared_calls(
    pieces: Sequence[tuple[_Plan, Sequence[Array]]], shared: bool, state: Any,
    failures: list[BaseException],
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Return calls that compute the pieces in this thread and, if `shared`, in helpers.

    Helpers run under this state of `ERRORS` and append what they raise to `failures`.
    """
    helpers = 0
    if shared and hasattr(os, "sched_yield"):
        from actorgraph.devices.helpers import HELPERS

        helpers = HELPERS.awake(len(pieces) - 1)
    parts = iter(range(len(pieces)))
    work, forget = _drawn(pieces, parts)
    calls: list[tuple[Any, ...]] = [(deque, work, 0), (forget,)]
    for _ in range(helpers):
        work, forget = _drawn(pieces, parts)
        ended = [True]
        helping = partial(_help, work, ended, state, failures)
        wait = starmap(os.sched_yield, iter(ended.copy, [True]))
        calls = [(HELPERS.called.put, helping), *calls, (deque, wait, 0), (forget,)]
    return calls


def _help(
    work: Iterable[object], ended: list[bool], state: Any, failures: list[BaseException],
) -> None:  # fmt: skip
    """Do a helper's part; the calling thread waits until `ended` is ``[True]`` again.

    `ended` is cleared before the helper draws a piece, and the caller looks at it when no piece is
    left: a helper that starts later draws nothing.
    """
    ERRORS.set(state)
    try:
        at_once([(ended.clear,), (deque, work, 0)])
    except BaseException as error:  # noqa: BLE001 - the calling thread raises it
        failures.append(error)
    ended.append(True)


def _parts(array: Array) -> list[Array]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]
