"""The UCI handwritten digits: 1,797 images of 8x8 pixels; their licence is in DIGITS_LICENSE.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    >>> import actorgraph as ag
    >>> images, labels = ag.data.digits()
    >>> images.shape, labels[:3]
    ((1797, 64), array([0, 1, 2]))
    """
    from importlib import resources  # 6 ms that only readers of the digits pay

    archive = resources.files("actorgraph.data") / "digits.npz"
    with archive.open("rb") as stream, np.load(stream) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    return images.astype(np.float32) / np.float32(_LARGEST_PIXEL), labels.astype(np.int64)
