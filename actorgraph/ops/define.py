"""`define`: an op of the user's own in one call; `opaque`: a function of arrays as one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from actorgraph.errors import GraphTypeError, counted, shown
from actorgraph.graph import Node, build
from actorgraph.op import Attrs, Memory, Op, Rule, Sample, Together, register
from actorgraph.ops._rules import raises, returns
from actorgraph.options import flag, several, text
from actorgraph.types import Checks, Shape, dtype_of, parse, shape_from

__all__ = ["define", "opaque"]


def define(
    name: str, *, scheme: str | Callable[[int, Attrs], str], forward: Callable[..., Any],
    vjp: Iterable[Rule | None] | Rule | Together | None = None, jvp: Rule | None = None,
    shape: Callable[..., Shape] | None = None,
    cost: Callable[[tuple[tuple[int, ...], ...], tuple[int, ...], Attrs], float] | None = None,
    samples: Iterable[Sample] = (), is_view: bool = False, concurrent: bool = True,
    concurrency: int | None = None, blocking: bool = False, doc: str = "",
) -> Callable[..., Node]:  # fmt: skip
    """Declare an op and return the function ``op(*nodes, **attrs)`` that applies it.

    Parameters
    ----------
    name : str
        An identifier that no other op has.
    scheme : str or callable
        Type as in `actorgraph.types`, or ``scheme(arity, attrs)`` that returns one.
    forward : callable
        ``forward(xp, *arrays, **attrs)`` on read-only arrays; its result is checked against the
        type.  An ``async def`` runs on the event loop of the run's caller, and holds up no worker:
        its calls for all runs in flight are under way at once.  A forward sees the context
        variables of the run's caller.
    vjp : tuple of rules, or one rule, optional
        A rule ``(ct, y, *xs, **attrs) -> node`` per argument, None for one without a gradient; or
        one rule ``(argnum, ct, y, *xs, **attrs) -> node``; or `ag.ops.Together` for many arguments.
    jvp : callable, optional
        ``jvp(tans, y, *xs, **attrs) -> node``; without it forward mode through the op raises.
        `tans` has one tangent per argument, None for one that does not move.
    concurrent : bool
        False is short for ``concurrency=1``.
    concurrency : int, optional
        Most calls of the op at once in the process; others wait for their turn.
    blocking : bool
        True for a forward that mostly waits, such as for a file or a server, and cannot be an
        ``async def``: it is called in a thread of its own and holds up no worker.
    shape, cost, samples, is_view, doc : optional
        As in `actorgraph.op.Op`.

    Raises
    ------
    GraphTypeError
        The name is taken or no identifier, the scheme cannot be read, the number of rules is not
        that of the arguments, `concurrency` is no int of at least 1, or an ``async def`` is called
        blocking.

    Examples
    --------
    >>> import actorgraph as ag
    >>> cube = ag.ops.define("docs_cube", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x * x * x,
    ...               vjp=(lambda ct, y, x: ct * 3 * x * x,))

    Two arguments, of which one alone may move in forward mode:

    >>> times = ag.ops.define(
    ...     "docs_times", scheme="f[*s] -> f[*s] -> f[*s]", forward=lambda xp, x, y: x * y,
    ...     vjp=(lambda ct, z, x, y: ct * y, lambda ct, z, x, y: ct * x),
    ...     jvp=lambda tans, z, x, y: sum(t * v for t, v in zip(tans, (y, x)) if t is not None))

    A call to a service, at most 8 at once:

    >>> import asyncio
    >>> async def ask(xp, x):
    ...     await asyncio.sleep(0.001)
    ...     return x + 1
    >>> asked = ag.ops.define("docs_asked", scheme="f[*s] -> f[*s]", forward=ask, concurrency=8)
    """
    rules = checked_rules(name, vjp, jvp)
    _check(name, scheme, forward, rules)
    if not flag("concurrent", concurrent):
        concurrency = 1
    _check_calls(name, forward, concurrency, blocking)
    for what, rule in (("shape", shape), ("cost", cost)):
        if rule is not None and not callable(rule):
            raise GraphTypeError(f"op {name!r}: {what} has to be a function, got {shown(rule)}")
    tried = tuple(several("samples", samples))
    for sample in tried:
        if not isinstance(sample, Sample):
            raise GraphTypeError(
                f"op {name!r}: a sample looks like ag.ops.Sample(((2, 3), (3,))), with a shape for "
                f"each argument; got {shown(sample)}"
            )
    record = Op(
        name, scheme, forward, shape, rules, jvp, cost, tried,
        memory=Memory(is_view=flag("is_view", is_view)), concurrency=concurrency, checked=True,
        runs_on="loop" if _is_async(forward) else "thread" if blocking else "worker",
        doc=text("doc", doc),
    )  # fmt: skip
    return _function(register(record), record.doc or f"Apply the op {name}, of type ``{scheme}``.")


@raises(types="A rule cannot be called.")
def checked_rules(
    name: Any, vjp: Iterable[Rule | None] | Rule | Together | None, jvp: Any
) -> tuple[Rule | None, ...] | Rule | Together | None:
    """Return the reverse rules of a user's op as `Op` keeps them."""
    if jvp is not None and not callable(jvp):
        raise GraphTypeError(f"op {name!r}: jvp has to be a function of nodes, got {shown(jvp)}")
    if vjp is None or callable(vjp) or isinstance(vjp, Together):
        return vjp
    given: Any = vjp
    rules = tuple(given) if isinstance(given, Iterable) else (given,)
    for rule in rules:
        if rule is not None and not callable(rule):
            what = f"a vjp rule is a function of nodes, got {shown(rule)}"
            raise GraphTypeError(f"op {name!r}: {what}")
    return rules


def _check(name: Any, scheme: Any, forward: Any, rules: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise GraphTypeError(f"an op's name is an identifier, got {shown(name)}")
    if not callable(forward):
        raise GraphTypeError(f"op {name!r}: forward has to be callable, got {shown(forward)}")
    if not isinstance(scheme, str) and not callable(scheme):
        what = "a type such as 'f[*s] -> f[*s]', or a function that returns one"
        raise GraphTypeError(f"op {name!r}: the scheme is {what}, got {shown(scheme)}")
    args = len(parse(scheme).args) if isinstance(scheme, str) else None
    if args is not None and isinstance(rules, tuple) and len(rules) != args:
        taken, has = counted(args, "argument"), counted(len(rules), "vjp rule")
        raise GraphTypeError(f"op {name!r} takes {taken} but has {has}")


def _check_calls(name: str, forward: Any, concurrency: Any, blocking: Any) -> None:
    whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
    if concurrency is not None and not (whole and concurrency >= 1):
        raise GraphTypeError(
            f"op {name!r}: concurrency is the most calls at once, an int of at least 1, or None "
            f"for no limit; got {concurrency!r}"
        )
    if not isinstance(blocking, bool):
        raise GraphTypeError(f"op {name!r}: blocking is True or False, got {blocking!r}")
    if blocking and _is_async(forward):
        raise GraphTypeError(
            f"op {name!r}: an async def runs on the event loop, which it must not block; leave "
            "blocking=True out, or give a plain function"
        )


def _function(record: Op, doc: str | None = None) -> Callable[..., Node]:
    def apply(*args: Any, **attrs: Any) -> Node:
        return build(record, *args, **attrs)

    apply.__name__ = apply.__qualname__ = record.name
    apply.__doc__ = doc
    apply.op = record  # type: ignore[attr-defined]
    return apply


def _is_async(forward: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(forward) or inspect.iscoroutinefunction(
        getattr(forward, "__call__", None)  # noqa: B004 - the method of a callable object
    )


@returns("callable\n    ``f(*nodes, **attrs) -> Node``; a result of another type fails the run.")
@raises(types="`fn` cannot be called, or `dtype` is not supported.")
def opaque(
    fn: Callable[..., Any], *, shape: Any = None, dtype: Any = None,
    vjp: Iterable[Rule | None] | Rule | Together | None = None, jvp: Rule | None = None,
    name: str | None = None, concurrent: bool = False,
) -> Callable[..., Node]:  # fmt: skip
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

    Examples
    --------
    >>> import actorgraph as ag
    >>> import numpy as np
    >>> ranks = ag.ops.opaque(lambda x: x.argsort().argsort(), dtype="int64", name="ranks")
    >>> ranks(ag.Graph().input("x", shape=("n",), dtype="float64"))
    <ranks_1: int64[n]>
    """
    if not callable(fn):
        raise GraphTypeError(f"takes a function of arrays, got {shown(fn)}")
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

    return _function(Op(
        name, scheme, forward, shape_rule, rules, jvp,
        concurrency=None if flag("concurrent", concurrent) else 1, checked=True,
        doc="A function of arrays that the user has given.",
    ))  # fmt: skip
