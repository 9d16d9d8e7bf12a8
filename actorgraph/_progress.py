"""How training shows its progress: a live bar and table, a line per epoch, or nothing.

The live view needs a terminal or a notebook, and the package `rich`; without these there are lines.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Self, TextIO, final

from actorgraph import tables

_REFRESH_S = 0.1
_UNSHOWN = ("lr", "seconds")
_HEADS = ("thread", "actor", "turns", "messages sent", "seconds at work")


@dataclass(slots=True)
class ThreadRow:
    """The work of one thread for actors so far.

    `turns` counts turns of actors, `messages` the messages that they sent; `actor` is the latest.
    """

    thread: str
    turns: int = 0
    messages: int = 0
    busy_s: float = 0.0
    actor: str = ""


class Display:
    """A context manager to which training reports its progress; this one shows nothing."""

    def begin(self, epochs: int, steps_per_epoch: int | None) -> None:
        """Start, with the amount of work as far as it is known."""

    def is_due(self) -> bool:
        """Count a step; return whether it is time for `show`."""
        return False

    def show(self, figures: Mapping[str, Any], threads: Iterable[ThreadRow] = ()) -> None:
        """Show figures of the epoch so far, and the work of threads."""

    def epoch(
        self, number: int, figures: Mapping[str, Any], threads: Iterable[ThreadRow] = ()
    ) -> None:
        """Report the end of an epoch, counted from 1."""

    def say(self, text: str) -> None:
        """Print a line."""

    def end(self) -> None:
        """Release the terminal; called after success, errors and Ctrl-C alike."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.end()


@final
class Lines(Display):
    """Shows one line per epoch, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._epochs = stream, 0

    def begin(self, epochs: int, steps_per_epoch: int | None) -> None:
        self._epochs = epochs

    def epoch(
        self, number: int, figures: Mapping[str, Any], threads: Iterable[ThreadRow] = ()
    ) -> None:
        rows = list(threads)
        work = f"  messages {sum(row.messages for row in rows):,}" if rows else ""
        turns = "".join(f"  {row.thread}: {row.turns:,} turns" for row in rows)
        self.say(f"epoch {number:3d}/{self._epochs}  {_in_words(figures)}{work}{turns}")

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


@final
class LiveView(Display):
    """Shows a bar with the figures of the epoch, and below it the work of each thread."""

    def __init__(self, console: Any) -> None:
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        figures = TextColumn("{task.fields[figures]}")
        described = TextColumn("{task.description}")
        self._bar = Progress(described, BarColumn(), MofNCompleteColumn(), figures)
        self._task: Any = None
        self._epochs = self._steps = 0
        self._shown_at = 0.0
        self._rows: list[ThreadRow] = []
        self._live = Live(get_renderable=self._drawn, console=console)

    def begin(self, epochs: int, steps_per_epoch: int | None) -> None:
        self._epochs = epochs
        total = None if steps_per_epoch is None else epochs * steps_per_epoch
        self._task = self._bar.add_task("training", total=total, figures="")
        self._live.start()

    def is_due(self) -> bool:
        self._steps += 1  # figures are shown ten times a second
        return monotonic() - self._shown_at >= _REFRESH_S

    def show(self, figures: Mapping[str, Any], threads: Iterable[ThreadRow] = ()) -> None:
        self._shown_at, self._rows = monotonic(), list(threads)
        self._bar.update(self._task, completed=self._steps, figures=_in_words(figures))

    def epoch(
        self, number: int, figures: Mapping[str, Any], threads: Iterable[ThreadRow] = ()
    ) -> None:
        self._bar.update(self._task, description=f"epoch {number}/{self._epochs}")
        self.show(figures, threads)

    def say(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def end(self) -> None:
        self._live.stop()

    def _drawn(self) -> Any:
        from rich.console import Group

        if not self._rows:
            return self._bar
        rows = [
            (row.thread, row.actor, f"{row.turns:,}", f"{row.messages:,}", f"{row.busy_s:.2f}")
            for row in self._rows
        ]
        return Group(self._bar, tables.drawn(_HEADS, rows))


def _in_words(figures: Mapping[str, Any]) -> str:
    """Return the figures that are numbers as text, without learning rate and time."""
    numbers = {name: one for name, one in figures.items() if isinstance(one, (int, float))}
    return "  ".join(f"{name} {one:.4f}" for name, one in numbers.items() if name not in _UNSHOWN)


def progress_for(stream: TextIO, *, silent: bool = False) -> Display:
    """Return the display for a stream: none if `silent`, a live view if rich can draw, or lines."""
    if silent:
        return Display()
    console = tables.console(stream)
    return Lines(stream) if console is None else LiveView(console)
