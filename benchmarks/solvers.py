"""Table: one step of a solver on 10^6 and 10^7 float32 parameters, beside those of PyTorch.

The parameters are ten matrices that hold their gradients.  Ours: `solver.step` by NumPy alone, and
by machine code, which llvmlite makes.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import actorgraph as ag
from actorgraph.options import NATIVE
from benchmarks._harness import Case, Effort, Peer, Trial, installed, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    write_json,
)

COUNT = 10
SIZES = {"10^6": 100_000, "10^7": 1_000_000}
SOLVERS = {
    "SGD": {"momentum": 0.9}, "Adam": {}, "AdamW": {"weight_decay": 0.01}, "RMSProp": {},
}  # fmt: skip
QUICK_SOLVERS = ("SGD", "Adam")
LR = 1e-3
FOREACH, FUSED = "PyTorch, foreach", "PyTorch, fused"
PLAIN, CODE = "ours: NumPy alone", "ours: machine code"


def arrays(size: int) -> tuple[list[Any], list[Any]]:
    """Return parameters and gradients."""
    rng = np.random.default_rng(0)
    made = [rng.standard_normal((size // 100, 100), np.float32) for _ in range(2 * COUNT)]
    return made[:COUNT], made[COUNT:]


def torch(name: str, size: int, how: str, scope: ExitStack) -> Trial:
    """A step of `torch.optim`."""
    installed("torch")
    import torch

    kind = {"RMSProp": "RMSprop"}.get(name, name)
    values, grads = [[torch.from_numpy(one) for one in part] for part in arrays(size)]
    for value, grad in zip(values, grads, strict=True):
        value.requires_grad_()
        value.grad = grad
    solver = getattr(torch.optim, kind)(values, lr=LR, **SOLVERS[name], **{how: True})
    return Trial(lambda: solver.step() and None)


def ours(name: str, size: int, by_code: bool, scope: ExitStack) -> Trial:
    """A step of a solver on parameters that hold their gradients."""
    parameters = []
    for number, (value, grad) in enumerate(zip(*arrays(size), strict=True)):
        parameters.append(ag.nn.Parameter(value))
        parameters[-1].name, parameters[-1].grad = f"w{number}", grad
    solver: Any = getattr(ag.solvers, name)(lr=LR, **SOLVERS[name])
    if by_code:
        installed("llvmlite")
        os.environ[NATIVE] = "wait"  # for it, at the first step
    else:
        solver.in_one_call = solver._by_code = nothing  # a step of all parameters, and of one
    return Trial(lambda: solver.step(parameters))


def nothing(*arguments: Any) -> None:
    """Stand for machine code that there is not."""


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("solvers", __doc__)
    effort = Effort(3, 0.1) if asked.quick else Effort(5, 0.3)
    print_environment()
    figures, targets = [], []
    for name in QUICK_SOLVERS if asked.quick else SOLVERS:
        for told, size in [*SIZES.items()][: 1 if asked.quick else None]:
            case = f"{name}, {told}"
            rows = [Peer(FOREACH, partial(torch, name, size, "foreach"))]
            if name != "RMSProp":  # PyTorch has no fused one
                rows.append(Peer(FUSED, partial(torch, name, size, "fused")))
            rivals = tuple(row.system for row in rows)
            rows.append(Peer(PLAIN, partial(ours, name, size, False)))
            rows.append(Peer(CODE, partial(ours, name, size, True), ours=True))
            figures += measure(Case(case, rows), effort, asked.only, keep=FOREACH)
            targets += [Target(case, PLAIN, rivals, 1.5), Target(case, CODE, rivals, 1.0)]
    print_table("solvers, one step", "us", figures, FOREACH)
    write_json("solvers", asked, figures, {"targets": judge(targets, figures)})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
