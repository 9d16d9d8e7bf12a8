"""Toy sets: points of the plane in classes that no line parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from actorgraph.options import positive, real

if TYPE_CHECKING:
    from numpy.typing import NDArray


def spirals(
    count: int = 300, classes: int = 3, noise: float = 0.1, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points on arms of a spiral, one arm a class.

    Parameters
    ----------
    count, classes : int
        Points together, and arms.
    noise : float
        Standard deviation of what is added to the angle, in radians.
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
    """Return points on two half circles that reach into one another.

    Parameters
    ----------
    count : int
        Points together.
    noise : float
        Standard deviation of what is added to the points.
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
