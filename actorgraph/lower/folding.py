"""Constant folding: an op on constants is computed once, when a machine compiles.

The kernel is the one that runs would call, so no bit changes.  Left to the run are ops that warn or
fail (they do so under the run's `np.errstate`), large results (they would live as long as the
machine), ops of the user, and views (they cost nothing).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from actorgraph.graph import Node
from actorgraph.lower.kernels import depends_on_symbols, kernel
from actorgraph.memory.buffers import is_view
from actorgraph.op import CONSTANT
from actorgraph.rewrite.exact import is_pure, restated

_MOST_BYTES = 65_536


def folded(node: Node) -> Node | None:
    """Return the constant that replaces an op on constants or views of them, else None."""
    for part in node.inputs:
        if part.op is CONSTANT:
            continue
        if not part.inputs or part.inputs[0].op is not CONSTANT or not _is_view_of_constants(part):
            return None
    if not node.inputs or not _is_small_and_fixed(node):
        return None
    try:
        with np.errstate(all="raise"):
            given = [_value(part) for part in node.inputs]
            value = kernel(node, np, {})(*given)
    except Exception:  # noqa: BLE001 - whatever an op raises, the run shall raise
        return None
    value = np.asarray(value)
    if value.base is not None or any(value is one for one in given):
        return None  # a copy of a view could have another layout
    if value.dtype != node.dtype or value.shape != node.dims:
        return None
    value.flags.writeable = False
    return restated(node, CONSTANT, (), {"value": value})


def _is_small_and_fixed(node: Node) -> bool:
    """Return whether a node's value is small, and the same in all runs."""
    sizes = [dim for dim in node.dims if isinstance(dim, int)]
    if len(sizes) < node.ndim or prod(sizes) * node.dtype.itemsize > _MOST_BYTES:
        return False
    return is_pure(node.op) and not node.checks and not depends_on_symbols(node)


def _is_view_of_constants(node: Node) -> bool:
    shows = bool(node.inputs) and all(part.op is CONSTANT for part in node.inputs)
    return shows and is_view(node) and _is_small_and_fixed(node)


def _value(node: Node) -> np.ndarray[Any, Any]:
    """Return the value of a constant, or of a view of constants."""
    value: np.ndarray[Any, Any]
    if node.op is CONSTANT:
        value = node.attrs["value"]
    else:
        value = kernel(node, np, {})(*map(_value, node.inputs))
    return value
