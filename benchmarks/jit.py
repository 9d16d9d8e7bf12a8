"""Elementwise chains with sums: planned buffers, compiled loops (``jit="wait"``), PyTorch eager.

One thread each; float32. A case is a form at rows x 256; ``+ grad`` differentiates the mean of the
squares by weights. ``adam`` is the update of a solver written as a graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._harness import Case, Effort, Figure, Peer, Trial, installed, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    write_json,
)

COLUMNS = 256
ROWS = (16, 64, 512, 4096)
PLAIN, JIT, TORCH = "TapeMachine", 'TapeMachine jit="wait"', "PyTorch eager"


def relu_chain(xp: Any, x: Any, w: Any, b: Any) -> list[Any]:
    return [xp.relu(x * w + b) * x - xp.abs(x) * 0.1 + xp.where(x > 0, x, b)]


def gelu(xp: Any, x: Any, w: Any, b: Any) -> list[Any]:
    z = x * w + b
    return [z * 0.5 * (xp.tanh((z + z * z * z * 0.044715) * 0.79788456) + 1)]


def layer_norm(xp: Any, x: Any, w: Any, b: Any) -> list[Any]:
    centred = x - x.mean(-1, True)
    return [centred / xp.sqrt((centred * centred).mean(-1, True) + 1e-5) * w + b]


def adam(xp: Any, p: Any, grad: Any, m: Any, v: Any) -> list[Any]:
    m = m * 0.9 + grad * 0.1
    v = v * 0.999 + grad * grad * 0.001
    return [p - m * 0.001 / (xp.sqrt(v) + 1e-8), m, v]


@dataclass(frozen=True)
class Form:
    """What is computed, of how many full arrays; two vectors follow where it has weights."""

    function: Callable[..., list[Any]]
    full: int
    grad: bool

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", " ") + (" + grad" if self.grad else "")

    def arrays(self, rows: int) -> tuple[list[Any], list[Any]]:
        rng = np.random.default_rng(0)
        full = [np.abs(rng.normal(size=(rows, COLUMNS))).astype("f") for _ in range(self.full)]
        vectors = [rng.normal(size=COLUMNS).astype("f") for _ in range(2 if self.full == 1 else 0)]
        return full, vectors


FORMS = (
    Form(relu_chain, 1, False),
    Form(relu_chain, 1, True),
    Form(gelu, 1, False),
    Form(gelu, 1, True),
    Form(layer_norm, 1, False),
    Form(layer_norm, 1, True),
    Form(adam, 4, False),
)


def machine_trial(form: Form, rows: int, jit: bool | str) -> Callable[[ExitStack], Trial]:
    def build(scope: ExitStack) -> Trial:
        import actorgraph as ag

        if jit:
            installed("llvmlite")
        full, vectors = form.arrays(rows)
        graph = ag.Graph()
        inputs = [graph.input(f"x{i}", ("n", COLUMNS)) for i in range(len(full))]
        weights = [graph.parameter(f"w{i}", value) for i, value in enumerate(vectors)]
        outputs = form.function(ag.ops, *inputs, *weights)
        outputs = [(outputs[0] * outputs[0]).mean()] if form.grad else outputs
        machine = scope.enter_context(ag.TapeMachine(outputs, workers=1, exact=False, jit=jit))
        feeds = dict(zip([node.name for node in inputs], full, strict=True))

        def run() -> Sequence[object]:
            done = machine.run_sync(feeds, backward=form.grad)
            values = [done[node].value for node in outputs]
            return [*values, *(done[node].grad for node in weights)] if form.grad else values

        return Trial(run)

    return build


def torch_trial(form: Form, rows: int) -> Callable[[ExitStack], Trial]:
    def build(scope: ExitStack) -> Trial:
        installed("torch")
        import torch

        scope.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        full, vectors = form.arrays(rows)
        inputs = [torch.from_numpy(value) for value in full]
        weights = [torch.from_numpy(value).requires_grad_(form.grad) for value in vectors]

        def run() -> Sequence[object]:
            outputs = form.function(torch, *inputs, *weights)
            if not form.grad:
                return outputs
            loss = (outputs[0] * outputs[0]).mean()
            return [loss.detach(), *torch.autograd.grad(loss, weights)]

        return Trial(run)

    return build


def case(form: Form, rows: int) -> Case:
    with ExitStack() as scope:
        expected = [np.array(one) for one in machine_trial(form, rows, False)(scope).run() or ()]
    peers = [
        Peer(PLAIN, machine_trial(form, rows, False), ours=True),
        Peer(JIT, machine_trial(form, rows, "wait"), ours=True),
        Peer(TORCH, torch_trial(form, rows)),
    ]
    return Case(f"{rows}", peers, expected=expected)


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("jit", __doc__)
    effort = Effort(3, 0.02) if asked.quick else Effort(10, 0.05)
    print_environment()
    everything: list[Figure] = []
    verdicts: list[dict[str, object]] = []
    for form in FORMS:
        figures: list[Figure] = []
        for rows in ROWS:
            figures += measure(case(form, rows), effort, asked.only, PLAIN)
        print_table(f"{form.name}, rows x {COLUMNS}", "us", figures, PLAIN)
        # Nothing that is compiled may be slower than what it stands for, noise aside.
        targets = [Target(f"{rows}", JIT, (PLAIN,), 1.05) for rows in ROWS]
        verdicts += judge(targets, figures)
        everything += figures
    write_json("jit", asked, everything, {"targets": verdicts})
    return exit_status(everything)


if __name__ == "__main__":
    sys.exit(main())
