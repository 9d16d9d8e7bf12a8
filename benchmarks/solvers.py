"""Table: one step of a solver on 10^6 and 10^7 float32 parameters, beside those of PyTorch.

The parameters are ten matrices that hold their gradients.  Ours: `solver.step` by NumPy alone, and
by machine code, which llvmlite makes.  All systems may use all cores.
"""

from __future__ import annotations

import os
import sys
import timeit
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import actorgraph as ag
from actorgraph.devices.cpu import available_cores
from actorgraph.options import NATIVE
from actorgraph.solvers._formula import _compiled
from actorgraph.store import at_once
from benchmarks._harness import Case, Effort, Peer, Trial, installed, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    tell,
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
    # Copies, because PyTorch's own arrays begin at a cache line.
    values, grads = [[torch.from_numpy(one).clone() for one in part] for part in arrays(size)]
    for value, grad in zip(values, grads, strict=True):
        value.requires_grad_()
        value.grad = grad
    solver = getattr(torch.optim, kind)(values, lr=LR, **SOLVERS[name], **{how: True})
    cores = partial(torch.set_num_threads, available_cores())
    return Trial(lambda: solver.step() and None, before=cores)


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
        solver._code_call = solver._by_code = nothing  # a step of all parameters, and of one
    return Trial(lambda: solver.step(parameters))


def floor_s(name: str, size: int) -> float:
    """Return what the calls of NumPy take that make a step, on arrays that stay in the cache.

    By as many threads as there are cores, none of which ever waits: no step by NumPy is faster.
    """
    loop = getattr(ag.solvers, name)(lr=LR, **SOLVERS[name]).loop()
    calls, constants, registers, _ = _compiled(loop)
    rng, count = np.random.default_rng(0), 1 << 15
    arrays = [rng.random(count, np.float32) for _ in range(3 + 2 * len(loop.arrays) + registers)]
    numbers = [np.float32(0.5).reshape(()) for _ in constants(*(1.0 for _ in loop.numbers))]
    made = calls(*arrays, *numbers)
    found = min(timeit.repeat(lambda: at_once(made), number=20, repeat=50)) / 20
    return found / count * COUNT * size / available_cores()


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
    floors = {}
    for case, against in [(one.case, one.against) for one in targets[::2]]:
        name, told = case.split(", ")
        best = [one.seconds for one in figures if one.case == case and one.system in against]
        floors[case] = floor_s(name, SIZES[told]) / min(filter(None, best), default=np.nan)
    print_table("solvers, one step", "us", figures, FOREACH)
    shares = ", ".join(f"{case} {share:.2f}x" for case, share in floors.items())
    tell(f"NumPy's calls alone, on arrays in the cache, on all cores: {shares} of the best peer.")
    judged = judge(targets, figures)
    write_json("solvers", asked, figures, {"targets": judged, "floors": floors})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
