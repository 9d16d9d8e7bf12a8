"""Layers: the wavefront execution of loops that feed one another, for `waves` and `LoopKernel`.

Iterations are cut into blocks.  A block of a layer waits for the layer's block before, and for the
same block of the layer before.  Invariants: bits do not depend on which worker computes a block;
nothing has side effects, so that after an exception, or a floating-point error that is not ignored,
the caller can compute everything again in sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from actorgraph.lower.inner import Dead
from actorgraph.tiles import compute_parts
from actorgraph.warned import stopping_errors

_LEAST_US = 300.0
"""Least predicted time of a block, for which waking another worker pays off."""


def is_long(us: float, layers: int) -> bool:
    """Return whether that much time is enough for blocks on all layers."""
    return us >= 2 * layers * _LEAST_US


def made_beside(run: Any, begin: Callable[[], tuple[list[list[Any]], int, float, int]]) -> bool:
    """Run layers on this thread and idle workers; return whether all has been computed.

    `begin` returns the layers (fresh stages, of which each layer's last is a loop), the number of
    rows that must divide blocks, the predicted time of the longest iteration, and -1 if positions
    count down, else 1.  `Dead` is raised if the run has died.
    """
    try:
        with np.errstate(**stopping_errors()):
            layers, step, longest_us, direction = begin()
            length = layers[-1][-1].length
            rows = -(-_LEAST_US // max(longest_us, 0.1))
            size = int(-(-rows // step) * step)
            blocks = -(-length // size)
            if len(layers) < 2 or blocks < 2 * len(layers):
                return False
            first = length - (blocks - 1) * size if direction < 0 else size
            bounds = [0, *range(first, length, size), length]
            positions = range(length)[::direction]
            compute_parts(*_tiles(layers, [positions[i:j] for i, j in pairwise(bounds)]))
    except Exception:  # noqa: BLE001 - the sequential form decides whether it is an error
        if run.dead is not None:
            raise Dead from None
        return False
    return True


def _tiles(
    layers: Sequence[Sequence[Any]], cuts: Sequence[range]
) -> tuple[Callable[[int], None], int]:
    """Return a function that computes a block of a layer by number, and the number of blocks.

    Numbers go along diagonals: the blocks that one waits for have lower numbers, so some thread has
    taken them already, and nothing deadlocks.
    """
    order = [
        (layer, at - layer)
        for at in range(len(cuts) + len(layers) - 1)
        for layer in range(len(layers))
        if 0 <= at - layer < len(cuts)
    ]
    ended = {tile: threading.Event() for tile in order}
    failed = threading.Event()

    def compute(part: int) -> None:
        layer, block = order[part]
        try:
            for before in ((layer, block - 1), (layer - 1, block)):
                if before in ended:
                    ended[before].wait()
            for stage in () if failed.is_set() else layers[layer]:
                stage.advance(cuts[block])
        except BaseException:
            failed.set()
            raise
        finally:
            ended[order[part]].set()

    return compute, len(order)
