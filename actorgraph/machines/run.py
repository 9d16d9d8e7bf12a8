"""`Run`: one evaluation of a machine's graph, from its start to its results."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from actorgraph import instrument
from actorgraph.dual import Dual
from actorgraph.errors import GraphError, RunCancelled
from actorgraph.graph import Node
from actorgraph.memory.buffers import Unallocated
from actorgraph.node import Buffer
from actorgraph.node_actor import blamed
from actorgraph.options import seconds
from actorgraph.scheduler import waited_for
from actorgraph.store import copies

if TYPE_CHECKING:
    from actorgraph.machines.admission import Claim
    from actorgraph.machines.binding import Binding
    from actorgraph.machines.core import Core
from actorgraph.machines.plan import Plan
from actorgraph.machines.process import THIS

__all__ = [
    "Run", "in_event_loop", "in_ipython_kernel", "in_main_thread", "in_trio", "loop_notifier",
]  # fmt: skip

_GLANCE_S = 1.0
"""Seconds after which who waits looks by itself: Ctrl-C just before it waits is handled then."""


class Run:
    """One run of a machine; `await` it, or call `result`, then read ``run[node]``.

    Attributes
    ----------
    number : int
        Counts the runs of the machine, from 0.
    done : bool
        Whether it has ended, in whichever way.
    """

    __slots__ = (
        "__weakref__", "_callbacks", "_lock", "assigned", "awaited", "binding", "claim",
        "collected", "context", "core", "dead", "done", "duals", "errors", "group", "host",
        "kernels", "leaves", "machine", "microbatch", "microbatches", "network", "number", "plan",
        "priority", "regular", "results", "timeout_s", "tokens", "until", "values",
    )  # fmt: skip

    timeout_s: float
    """How long it was given, set together with `until`."""

    told: ClassVar[bool] = True
    """Whether instruments hear of it."""

    def __init__(
        self, core: Core, plan: Plan, binding: Binding, number: int, priority: int
    ) -> None:
        self.core = core
        self.plan = plan
        self.binding = binding
        self.kernels = binding.kernels
        self.number = number
        self.priority = priority
        self.network: Any = None
        self.claim: Claim | None = None  # on the machine's `max_bytes`
        self.machine: object = None
        self.group: Run | None = None  # of which this is a part
        self.microbatch: int | None = None  # of a pipeline
        self.microbatches: Sequence[Any] = ()  # of a pipeline's batch
        self.values: Sequence[Any] = ()
        self.leaves: list[Any] = []
        self.awaited = False
        self.regular = True  # whether everything that it brings is C-contiguous
        self.errors: dict[str, Any] | None = None
        self.context: Context | None = None  # the caller's, where there are ops of users
        self.host: Callable[[Callable[[], object]], object] | None = None
        # Set once, by whatever ends the run early; actors read it without a lock.
        self.dead: BaseException | None = None
        self.until: float | None = None  # the time of its deadline, by `monotonic`
        self.done = False
        self.collected = False
        self.duals: dict[Node, Dual] = {}
        self.assigned: Sequence[tuple[Any, Any]] = ()  # of a part (buffer, array), else to `take`
        count = plan.result_count
        self.results: Any = [None] * count
        # `deliver` pops one a result; the last popped is the True, whoever pops it.
        self.tokens: list[bool] = [True] + [False] * (count - 1)
        self._lock = threading.Lock()
        self._lock.acquire()  # released at the end: waiting is acquiring
        self._callbacks: deque[Callable[[], object]] = deque()

    # -- for users ----------------------------------------------------------------------------

    def __getitem__(self, key: Node | str) -> Dual:
        """Return the `Dual` of an output or a wrt, by node or name.

        Raises
        ------
        KeyError
            The key is neither; near names are given. Or it is a wrt that is no output, and the run
            is that of a compiled step.
        GraphError
            The run has not ended yet.
        """
        dual = self.duals.get(key) if isinstance(key, Node) else None
        if dual is not None:
            return dual
        if not self.done:
            raise GraphError("the run has not ended; await it or call .result() first")
        self._raise_if_failed()
        node = self.plan.readable(key)
        if node not in self.duals:
            raise KeyError(
                f"{node.name!r} is a parameter that a compiled step has changed, and its gradient "
                "is used up; read the new value from the node's .value, or name the node among "
                "the outputs to read the value before; readable are "
                f"{', '.join(repr(other.name) for other in self.duals)}"
            )
        return self.duals[node]

    def result(self, timeout_s: float | None = None) -> Run:
        """Block until the run has ended and return it, or raise what ended it.

        The calling thread works along where it can.

        Raises
        ------
        NodeError, RunCancelled, DeadlockError, MachineClosedError, TimeoutError
            What ended the run; `TimeoutError` also when `timeout_s` is over, and the run goes on.
        """
        self._refuse_after_fork()
        self.core.refuse_inside_op("run.result()")
        if not self.done and in_event_loop() and not in_ipython_kernel():
            raise GraphError("run.result() would block the running event loop; write `await run`")
        host = self.host if self.plan.needs_loop and not self.done else None
        if host is not None and not host(_nothing):
            self.abort(GraphError("the event loop of the run was closed"))
        until = None if timeout_s is None else monotonic() + seconds("timeout_s", timeout_s)
        if until is None and not self.done:
            self.core.help(self)
        if not self._wait(until):
            raise TimeoutError(
                f"run {self.number} has not ended after {timeout_s:g} s: {self._at()}"
            )
        self._raise_if_failed()
        return self

    def cancel(self) -> bool:
        """Ask the run to end; return whether it had not ended yet.

        Operations that are running are not interrupted; others of this run do not start.
        """
        if self.done or self.core.process != THIS.id:
            return False
        self.abort(RunCancelled(f"run {self.number} was cancelled"))
        return True

    def __await__(self) -> Generator[Any, Any, Run]:
        return self._wait_async().__await__()

    def __repr__(self) -> str:
        state = "running" if not self.done else "done" if self.dead is None else "failed"
        return f"<Run {self.number} {state}>"

    @property
    def parts(self) -> Sequence[Run]:
        """What is admitted for this run: itself, or the parts of a `Group`."""
        return (self,)

    @property
    def predicted_us(self) -> float:
        """Microseconds that its steps are taken to need together."""
        return self.binding.predicted_us

    def take_arrays(self, arrays: Sequence[Any]) -> None:
        """Put the variables' arrays, of those of the graph's store, among what was given."""
        plan, leaves = self.plan, self.leaves
        if plan.held:
            leaves = [arrays[place] for place in plan.held]
            for place, given in zip(plan.places, self.leaves, strict=True):
                leaves.insert(place, given)
            self.leaves = leaves
        self.values = leaves if plan.placing is None else plan.placing.brought(plan.joint, leaves)

    # -- for actors ---------------------------------------------------------------------------

    def deliver(self, index: int, value: Any) -> None:
        """Take a result (or a mark, of a dead run); the last one ends the run, must not raise.

        Generated programs do the same in their own text.
        """
        self.results[index] = value
        if self.tokens.pop():
            self.core.finish(self)

    def fail(self, error: BaseException) -> None:
        """End the run because of an op's error."""
        cause = error.__cause__
        if isinstance(cause, KeyboardInterrupt) and in_main_thread():
            self.core.interrupted = True
            error = RunCancelled(f"run {self.number} was interrupted")
            for run in waited_for(self.core.scheduler):
                run.cancel()  # the caller waits for this one, and helped with another
        self.abort(error)

    # -- ends ---------------------------------------------------------------------------------

    def abort(self, cause: BaseException) -> None:
        """Let the run die of `cause`; a later cause becomes a note of the first."""
        self.core.abort(self, cause)

    def expire(self) -> None:
        """End the run because its time is up."""
        if not self.done:
            self.abort(self._lateness(self._at()))

    def _lateness(self, at: str) -> TimeoutError:
        return TimeoutError(f"run {self.number} did not end in time, {self.timeout_s:g} s: {at}")

    def _at(self) -> str:
        """Return what the run is doing, for somebody who waits for its end."""
        in_flight = list(self.core.admission.in_flight)
        if any(part.number in in_flight for part in self.parts):
            return "it was running"
        return f"it had not begun, behind {len(in_flight)} in flight"

    def collect(self) -> None:
        """Turn what was delivered into Duals, if nothing went wrong and it is not too late.

        The thread that watches deadlines may not have come by; so the clock decides.
        """
        if self.dead is None:
            try:
                duals, assigned = self._results()
                # Parts are joined first; copied here, where it may fail: to commit is to exchange.
                self.assigned = (
                    assigned
                    if self.group is not None
                    else copies([(buffer.held, array) for buffer, array in assigned])
                )
                self.duals = duals
            except (MemoryError, Unallocated) as error:
                self.dead = blamed(self.plan.joint, None, None, error)
            except BaseException as error:  # noqa: BLE001 - it ends the run, whatever it is
                self.dead = error
        if self.until is not None and self.dead is None and monotonic() > self.until:
            self.duals, self.assigned = {}, ()
            self.dead = self._lateness("it ended too late")
        self.collected = True

    def _results(self) -> tuple[dict[Node, Dual], Sequence[tuple[Buffer, Any]]]:
        """Return the Duals of what was delivered, and what is assigned to buffers."""
        return self.plan.collect(self)

    def complete(self) -> None:
        """Wake who waits.  Called once, after `collect`."""
        self.values = self.leaves = self.kernels = []
        self.microbatches = ()
        self.results = {}  # takes what actors deliver to a run that has been ended early
        self.network = self.machine = None
        self.done = True
        if instrument.listening and self.told:
            if self.dead is not None:
                instrument.tell("on_error", self, self.dead)
            instrument.tell("on_run_end", self)
        self._lock.release()
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                break
            try:
                callback()
            except Exception:
                # It may be an actor that we are called from, which has to go on.
                import logging  # 2.5 ms, for a fault of the caller's only

                logging.getLogger("actorgraph").exception("a callback of %r failed", self)

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the thread that ends the run, or now where it has ended."""
        self._callbacks.append(callback)
        if self.done:
            try:
                self._callbacks.remove(callback)
            except ValueError:
                return  # the ending thread has taken it
            callback()

    def _refuse_after_fork(self) -> None:
        """Raise where the run is under way in the parent process: nobody here will end it."""
        if not self.done and self.core.process != THIS.id:
            raise GraphError(
                f"run {self.number} was started by the parent process and goes on there; "
                "start it again in this one"
            )

    def _raise_if_failed(self) -> None:
        if self.dead is not None:
            raise self.dead

    def _wait(self, until: float | None = None) -> bool:
        while not self.done:
            left = inf if until is None else max(0.0, until - monotonic())
            if self._lock.acquire(timeout=min(left, _GLANCE_S)):
                self._lock.release()
            elif left <= _GLANCE_S:
                return self.done
        return True

    async def _wait_async(self) -> Run:
        if self.done:
            from anyio import lowlevel  # 1.5 ms that importing the package need not pay

            await lowlevel.checkpoint()
        else:
            self._refuse_after_fork()
            await self._ended()
        self._raise_if_failed()
        return self

    async def _ended(self) -> None:
        """Wait for the end; a cancelled waiter cancels the run and still waits for its end."""
        event = anyio.Event()
        notify = loop_notifier(at_once=True)
        self.add_done_callback(partial(notify, event.set))
        try:
            await event.wait()
        except GeneratorExit:  # the loop was closed, and nothing can be awaited any more
            self.cancel()
            raise
        except BaseException:
            self.cancel()
            with anyio.CancelScope(shield=True):
                await event.wait()
            raise


def _nothing() -> None:
    return None


def in_main_thread() -> bool:
    """Return whether this is the thread that Ctrl-C interrupts."""
    return threading.get_ident() == threading.main_thread().ident


def loop_notifier(*, at_once: bool = False) -> Callable[[Callable[[], object]], object]:
    """Return a function that runs a callable on the current event loop, from any thread.

    `at_once` calls it without a detour where the calling thread is the loop's: to wake the loop
    costs as much as a small run.  A loop that was closed in the meantime is no error: nobody is
    left to be told.
    """
    schedule: Callable[..., object]
    here: Callable[[], object] = _nothing
    own: object = _nothing
    if in_trio():
        schedule = sys.modules["trio"].lowlevel.current_trio_token().run_sync_soon
    else:
        import asyncio

        own = asyncio.get_running_loop()
        schedule = own.call_soon_threadsafe
        here = asyncio._get_running_loop if at_once else here

    def notify(function: Callable[[], object]) -> bool:
        if here() is own:
            function()
            return True
        try:
            schedule(function)
        except RuntimeError:  # closed; trio.RunFinishedError is one too
            return False
        return True

    return notify


# A module may be there in part, while another thread imports it: nobody runs in its loop then.


def in_trio() -> bool:
    """Return whether the calling code runs in trio."""
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    in_trio_run = getattr(lowlevel, "in_trio_run", None)
    return in_trio_run is not None and bool(in_trio_run())


def in_event_loop() -> bool:
    """Return whether the calling code runs in an event loop."""
    # Unlike get_running_loop, this does not raise (1 us) where there is none.
    running_loop = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return (running_loop is not None and running_loop() is not None) or in_trio()


def in_ipython_kernel() -> bool:
    """Return whether the code runs in a Jupyter kernel, whose loop waits while a cell runs."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return getattr(shell, "kernel", None) is not None
