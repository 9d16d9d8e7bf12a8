"""Reductions whose results are ints or bools and have no gradient."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import KEPT, Sample
from actorgraph.ops._declare import Reduction, documented, reduction
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import axes_of, reduced_shape
from actorgraph.types import Checks, Shape

__all__ = ["all", "any", "argmax", "argmin", "count_nonzero"]

any = reduction(  # noqa: A001 - NumPy's name
    "any", "a[*s] -> bool[*out]",
    lambda xp, x, axis, keepdims: xp.any(x, axis=axis, keepdims=keepdims),
    "Whether an element over axes is not zero.", notes="Of no elements False; no gradient.",
)  # fmt: skip
all = reduction(  # noqa: A001 - NumPy's name
    "all", "a[*s] -> bool[*out]",
    lambda xp, x, axis, keepdims: xp.all(x, axis=axis, keepdims=keepdims),
    "Whether no element over axes is zero.", notes="Of no elements True; no gradient.",
)  # fmt: skip


def _count_forward(xp: Any, x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return xp.add.reduce(x != x.dtype.type(0), axis=axis, dtype=xp.int64, keepdims=keepdims)


count_nonzero = reduction(
    "count_nonzero", "a[*s] -> int64[*out]", _count_forward,
    "Number of elements over axes that are not zero.", notes="NaN is not zero; no gradient.",
)  # fmt: skip


# -- argmax and argmin ------------------------------------------------------------------------


def _position_shape(checks: Checks, x: Shape, *, axis: int | None, keepdims: bool) -> Shape:
    axes = tuple(range(len(x))) if axis is None else (axis,)
    if [i for i in axes if x[i] == 0]:
        raise ShapeError(f"no elements to choose from along axis {axis} of {x}")
    return reduced_shape(checks, x, axis=axes, keepdims=keepdims)


_POSITIONS = (
    Sample(((3, 4),), {"axis": None, "keepdims": False}),
    Sample(((2, 3, 4),), {"axis": 1, "keepdims": True}),
    Sample(((),), {"axis": None, "keepdims": False}),
)


def _position(name: str, doc: str) -> Reduction:
    """Declare a position along one axis, or in the flattened array."""

    def forward(xp: Any, x: Any, axis: int | None, keepdims: bool) -> Any:
        return getattr(xp, name)(x, axis=axis, keepdims=keepdims).astype(xp.int64, copy=False)

    op = declare(
        name, "r[*s] -> int64[*out]", forward, shape=_position_shape, samples=_POSITIONS,
        memory=KEPT, doc=doc,
    )  # fmt: skip

    def function(x: Any, axis: int | None = None, keepdims: bool = False) -> Node:
        if axis is not None:
            if not isinstance(axis, int):
                raise ShapeError(f"{name} takes one axis or None, got {axis!r}")
            (axis,) = axes_of(axis, x.ndim, name) or (None,)
        return build(op, x, axis=axis, keepdims=bool(keepdims))

    parameters = (
        "x : node\naxis : int, optional\n    Default: of the flattened array.\n"
        "keepdims : bool\n    Keep the axes as dims of size 1."
    )
    notes = (
        "Of equal elements the first; NaN counts as the one looked for, as in NumPy.  No gradient."
    )
    documented(function, op, parameters, notes)
    return function


argmax = _position("argmax", "Position of the maximum along an axis.")
argmin = _position("argmin", "Position of the minimum along an axis.")
