"""Training steps in microbatches beside the whole batch on one core: an MLP of 8 layers.

Width 256, batch 512, float32, forward and backward.  *In turn* is a pipeline of one stage and one
worker.  *NumPy in turn* is the same arithmetic by hand on one thread, every array kept between
steps: what is above 1 there is the price of products of few rows, which no executor can lower.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import actorgraph as ag
from benchmarks._harness import Case, Effort, Figure, Peer, Trial, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    write_json,
)
from benchmarks._train_peers import set_blas_threads

LAYERS, WIDTH, ROWS = 8, 256, 512
COUNTS = (2, 4, 8, 16)
WHOLE = "ours: TapeMachine, whole batch, one core"
BY_HAND = "NumPy in turn"
IN_TURN = "ours: in turn, one core"
SCHEDULES = ("1f1b", "zb-h1")


def weights() -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    return [draw.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32") for _ in range(LAYERS)]


def batch() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((ROWS, WIDTH), "float32")


def loss() -> ag.Node:
    g = ag.Graph("mlp")
    h = g.input("x", ("batch", WIDTH))
    for number, array in enumerate(weights()):
        h = np.tanh(h @ g.parameter(f"W{number}", array))
    return ag.ops.square(h).mean()


def ours(make: Callable[[ag.Node], ag.Machine], scope: ExitStack) -> Trial:
    machine = scope.enter_context(make(loss()))
    return Trial(partial(machine.run_sync, {"x": batch()}, backward=True))


def by_hand(count: int, scope: ExitStack) -> Trial:
    """Forward and backward in microbatches, sums of gradients in place."""
    Ws, x = weights(), batch()
    size = ROWS // count
    values = [np.empty((size, WIDTH), "float32") for _ in range(LAYERS + 1)]
    slope, other = np.empty((2, size, WIDTH), "float32")
    term, sums = np.empty_like(Ws[0]), [np.empty_like(W) for W in Ws]

    def step() -> None:
        for begin in range(0, ROWS, size):
            values[0] = x[begin : begin + size]
            for number, W in enumerate(Ws):
                np.dot(values[number], W, out=values[number + 1])
                np.tanh(values[number + 1], out=values[number + 1])
            np.multiply(values[-1], np.float32(2 / (ROWS * WIDTH)), out=slope)
            for number in reversed(range(LAYERS)):
                np.square(values[number + 1], out=other)
                np.subtract(np.float32(1), other, out=other)
                np.multiply(slope, other, out=other)
                np.dot(values[number].T, other, out=term if begin else sums[number])
                if begin:
                    np.add(sums[number], term, out=sums[number])
                if number:
                    np.dot(other, Ws[number].T, out=slope)

    return Trial(step, before=partial(set_blas_threads, 1))


def make_case(count: int) -> Case:
    """All systems with so many microbatches."""
    pipeline = partial(ag.pipeline.Pipeline, microbatches=count)
    systems = [
        Peer(WHOLE, partial(ours, lambda node: ag.TapeMachine([node], workers=1)), ours=True),
        Peer(BY_HAND, partial(by_hand, count)),
        Peer(IN_TURN, partial(ours, partial(pipeline, stages=1, workers=1)), ours=True),
    ]
    for name in SCHEDULES:
        made = partial(pipeline, stages=2, schedule=name)
        systems.append(Peer(f"ours: {name}, 2 stages", partial(ours, made), ours=True))
    return Case(f"m = {count}", systems)


def targets() -> list[Target]:
    """What the project wants: that a pipeline pays, and that microbatches cost little."""
    found = [Target("m = 16", IN_TURN, (WHOLE,), 1.3)]
    for count in COUNTS[1:]:
        factor = 0.8 if count == 16 else 0.75
        found += [
            Target(f"m = {count}", f"ours: {name}, 2 stages", (WHOLE,), factor)
            for name in SCHEDULES
        ]
    return found


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("microbatches", __doc__)
    effort = Effort(2, 0.15) if asked.quick else Effort(10, 0.6)
    print_environment()
    figures: list[Figure] = []
    for count in COUNTS:
        figures += measure(make_case(count), effort, asked.only, keep=WHOLE)
    print_table("microbatches", "ms", figures, WHOLE)
    write_json("microbatches", asked, figures, {"targets": judge(targets(), figures)})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
