"""The vectors that complete orthonormal columns to a basis, for whole factors of qr and svd.

They may be any basis of the space that the columns leave out: a turn within it changes nothing
else.  So a loss has a gradient here where it does not depend on the turn, which is where
``y^H ct`` is Hermitian; elsewhere the run raises.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from actorgraph.graph import Node, build
from actorgraph.op import Memory, Op, Sample
from actorgraph.ops._matrix_rules import adjoint, cubic_cost
from actorgraph.ops._rules import declare
from actorgraph.ops.arithmetic import neg
from actorgraph.ops.pseudo_inverse import pinv
from actorgraph.types import Checks, Shape

__all__ = ["complement"]


def _turn_free_forward(xp: Any, ct: Any, y: Any) -> Any:
    inner = xp.conjugate(xp.swapaxes(y, -1, -2)) @ ct
    skew = xp.abs(inner - xp.conjugate(xp.swapaxes(inner, -1, -2)))
    if skew.size and skew.max() > sqrt(xp.finfo(ct.dtype).eps) * xp.abs(ct).max():
        raise np.linalg.LinAlgError(
            "vectors that complete a basis are arbitrary within their space, so that a loss that "
            "depends on the choice has no gradient; take the reduced factors"
        )
    return ct


_TURN_FREE: Op = declare(
    "turn_free", "x[*s, m, n] -> x[*s, m, n] -> x[*s, m, n]", _turn_free_forward,
    vjp=(lambda ct, y, x, basis: ct, None), jvp=lambda tans, y, x, basis: tans[0],
    samples=(Sample(((3, 1), (3, 1))), Sample(((2, 4, 0), (2, 4, 0)))), memory=Memory(is_view=True),
    doc="The cotangent of arbitrary vectors; raises where it depends on the choice.",
)  # fmt: skip


def _shape(checks: Checks, x: Shape) -> Shape:
    return (*x[:-1], x[-2] - x[-1])


def _vjp(ct: Node, y: Node, x: Node) -> Node:
    # From x^H y = 0: dy = -pinv(x)^H dx^H y, and a turn, which is taken to be none.
    return neg(y @ adjoint(build(_TURN_FREE, ct, y)) @ adjoint(pinv(x)))


_COMPLEMENT: Op = declare(
    "complement", "x[*s, m, n] -> x[*out]",
    lambda xp, x: xp.linalg.qr(x, "complete")[0][..., x.shape[-1] :], shape=_shape, vjp=(_vjp,),
    jvp=lambda tans, y, x: neg(adjoint(pinv(x)) @ adjoint(tans[0]) @ y), cost=cubic_cost(4),
    samples=(Sample(((3, 2),)), Sample(((2, 2, 1),)), Sample(((2, 2),))),
    in_blas=True, doc="Orthonormal basis of what the columns of each matrix leave out.",
)  # fmt: skip


def complement(x: Node) -> Node:
    """Return orthonormal columns that complete those of `x`, of rank n <= m, to a basis."""
    return build(_COMPLEMENT, x)
