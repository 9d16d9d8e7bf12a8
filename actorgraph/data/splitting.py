"""Splits data into training and test parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph.data.dataset import ArrayDataset
from actorgraph.options import flag, real, whole


def train_test_split(
    *data: Any, test_size: float = 0.25, shuffle: bool = True, seed: int = 0
) -> list[Any]:
    """Split arrays or datasets of equal length into training and test parts.

    Parameters
    ----------
    *data : array_like or ArrayDataset
    test_size : float
        Share of the test part, between 0 and 1; the number of rows is rounded.
    shuffle : bool
        Draw the rows of the test part; otherwise they are the last ones.
    seed : int
        From 0 to below 2**32; equal seeds, lengths and sizes give equal parts on every machine.

    Returns
    -------
    list
        For each of `data` its training part and its test part, as copies.

    Raises
    ------
    ValueError
        Nothing was given, the lengths differ, or a part would be empty.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x_train, x_test, y_train, y_test = ag.data.train_test_split(np.ones((8, 2)), np.arange(8))
    >>> x_train.shape, len(y_test)
    ((6, 2), 2)
    """
    given = [one if isinstance(one, ArrayDataset) else np.asarray(one) for one in data]
    lengths = [len(one) for one in given]
    if len(set(lengths)) != 1:
        raise ValueError(f"got arrays of lengths {lengths}, expected one or more of equal length")
    tested = round(lengths[0] * real("test_size", test_size, 1.0))
    if not 0 < tested < lengths[0]:
        raise ValueError(
            f"test_size={test_size} of {lengths[0]} rows leaves a part empty; "
            "give more rows or another share"
        )
    if flag("shuffle", shuffle):
        # NumPy promises never to change the stream of the legacy generator (NEP 19).
        from numpy.random import RandomState  # late: it takes 9 ms

        test, train = np.split(RandomState(whole("seed", seed)).permutation(lengths[0]), [tested])
    else:
        train, test = np.split(np.arange(lengths[0]), [lengths[0] - tested])
    return [
        ArrayDataset(*one[rows]) if isinstance(one, ArrayDataset) else one[rows]
        for one in given
        for rows in (train, test)
    ]


def split(*arrays: Any, test_fraction: float = 0.2) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Split arrays of equal length as `train_test_split` does, and return a tuple for each part.

    Parameters
    ----------
    *arrays : ndarray
        Arrays whose first axes have the same length.
    test_fraction : float
        Share of the test part, between 0 and 1; the number of rows is rounded.

    Returns
    -------
    train, test : tuples of ndarray
        For each array its two parts, as copies.

    Examples
    --------
    >>> import actorgraph as ag
    >>> data = ag.data.split(*ag.data.digits())
    >>> (train_images, train_labels), (test_images, test_labels) = data
    >>> len(train_images), len(test_images)
    (1438, 359)
    """
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"test_fraction is {test_fraction}, expected a number between 0 and 1")
    parts = train_test_split(*arrays, test_size=test_fraction)
    return tuple(parts[::2]), tuple(parts[1::2])
