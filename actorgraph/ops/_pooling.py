"""The ops behind pools; `pooling` holds the functions that users call.

Windows are reduced axis by axis, so a pool takes as many NumPy calls as the sum of the kernel sizes
and not their product.  Which entries get gradients is told in `pooling`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH, FRESH_OUT, KEPT, Op, Sample
from actorgraph.ops._arrays import combine_at, is_traced, through_float32
from actorgraph.ops._rules import declare, on
from actorgraph.ops.windows import Frame, build_sized, frame_of, out_sizes, pads_of, taps
from actorgraph.types import Checks, Shape

Ints = tuple[int, ...]

_BLOCK = 1 << 17
"""Entries of a block that is processed at a time; of places a quarter of this."""


def _is_block(step: Node) -> bool:
    """Return whether an image batch is one block: rows would take memory for all blocks at once."""
    sizes = [dim for dim in step.inputs[0].dims if isinstance(dim, int)]
    return prod(sizes) <= _BLOCK


def _pooled_shape(
    checks: Checks, x: Shape, *like: Shape, kernel: Ints, stride: Ints, padding: Any,
    dilation: Ints, ceil: bool, **more: Any,
) -> Shape:  # fmt: skip
    axes = len(kernel)
    if len(x) < axes:
        raise ShapeError(f"pooling over {axes} axes needs at least rank {axes}, got {x}")
    outs = out_sizes(x[len(x) - axes :], kernel, stride, dilation, padding, ceil)
    return (*x[: len(x) - axes], *outs)


@lru_cache(maxsize=1024)
def _axes(frame: Frame) -> tuple[tuple[int, int, Any], ...]:
    """Return for each trailing axis its place from the end, its result's size and its taps."""
    count = len(frame.sizes)
    result = []
    for axis, one in enumerate(zip(*frame, strict=True)):
        rest = (slice(None),) * (count - axis - 1)
        along = taps(Frame(*((entry,) for entry in one)))
        moves = tuple(((*out, *rest), (*part, *rest)) for out, part in along)
        result.append((axis - count, frame.outs[axis], moves))
    return tuple(result)


def _reduce_windows(
    xp: Any, combine: Callable[..., Any], x: Any, start: Any, frame: Frame, out: Any = None
) -> Any:
    """Combine the entries of each window, block by block of the leading axes."""
    lead = x.shape[: x.ndim - len(frame.sizes)]
    if out is None:
        out = xp.empty((*lead, *frame.outs), x.dtype)
    count = prod(lead)
    images, into = x.reshape(count, *frame.sizes), out.reshape(count, *frame.outs)
    rows = max(1, _BLOCK // max(1, prod(frame.sizes)))
    for first in range(0, count, rows):
        block = images[first : first + rows]
        for axis, size, moves in _axes(frame):
            shape = list(block.shape)
            shape[axis] = size
            last = axis == -1
            result = into[first : first + rows] if last else xp.empty(shape, x.dtype)
            result.fill(start)
            for target, part in moves:
                place = result[target]
                combine(place, block[part], out=place)
            block = result
    return out


def _max_forward(xp: Any, x: Any, out: Any = None, **geometry: Any) -> Any:
    frame = frame_of(x.shape[x.ndim - len(geometry["kernel"]) :], **geometry)
    lowest = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    return _reduce_windows(xp, xp.maximum, x, lowest, frame, out)


@lru_cache(maxsize=256)
def _window_numbers(frame: Frame) -> tuple[Any, Any]:
    """Return the number of each window's first place, and the distance of each tap by its score.

    Places are numbered in row-major order.  Of n taps the first has the score n, the last 1; 0
    stands for no tap.
    """
    steps = [prod(frame.sizes[axis + 1 :]) for axis in range(len(frame.sizes))]
    starts = np.zeros(frame.outs, np.int64)
    distances = np.zeros(frame.kernel, np.int64)
    for axis, step in enumerate(steps):
        shape = [-1 if other == axis else 1 for other in range(len(steps))]
        first = np.arange(frame.outs[axis]) * frame.stride[axis] - frame.lows[axis]
        starts += (first * step).reshape(shape)
        distances += (np.arange(frame.kernel[axis]) * frame.dilation[axis] * step).reshape(shape)
    by_score = np.concatenate([[0], distances.reshape(-1)[::-1]])
    for array in (starts, by_score):
        array.flags.writeable = False
    return starts, by_score


def _places_forward(xp: Any, x: Any, y: Any, out: Any = None, **geometry: Any) -> Any:
    axes = len(geometry["kernel"])
    frame = frame_of(x.shape[x.ndim - axes :], outs=y.shape[y.ndim - axes :], **geometry)
    starts, by_score = map(xp.asarray, _window_numbers(frame))
    places = xp.empty(y.shape, xp.int64) if out is None else out
    untold = is_traced(xp)
    with_nan = x.dtype.kind in "fV" and (untold or bool(xp.isnan(xp.add.reduce(y, axis=None))))
    count = prod(y.shape[: y.ndim - axes])
    images, tops = x.reshape(count, *frame.sizes), y.reshape(count, *frame.outs)
    into = places.reshape(count, *frame.outs)
    rows = max(1, _BLOCK // max(1, prod(frame.sizes)))
    unbuffered = {"mode": "clip"} if xp is np else {}  # CuPy has no modes
    for first in range(0, count, rows):
        part = slice(first, first + rows)
        scores = _scores(xp, images[part], tops[part], frame, with_nan)
        xp.take(by_score, scores, out=into[part], **unbuffered)
        into[part] += starts
        if untold:
            into[part] *= scores != 0
        elif not scores.all():  # nothing but padding
            into[part][scores == 0] = 0
    return places


def _scores(xp: Any, x: Any, y: Any, frame: Frame, with_nan: bool) -> Any:
    """Return the score of the first tap of each window that is its maximum.

    A masked copy of each tap's place would branch on every entry and take four times as long.
    """
    found = taps(frame)
    ranks = xp.arange(len(found), 0, -1, dtype=xp.uint8 if len(found) < 256 else xp.uint32)
    scores = xp.zeros(y.shape, ranks.dtype)
    for index, (place, part) in enumerate(found):
        entries = x[part]
        chosen = entries == y[place]
        if with_nan:
            chosen |= entries != entries
        score = xp.multiply(chosen.view(xp.uint8), ranks[index : index + 1])
        best = scores[place]
        xp.maximum(best, score, out=best)
    return scores


def pool_take(x: Node, places: Node, axes: int) -> Node:
    """Return the entries of `x` at `places`, numbers within its last `axes` axes."""
    return build(_TAKE, x, places, axes=axes)


def pool_put(ct: Node, places: Node, like: Node, axes: int) -> Node:
    """Add `ct` into zeros of the shape of `like` at `places`: the adjoint of `pool_take`."""
    return build(_PUT, ct, places, like, axes=axes)


def _take_forward(xp: Any, x: Any, places: Any, axes: int) -> Any:
    lead, size = places.shape[: places.ndim - axes], prod(x.shape[x.ndim - axes :])
    starts = xp.arange(prod(lead)).reshape(lead + (1,) * axes) * size
    return x.reshape(-1).take(starts + places)


@through_float32
def _put_forward(xp: Any, ct: Any, places: Any, like: Any, axes: int, out: Any = None) -> Any:
    if out is None:
        out = xp.empty(like.shape, ct.dtype)
    out.fill(0)
    lead, size = places.shape[: places.ndim - axes], prod(like.shape[like.ndim - axes :])
    count, entries = prod(lead), prod(places.shape[places.ndim - axes :])
    into, rows = out.reshape(-1), max(1, _BLOCK // 4 // max(1, entries))
    places, ct = places.reshape(count, entries), ct.reshape(count, entries)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        starts = xp.arange(start, min(start + rows, count))[:, None] * size
        combine_at(xp, "add", into, (starts + places[part]).reshape(-1), ct[part].reshape(-1))
    return out


_TAKE: Op = declare(
    "pool_take", "x[*s] -> i[*t] -> x[*t]", _take_forward,
    vjp=(lambda ct, y, x, places, axes: pool_put(ct, places, x, axes), None), linear=(0,),
    samples=(
        Sample(((2, 3, 4), (2, 2, 3)), {"axes": 2}, ints={1: 12}),
        Sample(((2, 4), (2, 3)), {"axes": 1}, ints={1: 4}),
    ),
    doc="Entries at places numbered within the last axes.",
)  # fmt: skip

_PUT: Op = declare(
    "pool_put", "x[*s] -> i[*s] -> a[*t] -> x[*t]", _put_forward,
    vjp=(lambda u, y, ct, places, like, axes: pool_take(u, places, axes), None, None), linear=(0,),
    samples=(Sample(((2, 2, 3), (2, 2, 3), (2, 3, 4)), {"axes": 2}, ints={1: 12}),),
    memory=FRESH_OUT, traced=True,
    doc="Zeros with entries added at places numbered within the last axes.",
)  # fmt: skip

_PLAIN = {
    "kernel": (2, 3), "stride": (2, 2), "padding": ((0, 0), (1, 1)), "dilation": (1, 1),
    "ceil": False,
}  # fmt: skip
PLACES: Op = declare(
    "max_pool_places", "r[*s] -> r[*t] -> int64[*t]", _places_forward,
    samples=(on((1, 4, 5), (1, 2, 2), **_PLAIN),), memory=FRESH_OUT,
    doc="Number, within the last axes, of the entry that each maximum comes from.",
    traced=_is_block,
)  # fmt: skip


_OVERLAP = {
    "kernel": (3,), "stride": (2,), "padding": ((1, 1),), "dilation": (1,), "ceil": True,
}  # fmt: skip

MAX: Op = declare(
    "max_pool", "r[*s] -> r[*out]", _max_forward, shape=_pooled_shape,
    vjp=(lambda ct, y, x, **a: pool_put(ct, build(PLACES, x, y, **a), x, len(a["kernel"])),),
    jvp=lambda tans, y, x, **a: pool_take(tans[0], build(PLACES, x, y, **a), len(a["kernel"])),
    cost=lambda shapes, result, attrs: sum(attrs["kernel"]) * prod(shapes[0]),
    samples=(
        on((2, 1, 4, 5), **_PLAIN), on((2, 6), **_OVERLAP),
        on((7,), **(_OVERLAP | {"dilation": (2,)})), on((0, 1, 4, 5), **_PLAIN),
    ),
    memory=FRESH_OUT, doc="Maximum over windows.", traced=_is_block,
)  # fmt: skip
"""Maximum over windows of trailing axes."""


@lru_cache(maxsize=256)
def _counts(frame: Frame, highs: Ints | None) -> Any:
    """Return the divisor of each window: a number where all are equal, else an array.

    With `highs` the padding counts as entries, but not what a ceiling reaches beyond it.
    """
    divisors: Any = np.ones(())
    for axis, (size, out, width, stride, dilation, low) in enumerate(zip(*frame, strict=True)):
        first, stop = (0, size) if highs is None else (-low, size + highs[axis])
        starts = np.arange(out)[:, None] * stride - low
        entries = starts + np.arange(width) * dilation
        count = ((entries >= first) & (entries < stop)).sum(1)
        divisors = divisors[..., None] * np.maximum(count, 1.0)
    same = divisors.size and (divisors == divisors.flat[0]).all()
    return float(divisors.flat[0]) if same else divisors


def _divided(xp: Any, x: Any, frame: Frame, padding: Any, divisor: str | float) -> Any:
    divisors = divisor
    if isinstance(divisor, str):
        divisors = _counts(frame, tuple(high for _, high in padding) if divisor == "all" else None)
    if not isinstance(divisors, float):
        divisors = xp.asarray(divisors, x.dtype)
    return xp.divide(x, divisors, dtype=x.dtype)


@through_float32
def _average_forward(xp: Any, x: Any, divisor: str | float, **geometry: Any) -> Any:
    sizes = x.shape[x.ndim - len(geometry["kernel"]) :]
    frame = frame_of(sizes, **geometry)
    pads = pads_of(geometry["padding"], sizes, frame.kernel, frame.stride, frame.dilation)
    total = _reduce_windows(xp, xp.add, x, 0, frame)
    return _divided(xp, total, frame, pads, divisor)


@through_float32
def _spread_forward(
    xp: Any, ct: Any, *like: Any, size: Any, divisor: str | float, **geometry: Any
) -> Any:
    axes = len(geometry["kernel"])
    sizes = like[0].shape[like[0].ndim - axes :] if like else size
    frame = frame_of(sizes, outs=ct.shape[ct.ndim - axes :], **geometry)
    pads = pads_of(geometry["padding"], sizes, frame.kernel, frame.stride, frame.dilation)
    ct = _divided(xp, ct, frame, pads, divisor)
    for axis, _, moves in _axes(frame):
        shape = list(ct.shape)
        shape[axis] = sizes[axis]
        result = xp.zeros(shape, ct.dtype)
        for out, part in moves:
            result[part] += ct[out]
        ct = result
    return ct


def _spread_shape(checks: Checks, ct: Shape, *like: Shape, size: Any, **attrs: Any) -> Shape:
    axes = len(attrs["kernel"])
    sizes = like[0][len(like[0]) - axes :] if like else size
    return (*ct[: len(ct) - axes], *sizes)


AVERAGE: Op = declare(
    "avg_pool", "f[*s] -> f[*out]", _average_forward, shape=_pooled_shape,
    vjp=(lambda ct, y, x, **at: build_sized(_SPREAD, (ct,), x, len(at["kernel"]), **at),),
    linear=(0,), cost=lambda shapes, result, attrs: sum(attrs["kernel"]) * prod(shapes[0]),
    samples=(
        on((2, 1, 4, 5), **_PLAIN, divisor="all"), on((2, 6), **_OVERLAP, divisor="inside"),
        on((0, 6), **_OVERLAP, divisor=3.0),
    ),
    memory=KEPT, doc="Average over windows.", traced=True,
)  # fmt: skip
"""Sum over windows of trailing axes, divided by `divisor`: a float, or the number of entries
"inside" of the input, or of "all" with the padding.
"""

_SPREAD: Op = declare(
    "avg_pool_adjoint", lambda arity, attrs: f"f[*s] -> {'a[*t] -> ' if arity == 2 else ''}f[*out]",
    _spread_forward, shape=_spread_shape, linear=(0,),
    vjp=lambda argnum, u, y, ct, *like, size, **a: None if argnum else build(AVERAGE, u, **a),
    cost=lambda shapes, result, attrs: sum(attrs["kernel"]) * prod(shapes[0]),
    samples=(
        on((2, 1, 2, 3), **_PLAIN, divisor="all", size=(4, 5)),
        on((2, 4), (2, 6), **_OVERLAP, divisor="inside", size=None),
    ),
    memory=FRESH, traced=True, doc="Each average's share given back to the entries of its window.",
)  # fmt: skip
