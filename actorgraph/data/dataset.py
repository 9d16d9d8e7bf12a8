"""`ArrayDataset`: arrays of equal length, read row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.errors import ShapeError
from actorgraph.keywords import answering


@answering
class ArrayDataset:
    """Arrays of equal length; sample `i` is the tuple of their rows `i`.

    Parameters
    ----------
    *arrays : array_like
        Not copied.

    Raises
    ------
    ShapeError
        No array was given, one is a scalar, or the lengths differ.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> dataset = ag.data.ArrayDataset(np.zeros((5, 2)), np.arange(5))
    >>> len(dataset), dataset[3]
    (5, (array([0., 0.]), np.int64(3)))
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(map(np.asarray, arrays))
        if len({array.shape[:1] for array in self.arrays}) != 1 or not self.arrays[0].ndim:
            shapes = [array.shape for array in self.arrays]
            raise ShapeError(f"got arrays of shapes {shapes}, expected one or more of equal length")

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, rows: Any) -> tuple[Any, ...]:
        return tuple(array[rows] for array in self.arrays)

    def __repr__(self) -> str:
        shown = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.arrays)
        return f"ArrayDataset({shown})"
