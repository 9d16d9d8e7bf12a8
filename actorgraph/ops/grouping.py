"""One dim split in two and two merged in one, also where only a run knows the sizes."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample, register
from actorgraph.ops.reshaping import reshape_like
from actorgraph.types import UNKNOWN, Checks, Shape

__all__ = ["group_dim", "ungroup_dims"]


def _split_shape(checks: Checks, x: Shape, *, axis: int, parts: int) -> Shape:
    if x[axis] is not UNKNOWN:
        checks.equal(x[axis] // parts * parts, x[axis], f"dim {x[axis]} in parts of {parts}")
    return (*x[:axis], parts, x[axis] // parts, *x[axis + 1 :])


def _split_forward(xp: Any, x: Any, axis: int, parts: int) -> Any:
    size = x.shape[axis]
    if size % parts:
        raise ShapeError(f"dim {size} cannot be divided into {parts} parts")
    return x.reshape((*x.shape[:axis], parts, size // parts, *x.shape[axis + 1 :]))


def _merged(shape: Any, axis: int) -> Any:
    return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


_SPLIT: Op = register(
    Op(
        "group_dim",
        "a[*s] -> a[*out]",
        _split_forward,
        shape=_split_shape,
        vjp=(lambda ct, y, x, axis, parts: reshape_like(ct, x),),
        jvp=lambda tans, y, x, axis, parts: group_dim(tans[0], axis, parts),
        cost=lambda shapes, result, attrs: 1,
        samples=(Sample(((2, 6, 3),), {"axis": 1, "parts": 2}),),
        doc="One dim as two: so many parts and what each holds.",
    )
)

_MERGE: Op = register(
    Op(
        "ungroup_dims",
        "a[*s] -> a[*out]",
        lambda xp, x, axis: x.reshape(_merged(x.shape, axis)),
        shape=lambda checks, x, axis: _merged(x, axis),
        vjp=(lambda ct, y, x, axis: reshape_like(ct, x),),
        jvp=lambda tans, y, x, axis: ungroup_dims(tans[0], axis),
        cost=lambda shapes, result, attrs: 1,
        samples=(Sample(((2, 3, 2),), {"axis": 0}), Sample(((2, 0, 2),), {"axis": 1})),
        doc="Two neighbouring dims as one.",
    )
)


def group_dim(x: Node, axis: int, parts: int) -> Node:
    """Return `x` with the dim at `axis` as two, ``(parts, dim / parts)``."""
    return build(_SPLIT, x, axis=axis, parts=parts)


def ungroup_dims(x: Node, axis: int) -> Node:
    """Return `x` with the dims at `axis` and behind it as one."""
    return build(_MERGE, x, axis=axis)
