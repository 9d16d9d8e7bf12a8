"""One dim split in two and two merged in one, also where only a run knows the sizes."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.ops.reshaping import reshape_like
from actorgraph.types import UNKNOWN, Checks, Shape

__all__: list[str] = []


def _split_shape(checks: Checks, x: Shape, *, axis: int, parts: int, size: int) -> Shape:
    known = max(parts, size)
    if x[axis] is not UNKNOWN:
        checks.equal(x[axis] // known * known, x[axis], f"dim {x[axis]} as a multiple of {known}")
    halves = (x[axis] // known, size) if parts < 0 else (parts, x[axis] // known)
    return (*x[:axis], *halves, *x[axis + 1 :])


def _split_forward(xp: Any, x: Any, axis: int, parts: int, size: int) -> Any:
    count, known = x.shape[axis], max(parts, size)
    if count % known:
        raise ShapeError(f"dim {count} is no multiple of {known}")
    halves = (count // known, size) if parts < 0 else (parts, count // known)
    return x.reshape((*x.shape[:axis], *halves, *x.shape[axis + 1 :]))


def _merged(shape: Any, axis: int) -> Any:
    return (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


_SPLIT: Op = declare(
    "group_dim", "a[*s] -> a[*out]", _split_forward, shape=_split_shape,
    vjp=(lambda ct, y, x, axis, parts, size: reshape_like(ct, x),), linear=(0,),
    cost=lambda shapes, result, attrs: 1,
    samples=(
        Sample(((2, 6, 3),), {"axis": 1, "parts": 2, "size": -1}),
        Sample(((6, 0),), {"axis": 1, "parts": -1, "size": 2}),
    ),
    memory=Memory(is_view=True),
    doc="One dim as two: parts and what each holds, one of both given and the other -1.",
)  # fmt: skip

_MERGE: Op = declare(
    "ungroup_dims", "a[*s] -> a[*out]", lambda xp, x, axis: x.reshape(_merged(x.shape, axis)),
    shape=lambda checks, x, axis: _merged(x, axis),
    vjp=(lambda ct, y, x, axis: reshape_like(ct, x),),
    linear=(0,), cost=lambda shapes, result, attrs: 1,
    samples=(Sample(((2, 3, 2),), {"axis": 0}), Sample(((2, 0, 2),), {"axis": 1})),
    doc="Two neighbouring dims as one.",
)  # fmt: skip


def group_dim(x: Node, axis: int, parts: int = -1, size: int = -1) -> Node:
    """Return `x` with the dim at `axis` as two, so many parts or parts of a size, 1 at least."""
    return build(_SPLIT, x, axis=axis, parts=parts, size=size)


def ungroup_dims(x: Node, axis: int) -> Node:
    """Return `x` with the dims at `axis` and behind it as one."""
    return build(_MERGE, x, axis=axis)
