"""The UCI handwritten digits: 1,797 images of 8x8 pixels; their licence is in DIGITS_LICENSE.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_PIXEL = 16


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images and labels of the UCI handwritten digits.

    Each call reads the file in the package anew, so the arrays are the caller's own.

    Returns
    -------
    images : ndarray
        Shape (1797, 64), float32, pixels scaled to [0, 1], rows of the image one after another.
    labels : ndarray
        Shape (1797,), int64, from 0 to 9.

    References
    ----------
    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
    Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0.

    Examples
    --------
    >>> from actorgraph.data import digits
    >>> images, labels = digits()
    >>> images.shape, labels[:3]
    ((1797, 64), array([0, 1, 2]))
    """
    from importlib import resources  # 6 ms that only readers of the digits pay

    archive = resources.files("actorgraph.data") / "digits.npz"
    with archive.open("rb") as stream, np.load(stream) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    return images.astype(np.float32) / np.float32(_LARGEST_PIXEL), labels.astype(np.int64)


def split(
    *arrays: NDArray[Any], test_fraction: float = 0.2
) -> tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]:
    """Split arrays of equal length into a part to train on and a part to test on.

    The shuffle is fixed: equal lengths and fractions give equal parts on every machine.

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

    Raises
    ------
    ValueError
        No array was given, the lengths differ or the fraction is not between 0 and 1.

    Examples
    --------
    >>> from actorgraph.data import digits, split
    >>> (train_images, train_labels), (test_images, test_labels) = split(*digits())
    >>> len(train_images), len(test_images)
    (1438, 359)
    """
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) != 1:
        raise ValueError(f"got arrays of lengths {lengths}, expected one or more of equal length")
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"test_fraction is {test_fraction}, expected a number between 0 and 1")
    # The legacy generator is the one whose stream NumPy promises never to change (NEP 19).
    order = np.random.RandomState(0).permutation(lengths[0])
    test, train = np.split(order, [round(lengths[0] * test_fraction)])
    return tuple(array[train] for array in arrays), tuple(array[test] for array in arrays)
