"""Datasets from files: a folder of images, a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, final

import numpy as np

from actorgraph.data.dataset import ArrayDataset
from actorgraph.errors import GraphError, near_names, shown

_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


@final
class Folder:
    """Images in one folder for each class; a sample is an image and the number of its class.

    Attributes
    ----------
    classes : list of str
        Names of the folders, sorted.
    files : list of (Path, int)
    """

    def __init__(self, path: Any, transform: Callable[[Any], Any] | None) -> None:
        root = Path(path)
        if not root.is_dir():
            raise GraphError(
                f"there is no folder {str(root)!r}; give one that has a folder for each class"
            )
        self.transform = transform
        self.classes = sorted(one.name for one in root.iterdir() if one.is_dir())
        self.files = [
            (file, number)
            for number, name in enumerate(self.classes)
            for file in sorted((root / name).rglob("*"))
            if file.suffix.lower() in _ENDINGS
        ]
        if not self.files:
            raise GraphError(f"{str(root)!r} has no folder with images")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        try:
            from PIL import Image
        except ImportError as error:
            raise GraphError("images need Pillow: pip install 'actorgraph[image]'") from error
        file, label = self.files[number]
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        return (image if self.transform is None else self.transform(image)), label


def from_folder(path: str | os.PathLike[str], transform: Any = None) -> Folder:
    """Return the images of a folder that has a folder for each class; they are read on access.

    Parameters
    ----------
    path : path
    transform : callable, optional
        Takes an image of Pillow's in RGB; for instance `transforms.Compose`.

    Raises
    ------
    GraphError
        There is no such folder, or its folders have no image.

    Examples
    --------
    >>> import actorgraph as ag
    >>> dataset = ag.data.from_folder("birds/", ag.data.transforms.ToArray())  # doctest: +SKIP
    >>> loader = ag.data.DataLoader(dataset, 32, shuffle=True, workers=4)  # doctest: +SKIP
    """
    return Folder(path, transform)


def from_csv(
    path: str | os.PathLike[str], target: str | None = None, *, columns: Iterable[str] | None = None
) -> ArrayDataset:
    r"""Return a table with a header line: its columns as float32, and one of them as the target.

    It is read by pandas or PyArrow if installed, else by NumPy.

    Parameters
    ----------
    path : path
    target : str, optional
        A column, which keeps its dtype; strings are numbered in sorted order.
    columns : iterable of str, optional
        The columns of features; default all others.

    Raises
    ------
    GraphError
        A column does not exist, or is not of numbers.

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     file.write("length,width,kind\n1,2.5,b\n3,4,a\n") and file.flush()
    ...     dataset = ag.data.from_csv(file.name, target="kind")
    >>> dataset.arrays
    (array([[1. , 2.5],
           [3. , 4. ]], dtype=float32), array([1, 0]))
    """
    table = _table(path)
    wanted = [name for name in table if name != target] if columns is None else [*columns]
    for name in [*wanted, *([] if target is None else [target])]:
        if name not in table:
            raise GraphError(f"{str(path)!r} has no column {name!r}{near_names(name, table)}")
    try:
        features = np.stack([table[name].astype("float32") for name in wanted], axis=1)
    except ValueError as error:
        raise GraphError(f"a column of {str(path)!r} is not of numbers: {error}") from error
    if target is None:
        return ArrayDataset(features)
    goal = table[target]
    if goal.dtype.kind not in "biufc":
        _, goal = np.unique(goal.astype(str), return_inverse=True)
    return ArrayDataset(features, goal)


def _table(path: Any) -> dict[str, Any]:
    try:
        import pandas
    except ImportError:
        try:
            from pyarrow import csv
        except ImportError:
            return _by_numpy(path)
        table = csv.read_csv(path)
        return {name: table[name].to_numpy() for name in table.column_names}
    read = pandas.read_csv(path)
    return {name: read[name].to_numpy() for name in read}


def _by_numpy(path: Any) -> dict[str, Any]:
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8", ndmin=1)
    if table.dtype.names is None:
        raise GraphError(f"{str(path)!r} has no header line with names: {shown(table)}")
    return {name: table[name] for name in table.dtype.names}
