"""Callbacks of a trainer: progress, early stopping, files, learning rates."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

import numpy as np

from actorgraph._progress import Display, progress_for
from actorgraph.errors import GraphError, near_names, shown
from actorgraph.io import save
from actorgraph.keywords import Answering
from actorgraph.options import choice, flag, positive, real

if TYPE_CHECKING:
    from actorgraph.train.trainer import Trainer


class Callback(Answering):
    """Hooks into `Trainer.fit`; subclass it and override some.

    A method may call ``trainer.stop()``.  An error that it raises ends the training.  Other methods
    whose names begin with ``on_`` are refused.

    Examples
    --------
    >>> import actorgraph as ag
    >>> class Once(ag.train.Callback):
    ...     def on_epoch(self, trainer):
    ...         trainer.stop()
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[Once()])
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        known = [name for name in dir(Callback) if name.startswith("on_")]
        for name in vars(cls):
            if name.startswith("on_") and name not in known:
                raise GraphError(
                    f"{cls.__name__}.{name} would never be called{near_names(name, known)}; the "
                    f"methods that a trainer calls are {', '.join(known)}"
                )

    def on_begin(self, trainer: Trainer) -> None:
        """Training begins, or resumes; it ends after epoch `trainer.epochs`."""

    def on_step(self, trainer: Trainer) -> None:
        """A step is done and counted in `trainer.step`; ``trainer.figures()`` are of this epoch."""

    def on_epoch(self, trainer: Trainer) -> None:
        """An epoch is done and validated; ``trainer.history.last()`` has its figures."""

    def on_interrupt(self, trainer: Trainer) -> None:
        """Ctrl-C was pressed, or the task was cancelled; the last step is complete."""

    def on_end(self, trainer: Trainer) -> None:
        """Training has ended, for whatever reason."""


@final
class Progress(Callback):
    """A live progress bar in a terminal or notebook with rich, else a line for each epoch.

    Parameters
    ----------
    shown : text file or Display, optional
        Where to write, or a display; default standard error.

    Examples
    --------
    >>> import actorgraph as ag
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> callback = ag.train.Progress()
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[callback])
    """

    def __init__(self, shown: TextIO | Display | None = None) -> None:
        self._given = shown
        self._shown = Display()

    def on_begin(self, trainer: Trainer) -> None:
        """Draw the bar."""
        given = sys.stderr if self._given is None else self._given
        if not isinstance(given, Display):
            given = progress_for(given)
        self._shown = given
        self._shown.begin(trainer.epochs, trainer.steps_per_epoch)

    def on_step(self, trainer: Trainer) -> None:
        """Advance the bar."""
        if self._shown.is_due():
            self._shown.show(trainer.figures())

    def on_epoch(self, trainer: Trainer) -> None:
        """Show the figures of the epoch."""
        self._shown.epoch(trainer.epoch, trainer.history.last())

    def on_end(self, trainer: Trainer) -> None:
        """Release the terminal."""
        self._shown.end()


class _Best:
    """The best value so far of a figure."""

    def __init__(self, monitor: str, mode: str | None, min_delta: float = 0.0) -> None:
        rising = "max" if any(word in monitor for word in _RISING) else "min"
        self.monitor = monitor
        self.mode = rising if mode is None else choice("mode", mode, ("min", "max"))
        self.sign, self.min_delta = (1 if self.mode == "min" else -1), real("min_delta", min_delta)
        self.value = self.sign * inf

    def take(self, figures: Mapping[str, Any]) -> bool:
        """Record the figures, and return whether they are the best so far."""
        value = figures.get(self.monitor)
        if value is None or np.ndim(value):
            known = [name for name, one in figures.items() if one is not None and not np.ndim(one)]
            near = near_names(self.monitor, known)
            raise GraphError(
                f"there is no figure {self.monitor!r} to watch{near}; there are {', '.join(known)}"
            )
        better = self.sign * float(value) < self.sign * self.value - self.min_delta
        if better:
            self.value = float(value)
        return better


_RISING = ("acc", "f1", "top_")
"""Parts of the names of figures that are better when larger."""


@final
class EarlyStopping(Callback):
    """Stop when a figure no longer improves.

    Parameters
    ----------
    monitor : str
    patience : int
        The number of epochs without improvement to allow.
    min_delta : float
        The least change that is an improvement.
    mode : {"min", "max"}, optional
        Default "max" for accuracy, F1 and top-k, else "min".
    restore_best : bool
        Give the model the weights of the best epoch at the end.

    Examples
    --------
    >>> import actorgraph as ag
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> callback = ag.train.EarlyStopping("val_loss", patience=3)
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[callback])
    """

    def __init__(
        self, monitor: str = "val_loss", *, patience: int = 5, min_delta: float = 0.0,
        mode: str | None = None, restore_best: bool = False,
    ) -> None:  # fmt: skip
        self.patience, self.restore_best = patience, flag("restore_best", restore_best)
        self._best = _Best(monitor, mode, min_delta)
        self._bad = 0
        self._state: dict[str, Any] | None = None

    def on_begin(self, trainer: Trainer) -> None:
        """Stop at once if the checkpoint that is resumed was saved after the last allowed epoch."""
        if self._bad > self.patience:
            trainer.stop()

    def on_epoch(self, trainer: Trainer) -> None:
        """Compare the figures, and stop if patience is exhausted."""
        better = self._best.take(trainer.history.last())
        self._bad = 0 if better else self._bad + 1
        if better and self.restore_best:
            self._state = trainer.model.state_dict()
        if self._bad > self.patience:
            trainer.stop()

    def on_end(self, trainer: Trainer) -> None:
        """Restore the best weights, with `restore_best`."""
        self._bad = 0
        if self._state is not None:
            trainer.model.load_state_dict(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"best": self._best.value, "bad": self._bad, "weights": self._state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        self._best.value, self._bad = float(state["best"]), int(state["bad"])
        self._state = state.get("weights")


@final
class Checkpoint(Callback):
    """Keep the last and the best state in ``path/last`` and ``path/best``.

    ``trainer.fit(..., resume=path)`` resumes from the last one.  It has the model, the solver, the
    loader's position, the history, and the states of callbacks.

    Parameters
    ----------
    path : path-like
        A directory, which is made if it does not exist.
    monitor : str, optional
        The figure whose best epoch is kept, such as "val_loss"; None keeps only the last.
    mode : {"min", "max"}, optional
        Default "max" for accuracy, F1 and top-k, else "min".
    every_steps : int, optional
        Also save within epochs, after so many steps.
    keep : int
        How many of the last to keep.

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> callback = ag.train.Checkpoint(tempfile.mkdtemp())
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[callback])
    """

    def __init__(
        self, path: str | os.PathLike[str], *, monitor: str | None = None, mode: str | None = None,
        every_steps: int | None = None, keep: int = 1,
    ) -> None:  # fmt: skip
        self.path, self.keep = Path(path), positive("keep", keep)
        self.every_steps = None if every_steps is None else positive("every_steps", every_steps)
        self._best = None if monitor is None else _Best(monitor, mode)

    def on_step(self, trainer: Trainer) -> None:
        """Save after every `every_steps` steps."""
        if self.every_steps is not None and trainer.step % self.every_steps == 0:
            self.save(trainer)

    def on_epoch(self, trainer: Trainer) -> None:
        """Save the last state, and the best one if this epoch is the best."""
        if self._best is not None and self._best.take(trainer.history.last()):
            self.save(trainer, "best")
        self.save(trainer)

    def on_interrupt(self, trainer: Trainer) -> None:
        self.save(trainer)

    def save(self, trainer: Trainer, name: str = "last") -> None:
        """Save the state of the training."""
        keep = self.keep if name == "last" else 1
        save(self.path / name, keep=keep, **trainer.parts())

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {} if self._best is None else {"best": self._best.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state."""
        if self._best is not None and "best" in state:
            self._best.value = float(state["best"])


@final
class CSV(Callback):
    """Write the history as a table, a row for each epoch.

    Parameters
    ----------
    path : path-like

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> callback = ag.train.CSV(tempfile.mkdtemp() + "/history.csv")
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[callback])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def on_epoch(self, trainer: Trainer) -> None:
        """Write all rows, for there may be new columns."""
        history = trainer.history
        columns = [name for name in history if not any(np.ndim(one) for one in history[name])]
        with self.path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", *columns])
            writer.writerows(
                [epoch + 1, *[history[name][epoch] for name in columns]]
                for epoch in range(history.epochs)
            )


@final
class TensorBoard(Callback):
    """Write the figures of each epoch for TensorBoard; needs the extra ``tensorboard``.

    Parameters
    ----------
    path : path-like
        A directory.

    Raises
    ------
    GraphError
        tensorboardX is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import actorgraph as ag
    >>> callback = ag.train.TensorBoard(tempfile.mkdtemp())  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise GraphError(
                "events for TensorBoard need tensorboardX: pip install 'actorgraph[tensorboard]'"
            ) from None
        self._make = SummaryWriter
        self._writer: Any = None
        self.path = Path(path)

    def on_epoch(self, trainer: Trainer) -> None:
        """Write the numbers of the epoch."""
        if self._writer is None:
            self._writer = self._make(str(self.path))
        for name, value in trainer.history.last().items():
            if value is not None and not np.ndim(value):
                word = name.removeprefix("val_")
                split = "validation" if word != name else "training"
                self._writer.add_scalar(f"{split}/{word}", float(value), trainer.step)
        self._writer.flush()

    def on_end(self, trainer: Trainer) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@final
class LearningRate(Callback):
    """Set the learning rate of each epoch.

    Schedules by steps need no callback: pass them to the solver as ``lr=``.

    Parameters
    ----------
    rate : callable
        Takes the number of the epoch, from 0, and returns the rate.

    Examples
    --------
    >>> import actorgraph as ag
    >>> net, solver = ag.nn.Linear(2, 1), ag.solvers.SGD(0.1)
    >>> rate = ag.train.LearningRate(lambda epoch: 0.1 / (1 + epoch))
    >>> trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, callbacks=[rate])
    """

    def __init__(self, rate: Callable[[int], float]) -> None:
        if not callable(rate):
            raise GraphError(f"expected a function of the epoch, got {shown(rate)}")
        self.rate = rate

    def on_begin(self, trainer: Trainer) -> None:
        """Set the rate of the first epoch."""
        self.on_epoch(trainer)

    def on_epoch(self, trainer: Trainer) -> None:
        """Set the rate of the next epoch."""
        trainer.solver.lr = real("the learning rate", self.rate(trainer.epoch))


def callbacks_of(given: Iterable[Any] | None) -> list[Callback]:
    """Return callbacks, with checkpoints last, for they save the others; None is the default."""
    if given is None:
        return [Progress()] if sys.stderr is not None and sys.stderr.isatty() else []
    found = [*given]
    wrong = [one for one in found if not isinstance(one, Callback)]
    if wrong:
        raise GraphError(
            f"a callback has to be an ag.train.Callback, got {shown(wrong[0])}; subclass it"
        )
    saving = [one for one in found if isinstance(one, Checkpoint)]
    return [*[one for one in found if one not in saving], *saving]
