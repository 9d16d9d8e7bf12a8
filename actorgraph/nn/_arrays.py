"""Modules on arrays: a graph and a machine by mode and type, kept as long as the module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph
from actorgraph.machines import ActorMachine
from actorgraph.node import Node

if TYPE_CHECKING:
    from actorgraph.nn.module import Module

__all__ = ["run_on_arrays"]

_machines: WeakKeyDictionary[Module, dict[Any, Any]] = WeakKeyDictionary()


def run_on_arrays(module: Module, args: Any, kwargs: Any) -> Any:
    """Return what a module computes of arrays, as arrays.

    Raises
    ------
    GraphTypeError
        There is no array among the arguments.
    """
    leaves, structure = flatten((args, kwargs))
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    if not arrays:
        raise GraphTypeError(
            f"{type(module).__name__} is called on nodes or arrays, got "
            f"{', '.join(map(shown, leaves)) or 'nothing'}; np.asarray makes an array of a list"
        )
    kinds = [_kind(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    modes = [one.training for one in module.modules()]
    first: dict[int, str] = {}  # arrays of as many rows have one symbol
    sizes = [len(array) for array in arrays if array.ndim]
    rows = [first.setdefault(size, f"rows_{len(first)}") for size in sizes]
    known = _machines.setdefault(module, {})
    made = None
    for dims in (rows, sizes):  # layers may have to know how many rows there are
        call = structure, *kinds, *modes, *dims
        made = known.get((call, _held(module)))
        if made is None:
            try:
                made = _made(module, leaves, structure, iter(dims))
            except (GraphTypeError, ShapeError):
                if dims is sizes:
                    raise
                continue
            known[call, _held(module)] = made  # it may have made parameters
        break
    assert made is not None
    machine, names, result = made
    run = machine.run_sync(dict(zip(names, arrays, strict=True)))
    return unflatten(result, [run[name].value for name in machine.outputs])


def _held(module: Module) -> tuple[int, ...]:
    """Return what tells parameters and buffers; those of a machine live as long as it."""
    return tuple(map(id, (*module.parameters(), *module.buffers())))


def _kind(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.dtype, array.ndim, array.shape[1:]


def _made(module: Module, leaves: list[Any], structure: Any, dims: Any) -> tuple[Any, ...]:
    """Return a machine, the names of its feeds, and the structure of its results."""
    graph = Graph(type(module).__name__)
    given: list[Any] = []
    names: list[str] = []
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            names.append(f"input_{len(names)}")
            shape = (next(dims), *leaf.shape[1:]) if leaf.ndim else ()
            given.append(graph.input(names[-1], shape, leaf.dtype))
        else:
            given.append(leaf)
    args, kwargs = unflatten(structure, given)
    results, result = flatten(module(*args, **kwargs))
    for one in results:
        if not isinstance(one, Node):
            raise GraphTypeError(
                f"{type(module).__name__}.forward returned {shown(one)}, expected nodes"
            )
    outputs = {f"result_{number}": node for number, node in enumerate(results)}
    return ActorMachine(outputs, wrt=[]), names, result
