"""Tracing: a Python function of arrays, called once with nodes, gives a graph.

Arguments are trees (see `trees`).  NumPy arrays, NumPy scalars and Python floats and complex
numbers become placeholders.  Everything else (ints, bools, strings, functions ...) is static: it is
passed as it is, and each of its values has a separate trace.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import GraphTypeError
from actorgraph.graph import Graph, Node, build
from actorgraph.op import Op
from actorgraph.operands import as_array

_active: ContextVar[Graph | None] = ContextVar("actorgraph_traced_graph", default=None)

_ARGUMENT: Op = Op(
    "argument",
    "a[*s] -> a[*s]",
    lambda xp, x, number: x,
    vjp=(lambda ct, *_, number: ct,),
    jvp=lambda tans, *_, number: tans[0],
    doc="An argument of a transformed function: a node that differs from all others.",
)


@contextmanager
def tracing(graph: Graph) -> Iterator[None]:
    """Make transformed functions that are called in the `with` block add to `graph`."""
    token = _active.set(graph)
    try:
        yield
    finally:
        _active.reset(token)


def active_graph(leaves: Sequence[Any]) -> Graph | None:
    """Return the graph that a call with these leaves adds to, None if there is none."""
    for leaf in leaves:
        if isinstance(leaf, Node):
            return leaf.graph
    return _active.get()


def is_traced(value: Any) -> bool:
    """Return whether an argument becomes a placeholder."""
    return isinstance(value, (np.ndarray, np.generic, float, complex)) or (
        hasattr(value, "__array__") and not isinstance(value, Node)
    )


def lifted(graph: Graph, tree: Any) -> Any:
    """Return the arguments of a call inside a graph, each array or node as a new node.

    So a derivative with respect to an argument does not see other uses of the same node
    (perturbation confusion).
    """
    leaves, structure = flatten(tree)
    return unflatten(structure, [_lifted(graph, leaf) for leaf in leaves])


def _lifted(graph: Graph, leaf: Any) -> Any:
    if isinstance(leaf, Node):
        return build(_ARGUMENT, graph.lift(leaf), number=len(graph))
    if is_traced(leaf):
        return build(_ARGUMENT, graph.constant(as_array(leaf, "an argument")), number=len(graph))
    return leaf


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: their structure and leaves, which are arrays or static values.

    `key` is equal for calls that can share a trace.
    """

    structure: Structure
    leaves: tuple[Any, ...]
    key: Hashable

    @classmethod
    def of(cls, leaves: Sequence[Any], structure: Structure) -> Arguments:
        """Return the record of arguments; an unhashable static one raises `GraphTypeError`."""
        taken: list[Any] = []
        signs: list[Hashable] = []
        for leaf in leaves:
            if is_traced(leaf):
                taken.append(as_array(leaf, "an argument"))
                signs.append((taken[-1].dtype, taken[-1].shape))
                continue
            try:
                hash(leaf)
            except TypeError:
                raise GraphTypeError(
                    f"an argument is a {type(leaf).__name__}, which is no array, list, tuple or "
                    "dict and cannot be hashed; pass an array, or something hashable"
                ) from None
            taken.append(leaf)
            signs.append((type(leaf), leaf))
        return cls(structure, tuple(taken), (structure, tuple(signs)))

    @property
    def arrays(self) -> list[np.ndarray[Any, Any]]:
        """The leaves that are arrays."""
        return [leaf for leaf in self.leaves if isinstance(leaf, np.ndarray)]

    def placeholders(self, graph: Graph) -> tuple[Any, list[Node]]:
        """Return the arguments with placeholders for arrays, and the placeholders."""
        inputs = [
            graph.input(f"argument_{number}", array.shape, array.dtype)
            for number, array in enumerate(self.arrays)
        ]
        rest = iter(inputs)
        leaves = [next(rest) if isinstance(one, np.ndarray) else one for one in self.leaves]
        return unflatten(self.structure, leaves), inputs


def surroundings(function: Any) -> tuple[Any, ...]:
    """Return the objects that a Python function refers to: closure, globals and defaults.

    A trace stays valid as long as these are the same objects.
    """
    result: list[Any] = []
    while function is not None:
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        if code is not None:
            names = function.__globals__
            result += [names[name] for name in code.co_names if name in names]
            result += [_contents(cell) for cell in function.__closure__ or ()]
            result += function.__defaults__ or ()
        function = getattr(function, "__wrapped__", None)
    return tuple(result)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None
