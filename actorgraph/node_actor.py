"""`Task`: one coroutine of a region's actor, and the messages that it handles.

An actor has a coroutine that consumes the forward inbox and emits Duals, and one that consumes the
reverse channels (and the residual of the first) and emits cotangents.  Gradients of weights, and
additions of a large sum, may have coroutines of their own.  Nothing here starts a thread or reads a
clock.

A failed, cancelled or expired run travels on as poison in the place of its messages, so that joins
stay aligned and other runs are untouched.  A `Poison` has no ``value``: reading it raises inside
the actor's ``try``, and the hot path pays nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from actorgraph.devices.checks import Failed
from actorgraph.dual import Dual
from actorgraph.errors import GraphError, NodeError, text_of
from actorgraph.lower.inner import Dead, InBody, frame_of
from actorgraph.lower.joint import Joint
from actorgraph.lower.program import Program
from actorgraph.lower.regions import TaskSpec
from actorgraph.memory.buffers import Unallocated
from actorgraph.op import CONSTANT
from actorgraph.warned import UnderWay

if TYPE_CHECKING:
    from actorgraph.channels import Channel
    from actorgraph.graph import Node
    from actorgraph.runs import AbstractRun

__all__ = ["Dead", "LATEST", "Message", "Poison", "Task", "blamed", "fail", "guarded"]

LATEST = 9
"""How many of the latest timed turns are kept, for their median."""


@Dual.register
class Message:
    """A Dual in a channel: a value, or a cotangent, with the run that it belongs to.

    The other attributes of a Dual are no slots here: one is made per value of every run.  It does
    not inherit from Dual, whose `__getattr__` makes each read of an attribute four times as slow.
    """

    __slots__ = ("run", "value")
    grad = tangent = node = None
    __repr__ = Dual.__repr__

    def __init__(self, value: Any, run: AbstractRun) -> None:
        self.value = value
        self.run = run


class Poison:
    """Takes the place of a message of a dead run."""

    __slots__ = ("run",)

    def __init__(self, run: AbstractRun) -> None:
        self.run = run


class Task:
    """One coroutine of an actor, as the scheduler sees it.

    Attributes
    ----------
    send : callable
        Resumes the coroutine with a function that makes other tasks ready; returns the task to
        hand over to, or None.
    wait : deque or Calling
        What the coroutine waits for while it is parked: the queue that has to be filled, or a
        `machines.calling.Calling`, which is true while there is something to do.
    ready : list of deque
        Ready queues of the task's class of priority, one per worker.
    heavy : bool
        Whether a turn is worth waking another worker for.
    turns, seconds : int, float
        Turns so far and their time, extrapolated from those that were timed.
    latest : tuple of float
        Seconds of the latest timed turns, at most `LATEST`.
    ports : list of Channel
        The channels it receives from; the first is never that of a residual.
    """

    __slots__ = (
        "heavy", "joint", "lane", "latest", "observed", "ports", "program", "ready", "seconds",
        "send", "spec", "step", "turns", "wait", "watch",
    )  # fmt: skip

    def __init__(self, spec: TaskSpec, ready: list[deque[Task]]) -> None:
        self.spec, self.ready = spec, ready
        self.heavy, self.turns, self.seconds = False, 0, 0.0
        self.latest: tuple[float, ...] = ()
        self.wait: Any = ()
        self.program: Program | None = None
        self.step: tuple[Node, list[Any]] | None = None  # what an interpreter executes
        self.joint: Joint | None = None
        self.lane: str | None = None  # of a pipeline
        self.ports: Sequence[Channel] = ()
        self.observed: Callable[[Any], Task | None] | None = None  # see `instrument.observed`
        self.watch: Generator[Task | None, Any, None] | None = None
        self.send: Callable[[Any], Task | None] = _unstarted

    @property
    def under_way(self) -> UnderWay:
        """The code that its turn runs, for the source line of warnings."""
        if self.step is not None:
            return UnderWay(node=self.step[0], joint=self.joint)
        return UnderWay(self.program, joint=self.joint)

    def start(self, coroutine: Generator[Task | None, Any, None], preferred: Any) -> None:
        """Run the coroutine to its first pause, and wait for the `preferred` queue."""
        self.wait = preferred
        next(coroutine)
        self.send = coroutine.send

    def note_turns(self, count: int, seconds: float) -> None:
        """Record a timed turn, a sample that stands for `count` turns."""
        self.turns += count
        self.seconds += seconds * count
        self.latest = (*self.latest[1 - LATEST :], seconds)

    def close(self) -> None:
        """Drop the coroutine; a worker inside it finishes its turn."""
        self.send = _closed
        self.wait = ()

    def __repr__(self) -> str:
        return f"<task {self.spec.name}>"


def _unstarted(push: Any) -> NoReturn:
    raise AssertionError("the task was not started")


def _closed(push: Any) -> None:
    return None


def fail(task: Task, error: BaseException, *messages: Any) -> Poison:
    """Return the poison that takes the place of what the actor could not compute.

    Generated programs call it in their ``except``.  If a message is poison, or the error is `Dead`,
    the run was dead already; else an op has failed, and the run dies of a `NodeError`.
    """
    for message in messages:
        if type(message) is Poison:
            return message
    run = messages[0].run
    _kill(run, task, error)
    return Poison(run)


def guarded(run: AbstractRun, task: Task, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that computes steps of a task; return None if the run is, or gets, dead.

    The counterpart of `fail` for callers that are no generated programs.
    """
    try:
        if run.dead is None:
            return function(*args)
    except BaseException as error:  # noqa: BLE001 - becomes the run's
        del function, args  # the traceback keeps this frame alive
        _kill(run, task, error)
    return None


def _kill(run: AbstractRun, task: Task, error: BaseException) -> None:
    """Let a run die of what a step has raised; `Dead` means that it was dead already."""
    if type(error) is not Dead:
        assert task.joint is not None
        run.fail(blamed(task.joint, task.program, task.step, error))


def blamed(
    joint: Joint, program: Program | None, step: tuple[Node, list[Any]] | None, error: BaseException
) -> BaseException:
    """Return the `NodeError` for an exception of an op, or for a failed allocation.

    The failing step is found by the traceback's line in the program, or is the `step` that an
    interpreter executes, given with its operands.  With neither, the error arose between steps.
    The traceback starts in the program's frame, or in that of its caller.
    """
    try:
        if isinstance(error, Failed):
            return _explained(joint, error.node, error.inputs, error.cause, error.device)
        if isinstance(error, Unallocated):
            return _explained(joint, error.node, error.inputs, _shortage(error))
        if step is None:
            assert program is not None, "no step was under way"
            step = _failing_step(program, error)
        node, inputs = step
        outer, iteration = None, []
        while isinstance(error, InBody):
            outer = node if outer is None else outer
            iteration.append((error.iteration, node))
            node, inputs = _failing_step(error.program, error.cause)
            error = error.cause
        got = tuple(f"{value.dtype}{list(np.shape(value))}" for value in map(np.asarray, inputs))
        if isinstance(error, MemoryError):
            from traceback import clear_frames  # late: it takes 0.4 ms

            clear_frames(error.__traceback__)  # frames of ops hold arrays
        if outer is not None:
            return _explained(joint, outer, got, error, inside=node, path=iteration)
        return _explained(joint, node, got, error)
    except BaseException as problem:  # noqa: BLE001 - the run has to end in any case
        failure = GraphError(f"a run failed outside of its ops: {text_of(error)}")
        failure.add_note(f"the failing node is unknown: {text_of(problem)}")
        failure.__cause__ = error
        return failure


def _shortage(error: Unallocated) -> BaseException:
    """Return the cause of a failed allocation, without its frames, which hold other arrays."""
    cause = error.__cause__
    assert cause is not None
    if isinstance(cause, (ValueError, OverflowError)):  # of NumPy, for more than 2**63 bytes
        cause = MemoryError(str(cause))
    return cause.with_traceback(None)


def _failing_step(program: Program, error: BaseException) -> tuple[Node, list[Any]]:
    """Return the step that failed, and its operands, evaluated in the program's frame."""
    trace = frame_of(program, error.__traceback__)
    assert trace is not None
    inner_frames = []  # of functions that the program has called
    while (inner := program.inner(_place(program, trace))) is not None:
        within = frame_of(inner, trace.tb_next)
        if within is None:
            break
        while trace is not within:
            assert trace.tb_next is not None
            trace = trace.tb_next
            inner_frames.append(trace.tb_frame)
        program = inner
    node = program.step(_place(program, trace))
    frame = trace.tb_frame
    names = frame.f_locals
    inputs = [_operand(program, part, frame, names) for part in node.inputs]
    if isinstance(names, dict):
        # Before Python 3.13 the frame keeps this copy alive, and with it the run and its error.
        names.clear()
    for frame in inner_frames:
        frame.clear()  # the traceback keeps them alive, and with them the run
    return node, inputs


def _place(program: Program, trace: TracebackType) -> int:
    place = program.code.place(trace.tb_frame, trace.tb_lineno)
    assert place is not None, "a call of an item is under way"
    return place


def _operand(program: Program, part: Node, frame: FrameType, names: Mapping[str, Any]) -> Any:
    constant = part.op is CONSTANT
    return part.attrs["value"] if constant else eval(program.expression(part, frame), {}, names)


def _explained(
    joint: Joint, node: Node, got: tuple[str, ...], cause: BaseException, device: str = "cpu",
    inside: Node | None = None, path: Sequence[tuple[int | None, Node]] = (),
) -> NodeError:  # fmt: skip
    """Return the `NodeError` of a failed step, which names the user's node that it belongs to.

    If the step is in a body, it is `inside`, `node` is the outermost loop or branch, and `path`
    has the iterations of each, outermost first.
    """
    if inside is None:
        failed, source = node, joint.source(node)
        is_own = failed.op is source.op
    else:
        failed, source = inside, inside if inside.owner is None else inside.owner
        is_own = failed is source
    of = "rewritten form" if failed.owner is None else "derivative"
    step = "" if is_own else f" (step {failed.op.name!r} of its {of})"
    direction = "backward" if joint.is_backward(node) else "forward"
    where = ""
    for position, one in path:
        loop = joint.source(one) if one is node else one
        what = "in" if position is None else f"in iteration {position} of"
        where += f"\n  {what} {loop.name!r} (built at {loop.where_built()})"
    error = NodeError(
        f"{direction} of node {source.name!r} failed in op {source.op.name!r}{step}: "
        f"{text_of(cause)}\n  inputs: {', '.join(got) or 'none'}\n"
        f"  device: {device}\n  built at {source.where_built()}{where}",
        node=source.name,
        op=source.op.name,
        inputs=got,
        device=device,
        line=source.where_built(),
        phase=direction,
        iteration=tuple([position for position, _ in path if position is not None]),
    )
    error.__cause__ = cause
    return error
