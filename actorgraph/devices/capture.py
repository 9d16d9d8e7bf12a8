"""CUDA graphs: captured steps of a lane, replayed by one launch.

A program calls `CapturedSteps` in the place of the steps (`lower.capturing`).  It launches one job
for all of them, or several if some cannot be captured: the device refuses them when it is asked to,
and from then on they are launched by themselves.

A `GraphInstance` has memory of its own for operands, intermediate values and results.  Operands are
copied there, unless they are unchanged or results of another graph, which the graph reads where
they are.  Invariant: an instance is replayed only when nobody holds a result of its last run and no
lane has still to read one.  So there are as many instances as runs in flight need at once.

During capture, the lanes of the steps are streams that fork from the first one and join it at the
end.  An array that another stream reads, or may see through a view, is held until the end of the
capture, so that the pool does not reuse its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple, final
from weakref import ref

from actorgraph.devices import base
from actorgraph.devices.base import Cell, Handed, Lane, described
from actorgraph.devices.checks import Check, Failed, pending
from actorgraph.errors import text_of

_MOST = 32
"""Most instances of a part; further runs launch their steps one by one."""

_BESIDE = 4
"""Lanes over which the instances of a part are spread."""

_INVALIDATED = "CaptureInvalidated"
"""CUDA's error where another step has ended a capture."""


class GraphStep(NamedTuple):
    """A step that may be captured.

    It reads operands and results of earlier steps by number, operands first.  Steps of one `kind`
    are either all refused by a device or none.
    """

    call: Callable[..., Any]  # its kernel
    launched: Callable[..., Handed]  # launches it by itself
    reads: tuple[int, ...]
    lane: int  # the number of its stream, 0 being the first
    fresh: bool  # whether its result shares memory with no operand
    node: Any
    name: str  # for traces
    kind: Any


class _Part:
    """Consecutive steps, by number, that are captured together."""

    def __init__(self, whole: CapturedSteps, numbers: Sequence[int]) -> None:
        self.numbers, self.steps, self.first = numbers, whole.steps, whole.operands
        self.refused = whole.refused
        steps, first = self.steps, self.first
        members = {first + number for number in numbers}
        read = dict.fromkeys([one for number in numbers for one in steps[number].reads])
        self.reads = [one for one in read if one not in members]
        others = [step.reads for number, step in enumerate(steps) if first + number not in members]
        self.writes = sorted(
            members & {*whole.results, *[one for reads in others for one in reads]}
        )
        self.crossing = {
            one
            for number in numbers
            for one in steps[number].reads
            if one in members and steps[one - first].lane != steps[number].lane
        }
        shows: dict[int, set[int]] = {}  # the values whose memory a value may share
        for number in numbers:
            shown = [shows.get(one, {one}) for one in steps[number].reads]
            shows[first + number] = {first + number}.union(*[] if steps[number].fresh else shown)
        self.fresh = all(shows[one].isdisjoint(self.reads) for one in self.writes)
        self.dropped = self._dropped(len({steps[number].lane for number in numbers}) > 1)

    def _dropped(self, several: bool) -> dict[int, list[int]]:
        """Return the values to drop after each step: those that only its stream sees."""
        last: dict[int, int] = {}
        held = {*self.reads, *self.writes, *self.crossing}
        for number in self.numbers:
            step = self.steps[number]
            last.update(dict.fromkeys(step.reads, number))
            if several and not step.fresh:
                held.update((*step.reads, self.first + number))
        dropped: dict[int, list[int]] = {}
        for one, number in last.items():
            if one not in held:
                dropped.setdefault(number, []).append(one)
        return dropped


@final
class CapturedSteps:
    """The steps of a region on a lane of a device that can capture, as one kernel.

    `operands` is their number; `results` are numbered like the values that steps read.
    """

    def __init__(
        self, lane: Lane, steps: Sequence[GraphStep], operands: int, results: Sequence[int]
    ) -> None:
        self.lane, self.steps, self.operands, self.results = lane, steps, operands, results
        known = lane.device.root.refused or {}
        reasons = {number: known.get(step.kind) for number, step in enumerate(steps)}
        self.refused = {number: reason for number, reason in reasons.items() if reason}
        self._cut_for = -1
        self._parts: list[_Part | int] = []
        self._instances: dict[_Part, dict[tuple[Any, ...], list[GraphInstance]]] = {}

    def __call__(self, run: Any, *operands: Handed) -> tuple[Handed, ...]:
        """Launch all steps, and return their future results."""
        with base.issuing:
            if self._cut_for != len(self.refused):
                self._cut()
            parts = self._parts
        values = dict(enumerate(operands))
        for part in parts:
            if isinstance(part, _Part) and self._replayed(part, values):
                continue
            for number in (part,) if isinstance(part, int) else part.numbers:
                step = self.steps[number]
                values[self.operands + number] = step.launched(*[values[one] for one in step.reads])
        return tuple([values[one] for one in self.results])

    def _replayed(self, part: _Part, values: dict[int, Handed]) -> bool:
        """Launch a free instance; return whether there is one."""
        given = [values[one] for one in part.reads]
        self.lane.await_credit()
        with base.issuing:
            instance = self._free(part, given)
            if instance is not None:
                values.update(zip(part.writes, instance.launched(given), strict=True))
        return instance is not None

    def _free(self, part: _Part, given: Sequence[Handed]) -> GraphInstance | None:
        """Return a free or new instance, None if there are too many.

        Instances are spread over several lanes, so that runs overlap.  One that reads results of
        another graph is on that graph's lane.
        """
        known = self._instances.setdefault(part, {})
        homes: tuple[Any, ...] = tuple([one.cell.home for one in given])
        instances = known.setdefault(homes, [])
        for one in instances:
            one.lane.settle()
            if one.is_free:
                return one
        count = sum(map(len, known.values()))
        if count >= _MOST:
            return None
        beside = f"{self.lane.which}+{count % _BESIDE}"
        spare_lane = (
            self.lane.device.lane(beside, self.lane.priority) if count % _BESIDE else self.lane
        )
        lane = next((home.lane for home in homes if home is not None), spare_lane)
        instances.append(GraphInstance(part, lane))
        return instances[-1]

    def _cut(self) -> None:
        """Divide the steps into parts at those that cannot be captured."""
        known = {tuple(part.numbers): part for part in self._instances}
        self._cut_for = len(self.refused)
        rows: list[list[int]] = [[]]
        for number in range(len(self.steps)):
            if number in self.refused:
                rows += [[number], []]
            else:
                rows[-1].append(number)
        self._parts = []
        for row in rows:
            self._parts += [known.get(tuple(row)) or _Part(self, row)] if len(row) > 1 else row
        parts = [part for part in self._parts if isinstance(part, _Part)]
        self._instances = {part: self._instances.get(part, {}) for part in parts}

    def clear(self) -> None:
        """Drop all graphs and their memory; none may be running."""
        for known in self._instances.values():
            known.clear()

    def notes(self) -> list[str]:
        """Return lines that say what is captured, and why the rest is not."""
        instances = [one for known in self._instances.values() for one in known.values()]
        captured = sum([len(part.numbers) for part in self._instances])
        first = f"{captured} of {len(self.steps)} steps on {self.lane.name} are captured, graphs: "
        lines = [f"{first}{len(self._instances)}, instances: {sum(map(len, instances))}"]
        for number, reason in sorted([*self.refused.items()]):
            lines.append(f"  {self.steps[number].name} is launched by itself: {reason}")
        return lines


@final
class GraphInstance:
    """A CUDA graph with its memory, for one run at a time; as a callable, the work of its job."""

    def __init__(self, part: _Part, lane: Lane) -> None:
        self._part, self.lane = part, lane
        self._device: Any = lane.device.root
        self._used: Callable[[], Cell | None] = _nothing
        self._given: list[Callable[[], Cell | None]] = []
        self._filled: list[Callable[[], Cell | None]] = []
        self._graph: Any = None
        self._pool: Any = None
        self._layouts: list[Any] = []
        self._inputs: list[Any] = []
        self._results: tuple[Any, ...] = ()
        self._checks: list[Check] = []
        self._rooms: dict[Any, Any] = {}
        self._at = 0

    @property
    def is_free(self) -> bool:
        """Whether nobody holds its results, and no lane has still to read them."""
        return self._used() is None

    def launched(self, given: Sequence[Handed]) -> list[Handed]:
        """Launch a job for it, and return its future results."""
        last = self._part.steps[self._part.numbers[-1]]
        cells = [Cell() for _ in self._part.writes]
        for cell in cells:
            cell.home = self
        self._given = [ref(one.cell) for one in given]
        made = self.lane.launch(
            self, given, name=f"graph up to {last.name}", node=last.node, fresh=self._part.fresh,
            parts=cells,
        )  # fmt: skip
        self._used = ref(made.cell)
        return [Handed(self.lane, made.seq, cell, made.memories) for cell in cells]

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Compute the results, in stream order; called by the issuing thread."""
        root = self._device.xp.cuda.get_current_stream()
        if self._graph is not None and self._fits(arrays):
            self._fill(arrays)
            self._graph.launch(root)
        else:
            self._graph = None
            with self._own_memory():
                if self._captured(root, arrays):
                    self._graph.launch(root)
                else:
                    self._results = self._played(root)
        # Flags are copied, since they may outlive the results, whose memory is reused.
        pending.checks += [
            replace(one, bad=one.bad.copy(), numbers=tuple([x.copy() for x in one.numbers]))
            for one in self._checks
        ]
        return self._results

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Return whether operands are in the captured places, or can be copied there."""
        return all(
            array is self._inputs[place] if self._stays(place) else _layout(array) == layout
            for place, (array, layout) in enumerate(zip(arrays, self._layouts, strict=True))
        )

    def _stays(self, place: int) -> bool:
        """Return whether an operand is the result of a graph, whose place never changes."""
        cell = self._given[place]()
        return cell is not None and cell.home is not None

    def _fill(self, arrays: Sequence[Any]) -> None:
        """Copy operands to the captured places, except those that are there already."""
        for place, array in enumerate(arrays):
            place_of, cell = self._inputs[place], self._given[place]
            if place_of is not array and self._filled[place]() is not cell():
                self._filled[place] = _nothing
                place_of[...] = array
                self._filled[place] = cell

    @contextmanager
    def _own_memory(self) -> Iterator[None]:
        xp, before = self._device.xp, pending.checks
        self._results, self._checks, self._rooms = (), [], {}
        self._pool = xp.cuda.MemoryPool()  # its own: the graph writes to free blocks of it, too
        products = self._device.products
        try:
            with xp.cuda.using_allocator(self._pool.malloc), products.within(self._rooms):
                yield
        finally:
            pending.checks = before

    def _captured(self, root: Any, arrays: Sequence[Any]) -> bool:
        """Capture the steps, after a trial in the same memory; return False if one is refused."""
        xp = self._device.xp
        self._inputs = [
            array if self._stays(place) else xp.empty_like(array)
            for place, array in enumerate(arrays)
        ]
        self._layouts = [_layout(array) for array in arrays]
        self._filled = [_nothing] * len(arrays)
        self._fill(arrays)
        self._played(root)
        root.begin_capture()
        try:
            self._results = self._played(root)
        except Failed as failed:
            with suppress(Exception):
                root.end_capture()
            if isinstance(failed.cause, MemoryError):
                raise
            self._refuse([self._at], failed.cause)
            return False
        try:
            self._graph = root.end_capture()
        except Exception as error:  # noqa: BLE001 - the steps can always be launched
            self._refuse(self._part.numbers, error)
            return False
        return True

    def _refuse(self, numbers: Sequence[int], error: BaseException) -> None:
        """Mark steps as not to be captured; for a single step the device remembers its kind."""
        part, reason = self._part, text_of(error)
        part.refused.update(dict.fromkeys(numbers, reason))
        if len(numbers) == 1 and _INVALIDATED not in reason:
            self._device.refused[part.steps[numbers[0]].kind] = reason

    def _played(self, root: Any) -> tuple[Any, ...]:
        """Call all kernels, on streams that fork from `root` and join it at the end."""
        part, self._checks = self._part, []
        steps, first = part.steps, part.first
        streams = _Streams(root, self._device)
        values = dict(zip(part.reads, self._inputs, strict=True))
        for number in part.numbers:
            step, self._at = steps[number], number
            operands = [values[one] for one in step.reads]
            try:
                with streams.of(step.lane, step.reads):
                    values[first + number] = self._step(step, operands)
                    if first + number in part.crossing:
                        streams.made(step.lane, first + number)
            except Exception as error:  # noqa: BLE001 - it fails the run
                where = step.node, tuple(map(described, operands)), self.lane.device.name
                raise Failed(*where, error) from None
            del operands
            for one in part.dropped.get(number, ()):
                del values[one]
        streams.join()
        return tuple([values[one] for one in part.writes])

    def _step(self, step: GraphStep, operands: Sequence[Any]) -> Any:
        checks: list[Check] = []
        pending.checks = checks
        made = step.call(*operands)
        if checks:
            where = step.node, tuple(map(described, operands)), self.lane.device.name
            self._checks += [replace(one, where=where) for one in checks]
        return made


def _nothing() -> None:
    return None


def _layout(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.strides


class _Streams:
    """The streams of a capture: each waits for the values that its steps read of others."""

    def __init__(self, root: Any, device: Any) -> None:
        self._device, self._streams = device, {0: root}
        self._start: Any = None
        self._home: dict[int, int] = {}
        self._events: dict[int, Any] = {}
        self._seen: set[tuple[int, int]] = set()

    def _event(self, lane: int) -> Any:
        made = self._device.new_event()
        made.record(self._streams[lane])
        return made

    def of(self, lane: int, reads: Sequence[int]) -> Any:
        """Return the stream of a lane, after making it wait for the values that are read."""
        if self._start is None:
            self._start = self._event(0)
        if lane not in self._streams:
            self._streams[lane] = self._device.side(lane)
            self._streams[lane].wait_event(self._start)
        for one in reads:
            home = self._home.get(one, lane)
            if home != lane and (lane, one) not in self._seen:
                self._seen.add((lane, one))
                self._streams[lane].wait_event(self._events[one])
        return self._streams[lane]

    def made(self, lane: int, number: int) -> None:
        """Record an event behind a value, so that other streams wait for nothing later."""
        self._home[number] = lane
        self._events[number] = self._event(lane)

    def join(self) -> None:
        """Make the first stream wait for all others."""
        for lane in [*self._streams][1:]:
            self._streams[0].wait_event(self._event(lane))
