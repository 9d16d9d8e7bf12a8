"""Graphs for calls of modules on arrays: made once for all arrays of equal dtypes and dims."""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph
from actorgraph.machines import ActorMachine
from actorgraph.node import Node

if TYPE_CHECKING:
    from actorgraph.nn.module import Module


def run_on_arrays(module: Module, leaves: list[Any], structure: Structure) -> Any:
    """Run a module on arrays and return arrays; `GraphTypeError` if no argument is an array.

    `leaves` and `structure` are those of its arguments, ``(args, kwargs)``.
    """
    if not any(isinstance(leaf, np.ndarray) for leaf in leaves):
        raise GraphTypeError(
            f"{type(module).__name__} is called on nodes or arrays, got "
            f"{', '.join(map(shown, leaves)) or 'nothing'}; np.asarray makes an array of a list"
        )

    def key() -> Hashable:
        modules, parts = module._all_own()
        return structure, *[layer.training for layer in modules], *map(id, parts)

    def make(given: list[Any]) -> tuple[Any, Any]:
        args, kwargs = unflatten(structure, given)
        results, result = flatten(module(*args, **kwargs))
        for leaf in results:
            if not isinstance(leaf, Node):
                raise GraphTypeError(
                    f"{type(module).__name__}.forward returned {shown(leaf)}, expected nodes"
                )
        outputs = {f"result_{number}": node for number, node in enumerate(results)}
        return ActorMachine(outputs, wrt=[]), result

    known = vars(module).setdefault("_machines", {})
    try:
        machine, result = made_for(leaves, known, key, make, type(module).__name__)
    except GraphTypeError as error:
        if "mixed dtypes" in str(error):
            _check_floats(module, leaves, error)
        raise
    run = machine.run_sync(fed(leaves))
    return unflatten(result, [run[name].value for name in machine.outputs])


def _check_floats(module: Module, leaves: list[Any], error: GraphTypeError) -> None:
    """Raise, from a layer's error, if an array has another float dtype than the parameters."""
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.dtype.kind in "fV"}
    if len(dtypes) != 1:
        return
    (dtype,) = dtypes
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fV" and leaf.dtype != dtype:
            raise GraphTypeError(
                f"{type(module).__name__} has parameters of {dtype} and was called on an array of "
                f"{leaf.dtype}; write array.astype({dtype.name!r}), or convert the module, "
                f"net.to(dtype={leaf.dtype.name!r})"
            ) from error


def held(module: Module) -> tuple[int, ...]:
    """Return the ids of parameters and buffers, unique while a machine keeps them alive."""
    return tuple(map(id, module._all_own()[1]))


def fed(leaves: list[Any]) -> dict[str, Any]:
    """Return the arrays among leaves as feeds of their graph."""
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    return {f"input_{number}": array for number, array in enumerate(arrays)}


def made_for(
    leaves: list[Any], known: MutableMapping[Any, Any], key: Callable[[], Hashable],
    make: Callable[[list[Any]], Any], name: str,
) -> Any:  # fmt: skip
    """Return the result of `make` for arrays of these dtypes and dims, from the cache `known`.

    `make` takes the leaves with nodes in the place of arrays; other leaves stay as they are.  `key`
    returns the rest of the key; it is called again after `make`, which may change it.

    Arrays with equal numbers of rows share a symbol, so one result serves every number of rows; if
    a layer needs to know the number, the graph, called `name`, is made for that number.
    """
    arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    kinds = [_kind(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    first: dict[int, str] = {}
    sizes = [len(array) for array in arrays if array.ndim]
    rows = [first.setdefault(size, f"rows_{len(first)}") for size in sizes]
    for dims in (rows, sizes):
        result = known.get((*kinds, *dims, key()))
        if result is None:
            try:
                result = make(_inputs(Graph(name), leaves, dims))
            except (GraphTypeError, ShapeError):
                if dims is sizes:
                    raise
                result = _NEEDS_SIZES
            known[(*kinds, *dims, key())] = result
        if result is not _NEEDS_SIZES:
            return result
    raise AssertionError("sizes were refused without an error")


_NEEDS_SIZES = object()
"""Marks in the cache that a symbol for the number of rows was refused."""


def _kind(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    return array.dtype, array.ndim, array.shape[1:]


def _inputs(graph: Graph, leaves: list[Any], dims: list[Any]) -> list[Any]:
    given: list[Any] = []
    left = iter(dims)
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            name = f"input_{sum(isinstance(one, Node) for one in given)}"
            shape = (next(left), *leaf.shape[1:]) if leaf.ndim else ()
            given.append(graph.input(name, shape, leaf.dtype))
        else:
            given.append(leaf)
    return given
