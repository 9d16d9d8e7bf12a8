"""What a device is: an array module, ordered lanes, and the way of values to and from it.

Ordering is not completion.  Who launches work on a `Lane` gets a `Handed` at once: what will be the
value, where, and the token that tells when.  Work on one lane is done in its order; work on another
lane waits for the token (`Lane.join`), not the thread that launches it.  Only who reads a value on
the host waits for its completion.

Rules, which `devices.checker` looks after:

- Work that reads a value is ordered behind the work that makes it: by its lane, or by a wait for an
  event that was recorded behind it.  Vector clocks (`Lane.seen`) spare the waits that are implied.
- Memory goes back to its home lane when nothing refers to it any more, and only when what other
  lanes have still to do with it is done: until then it is in the home lane's retire queue.
- Whoever drops the last reference, in whichever thread, only says so (`Lane.dropped`); who launches
  next on the home lane sees to it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from actorgraph import instrument
from actorgraph.devices.checks import Check, Failed, pending
from actorgraph.devices.events import Event
from actorgraph.errors import GraphError, text_of
from actorgraph.options import positive
from actorgraph.tiles import here
from actorgraph.warned import UnderWay, runs_steps

issuing = threading.RLock()
"""Held while work is launched: lanes of all devices know each other's clocks."""


COPY_OVER = "copy over"
"""The name of a copy from another device."""

ADDED = "sum of microbatches"
"""The name of a sum that is no node's."""

_COPIES: dict[int | str, str] = {"in": "copies in", "out": "copies out"}

MOST_URGENT = -5
"""The priority that goes before all others on today's GPUs."""

_PRIORITIES: dict[int | str, int] = {"in": -2, "out": -2, 0: -1}
"""Copies go before all, and lane 0, which gets the longest path, before other lanes."""

_MARKED, _MARKS = 64, 8
"""After how many jobs a lane is marked, and of how many marks the first has to be passed."""

_EARLY = "a value of a device is read before it is there: a wait is missing"


class Cell:
    """Where a job puts what it has computed: an array, or a `Failed`; both None before.

    The array is `shared` where it is that of an operand: its memory is another cell's.  The value
    holds where no one of its `checks` is bad; those of what has come to the host are host numbers.
    Memory that a CUDA graph writes to has a `home`: the graph, which writes there again.
    """

    __slots__ = ("__weakref__", "array", "checks", "failed", "home", "on_host", "shared")

    def __init__(self, array: Any = None) -> None:
        self.array = array
        self.checks: tuple[Check, ...] = ()
        self.failed: BaseException | None = None
        self.home: object = None
        self.shared = self.on_host = False


class _Hold:
    """The right to a cell's memory; when nobody holds it any more, its home lane gets it back."""

    __slots__ = ("cell", "lane", "uses")

    def __init__(self, lane: Lane, cell: Cell) -> None:
        self.lane, self.cell = lane, cell
        # By other lanes: the latest of each, and the event behind it if there is one.
        self.uses: dict[Lane, tuple[int, Event | None]] = {}

    def __del__(self) -> None:
        self.lane.dropped.append((self.cell, self.uses))


class Handed:
    """A value on a device, which perhaps is not there yet.

    Attributes
    ----------
    device : str
        Name of the device.
    lane : Lane
        Its home: where it is made, and where its memory goes back to.
    seq : int
        With `lane` its token: it is there when the lane has done so many jobs.
    event : Event or None
        Recorded behind its job, where somebody outside of the lane was expected.
    node : Node or None
        Whom to blame where it cannot be had.

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
        """Be another value, for all who have this one: it has failed, and was made again."""
        for name in ("lane", "seq", "cell", "memories", "event"):
            setattr(self, name, getattr(other, name))

    def mark(self) -> None:
        """Have other lanes wait for it, and not for what is launched behind it."""
        with issuing:
            self.event = self.event or self.lane.record()

    def result(self) -> Any:
        """Return the array, which is complete, or raise what its job has raised."""
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
        """Return the value itself, which is complete, or raise what its job has raised."""
        self.result()
        return self

    @property
    def device(self) -> str:  # noqa: D102 - listed above
        return self.lane.device.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array, which is complete."""
        return tuple(self.result().shape)

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """Of the array, which is complete."""
        return self.result().dtype

    @property
    def flags(self) -> Any:
        """How the array lies in the device's memory."""
        return self.result().flags

    def fetch(self) -> np.ndarray[Any, Any]:
        """Return the value as an array of NumPy, of the caller's own, when it is there."""
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
        """Return what other libraries take the array by, which is complete, without a copy."""
        return self.result().__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> Any:
        """The same for libraries that take arrays of a GPU by this."""
        return self.result().__cuda_array_interface__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return what `fetch` returns: NumPy asks for it where the user does."""
        return self.fetch() if dtype is None else self.fetch().astype(dtype)

    def __repr__(self) -> str:
        array = self.cell.array
        what = "not there yet" if array is None else f"{array.dtype}{list(array.shape)}"
        return f"<{what} on {self.device}>"


@dataclass(slots=True, eq=False)
class Job:
    """One piece of work of a lane: it fills its cell, and never raises."""

    lane: Lane
    name: str  # for traces and findings
    node: Any
    work: Callable[..., Any]
    reads: tuple[Cell, ...]  # the operands, in order
    fresh: bool  # whether the result shows memory of no operand
    leaves: bool  # whether the result is the host's
    parts: Sequence[Cell]  # where each part of a result goes that is a tuple
    cell: Cell = field(default_factory=Cell)  # where the result goes
    context: Context = field(default_factory=copy_context)
    # For whom the thread runs ops that launches it: what its work does there waits for itself.
    held: Any = field(default_factory=partial(getattr, here, "held", None))
    launched: tuple[str, float] | None = None  # thread and time, where an instrument listens
    tells: bool = True  # the instrument itself; not where calling it only enqueues the work

    def __post_init__(self) -> None:
        if instrument.listening:
            self.launched = threading.current_thread().name, perf_counter()

    @property
    def under_way(self) -> UnderWay:
        """What runs while it is called."""
        return UnderWay(node=self.node)

    @runs_steps("self")
    def __call__(self) -> None:
        """Do it, as the lane's turn has come."""
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
        except Failed as failed:  # a step of several
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
        """Have the value hold where its operands do, and what the op has checked."""
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
    """Return what an error tells of an operand."""
    if isinstance(array, (tuple, list)):
        return f"{len(array)} arrays"
    return "nothing yet" if array is None else f"{array.dtype}{list(array.shape)}"


class Queue(ABC):
    """What a lane puts its work into: done in order."""

    @abstractmethod
    def put(self, job: Job) -> None:
        """Have a job done behind all that was put before."""

    @abstractmethod
    def record(self) -> Event:
        """Return a mark behind all that was put before."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Have all that is put from now on wait until `event` is passed."""

    def passed(self, event: Event) -> bool:
        """Return whether the host knows that an event of this queue is passed."""
        known = event.passed
        if known:
            self.note_passed(event)
        return known

    def note_passed(self, event: Event) -> None:  # noqa: B027
        """Take note that the host knows it."""

    def free(self, cell: Cell) -> None:  # noqa: B027
        """Take memory back, which goes anyway when nothing refers to it.

        What is put from now on may write over it.
        """

    def stop(self, join: bool) -> None:  # noqa: B027
        """End threads, when all that was put is done."""


class Lane:
    """An ordered queue of a device: a thread, or a stream.

    Attributes
    ----------
    which : int or str
        What its device calls it.
    copies : bool
        Whether it is for copies, in or out.
    priority : int
        The lowest number goes first, where the device has more to do than it can at once.
    seq : int
        Jobs that were launched.
    seen : dict
        By lane, how many of its jobs are done before any job that is launched from now on.
    ahead : deque of Event
        Behind every so many jobs, the latest of them: credits for who launches.
    dropped : deque of (Cell, dict)
        Memory that nobody refers to any more, with its latest uses by other lanes.
    retired : deque of (Cell, list of (Lane, Event))
        Such memory which other lanes may be using still.

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
        self,
        work: Callable[..., Any],
        operands: Sequence[Handed],
        *,
        name: str,
        node: Any = None,
        fresh: bool = True,
        record: bool = False,
        leaves: bool = False,
        parts: Sequence[Cell] = (),
    ) -> Handed:
        """Have the lane compute ``work(*arrays)``, and return its value to be.

        Parameters
        ----------
        work : callable
        operands : sequence of Handed
            On this device, or of another one where `work` copies it.
        name : str
        node : Node, optional
            Whom to blame.
        fresh : bool
            False where the result may show memory of an operand.
        record : bool
            Whether somebody outside of the lane is going to wait for it.
        leaves : bool
            Whether the result is no memory of the device.
        parts : sequence of Cell
            Where each part of a result goes that is a tuple.
        """
        with issuing:
            self.settle()
            for operand in operands:
                self.join(operand)
            if node is None:  # a copy is for the node whose value it is of
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
        """Return when the lane is not far behind what was launched.

        Never called where `issuing` is held: what the lane has to do first may need that.
        """
        if len(self.ahead) == _MARKS:
            self.ahead[0].block()

    def join(self, value: Handed) -> None:
        """Have what is launched from now on wait for a value, if that is not implied."""
        home = value.lane
        if home is self or self.seen.get(home, 0) >= value.seq:
            return
        event = value.event or home.record()
        self.queue.wait(event)
        for lane, seq in event.clock.items():
            self.seen[lane] = max(seq, self.seen.get(lane, 0))

    def record(self) -> Event:
        """Return an event behind all that was launched."""
        with issuing:
            event = self.queue.record()
            event.clock = {**self.seen, self: self.seq}
            return event

    def settle(self, ended: bool = False) -> None:
        """See to the memory that came back: free what no other lane can be using.

        Where the device has `ended`, all that its own lanes were given is done.
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
    """Where a node is to run: no part of what it is.

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
        The one that this one wraps.

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
    """Why nothing can be done on it any more, in this process."""
    products: Any = None
    """The array module that kernels of steps get, where it is not `xp`: it has another `matmul`."""
    refused: dict[Any, str] | None = None
    """Of a device that captures CUDA graphs: which op of which dtype it has refused, and why."""

    def __init__(self) -> None:
        self._lanes: dict[int | str, Lane] = {}
        self._holders = self._retained = 0

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The array module that op rules receive."""

    @abstractmethod
    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a host array as an array of this device; no copy where it is one already."""

    @abstractmethod
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return an array of this device as a NumPy array, when it is complete."""

    @abstractmethod
    def queue(self, lane: Lane) -> Queue:
        """Return a new queue for a lane, of which the name, the kind and the priority are known."""

    def partition(self, count: int) -> list[Device]:
        """Return so many devices with lanes of their own on what this one is.

        A value goes from one to another by a copy, as between any two.

        Examples
        --------
        >>> import actorgraph as ag
        >>> [part.name for part in ag.devices.get("virtual:0").partition(2)]
        ['virtual:0.0', 'virtual:0.1']
        """
        return [self._part(f"{self.name}.{number}") for number in range(positive("count", count))]

    def _part(self, name: str) -> Device:
        raise GraphError(f"device {self.name} cannot be parted: part one of its kind, not wrapped")

    @property
    def root(self) -> Device:
        """The device that is wrapped in the end, or this one."""
        return self if self.inner is None else self.inner.root

    def lane(self, which: int | str, priority: int | None = None) -> Lane:
        """Return a lane by number; ``"in"`` and ``"out"`` are those of copies.

        Parameters
        ----------
        which : int or str
        priority : int, optional
            Of a GPU's lane, from -5, which goes first, to 0; else 0, of lane 0 -1, of copies -2.

        Raises
        ------
        GraphError
            It has another priority since it was first named.

        Examples
        --------
        >>> import actorgraph as ag
        >>> ag.devices.get("virtual:8").lane(1, priority=-2).priority
        -2
        """
        with issuing:
            found = self._lanes.get(which)
            if found is None:
                found = self._lanes[which] = Lane(self, which, priority)
        if priority not in (None, found.priority):
            raise GraphError(
                f"{found.name} has priority {found.priority} since it was first named, got "
                f"{priority}: say it there, or take another lane"
            )
        return found

    def hold(self, array: Any) -> Handed:
        """Return an array of this device, which is complete and stays as it is, as a value."""
        return Handed(self.lane("in"), 0, Cell(array))

    def holds(self, value: Any) -> bool:
        """Return whether an array of another library lies on this device."""
        return False

    def adopt(self, value: Any) -> Handed:
        """Return an array of another library that lies on this device as a value, without a copy.

        Where what computes it is under way, lanes wait for that.
        """
        raise GraphError(
            f"device {self.name} takes no arrays of other libraries as they are: feed NumPy's"
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
            # Each device makes its own half of the copy, in the order of its own lanes.
            source = other.fetch(source, node)
        elif self.xp is not np:  # from one GPU to another goes what lies in one piece
            whole = other.xp.ascontiguousarray
            source = source.lane.launch(whole, [source], name="copy out", node=node, fresh=False)
        work = np.array if self.root.is_host else self.to_device
        return lane.launch(work, [source], name=COPY_OVER, node=node, record=True)

    def fetch(self, value: Handed, node: Any = None) -> Handed:
        """Return a value of this device as one whose array is the host's."""
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
        """Count a machine less; with the last one threads end, and `join` waits for that."""
        with issuing:
            self._holders -= 1
            retained = self._retained
            ended = [] if self._holders else list(self._lanes.values())
            for lane in ended:
                lane.settle()
        for lane in ended:
            lane.queue.stop(join)
        with issuing:
            alone = retained == self._retained  # or what others have launched is under way
            for lane in ended:
                lane.settle(ended=join and alone)

    def __repr__(self) -> str:
        return f"<device {self.name}>"


def _after_fork_in_child() -> None:
    global issuing
    issuing = threading.RLock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
