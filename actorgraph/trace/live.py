"""A live view of machines: current figures, drawn in this process.

An `Instrument` without a hook for turns counts runs, so actors are not slowed down.  Everything
else is read from the machines when the view is drawn.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from actorgraph import tables
from actorgraph.errors import GraphError, printable
from actorgraph.machines.instrument import Instrument
from actorgraph.machines.life import Lifetime
from actorgraph.options import real
from actorgraph.trace.using import use

if TYPE_CHECKING:
    from actorgraph.machines.core import Core
    from actorgraph.machines.run import Run

WINDOW_S = 5.0
"""Seconds over which throughput is averaged."""

_ENDS_KEPT = 100_000
_ACTORS = 20
_MOST_PER_SECOND = 1000.0
_HEADS = ("actor", "depth", "turns", "ms")


@dataclass(frozen=True, slots=True)
class ActorView:
    """An actor: messages in its channels, turns so far, and their seconds.

    Short turns are sampled, so `turns` and `seconds` are extrapolated.
    """

    name: str
    depth: int
    turns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MachineView:
    """A machine at one moment.

    Attributes
    ----------
    name : str
        The name of its graph.
    queued, in_flight : int
        Runs that wait for admission, and runs under way.
    ended, failed, late : int
        Runs since the view started; those without results; of these, those past a deadline.
    per_s : float
        Runs that ended per second, over the last `WINDOW_S` seconds.
    loop_late_s : float or None
        How long the caller's event loop took to serve the last callback; None if no run was
        awaited.
    actors : list of ActorView
        The busiest ones.
    """

    name: str
    workers: int
    busy: int
    queued: int
    in_flight: int
    ended: int
    failed: int
    late: int
    per_s: float
    loop_late_s: float | None
    actors: list[ActorView]


class _Counts:
    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = self.failed = self.late = 0
        self.ends: deque[float] = deque(maxlen=_ENDS_KEPT)
        self.loop_late_s: float | None = None
        self.asked_at: float | None = None  # time of a callback that the loop has not served yet


class Live(Instrument):
    """Counts runs of the machines of this process, and reads the state of these.

    The counts of a machine change under the lock of its core.
    """

    def __init__(self) -> None:
        self._began = monotonic()
        self._counts: WeakKeyDictionary[Core, _Counts] = WeakKeyDictionary()

    def on_run_start(self, run: Run) -> None:
        """Add the run's machine."""
        with run.core.lock:
            if run.core not in self._counts:
                self._counts[run.core] = _Counts(str(run.plan.names.nodes[0].graph.name))

    def on_error(self, run: Run, error: BaseException) -> None:
        with run.core.lock:
            if (counts := self._counts.get(run.core)) is not None:
                counts.failed += 1
                counts.late += isinstance(error, TimeoutError)

    def on_run_end(self, run: Run) -> None:
        with run.core.lock:
            if (counts := self._counts.get(run.core)) is not None:
                counts.ended += 1
                counts.ends.append(monotonic())

    def views(self) -> list[MachineView]:
        """Return the current state of the machines; takes no lock."""
        seen = [core for one in self._counts.keyrefs() if (core := one()) is not None]
        open_ = [core for core in seen if core.is_alive]
        return [self._view(core, self._counts[core]) for core in open_]

    def _view(self, core: Core, counts: _Counts) -> MachineView:
        now = monotonic()
        window = min(WINDOW_S, now - self._began) or WINDOW_S
        recent = sum(now - at <= window for at in counts.ends.copy())
        _ask_loop(core, counts, now)
        scheduler = core.scheduler
        return MachineView(
            name=counts.name,
            workers=scheduler.workers,
            busy=scheduler.workers - len(scheduler.free),
            queued=len(core.admission.queued),
            in_flight=len(core.admission.in_flight),
            ended=counts.ended,
            failed=counts.failed,
            late=counts.late,
            per_s=recent / window,
            loop_late_s=counts.loop_late_s,
            actors=_actors(core),
        )


def _ask_loop(core: Core, counts: _Counts, now: float) -> None:
    """Measure how late the event loop of a run in flight is, by a callback."""
    if counts.asked_at is not None:
        counts.loop_late_s = now - counts.asked_at
        if counts.loop_late_s < WINDOW_S:
            return  # later, the loop may have been closed: ask again, perhaps another one
    hosts = [run.host for run in list(core.admission.in_flight.values()) if run.host is not None]
    counts.asked_at = now if hosts else None
    if hosts and not hosts[0](partial(_answered, counts, now)):
        counts.asked_at = None


def _answered(counts: _Counts, asked_at: float) -> None:
    counts.loop_late_s = monotonic() - asked_at
    counts.asked_at = None


def _actors(core: Core) -> list[ActorView]:
    depths: Counter[str] = Counter()
    turns: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for network in list(core.networks.values()):
        for task in network.tasks:
            name = task.spec.name
            depths[name] += sum(len(channel.messages) for channel in task.ports)
            turns[name] += task.turns
            seconds[name] += task.seconds  # type: ignore[assignment]
    busiest = [name for name, _ in seconds.most_common(_ACTORS)]
    return [ActorView(name, depths[name], turns[name], float(seconds[name])) for name in busiest]


# -- in this process ----------------------------------------------------------------------------


@contextmanager
def top(*machines: Lifetime, per_second: float = 4.0) -> Iterator[Live]:
    """Draw the machines in the terminal while the ``with`` block runs; needs rich.

    When all of them are closed, the last drawing stays.

    Parameters
    ----------
    *machines : Machine or Pipeline
        Default all of the process, each from its first run on.
    per_second : float
        How often it is drawn, by a thread of rich.

    Raises
    ------
    GraphError
        rich is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2,))
    >>> with ag.ActorMachine([x * 2]) as machine, ag.trace.top(machine):  # doctest: +SKIP
    ...     run = machine.run_sync({"x": np.ones(2, "float32")})
    """
    try:
        from rich.live import Live as Screen
    except ImportError:
        raise GraphError("the live view needs rich: pip install 'actorgraph[demo]'") from None
    if not 0.0 < real("per_second", per_second) <= _MOST_PER_SECOND:
        raise ValueError(f"per_second is {per_second}; it has to be above 0, at most 1,000")
    live = Live()
    screen = Screen(
        get_renderable=partial(_table_of, live, []), refresh_per_second=float(per_second)
    )
    with use(live, *machines), screen:
        yield live


def _table_of(live: Live, latest: list[MachineView]) -> Any:
    latest[:] = live.views() or latest
    return table(latest)


def table(views: list[MachineView]) -> Any:
    """Return the view as tables for rich."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for view in views:
        parts += [Text(_head(view)), tables.drawn(_HEADS, [*map(_row, view.actors)])]
    return Group(*parts) if parts else Text("no machine is open and has run")


def text(views: list[MachineView]) -> str:
    """Return the view as plain lines."""
    lines = []
    for view in views:
        rows = tables.lines(_HEADS, [*map(_row, view.actors)])
        lines += [_head(view), *[f"  {line}" for line in rows]]
    return "\n".join(lines) or "no machine is open and has run"


def _head(view: MachineView) -> str:
    late = "" if view.loop_late_s is None else f", loop late {view.loop_late_s * 1e3:.2f} ms"
    return (
        f"{printable(view.name)}: {view.busy} of {view.workers} workers busy, "
        f"{view.in_flight} in flight, {view.queued} queued, {view.per_s:.1f} runs/s, "
        f"{view.ended} ended, {view.failed} failed, {view.late} past a deadline{late}"
    )


def _row(actor: ActorView) -> tuple[str, str, str, str]:
    return printable(actor.name), f"{actor.depth}", f"{actor.turns}", f"{actor.seconds * 1e3:.3f}"
