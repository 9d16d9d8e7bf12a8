"""Bessel functions of integer order: one op, whose derivatives are those of the orders beside it.

Source: NIST Digital Library of Mathematical Functions, 10.6.1 and 10.29.1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample
from actorgraph.operands import naming_itself
from actorgraph.ops._declare import Unary, documented, nary_elementwise
from actorgraph.ops.arithmetic import sign
from actorgraph.ops.special import need_scipy, special_function

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1"]


class _Kind(NamedTuple):
    """What SciPy calls a function and its orders 0 and 1, and its derivative."""

    first: tuple[str, str]
    below: float
    """Share of the order below in the derivative, in halves."""
    above: float
    """Share of the order above."""
    own: Any
    """Share of the function itself, as a function of x, or None."""
    what: str


_KINDS = {
    "jv": _Kind(("j0", "j1"), 1, -1, None, "Bessel function of the first kind"),
    "yv": _Kind(("y0", "y1"), 1, -1, None, "Bessel function of the second kind"),
    "iv": _Kind(("i0", "i1"), 1, 1, None, "modified Bessel function of the first kind"),
    "ive": _Kind(
        ("i0e", "i1e"), 1, 1, lambda x: -sign(x),
        "exp(-abs(x)) times the modified Bessel function of the first kind",
    ),
    "kv": _Kind(("k0", "k1"), -1, -1, None, "modified Bessel function of the second kind"),
    "kve": _Kind(
        ("k0e", "k1e"), -1, -1, lambda x: 1,
        "exp(x) times the modified Bessel function of the second kind",
    ),
}  # fmt: skip


def _forward(xp: Any, x: Any, kind: str, order: int) -> Any:
    first = _KINDS[kind].first
    if order < len(first):
        return special_function(xp, first[order], x)
    return special_function(xp, kind, x, order)


def _derivative(t: Node, y: Node, x: Node, kind: str, order: int) -> Node:
    facts = _KINDS[kind]
    above = build(_BESSEL, x, kind=kind, order=order + 1)
    if order:
        below = build(_BESSEL, x, kind=kind, order=order - 1)
        slope = below * (facts.below / 2) + above * (facts.above / 2)
    else:
        slope = above * facts.above  # the order -1 is the order 1, but for its sign
    return t * (slope if facts.own is None else slope + y * facts.own(x))


_BESSEL: Op = nary_elementwise(
    "bessel", "f[*s] -> f[*s]", _forward, (_derivative,), flops=80,
    samples=tuple(
        Sample(((3, 4),), {"kind": kind, "order": order}, 0.3, 4.0)
        for kind in _KINDS
        for order in (0, 2)
    ),
    doc="Bessel function of a kind and an integer order.",
)  # fmt: skip


def _function(kind: str, order: int) -> Unary:
    def apply(x: Any) -> Node:
        need_scipy()
        return build(_BESSEL, x, kind=kind, order=order)

    name, what = _KINDS[kind].first[order], _KINDS[kind].what
    documented(
        apply, _BESSEL, "x : node\n    Any shape.",
        f"By ``scipy.special.{name}``, an extra: ``pip install 'actorgraph[special]'``.",
        name=name, doc=f"{what[0].upper()}{what[1:]}, of order {order}.",
    )  # fmt: skip
    return naming_itself(apply)


i0, i1 = _function("iv", 0), _function("iv", 1)
i0e, i1e = _function("ive", 0), _function("ive", 1)
j0, j1 = _function("jv", 0), _function("jv", 1)
k0, k1 = _function("kv", 0), _function("kv", 1)
k0e, k1e = _function("kve", 0), _function("kve", 1)
y0, y1 = _function("yv", 0), _function("yv", 1)
