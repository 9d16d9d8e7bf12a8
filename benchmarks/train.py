"""Table 4: one training step of an MLP I-H-H-10 with relu, cross entropy and SGD.

All systems start from the same weights and must have the same loss after ten steps. The distance
to the arithmetic floor is that to the fastest way here to compute the step's matrix products alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from benchmarks import _train_peers as peers
from benchmarks._harness import Case, Effort, Figure, Peer, Trial, Unavailable, installed, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_rows,
    print_table,
    write_json,
)
from benchmarks._train_peers import CHECKED_STEPS, LR, Size, Stepper, set_blas_threads

SMALL, LARGE = Size(32, 64, 32), Size(128, 784, 512)
BASELINE = "NumPy with buffers, 1 thread"
RIVALS = ("PyTorch eager, 1 thread", "PyTorch eager, 2 threads", "JAX jit")
FLOORS = ("products alone: NumPy, 1 thread", "products alone: NumPy, 2 threads")
TORCH_FLOOR = "products alone: PyTorch, 2 threads"
TAPE, ONE, DEFAULT = "TapeMachine", "ActorMachine workers=1", "ActorMachine"
JIT = ' jit="wait"'
RUN, STEP = "run_sync + solver.step", "compile_step"


def ours(size: Size, kind: str, settings: dict[str, object], how: str, scope: ExitStack) -> Stepper:
    """Our machine: a run with gradients and a step of the solver, or both as one program."""
    import actorgraph as ag

    if how == STEP and not hasattr(ag.Machine, "compile_step"):
        raise Unavailable("compile_step is not there yet")
    graph = ag.Graph("mlp")
    x = graph.input("x", shape=(size.batch, size.inputs), dtype="float32")
    t = graph.input("t", shape=(size.batch,), dtype="int64")
    first = peers.first_weights(size)
    weights = [graph.parameter(f"w{i}", array) for i, array in enumerate(first)]
    w1, b1, w2, b2, w3, b3 = weights
    hidden = ag.ops.relu(ag.ops.relu(x @ w1 + b1) @ w2 + b2)
    loss = ag.ops.cross_entropy(hidden @ w3 + b3, t)
    if "jit" in settings:
        installed("llvmlite")
    machine: Any = scope.enter_context(getattr(ag, kind)([loss], wrt=weights, **settings))
    solver = ag.solvers.SGD(lr=LR)
    feeds = dict(zip(("x", "t"), peers.data(size), strict=True))

    def reset() -> None:
        for weight, array in zip(weights, first, strict=True):
            weight.value = array

    def step() -> Any:
        run = machine.run_sync(feeds, backward=True)
        solver.step([run[weight] for weight in weights])
        return run[loss].value

    if how == STEP:
        compiled = machine.compile_step(solver)
        return Stepper(reset, lambda: compiled(feeds)[loss].value)
    return Stepper(reset, step)


def checked(size: Size, build: Callable[[ExitStack], Stepper]) -> Callable[[ExitStack], Trial]:
    """Insist on the loss after a few steps; a timed slice starts from the first weights."""

    def ready(scope: ExitStack) -> Trial:
        stepper = build(scope)

        def before() -> None:
            set_blas_threads(stepper.threads)
            stepper.reset()

        before()
        losses = [float(stepper.step()) for _ in range(CHECKED_STEPS)]
        np.testing.assert_allclose(losses, expected_losses(size), rtol=1e-3)
        return Trial(stepper.step, before)

    return ready


def expected_losses(size: Size) -> list[float]:
    """Return the losses of the hand-written NumPy code."""
    model = peers.NumPyMLP(size)
    return [float(model.step()) for _ in range(CHECKED_STEPS)]


def make_case(size: Size) -> Case:
    """All systems on one size, and the floors."""

    def row(system: str, build: Callable[..., Stepper], *args: Any, mine: bool = False) -> Peer:
        return Peer(system, checked(size, partial(build, size, *args)), ours=mine)

    systems = [
        row(BASELINE, peers.numpy_stepper, 1),
        row("NumPy with buffers, 2 BLAS threads", peers.numpy_stepper, 2),
        row(RIVALS[0], peers.torch_stepper, 1),
        row(RIVALS[1], peers.torch_stepper, 2),
        row(RIVALS[2], peers.jax_stepper),
    ]
    for how in (RUN, STEP):
        for name, settings in (
            (TAPE, {}),
            (ONE, {"workers": 1}),
            (DEFAULT, {}),
            (TAPE + JIT, {"exact": False, "jit": "wait"}),
            (DEFAULT + JIT, {"exact": False, "jit": "wait"}),
        ):
            kind = name.partition(" ")[0]
            systems.append(row(f"ours: {name}, {how}", ours, kind, settings, how, mine=how == RUN))
    for threads, floor in enumerate(FLOORS, 1):
        systems.append(Peer(floor, partial(peers.numpy_products, size, threads)))
    systems.append(Peer(TORCH_FLOOR, partial(peers.torch_products, size, 2)))
    return Case(size.name, systems)


def targets() -> list[Target]:
    """What the project wants of either way to step."""
    return [
        target
        for how in (RUN, STEP)
        for name in (TAPE, DEFAULT, TAPE + JIT, DEFAULT + JIT)
        for target in (
            Target(SMALL.name, f"ours: {name}, {how}", RIVALS[:2], 0.35),
            Target(SMALL.name, f"ours: {name}, {how}", RIVALS[2:], 1.3),
            Target(LARGE.name, f"ours: {name}, {how}", RIVALS, 1.25),
        )
    ]


def distances(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Print and return how many times the arithmetic floor each system needs."""
    found: list[dict[str, object]] = []
    for case in dict.fromkeys(figure.case for figure in figures):
        mine = [f for f in figures if f.case == case and f.seconds is not None]
        floors = [f for f in mine if f.system in (*FLOORS, TORCH_FLOOR)]
        if not floors:
            continue
        floor = min(floors, key=lambda f: f.seconds or 0.0)
        assert floor.seconds is not None
        title = f"{case}: arithmetic floor {floor.seconds * 1e6:.0f} us ({floor.system})"
        rows = [["system", "us above", "times the floor"]]
        for figure in mine:
            if figure not in floors and figure.seconds is not None:
                ratio = figure.seconds / floor.seconds
                above = (figure.seconds - floor.seconds) * 1e6
                rows.append([figure.system, f"{above:.0f}", f"{ratio:.2f}"])
                found.append({"case": case, "system": figure.system, "ratio": ratio})
        print_rows(title, rows)
    return found


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("train", __doc__)
    effort = Effort(4, 0.1) if asked.quick else Effort(15, 0.3)
    print_environment()
    figures: list[Figure] = []
    for size in (SMALL, LARGE):
        losses = expected_losses(size)
        print(
            f"{size.name}: loss {losses[0]:.5f} at first, {losses[-1]:.5f} at step {CHECKED_STEPS}"
        )
        figures += measure(make_case(size), effort, asked.only, keep=BASELINE)
    print_table("train, one step", "us", figures, BASELINE)
    extra = {"floors": distances(figures), "targets": judge(targets(), figures)}
    write_json("train", asked, figures, extra)
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
