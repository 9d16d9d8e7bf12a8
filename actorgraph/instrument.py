"""`Instrument`: hooks that machines call while they work, and the instruments that listen now.

Machines tell of what happens only where `listening` is not empty, and of turns where there is a
`turn_hook`; so nothing is paid when nobody listens but a look.  A hook that raises is logged and
its instrument listens no more: looking at a run never breaks it.  Nothing here knows a machine;
times are those of `time.perf_counter`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from functools import partial
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorgraph.machines.run import Run
    from actorgraph.node_actor import Task

__all__ = [
    "Instrument", "hears_turns", "listen", "listening", "observed", "settle", "silence", "tell",
    "turn_hook",
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

        ``task.spec`` tells its name, direction and steps.  An actor with ops that wait has several
        turns for one run: up to each call, and up to its end.
        """

    def on_call(self, task: Task, run: Run, started: float, ended: float) -> None:
        """A call of an op that waits has ended, on its loop or in its thread, however it did."""

    def on_error(self, run: Run, error: BaseException) -> None:
        """A run ends without results: it failed, was cancelled or is late; told before its end."""

    def on_run_end(self, run: Run) -> None:
        """A run has ended; its results can be read."""


listening: tuple[Instrument, ...] = ()
"""The instruments that are told; replaced, never mutated."""

turn_hook: Callable[..., None] | None = None
"""What tells those of turns that want to hear of them: the scheduler looks at it at every turn."""

_lock = threading.Lock()
_LOOK_S = 0.0001


def listen(instrument: Instrument) -> None:
    """Have the hooks of `instrument` called from now on."""
    with _lock:
        _set((*listening, instrument))


def silence(instrument: Instrument) -> None:
    """Call the hooks of `instrument` no more; nothing happens where it does not listen."""
    with _lock:
        _set(tuple([one for one in listening if one is not instrument]))


def _set(instruments: tuple[Instrument, ...]) -> None:
    global listening, turn_hook
    # Looked up once, and called as it is if it is the only one: there may be a turn every half
    # microsecond, and a loop over one hook costs 0.04.
    hooks = [one.on_turn for one in instruments if hears_turns(one)]
    turn_hook = partial(tell, "on_turn") if len(hooks) > 1 else hooks[0] if hooks else None
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


def settle(tasks: Iterable[Task], timeout_s: float = 1.0) -> None:
    """Wait for the turns that are under way, most often none, to be told of.

    A run ends within its last turn, so who waits for the run goes on before the turn is told of.
    """
    until = perf_counter() + timeout_s
    for task in tasks:
        watch: Any = task.watch
        while watch is not None and watch.gi_running and perf_counter() < until:
            sleep(_LOOK_S)


def _dismiss(instrument: Instrument, hook: str, error: BaseException) -> None:
    import logging  # 3 ms, for a fault of the instrument's only

    silence(instrument)
    logging.getLogger("actorgraph").error(
        "%s of %r raised, so it is not called any more", hook, instrument, exc_info=error
    )


def observed(task: Task) -> Callable[[Any], Task | None]:
    """Return what resumes a task like ``task.send`` and tells of the turn, if it was one.

    The task keeps it, as `Task.observed`.  Like `Task.send` it resumes a generator, which refuses a
    second worker with `ValueError`: so looking at a message and taking it are one thing, and the
    turn is told of with the run that it was for.
    """
    with _lock:
        if task.observed is None:
            watch = task.watch = _watch(task)
            next(watch)
            task.observed = watch.send
    return task.observed


def _watch(task: Task) -> Generator[Task | None, Callable[[Any], None], None]:
    queue = task.ports[0].messages
    run: Run | None = None
    push = yield None
    while True:
        first = queue[0] if queue else None
        if first is None:
            # What the task would do; resumed, it might take a message that comes meanwhile.
            task.wait = queue
            push = yield None
            continue
        started = perf_counter()
        try:
            following = task.send(push)
        except ValueError:
            # A turn that began before anybody listened is under way.  Its worker may have looked
            # for more work already, so ours has to come again.
            following = None
            sleep(_LOOK_S)
        else:
            ended = perf_counter()
            if not (queue and queue[0] is first):
                run = first.run  # nobody else takes messages from the queue
            hook = turn_hook
            if run is not None and hook is not None:
                try:
                    hook(task, run, started, ended)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 - as in `tell`
                    _dismiss(hook.__self__, "on_turn", error)  # type: ignore[attr-defined]
        first = run = None  # a frame that waits keeps no run alive
        push = yield following
