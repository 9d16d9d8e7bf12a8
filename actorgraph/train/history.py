"""`History`: the figures of each epoch of a training, and their plots."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, final

import numpy as np

from actorgraph.errors import GraphError, near_names, shown
from actorgraph.keywords import answering

_BARS = "▁▂▃▄▅▆▇█"
_MOST_BARS = 60


@answering
@final
class History(Mapping[str, list[Any]]):
    """Figures by name, each a list with an entry for each epoch.

    Names are "loss" and those of metrics, "val_loss" and so on for the validation, "lr", "seconds".
    An epoch without a figure has None.

    Examples
    --------
    >>> import actorgraph as ag
    >>> history = ag.train.History()
    >>> for loss in (4.0, 2.0, 1.0):
    ...     history.add({"loss": loss})
    >>> history["loss"]
    [4.0, 2.0, 1.0]
    >>> print(history)
    loss  4 █▃▁ 1
    """

    def __init__(self) -> None:
        self._figures: dict[str, list[Any]] = {}
        self.epochs = 0

    def add(self, figures: Mapping[str, Any]) -> None:
        """Append the figures of an epoch."""
        for name in (*self._figures, *figures):
            rows = self._figures.setdefault(name, [None] * self.epochs)
            if len(rows) == self.epochs:
                rows.append(figures.get(name))
        self.epochs += 1

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._figures:
            raise KeyError(f"there is no figure {shown(name)}{near_names(name, self._figures)}")
        return self._figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures)

    def __len__(self) -> int:
        return len(self._figures)

    def last(self) -> dict[str, Any]:
        """Return the figures of the last epoch."""
        return {name: rows[-1] for name, rows in self._figures.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"epochs": self.epochs, "figures": {k: [*rows] for k, rows in self._figures.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self.epochs = int(state["epochs"])
        self._figures = {name: [*rows] for name, rows in state["figures"].items()}

    def _curves(self) -> dict[str, list[float]]:
        """Return the figures with one number for each epoch, NaN for a missing one."""
        curves = {}
        for name, rows in self._figures.items():
            numbers = [float("nan") if one is None else one for one in rows]
            if all(np.ndim(one) == 0 for one in numbers):
                curves[name] = [float(one) for one in numbers]
        return curves

    def __str__(self) -> str:
        curves = self._curves()
        width = max(map(len, curves), default=0)
        return "\n".join(
            f"{name:<{width}}  {rows[0]:.4g} {_bars(rows)} {rows[-1]:.4g}"
            for name, rows in curves.items()
            if rows and name != "seconds"
        )

    def __repr__(self) -> str:
        return f"<History of {self.epochs} epochs: {', '.join(self)}>"

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a Matplotlib figure: a panel for each quantity, with training and validation.

        Without Matplotlib (the extra ``plot``) it is a text with a line for each figure.

        Parameters
        ----------
        path : path-like, optional
            A file to write, such as "curve.png"; needs Matplotlib.

        Raises
        ------
        GraphError
            A path was given, and Matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            if path is None:
                return _Text(str(self))
            raise GraphError(
                "a picture needs Matplotlib: pip install 'actorgraph[plot]'; "
                "print(history) shows the curves as text"
            ) from None
        curves = self._curves()
        panels = [name for name in curves if not name.startswith("val_") and name != "seconds"]
        figure = Figure(figsize=(4 * max(len(panels), 1), 3), layout="constrained")
        for place, name in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), place)
            axes.set(title=name, xlabel="epoch")
            for curve, label in ((name, "training"), (f"val_{name}", "validation")):
                if curve in curves:
                    axes.plot(range(1, self.epochs + 1), curves[curve], label=label)
            if f"val_{name}" in curves:
                axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure


class _Text(str):
    """A string whose repr is the string itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _bars(rows: list[float]) -> str:
    """Return a curve as blocks; a long one is averaged over neighbours."""
    count = min(len(rows), _MOST_BARS)
    edges = [len(rows) * place // count for place in range(count + 1)]
    means = np.array([np.mean(rows[start:stop]) for start, stop in pairwise(edges)])
    finite = means[np.isfinite(means)]
    if not finite.size:
        return " " * count
    least, most = finite.min(), finite.max()
    heights = (means - least) / (most - least or 1.0) * (len(_BARS) - 1)
    return "".join(_BARS[round(one)] if np.isfinite(one) else " " for one in heights.tolist())
