"""Data sets: generated toy problems, and files of the package.

Fisher's irises, 150 flowers of three species measured in centimetres, and the text of Lewis
Carroll's "Alice's Adventures in Wonderland" are in the public domain; the licence of the UCI
handwritten digits, 1,797 images of 8x8 pixels, is in DIGITS_LICENSE.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.options import positive, real

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LARGEST_PIXEL = 16
"""The largest value in the images of digits."""


def spirals(
    count: int = 300, classes: int = 3, noise: float = 0.1, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points on the arms of a spiral, one arm for each class.

    Parameters
    ----------
    count, classes : int
        The number of points, and of arms.
    noise : float
        Standard deviation of noise on the angle, in radians.
    seed : int

    Returns
    -------
    points : ndarray
        Shape (count, 2), float32.
    labels : ndarray
        Shape (count,), int64; classes alternate.

    Examples
    --------
    >>> import actorgraph as ag
    >>> points, labels = ag.data.spirals(6, classes=2)
    >>> points.shape, labels
    ((6, 2), array([0, 1, 0, 1, 0, 1]))
    """
    labels = np.arange(positive("count", count)) % positive("classes", classes)
    radius = np.linspace(0.05, 1.0, count)
    angle = 2 * np.pi * (labels / classes + 0.75 * radius)
    from numpy.random import RandomState  # late: it takes 9 ms

    angle += real("noise", noise) * RandomState(seed).standard_normal(count)
    return _points(radius * np.cos(angle), radius * np.sin(angle)), labels.astype(np.int64)


def moons(
    count: int = 200, noise: float = 0.1, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points on two interleaved half circles.

    Parameters
    ----------
    count : int
        The number of points.
    noise : float
        Standard deviation of noise on the points.
    seed : int

    Returns
    -------
    points : ndarray
        Shape (count, 2), float32.
    labels : ndarray
        Shape (count,), int64; classes alternate.

    Examples
    --------
    >>> import actorgraph as ag
    >>> points, labels = ag.data.moons(4, noise=0.0)
    >>> points.shape, labels
    ((4, 2), array([0, 1, 0, 1]))
    """
    labels = np.arange(positive("count", count)) % 2
    angle, sign = np.linspace(0.0, np.pi, count), 1 - 2 * labels
    from numpy.random import RandomState

    around = real("noise", noise) * RandomState(seed).standard_normal((count, 2))
    points = _points(sign * np.cos(angle) + labels, sign * np.sin(angle) + labels / 2)
    return points + around.astype(np.float32), labels.astype(np.int64)


def _points(x: Any, y: Any) -> NDArray[np.float32]:
    return np.stack([x, y], axis=1).astype(np.float32)


def iris() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return measurements and species of Fisher's irises.

    Returns
    -------
    measures : ndarray
        Shape (150, 4), float64: length and width of sepals and petals in centimetres.
    species : ndarray
        Shape (150,), int64: 0 setosa, 1 versicolor, 2 virginica.

    References
    ----------
    R. A. Fisher, "The use of multiple measurements in taxonomic problems", Annals of Eugenics 7,
    1936.

    Examples
    --------
    >>> import actorgraph as ag
    >>> measures, species = ag.data.iris()
    >>> measures[0], species[[0, 50, 100]]
    (array([5.1, 3.5, 1.4, 0.2]), array([0, 1, 2]))
    """
    from importlib import resources

    table = resources.files("actorgraph.data") / "iris.csv"
    with table.open("r", encoding="ascii") as stream:
        rows = np.loadtxt(stream, delimiter=",", skiprows=1)
    return rows[:, :4].copy(), rows[:, 4].astype(np.int64)


def digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images and labels of the UCI handwritten digits.

    Each call reads the file in the package, so the arrays are the caller's own.

    Returns
    -------
    images : ndarray
        Shape (1797, 64), float32, pixels scaled to [0, 1], in row-major order.
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


def book() -> str:
    r"""Return the text of "Alice's Adventures in Wonderland", for models of characters.

    148,425 ASCII characters of 70 kinds, with title, headings and short lines.

    References
    ----------
    Lewis Carroll, "Alice's Adventures in Wonderland", London, 1865.

    Examples
    --------
    >>> import actorgraph as ag
    >>> text = ag.data.book()
    >>> start = text.index("Alice was")
    >>> text[start : start + 63]
    'Alice was beginning to get very tired of sitting by her sister\n'
    """
    import lzma
    from importlib import resources

    packed = resources.files("actorgraph.data") / "alice.txt.xz"
    return lzma.decompress(packed.read_bytes()).decode("ascii")
