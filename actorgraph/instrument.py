"""`Instrument`: hooks that machines call while they work, and the instruments that listen now.

Machines tell of what happens only where `listening` is not empty, and of turns where `turn_hooks`
is not; so nothing is paid when nobody listens but a look.  A hook that raises is logged and its
instrument listens no more: looking at a run never breaks it.  Nothing here knows a machine; times
are those of `time.perf_counter`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task

__all__ = [
    "Instrument", "hears_turns", "listen", "listening", "observed", "settle", "silence", "tell",
    "turn_hooks",
]  # fmt: skip


class Instrument:
    """What a tool overrides to be told of runs; every method does nothing by itself.

    Hooks are called in the thread where the thing happens, several threads at once.  They must
    return soon, and must not wait for a run.  Times are in seconds of `time.perf_counter`.

    Examples
    --------
    >>> class Counter(Instrument):
    ...     ended = 0
    ...     def on_run_end(self, run):
    ...         self.ended += 1
    """

    def on_feeds(self, run: Run, started: float, ended: float) -> None:
        """Feeds were checked and the run made (the first of its mode compiles the machine)."""

    def on_run_start(self, run: Run) -> None:
        """A run was started; it may have to wait for its admission."""

    def on_run_admitted(self, run: Run) -> None:
        """A run is in flight; not called for one that its caller computes directly."""

    def on_direct(self, run: Run, started: float, ended: float) -> None:
        """A small run was computed by the calling thread, without actors."""

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """An actor has computed and sent what it makes of one run's messages.

        ``task.spec`` tells its name, direction and steps.  An actor that waits for an asynchronous
        op has several turns for one run.
        """

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        """An asynchronous op of an actor has ended, in whichever way."""

    def on_error(self, run: Run, error: BaseException) -> None:
        """A run ends without results: it failed, was cancelled or is late; told before its end."""

    def on_run_end(self, run: Run) -> None:
        """A run has ended; its results can be read."""


listening: tuple[Instrument, ...] = ()
"""The instruments that are told; replaced, never mutated."""

turn_hooks: tuple[Callable[..., None], ...] = ()
"""Their methods `on_turn`, of those that have one: the scheduler asks at every turn."""

_lock = threading.Lock()


def listen(instrument: Instrument) -> None:
    """Have the hooks of `instrument` called from now on."""
    with _lock:
        _set((*listening, instrument))


def silence(instrument: Instrument) -> None:
    """Call the hooks of `instrument` no more; nothing happens where it does not listen."""
    with _lock:
        _set(tuple([one for one in listening if one is not instrument]))


def _set(instruments: tuple[Instrument, ...]) -> None:
    global listening, turn_hooks
    # Looked up once: there may be a turn every half microsecond.
    turn_hooks = tuple([one.on_turn for one in instruments if hears_turns(one)])
    listening = instruments


def hears_turns(instrument: Instrument) -> bool:
    """Return whether the instrument has an `on_turn` of its own."""
    return type(instrument).on_turn is not Instrument.on_turn


def tell(hook: str, *args: Any) -> None:
    """Call the hook of that name of every instrument that listens."""
    for one in listening:
        try:
            getattr(one, hook)(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a run must not end by being looked at
            _dismiss(one, hook, error)


def _waits_for(task: Task, queues: Iterable[Any]) -> bool:
    return any(task.wait is queue for queue in queues)


def settle(tasks: Iterable[Task], timeout_s: float = 1.0) -> None:
    """Wait for the turns that are under way, most often none, to be told of.

    A run ends within its last turn, so who waits for the run goes on before the turn is told of.
    """
    until = perf_counter() + timeout_s
    for task in tasks:
        while task.free is not None and not task.free and perf_counter() < until:
            sleep(0.0001)


def _dismiss(instrument: Instrument, hook: str, error: BaseException) -> None:
    import logging  # 3 ms, for a fault of the instrument's only

    silence(instrument)
    logging.getLogger("actorgraph").error(
        "%s of %r raised, so it is not called any more", hook, instrument, exc_info=error
    )


def observed(task: Task) -> Callable[[Any], Task | None]:
    """Return what resumes a task like ``task.send`` and tells of the turn, if it was one.

    The task keeps it, as `Task.observed`.  Like the generator, it raises `ValueError` where another
    worker runs the task.  It knows by a token of its own, `Task.free`: a generator refuses a second
    worker only once it is resumed, and looking at a message and taking it have to be one thing, so
    that the turn is told of with the run that it was for.
    """
    with _lock:
        if task.observed is None:
            task.observed = _observed(task)
    return task.observed


def _observed(task: Task) -> Callable[[Any], Task | None]:
    # A closure: turns may last a third of a microsecond, and attributes are felt.
    free = task.free = deque([None])  # a lock; taking it costs a quarter of `threading.Lock`'s
    acquire, release = free.pop, free.append
    ports = [channel.messages for channel in task.ports]
    queue = ports[0]
    now = perf_counter
    parks = any(not step.op.blocking for step in task.spec.steps)
    parked: Run | None = None

    def turn(push: Callable[[Any], None]) -> Task | None:
        nonlocal parked
        try:
            acquire()
        except IndexError:
            raise ValueError("another worker runs this task") from None
        try:
            first: Any = None
            if queue:
                first = queue[0]
            elif not parks:
                # What the task would do; resumed, it might take a message that comes meanwhile.
                task.wait = queue
                return None
            started = now()
            following = task.send(push)
            ended = now()
            after = queue[0] if queue else None  # the queue is looked at once: it may fill
            if (after is not first and first is not None) or parked:
                run = parked or first.run
                if parks:  # having made its results it waits for a port, else for a reply
                    parked = None if _waits_for(task, ports) else run
                for hook in turn_hooks:
                    try:
                        hook(task, run, started, ended)
                    except KeyboardInterrupt:
                        raise
                    except BaseException as error:  # noqa: BLE001 - as in `tell`
                        _dismiss(hook.__self__, "on_turn", error)  # type: ignore[attr-defined]
        finally:
            release(None)
        return following

    return turn
