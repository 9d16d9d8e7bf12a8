"""`in_blocks`: products of the steps of an array with a matrix, by blocks of steps.

Each block is one product, so its bits depend on its own steps alone, not on the thread that
computes it or when.  So the layers of a recurrent net may overlap in time (see `waves`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from actorgraph.graph import Node, build
from actorgraph.op import FRESH_OUT, Op
from actorgraph.ops._arrays import through_float32
from actorgraph.ops._rules import declare, on
from actorgraph.ops.broadcasting import conj
from actorgraph.ops.linalg import matmul_vjp_y
from actorgraph.ops.shaping import swap_last
from actorgraph.tiles import CUT_FLOPS, compute_parts

_BLOCK_ROWS = 256

_LEAST_FLOPS = CUT_FLOPS / 4
"""Flops from which other workers share a product, since the loop that reads it waits for all."""


def block_of(shape: tuple[int, ...]) -> int:
    """Return the number of steps of a block, for an array of that shape."""
    return max(1, -(-_BLOCK_ROWS // max(1, prod(shape[1:-1]))))


def _in_blocks(xp: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Multiply blocks of steps; each is one product, which another worker may compute."""
    if out is None:
        out = xp.empty((*x.shape[:-1], y.shape[-1]), x.dtype)
    size = block_of(x.shape)
    count = -(-len(x) // size)

    def block(part: int) -> None:
        steps = slice(part * size, (part + 1) * size)
        rows = prod(x[steps].shape[:-1])
        into = out[steps].reshape(rows, y.shape[-1])
        xp.matmul(x[steps].reshape(rows, y.shape[0]), y, out=into)

    if 2.0 * x.size * y.shape[-1] >= _LEAST_FLOPS:
        compute_parts(block, count)
    else:
        for part in range(count):
            block(part)
    return out


IN_BLOCKS: Op = declare(
    "matmul_in_blocks", "n[*s, k] -> n[k, m] -> n[*s, m]", through_float32(_in_blocks),
    vjp=(lambda ct, z, x, y: in_blocks(ct, swap_last(conj(y))), matmul_vjp_y), linear=(0, 1),
    cost=lambda shapes, result, attrs: 2 * prod(result) * shapes[0][-1],
    samples=(
        on((3, 2, 4), (4, 3)), on((300, 2), (2, 3)), on((3, 129, 1), (1, 2)), on((0, 2, 3), (3, 2)),
        on((2, 0, 3), (3, 2)), on((2, 0), (0, 3)),
    ),
    memory=FRESH_OUT, total="sum", in_blas=True,
    doc="Matrix product of blocks of steps, whose bits no other step changes.",
)  # fmt: skip
"""The op of such products."""


def in_blocks(x: Node, y: Node) -> Node:
    """Return the product of an array's steps with a matrix; blocks follow from its shape."""
    return build(IN_BLOCKS, x, y)
