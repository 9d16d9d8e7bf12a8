"""`opaque`: a Python function of arrays as an op, without rules unless they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from actorgraph.errors import GraphTypeError, shown
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Op, Rule, Together
from actorgraph.ops._docs import raises
from actorgraph.ops.define import checked_rules
from actorgraph.options import flag, text
from actorgraph.types import Checks, Shape, dtype_of, shape_from

__all__ = ["opaque"]


@raises(types="`fn` cannot be called, or `dtype` is not supported.")
def opaque(
    fn: Callable[..., Any],
    *,
    shape: Any = None,
    dtype: Any = None,
    vjp: Iterable[Rule | None] | Rule | Together | None = None,
    jvp: Rule | None = None,
    name: str | None = None,
    concurrent: bool = False,
) -> Callable[..., Node]:
    """Return a function on nodes that calls `fn` on arrays in every run.

    For a library call, a simulation or a ``print``.  Nothing is known of `fn`: it has no gradient
    unless `vjp` says so, and asking for one raises where the backward pass is built.  It should be
    a pure function: equal applications are one node, and checkpoints call it again.

    Parameters
    ----------
    fn : callable
        ``fn(*arrays, **attrs) -> array`` on read-only arrays.
    shape : tuple of int, str or None, or callable, optional
        Of the result; default the first argument's.  ``shape(*shapes, **attrs)`` may compute it.
    dtype : dtype, optional
        Of the result; default the first argument's.
    vjp : tuple of rules, or one rule, optional
        As in `ag.ops.define`.  A rule may call another opaque function.
    jvp : callable, optional
        ``jvp(tans, y, *xs, **attrs) -> node``.
    name : str, optional
        Of the op; default the name of `fn`.
    concurrent : bool
        Whether `fn` may run in several threads at once.

    Returns
    -------
    callable
        ``f(*nodes, **attrs) -> Node``; a result of another type fails the run.

    Examples
    --------
    >>> import numpy as np
    >>> from actorgraph.graph import Graph
    >>> ranks = opaque(lambda x: x.argsort().argsort(), dtype="int64", name="ranks")
    >>> ranks(Graph().input("x", shape=("n",), dtype="float64"))
    <ranks_1: int64[n]>
    """
    if not callable(fn):
        raise GraphTypeError(f"opaque takes a function of arrays, got {shown(fn)}")
    name = str(getattr(fn, "__name__", "opaque")) if name is None else text("name", name)
    rules = checked_rules(name, vjp, jvp)
    result = "a0" if dtype is None else dtype_of(dtype).name

    def scheme(arity: int, attrs: Attrs) -> str:
        return " -> ".join([*(f"a{i}[*s{i}]" for i in range(arity)), f"{result}[*out]"])

    def forward(xp: Any, *arrays: Any, **attrs: Any) -> Any:
        return fn(*arrays, **attrs)

    def shape_rule(checks: Checks, first: Shape, *others: Shape, **attrs: Any) -> Shape:
        if shape is None:
            return first
        return shape_from(shape(first, *others, **attrs) if callable(shape) else shape)

    op = Op(
        name, scheme, forward, shape_rule, rules, jvp,
        concurrency=None if flag("concurrent", concurrent) else 1, checked=True,
        doc="A function of arrays that the user has given.",
    )  # fmt: skip

    def apply(*nodes: Any, **attrs: Any) -> Node:
        return build(op, *nodes, **attrs)

    apply.__name__ = apply.__qualname__ = op.name
    return apply
