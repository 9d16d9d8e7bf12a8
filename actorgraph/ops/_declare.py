"""Declarers: they hold the algebra that most ops share, so that an op states only its own part.

`unary` and `binary` declare elementwise ops by one derivative per argument: a function linear in
its first argument, which serves as vjp (summed to the argument's shape) and as jvp.  They and
`reduction` register the op and return the function that users call.  `over_axes` makes functions
of one, two and three axes from one rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from actorgraph.graph import Node, build
from actorgraph.op import KEPT, LoopRule, Op, Sample
from actorgraph.ops._rules import F, add_all, declare, each
from actorgraph.ops.broadcasting import (
    REDUCTION_SAMPLES,
    axes_of,
    broadcast_like,
    conj,
    reduced_shape,
    spread,
    unbroadcast,
)
from actorgraph.ops.broadcasting import sum as sum_over

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Derivative: TypeAlias = Callable[..., Any]
Unary: TypeAlias = Callable[[Any], Node]
"""The function that users call for an op of one argument."""
Binary: TypeAlias = Callable[[Any, Any], Node]
"""The function that users call for an op of two arguments."""


class Reduction(Protocol):
    """The function that users call for a reduction over axes."""

    def __call__(self, x: Any, axis: Any = None, keepdims: bool = False) -> Node:
        """Build the node; `axis` is an int, a tuple of ints, or None for all."""


_SHAPES: Mapping[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3, 4),), ((),), ((0, 2),)),
    2: (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,)), ((0, 2), (2,))),
    3: (((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), ()), ((), (3,), ()), ((0, 2), (2,), ())),
}
"""Shapes on which the law tests try an elementwise op, by the number of its arguments."""


def nary_elementwise(
    name: str, scheme: str, forward: Any, derivatives: tuple[Derivative | None, ...],
    flops: float = 1, low: float = -2.0, high: float = 2.0, bools: tuple[int, ...] = (),
    rule: str = "", **more: Any,
) -> Op:  # fmt: skip
    """Register an elementwise op.

    `forward` is the rule of an element, or ``forward(xp, *arrays, **attrs)``.  A rule is the name
    of a ufunc, or an expression of NumPy's functions and the operands ``x, y, z``.  The op, the
    compiled loops and the laws follow from it.  A function may have a `rule` beside it, for the
    loops.  A derivative is ``(t, y, *xs, **attrs) -> node``, linear in `t`; None where it is zero
    or where the argument has none.  `flops` is the cost of an element, in additions; the laws draw
    float arguments from `low` to `high`.  The op is `traced` by default, unless the loop of its
    ufunc is its row.
    """
    if isinstance(forward, str):
        operands = ", ".join("xyz"[: len(derivatives)])
        if forward.isidentifier():
            more["ufunc"], rule = forward, f"{forward}({operands})"
            forward = _calling(forward)
        else:
            rule, forward = forward, _composed(forward, operands)
    if rule:
        more["loop"] = LoopRule("value", rule)
    if "samples" not in more:
        shapes = _SHAPES[len(derivatives)]
        more["samples"] = tuple([Sample(one, {}, low, high, bools=bools) for one in shapes])
    more.setdefault("memory", KEPT)
    more.setdefault("traced", "ufunc" not in more)
    vjp = tuple(None if d is None else _vjp_of(d, i) for i, d in enumerate(derivatives))

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        return add_all([
            broadcast_like(derivative(tan, y, *xs, **attrs), y)
            for tan, derivative in zip(tans, derivatives, strict=True)
            if tan is not None and derivative is not None
        ])  # fmt: skip

    return declare(name, scheme, forward, vjp=vjp, jvp=jvp, cost=each(flops), **more)


def _calling(ufunc: str) -> Any:
    def forward(xp: Any, *arrays: Any) -> Any:
        return getattr(xp, ufunc)(*arrays)

    return forward


def _composed(rule: str, operands: str) -> Any:
    calls = re.sub(r"(\w+)\(", r"xp.\1(", rule)
    return eval(f"lambda xp, {operands}: {calls}")  # a rule of our own


def _vjp_of(derivative: Derivative, argnum: int) -> Derivative:
    def elementwise_vjp(ct: Node, y: Node, *xs: Node, **attrs: Any) -> Node:
        # The adjoint of multiplication by a complex d is multiplication by conj(d).
        ct = conj(derivative(conj(ct), y, *xs, **attrs))
        return unbroadcast(ct, xs[argnum])

    return elementwise_vjp


def unary(
    name: str, derivative: Derivative | None, doc: str, *, forward: Any = None,
    scheme: str = "x[*s] -> x[*s]", notes: str = "", **more: Any,
) -> Unary:  # fmt: skip
    """Declare an elementwise op of one argument and return ``op(x)``.

    Its forward is the ufunc of its name, unless another one is given.
    """
    op = nary_elementwise(name, scheme, forward or name, (derivative,), doc=doc, **more)

    def function(x: Any) -> Node:
        if isinstance(x, Node):
            return x.graph.apply(op, (x,))  # as `build` does, in half the time
        return build(op, x)

    return documented(function, op, "x : node\n    Any shape.", notes)


def binary(
    name: str, derivatives: tuple[Derivative | None, Derivative | None], doc: str, *,
    forward: Any = None, scheme: str = "x[*s] -> x[*t] -> x[*s|t]", notes: str = "", **more: Any,
) -> Binary:  # fmt: skip
    """Declare a broadcasting elementwise op of two arguments, as `unary`; return ``op(x, y)``."""
    op = nary_elementwise(name, scheme, forward or name, derivatives, doc=doc, **more)

    def function(x: Any, y: Any) -> Node:
        if isinstance(x, Node):
            return x.graph.apply(op, (x, y))
        return build(op, x, y)

    return documented(function, op, BROADCAST, notes)


BROADCAST = "x, y : node, array or scalar\n    Shapes that broadcast."


def reduction_op(
    name: str, scheme: str, forward: Any, slope: Derivative | None = None, **more: Any
) -> Op:
    """Register a reduction, ``forward(xp, x, axis, keepdims, **attrs)``.

    `slope` is ``(y, x, **attrs) -> node``, the derivative of the result by each element, or None
    where that is 1; both rules follow from it.
    """
    if slope is not None:
        more = {"vjp": (_reduction_vjp(slope),), "jvp": _reduction_jvp(slope), **more}
    more = {"shape": reduced_shape, "samples": REDUCTION_SAMPLES, "memory": KEPT, **more}
    return declare(name, scheme, forward, **more)


def _reduction_vjp(slope: Derivative) -> Derivative:
    def reduction_vjp(ct: Node, y: Node, x: Node, **attrs: Any) -> Node:
        rate = slope(y, x, **attrs)
        ct = spread(ct, x, attrs["axis"], attrs["keepdims"])
        # The adjoint of multiplication by a complex rate is multiplication by its conjugate.
        return ct if rate is None else ct * conj(rate)

    return reduction_vjp


def _reduction_jvp(slope: Derivative) -> Derivative:
    def reduction_jvp(tans: tuple[Node, ...], y: Node, x: Node, **attrs: Any) -> Node:
        rate = slope(y, x, **attrs)
        t = tans[0] if rate is None else tans[0] * rate
        return sum_over(t, attrs["axis"], attrs["keepdims"])

    return reduction_jvp


def reduction(
    name: str, scheme: str, forward: Any, doc: str, *, notes: str = "", **more: Any
) -> Reduction:
    """Declare a reduction as `reduction_op` does, and return the function of nodes."""
    op = reduction_op(name, scheme, forward, doc=doc, **more)

    def function(x: Any, axis: Any = None, keepdims: bool = False) -> Node:
        return build(op, x, axis=axes_of(axis, x.ndim), keepdims=bool(keepdims))

    return documented(function, op, "x : node", notes)


def documented(
    function: F, op: Op, parameters: str, notes: str = "", name: str = "", doc: str = ""
) -> F:
    """Give a public function its op's name, and a docstring made from the declaration."""
    text = (
        f"{doc or op.doc}\n\nType ``{op.scheme}``.{'  ' if notes else ''}{notes}\n\n"
        f"Parameters\n----------\n{parameters}\n\nReturns\n-------\nNode\n\n"
        "Raises\n------\nGraphTypeError, ShapeError\n    The operands do not fit the type.\n"
    )
    return public(function, name or op.name, text)


def public(function: F, name: str, doc: str | None) -> F:
    """Give a function that was made its public name and its docstring."""
    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = "actorgraph.ops", doc
    return function


_OVER = (
    {"{axes}": "one axis", "{ints}": "int", "{places}": "size"},
    {"{axes}": "two axes", "{ints}": "int or pair of int", "{places}": "height, width"},
    {
        "{axes}": "three axes", "{ints}": "int or triple of int",
        "{places}": "depth, height, width",
    },
)  # fmt: skip


def over_axes(
    rule: Callable[Concatenate[int, P], R], name: str
) -> tuple[Callable[P, R], Callable[P, R], Callable[P, R]]:
    """Return the functions over one, two and three axes; `rule` takes their number first.

    `name` holds ``{n}``.  The rule's docstring is theirs: ``{n}``, ``{axes}``, ``{ints}`` and
    ``{places}`` stand for the number, its word, what is given per axis, and the names of the axes.
    """
    first, second, third = (
        variant(rule, axes, name, {**_OVER[axes - 1], "{n}": str(axes)}) for axes in (1, 2, 3)
    )
    return first, second, third


def variant(
    rule: Callable[Concatenate[T, P], R], given: T, name: str, words: Mapping[str, str]
) -> Callable[P, R]:
    """Return the rule as a function with its first argument fixed to `given`.

    Each key of `words` is replaced by its value in the name and in the docstring.
    """
    for word, meaning in words.items():
        name = name.replace(word, meaning)
    # A copy, so that Python's own errors about arguments show the public name.
    own = FunctionType(rule.__code__, rule.__globals__, name, rule.__defaults__)
    own.__qualname__, own.__kwdefaults__ = name, rule.__kwdefaults__

    @wraps(own)
    def function(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = own(given, *args, **kwargs)
        return result

    text = rule.__doc__ or ""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    function.__doc__ = text
    full = signature(rule)
    function.__signature__ = full.replace(  # type: ignore[attr-defined]
        parameters=[*full.parameters.values()][1:]
    )
    return function
