"""`SimulatedGPUs`: a simulation of GPUs with a virtual clock and no data.

A machine takes simulated devices like any others, so the same code places, launches and waits;
their lanes record what they get.  `SimulatedGPUs.timeline` then computes when each piece of work
would begin and end.  The model:

- A device has one issuing thread, which takes `GPU.launch_us` for each launch.  A CUDA graph takes
  `GPU.replay_us` once, and `GPU.node_us` for each node on its lane.
- Lanes are in order, and wait for events.
- A kernel takes the longest of `kernel_us`, its flops and its bytes, and occupies a share of the
  GPU.  If shares add up to more than the whole, the most urgent lanes get theirs first, and all of
  a priority slow down alike.
- Copies in and out have an engine each, a latency and a bandwidth; copies between GPUs have another
  bandwidth.

A host that waits for a result before it goes on is not modelled, as nothing in a run does.  Times
of more than one GPU are as good as the given figures, and no measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, final

import numpy as np

from actorgraph.devices.base import ADDED, COPY_OVER, Device, Job, Lane, Queue
from actorgraph.devices.events import Event


class GPU(NamedTuple):
    """The figures of a simulated GPU; the defaults are round numbers near those of an H100.

    Attributes
    ----------
    launch_us : float
        The host's time to launch a kernel from Python.
    kernel_us : float
        The shortest time of a kernel.
    flops_per_us, bytes_per_us : float
        Of the whole GPU.
    sms : int
        Number of multiprocessors: a kernel fills one at least.
    elements : int
        Number of elements that fill one of them.
    copy_us, copied_per_us : float
        Latency of a copy, and its bytes in a microsecond.
    linked_per_us : float
        Bytes in a microsecond from one GPU to another.
    replay_us, node_us : float
        Time to launch a CUDA graph, and time of each of its nodes on its lane.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.devices.GPU(launch_us=5.0).launch_us
    5.0
    """

    launch_us: float = 10.0
    kernel_us: float = 3.0
    flops_per_us: float = 50e6
    bytes_per_us: float = 3e6
    sms: int = 132
    elements: int = 2048
    copy_us: float = 10.0
    copied_per_us: float = 50e3
    linked_per_us: float = 300e3
    replay_us: float = 10.0
    node_us: float = 1.2


class StepLoad(NamedTuple):
    """The work of a step, which the caller of a simulation provides by node."""

    shape: tuple[int, ...]
    elements: int
    flops: float
    bytes: float


class LaneSpan(NamedTuple):
    """An interval in which a lane is busy, in microseconds of the virtual clock."""

    device: str
    lane: str
    name: str
    start: float
    end: float
    share: float


class Timeline(NamedTuple):
    """The result of a simulation.

    - `spans`: sorted by start
    - `busy`: by device, the mean share of the GPU in use
    - `critical`: the critical path, from the first to the last piece of work
    """

    spans: tuple[LaneSpan, ...]
    took_us: float
    busy: dict[str, float]
    critical: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _SimulatedStep:
    """A piece of work of a lane."""

    device: Sim
    lane: Lane
    name: str
    left: float
    share: float
    after: list[_SimulatedStep]
    issued: float = 0.0
    start: float = 0.0
    end: float = 0.0


@final
class SimulatedGPUs:
    """Simulated GPUs that share a clock; their `devices` can be given to machines.

    ``work(node)`` returns the `StepLoad` of a step.  With `captured` each device's part of a run is
    a CUDA graph.
    """

    def __init__(
        self,
        count: int,
        work: Callable[[Any], StepLoad],
        gpu: GPU = GPU(),  # noqa: B008 - a tuple
        captured: bool = False,
    ) -> None:
        self.work, self.gpu, self.captured = work, gpu, captured
        self._steps: list[_SimulatedStep] = []
        self._issued: dict[Sim, float] = {}
        self.devices: list[Device] = [Sim(self, number) for number in range(count)]

    def clear(self) -> None:
        """Restart the clock, with all work so far done."""
        self._steps.clear()
        self._issued.clear()

    def add(self, step: _SimulatedStep) -> None:
        """Record a piece of work, with the time at which it is issued."""
        launch_us = 0.0 if self.captured else self.gpu.launch_us
        start = self.gpu.replay_us if self.captured else 0.0
        step.issued = self._issued[step.device] = self._issued.get(step.device, start) + launch_us
        self._steps.append(step)

    def timeline(self) -> Timeline:
        """Return the recorded work with simulated times.

        Examples
        --------
        >>> from actorgraph.devices.sim import SimulatedGPUs, StepLoad
        >>> SimulatedGPUs(1, lambda node: StepLoad((), 1, 0.0, 0.0)).timeline().took_us
        0.0
        """
        here = set(self._steps)
        for step in self._steps:
            step.after = [other for other in step.after if other in here]
        _advance(self._steps)
        took_us = max([step.end for step in self._steps], default=0.0)
        busy = dict.fromkeys([device.name for device in self.devices], 0.0)
        for step in self._steps:
            busy[step.device.name] += (step.end - step.start) * step.share / (took_us or 1.0)
        spans = [
            LaneSpan(step.device.name, step.lane.name, step.name, step.start, step.end, step.share)
            for step in self._steps
        ]
        by_start = tuple(sorted(spans, key=attrgetter("start")))
        return Timeline(by_start, took_us, busy, _critical(self._steps))


def _advance(steps: list[_SimulatedStep]) -> None:
    """Advance the clock from event to event until all work is done."""
    order = TopologicalSorter({step: step.after for step in steps})
    order.prepare()
    free = [*order.get_ready()]
    running: list[_SimulatedStep] = []
    left = {step: step.left for step in steps}
    now = 0.0
    while free or running:
        begins = [step for step in free if step.issued <= now]
        free = [step for step in free if step.issued > now]
        for step in begins:
            step.start = now
        running += begins
        rates = _rates(running)
        ends = [now + left[step] / rate if rate else inf for step, rate in rates.items()]
        later = min([*ends, *[step.issued for step in free]])
        over = [step for step, end in zip(running, ends, strict=True) if end <= later]
        for step, rate in rates.items():
            left[step] -= (later - now) * rate
        now = later
        running = [step for step in running if step not in over]
        for step in over:
            step.end = now
            order.done(step)
        free += order.get_ready()


def _rates(running: list[_SimulatedStep]) -> dict[_SimulatedStep, float]:
    """Return the speed of each running step; urgent lanes of a device get their shares first."""
    wanted: dict[Sim, dict[int, float]] = {}
    for step in running:
        shares = wanted.setdefault(step.device, {})
        shares[step.lane.priority] = shares.get(step.lane.priority, 0.0) + step.share
    rates: dict[tuple[Sim, int], float] = {}
    for device, shares in wanted.items():
        left = 1.0
        for priority, share in sorted(shares.items()):
            rates[device, priority] = min(1.0, left / share) if share else 1.0
            left = max(0.0, left - share)
    return {step: rates[step.device, step.lane.priority] for step in running}


def _critical(steps: list[_SimulatedStep]) -> tuple[str, ...]:
    """Return the names of the steps on the critical path, in order."""
    end = attrgetter("end")
    step = max(steps, key=end, default=None)
    path: list[str] = []
    while step is not None:
        path.append(step.name)
        step = max(step.after, key=end, default=None) if step.issued < step.start else None
    return tuple(reversed(path))


@final
class Sim(Device):
    """A GPU of a `SimulatedGPUs`."""

    xp = np  # called only for shapes that are unknown before a run

    def __init__(self, simulation: SimulatedGPUs, number: int) -> None:
        self.name, self.simulation = f"sim:{number}", simulation

    def to_device(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the array itself; the lane counts the time of the copy."""
        return array

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself."""
        return np.asarray(array)

    def queue(self, lane: Lane) -> Queue:
        """Return a queue that records what it gets."""
        return _SimQueue(self, lane)


class _SimEvent(Event):
    """An event behind a step; to the host it is always passed."""

    def __init__(self, step: _SimulatedStep | None) -> None:
        super().__init__()
        self.step = step

    @property
    def passed(self) -> bool:
        return True

    def block(self) -> None:
        pass

    def then(self, callback: Callable[[], object]) -> None:
        callback()


class _SimQueue(Queue):
    def __init__(self, device: Sim, lane: Lane) -> None:
        self._device, self._lane = device, lane
        self._last: _SimulatedStep | None = None
        self._waits: list[_SimulatedStep] = []

    def put(self, job: Job) -> None:
        simulation, gpu = self._device.simulation, self._device.simulation.gpu
        source = job.reads[0].array if job.reads else None
        if self._lane.copies and source is not None:
            job.cell.array = source
            per_us = gpu.linked_per_us if job.name == COPY_OVER else gpu.copied_per_us
            cost_us, share = gpu.copy_us + source.nbytes / per_us, 0.0
        elif job.name == ADDED:
            job.cell.array, cost_us, share = source, gpu.kernel_us, 1.0 / gpu.sms
        else:
            work = simulation.work(job.node)
            job.cell.array = np.broadcast_to(np.zeros((), job.node.dtype), work.shape)
            share = min(1.0, max(1.0, work.elements / gpu.elements) / gpu.sms)
            whole_us = max(work.flops / gpu.flops_per_us, work.bytes / gpu.bytes_per_us)
            cost_us = max(gpu.kernel_us, whole_us / share)
            cost_us += gpu.node_us if simulation.captured else 0.0
        after = self._waits if self._last is None else [self._last, *self._waits]
        step = _SimulatedStep(self._device, self._lane, job.name, cost_us, share, after)
        self._last, self._waits = step, []
        simulation.add(step)

    def record(self) -> Event:
        return _SimEvent(self._last)

    def wait(self, event: Event) -> None:
        if isinstance(event, _SimEvent) and event.step is not None:
            self._waits.append(event.step)
