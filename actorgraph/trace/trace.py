"""`Trace`: a recording, and how to read it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from actorgraph.errors import GraphError
from actorgraph.options import positive, real, several, text
from actorgraph.trace.analysis import Summary, summarise
from actorgraph.trace.chrome import events
from actorgraph.trace.page import page
from actorgraph.trace.records import (
    Actor,
    CallSpan,
    MessageSpan,
    PredictedSlice,
    Records,
    RunSpan,
    Slice,
)


@final
class Trace:
    """A recording, made by `record`; readable when its ``with`` block has ended.

    Attributes
    ----------
    duration_s : float
    lanes : tuple of str
        Names of the threads that worked.
    actors : tuple of Actor
    slices : tuple of Slice
        Sorted by start.
    messages : tuple of MessageSpan
        Sorted by the time of sending.
    runs : tuple of RunSpan
    calls : tuple of CallSpan
        Calls of asynchronous ops.
    predicted : dict
        Predicted slices, by the name given to `predict`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2,))
    >>> with ag.ActorMachine([x * 2]) as machine, ag.trace.record() as trace:
    ...     run = machine.run_sync({"x": np.ones(2, "float32")})
    >>> len(trace.runs)
    1
    """

    duration_s: float
    lanes: tuple[str, ...]
    actors: tuple[Actor, ...]
    slices: tuple[Slice, ...]
    messages: tuple[MessageSpan, ...]
    runs: tuple[RunSpan, ...]
    calls: tuple[CallSpan, ...]

    def __init__(self) -> None:
        self._records: Records | None = None
        self.predicted: dict[str, tuple[PredictedSlice, ...]] = {}

    def _fill(self, records: Records) -> None:
        self._records = records

    def _read(self) -> Records:
        if self._records is None:
            raise GraphError("the recording has not ended; read it after its `with` block")
        return self._records

    if not TYPE_CHECKING:  # only names of records exist

        def __getattr__(self, name):
            if name not in type(self).__annotations__:
                raise AttributeError(f"a trace has no {name!r}", name=name, obj=self)
            return getattr(self._read(), name)

    def predict(
        self, slices: Iterable[Any], *, unit_s: float = 1.0, name: str = "predicted"
    ) -> None:
        """Show a predicted timeline beside the measured one, in files and pages made from now on.

        Its time 0 is the start of the first measured turn.

        Parameters
        ----------
        slices : iterable
            Objects with ``lane``, ``start``, ``end`` and ``label``, such as those of a simulator.
        unit_s : float
            The unit of their times, in seconds.
        name : str
            An earlier prediction of the same name is replaced.

        Raises
        ------
        TypeError
            An object is not such a slice.
        """
        predicted, unit_s = several("a list of slices", slices), real("unit_s", unit_s)
        self.predicted[text("name", name)] = tuple(
            PredictedSlice.of(one, unit_s) for one in predicted
        )

    def summary(self, count: int = 10) -> Summary:
        """Return the busiest nodes, the critical path of the longest run, and idle time by cause.

        Parameters
        ----------
        count : int
            Most rows of each table.

        Returns
        -------
        Summary
            `str` gives plain tables; printed by rich, they are drawn.
        """
        return summarise(self._read(), positive("count", count))

    def chrome_events(self) -> list[dict[str, Any]]:
        """Return the events of the Chrome trace format, times in microseconds.

        There is a track per lane, flow arrows along edges, counters of channels, and spans of runs
        and asynchronous calls; predictions are processes of their own.

        Source: Trace Event Format, Google, 2016.
        """
        return events(self._read(), self._placed())

    def to_json(self, path: str | PathLike[str]) -> Path:
        """Write a file for https://ui.perfetto.dev and chrome://tracing; return its path."""
        content = {"traceEvents": self.chrome_events(), "displayTimeUnit": "ms"}
        return _write(path, json.dumps(content, separators=(",", ":")))

    def to_html(self, path: str | PathLike[str], *, title: str = "actorgraph trace") -> Path:
        """Write one page with the timeline and the graph coloured by time; return its path.

        The page is self-contained: it opens in any browser, offline.
        """
        return _write(path, self._page(text("title", title)))

    def _page(self, title: str) -> str:
        return page(self._read(), self._placed(), self.summary(), title)

    def _repr_html_(self) -> str | None:
        from actorgraph.notebook import framed

        return None if self._records is None else framed(self._page("actorgraph trace"))

    def _placed(self) -> dict[str, list[PredictedSlice]]:
        began = next((part.start for part in self.slices if part.actor is not None), 0.0)
        return {name: [one.later(began) for one in parts] for name, parts in self.predicted.items()}

    def __repr__(self) -> str:
        if self._records is None:
            return "<Trace, recording>"
        turns, runs = len(self.slices), len(self.runs)
        return f"<Trace of {turns} slices in {runs} runs, {self.duration_s:.3f} s>"


def _write(path: str | PathLike[str], text: str) -> Path:
    file = Path(path)
    file.write_text(text, encoding="utf-8")
    return file
