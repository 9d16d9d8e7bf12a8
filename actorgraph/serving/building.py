"""Makes a model's outputs from what `Server.add` was given; `configured`."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from actorgraph._target import function_of
from actorgraph.errors import GraphError, shown
from actorgraph.graph import Graph, Node
from actorgraph.machines import Machine
from actorgraph.nn import Module
from actorgraph.serving.config import Config

FILE = "model.py"
"""The file of a folder that holds a model."""

_ROWS = "batch"
_CONFIG = "actorgraph_config"  # of a function

_IMPORTING, _FOLDERS = threading.RLock(), set[str]()

_F = TypeVar("_F", bound=Callable[..., Any])


def configured(**config: Any) -> Callable[[_F], _F]:
    """Decorate a function that makes a model with the config to serve it with.

    The function is one given to `Server.add`, ``model`` in the file of a folder, or the one that
    ``actorgraph serve FILE.py:function`` names.  Calls, files and the environment override it.

    Parameters
    ----------
    **config
        Fields of `Config`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> @ag.serving.configured(max_batch_size=8)
    ... def twice():
    ...     return ag.Graph().input("x", ("rows", 2)) * 2
    >>> with ag.serving.Server() as server:
    ...     server.add("twice", twice).config.max_batch_size
    8
    """
    Config(**config)  # bad values raise here, at the decorator

    def decorated(function: _F) -> _F:
        setattr(function, _CONFIG, config)
        return function

    return decorated


def declared(function: Any) -> Mapping[str, Any]:
    """Return the config with which a function was decorated."""
    config: Mapping[str, Any] = getattr(function, _CONFIG, {})
    return config


def built(
    served: Any, example: Mapping[str, Any] | None
) -> tuple[Any, Mapping[str, Any] | None, Mapping[str, Any]]:
    """Return outputs or a machine, an example of the inputs if there is one, and the own config.

    A module is built in evaluation mode, with a dim for the rows of requests.  It is called on
    inputs by position, in the order of the example, and returns a node (``"output"``), a dict of
    nodes, or a sequence (``"output_0"`` and so on).
    """
    config: Mapping[str, Any] = {}
    if isinstance(served, (str, os.PathLike)):
        with _importing_beside(Path(served)):
            function = function_of(f"{os.path.join(served, FILE)}:model")
            config, served = declared(function), function()
    elif callable(served) and not isinstance(served, (Machine, Module)):
        config, served = declared(served), served()
    if isinstance(served, tuple) and len(served) == 2 and isinstance(served[1], Mapping):
        served, own = served
        example = own if example is None else example
    outputs = _outputs_of(served, example) if isinstance(served, Module) else served
    return outputs, example, config


@contextmanager
def _importing_beside(folder: Path) -> Iterator[None]:
    """Let a model import the files beside it, in their current state.

    Folders may have files of the same names, so those with such files are loaded one at a time.
    """
    if all(file.name == FILE for file in folder.rglob("*.py")):
        yield
        return
    own, writes = str(folder.resolve()), sys.dont_write_bytecode
    with _IMPORTING:
        _FOLDERS.add(own + os.sep)
        names = {file.stem for file in folder.iterdir()}
        for name, module in [*sys.modules.items()]:
            file = getattr(module, "__file__", None) or ""
            if name.partition(".")[0] in names and file.startswith(tuple(_FOLDERS)):
                del sys.modules[name]
        importlib.invalidate_caches()
        sys.path[:] = [own, *(one for one in sys.path if one != own)]
        sys.dont_write_bytecode = True  # it would be stale after two changes within one second
        try:
            yield
        finally:
            sys.dont_write_bytecode = writes


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
        result = served.eval()(*given)
    finally:
        for module, training in modes:
            object.__setattr__(module, "training", training)
    if isinstance(result, Node):
        return {"output": result}
    if isinstance(result, (tuple, list)):
        result = {f"output_{number}": one for number, one in enumerate(result)}
    if not isinstance(result, Mapping) or not all(isinstance(one, Node) for one in result.values()):
        raise GraphError(
            f"{name} has to return a node, or a dict or list of nodes, got {shown(result)}"
        )
    return dict(result)


def _input(graph: Graph, name: str, array: np.ndarray[Any, Any]) -> Node:
    if not array.ndim:
        raise GraphError(f"the example of {name!r} has no rows: it has no dims")
    return graph.input(name, (_ROWS, *array.shape[1:]), array.dtype)
