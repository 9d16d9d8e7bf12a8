"""Fisher's irises: 150 flowers of three species, measured in centimetres; in the public domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def iris() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return measures and species of Fisher's irises.

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
