"""Tracing kernels: the rows of a compound op, recorded by running its forward on tracers.

A forward takes its array module as an argument.  Here it is run with a module and arrays without
numbers: a `Traced` has a dtype and a place in memory.  A ufunc called on it writes a row of its
loop, an index makes a view.  So the rows do what the kernel does, in the same order, and give the
same bits.

`Unfit` is raised for all that a row cannot do, such as a branch on values; then the step has no
rows and Python calls its kernel.  `row_writing.RowWriter` calls `trace`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from operator import itemgetter, methodcaller
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.devices import native
from actorgraph.devices.checks import pending
from actorgraph.devices.listed import CASTS
from actorgraph.devices.loops import proved
from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.spots import Spot, Unfit, view_spot
from actorgraph.memory.buffers import takes_out

if TYPE_CHECKING:
    from actorgraph.lower.row_writing import RowWriter


def _reducing(ufunc: Any) -> Any:
    def reduced(self: Traced, axis: Any = None, keepdims: bool = False) -> Any:
        return ufunc.reduce(self, axis=axis, keepdims=keepdims)

    return reduced


class Traced(np.lib.mixins.NDArrayOperatorsMixin):
    """An array with a dtype and a place but no numbers; `rows` records what is done to it."""

    __slots__ = ("dtype", "place", "rows")

    def __init__(self, rows: RowWriter, place: Spot, dtype: np.dtype[Any]) -> None:
        self.rows, self.place, self.dtype = rows, place, dtype

    shape = property(lambda self: self.place.shape)
    ndim = property(lambda self: len(self.place.shape))
    size = property(lambda self: prod(self.place.shape))
    itemsize = property(lambda self: self.place.itemsize)
    T = property(lambda self: self.transpose())
    flags = property(lambda self: SimpleNamespace(c_contiguous=self.place.is_flat))

    def __len__(self) -> int:
        return self.place.shape[0]

    def __bool__(self) -> bool:
        raise Unfit

    __array__ = __float__ = __int__ = __index__ = __iter__ = __bool__

    def _view(self, view: Callable[[Any], Any]) -> Traced:
        return Traced(self.rows, view_spot(self.place, self.dtype, view), self.dtype)

    def _new(self, shape: Sequence[int], dtype: Any) -> Traced:
        dtype = np.dtype(dtype)
        return Traced(self.rows, self.rows.scratch(tuple(shape), dtype), dtype)

    def _where(self, index: Any) -> Traced:
        parts = index if isinstance(index, tuple) else (index,)
        if not all(one is None or one is ... or isinstance(one, (int, slice)) for one in parts):
            raise Unfit
        return self._view(itemgetter(parts if ... in parts else (*parts, ...)))

    def __getitem__(self, index: Any) -> Traced:
        if not _has_arrays(index):
            return self._where(index)
        of, place, axis = self._along(index)
        return of.take(place, axis)

    def __setitem__(self, index: Any, value: Any) -> None:
        if _has_arrays(index):
            self._scattered(index, value, "move")
        else:
            self._where(index).assign(value)

    def _along(self, index: Any) -> tuple[Traced, Traced, int]:
        """Return an array, one index and the axis along which it means the same as `index` here.

        Adjacent axes that index arrays name become one axis.
        """
        parts = index if isinstance(index, tuple) else (index,)
        axis = next(i for i, one in enumerate(parts) if not isinstance(one, slice))
        arrays, sizes = parts[axis:], self.shape[axis : len(parts)]
        if any(one != slice(None) for one in parts[:axis]):
            raise Unfit
        places = [*arrays]
        for i, one in enumerate(arrays):
            if not isinstance(one, (Traced, np.ndarray)):
                raise Unfit
            if len(arrays) > 1:
                steps = np.arange(sizes[i]) * prod(sizes[i + 1 :])
                is_known = isinstance(one, np.ndarray)
                places[i] = steps[one] if is_known else self._operand(steps, _INT64).take(one)
        whole = self.reshape(*self.shape[:axis], prod(sizes), *self.shape[len(parts) :])
        return whole, sum(places[1:], places[0]), axis

    def _scattered(self, index: Any, value: Any, name: str) -> None:
        """Write or add values at places, in their order."""
        of, place, axis = self._along(index)
        if not self.place.is_flat:
            raise Unfit
        few = value if value.place.is_flat else value.copy()
        self.rows.moved(few.place, _numbers(place), of.place, axis, to=True, name=name)

    def assign(self, value: Any) -> None:
        """Copy a value, broadcast to the shape, into this array."""
        if not isinstance(value, Traced):
            value = Traced(self.rows, self.rows.constant(np.asarray(value, self.dtype)), self.dtype)
        if value.dtype != self.dtype:
            pair = value.dtype.char + self.dtype.char
            if pair not in CASTS and value.dtype != _INT64 and np.can_cast(value.dtype, _INT64):
                self.assign(value.astype(_INT64))
                return
            self.rows.row(self.place, self.rows.routine(f"cast_{pair}"), [value.place])
        elif (value.place.base, value.place.offset) != (self.place.base, self.place.offset):
            self.rows.copied(self.place, value.place, self.dtype.char)
        elif value.place != self.place:
            raise Unfit

    def fill(self, value: Any) -> None:
        """Set all elements to a number."""
        if self.place.is_flat and not np.asarray(value, self.dtype).tobytes().strip(b"\0"):
            self.rows.clear(self.place)
        else:
            self.assign(value)

    def copy(self) -> Traced:
        """Return a C-contiguous copy."""
        made = self._new(self.shape, self.dtype)
        made.assign(self)
        return made

    def astype(self, dtype: Any, order: str = "C", *, copy: bool = True) -> Traced:
        """Return a C-contiguous array of another dtype."""
        if np.dtype(dtype) == self.dtype:
            return self.copy() if copy else self
        made = self._new(self.shape, dtype)
        made.assign(self)
        return made

    def reshape(self, *shape: Any) -> Traced:
        """Return a view where NumPy makes one, else a copy."""
        try:
            return self._view(methodcaller("reshape", *shape))
        except Unfit:  # NumPy copies
            return self.copy()._view(methodcaller("reshape", *shape))

    def view(self, dtype: Any) -> Traced:
        """Return the same bytes as another dtype of the same size."""
        if np.dtype(dtype).itemsize != self.itemsize:
            raise Unfit
        return Traced(self.rows, self.place, np.dtype(dtype))

    def transpose(self, *axes: Any) -> Traced:
        """Return a view with permuted axes."""
        return self._view(methodcaller("transpose", *axes))

    def swapaxes(self, first: int, second: int) -> Traced:
        """Return a view with two axes exchanged."""
        return self._view(methodcaller("swapaxes", first, second))

    max, min, sum = _reducing(np.maximum), _reducing(np.minimum), _reducing(np.add)
    any, all = _reducing(np.logical_or), _reducing(np.logical_and)

    def take(self, index: Any, axis: int | None = None, out: Any = None) -> Traced:
        """Return flat elements, or entries along an axis."""
        if not isinstance(index, Traced):
            raise Unfit
        of = self if self.place.is_flat else self.copy()
        of, axis = (of.reshape(-1), 0) if axis is None else (of, axis)
        shape = (*of.shape[:axis], *index.shape, *of.shape[axis + 1 :])
        made = self._new(shape, self.dtype) if out is None else out
        self.rows.moved(of.place, _numbers(index), made.place, axis, to=False)
        return made

    def __array_function__(self, function: Any, _: Any, given: Any, named: Any) -> Any:
        first, *others = given
        if function in _VIEWS and first is self:
            return self._view(partial(_called_with, function, others, named))
        if function is np.reshape:
            return self.reshape(*others)
        if function is np.empty_like:
            return self._new(self.shape, self.dtype)
        if function is np.where:
            return self._selected(*given)
        if function is np.vdot:  # it reports no errors
            with np.errstate(all="ignore"):
                return _vecdot(self.reshape(-1), others[0].reshape(-1))
        if function is np.clip:
            return self.__array_ufunc__(_CLIP, "__call__", *given)
        if function is np.take and isinstance(others[0], Traced):
            table = Traced(self.rows, self.rows.constant(first), first.dtype)
            return table.take(others[0], out=named.get("out"))
        if function in (np.concatenate, np.stack):
            return self._joined(function is np.stack, *given, **named)
        raise Unfit(function.__name__)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *given: Any, out: Any = (None,), **named: Any
    ) -> Any:
        if method == "reduce" and isinstance(given[0], Traced):
            return given[0]._reduced(ufunc, out[0], **named)
        if method == "at" and isinstance(given[0], Traced) and ufunc is np.add:
            result, index, values = given
            result._scattered(index, values, f"add_{result.dtype.char}")
            return None
        asked_for = named.pop("dtype", None)
        if named or method != "__call__" or len(out) != 1:
            raise Unfit
        given_dtypes = tuple([one.dtype if hasattr(one, "dtype") else type(one) for one in given])
        *operand_dtypes, dtype = ufunc.resolve_dtypes((*given_dtypes, None))
        if asked_for not in (None, dtype):
            raise Unfit
        operands = [
            self._operand(one, kind) for one, kind in zip(given, operand_dtypes, strict=True)
        ]
        if ufunc is np.matmul:
            x, y = operands
            batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
            shape = (*batch, x.shape[-2], y.shape[-1])
        elif ufunc is np.vecdot:
            shape = np.broadcast_shapes(*[one.shape for one in operands])[:-1]
        else:
            shape = np.broadcast_shapes(*[one.shape for one in operands])
        made = self._new(shape, dtype) if out[0] is None else out[0]
        if not isinstance(made, Traced) or made.dtype != dtype or made.shape != shape:
            raise Unfit
        if ufunc is np.matmul:
            self.rows.product(x.place, y.place, made.place, np.matmul)
            return made
        places = [one.place for one in operands]
        errstate: Any = np.geterr()
        flags = sum([flag for name, flag in native.ERRORS.items() if errstate[name] != "ignore"])
        if ufunc is np.vecdot:
            self.rows.dots(made.place, places[0], places[1], flags)
        else:
            chars = "".join([one.dtype.char for one in (*operands, made)])
            self.rows.row(made.place, proved(ufunc, chars), places, flags)
        return made

    def _joined(self, stacked: bool, parts: Any, axis: int = 0, out: Any = None) -> Traced:
        axis %= parts[0].ndim + stacked
        index = [slice(None)] * axis
        if stacked:
            parts = [one[(*index, None)] for one in parts]
        shape = [*parts[0].shape]
        shape[axis] = sum([one.shape[axis] for one in parts])
        made, begin = self._new(shape, parts[0].dtype) if out is None else out, 0
        for one in parts:
            end = begin + one.shape[axis]
            made[(*index, slice(begin, end))] = one
            begin = end
        return made

    def _selected(self, flag: Any, x: Any, y: Any) -> Traced:
        values = [
            one if isinstance(one, (Traced, int, float)) else np.asarray(one) for one in (x, y)
        ]
        kinds = [one.dtype if hasattr(one, "dtype") else one for one in values]
        dtype = np.result_type(*kinds)
        operands = [self._operand(flag, np.dtype(bool)), *[self._operand(v, dtype) for v in values]]
        made = self._new(np.broadcast_shapes(*[one.shape for one in operands]), dtype)
        routine = self.rows.routine(f"select_{dtype.itemsize}")
        self.rows.row(made.place, routine, [one.place for one in operands])
        return made

    def _operand(self, value: Any, dtype: np.dtype[Any]) -> Traced:
        if not isinstance(value, Traced):
            flags = getattr(value, "flags", None)  # what nobody writes needs no copy
            made = np.array if flags is None or flags.writeable else np.asarray
            array = made(value, dtype, order="C")
            return Traced(self.rows, self.rows.constant(array), dtype)
        return value if value.dtype == dtype else value.astype(dtype)

    def _reduced(
        self, ufunc: np.ufunc, out: Any, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
        initial: Any = None,
    ) -> Traced:  # fmt: skip
        axes = np.lib.array_utils.normalize_axis_tuple(
            range(self.ndim) if axis is None else axis, self.ndim
        )
        if dtype not in (None, self.dtype):
            raise Unfit
        shape = [1 if i in axes else n for i, n in enumerate(self.shape)]
        wide = self._new(shape, self.dtype)
        self.rows.reduced(ufunc.__name__, wide.place, self.place, axes, self.dtype.char, initial)
        reduced = wide if keepdims else wide._view(methodcaller("squeeze", tuple(axes)))
        if out is None:
            return reduced
        out.assign(reduced)
        return out  # type: ignore[no-any-return]


def _has_arrays(index: Any) -> bool:
    """Return whether there are index arrays."""
    return isinstance(index, Traced) or (
        isinstance(index, tuple) and any(isinstance(one, Traced) for one in index)
    )


def _numbers(index: Traced) -> Spot:
    """Return the spot of an index as int64 in C order, which machine code takes."""
    if index.dtype.kind not in "iu":  # a mask selects
        raise Unfit
    return index.astype(_INT64, copy=not index.place.is_flat).place


def _called_with(function: Any, others: Any, named: Any, first: Any) -> Any:
    return function(first, *others, **named)


_vecdot: Any = np.vecdot
_INT64 = np.dtype(np.int64)
_CLIP: Any = np._core.umath.clip  # type: ignore[attr-defined]

_VIEWS = frozenset(
    {np.transpose, np.swapaxes, np.expand_dims, np.squeeze, np.moveaxis, np.broadcast_to}
)


class _Module:
    """The array module of a traced forward: NumPy, with its own functions that make arrays.

    The first array that is made like the `result`, if that is given, is the result itself: a
    forward that takes no ``out`` mostly fills and returns it.
    """

    is_traced = True

    def __init__(self, like: Traced, result: Traced | None = None) -> None:
        self._like, self._result = like, result

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def expect(self, usual: Traced) -> None:
        """Make the walk decline where a condition is false."""
        usual.rows.refused(np.logical_not(usual).place)

    def empty(self, shape: Any, dtype: Any = float) -> Traced:
        shape, made = (shape,) if isinstance(shape, int) else tuple(shape), self._result
        if made is not None and (made.shape, made.dtype) == (shape, np.dtype(dtype)):
            self._result = None
            return made
        return self._like._new(shape, dtype)

    def full(self, shape: Any, value: Any, dtype: Any = float) -> Traced:
        made = self.empty(shape, dtype)
        made.fill(value)
        return made

    def zeros(self, shape: Any, dtype: Any = float) -> Traced:
        return self.full(shape, 0, dtype)

    def empty_like(self, array: Any) -> Traced:
        return self.empty(array.shape, array.dtype)

    def zeros_like(self, array: Any) -> Traced:
        return self.zeros(array.shape, array.dtype)

    def array(self, array: Traced, order: str) -> Traced:
        made = self.empty_like(array)
        made.assign(array)
        return made

    def asarray(self, array: Any, dtype: Any = None) -> Any:
        if isinstance(array, Traced):
            return array if dtype is None else array.astype(dtype, copy=False)
        return np.asarray(array, dtype)


def trace(rows: RowWriter, step: Node) -> None:
    """Write the rows of a step; `Unfit` is raised if it has none."""
    result = Traced(rows, rows.places[step.id], step.dtype)
    operands = [Traced(rows, rows.place(one), one.dtype) for one in step.inputs]
    before, pending.checks = pending.checks, []
    try:
        with np.errstate(all="warn"):
            out = {"out": result} if takes_out(step) else {}
            is_free = not out and rows.is_apart(result.place, [one.place for one in operands])
            module = _Module(result, result if is_free else None)
            called = kernel(step, module, rows.symbols)
            returned = called(*operands, **out)
            for check in pending.checks:
                if check.bad.size > 1:
                    raise Unfit
                rows.refused(check.bad.place)
    except (IndexError, ValueError) as error:  # of sizes that do not fit: Python raises it
        raise Unfit from error
    finally:
        pending.checks = before
    if returned is not result:
        result.assign(returned if isinstance(returned, Traced) else np.asarray(returned))
