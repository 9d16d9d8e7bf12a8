"""Folding constants: an op on constants is computed once, when a machine compiles.

By the kernel that runs would use, so no bit changes.  What warns or fails is left to the run, under
the run's `np.errstate`; so are large results, which would live as long as the machine, ops of the
user, and views, which cost nothing.
"""

from __future__ import annotations

from math import prod

import numpy as np

from actorgraph.graph import Node
from actorgraph.lower.kernels import depends_on_symbols, kernel
from actorgraph.op import CONSTANT
from actorgraph.rewrite.exact import is_pure, restated

_MOST_BYTES = 65_536


def folded(node: Node) -> Node | None:
    """Return a constant in the place of an op on constants, or None where the run computes it."""
    for part in node.inputs:
        if part.op is not CONSTANT:
            return None
    sizes = [dim for dim in node.dims if isinstance(dim, int)]
    if len(sizes) < node.ndim or prod(sizes) * node.dtype.itemsize > _MOST_BYTES:
        return None
    if not node.inputs or node.checks or not is_pure(node.op) or depends_on_symbols(node):
        return None
    try:
        with np.errstate(all="raise"):
            value = kernel(node, np, {})(*[part.attrs["value"] for part in node.inputs])
    except Exception:  # noqa: BLE001 - whatever an op raises, it shall raise in the run
        return None
    value = np.asarray(value)
    if value.base is not None or any(value is part.attrs["value"] for part in node.inputs):
        return None  # a copy of a view could have another layout
    if value.dtype != node.dtype or value.shape != tuple(sizes):
        return None
    value.flags.writeable = False
    return restated(node, CONSTANT, (), {"value": value})
