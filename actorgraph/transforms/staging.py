"""Staging: a function that builds nodes, as a function of arrays; what all transforms share."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import numpy as np

from actorgraph.autodiff import derivatives
from actorgraph.autodiff.tracing import Arguments, active_graph, lifted, surroundings, tracing
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import FeedError, GraphError, GraphTypeError
from actorgraph.graph import Graph, Node
from actorgraph.machines import TapeMachine
from actorgraph.machines.run import in_event_loop, in_ipython_kernel

__all__ = [
    "Staged", "argnums_of", "chosen", "graph_of", "name_of", "named", "one_output", "parted",
    "wrt_of",
]  # fmt: skip

_TRACES_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Trace:
    """A traced call: what it read from outside, its machine, and the tree that it returns."""

    surroundings: tuple[Any, ...]
    machine: TapeMachine | None
    inputs: tuple[Node, ...]
    leaves: tuple[Any, ...]
    structure: Structure

    def __call__(self, arrays: list[Any]) -> Any:
        if self.machine is None:
            return unflatten(self.structure, self.leaves)
        feeds = {node.name: array for node, array in zip(self.inputs, arrays, strict=True)}
        run = self.machine.run_sync(feeds)
        seen: set[int] = set()
        results = []
        for leaf in self.leaves:
            if isinstance(leaf, Node):
                result = run[leaf].value
                results.append(np.array(result) if leaf.id in seen else result)
                seen.add(leaf.id)
            else:
                results.append(leaf)
        return unflatten(self.structure, results)


class Staged:
    """A function that builds nodes, as a function of arrays; the latest traces are kept."""

    def __init__(self, builder: Callable[..., Any], function: Any) -> None:
        self._builder = builder
        self._function = function
        self._traces: OrderedDict[Hashable, _Trace] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, *tree: Any) -> Any:
        """Return arrays, or nodes where nodes are given or a graph is being traced."""
        graph = active_graph(flatten(tree)[0])
        if graph is not None:
            with tracing(graph):
                return self._builder(*lifted(graph, tree))
        if in_event_loop() and not in_ipython_kernel():
            raise GraphError(
                "a transformed function would block the running event loop; call it in a thread, "
                "as await anyio.to_thread.run_sync(function, *args), or run a machine on a graph"
            )
        arguments = Arguments.of(tree)
        trace = self._trace_for(arguments)
        return trace([array for array in arguments.arrays if array is not None])

    def _trace_for(self, arguments: Arguments) -> _Trace:
        around = surroundings(self._function)
        with self._lock:
            found = self._traces.pop(arguments.key, None)
            if found is None or not _same(found.surroundings, around):
                found = self._trace(arguments, around)
            self._traces[arguments.key] = found
            while len(self._traces) > _TRACES_KEPT:
                self._traces.popitem(last=False)
            return found

    def _trace(self, arguments: Arguments, around: tuple[Any, ...]) -> _Trace:
        graph = Graph(name_of(self._function))
        tree, inputs = arguments.placeholders(graph)
        with tracing(graph):
            result = self._builder(*tree)
        leaves, structure = flatten(result)
        nodes = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Node)))
        machine = TapeMachine(nodes, wrt=()) if nodes else None
        return _Trace(around, machine, tuple(inputs), tuple(leaves), structure)


def _same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))


def name_of(function: Any) -> str:
    """Return the name of a function for errors."""
    return getattr(function, "__name__", type(function).__name__)


def named(result: Any, kind: str, function: Any) -> Any:
    """Give a transformed function its name; it wraps the original."""
    update_wrapper(result, function, updated=())  # attributes of `function` are its own
    result.__name__ = result.__qualname__ = f"{kind} of {name_of(function)}"
    result.__doc__ = f"Return the {kind} of {name_of(function)}, see ag.{kind}."
    return result


def parted(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """Return what a function has returned as (result, aux)."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GraphTypeError(
            f"with has_aux=True {name} returns (result, anything else), got {type(result).__name__}"
        )
    return result[0], result[1]


def one_output(graph: Graph, tree: Any, name: str) -> Node:
    """Return the only array that a function has returned, or raise `GraphTypeError`."""
    nodes, structure = derivatives.output_nodes(graph, tree, name)
    if len(nodes) != 1 or structure.parts:
        raise GraphTypeError(
            f"{name} returned {structure}; a gradient is of one array: return it alone, or "
            "(result, anything else) and pass has_aux=True"
        )
    return nodes[0]


def argnums_of(argnums: Any, wrt: Any) -> Any:
    """Return the numbers of the arguments of a function, for which `wrt` is the other name."""
    if wrt is None:
        return argnums
    if isinstance(argnums, bool) or argnums != 0:
        raise FeedError(f"argnums={argnums!r} and wrt={wrt!r} say the same of a function; give one")
    return wrt


def chosen(args: tuple[Any, ...], argnums: int | tuple[int, ...], name: str) -> Any:
    """Return the arguments to differentiate by: one, or a tuple of them."""
    count = len(args)
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise FeedError(f"argnums is an int or a tuple of ints, got {argnums!r}")
        if not -count <= number < count:
            raise FeedError(
                f"argnums={argnums!r}, but {name} was called with {count} positional arguments"
            )
    return tuple(args[n] for n in argnums) if isinstance(argnums, tuple) else args[argnums]


def graph_of(*trees: Any) -> Graph:
    """Return the graph of the nodes in the trees, or the one that is being traced."""
    graph = active_graph(flatten(trees)[0])
    assert graph is not None, "builders are called while a graph is traced"
    return graph


def wrt_of(node: Node, argnums: Any, wrt: Any) -> Any:
    """Return what a node is differentiated by: default all parameters of its graph."""
    if wrt is not None:
        return wrt
    if isinstance(argnums, int):
        return [node for node in node.graph.parameters if node.dtype.kind in "fcV"]
    return argnums
