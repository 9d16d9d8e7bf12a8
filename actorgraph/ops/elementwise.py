"""Conversion, rounding and choice: the elementwise ops that others are built of."""

from __future__ import annotations

from math import log as log_of
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, Attrs, LoopRule, Memory, Op, Sample
from actorgraph.ops._arrays import limited, zero
from actorgraph.ops._declare import Unary, binary, documented, nary_elementwise, public, unary
from actorgraph.ops._rules import declare, on, raises, returns
from actorgraph.scratch import scratch_like
from actorgraph.types import dtype_of

__all__ = [
    "astype", "ceil", "clip", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "isfinite", "isinf",
    "isnan", "log", "log10", "log1p", "log2", "maximum", "minimum", "round", "trunc", "where",
]  # fmt: skip


def _to_dtype(arity: int, attrs: Attrs) -> str:
    return f"a[*s] -> {attrs['dtype']}[*s]"


def _cast_back(ct: Node, y: Node, x: Node, dtype: str) -> Node | None:
    if y.dtype.kind not in "fcV" or x.dtype.kind not in "fcV":
        return None
    real = y.dtype.kind == "c" and x.dtype.kind in "fV"
    return real_part(ct, x.dtype.name) if real else astype(ct, x.dtype)


ASTYPE: Op = declare(
    "astype", _to_dtype, lambda xp, x, dtype: x.astype(dtype, order="C"), vjp=(_cast_back,),
    jvp=lambda tans, y, x, dtype: (
        None if tans[0] is None or y.dtype.kind not in "fcV" else astype(tans[0], dtype)
    ),
    samples=tuple(
        on(shape, dtype=to) for shape in ((3, 4), (), (0, 2)) for to in ("float64", "complex128")
    ),
    loop=LoopRule("value", "x"), linear=(0,), memory=FRESH, traced=True,
)  # fmt: skip

# The adjoint of real -> complex.
_REAL: Op = declare(
    "real_part", _to_dtype, lambda xp, x, dtype: xp.real(x).astype(dtype),
    vjp=(lambda ct, y, x, dtype: astype(ct, x.dtype),), linear=(0,),
    samples=(Sample(((3, 4),), {"dtype": "float64"}, complexes=(0,)),),
    doc="Real part, in the given dtype.",
)  # fmt: skip


def astype(x: Node, dtype: Any) -> Node:
    """Convert the values to another dtype; the node itself where it has that dtype.

    Type ``a[*s] -> dtype[*s]``.  Between floats the gradient is converted back; through an
    integer or bool dtype there is none.

    Parameters
    ----------
    dtype : dtype
        Any dtype of NumPy that graphs hold.
    """
    target = dtype_of(dtype)
    if x.dtype.kind == "c" and target.kind != "c":
        raise GraphTypeError(
            f"{x!r} is complex and {target} is not: the imaginary part would be lost"
        )
    return x if target == x.dtype else build(ASTYPE, x, dtype=target.name)


raises(types="The dtype is not supported, or complex values lose their imaginary part.")(astype)


def real_part(x: Node, dtype: Any = None) -> Node:
    """Return the real part, in the dtype that `x` has for it or in the given one."""
    target = x.dtype.type(0).real.dtype if dtype is None else dtype_of(dtype)
    return build(_REAL, x, dtype=target.name)


_ROUNDED, _TEST = "f[*s] -> f[*s]", "n[*s] -> bool[*s]"
_FLAT = "Piecewise constant: its gradient is zero.  Integers are returned as they are."

_ceil = unary("ceil", None, "The smallest integer >= x.", scheme=_ROUNDED, notes=_FLAT)
_floor = unary("floor", None, "The largest integer <= x.", scheme=_ROUNDED, notes=_FLAT)
_trunc = unary("trunc", None, "The nearest integer towards zero.", scheme=_ROUNDED, notes=_FLAT)
_round = unary(
    "round", None, "The nearest integer; halves go to the even one.", forward="rint",
    scheme="x[*s] -> x[*s]", notes=_FLAT,
)  # fmt: skip

isnan = unary("isnan", None, "Whether x is NaN.", scheme=_TEST)
isinf = unary("isinf", None, "Whether x is infinite.", scheme=_TEST)
isfinite = unary("isfinite", None, "Whether x is neither NaN nor infinite.", scheme=_TEST)


def _of_floats(function: Unary) -> Unary:
    """Return the function with integers, which are round already, passed through."""

    def rounded(x: Any) -> Node:
        return x if isinstance(x, Node) and x.dtype.kind in "iu" else function(x)

    return public(rounded, function.__name__, function.__doc__)


ceil, floor, trunc = _of_floats(_ceil), _of_floats(_floor), _of_floats(_trunc)


def _to_tens(x: Node, ten: int) -> Node:
    """Round integers to multiples of a power of ten, halves to the even multiple."""
    if ten > np.iinfo(x.dtype).max:
        return x * 0
    tens = x // ten
    left = x - tens * ten
    more = (left > ten - left) | ((left == ten - left) & (tens % 2 == 1))
    return (tens + astype(more, x.dtype)) * ten


@raises(types="`x` is bool.")
def round(x: Any, decimals: int = 0) -> Node:
    """Round to the nearest number of so many decimals; halves go to the even neighbour.

    Type ``x[*s] -> x[*s]``; of integers only the digits that stand are rounded.  Piecewise
    constant: its gradient is zero.  With decimals the value is ``rint(x * 10**decimals) /
    10**decimals``, as in NumPy.
    """
    if isinstance(x, Node) and x.dtype.kind in "iu" and decimals >= 0:
        return x
    if isinstance(x, Node) and x.dtype.kind in "iu":
        return _to_tens(x, 10**-decimals)
    if not decimals:
        return _round(x)
    factor = 10.0 ** abs(decimals)
    return _round(x * factor) / factor if decimals > 0 else _round(x / factor) * factor


# np.where branches on every element: 250 us for 256x256 float32 and a random condition, where
# masking bits takes 14 to 22 us and gives the same bits.  Below this size np.where is faster.
_MANY = 2048
_FEW = 1 << 13
"""Up to so many elements a mask is cast first, a larger one in parts by the multiplication."""
_WORDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def chosen(xp: Any, condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Return x where the condition holds, else y: the forward of `where`."""
    if condition.size < _MANY or xp is not np or x.dtype.itemsize not in _WORDS:
        return xp.where(condition, x, y)
    word = _WORDS[x.dtype.itemsize]
    mask = np.negative(condition.view(np.int8))  # -1 has every bit in any wider word too
    x_bits, y_bits = x.view(word), y.view(word)
    room = None if out is None else out.view(word)
    if not y.ndim and not y_bits:
        return np.bitwise_and(x_bits, mask, out=room).view(x.dtype)
    bits = np.bitwise_xor(x_bits, y_bits, out=room if x.shape == mask.shape else None)
    bits = np.bitwise_and(bits, mask, out=bits if bits.shape == mask.shape else room)
    return np.bitwise_xor(bits, y_bits, out=bits).view(x.dtype)


def select_positive(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Return x where y > 0, else 0: its bits, as an integer, times 1 or 0, without a branch."""
    if xp is not np or x.dtype.itemsize not in _WORDS:
        return xp.where(xp.greater(y, zero(xp, y)), x, zero(xp, x))
    word = _WORDS[x.dtype.itemsize]
    few = y.size <= _FEW
    mask = None if few else scratch_like(np, y, np.dtype(np.bool))
    kept = np.greater(y, zero(np, y), out=mask)
    kept = kept.astype(word) if few else kept.view(np.int8)
    if out is None:
        return np.multiply(x.view(word), kept).view(x.dtype)
    np.multiply(x.view(word), kept, out.view(word))
    return out


_PAIR = "r[*s] -> r[*t] -> r[*s|t]"
_WHERE = nary_elementwise(
    "where", "bool[*s] -> a[*t] -> a[*u] -> a[*s|t|u]", chosen,
    (None, lambda t, z, c, x, y: where(c, t, 0), lambda t, z, c, x, y: where(c, 0, t)), bools=(0,),
    memory=Memory("kept", takes_out=True, in_place=(1,)), loop=LoopRule("value", "where(x, y, z)"),
    linear=(1, 2), jointly=(0,),
)  # fmt: skip


def where(condition: Any, x: Any, y: Any) -> Node:
    """Choose elementwise."""
    return build(_WHERE, condition, x, y)


documented(
    where, _WHERE, "condition : bool node or array\nx, y : node, array or scalar",
    "The value that is not chosen gets gradient 0, whatever it is.",
    doc="x where the condition holds, else y.",
)  # fmt: skip


def _of_larger(t: Node, z: Node, x: Node, y: Node) -> Node:
    """Return what x gets of `maximum`, and y of `minimum`."""
    return where(x > y, t, where(x < y, 0, t * 0.5))


def _of_smaller(t: Node, z: Node, x: Node, y: Node) -> Node:
    # The order of the operands is that of `_of_larger`, so that comparisons are shared.
    return where(x < y, t, where(x > y, 0, t * 0.5))


_TIE = "Where they are equal each gets half of the gradient"
maximum = binary(
    "maximum", (_of_larger, _of_smaller), "The larger of x and y; NaN where either is NaN.",
    scheme=_PAIR, notes=f"{_TIE}.",
)  # fmt: skip
minimum = binary(
    "minimum", (_of_smaller, _of_larger), "The smaller of x and y; NaN where either is NaN.",
    scheme=_PAIR, notes=f"{_TIE}.",
)  # fmt: skip


def _only(t: Node, x: Node, y: Node, larger: Node) -> Node:
    """Return what x gets: t where it is chosen or y is NaN, half of it in a tie."""
    return where(larger | (isnan(y) & ~isnan(x)), t, where(x == y, t * 0.5, 0))


fmax = binary(
    "fmax", (lambda t, z, x, y: _only(t, x, y, x > y), lambda t, z, x, y: _only(t, y, x, y > x)),
    "The larger of x and y; of a number and NaN the number.", scheme=_PAIR,
    notes=f"{_TIE}; two of NaN get none.",
)  # fmt: skip
fmin = binary(
    "fmin", (lambda t, z, x, y: _only(t, x, y, x < y), lambda t, z, x, y: _only(t, y, x, y < x)),
    "The smaller of x and y; of a number and NaN the number.", scheme=_PAIR,
    notes=f"{_TIE}; two of NaN get none.",
)  # fmt: skip


_CLIP = nary_elementwise(
    "clip", "r[*s] -> r[*t] -> r[*u] -> r[*s|t|u]", limited,
    (
        lambda t, z, x, low, high: where((x >= low) & (x <= high), t, 0),
        lambda t, z, x, low, high: where((x < low) & (low <= high), t, 0),
        lambda t, z, x, low, high: where((x > high) | (low > high), t, 0),
    ),
    loop=LoopRule("value", "minimum(maximum(x, y), z)"),
)  # fmt: skip


@returns("Node: ``high`` where low > high, as in NumPy")
@raises(both="The operands do not fit the type.")
def clip(x: Node, low: Any = None, high: Any = None) -> Node:
    """Limit to an interval.

    Type ``r[*s] -> r[*t] -> r[*u] -> r[*s|t|u]``.  Inside the closed interval, bounds included,
    the gradient of x is 1 and that of the bounds 0; outside it goes to the bound that holds.

    Parameters
    ----------
    low, high : node, array or scalar, optional
        None leaves that side open.
    """
    lowest, highest = _limits(x.dtype)
    return build(_CLIP, x, lowest if low is None else low, highest if high is None else high)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind not in "iu":
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


_LN2, _LN10 = log_of(2), log_of(10)

exp: Unary = unary("exp", lambda t, y, x: t * y, "Exponential.", flops=5)
exp2: Unary = unary("exp2", lambda t, y, x: t * (y * _LN2), "2 ** x.", flops=5)
# y + 1 would lose the digits of exp(x) far below 0, and those of softplus's second derivative.
expm1 = unary("expm1", lambda t, y, x: t * exp(x), "exp(x) - 1, exact near 0.", flops=5)
log = unary("log", lambda t, y, x: t / x, "Natural logarithm.", low=0.5, flops=5)
log2 = unary("log2", lambda t, y, x: t / (x * _LN2), "Logarithm to base 2.", low=0.5, flops=5)
log10 = unary("log10", lambda t, y, x: t / (x * _LN10), "Logarithm to base 10.", low=0.5, flops=5)
log1p = unary("log1p", lambda t, y, x: t / (x + 1), "log(1 + x), exact near 0.", low=-0.5, flops=5)
