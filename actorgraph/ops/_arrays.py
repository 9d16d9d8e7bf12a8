"""What forwards share: scalars by dtype, floats of two bytes, fast paths, and other devices.

A Python scalar as an operand costs 0.2 us a call and turns bfloat16 into float32.  Floats of two
bytes (float16, bfloat16) are computed in float32 and rounded once.

Where the obvious NumPy call is slow, a faster form stands here.  Times are for float32, of shape
128x512 unless a shape is named, on a processor with AVX-512 and NumPy 2.4.  Other array modules,
other dtypes and small arrays take the obvious call.

Where CuPy lacks a function or computes it wrongly, arrays that are not NumPy's take another path;
for NumPy such a function is the call that it is named after.  On a device only `by_host` reads a
value, so launches never wait and can be captured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, wraps
from math import prod
from typing import Any

import numpy as np

from actorgraph.devices.checks import Check, pending


@lru_cache(256)
def _number(dtype: np.dtype[Any], value: float) -> Any:
    array = np.full((), value, dtype)
    array.flags.writeable = False
    return array


class _ByDtype(dict[np.dtype[Any], Any]):
    """0-d arrays of one value, made when a dtype is first asked for."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __missing__(self, dtype: np.dtype[Any]) -> Any:
        array = self[dtype] = _number(dtype, self.value)
        return array


_ZEROS, _ONES = _ByDtype(0), _ByDtype(1)
for _code in "?bBhHiIlLqQefdFD":
    _ = _ZEROS[np.dtype(_code)], _ONES[np.dtype(_code)]


def zero(xp: Any, x: Any) -> Any:
    """Return a zero that leaves the dtype of `x` as it is."""
    return _ZEROS[x.dtype] if xp is np else x.dtype.type(0)


def one(xp: Any, x: Any) -> Any:
    """Return a one that leaves the dtype of `x` as it is."""
    return _ONES[x.dtype] if xp is np else x.dtype.type(1)


def scalar(x: Any, value: float) -> Any:
    """Return `value` in the dtype of `x`."""
    if type(x) is not np.ndarray or not value:
        return x.dtype.type(value)
    return _number(x.dtype, value)  # half the cost for the ufunc that gets it


def is_traced(xp: Any) -> bool:
    """Return whether a forward is being traced: its arrays hold no numbers (`lower.traced`)."""
    # NumPy takes 1 us to say that it has no such name.
    return xp is not np and getattr(xp, "is_traced", False)


def on_host(xp: Any) -> bool:
    """Return whether a forward computes with NumPy, or is traced for it."""
    return xp is np or is_traced(xp)


def holds(xp: Any, usual: Any) -> bool:
    """Return whether a condition is true; while a forward is traced it is assumed.

    A table whose arrays break an assumption is not walked.
    """
    if is_traced(xp):
        xp.expect(usual)
        return True
    return bool(usual)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether the dtype is a float of two bytes: float16 or bfloat16."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which sums and products of many elements are taken.

    Floats of two bytes are accumulated in float32 and rounded once at the end.
    """
    return _FLOAT32 if is_half(dtype) else dtype


_FLOAT32 = np.dtype(np.float32)


def highest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a float dtype."""
    if dtype.kind == "V":
        # The largest bfloat16: a float32 of which only 7 bits of the fraction are kept.
        return (2 - 2.0**-7) * 2.0**127
    return float(np.finfo(dtype).max)


def through_float32(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the forward with two-byte float arguments widened and its result narrowed.

    The first array has the dtype of the result.  Wider dtypes and their ``out`` are passed on as
    they are; callers that know the dtype to be wide call the attribute ``own``, the forward itself.
    """

    @wraps(forward)
    def wide(xp: Any, *arrays: Any, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        if not is_half(dtype):
            return forward(xp, *arrays, **attrs)
        widened = [x.astype(np.float32) if is_half(x.dtype) else x for x in arrays]
        return forward(xp, *widened, **attrs).astype(dtype)

    wide.own = forward  # type: ignore[attr-defined]
    return wide


def machine_epsilon(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a float dtype."""
    return 2.0**-7 if dtype.kind == "V" else float(np.finfo(dtype).eps)


def tiny(dtype: np.dtype[Any]) -> float:
    """Return the smallest normal number of a float dtype; that of bfloat16 is float32's."""
    return float(np.finfo(np.float32 if dtype.kind == "V" else dtype).tiny)


# NumPy takes the extremum of an array and a number element by element: 22 us, where two arrays
# take 5.  With the number repeated in a row, which stays in the cache, it takes 9.
_FEW = 8192
_ROW = 16384


def at_least(xp: Any, x: Any, low: Any, out: Any = None) -> Any:
    """Return ``maximum(x, low)`` for a number of the dtype of `x`; NaN stays NaN."""
    if x.size < _FEW or not _many_floats(xp, x, out):
        return xp.maximum(x, low, out=out)
    return _in_rows(np.maximum, x, low, out)


def at_most(xp: Any, x: Any, high: Any, out: Any = None) -> Any:
    """Return ``minimum(x, high)`` for a number of the dtype of `x`; NaN stays NaN."""
    if x.size < _FEW or not _many_floats(xp, x, out):
        return xp.minimum(x, high, out=out)
    return _in_rows(np.minimum, x, high, out)


def limited(xp: Any, x: Any, low: Any, high: Any) -> Any:
    """Return `x` limited to an interval, in its dtype; clip makes float32 of bfloat16."""
    if x.dtype.kind == "V":
        return xp.minimum(xp.maximum(x, low), high)
    return xp.clip(x, low, high)


def _many_floats(xp: Any, x: Any, out: Any) -> bool:
    plain = on_host(xp) and x.dtype.kind == "f" and x.flags.c_contiguous
    return plain and (out is None or out.flags.c_contiguous)


def _in_rows(ufunc: Any, x: Any, bound: Any, out: Any) -> Any:
    out = np.empty_like(x) if out is None else out
    numbers, into, row = x.reshape(-1), out.reshape(-1), _repeated(x.dtype, bound.tobytes())
    rest = x.size % _ROW
    whole = x.size - rest
    if whole:
        rows = (-1, _ROW)
        ufunc(numbers[:whole].reshape(rows), row, out=into[:whole].reshape(rows))
    if rest:
        ufunc(numbers[whole:], row[:rest], out=into[whole:])
    return out


# By its bits: as numbers 0 and -0 are one key.
@lru_cache(64)
def _repeated(dtype: np.dtype[Any], number: bytes) -> Any:
    row = np.repeat(np.frombuffer(number, dtype), _ROW)
    row.flags.writeable = False
    return row


# Sums down the columns are products with ones: 0.3 us for 32x32, where `np.add.reduce` takes 1.3,
# and 33 us for 32768x10, whose rows are short, where that takes 410; float32 keeps more digits.
@cache
def _ones(dtype: np.dtype[Any]) -> Any:
    row = np.ones(_ROW, dtype)
    row.flags.writeable = False
    return row


@cache
def dot_tells() -> bool:
    """Return whether `ndarray.dot` reports overflow as `np.errstate` asks: from NumPy 2.3 on."""
    huge = np.full((2, 2), 1e200)
    try:
        with np.errstate(over="raise"):
            huge.dot(huge)
    except FloatingPointError:
        return True
    return False


def are_columns(ndim: int, dtype: np.dtype[Any], axis: tuple[int, ...], keepdims: bool) -> bool:
    """Return whether a sum over these axes is one that `column_sums` computes."""
    if not axis or keepdims or len(axis) != ndim - 1 or dtype.char not in "fd":
        return False
    return axis == tuple(range(ndim - 1)) and dot_tells()


def column_sums(x: Any, out: Any = None) -> Any:
    """Return the sum of a NumPy array over all axes but the last."""
    if x.ndim > 2:
        if not x.flags.c_contiguous:
            return np.add.reduce(x, axis=tuple(range(x.ndim - 1)), out=out)
        x = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    rows = len(x)
    ones = _ones(x.dtype)[:rows] if rows <= _ROW else np.ones(rows, x.dtype)
    return ones.dot(x, out)


# Along rows BLAS takes a third of NumPy's time (4 us, not 12), but does not add pairwise.  Up to so
# many elements its error is as small: 4 units in the last place.
_LONGEST = 4096
_sum: Any = np.add.reduce


def _are_rows(x: Any, axis: tuple[int, ...]) -> bool:
    return x.dtype.char in "fd" and axis == (x.ndim - 1,) and x.shape[-1] <= _LONGEST


def row_sums(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the sum of a NumPy array along axes, faster along the last."""
    if not _are_rows(x, axis):
        return _sum(x, axis=axis, keepdims=keepdims)
    total = np.vecdot(x, _ones(x.dtype)[: x.shape[-1]])
    return total[..., None] if keepdims else total


def row_squares(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the sum of the squares of a NumPy array along axes, faster along the last."""
    if not _are_rows(x, axis):
        return _sum(np.square(x), axis=axis, keepdims=keepdims)
    total = np.vecdot(x, x)
    return total[..., None] if keepdims else total


# As a decorator np.errstate takes 0.3 us, as a context 0.8.
@np.errstate(over="ignore")
def exp_without_warning(xp: Any, x: Any, out: Any = None) -> Any:
    """Return exp(x), inf without a warning where it is too large."""
    return xp.exp(x, out=out)


def logistic(xp: Any, negated: Any, out: Any = None) -> Any:
    """Return 1 / (1 + exp(negated)); where exp is too large 0, which is right to the last bit."""
    denominator = exp_without_warning(xp, negated, out)
    denominator += one(xp, denominator)
    return xp.divide(one(xp, denominator), denominator, out=out)  # half the time of reciprocal


def all_finite(xp: Any, x: Any) -> bool:
    """Return whether all numbers of an array are finite, with squares that do not overflow either.

    One product takes half the time of a reduction.  On a device the answer is no, without waiting.
    """
    if not on_host(xp):
        return False
    if x.dtype.char in "fd":
        return holds(xp, np.vdot(x, x) < np.inf)
    return holds(xp, np.isfinite(x).all())


def raise_if(xp: Any, bad: Any, kind: type[Exception], text: str, of: Any = None) -> None:
    """Raise if `bad` holds; ``{}`` in the text stand for the least and the largest entry `of`.

    On a device the flag and these numbers travel with the value of the job, and with everything
    computed from it; the run fails when one of these is fetched.
    """
    if xp is not np or bad:
        numbers = () if of is None or is_traced(xp) else (of.min(), of.max())
        if xp is np:
            raise kind(text.format(*numbers))
        pending.checks.append(Check(bad, kind, text, numbers))


def in_range(xp: Any, indices: Any, size: int) -> None:
    """Raise `IndexError` where indices are out of range on a device; NumPy checks by itself."""
    if xp is not np and indices.size:
        bad = ((indices < -size) | (indices >= size)).any()
        text = f"an index from {{}} to {{}} is out of bounds for dim {size}"
        raise_if(xp, bad, IndexError, text, indices)


def largest(xp: Any, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    """Return ``maximum.reduce(x, axis, keepdims=keepdims, initial=initial)``."""
    return _extreme(xp, "maximum", x, axis, keepdims, initial)


def smallest(xp: Any, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    """Return ``minimum.reduce(x, axis, keepdims=keepdims, initial=initial)``."""
    return _extreme(xp, "minimum", x, axis, keepdims, initial)


def _extreme(xp: Any, name: str, x: Any, axis: Any, keepdims: bool, initial: Any) -> Any:
    if on_host(xp):
        return getattr(np, name).reduce(x, axis=axis, keepdims=keepdims, initial=initial)
    start = x.dtype.type(initial)
    if not x.size:
        return xp.full_like(x.sum(axis=axis, keepdims=keepdims), start)
    found = getattr(x, name[:3])(axis=axis, keepdims=keepdims)
    return getattr(xp, name)(found, start)


def running(xp: Any, name: str, x: Any, axis: int, dtype: Any = None) -> Any:
    """Return ``ufunc.accumulate(x, axis, dtype)`` of an associative ufunc."""
    if xp is np:
        return getattr(np, name).accumulate(x, axis=axis, dtype=dtype)
    ufunc, step = getattr(xp, name), 1
    x = x if dtype is None else x.astype(dtype, copy=False)
    lead = (slice(None),) * axis
    while step < x.shape[axis]:
        later = ufunc(x[(*lead, slice(None, -step))], x[(*lead, slice(step, None))])
        x = xp.concatenate([x[(*lead, slice(None, step))], later], axis)
        step *= 2
    return x


def combine_at(xp: Any, name: str | None, out: Any, places: Any, values: Any) -> None:
    """Do ``ufunc.at(out, places, values)``, all of rank 1; without a name write the last value."""
    if not on_host(xp):
        from actorgraph.devices.kernels import combine_in_order  # 1 ms that only GPUs need

        combine_in_order(xp, name, out, places, values)
    elif name is None:
        out[places] = values
    else:
        getattr(np, name).at(out, places, values)


def by_host(xp: Any, function: Callable[..., Any], *arrays: Any) -> Any:
    """Return a function of NumPy arrays that the device's library lacks; waits for the device."""
    return xp.asarray(function(*[x.get() if hasattr(x, "get") else x for x in arrays]))
