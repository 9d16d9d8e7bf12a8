"""`Padding`: requests of several lengths in one batch, with a mask of the valid elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.graph import Node
from actorgraph.machines.batching import axis_in

Array = np.ndarray[Any, Any]


class Padding:
    """Pads one dim of requests with zeros, and cuts the padding off results.

    The mask is the input that is 1 where a request has data and 0 where it is padded; `nodes` are
    inputs and outputs.  One that cannot be padded along the mask's other dim raises `ShapeError`.
    """

    def __init__(
        self, mask: Node, batch_dim: str, nodes: Iterable[Node], buckets: tuple[int, ...]
    ) -> None:
        dims = [str(dim) for dim in mask.dims]
        if len(dims) != 2 or dims.count(batch_dim) != 1 or not all(map(str.isidentifier, dims)):
            raise ShapeError(
                f"the mask {mask.name!r} ({mask.type}) needs two dims, {batch_dim!r} and the one "
                "that is padded, such as ('batch', 'time')"
            )
        (self.dim,) = (dim for dim in dims if dim != batch_dim)
        self._mask, self._buckets = mask, buckets
        use = "requests are padded"
        self._axes = {node: axis_in(node, self.dim, use) for node in (mask, *nodes)}

    @property
    def has_buckets(self) -> bool:
        """Whether the padded length of a request is independent of the rest of its batch."""
        return bool(self._buckets)

    def mask(self, symbols: dict[str, int]) -> Array:
        """Return the mask of a request that is not padded."""
        shape = [symbols[str(dim)] for dim in self._mask.dims]
        return np.ones(shape, self._mask.dtype)

    def length(self, mask: Array) -> int:
        """Return the length of a request by its mask."""
        return int(mask.shape[self._axes[self._mask] or 0])

    def _padded_length(self, length: int) -> int | None:
        """Return the bucket of a length; None if the longest request of the batch decides."""
        if not self._buckets:
            return None
        return next((bucket for bucket in self._buckets if bucket >= length), length)

    def padded_shape(self, node: Node, shape: tuple[int, ...]) -> tuple[int | None, ...]:
        """Return the shape of an array after padding; None for a length that depends on others."""
        axis = self._axes[node]
        if axis is None:
            return shape
        return (*shape[:axis], self._padded_length(shape[axis]), *shape[axis + 1 :])

    def padded(self, node: Node, arrays: list[Array]) -> list[Array]:
        """Return the arrays of a batch's requests, padded to one length."""
        axis = self._axes[node]
        if axis is None:
            return arrays
        longest = max(array.shape[axis] for array in arrays)
        target = self._padded_length(longest) or longest
        return [_padded(array, axis, target) for array in arrays]

    def cut(self, node: Node, array: Array, length: int) -> Array:
        """Return a result without its padding."""
        axis = self._axes[node]
        return array if axis is None else array[(slice(None),) * axis + (slice(length),)]


def _padded(array: Array, axis: int, target: int) -> Array:
    missing = [(0, 0)] * array.ndim
    missing[axis] = (0, target - array.shape[axis])
    return np.pad(array, missing) if missing[axis][1] else array
