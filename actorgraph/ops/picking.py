"""Pick: one entry along an axis for each index, and its adjoint."""

from __future__ import annotations

from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.ops._docs import raises
from actorgraph.ops._rules import declare
from actorgraph.ops.indexing import check_classes
from actorgraph.ops.shaping import one_axis, transpose
from actorgraph.types import UNKNOWN, Checks, Shape

__all__ = ["pick"]


def _places(xp: Any, index: Any, classes: int) -> Any:
    """Return where each row's entry stands in the flattened rows."""
    check_classes(xp, index, classes)
    return xp.arange(index.size) * classes + index.reshape(-1).astype(xp.int64)


def _pick_forward(xp: Any, x: Any, index: Any) -> Any:
    return x.reshape(-1).take(_places(xp, index, x.shape[-1])).reshape(index.shape)


def _put_forward(xp: Any, ct: Any, index: Any, *like: Any, size: Any) -> Any:
    classes = like[0].shape[-1] if like else size
    out = xp.zeros((*index.shape, classes), ct.dtype)
    out.reshape(-1)[_places(xp, index, classes)] = ct.reshape(-1)
    return out


def _put_shape(checks: Checks, ct: Shape, index: Shape, *like: Shape, size: Any) -> Shape:
    return (*ct, like[0][-1] if like else size)


def _pick_vjp(ct: Node, y: Node, x: Node, index: Node) -> Node:
    if x.dims[-1] is UNKNOWN:
        return build(_PUT, ct, index, x, size=None)
    return build(_PUT, ct, index, size=x.dims[-1])


def _put_vjp(
    argnum: int, u: Node, y: Node, ct: Node, index: Node, *like: Node, size: Any
) -> Node | None:
    return None if argnum else build(_PICK, u, index)


_PICK: Op = declare(
    "pick", "a[*s, c] -> i[*s] -> a[*s]", _pick_forward, vjp=(_pick_vjp, None), linear=(0,),
    samples=(
        Sample(((3, 4), (3,)), ints={1: 4}), Sample(((2, 3, 4), (2, 3)), ints={1: 4}),
        Sample(((4,), ()), ints={1: 4}), Sample(((0, 4), (0,)), ints={1: 4}),
    ),
    doc="The entry of each row that an index names.",
)  # fmt: skip

_PUT: Op = declare(
    "pick_adjoint",
    lambda arity, attrs: f"a[*s] -> i[*s] -> {'a1[*s, c] -> ' if arity == 3 else ''}a[*out]",
    _put_forward, shape=_put_shape, vjp=_put_vjp, linear=(0,),
    samples=(
        Sample(((3,), (3,)), {"size": 4}, ints={1: 4}),
        Sample(((2, 3), (2, 3), (2, 3, 4)), {"size": None}, ints={1: 4}),
    ),
    doc="Rows of zeros with a value where an index says.",
)  # fmt: skip


@raises(
    types="`index` is no integer.",
    shapes="The shape of `index` is not that of `x` without `axis`, or there is no such axis.",
)  # fmt: skip
def pick(x: Node, index: Any, axis: int = -1) -> Node:
    """Return, along an axis, the entry that the index of each row names.

    ``pick(x, i)[r] = x[r, i[r]]``; Ginn's `Pick`, and ``take_along_axis`` with one index a row.

    Parameters
    ----------
    x : node
        Any dtype.
    index : node or array
        Integers in ``[0, size of the axis)``, of the shape of `x` without `axis`; others raise in
        the run.
    axis : int

    Returns
    -------
    Node
        Of the shape of `index`.
    """
    place = one_axis(axis, x.ndim, "pick")
    order = [i for i in range(x.ndim) if i != place] + [place]
    return build(_PICK, transpose(x, order), index)
