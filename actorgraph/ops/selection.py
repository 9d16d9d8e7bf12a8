"""Choice between values: where, maximum, minimum, clip."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import LoopRule, Memory
from actorgraph.ops._declare import binary, documented, nary_elementwise
from actorgraph.ops._docs import raises
from actorgraph.ops._quick import limited
from actorgraph.ops._scalars import zero
from actorgraph.ops.rounding import isnan
from actorgraph.tiles import evenly

__all__ = ["clip", "fmax", "fmin", "maximum", "minimum", "where"]

# np.where branches on every element: 250 us for 256x256 float32 and a random condition, where
# masking the bits takes 14 to 22 us for the same bits.  Below this size np.where is faster.
_MANY = 2048
_BLOCK = 1 << 16
"""Elements whose masks are made at a time, so that these stay in the cache, and small."""
_WORDS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _where_forward(xp: Any, condition: Any, x: Any, y: Any, out: Any = None) -> Any:
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
    """Return x where y > 0, else 0: a forward."""
    if xp is not np or x.dtype.itemsize not in _WORDS:
        return xp.where(xp.greater(y, zero(xp, y)), x, zero(xp, x))
    if y.size <= _BLOCK or not _lie_alike(x, y):
        return _times_sign(x, y, out)
    out = np.empty(x.shape, x.dtype) if out is None else out
    into, chosen, by = out.reshape(-1), x.reshape(-1), y.reshape(-1)
    for part in evenly(y.size, -(-y.size // _BLOCK)):
        _times_sign(chosen[part], by[part], into[part])
    return out


def _times_sign(x: Any, y: Any, out: Any) -> Any:
    """Return x where y > 0, else 0: its bits, as an integer, times 1 or 0, without a branch."""
    word = _WORDS[x.dtype.itemsize]
    kept = np.greater(y, zero(np, y)).astype(word)
    if out is None:
        return np.multiply(x.view(word), kept).view(x.dtype)
    np.multiply(x.view(word), kept, out.view(word))
    return out


def _lie_alike(x: Any, y: Any) -> bool:
    return x.shape == y.shape and bool(x.flags.c_contiguous and y.flags.c_contiguous)


_WHERE = nary_elementwise(
    "where", "bool[*s] -> a[*t] -> a[*u] -> a[*s|t|u]", _where_forward,
    (None, lambda t, z, c, x, y: where(c, t, 0), lambda t, z, c, x, y: where(c, 0, t)), bools=(0,),
    memory=Memory("kept", takes_out=True, in_place=(1,)), loop=LoopRule("value", "where(x, y, z)"),
    linear=(1, 2), jointly=(0,), doc="x where the condition holds, else y.",
)  # fmt: skip


def where(condition: Any, x: Any, y: Any) -> Node:
    """Choose elementwise."""
    return build(_WHERE, condition, x, y)


documented(
    where, _WHERE, "condition : bool node or array\nx, y : node, array or scalar",
    "The value that is not chosen gets gradient 0, whatever it is.",
)  # fmt: skip

# A tie sends half to each side.  Both arguments compare in one way, so that the tests are shared.
maximum = binary(
    "maximum", "maximum",
    (
        lambda t, z, x, y: where(x > y, t, where(x < y, 0, t * 0.5)),
        lambda t, z, x, y: where(x < y, t, where(x > y, 0, t * 0.5)),
    ),
    "The larger of x and y; NaN where either is NaN.", scheme="r[*s] -> r[*t] -> r[*s|t]",
    notes="Where they are equal each gets half of the gradient.",
)  # fmt: skip
minimum = binary(
    "minimum", "minimum",
    (
        lambda t, z, x, y: where(x < y, t, where(x > y, 0, t * 0.5)),
        lambda t, z, x, y: where(x > y, t, where(x < y, 0, t * 0.5)),
    ),
    "The smaller of x and y; NaN where either is NaN.", scheme="r[*s] -> r[*t] -> r[*s|t]",
    notes="Where they are equal each gets half of the gradient.",
)  # fmt: skip


def _only(t: Node, x: Node, y: Node, larger: Node) -> Node:
    """Return what x gets: t where it is chosen or y is NaN, half of it in a tie."""
    return where(larger | (isnan(y) & ~isnan(x)), t, where(x == y, t * 0.5, 0))


fmax = binary(
    "fmax", "fmax",
    (lambda t, z, x, y: _only(t, x, y, x > y), lambda t, z, x, y: _only(t, y, x, y > x)),
    "The larger of x and y; of a number and NaN the number.", scheme="r[*s] -> r[*t] -> r[*s|t]",
    notes="Where they are equal each gets half of the gradient; two of NaN get none.",
)  # fmt: skip
fmin = binary(
    "fmin", "fmin",
    (lambda t, z, x, y: _only(t, x, y, x < y), lambda t, z, x, y: _only(t, y, x, y < x)),
    "The smaller of x and y; of a number and NaN the number.", scheme="r[*s] -> r[*t] -> r[*s|t]",
    notes="Where they are equal each gets half of the gradient; two of NaN get none.",
)  # fmt: skip


def _inside(x: Node, low: Node, high: Node) -> Node:
    return (x >= low) & (x <= high)


_CLIP = nary_elementwise(
    "clip", "r[*s] -> r[*t] -> r[*u] -> r[*s|t|u]", limited,
    (
        lambda t, z, x, low, high: where(_inside(x, low, high), t, 0),
        lambda t, z, x, low, high: where((x < low) & (low <= high), t, 0),
        lambda t, z, x, low, high: where((x > high) | (low > high), t, 0),
    ),
    loop=LoopRule("value", "minimum(maximum(x, y), z)"),
    doc="x limited to the interval [low, high]; high where low > high.",
)  # fmt: skip


@raises(both="The operands do not fit the type.")
def clip(x: Node, low: Any = None, high: Any = None) -> Node:
    """Limit to an interval.

    Type ``r[*s] -> r[*t] -> r[*u] -> r[*s|t|u]``.  Inside the closed interval, bounds included,
    the gradient of x is 1 and that of the bounds 0; outside it goes to the bound that holds.

    Parameters
    ----------
    x : node
    low, high : node, array or scalar, optional
        None leaves that side open.

    Returns
    -------
    Node
        ``high`` where low > high, as in NumPy.
    """
    lowest, highest = _limits(x.dtype)
    return build(_CLIP, x, lowest if low is None else low, highest if high is None else high)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind not in "iu":
        return -np.inf, np.inf
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
