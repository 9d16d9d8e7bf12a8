"""Lanes, devices and stages: how far the simulation is right, and what it says of several GPUs.

    python -m benchmarks.devices

A simulated GPU is fitted to a device of threads whose kernels and copies take set times; then 20
graphs that had no part in it are simulated and measured.  What is told of several GPUs is simulated
with round figures of a GPU, and measured on none.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import actorgraph as ag
from actorgraph.devices.virtual import Virtual
from benchmarks._report import options, print_environment, print_rows, tell, write_json

WIDTH, DEPTH, STAGES, MICROBATCHES = 64, 6, 8, 16


@dataclass(frozen=True)
class Held:
    """A graph that was simulated and measured."""

    graph: int
    lanes: int
    simulated_us: float
    measured_us: float

    @property
    def error(self) -> float:
        """How far the simulation was off."""
        return abs(self.simulated_us - self.measured_us) / self.measured_us


def timed(name: str = "timed") -> Virtual:
    """Return a device whose work takes set times: 2 ms a kernel, 1 ms a copy, or their bytes."""
    return Virtual(name, 1e-3, 1e8, kernel_s=2e-3, kernel_bytes_per_s=2e8)


def drawn(seed: int) -> tuple[list[ag.Node], dict[str, Any], int]:
    """Return the outputs of a drawn graph, its feeds, and a number of lanes."""
    draw = np.random.default_rng(seed)
    x = ag.Graph(f"drawn {seed}").input("x", ("n",), "float32")
    nodes = [x]
    for _ in range(int(draw.integers(8, 24))):
        one, other = (nodes[int(place)] for place in draw.integers(0, len(nodes), 2))
        ops = (ag.ops.abs(one), -one, one * other, one + other)
        nodes.append(ops[int(draw.integers(len(ops)))])
    feeds = {"x": np.ones(int(draw.choice([64, 2**16, 2**17])), "float32")}
    outputs = [node for node in nodes if node is not x][-3:]
    return outputs, feeds, int(draw.choice([1, 2, 4]))


def held_out(count: int, device: Any = None) -> list[Held]:
    """Simulate and measure drawn graphs by a GPU that is fitted to other ones."""
    device = device or timed()
    gpu, found = ag.devices.calibrated(device), []
    for seed in range(count):
        outputs, feeds, lanes = drawn(seed)
        both = [
            ag.devices.experiment(
                outputs, feeds, lanes=[lanes], devices=devices, captured=[False], gpu=gpu
            ).best.took_us
            for devices in (1, [device], [device], [device])
        ]
        found.append(Held(seed, lanes, both[0], min(both[1:])))
    return found


def branches(count: int = 64, size: int = 512) -> tuple[list[ag.Node], dict[str, Any]]:
    """Return the loss of branches that meet at its end, and feeds."""
    g = ag.Graph("branches")
    x = g.input("x", (size, WIDTH))
    ends = []
    for number in range(count):
        h = x * float(number + 1)
        for depth in range(DEPTH):
            W = g.parameter(f"W{number}_{depth}", np.eye(WIDTH, dtype="float32"))
            h = ag.ops.tanh(h @ W)
        ends.append(h.sum())
    return [ag.ops.stack(ends).sum()], {"x": np.ones((size, WIDTH), "float32")}


def stages(size: int = 2048) -> tuple[list[ag.Node], dict[str, Any]]:
    """Return the loss of equal layers, one a stage, and feeds."""
    g = ag.Graph("stages")
    h = x = g.input("x", ("batch", size))
    for number in range(STAGES):
        with g.stage(number):
            W = g.parameter(f"W{number}", np.broadcast_to(np.float32(0.0), (size, size)))
            h = ag.ops.tanh(h @ W)
            if number == STAGES - 1:
                h = (h * h).mean()
    assert x.graph is g
    return [h], {"x": np.broadcast_to(np.float32(1.0), (MICROBATCHES * size, size))}


def pipelined(loss: ag.Node, schedule: str, devices: Any) -> ag.pipeline.Pipeline:
    """Return a pipeline with a stage a device."""
    return ag.pipeline.Pipeline(
        loss, schedule=schedule, microbatches=MICROBATCHES, devices=devices, workers=1
    )


def several() -> None:
    """Tell of branches on lanes and GPUs, and of a pipeline, all simulated."""
    outputs, feeds = branches()
    rows = [["64 branches, forward and backward", "launched", "time us", "speedup", "in use"]]
    first = 0.0
    for captured in (False, True):
        for gpus, lanes in ((1, 1), (1, 4), (4, 1), (4, 4)):
            found = ag.devices.experiment(
                outputs, feeds, devices=gpus, lanes=[lanes], captured=[captured], backward=True
            ).best
            first = first or found.took_us
            rows.append([
                f"{gpus} x {lanes} lanes", "captured" if captured else "eager",
                f"{found.took_us:,.0f}", f"{first / found.took_us:.1f}x", f"{found.busy:.0%}",
            ])  # fmt: skip
            critical = found.critical
    print_rows("simulated, GPUs x lanes", rows, words=2)
    tell(f"The critical path of the last row has {len(critical)} pieces of work, from "
         f"`{critical[0]}` over `{critical[len(critical) // 2]}` to `{critical[-1]}`.")  # fmt: skip
    outputs, feeds = stages()
    rows = [["8 stages on 8 GPUs, 16 microbatches", "time ms", "in use", "limit"]]
    for schedule in ("gpipe", "1f1b", "zb-h1"):
        found = ag.devices.experiment(
            outputs, feeds, devices=STAGES, captured=[True],
            machine=partial(pipelined, outputs[0], schedule),
        ).best  # fmt: skip
        limit = MICROBATCHES / (MICROBATCHES + STAGES - 1)
        limit = MICROBATCHES / (MICROBATCHES + (STAGES - 1) / 3) if "zb" in schedule else limit
        rows.append([schedule, f"{found.took_us / 1e3:,.1f}", f"{found.busy:.0%}", f"{limit:.0%}"])
    print_rows("simulated, pipelines; the limit is m / (m + p - 1), with B and W apart "
               "m / (m + (p - 1) / 3)", rows)  # fmt: skip


def main() -> int:
    """Measure, print, write."""
    asked = options("devices", __doc__, only=None)
    print_environment()
    found = held_out(4 if asked.quick else 20)
    errors = [one.error for one in found]
    tell(f"Of {len(found)} graphs the simulation is off by {median(errors):.1%} in the median, "
         f"{max(errors):.1%} at most; wanted 15% in the median.")  # fmt: skip
    several()
    write_json("devices", asked, found, {"median_error": median(errors)})
    return int(median(errors) > 0.15)


if __name__ == "__main__":
    sys.exit(main())
