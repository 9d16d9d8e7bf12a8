"""Conversion between dtypes: the only way in which a graph changes one."""

from __future__ import annotations

from typing import Any

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, LoopRule, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.types import dtype_of

__all__ = ["astype"]


def _to_dtype(arity: int, attrs: Attrs) -> str:
    return f"a[*s] -> {attrs['dtype']}[*s]"


def _cast_back(ct: Node, y: Node, x: Node, dtype: str) -> Node | None:
    if y.dtype.kind not in "fcV" or x.dtype.kind not in "fcV":
        return None
    real = y.dtype.kind == "c" and x.dtype.kind in "fV"
    return real_part(ct, x.dtype.name) if real else astype(ct, x.dtype)


def _cast_tangent(tans: tuple[Node | None, ...], y: Node, x: Node, dtype: str) -> Node | None:
    return None if tans[0] is None or y.dtype.kind not in "fcV" else astype(tans[0], dtype)


ASTYPE: Op = declare(
    "astype", _to_dtype, lambda xp, x, dtype: x.astype(dtype), vjp=(_cast_back,), jvp=_cast_tangent,
    samples=tuple(
        Sample((shape,), {"dtype": dtype})
        for shape in ((3, 4), (), (0, 2))
        for dtype in ("float64", "complex128")
    ),
    loop=LoopRule("value", "x"), linear=(0,),
    doc="Convert to another dtype, as NumPy's astype does.",
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
    x : node
    dtype : dtype
        Any dtype of NumPy that graphs hold.

    Raises
    ------
    GraphTypeError
        The dtype is not supported, or complex values would lose their imaginary part.
    """
    target = dtype_of(dtype)
    if x.dtype.kind == "c" and target.kind != "c":
        raise GraphTypeError(
            f"astype: {x!r} is complex and {target} is not: the imaginary part would be lost"
        )
    return x if target == x.dtype else build(ASTYPE, x, dtype=target.name)


def real_part(x: Node, dtype: Any = None) -> Node:
    """Return the real part, in the dtype that `x` has for it or in the given one."""
    target = x.dtype.type(0).real.dtype if dtype is None else dtype_of(dtype)
    return build(_REAL, x, dtype=target.name)
