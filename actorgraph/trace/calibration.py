"""`calibrated`: measures launches, kernels and copies of a device, for `experiment`."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph import ops
from actorgraph.devices import Device
from actorgraph.devices.sim import GPU
from actorgraph.graph import Graph
from actorgraph.keywords import answering
from actorgraph.machines import ActorMachine
from actorgraph.trace.trace import Trace
from actorgraph.trace.using import record

_DEPTH = 12
"""Kernels in a chain."""

_SMALL, _LARGE = 64, 1 << 18
"""Elements."""

_RUNS = 5
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
    small, large = _chain(device, _SMALL), _chain(device, _LARGE)
    kernel_us, large_us = _least_us(small, " lane "), _least_us(large, " lane ")
    copy_us = _least_us(small, " copies ")
    moved = (_LARGE - _SMALL) * 4
    copied_us = max(_least_us(large, " copies ") - copy_us, 1e-3)
    sms = GPU().sms
    per_us = 2 * _LARGE * 4 / large_us  # an operand and a result
    launching = [part.end - part.start for part in small.slices if part.kind == "forward"]
    launch_us = sum(launching) * 1e6 / (_RUNS * (_DEPTH + 2))  # and two copies
    return GPU(
        launch_us=launch_us, kernel_us=kernel_us, flops_per_us=1e15, bytes_per_us=per_us * sms,
        sms=sms, elements=_ALONE, copy_us=copy_us, copied_per_us=moved / copied_us,
        linked_per_us=moved / copied_us,
    )  # fmt: skip


def _chain(device: Any, size: int) -> Trace:
    """Return a recording of warm runs of a chain of kernels of a size."""
    h = Graph("chain").input("x", (size,), "float32")
    for number in range(_DEPTH):
        h = ops.abs(h) if number % 2 else -h
    feeds = {"x": np.ones(size, "float32")}
    with ActorMachine([h], device=device, wrt=[], passes=()) as machine:
        machine.run_sync(feeds)
        with record() as trace:
            for _ in range(_RUNS):
                machine.run_sync(feeds)
    return trace


def _least_us(trace: Trace, what: str) -> float:
    """Return the shortest time of a kernel or a copy."""
    took = [part.end - part.start for part in trace.slices
            if part.kind == "device" and what in part.lane]  # fmt: skip
    return max(min(took) * 1e6, 1e-3)
