"""Staging: runs a function that builds nodes as a function of arrays; shared by all transforms."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import update_wrapper
from types import MappingProxyType
from typing import Any

import numpy as np

from actorgraph.autodiff import derivatives
from actorgraph.autodiff.tracing import Arguments, active_graph, lifted, surroundings, tracing
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import FeedError, GraphTypeError
from actorgraph.graph import Graph, Node
from actorgraph.machines import TapeMachine
from actorgraph.machines.event_loops import refuse_in_loop
from actorgraph.machines.options import checked_passes
from actorgraph.rewrite import Pass, rewrite

_TRACES_KEPT = 64


@dataclass(frozen=True, slots=True)
class _Trace:
    """A traced call: the outside values that it read, its machine, and the tree it returns."""

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
    """A function that builds nodes, as a function of arrays; the latest traces are cached."""

    def __init__(self, builder: Callable[..., Any], function: Any) -> None:
        self._builder = builder
        self._function = function
        self._traces: OrderedDict[Hashable, _Trace] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, *tree: Any) -> Any:
        """Return arrays, or nodes if nodes are given or a graph is being traced."""
        leaves, structure = flatten(tree)
        graph = active_graph(leaves)
        if graph is not None:
            with tracing(graph):
                return self._builder(*lifted(graph, tree))
        refuse_in_loop(
            "a transformed function", "await anyio.to_thread.run_sync(function, *arguments)"
        )
        arguments = Arguments.of(leaves, structure)
        trace = self._trace_for(arguments)
        return trace(arguments.arrays)

    def _trace_for(self, arguments: Arguments) -> _Trace:
        around = surroundings(self._function)
        with self._lock:
            trace = self._traces.pop(arguments.key, None)
            if trace is None or not _same(trace.surroundings, around):
                trace = self._trace(arguments, around)
            self._traces[arguments.key] = trace
            while len(self._traces) > _TRACES_KEPT:
                self._traces.popitem(last=False)
            return trace

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
    """Name a transformed function and make it a wrapper of the original."""
    update_wrapper(result, function, updated=())  # without the attributes of `function`
    result.__name__ = result.__qualname__ = f"{kind} of {name_of(function)}"
    result.__doc__ = f"Return the {kind} of {name_of(function)}, see ag.{kind}."
    return result


@dataclass(frozen=True, slots=True)
class Subject:
    """The function to transform.

    With `has_aux` it returns (result, aux); `passes` rewrite its graph before differentiation.
    """

    function: Callable[..., Any]
    name: str
    has_aux: bool
    passes: tuple[Pass, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], has_aux: bool, exact: bool, passes: Any) -> Subject:
        """Check the common options of transforms."""
        if not callable(function):
            raise GraphTypeError(f"expected a function or one node, got {type(function).__name__}")
        early = tuple([one for one in checked_passes(passes, exact) if not one.late])
        return cls(function, name_of(function), has_aux, early)

    def __call__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[list[Node], Structure, Any]:
        """Call the function with nodes; return the leaves and structure of the result, and aux."""
        result, aux = self.function(*args, **kwargs), None
        if self.has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise GraphTypeError(
                    f"with has_aux=True {self.name} has to return (result, anything else), got "
                    f"{type(result).__name__}"
                )
            result, aux = result
        graph = graph_of(args, dict(kwargs))
        nodes, structure = derivatives.output_nodes(graph, result, self.name)
        if self.passes:
            nodes, aux = self._rewritten(nodes, aux)
        return nodes, structure, aux

    def _rewritten(self, nodes: list[Node], aux: Any) -> tuple[list[Node], Any]:
        leaves, structure = flatten(aux)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]
        rewritten = rewrite([*nodes, *(leaves[i] for i in places)], self.passes)
        for i, node in zip(places, rewritten[len(nodes) :], strict=True):
            leaves[i] = node
        return rewritten[: len(nodes)], unflatten(structure, leaves)

    def one(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Node, Any]:
        """Call the function with nodes; return its only result, and aux."""
        nodes, structure, aux = self(args, kwargs)
        if len(nodes) != 1 or structure.parts:
            raise GraphTypeError(
                f"{self.name} returned {structure}, but a gradient needs one array: return it "
                "alone, or (result, anything else) and pass has_aux=True"
            )
        return nodes[0], aux


def check_on_nodes(has_aux: bool = False, exact: bool = True, passes: Any = None) -> None:
    """Raise `FeedError` for options that only functions have."""
    if has_aux:
        raise FeedError("has_aux is for functions; for nodes leave it out")
    if not exact or passes is not None:
        raise FeedError(
            "exact= and passes= are for functions; rewrite nodes before they are differentiated, "
            "as ag.grad(ag.rewrite.rewrite(node), wrt)"
        )


def argnums_of(argnums: Any, wrt: Any, default: Any = 0) -> Any:
    """Return the argument numbers, which may be given as `argnums` or as `wrt`."""
    if wrt is None:
        return argnums
    if isinstance(argnums, bool) or argnums != default:
        raise FeedError(f"argnums={argnums!r} and wrt={wrt!r} mean the same; give only one")
    return wrt


def what_of(argnums: Any, name: str) -> str:
    """Return the words, for errors, for the arguments to differentiate by."""
    return f"an argument of {name}" if argnums is None else f"argument {argnums} of {name}"


def chosen(args: tuple[Any, ...], argnums: int | tuple[int, ...] | None, name: str) -> Any:
    """Return the arguments to differentiate by: one, or a tuple of them; None means all."""
    if argnums is None:
        return args
    count = len(args)
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise FeedError(f"argnums has to be an int or a tuple of ints, got {argnums!r}")
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
    """Return the nodes to differentiate by: default all parameters of the graph."""
    if wrt is not None:
        return wrt
    if isinstance(argnums, int):
        return [node for node in node.graph.parameters if node.dtype.kind in "fcV"]
    return argnums
