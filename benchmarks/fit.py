"""Table: an epoch of `Trainer.fit` beside the same loop in PyTorch and in plain NumPy.

All train the same MLP, or LSTM, on the digits with the same batches of 32 from a loader without
workers, by Adam, and read the loss of every step.  The last rows are what the loop around our step
costs: an epoch of the trainer less the bare compiled steps on the same batches.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from functools import partial
from time import process_time
from typing import Any

import numpy as np

import actorgraph as ag
from benchmarks._harness import Case, Effort, Peer, Trial, installed, measure
from benchmarks._report import (
    exit_status,
    options,
    print_environment,
    print_table,
    tell,
    write_json,
)

BATCH, WIDTHS = 32, (64, 256, 128, 10)
HIDDEN = 64
TINY = (64, 16, 10)
"""So small that differences between two loops are not lost in what its steps take."""
NUMPY, TORCH = "NumPy by hand", "PyTorch, DataLoader and Adam"
OURS, BARE = "ours: Trainer.fit", "ours: bare compiled steps"
LOOP_SHARE = 0.05
"""Of a step of 1 ms, what the loop around it may cost."""


def data(kind: str) -> tuple[Any, Any]:
    """Return images, as rows of 8 pixels in 8 steps for the LSTM, and labels."""
    (images, labels), _ = ag.data.split(*ag.data.digits())
    return (images.reshape(-1, 8, 8) if kind == "lstm" else images), labels


class Sequence(ag.nn.Module):
    def __init__(self) -> None:
        self.lstm = ag.nn.LSTM(8, HIDDEN, batch_first=True)
        self.out = ag.nn.Linear(HIDDEN, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0][:, -1])


def trainer(kind: str) -> tuple[Any, Any]:
    """Return a trainer and its loader."""
    ag.nn.manual_seed(0)
    net = Sequence() if kind == "lstm" else ag.nn.models.MLP(*(TINY if kind == "tiny" else WIDTHS))
    loader = ag.data.DataLoader(ag.data.ArrayDataset(*data(kind)), BATCH, shuffle=True)
    solver = ag.solvers.Adam(1e-3)
    return ag.train.Trainer(net, ag.ops.cross_entropy, solver, callbacks=[]), loader


def ours(kind: str, scope: ExitStack) -> Trial:
    """An epoch of the trainer."""
    made, loader = trainer(kind)
    made.fit(loader, 1)
    return Trial(lambda: made.fit(loader, 1) and None)


def bare(kind: str, scope: ExitStack) -> Trial:
    """The compiled steps of an epoch, on batches that are there."""
    made, loader = trainer(kind)
    net, solver = made.model, made.solver
    batches = [{"x": x, "t": t} for x, t in loader]
    g = ag.Graph()
    first = batches[0]
    x = g.input("x", ("n", *first["x"].shape[1:]))
    loss = ag.ops.cross_entropy(net(x), g.input("t", ("n",), "int64"))
    machine = scope.enter_context(ag.ActorMachine(loss))
    step = machine.compile_step(solver)

    def epoch() -> None:
        for feeds in batches:
            float(step(feeds)[loss].value)

    return Trial(epoch)


def torch(kind: str, scope: ExitStack) -> Trial:
    """The loop that its users write."""
    installed("torch")
    import torch

    torch.manual_seed(0)
    sizes = list(itertools.pairwise(WIDTHS))
    layers = [part for size in sizes for part in (torch.nn.Linear(*size), torch.nn.ReLU())][:-1]
    lstm, out = torch.nn.LSTM(8, HIDDEN, batch_first=True), torch.nn.Linear(HIDDEN, 10)
    net = torch.nn.ModuleList([lstm, out]) if kind == "lstm" else torch.nn.Sequential(*layers)
    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, data(kind)))
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True)
    solver = torch.optim.Adam(net.parameters(), 1e-3)

    def epoch() -> None:
        for x, t in loader:
            solver.zero_grad()
            scores = out(lstm(x)[0][:, -1]) if kind == "lstm" else net(x)
            loss = torch.nn.functional.cross_entropy(scores, t)
            loss.backward()
            solver.step()
            loss.item()

    return Trial(epoch)


def by_hand(kind: str, scope: ExitStack) -> Trial:
    """An MLP, its gradients and Adam, as one writes them without a library."""
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(WIDTHS))
    weights = [rng.normal(0, i**-0.5, (i, o)).astype("float32") for i, o in pairs]
    weights += [np.zeros(o, "float32") for _, o in pairs]
    means, squares = [[np.zeros_like(one) for one in weights] for _ in range(2)]
    images, labels = data(kind)
    count = [0]

    def step(x: Any, t: Any) -> float:
        hidden = [x]
        for place in range(3):
            z = hidden[-1] @ weights[place] + weights[3 + place]
            hidden.append(np.maximum(z, 0) if place < 2 else z)
        scores = hidden.pop()
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
        loss = -np.log(scores[np.arange(len(t)), t]).mean()
        scores[np.arange(len(t)), t] -= 1
        slope, grads = scores / len(t), [None] * 6
        for place in (2, 1, 0):
            grads[place], grads[3 + place] = hidden[place].T @ slope, slope.sum(0)
            slope = (slope @ weights[place].T) * (hidden[place] > 0)
        count[0] += 1
        below, above = 1 - 0.999 ** count[0], 1e-3 / (1 - 0.9 ** count[0])
        for w, grad, mean, square in zip(weights, grads, means, squares, strict=True):
            mean += 0.1 * (grad - mean)
            square += 0.001 * (grad * grad - square)
            w -= above * mean / (np.sqrt(square / below) + 1e-8)
        return float(loss)

    def epoch() -> None:
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            step(images[rows], labels[rows])

    return Trial(epoch)


def loop_us() -> float:
    """Return what the loop around a step costs, in us of processor time of this process."""
    with ExitStack() as scope:
        trials = [ours("tiny", scope).run, bare("tiny", scope).run]
        steps = -(-len(data("tiny")[1]) // BATCH)
        spent: list[list[float]] = [[], []]
        for _ in range(60):
            for found, run in zip(spent, trials, strict=True):
                started = process_time()
                run()
                found.append(process_time() - started)
    return float(min(spent[0]) - min(spent[1])) / steps * 1e6


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("fit", __doc__)
    effort = Effort(3, 0.1) if asked.quick else Effort(9, 0.5)
    print_environment()
    figures = []
    for kind in ("mlp", "lstm"):
        builds = {TORCH: torch, OURS: ours, BARE: bare}
        if kind == "mlp":
            builds = {NUMPY: by_hand, **builds}
        rows = [Peer(name, partial(build, kind), ours=name == OURS)
                for name, build in builds.items()]  # fmt: skip
        figures += measure(Case(kind, rows), effort, asked.only, keep=TORCH)
    print_table("fit, one epoch of 45 steps", "us", figures, TORCH)
    around_us = loop_us()
    tell(f"The loop around a step, with its batch, takes {around_us:.0f} us: "
         f"{around_us / 1e3:.1%} of a step of 1 ms (wanted {LOOP_SHARE:.0%}).")  # fmt: skip
    write_json("fit", asked, figures, {"loop_us": around_us})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
