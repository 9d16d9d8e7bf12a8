"""`experiment`: how lanes, devices and captures speed up a graph, simulated or measured.

`calibrated` measures a device, so that `experiment` can simulate it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf, prod
from operator import attrgetter
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from actorgraph import ops, tables
from actorgraph.devices import Device, get
from actorgraph.devices.sim import GPU, LaneSpan, SimulatedGPUs, StepLoad
from actorgraph.errors import GraphError
from actorgraph.graph import Graph, as_nodes
from actorgraph.keywords import answering
from actorgraph.machines import ActorMachine, Machine
from actorgraph.machines.feeds import bind_feeds, by_node
from actorgraph.node import Node
from actorgraph.op import bind_attrs
from actorgraph.trace.records import Records, Slice
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import record
from actorgraph.types import bind_shape

Making: TypeAlias = Callable[[Sequence[Device | str]], Machine]


class ExperimentRow(NamedTuple):
    """One way to run the graph.

    Attributes
    ----------
    lanes : int
        Lanes of each device.
    how : str
        "simulated" or "measured", the fastest of three warm runs.
    took_us : float
        Time of one run with its copies, but without those of parameters.
    overlap : float
        Work of all lanes divided by that time.
    busy : float
        Mean utilisation of the devices; NaN if measured.
    critical : tuple of str
        The critical path, if simulated.
    spans : tuple of LaneSpan
        The timeline.
    """

    devices: str
    lanes: int
    captured: bool
    how: str
    took_us: float
    overlap: float
    busy: float
    critical: tuple[str, ...]
    spans: tuple[LaneSpan, ...]

    def trace(self) -> Trace:
        """Return the timeline as a trace, with the same tracks as one of real devices."""
        slices = [
            Slice(
                span.lane, span.start * 1e-6, span.end * 1e-6, span.name, "device", 0, self.how,
                None, None, span.start * 1e-6, 0, 0,
            )
            for span in self.spans
        ]  # fmt: skip
        trace = Trace()
        lanes = tuple(dict.fromkeys(sorted([one.lane for one in slices])))
        trace._fill(Records(self.took_us * 1e-6, 0, lanes, (), tuple(slices), (), (), ()))
        return trace


@final
class Experiment:
    """The rows of an experiment; `str` gives them as a table."""

    def __init__(self, rows: Sequence[ExperimentRow]) -> None:
        self.rows = tuple(rows)

    @property
    def best(self) -> ExperimentRow:
        """The row with the least time."""
        return min(self.rows, key=attrgetter("took_us"))

    def to_html(self, path: str | PathLike[str], row: ExperimentRow | None = None) -> Path:
        """Write the timeline of a row, by default the best one, as a page; return its path."""
        row = self.best if row is None else row
        title = f"{row.devices}, {row.lanes} lanes, {_launched(row)}, {row.how}"
        return row.trace().to_html(path, title=title)

    def __str__(self) -> str:
        heads = "devices", "lanes", "launched", "time us", "overlap", "busy", "how"
        rows = [
            (row.devices, f"{row.lanes}", _launched(row), f"{row.took_us:.1f}",
             f"{row.overlap:.2f}x", "" if np.isnan(row.busy) else f"{row.busy:.0%}", row.how)
            for row in self.rows
        ]  # fmt: skip
        return "\n".join(tables.lines(heads, rows))

    def __repr__(self) -> str:
        return f"<Experiment of {len(self.rows)} rows>"


def _launched(row: ExperimentRow) -> str:
    return "captured" if row.captured else "eager"


@answering
def experiment(
    outputs: Any, feeds: Mapping[Any, Any], *, lanes: Iterable[int] = (1, 2, 4, 8),
    devices: int | Sequence[str | Device] = 1, captured: Iterable[bool] = (False, True),
    backward: bool = False, gpu: GPU | None = None, machine: Making | None = None,
) -> Experiment:  # fmt: skip
    """Return the time of a run by the number of lanes, simulated or measured.

    Parameters
    ----------
    outputs : node or several
    feeds : mapping
        Feeds of a run; simulated devices use only their shapes.
    lanes : iterable of int
    devices : int or list of devices
        Number of simulated GPUs, or devices of this machine to measure.
    captured : iterable of bool
        Whether runs are launched as CUDA graphs; of measured devices only GPUs can.
    backward : bool
        Differentiate the first output.
    gpu : GPU, optional
        Properties of the simulated GPUs; `calibrated` measures those of a device.
    machine : callable, optional
        Makes the machine for a list of devices, such as a `Pipeline` with ``devices=``; `lanes` and
        `backward` are ignored then.

    Raises
    ------
    GraphError
        There are no devices, or only captures are asked for, on a device without CUDA graphs.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (64, 64))
    >>> found = ag.devices.experiment(
    ...     [ag.ops.exp(x * float(i)) for i in range(16)], {"x": np.ones((64, 64), "float32")},
    ...     lanes=(1, 4), gpu=ag.devices.GPU(launch_us=1.0))
    >>> eager, captured = found.rows[:2], found.rows[2:]
    >>> captured[1].took_us < captured[0].took_us
    True
    """
    targets = list(as_nodes(outputs))
    ways = [bool(one) for one in captured]
    counts = list(lanes) if machine is None else [1]

    def make(there: Sequence[Device | str], lanes: int, **options: Any) -> Machine:
        if machine is not None:
            return machine(there)
        return ActorMachine(targets, devices=there, lanes=lanes, **options)

    def run(one: Machine) -> None:
        one.run_sync(feeds, backward=backward if machine is None else None)

    if isinstance(devices, int):
        if devices < 1:
            raise GraphError(f"an experiment needs a device, got devices={devices}")
        symbols: dict[str, int] = {}
        fed = by_node(feeds, {node.name: node for node in targets[0].graph.inputs}, "feed")
        bind_feeds([*fed], fed, symbols)
        row = partial(_simulated, make, run, devices, gpu=gpu or GPU(), bound=symbols)
    else:
        without = [device.name for device in map(get, devices) if device.refused is None]
        if ways == [True] and without:
            raise GraphError(
                f"{without[0]} has no CUDA graphs: measure captured=(False,), or give devices as a "
                "number to simulate them"
            )
        ways = [way for way in ways if not (way and (without or machine))]
        row = partial(_measured, make, run, devices)
    return Experiment([row(count, way) for way in ways for count in counts])


def _simulated(
    make: Callable[..., Machine], run: Callable[[Machine], None], devices: int, lanes: int,
    captured: bool, gpu: GPU, bound: Mapping[str, int],
) -> ExperimentRow:  # fmt: skip
    symbols = dict(bound)

    def work(step: Node) -> StepLoad:
        *shapes, shape = [_bound(part, symbols) for part in (*step.inputs, step)]
        sizes = [prod(one) for one in (*shapes, shape)]
        flops = step.op.flops(tuple(shapes), shape, bind_attrs(step.attrs, symbols))
        return StepLoad(shape, max(sizes), flops, sum(sizes) * step.dtype.itemsize)

    simulation = SimulatedGPUs(devices, work, gpu, captured)
    with make(simulation.devices, lanes, workers=1) as machine:
        batches: Any = machine._batches
        if batches is not None:
            dim = batches.batching.dim
            symbols[dim] = -(-symbols[dim] // batches.schedule.microbatches)
        for _ in range(2):  # the second run copies no parameters
            simulation.clear()
            run(machine)
        line = simulation.timeline()
    worked = sum([span.end - span.start for span in line.spans])
    busy = sum(line.busy.values()) / devices
    name = f"{devices} GPU" if devices == 1 else f"{devices} GPUs"
    return ExperimentRow(
        name, lanes, captured, "simulated", line.took_us, worked / (line.took_us or 1.0), busy,
        line.critical, line.spans,
    )  # fmt: skip


def _bound(node: Node, symbols: Mapping[str, int]) -> tuple[int, ...]:
    sizes = bind_shape(node.dims, symbols, None)
    if None in sizes:
        raise GraphError(
            f"node {node.name!r} has a dim that only a run knows: it cannot be simulated, give "
            "devices=['virtual:0'] to measure it"
        )
    return tuple([size for size in sizes if size is not None])


def _measured(
    make: Callable[..., Machine], run: Callable[[Machine], None], devices: Sequence[str | Device],
    lanes: int, captured: bool,
) -> ExperimentRow:  # fmt: skip
    with make(devices, lanes, captured=captured) as machine:
        for _ in range(2):
            run(machine)
        took_us, trace = inf, Trace()
        for _ in range(3):
            with record() as latest:
                started = perf_counter()
                run(machine)
                passed_us = (perf_counter() - started) * 1e6
            if passed_us < took_us:
                took_us, trace = passed_us, latest
    parts = [part for part in trace.slices if part.kind == "device"]
    began = min([part.start for part in parts], default=0.0)
    spans = tuple([
        LaneSpan(part.lane.split()[0], part.lane, part.name, (part.start - began) * 1e6,
             (part.end - began) * 1e6, 0.0)
        for part in parts
    ])  # fmt: skip
    worked = sum([span.end - span.start for span in spans])
    names = ", ".join([one if isinstance(one, str) else one.name for one in devices])
    return ExperimentRow(
        names, lanes, captured, "measured", took_us, worked / took_us, np.nan, (), spans
    )


# -- calibration -----------------------------------------------------------------------------------

_DEPTH = 12
"""Kernels in a chain."""

_SMALL, _LARGE = 64, 1 << 18
"""Elements."""

_CALIBRATION_RUNS = 5
_ALONE = 1 << 40
"""Elements that fill a multiprocessor: so many that lanes do not slow each other down."""


@answering
def calibrated(device: str | Device) -> GPU:
    """Return a `GPU` by which `experiment` simulates a device.

    It measures chains of small and of large elementwise kernels, and their copies, in about a
    second.  It does not measure how much lanes slow each other down; the `GPU` assumes not at all.

    Parameters
    ----------
    device : str or Device
        A device of this machine.

    Examples
    --------
    >>> import actorgraph as ag
    >>> gpu = ag.devices.calibrated("virtual:0")
    >>> gpu.launch_us > 0.0
    True
    """
    small, large = _record_chain(device, _SMALL), _record_chain(device, _LARGE)
    kernel_us, large_us = _shortest_us(small, " lane "), _shortest_us(large, " lane ")
    copy_us = _shortest_us(small, " copies ")
    moved = (_LARGE - _SMALL) * 4
    copied_us = max(_shortest_us(large, " copies ") - copy_us, 1e-3)
    sms = GPU().sms
    per_us = 2 * _LARGE * 4 / large_us  # an operand and a result
    launching = [part.end - part.start for part in small.slices if part.kind == "forward"]
    launch_us = sum(launching) * 1e6 / (_CALIBRATION_RUNS * (_DEPTH + 2))  # and two copies
    return GPU(
        launch_us=launch_us, kernel_us=kernel_us, flops_per_us=1e15, bytes_per_us=per_us * sms,
        sms=sms, elements=_ALONE, copy_us=copy_us, copied_per_us=moved / copied_us,
        linked_per_us=moved / copied_us,
    )  # fmt: skip


def _record_chain(device: Any, size: int) -> Trace:
    """Return a recording of warm runs of a chain of kernels of a size."""
    h = Graph("chain").input("x", (size,), "float32")
    for number in range(_DEPTH):
        h = ops.abs(h) if number % 2 else -h
    feeds = {"x": np.ones(size, "float32")}
    with ActorMachine([h], device=device, wrt=[], passes=()) as machine:
        machine.run_sync(feeds)
        with record() as trace:
            for _ in range(_CALIBRATION_RUNS):
                machine.run_sync(feeds)
    return trace


def _shortest_us(trace: Trace, what: str) -> float:
    """Return the shortest time of a kernel or a copy."""
    took = [part.end - part.start for part in trace.slices
            if part.kind == "device" and what in part.lane]  # fmt: skip
    return max(min(took) * 1e6, 1e-3)
