"""Simulates a schedule: its times, bubbles and memory.

Every device does its list in order, and starts a step as soon as the device is free and the step's
inputs have arrived.  So the times are longest paths in an acyclic graph, and one pass finds them.
Messages leave when their step ends and travel while the device goes on; a link with a bandwidth
sends one at a time.

The terms are those of the zero-bubble paper (arXiv 2401.10241): the *global* bubble is the idle
time of the busiest device between the first start and the last end of any device, the *span* bubble
the largest idle time of a device between its own first start and last end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from actorgraph.errors import ScheduleError
from actorgraph.schedules.actions import Numbering, Schedule, Step
from actorgraph.schedules.grids import Bar, draw
from actorgraph.schedules.model import Amount, Costs, Model, PerDevice, PerLink, per_device, plain
from actorgraph.schedules.orders import Name
from actorgraph.schedules.orders import schedule as named


class Timed(NamedTuple):
    """A step with its device, start and end; ``trace.predict`` takes these.

    `lane` is the device by the name that recordings of a `Pipeline` give it.

    Examples
    --------
    >>> import actorgraph as ag
    >>> found = ag.pipeline.simulate("1f1b", stages=2, microbatches=4, costs=(1, 1, 1))
    >>> first = found.timeline[0]
    >>> first.start, first.end
    (0, 1)
    """

    device: int
    step: Step
    start: Amount
    end: Amount
    lane: str

    @property
    def label(self) -> str:
        """The actions, as they are printed."""
        return "".join(map(str, self.step))

    def __str__(self) -> str:
        return f"{self.label} on device {self.device}: {self.start}-{self.end}"


@dataclass(frozen=True)
class Simulation:
    """The result of `simulate`; times have the unit of its costs, and are exact if those are.

    Attributes
    ----------
    schedule : Schedule
        The simulated schedule.
    makespan : number
        From the first start to the last end of any device.
    busy : tuple of number
        For each device, the time that it works.
    peak_activations : tuple of number
        For each device, the most microbatches whose activations it holds; the unit is those of one
        microbatch for all stages of the device.
    peak_memory : tuple of number
        For each device, the size of its weights and of its peak activations.

    Examples
    --------
    >>> import actorgraph as ag
    >>> found = ag.pipeline.simulate("1f1b", stages=2, microbatches=4, costs=(1, 1, 1))
    >>> found.makespan
    15
    """

    schedule: Schedule
    makespan: Amount
    busy: tuple[Amount, ...]
    peak_activations: tuple[Amount, ...]
    peak_memory: tuple[Amount, ...]
    _model: Model
    _starts: list[Any]
    _ends: list[Any]
    _causes: list[int]

    @property
    def global_bubble(self) -> Amount:
        """Idle time of the busiest device within the makespan."""
        return plain(self.makespan - max(self.busy))

    @cached_property
    def span_bubble(self) -> Amount:
        """Largest idle time of a device between its own first start and last end."""
        first: dict[int, Any] = {}
        last: dict[int, Any] = {}
        for (device, _), start, end in zip(self.schedule.order, self._starts, self._ends):
            first.setdefault(device, start)
            last[device] = end
        return plain(
            max(self._model.time(last[d] - first[d]) - busy for d, busy in enumerate(self.busy))
        )

    @cached_property
    def timeline(self) -> tuple[Timed, ...]:
        """All steps with their times, each device's in order."""
        return tuple(map(self._timed, range(len(self._starts))))

    @cached_property
    def critical_path(self) -> tuple[Timed, ...]:
        """Steps that decide the makespan: each starts as soon as the one before it allows."""
        path = [max(range(len(self._ends)), key=self._ends.__getitem__)]
        while self._causes[path[-1]] >= 0:
            path.append(self._causes[path[-1]])
        return tuple(map(self._timed, reversed(path)))

    def bars(self) -> list[list[Bar]]:
        """Return the bars to draw, for each device."""
        rows: list[list[Bar]] = [[] for _ in self.busy]
        many = self.schedule.stages > self.schedule.devices
        for device, step, start, end, _ in self.timeline:
            label = "+".join(f"{a.stage if many else ''}{a.kind}{a.microbatch}" for a in step)
            kind = "FBW" if len(step) > 1 else step[0].kind
            rows[device].append(Bar(float(start), float(end), label, kind))
        return rows

    def grid(self, width: int | None = None) -> str:
        """Draw the times: a row for each device, dots where it is idle.

        Parameters
        ----------
        width : int, optional
            Characters for the whole; by default enough for the label of the shortest step.
        """
        rows = self.bars()
        return draw(rows, cells=cells_for(rows, float(self.makespan), width), idle=".")

    def __str__(self) -> str:
        peak = max(self.peak_activations)
        return (
            f"{self.schedule.name}: {self.schedule.devices} devices, "
            f"{self.schedule.microbatches} microbatches, makespan {self.makespan}, "
            f"bubble {self.global_bubble} (within spans {self.span_bubble}), "
            f"peak activations {peak}"
        )

    def __repr__(self) -> str:
        return f"<Simulation of {self}>"

    def _timed(self, number: int) -> Timed:
        device, step = self.schedule.order[number]
        time = self._model.time
        lane = self.schedule.lane_names[device]
        return Timed(device, step, time(self._starts[number]), time(self._ends[number]), lane)


def cells_for(rows: list[list[Bar]], makespan: float, width: int | None) -> float:
    """Return characters for a unit of time, for a width or such that every label fits."""
    if width is not None:
        room = width - len(f"{len(rows) - 1} | ")
        return max(room, 1) / makespan if makespan else 1.0
    scales = [
        (len(bar.label) + 1) / (bar.end - bar.start)
        for row in rows
        for bar in row
        if bar.end > bar.start
    ]
    return max(scales, default=1.0)


def simulate(
    schedule: Name | Schedule, *, costs: Costs, stages: int | None = None,
    microbatches: int | None = None, chunks: int | None = None, extra_warmup: int = 0,
    t_fb: Amount | None = None, latency: PerLink = 0, bandwidth: PerLink | None = None,
    message_size: Amount = 0, speeds: PerDevice = 1, activation_size: PerDevice = 1,
    weight_size: PerDevice = 0,
) -> Simulation:  # fmt: skip
    """Return the times and the memory of a schedule.

    Parameters
    ----------
    schedule : str or Schedule
        A name (see `schedule`) or actions.
    costs : sequence
        Times of forward, backward to the inputs and backward to the weights, (F, B, W), for one
        microbatch and all stages of a device; with v chunks each takes the v-th part.  Or one such
        triple for each stage of the model.
    stages, microbatches, chunks, extra_warmup : int, optional
        Options of a named schedule, see `schedule`; `stages` is the number of devices.  For a
        `Schedule` they have to be its own.
    t_fb : number, optional
        Time of two joined actions (DualPipeV overlaps a forward with a backward pass), as one
        block of a chunk; by default the sum of both, hence F + B + W of a chunk.
    latency : number or mapping
        Time from the end of a step to the arrival of its message on another device, for all links
        or by (from, to).
    bandwidth : number or mapping, optional
        Size per time of a link; by default links are never busy.
    message_size : number
        Size of what stages send each other.
    speeds : number or sequence
        Factors by which all devices, or each, are faster than `costs`.
    activation_size, weight_size : number or sequence
        For all devices or each: memory for one microbatch's activations, and for the weights.

    Raises
    ------
    ScheduleError
        The schedule cannot be made, or a number is invalid.

    Examples
    --------
    >>> import actorgraph as ag
    >>> simulation = ag.pipeline.simulate("zb-h1", stages=4, microbatches=8, costs=(1, 1, 1))
    >>> simulation.makespan, simulation.global_bubble, simulation.peak_activations
    (27, 3, (4, 4, 4, 4))
    >>> print(ag.pipeline.simulate("1f1b", stages=2, microbatches=2, costs=(1, 1, 1)).grid())
    0 | F0 F1 ......BW0   ...BW1
    1 | ...F0 BW0   F1 BW1
    """
    if isinstance(schedule, Schedule):
        _check_given(schedule, stages, microbatches, chunks, extra_warmup)
    elif stages is None or microbatches is None:
        raise ScheduleError(f"simulating {schedule!r} by name needs stages= and microbatches=")
    else:
        schedule = named(
            schedule,
            stages=stages,
            microbatches=microbatches,
            chunks=chunks,
            extra_warmup=extra_warmup,
        )
    model = Model(
        schedule.device_of,
        costs,
        t_fb=t_fb,
        latency=latency,
        bandwidth=bandwidth,
        message_size=message_size,
        speeds=speeds,
    )
    activations = per_device("activation_size", activation_size, schedule.devices)
    weights = per_device("weight_size", weight_size, schedule.devices)
    starts, ends, causes, busy = _times(schedule, model)
    peaks = schedule.peak_activations
    return Simulation(
        schedule,
        model.time(max(ends) - min(starts)),
        tuple(map(model.time, busy)),
        tuple(map(plain, peaks)),
        tuple(plain(w + peak * a) for w, peak, a in zip(weights, peaks, activations)),
        model,
        starts,
        ends,
        causes,
    )


def _check_given(
    schedule: Schedule, stages: int | None, microbatches: int | None, chunks: int | None,
    extra_warmup: int,
) -> None:  # fmt: skip
    """Refuse options that contradict a schedule."""
    held = {
        "stages": (stages, schedule.devices),
        "microbatches": (microbatches, schedule.microbatches),
        "chunks": (chunks, max(schedule.chunks)),
        "extra_warmup": (extra_warmup or None, 0),
    }
    for what, (given, has) in held.items():
        if given not in (None, has):
            raise ScheduleError(
                f"{what} is {given}, but the schedule {schedule.name!r} was made with {what}={has}"
            )


def _times(schedule: Schedule, model: Model) -> tuple[list[Any], list[Any], list[int], list[Any]]:
    """Return start, end and cause of every step of the order, and the busy time of each device.

    The cause is the step whose end or message came last; -1 for a step that starts at once.
    """
    home, results = schedule.device_of, Numbering(schedule)
    free: list[Any] = [0] * schedule.devices
    before = [-1] * schedule.devices
    busy: list[Any] = [0] * schedule.devices
    arrivals: list[Any] = [0] * results.end
    senders = [-1] * results.end
    durations: dict[tuple[Any, ...], Any] = {}
    links = Links(home, model)
    starts: list[Any] = []
    ends: list[Any] = []
    causes: list[int] = []
    for number, (device, step) in enumerate(schedule.order):
        start, cause = free[device], before[device]
        for action in step:
            received = results.received(action)
            if received is not None and arrivals[received] > start:
                start, cause = arrivals[received], senders[received]
        form = (*step[0][:2], *step[-1][:2])
        if form not in durations:
            durations[form] = model.duration(device, step)
        end = start + durations[form]
        busy[device] += durations[form]
        free[device], before[device] = end, number
        starts.append(start)
        ends.append(end)
        causes.append(cause)
        for action in step:
            if action.kind != "W":
                result = results.of(action)
                arrivals[result] = links.arrival(action.stage, action.kind == "F", end)
                senders[result] = number
    return starts, ends, causes, busy


class Links:
    """The links between devices, each with the time until which it is busy."""

    def __init__(self, device_of: Sequence[int], model: Model) -> None:
        self._free: dict[tuple[int, int], Any] = {}
        self._of: dict[tuple[int, bool], tuple[tuple[int, int], Any, Any]] = {}
        for stage, pair in enumerate(pairwise(device_of)):
            if pair[0] != pair[1]:
                back = pair[::-1]
                self._of[stage, True] = pair, *model.link(*pair)
                self._of[stage + 1, False] = back, *model.link(*back)

    def arrival(self, stage: int, forward: bool, end: Any) -> Any:
        """Return when the result of a stage, which ends at `end`, arrives where it is needed."""
        link = self._of.get((stage, forward))
        if link is None:
            return end
        pair, sending, delay = link
        if sending:
            end = self._free[pair] = max(end, self._free.get(pair, 0)) + sending
        return end + delay
