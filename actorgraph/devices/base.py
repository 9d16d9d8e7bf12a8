"""Devices: an array module, ordered lanes, and copies to and from the host.

Launching is asynchronous.  `Lane.launch` returns a `Handed` at once: a future value with its lane
and a token that says when it is there.  Jobs of one lane run in order; a job of another lane waits
for the token (`Lane.join`), the launching thread does not.  Only reading a value on the host waits
for its completion.

Invariants, which `devices.checker` checks:

- A job that reads a value is ordered behind the job that makes it: by their lane, or by a wait for
  an event recorded behind it.  Vector clocks (`Lane.seen`) save the waits that are implied.
- Memory returns to its home lane when nothing refers to it and all jobs of other lanes that use it
  are done; between the two it is in the home lane's retire queue.
- The thread that drops the last reference only notes that (`Lane.dropped`); the next launch on the
  home lane handles it.

Subclasses, one a file, implement `Device` and `Queue`.  Nothing here knows machines or graphs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np

from actorgraph import instrument
from actorgraph.devices.checks import Check, Failed, pending
from actorgraph.devices.copies import copied
from actorgraph.devices.events import Event
from actorgraph.errors import GraphError, text_of
from actorgraph.options import in_child_of_fork, positive
from actorgraph.tiles import here
from actorgraph.warned import UnderWay, runs_steps

issuing = threading.RLock()
"""Lock held during a launch: lanes of all devices read each other's clocks."""


COPY_OVER = "copy over"
"""The name of a copy from another device."""

ADDED = "sum of microbatches"
"""The name of a sum that belongs to no node."""

_COPIES: dict[int | str, str] = {"in": "copies in", "out": "copies out"}

MOST_URGENT = -5
"""The most urgent priority of today's GPUs."""

_PRIORITIES: dict[int | str, int] = {"in": -2, "out": -2, 0: -1}
"""Copies are most urgent; lane 0, which gets the critical path, comes before other lanes."""

_MARKED, _MARKS = 64, 8
"""Jobs from one mark of a lane to the next, and marks that a launcher may be ahead."""

_EARLY = "a value of a device is read before it is there: a wait is missing"


class Cell:
    """The result of a job: an array or a `Failed`, both None until it is done.

    `shared` says that the array is an operand's, so its memory belongs to another cell.  The value
    is valid if none of its `checks` is bad; these are host numbers once the value is `on_host`.
    `home` is the CUDA graph that owns the memory and will write there again.
    """

    __slots__ = ("__weakref__", "array", "checks", "failed", "home", "on_host", "shared")

    def __init__(self, array: Any = None) -> None:
        self.array = array
        self.checks: tuple[Check, ...] = ()
        self.failed: BaseException | None = None
        self.home: object = None
        self.shared = self.on_host = False


class _Hold:
    """Ownership of a cell's memory: when it is collected, the home lane gets the memory back."""

    __slots__ = ("cell", "lane", "uses")

    def __init__(self, lane: Lane, cell: Cell) -> None:
        self.lane, self.cell = lane, cell
        # By other lane: its latest job that uses the memory, and the event behind it if any.
        self.uses: dict[Lane, tuple[int, Event | None]] = {}

    def __del__(self) -> None:
        self.lane.dropped.append((self.cell, self.uses))


class Handed:
    """A value on a device, which may not be computed yet.

    Attributes
    ----------
    device : str
        Name of the device.
    lane : Lane
        Its home: the lane that makes it and gets its memory back.
    seq : int
        With `lane` its token: it is there when the lane has done that many jobs.
    event : Event or None
        Recorded behind its job, if a wait from outside the lane was expected.
    node : Node or None
        The node that an error names.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.devices.get("cpu").hold(np.ones(2)).fetch()
    array([1., 1.])
    """

    __slots__ = ("__weakref__", "cell", "event", "lane", "memories", "node", "seq")

    def __init__(self, lane: Lane, seq: int, cell: Cell, memories: tuple[_Hold, ...] = ()) -> None:
        self.lane, self.seq, self.cell, self.memories = lane, seq, cell, memories
        self.event: Event | None = None
        self.node: Any = None

    def become(self, other: Handed) -> None:
        """Turn into another value, for all holders of this one, which has failed."""
        for name in ("lane", "seq", "cell", "memories", "event"):
            setattr(self, name, getattr(other, name))

    def mark(self) -> None:
        """Record an event now, so that other lanes wait for nothing launched later."""
        with issuing:
            self.event = self.event or self.lane.record()

    def result(self) -> Any:
        """Return the array, which must be complete, or raise what its job has raised."""
        if self.cell.failed is not None:
            raise self.cell.failed
        if self.lane.device.lost is not None:
            raise GraphError(
                f"device {self.device} is lost, to all of this process: "
                f"{text_of(self.lane.device.lost)}"
            ) from self.lane.device.lost
        if self.cell.array is None:
            raise RuntimeError(_EARLY)
        if self.cell.on_host:
            for check in self.cell.checks:
                check.raised()
        return self.cell.array

    def left(self) -> Handed:
        """Return the value itself, which must be complete, or raise what its job has raised."""
        self.result()
        return self

    @property
    def device(self) -> str:
        """The name of its lane's device."""
        return self.lane.device.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array, which must be complete."""
        return tuple(self.result().shape)

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Dtype of the array, which must be complete."""
        return self.result().dtype

    @property
    def flags(self) -> Any:
        """Memory layout of the array, as its module tells it."""
        return self.result().flags

    def fetch(self) -> np.ndarray[Any, Any]:
        """Wait for the value, and return it as a NumPy array of the caller's own."""
        device = self.lane.device
        device.retain()
        try:
            there = device.fetch(self)
            assert there.event is not None
            there.event.block()
            return np.array(there.result())
        finally:
            device.release()

    def __dlpack_device__(self) -> Any:
        return self.result().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        """Export the array, which must be complete, to other libraries without a copy."""
        return self.result().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> Any:
        """The export of a GPU's array, for libraries that use this interface."""
        return self.result().__cuda_array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return `fetch()`, when NumPy converts the value."""
        return self.fetch() if dtype is None else self.fetch().astype(dtype)

    def __repr__(self) -> str:
        array = self.cell.array
        what = "not there yet" if array is None else f"{array.dtype}{list(array.shape)}"
        return f"<{what} on {self.device}>"


class Job:
    """One piece of work of a lane.  It fills its cell, and never raises."""

    __slots__ = (
        "cell", "context", "fresh", "held", "lane", "launched", "leaves", "name", "node", "parts",
        "reads", "tells", "work",
    )  # fmt: skip

    def __init__(
        self, lane: Lane, name: str, node: Any, work: Callable[..., Any], reads: tuple[Cell, ...],
        fresh: bool, leaves: bool, parts: Sequence[Cell],
    ) -> None:  # fmt: skip
        self.lane, self.node, self.work = lane, node, work
        self.name = name  # for traces and findings
        self.reads = reads  # the operands, in order
        self.fresh = fresh  # whether the result shares memory with no operand
        self.leaves = leaves  # whether the result is on the host
        self.parts = parts  # the cells of a tuple's items
        self.cell = Cell()  # of the result
        self.context = copy_context()
        # The scheduler and run of the launching thread, so an op in it cannot wait for itself.
        self.held = getattr(here, "held", None)
        self.tells = True  # times itself; False where a call only enqueues the work
        self.launched: tuple[str, float] | None = None  # thread and time, if an instrument listens
        if instrument.listening:
            self.launched = threading.current_thread().name, perf_counter()

    @property
    def under_way(self) -> UnderWay:
        """For warnings and errors: the node that runs during the call."""
        return UnderWay(node=self.node)

    @runs_steps("self")
    def __call__(self) -> None:
        """Do the work; the lane's queue calls it in order."""
        started = perf_counter() if self.launched and self.tells else 0.0
        cell, outer = self.cell, (getattr(here, "held", None), getattr(here, "lane", None))
        here.held, here.lane = self.held, self.lane
        try:
            failed = [one.failed for one in self.reads if one.failed is not None]
            if failed:
                cell.failed = failed[0]
            else:
                arrays = [one.array for one in self.reads]
                if any([one is None for one in arrays]):  # noqa: C419
                    raise RuntimeError(_EARLY)
                checks = pending.checks = []
                array = self.context.run(self.work, *arrays)
                cell.shared = any([array is one for one in arrays])  # noqa: C419
                self._take_checks(checks)
                cell.array = array
        except Failed as failed:  # of one of several steps
            cell.failed = failed
        except BaseException as error:  # noqa: BLE001 - it ends the run, not the lane
            cell.failed = Failed(*self._where(), error)
        finally:
            here.held, here.lane = outer
        for place, part in enumerate(self.parts):
            part.failed, part.checks = cell.failed, cell.checks
            part.array = None if cell.array is None else cell.array[place]
        if started:
            instrument.tell("on_job", self, started, perf_counter())

    def _where(self) -> tuple[Any, tuple[str, ...], str]:
        inputs = tuple([described(cell.array) for cell in self.reads])
        return self.node, inputs, self.lane.device.name

    def _take_checks(self, own: list[Check]) -> None:
        """Give the value the checks of its operands, and the op's own."""
        made = {check: None for one in self.reads for check in one.checks}
        if not (own or made):
            return
        where = self._where() if own else None
        checks = (*made, *[replace(check, where=check.where or where) for check in own])
        if self.leaves:
            fetch = self.lane.device.to_host
            checks = tuple([
                replace(check, bad=fetch(check.bad), numbers=tuple(map(fetch, check.numbers)))
                for check in checks
            ])  # fmt: skip
            self.cell.on_host = True
        self.cell.checks = checks


def described(array: Any) -> str:
    """Return how an error describes an operand."""
    if isinstance(array, (tuple, list)):
        return f"{len(array)} arrays"
    return "nothing yet" if array is None else f"{array.dtype}{list(array.shape)}"


class Queue(ABC):
    """The FIFO in which a lane's jobs, events and waits are done in order."""

    @abstractmethod
    def put(self, job: Job) -> None:
        """Append a job."""

    @abstractmethod
    def record(self) -> Event:
        """Return an event behind all that was put before."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Make all that is put from now on wait until `event` is passed."""

    def passed(self, event: Event) -> bool:
        """Return whether the host sees that an event of this queue is passed."""
        known = event.passed
        if known:
            self.note_passed(event)
        return known

    def note_passed(self, event: Event) -> None:  # noqa: B027
        """Called when the host has seen that an event is passed."""

    def free(self, cell: Cell) -> None:  # noqa: B027
        """Called when a cell's memory returns: later jobs may overwrite it.

        The memory itself is freed by its references.
        """

    def stop(self, join: bool) -> None:  # noqa: B027
        """End threads when all that was put is done; with `join` wait for that."""


class Lane:
    """An ordered queue of a device: a thread, or a stream.

    Attributes
    ----------
    which : int or str
        Its number, or ``"in"`` or ``"out"``.
    copies : bool
        Whether it is for copies, in or out.
    priority : int
        The lane with the lowest number goes first when the device is busy.
    seq : int
        Number of jobs launched.
    seen : dict
        Vector clock: by lane, how many of its jobs are done before any later job of this lane.
    ahead : deque of Event
        The latest marks, which limit how far a launcher runs ahead (`await_credit`).
    dropped : deque of (Cell, dict)
        Memory without references, with its latest uses by other lanes.
    retired : deque of (Cell, list of (Lane, Event))
        Memory without references that other lanes may still be using.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.get("virtual:0").lane(1).name
    'virtual:0 lane 1'
    """

    def __init__(self, device: Device, which: int | str, priority: int | None = None) -> None:
        self.device, self.which, self.seq = device, which, 0
        self.name = f"{device.name} {_COPIES.get(which, f'lane {which}')}"
        self.copies = which in _COPIES
        if priority is None:
            inner = device.inner
            priority = _PRIORITIES.get(which, 0) if inner is None else inner.lane(which).priority
        self.priority: int = priority
        self.queue = device.queue(self)
        self.seen: dict[Lane, int] = {}
        self.ahead: deque[Event] = deque(maxlen=_MARKS)
        self.dropped: deque[tuple[Cell, dict[Lane, tuple[int, Event | None]]]] = deque()
        self.retired: deque[tuple[Cell, list[tuple[Lane, Event]]]] = deque()

    def launch(
        self, work: Callable[..., Any], operands: Sequence[Handed], *, name: str, node: Any = None,
        fresh: bool = True, record: bool = False, leaves: bool = False, parts: Sequence[Cell] = (),
    ) -> Handed:  # fmt: skip
        """Have the lane compute ``work(*arrays)``, and return its future value.

        Parameters
        ----------
        work : callable
        operands : sequence of Handed
            On this device, or on another one if `work` copies them.
        name : str
        node : Node, optional
            The node that errors name.
        fresh : bool
            False if the result may share memory with an operand.
        record : bool
            Whether a wait from outside the lane is expected.
        leaves : bool
            Whether the result is not in the device's memory.
        parts : sequence of Cell
            The cells for the items of a result that is a tuple.
        """
        with issuing:
            self.settle()
            for operand in operands:
                self.join(operand)
            if node is None:  # a copy belongs to the node of its operand
                node = next((one.node for one in operands if one.node is not None), None)
            reads = tuple([operand.cell for operand in operands])
            job = Job(self, name, node, work, reads, fresh, leaves, parts)
            self.queue.put(job)
            self.seq += 1
            event = self.record() if record else None
            if not self.seq % _MARKED:
                self.ahead.append(event or self.record())
            for operand in operands:
                for memory in operand.memories:
                    if memory.lane is not self:
                        memory.uses[self] = self.seq, event
            memories: tuple[_Hold, ...] = () if leaves else (_Hold(self, job.cell),)
            if not fresh:
                memories += tuple([one for operand in operands for one in operand.memories])
            made = Handed(self, self.seq, job.cell, memories)
            made.event, made.node = event, node
            return made

    def await_credit(self) -> None:
        """Block until the lane is not far behind its launches.

        The caller must not hold `issuing`, which pending jobs may need.
        """
        if len(self.ahead) == _MARKS:
            self.ahead[0].block()

    def join(self, value: Handed) -> None:
        """Make later jobs wait for a value, unless the vector clock implies it."""
        home = value.lane
        if home is self or self.seen.get(home, 0) >= value.seq:
            return
        event = value.event or home.record()
        self.queue.wait(event)
        for lane, seq in event.clock.items():
            self.seen[lane] = max(seq, self.seen.get(lane, 0))

    def record(self) -> Event:
        """Return an event behind all jobs launched so far."""
        with issuing:
            event = self.queue.record()
            event.clock = {**self.seen, self: self.seq}
            return event

    def settle(self, ended: bool = False) -> None:
        """Free returned memory that no other lane can be using.

        If the device has `ended`, all jobs of its own lanes are done.
        """
        while self.dropped:
            cell, uses = self.dropped.popleft()
            pending = [
                (lane, event or lane.record())
                for lane, (seq, event) in uses.items()
                if self.seen.get(lane, 0) < seq and not (ended and lane.device is self.device)
            ]
            if pending:
                self.retired.append((cell, pending))
            else:
                self.queue.free(cell)
        while self.retired and _passed(self.retired[0][1]):
            self.queue.free(self.retired.popleft()[0])

    def __repr__(self) -> str:
        return f"<lane {self.name}>"


def _passed(events: Sequence[tuple[Lane, Event]]) -> bool:
    return all(lane.queue.passed(event) for lane, event in events)


class Placement(NamedTuple):
    """Where a node shall run; it is no part of the node's identity.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.placement("virtual:0", lane=1)
    Placement(device=<device virtual:0>, lane=1)
    """

    device: Device
    lane: int | None


class Device(ABC):
    """An array module with lanes.

    Attributes
    ----------
    name : str
    inner : Device or None
        The device that this one wraps.

    Examples
    --------
    >>> import actorgraph as ag
    >>> device = ag.devices.get("virtual:0")
    >>> isinstance(device, ag.devices.Device), device.name
    (True, 'virtual:0')
    """

    name: str
    inner: Device | None = None
    is_host: bool = False
    """Whether workers compute on it themselves, without lanes."""
    lost: BaseException | None = None
    """Why the device is unusable in this process, None if it is not."""
    products: Any = None
    """The array module of captured steps, if not `xp`: one with another `matmul`."""
    refused: dict[Any, str] | None = None
    """Kinds of steps that it could not capture in a CUDA graph, with reasons; None: no graphs."""

    _lanes: dict[int | str, Lane]
    _holders: int
    _retained: int

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Make a device; a subclass need not call ``super().__init__()``."""
        made = super().__new__(cls)
        made._lanes, made._holders, made._retained = {}, 0, 0
        return made

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array module that op rules receive."""

    @abstractmethod
    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a host array as an array of this device; called by jobs of its lanes."""

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return an array of this device as a NumPy array; called by jobs of its lanes."""

    @abstractmethod
    def queue(self, lane: Lane) -> Queue:
        """Return a new queue for a lane, whose name, kind and priority are set."""

    def partition(self, count: int) -> list[Device]:
        """Return `count` devices on the same hardware, each with lanes of its own.

        Values travel between them by copies, as between any two devices.

        Examples
        --------
        >>> import actorgraph as ag
        >>> [part.name for part in ag.devices.get("virtual:0").partition(2)]
        ['virtual:0.0', 'virtual:0.1']
        """
        return [self._part(f"{self.name}.{number}") for number in range(positive("count", count))]

    def _part(self, name: str) -> Device:
        raise GraphError(
            f"device {self.name} cannot be partitioned; partition an unwrapped device of its kind"
        )

    @property
    def root(self) -> Device:
        """The innermost wrapped device, or this one."""
        return self if self.inner is None else self.inner.root

    def lane(self, which: int | str, priority: int | None = None) -> Lane:
        """Return a lane by number; ``"in"`` and ``"out"`` are those of copies.

        Parameters
        ----------
        which : int or str
        priority : int, optional
            Of a GPU's lane, from -5 (first) to 0.  By default -2 for copies, -1 for lane 0, else 0.

        Raises
        ------
        GraphError
            If the lane already exists with another priority.

        Examples
        --------
        >>> import actorgraph as ag
        >>> ag.devices.get("virtual:8").lane(1, priority=-2).priority
        -2
        """
        with issuing:
            lane = self._lanes.get(which)
            if lane is None:
                lane = self._lanes[which] = Lane(self, which, priority)
        if priority not in (None, lane.priority):
            raise GraphError(
                f"{lane.name} has priority {lane.priority} since it was first named, got "
                f"{priority}; set it there, or use another lane"
            )
        return lane

    def hold(self, array: Any) -> Handed:
        """Return an array of this device, complete and never to be written, as a value."""
        return Handed(self.lane("in"), 0, Cell(array))

    def holds(self, value: Any) -> bool:
        """Return whether an array of another library is on this device."""
        return False

    def adopt(self, value: Any) -> Handed:
        """Return an array of another library on this device as a value, without a copy.

        If it is still being computed, lanes wait for that.
        """
        raise GraphError(
            f"device {self.name} takes no arrays of other libraries; feed NumPy arrays"
        )

    def bring(self, value: Any, node: Any = None) -> Handed:
        """Return a host array, or a value of another device, as one of this device."""
        source = value if isinstance(value, Handed) else None
        lane = self.lane("in")
        if source is None:
            return lane.launch(
                self.to_device, [self.hold(value)], name="copy in", node=node, record=True
            )
        other = source.lane.device
        if self.xp is not other.xp:
            # Each device does its half of the copy, in the order of its own lanes.
            source = other.fetch(source, node)
        elif self.xp is not np:  # a copy from GPU to GPU must be contiguous
            whole = other.xp.ascontiguousarray
            source = source.lane.launch(whole, [source], name="copy out", node=node, fresh=False)
        work = copied if self.root.is_host else self.to_device
        return lane.launch(work, [source], name=COPY_OVER, node=node, record=True)

    def fetch(self, value: Handed, node: Any = None) -> Handed:
        """Return a value of this device as one whose array is on the host."""
        lane = self.lane("out")
        return lane.launch(
            self.to_host, [value], name="copy out", node=node, record=True, leaves=True
        )

    def retain(self) -> None:
        """Count a machine that uses this device."""
        with issuing:
            self._holders += 1
            self._retained += 1

    def release(self, join: bool = True) -> None:
        """Undo `retain`; with the last machine threads end, and `join` waits for that."""
        with issuing:
            self._holders -= 1
            retained = self._retained
            ended = [] if self._holders else list(self._lanes.values())
            for lane in ended:
                lane.settle()
        for lane in ended:
            lane.queue.stop(join)
        with issuing:
            alone = retained == self._retained  # else jobs of a new machine may be running
            for lane in ended:
                lane.settle(ended=join and alone)

    def __repr__(self) -> str:
        return f"<device {self.name}>"


@in_child_of_fork
def _after_fork_in_child() -> None:
    global issuing
    issuing = threading.RLock()  # a thread of the parent may have held it
