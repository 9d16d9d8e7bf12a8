"""`Run`: one evaluation of a machine's graph, from its start to its results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import anyio

from actorgraph import instrument
from actorgraph.dual import Dual
from actorgraph.errors import GraphError, GraphTypeError, RunCancelled
from actorgraph.graph import Node
from actorgraph.machines.event_loops import WakeUp, checkpoint, in_main_thread, refuse_in_loop
from actorgraph.machines.process import THIS
from actorgraph.memory.buffers import Unallocated
from actorgraph.node_actor import blamed
from actorgraph.options import seconds
from actorgraph.runs import AbstractRun
from actorgraph.scheduler import waited_for
from actorgraph.store import PROMISES, copies, present
from actorgraph.tiles import here
from actorgraph.warned import DEFAULT, ERRORS, TELLING, runs_steps, telling

if TYPE_CHECKING:
    from actorgraph.machines.claim import Claim
    from actorgraph.machines.compiled import Binding
    from actorgraph.machines.plan import Plan
    from actorgraph.memory.travelling import RunArrays

_GLANCE_S = 1.0
"""Longest time to block at once, after which Ctrl-C that came just before is handled."""


class Run(AbstractRun):
    """One run of a machine; `await` it, or call `result`, then read ``run[node]``.

    The attributes that actors use are documented by `AbstractRun`.

    Attributes
    ----------
    core : Core
        Starts and ends it.
    machine : Machine or None
        Held while the run is under way: a machine that is dropped ends after its runs.
    plan, binding : Plan, Binding
        What is computed, and what depends on the sizes of its feeds.
    network : Network or None
        The network that it passes through; None if a thread computes it directly.
    kernels : list
        Kernels that depend on its sizes, and memory of turns; programs index it.
    memory : RunArrays or None
        Where values lie that travel between its tasks, see `memory.travelling`.
    claim : Claim or None
        Its claim on the machine's `max_bytes`.
    errors : mapping or None
        The caller's `np.errstate`, None for NumPy's defaults.
    regular : bool
        Whether all its feeds, seeds and tangents are C-contiguous.
    on_loop : callable or None
        Calls a function on the loop that waits for it, at once if that is the calling thread.  Set
        where that thread works on its actors itself, also when an asynchronous op has ended.
    on_sum : callable or None
        Called with each complete sum over microbatches and the id of its node, by the lane that
        has computed it, while other lanes go on.
    microbatch : int or None
        Its place in the batch of which it is a part.
    values : sequence
        The values of its leaves, on their devices.
    tokens : list of bool
        One per outstanding result, the first True: whoever pops that one, the last, ends the run.
    deadline : (float, float) or None
        When it expires, by `monotonic`, and the seconds that it was given.
    collected : bool
        Whether `duals` and `assigned` are set.
    duals : dict
        Its results, by node.
    assigned : sequence of pairs
        New values of buffers, as `store.take` expects them.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (2,))
    >>> y = x * 2
    >>> with ag.ActorMachine([y]) as machine:
    ...     run = machine.start({"x": np.ones(2, "float32")})
    ...     run.result()[y].value
    array([2., 2.], dtype=float32)
    """

    __slots__ = (
        "_callbacks", "assigned", "claim", "collected", "core", "deadline", "duals",
        "errors", "kernels", "machine", "memory", "microbatch", "network", "on_loop", "on_sum",
        "plan", "regular", "tokens", "values",
    )  # fmt: skip

    binding: Binding

    def __init__(self, core: Any, plan: Plan, binding: Binding, number: int, priority: int) -> None:
        self.core = core  # a `Core`, which knows runs
        self.plan = plan
        self.binding = binding
        self.kernels = binding.kernels
        self.number = number
        self.priority = priority
        self.network: Any = None
        self.memory: RunArrays | None = None
        self.claim: Claim | None = None
        self.machine: object = None
        self.microbatch: int | None = None
        self.on_loop: Callable[[Callable[[], object]], object] | None = None
        self.on_sum: Callable[[int, Any], None] | None = None
        self.microbatches = ()
        self.values: Sequence[Any] = ()
        self.leaves = []
        self.regular = True
        self.errors: Mapping[str, Any] | None = None
        self.context = self.host = self.dead = None
        self.deadline: tuple[float, float] | None = None
        self.done = self.collected = False
        self.duals: dict[Node, Dual] = {}
        self.assigned: Sequence[tuple[Any, Any]] = ()
        self.results: Any = ()
        self.tokens: list[bool] = []
        self._callbacks: deque[Callable[[], object]] = deque()

    # -- for users ----------------------------------------------------------------------------

    def __getitem__(self, key: Node | str) -> Dual:
        """Return the `Dual` of an output or a wrt, by node or name.

        Raises
        ------
        KeyError
            The key is neither; the error suggests similar names.  Or it is a wrt that is no
            output, and the run is that of a compiled step.
        GraphError
            The run has not ended yet.
        """
        try:
            return self.duals[key]  # type: ignore[index]  # a name is never found
        except (KeyError, TypeError):
            pass
        if not self.done:
            raise GraphError("the run has not ended; await it or call .result() first")
        self._raise_if_failed()
        node = self.plan.names.readable(key)
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

        The calling thread works as one of the workers if a slot is free.

        Raises
        ------
        NodeError, RunCancelled, DeadlockError, MachineClosedError, TimeoutError
            What ended the run; `TimeoutError` also after `timeout_s`, when the run goes on.
        """
        self._refuse_after_fork()
        self.core.refuse_inside_op("run.result()")
        if not self.done:
            refuse_in_loop("run.result()", "await run")
        host = self.host if self.plan.compiled.needs_loop and not self.done else None
        if host is not None and not host(int):
            self.abort(GraphError("the event loop of the run was closed"))
        end = None if timeout_s is None else monotonic() + seconds("timeout_s", timeout_s)
        if end is None and not self.done:
            self.core.help(self)
        if not self._wait(end):
            raise TimeoutError(
                f"run {self.number} has not ended after {timeout_s:g} s: {self._progress()}"
            )
        self._raise_if_failed()
        return self

    def cancel(self) -> bool:
        """Ask the run to end; return whether it had not ended yet.

        Operations that are running are not interrupted; no other of this run starts.
        """
        if self.done or self.core.process != THIS.id:
            return False
        self.abort(RunCancelled(f"run {self.number} was cancelled"))
        return True

    def __await__(self) -> Generator[Any, Any, Run]:
        return self._wait_async().__await__()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:  # for copy.deepcopy, too
        raise GraphTypeError(
            f"{self!r} is neither pickled nor copied: it belongs to its machine; send the array "
            "of a result, run[node].value"
        )

    def _repr_html_(self) -> str | None:
        from actorgraph.notebook import of_run

        if not self.done or self.dead is not None:
            return None
        return of_run(f"run {self.number}", [self[node] for node in self.plan.compiled.nodes])

    def __repr__(self) -> str:
        state = "running" if not self.done else "done" if self.dead is None else "failed"
        return f"<Run {self.number} {state}>"

    def take_arrays(self) -> None:
        """Insert the current arrays of variables among the leaves."""
        compiled, leaves = self.plan.compiled, self.leaves
        if compiled.variable_places:
            arrays = compiled.store.arrays  # one consistent snapshot
            read = compiled.variables_in(arrays)
            if PROMISES.given and compiled.placing is None:
                read = tuple([present(array) for array in read])
            self.leaves = leaves = compiled.arranged((*leaves, *read))
        placing = compiled.placing
        self.values = leaves if placing is None else placing.brought(compiled.joint, leaves)

    @runs_steps("inline")
    def compute(self) -> None:
        """Compute the results in the calling thread, and collect them."""
        self.take_arrays()
        if self.dead is not None:
            return
        if instrument.listening:
            instrument.tell("on_run_start", self)
        binding = self.binding
        direct = binding.direct  # before `inline`: those of another one have another dict, or key
        inline = self.plan.inline
        program, outer = None, getattr(here, "held", None)
        state, began = ERRORS.get(), perf_counter()
        try:
            here.held = self.core.scheduler, None, outer  # inlined `Scheduler.call`, saves 0.2 us
            ERRORS.set(TELLING if state is DEFAULT else telling(state))  # 0.16 us
            try:  # inlined `Inline.take`, and `give` below
                program = direct[inline.first + self.regular].pop()
            except LookupError:
                program = inline.make(binding, self.regular)
            self.results = program(*self.values)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and in_main_thread():
                raise
            self.abort(blamed(self.plan.compiled.joint, inline.program, None, error))
        finally:
            ERRORS.set(state)
            here.held = outer
        ended = perf_counter()
        binding.direct_turns += 1
        binding.direct_seconds += ended - began
        binding.direct_latest.append(ended - began)
        if instrument.listening:
            instrument.tell("on_direct", self, began, ended)
        self.collect()
        if program is not None:
            direct.setdefault(inline.first + self.regular, []).append(program)
            program = None  # a traceback keeps this frame alive
            if binding.direct_turns >= inline.plain_turns:
                self.plan.walk_inline(inline)

    # -- for actors ---------------------------------------------------------------------------

    def expect(self, count: int) -> None:
        """Make room for so many results, before the first is delivered."""
        self.results = [None] * count
        self.tokens = [True] + [False] * (count - 1)

    def deliver(self, index: int, value: Any) -> None:
        """Store a result, or the poison of a dead run; the last one ends the run.  Never raises.

        Generated programs have these lines inlined.
        """
        self.results[index] = value
        if self.tokens.pop():
            self.core.finish(self)

    def fail(self, error: BaseException) -> None:
        cause = error.__cause__
        if isinstance(cause, KeyboardInterrupt) and in_main_thread():
            self.core.interrupted = True
            error = RunCancelled(f"run {self.number} was interrupted")
            for run in waited_for(self.core.scheduler):
                run.cancel()  # the caller waits for this one, while it worked for another
        self.abort(error)

    # -- ends ---------------------------------------------------------------------------------

    def abort(self, cause: BaseException) -> None:
        """Let the run die of `cause`; later causes become notes of the first."""
        self.core.abort(self, cause)

    def expire(self) -> None:
        if not self.done:
            self.abort(self._timeout(self._progress()))

    def _timeout(self, progress: str) -> TimeoutError:
        given_s = 0.0 if self.deadline is None else self.deadline[1]
        return TimeoutError(f"run {self.number} did not end in time, {given_s:g} s: {progress}")

    def _progress(self) -> str:
        """Return how far the run has come, for the text of a `TimeoutError`."""
        in_flight = list(self.core.admission.in_flight)
        if self.number in in_flight:
            return "it was running"
        return f"it had not begun, behind {len(in_flight)} in flight"

    def collect(self) -> None:
        """Make Duals of the results, unless the run is dead or its deadline has passed.

        The clock decides, for the thread that watches deadlines may be late.
        """
        if self.dead is None:
            try:
                assigned: Sequence[tuple[Any, Any]]
                duals, assigned = self.plan.collect(self)
                if assigned:
                    # Copied here, where it may fail; the commit only exchanges arrays.
                    assigned = copies([(buffer.held, array) for buffer, array in assigned])
                self.assigned = assigned
                self.duals = duals
            except (MemoryError, Unallocated) as error:
                self.dead = blamed(self.plan.compiled.joint, None, None, error)
            except BaseException as error:  # noqa: BLE001 - any error ends the run
                self.dead = error
        late = self.deadline is not None and monotonic() > self.deadline[0]
        if late and self.dead is None:
            self.duals, self.assigned = {}, ()
            self.dead = self._timeout("it ended too late")
        self.collected = True

    def complete(self) -> None:
        """Wake the waiters; called once, after `collect`."""
        self.values = self.leaves = self.kernels = []
        for part in self.microbatches:
            part.run.values = part.run.leaves = part.run.kernels = []
        self.microbatches = ()
        self.results = {}  # a dict, for actors may still deliver to a run that ended early
        self.network = self.machine = self.memory = self.on_sum = None
        self.done = True
        if instrument.listening:
            if self.dead is not None:
                instrument.tell("on_error", self, self.dead)
            instrument.tell("on_run_end", self)
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                break
            try:
                callback()
            except Exception:
                # The caller may be an actor, which has to go on.
                import logging  # 2.5 ms, only needed for errors of callbacks

                logging.getLogger("actorgraph").exception("a callback of %r failed", self)

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the thread that ends the run, or now if it has ended."""
        self._callbacks.append(callback)
        if self.done:
            try:
                self._callbacks.remove(callback)
            except ValueError:
                return  # the ending thread has taken it
            callback()

    def _refuse_after_fork(self) -> None:
        """Raise if the run was started by the parent process: nobody here will end it."""
        if not self.done and self.core.process != THIS.id:
            raise GraphError(
                f"run {self.number} was started by the parent process and goes on there; "
                "start it again in this one"
            )

    def _raise_if_failed(self) -> None:
        if self.dead is not None:
            raise self.dead

    def _wait(self, end: float | None = None) -> bool:
        """Block until the run has ended, or the clock shows `end`; return whether it has ended."""
        ended: threading.Lock | None = None
        while not self.done:
            if ended is None:
                ended = threading.Lock()
                ended.acquire()
                self.add_done_callback(ended.release)
            left = inf if end is None else max(0.0, end - monotonic())
            if not ended.acquire(timeout=min(left, _GLANCE_S)) and left <= _GLANCE_S:
                with suppress(ValueError):  # the ending thread has taken it
                    self._callbacks.remove(ended.release)
                return self.done
        return True

    async def _wait_async(self) -> Run:
        if self.done:
            await checkpoint()
        else:
            self._refuse_after_fork()
            await self._ended()
        self._raise_if_failed()
        return self

    async def _ended(self) -> None:
        """Wait for the end; a cancelled waiter cancels the run and still waits for its end."""
        ended = WakeUp()
        self.add_done_callback(ended)
        try:
            if self.done:  # since the last look; what has come already is awaited without a turn
                await checkpoint()
            await ended
        except GeneratorExit:  # the loop was closed; nothing can be awaited any more
            self.cancel()
            raise
        except BaseException:
            self.cancel()
            with anyio.CancelScope(shield=True):
                ended = WakeUp()
                self.add_done_callback(ended)
                await ended
            raise
