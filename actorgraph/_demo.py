"""The command `actorgraph demo`: a committee of networks learns handwritten digits as actors.

Four networks of two hidden layers see the same images and share one loss, their mean, so a step has
four parts that two threads can compute at the same time.  Every operation is an actor
(``fuse="none"``), so that there is something to watch.  The time of a step is measured with one
worker, with all workers, and with the default, which fuses cheap operations into one actor.
"""

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actorgraph._progress import Display, ThreadRow
from actorgraph.data import ArrayDataset, DataLoader, digits, split
from actorgraph.graph import Graph, Node
from actorgraph.machines import ActorMachine, LispMachine, Run
from actorgraph.machines.instrument import Instrument
from actorgraph.machines.step import Step
from actorgraph.nn import manual_seed
from actorgraph.nn.models import MLP
from actorgraph.node_actor import Task
from actorgraph.ops import cross_entropy, stack
from actorgraph.solvers import Adam, schedules
from actorgraph.trace import use

Array = NDArray[Any]
Batch = dict[str, Array]

NETWORKS = 4
WIDTHS = (64, 512, 256, 10)
BATCH = 128
LEARNING_RATE = 6e-3
TIMED_STEPS, TIMED_ROUNDS = 8, 5
_SETTLED = 40  # runs after which a machine does not cut its graph again
_SMOOTHING = 0.9  # of the loss and accuracy shown


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a demonstration.

    `step_ms` has the median time of gradients by machine.
    """

    test_accuracy: float
    steps: int
    seconds: float
    images_per_s: float
    workers: int
    epochs: int
    seed: int
    gradient_max_difference: float
    step_ms: dict[str, float]
    threads: list[ThreadRow]

    def lines(self) -> list[str]:
        """Return the fields as lines of text."""
        width = max(len(row.thread) for row in self.threads)
        return [
            "",
            f"test accuracy  {self.test_accuracy:.4f}",
            f"training       {self.steps} steps in {self.seconds:.2f} s",
            f"images         {self.images_per_s:,.0f} per second",
            "",
            "which thread ran the actors",
            *(
                f"  {row.thread:<{width}}  {row.turns:9,d} turns  {row.messages:9,d} messages sent"
                f"  {row.busy_s:6.2f} s at work"
                for row in self.threads
            ),
            "",
            *_speed(self.step_ms),
            "",
            "try next",
            f"  actorgraph trace {_here()}:committee --backward --fuse none",
            "                      draws one step on a timeline, as a page for the browser",
            "  actorgraph doctor   shows what this computer has and what to install for more",
        ]


@dataclass(frozen=True, slots=True)
class Committee:
    """The graph's nodes that the training needs."""

    loss: Node
    votes: Node


class Watch(Instrument):
    """Counts turns and messages of actors, by the thread that runs them."""

    def __init__(self) -> None:
        self._rows: dict[str, ThreadRow] = {}

    def on_turn(self, task: Task, run: Run, started: float, ended: float) -> None:
        """Count a turn; each thread writes to a row of its own."""
        name = current_thread().name
        if (row := self._rows.get(name)) is None:
            shown = "main thread" if current_thread() is main_thread() else name
            row = self._rows[name] = ThreadRow(shown.replace("actorgraph-", "worker thread "))
        row.turns += 1
        row.messages += len(task.spec.sends) + len(task.spec.bundles)
        row.busy_s += ended - started
        row.actor = task.spec.name

    def rows(self) -> list[ThreadRow]:
        """Return the work of each thread so far."""
        return [self._rows[name] for name in sorted(self._rows)]


def build(seed: int) -> Committee:
    """Build the networks."""
    manual_seed(seed)
    graph = Graph("committee")
    images = graph.input("x", shape=("batch", WIDTHS[0]), dtype="float32")
    labels = graph.input("t", shape=("batch",), dtype="int64")
    logits = [MLP(*WIDTHS)(images) for _ in range(NETWORKS)]
    loss = stack([cross_entropy(one, labels) for one in logits]).mean()
    return Committee(loss, stack(logits).mean(axis=0))


def committee() -> tuple[list[Node], Batch]:
    """Return outputs and feeds of one step, as ``actorgraph trace`` takes them."""
    model = build(0)
    images, labels = digits()
    return [model.loss, model.votes], {"x": images[:BATCH], "t": labels[:BATCH]}


def train(workers: int, epochs: int, seed: int, progress: Display) -> Outcome:
    """Train and test the committee, and measure the speed-up by workers."""
    training, (test_images, test_labels) = split(*digits())
    model = build(seed)
    first = {"x": training[0][:BATCH], "t": training[1][:BATCH]}
    loader = DataLoader(ArrayDataset(*training), batch_size=BATCH, shuffle=True, seed=seed)
    steps = epochs * len(loader)
    watch = Watch()
    with ActorMachine([model.loss, model.votes], workers=workers, fuse="none") as machine:
        difference = _gradient_difference(machine, model, first)
        with progress, use(watch, machine):
            for line in (*_introduction(machine, workers), _verdict(difference)):
                progress.say(line)
            progress.begin(epochs, len(loader))
            step = machine.compile_step(Adam(lr=schedules.cosine(LEARNING_RATE, steps=steps)))
            seconds = _fit(step, model, loader, epochs, progress, watch)
        run = machine.run_sync({"x": test_images, "t": test_labels})
        accuracy = _accuracy(run[model.votes].value, test_labels)
    progress.say("training has ended; measuring the speed-up by workers ...")
    return Outcome(
        test_accuracy=accuracy,
        steps=steps,
        seconds=seconds,
        images_per_s=epochs * len(training[0]) / seconds,
        workers=workers,
        epochs=epochs,
        seed=seed,
        gradient_max_difference=difference,
        step_ms=_step_ms(model, first, workers),
        threads=watch.rows(),
    )


def _fit(
    step: Step, model: Committee, loader: DataLoader, epochs: int, progress: Display, watch: Watch,
) -> float:  # fmt: skip
    """Train for all epochs and return the seconds it took."""
    figures: dict[str, float] = {}
    start = time.perf_counter()
    for epoch in range(epochs):
        for images, labels in loader:
            run = step({"x": images, "t": labels})
            hits = _accuracy(run[model.votes].value, labels)
            latest = {"loss": float(run[model.loss].value), "accuracy": hits}
            figures = {
                name: _SMOOTHING * figures.get(name, value) + (1.0 - _SMOOTHING) * value
                for name, value in latest.items()
            }
            if progress.is_due():
                progress.show(figures, watch.rows())
        progress.epoch(epoch + 1, figures, watch.rows())
    return time.perf_counter() - start


def _gradient_difference(machine: ActorMachine, model: Committee, batch: Batch) -> float:
    """Return the largest difference to the reference machine's gradients on one batch."""
    ours = machine.run_sync(batch, backward=True)
    with LispMachine([model.loss]) as reference:
        theirs = reference.run_sync(batch, backward=True)
    return max(
        float(np.abs(ours[parameter].grad - theirs[parameter].grad).max())
        for parameter in model.loss.graph.parameters
    )


# -- speed-up by workers ------------------------------------------------------------------------

ONE = "1 worker, an actor for each operation"
_NOISE = 1.05  # closer times count as equal


def _step_ms(model: Committee, batch: Batch, workers: int) -> dict[str, float]:
    """Return the median milliseconds of loss and gradients, machine by machine.

    The machines take turns, so other load on the computer affects all of them.
    """
    settings: dict[str, dict[str, Any]] = {ONE: {"workers": 1, "fuse": "none"}}
    if workers > 1:
        settings[f"{workers} workers, the same actors"] = {"workers": workers, "fuse": "none"}
        settings[f"{workers} workers, fewer actors (the default)"] = {"workers": workers}
    times: dict[str, list[float]] = {name: [] for name in settings}
    with ExitStack() as scope:
        machines = {
            name: scope.enter_context(ActorMachine([model.loss], **chosen))
            for name, chosen in settings.items()
        }
        for machine in machines.values():
            for _ in range(_SETTLED):
                machine.run_sync(batch, backward=True)
        for _ in range(TIMED_ROUNDS):
            for name, machine in machines.items():
                for _ in range(TIMED_STEPS):
                    start = time.perf_counter()
                    machine.run_sync(batch, backward=True)
                    times[name].append((time.perf_counter() - start) * 1e3)
    return {name: median(measured) for name, measured in times.items()}


def _speed(step_ms: dict[str, float]) -> list[str]:
    """Say how long loss and gradients take, and whether more workers were faster."""
    width = max(map(len, step_ms))
    gains = {name: step_ms[ONE] / taken_ms for name, taken_ms in step_ms.items() if name != ONE}
    return [
        "loss and gradients of one batch, median",
        f"  {ONE:<{width}}  {step_ms[ONE]:7.2f} ms",
        *(
            f"  {name:<{width}}  {step_ms[name]:7.2f} ms, {_compared(gain)}"
            for name, gain in gains.items()
        ),
    ]


def _compared(gain: float) -> str:
    if gain < 1 / _NOISE:
        return f"{gain:.2f} times as fast: slower, here and now"
    return f"{gain:.2f} times as fast" if gain > _NOISE else "about the same"


# -- words --------------------------------------------------------------------------------------


def _introduction(machine: ActorMachine, workers: int) -> list[str]:
    most = "1 thread computes" if workers == 1 else f"{workers} threads compute"
    return [
        f"A committee of {NETWORKS} networks learns handwritten digits.",
        f"Each of the {len(machine.costs())} operations of its graph is an actor:",
        "it waits for messages with arrays, computes, and sends its result on.",
        "Gradients travel back along the same edges. A turn is one computation of one actor.",
        f"At most {most} at a time; the main thread works, too, while it waits for a step.",
        "",
    ]


def _verdict(difference: float) -> str:
    if difference == 0.0:
        return "gradients      equal in every bit to those computed one operation after the other"
    return (
        "gradients      differ from those computed one operation after the other by up to "
        f"{difference:.2e}"
    )


def _here() -> str:
    path = Path(__file__)
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _accuracy(logits: Array, labels: Array) -> float:
    return float(np.mean(logits.argmax(axis=1) == labels))
