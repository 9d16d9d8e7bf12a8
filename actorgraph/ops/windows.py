"""Windows that slide over trailing axes: their geometry, and images as columns and back.

Convolution and pooling use one cached function, `taps`: for each position in the kernel, the part
of the input that it reads and the part of the result that it goes to.  Padding is never stored;
reads outside of the input are left out.  So a forward pass is one NumPy call per kernel position.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import FRESH_OUT, Op
from actorgraph.ops._arrays import through_float32
from actorgraph.ops._rules import as_of, declare, on, raises, returns
from actorgraph.ops.broadcasting import expand_dims, squeeze
from actorgraph.ops.reshaping import flatten, reshape
from actorgraph.types import UNKNOWN, Checks, Dim, Shape, dim_max, dim_min

__all__ = ["col2im", "fold", "im2col", "unfold"]

Ints: TypeAlias = tuple[int, ...]
Pairs: TypeAlias = tuple[tuple[Any, Any], ...]
"""Padding before and after each axis."""
Padding: TypeAlias = Pairs | str
"""Pairs, or "same" if they depend on the size of the input."""


class Frame(NamedTuple):
    """Geometry of one application on concrete sizes, each field with an entry per axis."""

    sizes: Ints
    outs: Ints
    kernel: Ints
    stride: Ints
    dilation: Ints
    lows: Ints


@raises(shapes="It is of another length, or an entry is no int or below `least`.")
def per_axis(value: Any, axes: int, name: str, least: int = 1) -> Ints:
    """Return an int, or a sequence of one int for all or one per axis, as a tuple."""
    given = tuple(value) if isinstance(value, Iterable) else (value,) * axes
    for one in given:
        if isinstance(one, bool) or not isinstance(one, (int, np.integer)) or one < least:
            raise ShapeError(f"{name} is one int >= {least} or {axes} of them, got {value!r}")
    if len(given) not in (1, axes):
        raise ShapeError(f"{name} is one int or {axes} of them, got {value!r}")
    return tuple(map(int, given if len(given) == axes else given * axes))


def read_padding(padding: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Padding:
    """Return padding as pairs; "same" stays where it depends on the size of the input."""
    axes = len(kernel)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise GraphTypeError(f"padding is 'same', 'valid' or ints, got {padding!r}")
        if padding == "valid":
            return ((0, 0),) * axes
        if set(stride) != {1}:
            return "same"
        totals = [step * (width - 1) for width, step in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, Iterable):
        given = tuple(padding)
        if len(given) == axes and all(isinstance(one, Iterable) for one in given):
            pairs = [per_axis(one, 2, "a pair of padding", 0) for one in given]
            return tuple((low, high) for low, high in pairs)
        padding = given
    return tuple((one, one) for one in per_axis(padding, axes, "padding", 0))


@raises(shapes="A dim is symbolic, unknown or 0.")
def static_kernel(dims: Shape) -> Ints:
    """Return the dims of a kernel, which have to be positive ints."""
    if any(isinstance(dim, Dim) or dim < 1 for dim in dims):
        raise ShapeError(f"the kernel has to have known sizes above 0, got {dims}")
    return dims  # type: ignore[return-value]


def known(dims: Shape) -> bool:
    """Return whether every dim is an int or an expression of symbols."""
    return UNKNOWN not in dims


def build_sized(op: Op, operands: tuple[Node, ...], like: Node, count: int, **attrs: Any) -> Node:
    """Apply an op that needs the last sizes of `like`: an attribute if known, else an operand."""
    sizes = like.dims[like.ndim - count :]
    if known(sizes):
        return build(op, *operands, size=sizes, **attrs)
    return build(op, *operands, like, size=None, **attrs)


def pads_of(padding: Padding, sizes: Shape, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
    """Return the padding as pairs, for sizes that may be symbolic."""
    if not isinstance(padding, str):
        return padding
    pairs = []
    for size, width, step, gap in zip(sizes, kernel, stride, dilation, strict=True):
        covered = ((size + (step - 1)) // step - 1) * step + gap * (width - 1) + 1
        total = dim_max(covered - size, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


@raises(shapes="No window fits.")
def out_sizes(
    sizes: Shape, kernel: Ints, stride: Ints, dilation: Ints, padding: Padding, ceil: bool = False
) -> Shape:
    """Return how many windows fit along each axis.

    `ceil` counts a last window that is cut off at the end, if it starts inside the input or its
    left padding (PyTorch's rule).
    """
    pads = pads_of(padding, sizes, kernel, stride, dilation)
    outs = []
    for size, width, step, gap, (low, high) in zip(
        sizes, kernel, stride, dilation, pads, strict=True
    ):
        span = size + low + high - (gap * (width - 1) + 1)
        if not isinstance(span, Dim) and span < 0:
            raise ShapeError(
                f"a window of {width} entries, {gap} apart, does not fit in size {size} padded by "
                f"{low} and {high}"
            )
        out = (span + (step - 1 if ceil else 0)) // step + 1
        outs.append(dim_min(out, (size + low - 1) // step + 1) if ceil else out)
    return tuple(outs)


def frame_of(
    sizes: Ints, kernel: Ints, stride: Ints, dilation: Ints, padding: Padding, outs: Any = None,
    ceil: bool = False,
) -> Frame:  # fmt: skip
    """Return the geometry of one application; `outs`, if given, replaces the formula."""
    if outs is None:
        outs = out_sizes(sizes, kernel, stride, dilation, padding, ceil)
    lows = tuple(low for low, _ in pads_of(padding, sizes, kernel, stride, dilation))
    return Frame(sizes, outs, kernel, stride, dilation, lows)


@lru_cache(maxsize=1024)
def taps(frame: Frame) -> tuple[tuple[Any, Any], ...]:
    """Return for each kernel position an index of the result and the index of the input it reads.

    Both select equally many entries of the trailing axes; what lies in the padding is left out.
    """
    along = [_axis_taps(*axis) for axis in zip(*frame, strict=True)]
    return tuple(
        ((..., *(out for out, _ in parts)), (..., *(part for _, part in parts)))
        for parts in product(*along)
    )


def _axis_taps(
    size: int, out: int, width: int, stride: int, dilation: int, low: int
) -> list[tuple[slice, slice]]:
    result = []
    for position in range(width):
        shift = position * dilation - low
        first = max(0, -(shift // stride))
        stop = max(first, min(out, (size - 1 - shift) // stride + 1))
        begin = first * stride + shift
        end = begin + (stop - first - 1) * stride + 1
        part = slice(first, stop), slice(begin, end, stride)
        result.append(part if stop > first else (slice(0, 0), slice(0, 0)))
    return result


MOVES: ContextVar[Any] = ContextVar("MOVES", default=None)
"""Machine code that a kernel is to use, see `devices.windowing`."""


def to_columns(xp: Any, x: Any, frame: Frame, columns: Any) -> Any:
    """Write the windows of x (batch, channels, *sizes) to (batch, channels, kernel, *outs)."""
    if not _moved_by_code(x, columns, frame, False):
        for position, (out, part) in enumerate(taps(frame)):
            columns[:, :, position][out] = x[part]
    return columns


def from_columns(xp: Any, columns: Any, frame: Frame, out: Any) -> Any:
    """Write sums of columns (batch, channels, kernel, *outs) to (batch, channels, *sizes)."""
    out.fill(0)
    if not _moved_by_code(out, columns, frame, True):
        for position, (place, part) in enumerate(taps(frame)):
            out[part] += columns[:, :, position][place]
    return out


def _moved_by_code(x: Any, columns: Any, frame: Frame, adds: bool) -> bool:
    """Move entries by machine code if there is any; return whether it has moved them."""
    moves = MOVES.get()
    return moves is not None and moves(x, columns, frame, taps, adds)


def _im2col_shape(
    checks: Checks, x: Shape, *, kernel: Ints, stride: Ints, padding: Any, dilation: Ints,
    size: Any, rows: bool,
) -> Shape:  # fmt: skip
    axes = len(kernel)
    if len(x) != axes + 2:
        raise ShapeError(
            f"a kernel of {axes} axes needs rank {axes + 2} (batch, channels, axes), got {x}"
        )
    outs = out_sizes(x[2:], kernel, stride, dilation, padding) if size is None else size
    entries = x[1] * prod(kernel)
    return (x[0], *outs, entries) if rows else (x[0], entries, *outs)


def _im2col_forward(
    xp: Any, x: Any, size: Any, rows: bool, out: Any = None, **geometry: Any
) -> Any:  # fmt: skip
    frame = frame_of(x.shape[2:], outs=size, **geometry)
    (batch, channels), axes, entries = x.shape[:2], len(frame.kernel), prod(frame.kernel)
    if out is None:
        last = channels * entries
        shape = (batch, *frame.outs, last) if rows else (batch, last, *frame.outs)
        out = xp.empty(shape, x.dtype)
    out.fill(0)
    if rows:
        columns = out.reshape((batch, *frame.outs, channels, entries))
        columns = xp.transpose(columns, (0, axes + 1, axes + 2, *range(1, axes + 1)))
    else:
        columns = out.reshape((batch, channels, entries, *frame.outs))
    to_columns(xp, x, frame, columns)
    return out


def _col2im_shape(
    checks: Checks, columns: Shape, *like: Shape, kernel: Ints, stride: Ints, padding: Any,
    dilation: Ints, size: Any, rows: bool,
) -> Shape:  # fmt: skip
    if len(columns) != len(kernel) + 2:
        raise ShapeError(
            f"columns of a kernel of {len(kernel)} axes have rank {len(kernel) + 2} "
            f"(batch, windows along each axis, channels * kernel), got {columns}"
        )
    sizes = like[0][2:] if like else size
    found = columns if rows else (columns[0], *columns[2:], columns[1])
    outs = out_sizes(sizes, kernel, stride, dilation, padding)
    for dim, out in zip(found[1:-1], outs, strict=True):
        checks.equal(dim, out, "numbers of windows")
    entries = prod(kernel)
    channels = found[-1] // entries
    checks.equal(channels * entries, found[-1], f"channels * {entries} and the dim of both")
    return (columns[0], channels, *sizes)


@through_float32
def _col2im_forward(
    xp: Any, columns: Any, *like: Any, size: Any, rows: bool, out: Any = None, **geometry: Any
) -> Any:  # fmt: skip
    sizes = like[0].shape[2:] if like else size
    if rows:
        columns = xp.moveaxis(columns, -1, 1)
    batch, outs = columns.shape[0], columns.shape[2:]
    frame = frame_of(sizes, outs=outs, **geometry)
    channels = columns.shape[1] // prod(frame.kernel)
    columns = columns.reshape((batch, channels, prod(frame.kernel), *outs))
    if out is None:
        out = xp.empty((batch, channels, *sizes), columns.dtype)
    return from_columns(xp, columns, frame, out)


def _col2im_vjp(
    argnum: int, ct: Node, y: Node, columns: Node, *like: Node, size: Any, **geometry: Any
) -> Node | None:
    if argnum:
        return None
    outs = columns.dims[1:-1] if geometry["rows"] else columns.dims[2:]
    return build(_IM2COL, ct, size=outs if known(outs) else None, **geometry)


_GEOMETRY = {
    "kernel": (2, 3), "stride": (2, 1), "padding": ((1, 0), (1, 1)), "dilation": (1, 1),
    "rows": True,
}  # fmt: skip
_WIDE = {"kernel": (2,), "stride": (1,), "padding": ((0, 0),), "dilation": (2,), "rows": False}

_IM2COL: Op = declare(
    "im2col", "x[*s] -> x[*out]", _im2col_forward, shape=_im2col_shape, vjp=(
        lambda ct, y, x, size, **at: build_sized(_COL2IM, (ct,), x, x.ndim - 2, **at),
    ),
    linear=(0,), memory=FRESH_OUT, traced=True, moves_windows=True, samples=(
        on((2, 2, 4, 3), **_GEOMETRY, size=None), on((1, 2, 5), **_WIDE, size=None),
        on((0, 2, 5), **_WIDE, size=None),
    ),
)  # fmt: skip

_COL2IM: Op = declare(
    "col2im",
    lambda arity, attrs: "x[*s] -> x[*out]" if arity == 1 else "x[*s] -> a[*t] -> x[*out]",
    _col2im_forward, shape=_col2im_shape, vjp=_col2im_vjp, linear=(0,),
    memory=FRESH_OUT, traced=True, moves_windows=True, samples=(
        on((1, 2, 3, 12), **_GEOMETRY, size=(4, 3)), on((1, 4, 3), (1, 2, 5), **_WIDE, size=None),
    ),
)  # fmt: skip


def _geometry(kernel: Any, stride: Any, padding: Any, dilation: Any, axes: int) -> Any:
    sizes = per_axis(kernel, axes, "kernel_size")
    steps = per_axis(stride, axes, "stride")
    gaps = per_axis(dilation, axes, "dilation")
    pads = read_padding(padding, sizes, steps, gaps)
    return {"kernel": sizes, "stride": steps, "padding": pads, "dilation": gaps}


@returns("Node of shape (batch, *windows, channels * product of the kernel)")
@raises(shapes="Ranks do not fit, or no window fits.")
def im2col(x: Node, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1) -> Node:
    """Return the windows that a kernel sees as rows.

    The row of a window lists its entries channel by channel.  PyTorch's ``unfold`` returns them as
    ``(batch, channels * kernel, windows)``.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, *sizes).
    kernel_size, stride, dilation : int or tuple of int
        One per axis.
    padding : int, tuple of int, tuple of pairs, "same" or "valid"
        Zeros before and after each axis.  "same" gives ``ceil(size / stride)`` windows; where the
        padding is odd, one more stands at the end.
    """
    geometry = _geometry(kernel_size, stride, padding, dilation, x.ndim - 2)
    return build(_IM2COL, x, size=None, rows=True, **geometry)


@returns("Node of shape (batch, channels, *size)")
@raises(shapes="The numbers of windows are not those of such an image.")
@as_of(im2col)
def col2im(
    columns: Node, size: Any, kernel_size: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1,
) -> Node:  # fmt: skip
    """Add rows of windows, as of `im2col`, into an image; where windows overlap, entries add up.

    Parameters
    ----------
    columns : node
        Shape (batch, *windows, channels * product of the kernel), as `im2col` returns it.
    size : tuple of int or Dim
        Sizes of the image, without batch and channels.
    """
    sizes = tuple(size) if isinstance(size, Iterable) else (size,) * (columns.ndim - 2)
    geometry = _geometry(kernel_size, stride, padding, dilation, columns.ndim - 2)
    if len(sizes) != columns.ndim - 2:
        raise ShapeError(f"size has {columns.ndim - 2} entries, got {size!r}")
    return build(_COL2IM, columns, size=sizes, rows=True, **geometry)


@returns("Node of shape (batch, channels * product of the kernel, windows); `im2col` gives rows")
@raises(shapes="The rank is neither 3 nor 4, or no window fits.")
def unfold(x: Node, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Node:
    """Return the windows of images as columns, as ``torch.nn.functional.unfold``.

    Parameters
    ----------
    x : node
        Float or complex, shape (batch, channels, height, width) or without the batch.
    kernel_size, dilation, padding, stride : int or pair of int
    """
    if x.ndim not in (3, 4):
        raise ShapeError(f"takes rank 3 or 4, got {x!r}")
    geometry = _geometry(kernel_size, stride, padding, dilation, 2)
    images = x if x.ndim == 4 else expand_dims(x, 0)
    columns = flatten(build(_IM2COL, images, size=None, rows=False, **geometry), 2, 3)
    return columns if x.ndim == 4 else squeeze(columns, 0)


@returns("Node of shape (batch, channels, height, width)")
@raises(shapes="The rank is neither 2 nor 3, or the number of windows is not that of such images.")
@as_of(unfold)
def fold(
    x: Node, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
    stride: Any = 1,
) -> Node:  # fmt: skip
    """Add columns of windows into images, as ``torch.nn.functional.fold``: `unfold`'s adjoint.

    Parameters
    ----------
    x : node
        Shape (batch, channels * product of the kernel, windows) or without the batch.
    output_size : int or pair of int
        Height and width of the images.
    """
    if x.ndim not in (2, 3):
        raise ShapeError(f"takes rank 2 or 3, got {x!r}")
    sizes = per_axis(output_size, 2, "output_size")
    geometry = _geometry(kernel_size, stride, padding, dilation, 2)
    columns = x if x.ndim == 3 else expand_dims(x, 0)
    columns = reshape(columns, (*columns.dims[:2], *out_sizes(sizes, **geometry)))
    image = build(_COL2IM, columns, size=sizes, rows=False, **geometry)
    return image if x.ndim == 3 else squeeze(image, 0)
