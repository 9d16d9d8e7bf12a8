"""Layers: loops that feed one another, made at the same time, each behind the one before.

Iterations are cut into blocks.  A block of a layer waits for its own block before, and for the same
block of the layer before.  Who makes which changes no bit.  Nothing of it has side effects: where
anything goes wrong, or NumPy would tell of a floating-point error, who asked computes all of it in
turn, which tells it, fails, or does not.
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
"""A block of a loop that takes less is not worth waking another worker."""


def is_long(us: float, layers: int) -> bool:
    """Return whether there are blocks for so many layers in what takes so long."""
    return us >= 2 * layers * _LEAST_US


def made_beside(run: Any, begin: Callable[[], tuple[list[list[Any]], int, float, int]]) -> bool:
    """Make layers on idle workers too, unless the run dies; return whether it is done.

    `begin` returns the layers, each of stages of which the last is a loop and nothing is computed,
    the number of rows of which blocks are multiples, how long the longest iteration takes, and -1
    where positions count down, else 1.
    """
    try:
        with np.errstate(**stopping_errors()):
            layers, step, longest_us, way = begin()
            length = layers[-1][-1].length
            wanted = -(-_LEAST_US // max(longest_us, 0.1))
            size = int(-(-wanted // step) * step)
            blocks = -(-length // size)
            if len(layers) < 2 or blocks < 2 * len(layers):
                return False
            first = length - (blocks - 1) * size if way < 0 else size
            bounds = [0, *range(first, length, size), length]
            every = range(length)[::way]
            compute_parts(*_tiles(layers, [every[i:j] for i, j in pairwise(bounds)]))
    except Exception:  # noqa: BLE001 - what computes them in turn raises it, or does not
        if run.dead is not None:
            raise Dead from None
        return False
    return True


def _tiles(
    layers: Sequence[Sequence[Any]], cuts: Sequence[range]
) -> tuple[Callable[[int], None], int]:
    """Return what makes a block of a layer, and how many there are.

    They are handed out by diagonals: what one waits for was handed out before, so that somebody is
    making it.
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
