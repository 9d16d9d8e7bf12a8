"""Op declarations, the jvp of linear ops, and decorators that write docstring sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from inspect import cleandoc, unwrap
from itertools import groupby
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


F = TypeVar("F", bound=Callable[..., Any])

DIFFERENT = "Shapes differ."
NOT_SQUARE = "The matrices are not square."
MIXED = "The dtypes differ or are bool."
MIXED_LAPACK = "The dtypes differ or are none that LAPACK takes."
NO_FIT = "The shapes do not fit, or there is no such axis."
NO_INDEX = "The dtypes differ, or the index is not of integers."
NO_INTS = "The indices are not integers."
NO_ORDER = "There is no such order."
NO_EPS = "`x` is no float, or `eps` no float >= 0."
NO_NORM = "The dtype is neither float nor complex, or there is no such norm."
NO_POINTS = "There is no such axis, or no points along it."
NO_PARTS = "The dtypes differ, or there is nothing to join."
NO_AXIS = "There is no such axis."
NO_FLOAT = "`x` is no float."
NO_LAPACK = "The dtype is none that LAPACK takes."
NO_REDUCTION = "A dtype does not fit, or there is no such reduction."
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
    """Return a decorator that documents a function as another one where it says nothing itself.

    It adds the parameters that both have, and the section Raises.
    """
    text = clean(other.__doc__ or "")
    theirs, raised = _parameters(text), _section(text, "Raises")

    def document(function: F) -> F:
        names, text = _names(function), clean(function.__doc__ or "")
        known = {name: theirs[name] for name in names if name in theirs}
        text = _with_parameters(text, names, _parameters(text), known)
        if raised and not _section(text, "Raises"):
            text = _with_section(text, "Raises", raised)
        function.__doc__ = text
        return function

    return document


COMMON = {
    "graph: Any": " : Graph or node\n    Where the node belongs.",
    "axis: Any": " : int, tuple of int, or None for all",
    "keepdims: bool": " : bool\n    Keep the axes as dims of size 1.",
    "reduction: str": ' : {"mean", "sum", "none"}',
}
"""What a parameter means unless a docstring says something else, by its name and type."""


def complete(function: Callable[..., Any], text: str) -> str:
    """Return the docstring with the parameters that it leaves out: by `COMMON`, or their types.

    A docstring without a section Parameters gets one if a parameter is in `COMMON`.
    """
    if hasattr(function, "__signature__"):  # of a variant, whose rule documents all of them
        return text
    said, names = _parameters(text), _names(function)
    if said.keys() >= set(names):  # most are whole: import is to be quick
        return text
    types = unwrap(function).__annotations__
    left = {name: f"{name}: {types[name]}" for name in names if name not in said}
    if not said and COMMON.keys().isdisjoint(left.values()):
        return text
    more = {name: COMMON.get(one) or _type(types[name]) for name, one in left.items()}
    return _with_parameters(text, names, said, more)


def _type(annotation: str) -> str:
    kind, optional, _ = annotation.replace("Node", "node").partition(" | None")
    return f" : {kind}, optional" if optional else f" : {kind}"


def _names(function: Any) -> tuple[str, ...]:
    code = unwrap(function).__code__  # quicker than a signature
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


_INDENTED = re.compile(r"\n( {0,4})\S")
_ENTRY = re.compile(r"\n(?=\S)")


def clean(text: str) -> str:
    """Return what `inspect.cleandoc` does, quickly for the docstrings of functions of a module."""
    found = _INDENTED.search(text)
    if found is None:
        return cleandoc(text) if "\n" in text else text.strip()
    if len(found[1]) not in (0, 4):
        return cleandoc(text)
    return text.replace(f"\n{found[1]}", "\n").strip()


def _section(text: str, title: str) -> str:
    found = text.partition(f"\n{title}\n{'-' * len(title)}\n")[2]
    return found.partition("\n\n")[0].rstrip("\n")


def _parameters(text: str) -> dict[str, str]:
    """Return what a docstring says behind the name of each parameter."""
    said: dict[str, str] = {}
    section = _section(text, "Parameters")
    for entry in _ENTRY.split(section) if section else ():
        names = entry.partition("\n")[0].partition(" :")[0]
        said |= dict.fromkeys(names.split(", "), entry[len(names) :])
    return said


def _with_parameters(
    text: str, names: Sequence[str], own: Mapping[str, str], more: Mapping[str, str]
) -> str:
    """Add what its `own` section Parameters lacks, in the order of the signature; stars last."""
    if more.keys() <= own.keys():
        return text
    said = {**more, **own}
    order = [*filter(said.get, names), *(name for name in own if name[0] == "*")]
    groups = groupby(order, said.__getitem__)
    return _with_section(text, "Parameters", *[", ".join(one) + what for what, one in groups])


_SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


def _with_section(text: str, title: str, *said: str) -> str:
    """Return a clean docstring with a section, before the sections that follow it."""
    if old := _section(text, title):
        text = text.replace(f"\n\n{title}\n{'-' * len(title)}\n{old}", "")
    place = len(text)
    for later in _SECTIONS[_SECTIONS.index(title) + 1 :]:
        if (found := text.find(f"\n\n{later}\n")) >= 0:
            place = found
            break
    section = "\n".join([title, "-" * len(title), *said])
    return f"{text[:place]}\n\n{section}{text[place:]}"


def _saying(title: str, *said: str) -> Callable[[F], F]:
    """Return a decorator that writes a section."""

    def document(function: F) -> F:
        function.__doc__ = _with_section(clean(function.__doc__ or ""), title, *said)
        return function

    return document
