"""Op declarations, the jvp of linear ops, and decorators that write docstring sections."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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
        names = _names(function)
        _add_parameters(function, {name: theirs[name] for name in theirs if name in names})
        if raised and not _section(function.__doc__ or "", "Raises"):
            _saying("Raises", raised)(function)
        return function

    return document


_COMMON = {
    "axis: Any": " : int, tuple of int, or None for all",
    "keepdims: bool": " : bool\n    Keep the axes as dims of size 1.",
    "reduction: str": ' : {"mean", "sum", "none"}',
}
"""What a parameter means unless a docstring says something else, by its name and type."""


def complete(function: Callable[..., Any]) -> None:
    """Document the parameters that a docstring leaves out: by `_COMMON`, or by their types.

    A docstring without a section Parameters gets one if a parameter is in `_COMMON`.
    """
    if hasattr(function, "__signature__"):  # of a variant, whose rule documents all of them
        return
    types, text = unwrap(function).__annotations__, function.__doc__ or ""
    entries = [line.partition(" :")[0].strip() for line in text.splitlines() if " :" in line]
    said = {name for names in entries for name in names.split(", ")}
    names = _names(function)
    if said.issuperset(names):  # most are whole: import is to be quick
        return
    typed = {name: f"{name}: {types[name]}" for name in names}
    has_section = bool(_parameters(clean(text)))
    if has_section or not _COMMON.keys().isdisjoint(typed.values()):
        _add_parameters(
            function,
            {name: _COMMON.get(one) or _type(types[name]) for name, one in typed.items()},
        )


def _type(annotation: str) -> str:
    kind, optional, _ = annotation.replace("Node", "node").partition(" | None")
    return f" : {kind}, optional" if optional else f" : {kind}"


def _names(function: Any) -> tuple[str, ...]:
    code = unwrap(function).__code__  # quicker than a signature
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


def clean(text: str) -> str:
    """Return what `inspect.cleandoc` does, at once where lines have no indentation in common."""
    return text.strip() if re.search(r"\n\S", text) else cleandoc(text)


def _section(text: str, title: str) -> str:
    if title not in text:
        return ""
    found = re.search(rf"(?ms)^{title}\n-+\n(.*?)(?:\n\n|\Z)", text)
    return found[1] if found else ""


def _parameters(text: str) -> dict[str, str]:
    """Return what a docstring says behind the name of each parameter."""
    said: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", _section(text, "Parameters")):
        names = entry.partition("\n")[0].partition(" :")[0]
        said |= dict.fromkeys(names.split(", "), entry[len(names) :])
    said.pop("", None)
    return said


def _add_parameters(function: Callable[..., Any], more: Mapping[str, str]) -> None:
    """Add what a docstring lacks to its section Parameters, as the signature has it; stars last."""
    text = function.__doc__ = clean(function.__doc__ or "")
    own = _parameters(text)
    said = {**more, **own}
    if len(said) == len(own):
        return
    order = [*filter(said.get, _names(function)), *(name for name in own if name[0] == "*")]
    groups = groupby(order, said.__getitem__)
    _saying("Parameters", *[", ".join(names) + what for what, names in groups])(function)


_SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


def _saying(title: str, *said: str) -> Callable[[F], F]:
    """Return a decorator that writes a section, before the sections that follow it."""
    section = "\n".join(["", title, "-" * len(title), *said])
    later = _SECTIONS[_SECTIONS.index(title) + 1 :]
    old = re.compile(rf"(?ms)\n\n{title}\n-+\n.*?(?=\n\n|\Z)")

    def document(function: F) -> F:
        text = old.sub("", clean(function.__doc__ or ""))
        marks = (text.find(f"\n\n{one}\n") for one in later)
        place = next((mark for mark in marks if mark >= 0), len(text))
        function.__doc__ = f"{text[:place]}\n{section}{text[place:]}\n"
        return function

    return document
