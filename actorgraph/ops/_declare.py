"""Declarers: what most ops share is named once, so that a rule states only its own mathematics.

`unary` and `binary` declare elementwise ops by one derivative an argument: a function linear in
its first argument, which serves as vjp (summed to the argument's shape) and as jvp.  `linear`
declares an op whose jvp is the op itself.  All of them register the op and return the function
that users call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import Op, Sample, register
from actorgraph.ops.broadcasting import add, broadcast_like, conj, unbroadcast

__all__ = ["add_all", "binary", "linear_jvp", "nary_elementwise", "unary"]

Derivative = Callable[..., Any]

_UNARY_SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (), (0, 2))
_BINARY_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((2, 1), (1, 3)),
    ((), (3,)),
    ((0, 2), (2,)),
)


def add_all(nodes: list[Node]) -> Node | None:
    """Return the sum of the nodes from left to right, or None (a symbolic zero) for none."""
    return reduce(add, nodes) if nodes else None


def nary_elementwise(
    name: str, scheme: str, forward: Any, derivatives: tuple[Derivative | None, ...], **more: Any
) -> Op:
    """Register an elementwise op; `forward` is a ufunc's name or ``forward(xp, *arrays, **attrs)``.

    A derivative is ``(t, y, *xs, **attrs) -> node``, linear in `t`; None where there is none.
    """
    if isinstance(forward, str):
        more["ufunc"], ufunc = forward, forward

        def forward(xp: Any, *arrays: Any) -> Any:
            return getattr(xp, ufunc)(*arrays)

    vjp = tuple(None if d is None else _vjp_of(d, i) for i, d in enumerate(derivatives))

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        parts = [
            broadcast_like(derivative(tan, y, *xs, **attrs), y)
            for tan, derivative in zip(tans, derivatives, strict=True)
            if tan is not None and derivative is not None
        ]
        return add_all(parts)

    has_rule = any(d is not None for d in derivatives)
    rules = {"vjp": vjp, "jvp": jvp} if has_rule else {}
    return register(Op(name, scheme, forward, **rules, **more))


def _vjp_of(derivative: Derivative, argnum: int) -> Derivative:
    def elementwise_vjp(ct: Node, y: Node, *xs: Node, **attrs: Any) -> Node:
        # The adjoint of multiplication by a complex d is multiplication by conj(d).
        ct = conj(derivative(conj(ct), y, *xs, **attrs))
        return unbroadcast(ct, xs[argnum])

    return elementwise_vjp


def unary(
    name: str,
    forward: Any,
    derivative: Derivative | None,
    doc: str,
    *,
    scheme: str = "x[*s] -> x[*s]",
    low: float = -2.0,
    high: float = 2.0,
    attrs: Mapping[str, Any] | None = None,
    **more: Any,
) -> Callable[[Any], Node]:
    """Declare an elementwise op of one argument and return ``op(x)``."""
    samples = tuple(Sample((shape,), attrs or {}, low, high) for shape in _UNARY_SHAPES)
    more.setdefault("samples", samples)
    op = nary_elementwise(name, scheme, forward, (derivative,), doc=doc, **more)

    def function(x: Any) -> Node:
        return build(op, x)

    return _documented(function, op, "x : node\n    Any shape.")


def binary(
    name: str,
    forward: Any,
    derivatives: tuple[Derivative | None, Derivative | None],
    doc: str,
    *,
    scheme: str = "x[*s] -> x[*t] -> x[*s|t]",
    low: float = -2.0,
    high: float = 2.0,
    **more: Any,
) -> Callable[[Any, Any], Node]:
    """Declare a broadcasting elementwise op of two arguments and return ``op(x, y)``."""
    samples = tuple(Sample(shapes, {}, low, high) for shapes in _BINARY_SHAPES)
    more.setdefault("samples", samples)
    op = nary_elementwise(name, scheme, forward, derivatives, doc=doc, **more)

    def function(x: Any, y: Any) -> Node:
        return build(op, x, y)

    return _documented(function, op, "x, y : node, array or scalar\n    Shapes that broadcast.")


def _documented(function: Any, op: Op, parameters: str) -> Any:
    function.__name__ = function.__qualname__ = op.name
    function.op = op
    function.__doc__ = (
        f"{op.doc}\n\nType ``{op.scheme}``.\n\nParameters\n----------\n{parameters}\n\n"
        "Returns\n-------\nNode\n\nRaises\n------\nGraphTypeError, ShapeError\n"
        "    The operands do not fit the type.\n"
    )
    return function


def linear_jvp(op_of: Callable[[], Op]) -> Callable[..., Node | None]:
    """Return the jvp of an op linear in its first argument: the op applied to the tangent."""

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        return None if tans[0] is None else build(op_of(), tans[0], *xs[1:], **attrs)

    return jvp
