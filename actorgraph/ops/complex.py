"""Complex numbers: parts, conjugate, length and angle.

The convention of gradients.  For a real loss L and complex z the gradient (the cotangent of z) is
``dL/dRe z + i dL/dIm z``, as in PyTorch: a step against it lowers L.  The vjp of a holomorphic f is
therefore multiplication by ``conj(f'(z))``, and a vjp is the adjoint of the jvp under the inner
product ``Re sum(conj(a) * b)``.  See docs/complex.md.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Sample
from actorgraph.ops._rules import declare
from actorgraph.ops.broadcasting import conj, zeros_like
from actorgraph.ops.casting import astype, real_part
from actorgraph.ops.selection import where

__all__ = ["imag", "real"]

_SAMPLES = tuple(
    Sample((shape,), {"dtype": "float64"}, complexes=(0,)) for shape in ((3, 4), (), (0, 2))
)


def is_complex(x: Any) -> bool:
    """Return whether `x` is a complex node."""
    return isinstance(x, Node) and x.dtype.kind == "c"


def _to_real(arity: int, attrs: Attrs) -> str:
    return f"c[*s] -> {attrs['dtype']}[*s]"


def _real_dtype(x: Node) -> str:
    """Return the name of the dtype of the parts of a complex node."""
    return "float32" if x.dtype == np.complex64 else "float64"


_IMAG: Op = declare(
    "imag", _to_real, lambda xp, x, dtype: xp.imag(x).astype(dtype),
    vjp=(lambda ct, y, x, dtype: astype(ct, x.dtype) * 1j,), linear=(0,), samples=_SAMPLES,
    doc="Imaginary part of complex numbers.",
)  # fmt: skip

_ABS: Op = declare(
    "complex_abs", _to_real, lambda xp, x, dtype: xp.absolute(x).astype(dtype, copy=False),
    vjp=(lambda ct, y, x, dtype: astype(ct, x.dtype) * complex_sign(x),),
    jvp=lambda tans, y, x, dtype: real(tans[0] * conj(complex_sign(x))), samples=_SAMPLES,
    doc="Length of complex numbers.",
)  # fmt: skip


def real(x: Node) -> Node:
    """Real part; a real node as it is.

    Type ``c[*s] -> float[*s]``, of half the item size.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.real(ag.Graph().input("z", (3,), "complex64")).dtype
    dtype('float32')
    """
    return real_part(x, _real_dtype(x)) if is_complex(x) else x


def imag(x: Node) -> Node:
    """Imaginary part; zeros of a real node.

    Type ``c[*s] -> float[*s]``, of half the item size.
    """
    return build(_IMAG, x, dtype=_real_dtype(x)) if is_complex(x) else zeros_like(x)


def complex_abs(x: Node) -> Node:
    """Length of complex numbers; its gradient at 0 is 0."""
    return build(_ABS, x, dtype=_real_dtype(x))


def complex_sign(x: Node) -> Node:
    """Return x / abs(x) of complex numbers, 0 of 0."""
    length = complex_abs(x)
    return x / astype(where(length == 0, inf, length), x.dtype)
