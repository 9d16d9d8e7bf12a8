"""How a training run shows where it is: a live bar, plain lines, or nothing.

The bar needs a terminal and the `rich` package; without either there is one line per epoch.
"""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self, TextIO, final


class AbstractProgress(ABC):
    """Where a training run reports to; used as a context manager around the training."""

    @abstractmethod
    def begin(self, epochs: int, steps_per_epoch: int) -> None:
        """Say how much there is to do."""

    @abstractmethod
    def step(self, loss: float, accuracy: float) -> None:
        """Tell that one step is done, with smoothed figures of the training batches."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line."""

    @abstractmethod
    def end(self) -> None:
        """Give the terminal back; called after success, errors and Ctrl-C alike."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()


@final
class Silent(AbstractProgress):
    """Shows nothing."""

    def begin(self, epochs: int, steps_per_epoch: int) -> None:
        """Do nothing."""

    def step(self, loss: float, accuracy: float) -> None:
        """Do nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


@final
class Lines(AbstractProgress):
    """Shows one line per epoch, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._epochs = self._steps_per_epoch = self._done = 0

    def begin(self, epochs: int, steps_per_epoch: int) -> None:
        """Remember where an epoch ends."""
        self._epochs, self._steps_per_epoch, self._done = epochs, steps_per_epoch, 0

    def step(self, loss: float, accuracy: float) -> None:
        """Print a line if an epoch ends here."""
        self._done += 1
        epoch, rest = divmod(self._done, self._steps_per_epoch)
        if rest == 0:
            self.say(f"epoch {epoch:3d}/{self._epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}")

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        print(text, file=self._stream, flush=True)

    def end(self) -> None:
        """Do nothing."""


@final
class TrainingBar(AbstractProgress):
    """Shows a live bar of rich with loss and accuracy."""

    def __init__(self, rich_progress: Any) -> None:
        self._progress = rich_progress
        self._task: Any = None

    def begin(self, epochs: int, steps_per_epoch: int) -> None:
        """Draw the bar."""
        total = epochs * steps_per_epoch
        self._task = self._progress.add_task("training", total=total, loss=0.0, accuracy=0.0)
        self._progress.start()

    def step(self, loss: float, accuracy: float) -> None:
        """Advance the bar; rich redraws it ten times a second."""
        self._progress.update(self._task, advance=1, loss=loss, accuracy=accuracy)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)

    def end(self) -> None:
        """Stop redrawing and leave the last state on the screen."""
        self._progress.stop()


def progress_for(stream: TextIO, *, silent: bool) -> AbstractProgress:
    """Choose what fits: nothing if `silent`, a bar on a terminal with rich, else lines.

    Parameters
    ----------
    stream : text file
        Where to show it.
    silent : bool
        Show nothing at all.

    Returns
    -------
    AbstractProgress
        Not begun yet.

    Examples
    --------
    >>> import io
    >>> type(progress_for(io.StringIO(), silent=False)).__name__
    'Lines'
    """
    if silent:
        return Silent()
    if not stream.isatty():
        return Lines(stream)
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        return Lines(stream)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.4f}"),
    )
    return TrainingBar(Progress(*columns, console=Console(file=stream)))
