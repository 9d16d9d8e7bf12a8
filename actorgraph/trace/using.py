"""`record` and `use`: let an instrument listen for a while, to all machines or to some."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

from actorgraph.instrument import listen, settle, silence
from actorgraph.keywords import answering
from actorgraph.machines import Run
from actorgraph.machines.instrument import Instrument
from actorgraph.machines.life import Lifetime
from actorgraph.trace.recorder import Recorder, assemble
from actorgraph.trace.trace import Trace


@contextmanager
@answering
def record() -> Iterator[Trace]:
    """Record what all machines of the process do inside the ``with`` block.

    The trace can be read when the block has ended.  Recording costs about half a microsecond per
    turn of an actor; nothing blocks.  Small runs, which their caller computes without actors, are
    one slice each: make the machine with ``fuse="none"`` to see every node.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=(2,))
    >>> y = np.tanh(x).named("y")
    >>> with ag.ActorMachine([y], fuse="none") as machine, ag.trace.record() as t:
    ...     run = machine.run_sync({"x": np.ones(2, "float32")})
    >>> [(s.name, s.kind, s.run) for s in t.slices if s.actor is not None]
    [('y', 'forward', 0)]
    """
    recorder = Recorder()
    trace = Trace()
    subscription = listen(recorder)
    try:
        yield trace
    finally:
        settle([task for network in list(recorder.networks) for task in network.tasks])
        silence(subscription)
        trace._fill(assemble(recorder, perf_counter()))


@contextmanager
def use(instrument: Instrument, *machines: Lifetime) -> Iterator[Instrument]:
    """Call the hooks of an instrument inside the ``with`` block; nothing blocks.

    Parameters
    ----------
    instrument : Instrument
    *machines : Machine or Pipeline
        The machines to observe; default all of the process.

    Raises
    ------
    TypeError
        `instrument` is not an instance of `Instrument`, or `machines` are no machines.

    Examples
    --------
    >>> import actorgraph as ag
    >>> class Ends(ag.trace.Instrument):
    ...     def on_run_end(self, run):
    ...         print("run", run.number, "has ended")
    >>> g = ag.Graph()
    >>> x = g.input("x", shape=())
    >>> with ag.ActorMachine([x * 2]) as machine, ag.trace.use(Ends()):
    ...     run = machine.run_sync({"x": 1.0})
    run 0 has ended
    """
    if not isinstance(instrument, Instrument):
        raise TypeError(f"expected an instance of ag.trace.Instrument, got {instrument!r}")
    for machine in machines:
        if not isinstance(machine, Lifetime):
            raise TypeError(f"expected machines after the instrument, got {type(machine).__name__}")
    subscription = listen(_Filtered(instrument, machines) if machines else instrument)
    try:
        yield instrument
    finally:
        silence(subscription)


class _Filtered:
    """Passes on the hooks for runs of some machines; has the attributes of `Instrument`."""

    def __init__(self, instrument: Instrument, machines: tuple[Lifetime, ...]) -> None:
        self._instrument = instrument
        self._machines = machines
        self.hears_turns = instrument.hears_turns

    def __repr__(self) -> str:
        return repr(self._instrument)

    def __getattr__(self, hook: str) -> Callable[..., None]:
        return partial(self._pass_on, getattr(self._instrument, hook))

    def _pass_on(self, hook: Callable[..., None], *args: Any) -> None:
        # A closed machine has no core any more, a compiled step has a plan of its own.  Plans are
        # copied to a list at once, as other threads may add some.
        run = next((one for one in args if isinstance(one, Run)), None)
        if run is None:  # a job of a lane, which several machines may use
            job = args[0]
            placings = [machine._placing for machine in self._machines]
            if any(one is not None and job.lane.device in one.used for one in placings):
                hook(*args)
            return
        if any(
            run.core is machine._core
            or any(run.plan is plan for plan in [*machine._plans.values()])
            for machine in self._machines
        ):
            hook(*args)
