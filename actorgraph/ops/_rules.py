"""`declare`: an op as one declaration, and what follows from its being linear."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, ParamSpec

from actorgraph.graph import Node, build
from actorgraph.op import REGISTRY, Op, Rule, register

__all__ = ["add_all", "declare"]

P = ParamSpec("P")


def add_all(nodes: list[Node]) -> Node | None:
    """Return the sum of the nodes from left to right, or None (a symbolic zero) for none."""
    return reduce(_add, nodes) if nodes else None


def _add(x: Node, y: Node) -> Node:
    return build(REGISTRY["add"], x, y)


def _declaring(make: Callable[P, Op]) -> Callable[P, Op]:
    def declare(*args: P.args, **kwargs: P.kwargs) -> Op:
        """Register an op, the arguments being those of `Op`; a linear one gets its jvp."""
        linear: Any = kwargs.get("linear")
        if linear:
            kwargs.setdefault("jvp", _linear_jvp(str(args[0]), linear))
        return register(make(*args, **kwargs))

    return declare


declare = _declaring(Op)


def _linear_jvp(name: str, linear: tuple[int, ...]) -> Rule:
    """Return the jvp of an op that is linear in each of some operands: it of their tangents."""

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        op = REGISTRY[name]
        return add_all([
            build(op, *xs[:place], tan, *xs[place + 1 :], **attrs)
            for place in linear
            if (tan := tans[place]) is not None
        ])  # fmt: skip

    return jvp
