"""Programs inside of a step: what an op whose attributes hold graphs calls, once an iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.lower.kernels import kernel
from actorgraph.lower.program import Program, lower_directly
from actorgraph.op import CONSTANT

__all__ = ["ALONE", "Dead", "InBody", "Inner", "between"]


class Dead(Exception):
    """Raised and caught inside an actor when it meets what belongs to a dead run."""


class InBody(Exception):
    """An op has failed in a body; the cause is chained.

    Attributes
    ----------
    program : Program
        Of the body; frames of its function are in the traceback of `cause`.
    iteration : int or None
        The position, None in a branch.
    cause : Exception
    """

    def __init__(self, program: Program, iteration: int | None, cause: Exception) -> None:
        super().__init__()
        self.program = program
        self.iteration = iteration
        self.cause = cause


class _Alone:
    """Stands for the run where a thread computes one by itself, which nobody can cancel."""

    dead = None

    @property
    def context(self) -> Context:
        return copy_context()


ALONE = _Alone()
"""The run of a direct call."""


class Inner:
    """A compiled body.

    Parameters
    ----------
    inputs, results : sequence of Node
        Any nodes of one graph: what is between them is computed.
    symbols : mapping
        What the run binds the dims to.
    watch : tuple of str
        As in `kernels.kernel`.

    Attributes
    ----------
    call : callable
        ``call(run, (), *values) -> list`` of the results.
    program : Program
    """

    __slots__ = ("call", "program")

    def __init__(
        self,
        inputs: Sequence[Node],
        results: Sequence[Node],
        symbols: Mapping[str, int],
        watch: tuple[str, ...] = (),
    ) -> None:
        given = {node.id for node in inputs}
        steps = [node for node in between(inputs, results) if node.id not in given]
        computed = [node for node in steps if node.op is not CONSTANT]
        # What is returned as it is must be a step or a leaf of the program.
        constants = [node for node in results if node.op is CONSTANT]
        leaves = [*inputs, *dict.fromkeys(constants)]
        fixed = [node.attrs["value"] for node in leaves[len(inputs) :]]
        self.program = lower_directly(computed, leaves, results, bound=())
        kernels = [kernel(node, np, symbols, watch=watch) for node in computed]
        values = [node.attrs["value"] for node in self.program.constants]
        made: Callable[..., list[Any]] = self.program.make(*kernels, *values)
        self.call = _with(made, fixed) if fixed else made


def _with(call: Callable[..., list[Any]], fixed: Sequence[Any]) -> Callable[..., list[Any]]:
    def completed(*values: Any) -> list[Any]:
        return call(*values, *fixed)

    return completed


def between(inputs: Sequence[Node], results: Sequence[Node]) -> tuple[Node, ...]:
    """Return what `results` depend on without seeing beyond `inputs`, in build order."""
    known = {node.id for node in inputs}
    found: dict[int, Node] = {}
    stack = list(results)
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            if node.id not in known:
                stack.extend(node.inputs)
    return tuple([found[number] for number in sorted(found)])
