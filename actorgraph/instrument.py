"""The instruments that listen, and how machines call their hooks.

Machines call hooks only if `listening` is not empty, and those of turns only if
`listening_to_turns` is not, so without instruments only that check is paid.  A hook that raises is
logged, and its instrument is removed: observing a run never breaks it.  Nothing here knows a
machine; times are those of `time.perf_counter`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from time import perf_counter, sleep
from typing import Any, TypeAlias, final
from weakref import ref

Task: TypeAlias = Any
"""A `node_actor.Task`; not imported, for this module is in a lower layer."""


@final
class Turns(threading.local):
    """The list of the calling thread, with five fields for each turn: see `trace.recorder`."""

    def __init__(self, lanes: list[tuple[str, list[Any]]]) -> None:
        turns: list[Any] = []
        lanes.append((threading.current_thread().name, turns))
        self.extend = turns.extend


@final
class Listening:
    """A subscription: an instrument listens as long as somebody refers to this.

    It ends by `silence`, or when it is collected; so an interrupt at any point leaves no instrument
    that listens forever.
    """

    __slots__ = ("__weakref__",)


@final
class _Listener(ref[Listening]):
    # Looked up once, for there may be a turn every half microsecond.
    __slots__ = ("instrument", "on_turn", "turns")
    instrument: Any
    on_turn: Callable[..., None]
    turns: Turns | None  # notes turns in place of `on_turn`, which saves a call of Python


listening: set[_Listener] = set()
"""All listeners."""

listening_to_turns: set[_Listener] = set()
"""The listeners with a hook for turns; the scheduler checks it in every turn."""

_lock = threading.Lock()
_LOOK_S = 0.0001


def listen(instrument: Any) -> Listening:
    """Call the hooks of `instrument` as long as the returned object is referenced."""
    subscription, on_turn = Listening(), instrument.on_turn
    own = getattr(instrument, "turns", None)
    turns = own if isinstance(own, Turns) else None
    for listeners in (listening, listening_to_turns) if instrument.hears_turns else (listening,):
        # `discard` is C code; Ctrl-C could interrupt a callback in Python, or calls here.
        listener = _Listener(subscription, listeners.discard)
        listener.instrument, listener.on_turn, listener.turns = instrument, on_turn, turns
        listeners.add(listener)
    return subscription


def silence(subscription: Listening) -> None:
    """End a subscription; one that has ended is ignored."""
    _end([one for one in (*listening, *listening_to_turns) if one() is subscription])


def _end(ended: list[_Listener]) -> None:
    for listeners in (listening, listening_to_turns):
        listeners.difference_update(ended)


def tell(hook: str, *args: Any) -> None:
    """Call the hook of that name of every instrument that listens."""
    listeners = listening_to_turns if hook == "on_turn" else listening
    for listener in tuple(listeners):
        try:
            getattr(listener.instrument, hook)(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - observing a run must not end it
            _dismiss(listener.instrument, hook, error)


def _dismiss(instrument: Any, hook: str, error: BaseException) -> None:
    import logging  # 3 ms, only needed for faulty instruments

    listeners = *listening, *listening_to_turns
    _end([one for one in listeners if one.instrument is instrument])
    logging.getLogger("actorgraph").error(
        "%s of %r raised, so it is not called any more", hook, instrument, exc_info=error
    )


def settle(tasks: Iterable[Task], timeout_s: float = 1.0) -> None:
    """Wait until turns that are under way, usually none, have been reported.

    A run ends within its last turn, so its waiter goes on before that turn is reported.
    """
    until = perf_counter() + timeout_s
    for task in tasks:
        watch: Any = task.watch
        while watch is not None and watch.gi_running and perf_counter() < until:
            sleep(_LOOK_S)


def observed(task: Task) -> Callable[[Any], Task | None]:
    """Return a function that resumes a task like ``task.send``, and reports the turn.

    The task keeps it, as `Task.observed`.  Like `Task.send` it resumes a generator, which refuses a
    second worker with `ValueError`.  So no other worker can take the first message between the look
    at it and the turn, and the turn is reported with its run.
    """
    with _lock:
        if task.observed is None:
            watch = task.watch = _watch(task)
            next(watch)
            task.observed = watch.send
    resume: Callable[[Any], Task | None] = task.observed
    return resume


def _watch(task: Task) -> Generator[Task | None, Callable[[Any], None], None]:
    queue = task.ports[0].messages
    run: Any
    one: Any
    push = yield None
    while True:
        if not queue:
            # Park, as the task would; if resumed, it might take a message that comes meanwhile.
            task.wait = queue
            push = yield None
            continue
        first = queue[0]
        started = perf_counter()
        try:
            following = task.send(push)
        except ValueError:
            # A turn that started before the subscription is under way.  Its worker may have checked
            # for more work already, so this worker has to come again.
            following = None
            sleep(_LOOK_S)
        else:
            ended = perf_counter()
            if not (queue and queue[0] is first):
                run = first.run  # the turn has taken `first`
                for one in [*listening_to_turns]:  # others change the set meanwhile
                    try:
                        turns = one.turns
                        if turns is None:
                            one.on_turn(task, run, started, ended)
                        else:
                            turns.extend((task, run.number, run.microbatch, started, ended))
                    except KeyboardInterrupt:
                        raise
                    except BaseException as error:  # noqa: BLE001 - as in `tell`
                        _dismiss(one.instrument, "on_turn", error)
        # A parked frame must not keep a run alive, or an instrument.
        first = run = one = turns = None
        push = yield following
