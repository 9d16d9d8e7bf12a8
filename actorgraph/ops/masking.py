"""Boolean masks in an index, read as the positions where they hold.

A mask over some dims becomes one array of positions in these dims, flattened, so everything that
integer indices can do masks can too: gradients add into zeros, second order, any place in the
index.  How many positions hold is known only in a run, unless the mask is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import CONSTANT, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.ops.reshaping import flatten
from actorgraph.types import UNKNOWN, Checks, Shape

__all__: list[str] = []


def _positions_shape(checks: Checks, mask: Shape, x: Shape, *, axis: int) -> Shape:
    for dim, masked in zip(x[axis:], mask, strict=False):
        checks.equal(dim, masked, f"dims {x[axis : axis + len(mask)]} and mask {mask}")
    return (UNKNOWN,)


def _positions(xp: Any, mask: Any, x: Any, axis: int) -> Any:
    masked = x.shape[axis : axis + mask.ndim]
    if mask.shape != masked:
        raise IndexError(f"a mask of shape {mask.shape} does not fit the dims {masked}")
    return xp.flatnonzero(mask)


_MASK_POSITIONS: Op = declare(
    "mask_positions", "bool[*m] -> a[*s] -> int64[*out]", _positions, shape=_positions_shape,
    samples=(
        Sample(((3,), (3, 4)), {"axis": 0}, bools=(0,)),
        Sample(((3, 4), (2, 3, 4)), {"axis": 1}, bools=(0,)),
        Sample(((0,), (0,)), {"axis": 0}, bools=(0,)),
    ),
    doc="Positions in the flattened dims from an axis on where a mask holds.",
)  # fmt: skip


def _is_mask(part: Any) -> bool:
    if isinstance(part, (Node, np.ndarray, np.generic)):
        return bool(part.dtype.kind == "b")
    if isinstance(part, list):
        nodes = any(isinstance(one, Node) for one in part)
        return not nodes and np.asarray(part).dtype.kind == "b"
    return isinstance(part, bool)


def without_masks(x: Node, index: tuple[Any, ...]) -> tuple[Node, tuple[Any, ...]]:
    """Return `x` with masked dims flattened, and the index with positions in place of masks."""
    if not any(_is_mask(part) for part in index):
        return x, index
    parts = [_lifted(x, part) for part in index]
    missing = x.ndim - sum(map(_dims_of, parts))
    if missing < 0:
        raise ShapeError(f"getitem: an index of {x.ndim - missing} dims is too long for {x!r}")
    axis = 0
    read: list[Any] = []
    for position, part in enumerate(parts):
        masked = isinstance(part, Node) and part.dtype.kind == "b"
        read.append(_read_mask(part, x, axis, position) if masked else part)
        if masked:
            x = flatten(x, axis, axis + part.ndim - 1)
        axis += missing if part is Ellipsis else part is not None
    return x, tuple(read)


def _lifted(x: Node, part: Any) -> Any:
    """Return a mask as a node, and another part of an index as it is."""
    if not _is_mask(part):
        return part
    return x.graph.lift(part if isinstance(part, Node) else np.asarray(part))


def _dims_of(part: Any) -> int:
    """Return how many dims of the array a part of an index takes; an Ellipsis takes the rest."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Node) and part.dtype.kind == "b" else 1


def _read_mask(mask: Node, x: Node, axis: int, position: int) -> Node:
    if not mask.ndim:
        raise GraphTypeError(
            f"getitem: index {position} of {x!r} is a single bool, a mask of no dims; "
            "use where(condition, x, 0)"
        )
    dims = x.dims[axis : axis + mask.ndim]
    if mask.op is CONSTANT and all(isinstance(dim, int) for dim in dims):
        if dims != mask.dims:
            raise ShapeError(
                f"getitem: index {position} of {x!r} is a mask of shape {mask.shape}, which does "
                f"not fit the dims {dims}"
            )
        return x.graph.constant(np.flatnonzero(mask.attrs["value"]))
    return positions_where(mask, x, axis)


def positions_where(mask: Node, x: Node, axis: int = 0) -> Node:
    """Return the positions in the flattened dims of `x` from an axis on where a mask holds."""
    return build(_MASK_POSITIONS, mask, x, axis=axis)
