"""Op declarations, the jvp of linear ops, and decorators that write docstring sections."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import reduce
from inspect import getdoc
from math import prod
from typing import Any, ParamSpec, TypeVar

from actorgraph.graph import Node, build
from actorgraph.op import REGISTRY, Op, Rule, Sample, register

P = ParamSpec("P")


def add_all(nodes: list[Node]) -> Node | None:
    """Return the sum of the nodes from left to right, or None (a symbolic zero) for none."""
    return reduce(_add, nodes) if nodes else None


def _add(x: Node, y: Node) -> Node:
    return build(REGISTRY["add"], x, y)


def tangents(*rules: Any) -> Rule:
    """Return the jvp that adds the terms of the operands, ``rule(t, y, *xs, **attrs)`` each.

    None stands for an operand that nothing is differentiated by.
    """

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        return add_all([
            rule(tan, y, *xs, **attrs)
            for rule, tan in zip(rules, tans, strict=False)
            if rule is not None and tan is not None
        ])  # fmt: skip

    return jvp


def on(*shapes: tuple[int, ...], **attrs: Any) -> Sample:
    """Return a sample: arguments of these shapes, and these attributes."""
    return Sample(shapes, attrs)


def each(flops: float, of: int | None = None) -> Callable[..., Any]:
    """Return the cost of `flops` additions for each element of the result, or of argument `of`."""

    def cost(shapes: Any, result: Any, attrs: Any) -> Any:
        return flops * prod(result if of is None else shapes[of])

    return cost


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
    """Return the jvp of an op that is linear in some operands: the op applied to each tangent."""

    def jvp(tans: tuple[Node | None, ...], y: Node, *xs: Node, **attrs: Any) -> Node | None:
        op = REGISTRY[name]
        return add_all([
            build(op, *xs[:place], tan, *xs[place + 1 :], **attrs)
            for place in linear
            if (tan := tans[place]) is not None
        ])  # fmt: skip

    return jvp


_MARGIN = "" if sys.version_info >= (3, 13) else "    "
"""The indent of docstrings; from Python 3.13 on they have none."""

F = TypeVar("F", bound=Callable[..., Any])

DIFFERENT = "Shapes differ."
NOT_SQUARE = "The matrices are not square."
MIXED = "The dtypes differ or are bool."
MIXED_LAPACK = "The dtypes differ or are none that LAPACK takes."
NO_INDEX = "The dtypes differ, or the index is not of integers."
NO_EPS = "`x` is no float, or `eps` no float >= 0."
NO_NORM = "The dtype is neither float nor complex, or there is no such norm."
NO_POINTS = "There is no such axis, or no points along it."
NO_PARTS = "The dtypes differ, or there is nothing to join."
NO_AXIS = "There is no such axis."
NO_FLOAT = "`x` is no float."
NO_LAPACK = "The dtype is none that LAPACK takes."
NO_REDUCTION = "Dtypes differ, or there is no such reduction."
WRONG_AXIS = "An axis is out of range or given twice."


def raises(
    types: str = "", shapes: str = "", *, both: str = "", other: str = ""
) -> Callable[[F], F]:
    """Return a decorator that writes the section Raises of a docstring.

    Parameters
    ----------
    types, shapes, both, other : str
        When it raises `GraphTypeError`, `ShapeError`, one of these two, `GraphError`.
    """
    sections = {
        "GraphError": other, "GraphTypeError": types, "GraphTypeError, ShapeError": both,
        "ShapeError": shapes,
    }  # fmt: skip
    return _saying("Raises", *[f"{name}\n    {text}" for name, text in sections.items() if text])


def returns(what: str) -> Callable[[F], F]:
    """Return a decorator that writes the section Returns of a docstring."""
    return _saying("Returns", what)


def as_of(other: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that copies the sections Parameters and Raises of another function."""
    text = getdoc(other) or ""
    sections = [
        _saying(title, *found[1].split("\n"))
        for title in ("Parameters", "Raises")
        if (found := re.search(rf"(?ms)^{title}\n-+\n(.*?)(?:\n\n|\Z)", text))
    ]

    def document(function: F) -> F:
        for write in sections:
            write(function)
        return function

    return document


_SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


def _saying(title: str, *said: str) -> Callable[[F], F]:
    """Return a decorator that inserts a section before the sections that follow it."""
    section = "\n".join(["", title, "-" * len(title), *said]).replace("\n", f"\n{_MARGIN}")
    later = _SECTIONS[_SECTIONS.index(title) + 1 :]

    def document(function: F) -> F:
        text = (function.__doc__ or "").rstrip()
        marks = (text.find(f"\n\n{_MARGIN}{one}\n") for one in later)
        place = next((mark for mark in marks if mark >= 0), len(text))
        function.__doc__ = f"{text[:place]}\n{section}{text[place:]}\n"
        return function

    return document
