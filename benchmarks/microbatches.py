"""Training steps in microbatches beside the whole batch on one core: four models in two stages.

Forward and backward, float32: an MLP of 8 layers (width 256, batch 512), a transformer block a
stage, a net of convolutions, and stages so tiny that only the executor counts.  *In turn* is a
pipeline of one stage and one worker.  For the MLP, *NumPy in turn* is the same arithmetic by hand
on one thread, every array kept between steps: what is above 1 there is the price of products of few
rows, which no executor can lower.  *Two bare threads* do the same in the order of 1F1B, and
*PyTorch* in two processes, each with one thread.  *Two machines* take half of the batch each, on a
thread each, and wait for nobody: what is above 0.5 there two cores take from each other.

A table has what a first run predicts, which chooses by trials, beside what later runs take.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from statistics import median
from threading import Thread
from time import perf_counter
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
    print_rows,
    print_table,
    tell,
    write_json,
)
from benchmarks._torch_pipeline import TorchPipeline
from benchmarks._train_peers import set_blas_threads

LAYERS, WIDTH, ROWS = 8, 256, 512
COUNTS = (2, 4, 8, 16)
WHOLE = "ours: TapeMachine, whole batch, one core"
BY_HAND = "NumPy in turn"
THREADS = "NumPy, two bare threads, 1F1B"
TORCH = "PyTorch, two processes, 1F1B"
IN_TURN = "ours: in turn, one core"
HALVES = "ours: two machines, half the batch each"
SCHEDULES = ("1f1b", "zb-h1")
CLOSE = 0.10
SEQUENCE, CHANNELS, SIDE, FEW_ROWS, TINY = 32, 32, 16, 32, 16


def weights() -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    return [draw.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32") for _ in range(LAYERS)]


def batch() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((ROWS, WIDTH), "float32")


Step = tuple[ag.Node, np.ndarray[Any, Any]]
"""A loss, and what is fed as x."""


def mlp() -> Step:
    g = ag.Graph("mlp")
    h = g.input("x", ("batch", WIDTH))
    for number, array in enumerate(weights()):
        h = np.tanh(h @ g.parameter(f"W{number}", array))
    return ag.ops.square(h).mean(), batch()


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).standard_normal(shape, "float32")


def blocks() -> Step:
    g = ag.Graph("blocks")
    h = g.input("x", ("batch", SEQUENCE, WIDTH))
    for _ in range(2):
        h = ag.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True)(h)
    return ag.ops.square(h).mean(), drawn(FEW_ROWS, SEQUENCE, WIDTH)


def convolutions() -> Step:
    g = ag.Graph("convolutions")
    h = g.input("x", ("batch", CHANNELS, SIDE, SIDE))
    for _ in range(4):
        h = ag.ops.relu(ag.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)(h))
    return ag.ops.square(h).mean(), drawn(FEW_ROWS, CHANNELS, SIDE, SIDE)


def tiny() -> Step:
    g = ag.Graph("tiny")
    h = g.input("x", ("batch", TINY))
    for number in range(2):
        h = np.tanh(h @ g.parameter(f"W{number}", drawn(TINY, TINY) / TINY))
    return ag.ops.square(h).mean(), drawn(FEW_ROWS, TINY)


def ours(
    make: Callable[[ag.Node], ag.Machine], model: Callable[[], Step], scope: ExitStack
) -> Trial:
    loss, fed = model()
    machine = scope.enter_context(make(loss))
    return Trial(partial(machine.run_sync, {"x": fed}, backward=True))


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


def by_threads(count: int, scope: ExitStack) -> Trial:
    """1F1B on two threads that hand arrays over through queues, everything kept between steps."""
    Ws, x, size = weights(), batch(), ROWS // count
    sums, half = [np.empty_like(W) for W in Ws], LAYERS // 2
    values = np.empty((count, LAYERS + 1, size, WIDTH), "float32")
    slopes = np.empty((count, size, WIDTH), "float32")
    works = [np.empty((2, size, WIDTH), "float32") for _ in range(2)]
    terms = [np.empty_like(Ws[0]) for _ in range(2)]
    down: SimpleQueue[int] = SimpleQueue()
    up: SimpleQueue[int] = SimpleQueue()
    begin: SimpleQueue[bool] = SimpleQueue()

    def forward(stage: int, number: int) -> None:
        v = values[number]
        for layer in range(stage * half, (stage + 1) * half):
            np.dot(v[layer], Ws[layer], out=v[layer + 1])
            np.tanh(v[layer + 1], out=v[layer + 1])

    def backward(stage: int, number: int) -> None:
        v, slope, (other, work), term = values[number], slopes[number], works[stage], terms[stage]
        for layer in reversed(range(stage * half, (stage + 1) * half)):
            np.square(v[layer + 1], out=work)
            np.subtract(np.float32(1), work, out=work)
            np.multiply(slope, work, out=other)
            np.dot(v[layer].T, other, out=term if number else sums[layer])
            if number:
                np.add(sums[layer], term, out=sums[layer])
            if layer:
                np.dot(other, Ws[layer].T, out=slope)

    def second() -> None:
        while begin.get():
            for _ in range(count):
                number = down.get()
                forward(1, number)
                np.multiply(values[number, -1], np.float32(2 / (ROWS * WIDTH)), out=slopes[number])
                backward(1, number)
                up.put(number)

    def step() -> None:
        begin.put(True)
        for number in range(count + 1):
            if number < count:
                values[number, 0] = x[number * size : (number + 1) * size]
                forward(0, number)
                down.put(number)
            if number:
                backward(0, up.get())

    thread = Thread(target=second)
    thread.start()
    scope.callback(thread.join)
    scope.callback(begin.put, False)
    return Trial(step, before=partial(set_blas_threads, 1))


def by_halves(model: Callable[[], Step], scope: ExitStack) -> Trial:
    """Two machines on a thread each, without a pipeline: no hand-offs, and no bubble."""
    loss, fed = model()
    made = [ag.TapeMachine([loss], workers=1) for _ in range(2)]
    machines = [scope.enter_context(machine) for machine in made]
    feeds = [{"x": half} for half in np.array_split(fed, 2)]
    begin: SimpleQueue[bool] = SimpleQueue()
    ended: SimpleQueue[bool] = SimpleQueue()

    def second() -> None:
        while begin.get():
            machines[1].run_sync(feeds[1], backward=True)
            ended.put(True)

    def step() -> None:
        begin.put(True)
        machines[0].run_sync(feeds[0], backward=True)
        ended.get()

    thread = Thread(target=second)
    thread.start()
    scope.callback(thread.join)
    scope.callback(begin.put, False)
    return Trial(step, before=partial(set_blas_threads, 1))


def make_case(name: str, model: Callable[[], Step], count: int, torch: TorchPipeline) -> Case:
    """All systems with so many microbatches."""
    pipeline = partial(ag.pipeline.Pipeline, microbatches=count)
    systems = [
        Peer(WHOLE, partial(ours, lambda node: ag.TapeMachine([node], workers=1), model), ours=True)
    ]
    if model is mlp:
        systems += [
            Peer(BY_HAND, partial(by_hand, count)),
            Peer(THREADS, partial(by_threads, count)),
            Peer(TORCH, partial(torch.trial, count)),
        ]
    systems.append(Peer(HALVES, partial(by_halves, model), ours=True))
    systems.append(
        Peer(IN_TURN, partial(ours, partial(pipeline, stages=1, workers=1), model), ours=True)
    )
    for schedule in SCHEDULES:
        made = partial(pipeline, stages=2, schedule=schedule)
        systems.append(Peer(f"ours: {schedule}, 2 stages", partial(ours, made, model), ours=True))
    return Case(name, systems)


def cases(torch: TorchPipeline) -> list[Case]:
    """The MLP with many numbers of microbatches, the others with few."""
    found = [make_case(f"m = {count}", mlp, count, torch) for count in COUNTS]
    for model in (blocks, convolutions, tiny):
        found += [make_case(f"{model.__name__}, m = {m}", model, m, torch) for m in (4, 8)]
    return found


def warm(pipeline: ag.pipeline.Pipeline, feeds: dict[str, Any], count: int) -> None:
    """Run until rows stand for the steps of actions: these are written after 100 of each."""
    for _ in range(100 // count + 2):
        pipeline.run_sync(feeds)
    for thread in threading.enumerate():
        if thread.name == "actorgraph compiler":
            thread.join()
    pipeline.run_sync(feeds)


def predicted(model: Callable[[], Step], count: int, schedule: str, runs: int) -> list[str]:
    """Return a row: what the first run predicts, what later ones take, and the ratio."""
    loss, fed = model()
    feeds = {"x": fed}
    with ag.pipeline.Pipeline(
        loss, stages="auto", schedule=schedule, microbatches=count, workers=2,
        chunks=2 if schedule == "interleaved" else None,
    ) as pipeline:  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that one core is faster
            pipeline.run_sync(feeds)
        said = re.search(r"([\d.e+]+) ms predicted", str(pipeline.explain()))
        assert said is not None
        warm(pipeline, feeds, count)
        took = []
        for _ in range(3 * runs):
            started = perf_counter()
            pipeline.run_sync(feeds)
            took.append((perf_counter() - started) * 1e3)
        (found,) = ag.pipeline.measure([pipeline], feeds, runs=runs)
    measured = median(map(min, zip(*[iter(took)] * 3, strict=True)))  # of three, as of a trial
    ratio = measured / float(said[1])
    by_own = found.makespan_s / float(found.predicted.makespan)
    row = [f"{model.__name__}, m = {count}", schedule, said[1], f"{measured:.3g}"]
    return [*row, f"{ratio:.3f}", f"{by_own:.3f}"]


def predictions(runs: int) -> list[list[str]]:
    """Return the table of predictions beside what is measured, and tell which are not close."""
    named = [*SCHEDULES, "interleaved"]
    asked = [(mlp, count, name) for count in COUNTS[1:] for name in named]
    asked += [(model, m, name) for model in (blocks, convolutions) for m in (4, 8)
              for name in SCHEDULES]  # fmt: skip
    rows = [predicted(*one, runs) for one in asked]
    print_rows(
        "what the first run predicts, and what later runs take: ms",
        [["case", "schedule", "predicted", "measured", "by predicted", "by own times"], *rows],
        words=2,
    )
    for row in rows:
        if abs(float(row[4]) - 1) > CLOSE:
            tell(f"MISSED: {row[0]}, {row[1]} takes {row[4]}x what is predicted; wanted within 10%")
    return rows


def handoff_us(count: int, runs: int) -> dict[str, float]:
    """Return how long lanes of the MLP's pipeline take from one action to the next, as medians.

    Where the next one waits for a message, its lane watches since its own last action has ended:
    the time is from the end of the sender's action, as instruments are told of it.  The message
    leaves before that, and the sender adds up gradients meanwhile, so it may be below 0.  A lane
    whose next action waits for nothing shows what an action takes beside its own time.
    """
    loss, fed = mlp()
    waiting: list[float] = []
    ready: list[float] = []
    with ag.pipeline.Pipeline(loss, stages=2, microbatches=count) as pipeline:
        warm(pipeline, {"x": fed}, count)
        for _ in range(runs):
            (found,) = ag.pipeline.measure([pipeline], {"x": fed}, runs=1)
            first, last = found.rows
            for row, other, sent in ((first, last, "BW"), (last, first, "F")):
                ended = {bar.label: bar.end for bar in other if bar.kind == sent}
                free = [0.0, *[bar.end for bar in row]]
                for bar, idle in zip(row, free, strict=False):
                    if idle < ended.get(bar.label, 0.0):
                        waiting.append(bar.start - ended[bar.label])
                    elif idle:
                        ready.append(bar.start - idle)
    return {"waits for a message": median(waiting) * 1e6, "waits for nothing": median(ready) * 1e6}


def targets() -> list[Target]:
    """What the project wants: that a pipeline pays, and that microbatches cost little."""
    found = [Target("m = 16", IN_TURN, (WHOLE,), 1.3)]
    for count in COUNTS[1:]:
        factor = 0.8 if count == 16 else 0.75
        for schedule in SCHEDULES:
            system = f"ours: {schedule}, 2 stages"
            found += [
                Target(f"m = {count}", system, (WHOLE,), factor),
                Target(f"m = {count}", system, (TORCH,), 1.0),
            ]
            if count != 16:
                found += [
                    Target(f"{name}, m = {count}", system, (WHOLE,), factor)
                    for name in ("blocks", "convolutions")
                ]
    return found


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("microbatches", __doc__)
    effort = Effort(2, 0.15) if asked.quick else Effort(10, 0.4)
    print_environment()
    figures: list[Figure] = []
    with ExitStack() as scope:
        for case in cases(TorchPipeline(weights(), batch(), scope)):
            figures += measure(case, effort, asked.only, keep=WHOLE)
    print_table("microbatches", "ms", figures, WHOLE)
    handoffs = {f"m = {m}": handoff_us(m, 3 if asked.quick else 30) for m in COUNTS}
    print("from an action to the next, us, where that", handoffs)
    said = predictions(3 if asked.quick else 10)
    more = {"targets": judge(targets(), figures), "handoff_us": handoffs, "predictions": said}
    write_json("microbatches", asked, figures, more)
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
