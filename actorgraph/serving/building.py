"""What a model is added as, and the outputs that it is served as."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from actorgraph._target import called
from actorgraph.errors import GraphError, shown
from actorgraph.graph import Graph, Node
from actorgraph.machines import Machine
from actorgraph.nn import Module

FILE = "model.py"
"""Of a folder that holds a model."""

_ROWS = "batch"


def built(served: Any, example: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """Return outputs or a machine, and an example of the inputs if there is one.

    A module gives the graph that it evaluates, with a dim for the rows of requests: it is called on
    inputs by position, in the order of the example, and gives a node (``"output"``), a dict of
    nodes, or several (``"output_0"`` and so on).

    Raises
    ------
    GraphError
        What a path names cannot be called; a module has no example, it has no rows, or the module
        gives something else.
    """
    if isinstance(served, (str, os.PathLike)):
        served = called(f"{os.path.join(served, FILE)}:model")
    elif callable(served) and not isinstance(served, (Machine, Module)):
        served = served()
    if isinstance(served, tuple) and len(served) == 2 and isinstance(served[1], Mapping):
        served, own = served
        example = own if example is None else example
    return _outputs_of(served, example) if isinstance(served, Module) else served, example


def _outputs_of(served: Module, example: Mapping[str, Any] | None) -> dict[str, Node]:
    name = type(served).__name__
    if not isinstance(example, Mapping) or not example:
        raise GraphError(
            f"{name} needs an example of its inputs, such as "
            f"example={{'x': np.zeros((1, 4), 'float32')}}, got {shown(example)}"
        )
    graph = Graph(name)
    given = [_input(graph, key, np.asarray(value)) for key, value in example.items()]
    modes = [(module, module.training) for module in served.modules()]
    try:
        found = served.eval()(*given)
    finally:
        for module, training in modes:
            object.__setattr__(module, "training", training)
    if isinstance(found, Node):
        return {"output": found}
    if isinstance(found, (tuple, list)):
        found = {f"output_{number}": one for number, one in enumerate(found)}
    if not isinstance(found, Mapping) or not all(isinstance(one, Node) for one in found.values()):
        raise GraphError(f"{name} is to give a node, or a dict or list of them, got {shown(found)}")
    return dict(found)


def _input(graph: Graph, name: str, array: np.ndarray[Any, Any]) -> Node:
    if not array.ndim:
        raise GraphError(f"the example of {name!r} has no rows: it has no dims")
    return graph.input(name, (_ROWS, *array.shape[1:]), array.dtype)
