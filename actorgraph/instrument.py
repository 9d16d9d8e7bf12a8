"""The instruments that listen now, and how machines tell them what happens.

Machines tell of what happens only where `listening` is not empty, and of turns where
`listening_to_turns` is not; so nothing is paid when nobody listens but a look.  A hook that raises
is logged and its instrument listens no more: looking at a run never breaks it.  Nothing here knows
a machine; times are those of `time.perf_counter`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from time import perf_counter, sleep
from typing import Any, TypeAlias, final
from weakref import ref

Task: TypeAlias = Any
"""A `node_actor.Task`, of which nothing is imported here: what tells is below what it tells of."""


@final
class Listening:
    """The right of an instrument to be told; who holds it holds it for the instrument.

    It ends by `silence`, or when nobody holds it any more: so an interrupt, wherever it strikes,
    leaves nobody who listens for ever.
    """

    __slots__ = ("__weakref__",)


@final
class _Listener(ref[Listening]):
    __slots__ = ("instrument", "on_turn")
    instrument: Any
    on_turn: Callable[..., None]  # looked up once: there may be a turn every half microsecond


listening: set[_Listener] = set()
"""Whom machines tell."""

listening_to_turns: set[_Listener] = set()
"""Those of them that hear of turns: the scheduler looks at it at every turn."""

_lock = threading.Lock()
_LOOK_S = 0.0001


def listen(instrument: Any) -> Listening:
    """Have the hooks of `instrument` called as long as what is returned is held."""
    held, on_turn = Listening(), instrument.on_turn
    for told in (listening, listening_to_turns) if instrument.hears_turns else (listening,):
        one = _Listener(held, told.discard)  # of C: a callback in Python could be struck
        one.instrument, one.on_turn = instrument, on_turn  # no calls until it is added, as well
        told.add(one)
    return held


def silence(held: Listening) -> None:
    """Call those hooks no more; nothing happens where they are not called any more."""
    _end([one for one in (*listening, *listening_to_turns) if one() is held])


def _end(ended: list[_Listener]) -> None:
    for told in (listening, listening_to_turns):
        told.difference_update(ended)


def tell(hook: str, *args: Any) -> None:
    """Call the hook of that name of every instrument that listens."""
    told = listening_to_turns if hook == "on_turn" else listening
    for one in tuple(told):
        try:
            getattr(one.instrument, hook)(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a run must not end by being looked at
            _dismiss(one.instrument, hook, error)


def _dismiss(instrument: Any, hook: str, error: BaseException) -> None:
    import logging  # 3 ms, for a fault of the instrument's only

    told = *listening, *listening_to_turns
    _end([one for one in told if one.instrument is instrument])
    logging.getLogger("actorgraph").error(
        "%s of %r raised, so it is not called any more", hook, instrument, exc_info=error
    )


def settle(tasks: Iterable[Task], timeout_s: float = 1.0) -> None:
    """Wait for the turns that are under way, most often none, to be told of.

    A run ends within its last turn, so who waits for the run goes on before the turn is told of.
    """
    until = perf_counter() + timeout_s
    for task in tasks:
        watch: Any = task.watch
        while watch is not None and watch.gi_running and perf_counter() < until:
            sleep(_LOOK_S)


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
    found: Callable[[Any], Task | None] = task.observed
    return found


def _watch(task: Task) -> Generator[Task | None, Callable[[Any], None], None]:
    queue = task.ports[0].messages
    run: Any = None
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
            for one in tuple(listening_to_turns) if run is not None else ():
                try:
                    one.on_turn(task, run, started, ended)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 - as in `tell`
                    _dismiss(one.instrument, "on_turn", error)
        first = run = None  # a frame that waits keeps no run alive
        push = yield following
