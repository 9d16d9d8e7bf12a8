"""A sequential evaluator of graphs without machines, for the laws of ops."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import anyio
import numpy as np

from actorgraph.graph import as_nodes, topological_order
from actorgraph.node import Node, Parameter
from actorgraph.op import CONSTANT, Op, bind_attrs
from actorgraph.types import Dim


def evaluate(outputs: Any, feeds: Mapping[Node, Any]) -> list[Any]:
    """Return the value of each output, computed by NumPy in build order; arguments are read-only.

    Parameters
    ----------
    outputs : node or iterable of nodes
    feeds : mapping of nodes to arrays
        Any nodes; their inputs are not computed.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2,), "float64")
    >>> ag.testing.evaluate([x * 2.0], {x: np.ones(2)})
    [array([2., 2.])]
    """
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
            attrs = bind_attrs(node.attrs, symbols)
            make_kernel = node.op.kernel  # of ops with bodies; the kernel gets a run, here None
            values[node] = (
                called(node.op, args, attrs) if make_kernel is None
                else make_kernel(node, symbols, ())(None, *args)
            )  # fmt: skip
    return [values[node] for node in targets]


def called(op: Op, args: Sequence[Any], attrs: Mapping[str, Any], **out: Any) -> Any:
    """Return the result of an op's forward, awaited if it is asynchronous."""
    result = op.forward(np, *args, **out, **attrs)
    if op.runs_on == "loop":
        result = anyio.run(_awaited, result)
    return np.asarray(result) if op.checked else result


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result


def _read_only(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.view()
        value.flags.writeable = False
    return value


def _symbols(values: Mapping[Node, Any]) -> dict[str, int]:
    """Return the sizes that the shapes of the feeds bind plain symbols to."""
    symbols: dict[str, int] = {}
    for node, value in values.items():
        for dim, size in zip(node.dims, value.shape, strict=True):
            if isinstance(dim, Dim) and str(dim).isidentifier():
                known = symbols.setdefault(str(dim), size)
                if known != size:
                    raise ValueError(f"{node!r} is fed {str(dim)!r} = {size}, elsewhere {known}")
    return symbols
