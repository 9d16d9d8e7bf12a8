"""A sequential evaluator of graphs that needs no machine: what the tests of ops stand on."""

import numpy as np

from actorgraph.graph import as_nodes, topological_order
from actorgraph.node import Parameter
from actorgraph.op import CONSTANT, bind_attrs
from actorgraph.types import Dim


def evaluate(outputs, feeds):
    """Return the value of each output under ``feeds`` (node to array), in build order, by NumPy."""
    targets = as_nodes(outputs)
    values = {node: np.asarray(value) for node, value in feeds.items()}
    symbols = _symbols(values)
    for node in topological_order(targets):
        if node in values:
            continue
        if isinstance(node, Parameter):
            values[node] = node.value
        elif node.op is CONSTANT:
            values[node] = node.attrs["value"]
        else:
            args = [_read_only(values[part]) for part in node.inputs]
            values[node] = node.op.forward(np, *args, **bind_attrs(node.attrs, symbols))
    return [values[node] for node in targets]


def _read_only(value):
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _symbols(values):
    """Return what plain symbols are bound to by the shapes of the feeds."""
    symbols = {}
    for node, value in values.items():
        for dim, size in zip(node.dims, value.shape, strict=True):
            if isinstance(dim, Dim) and str(dim).isidentifier():
                assert symbols.setdefault(str(dim), size) == size
    return symbols
