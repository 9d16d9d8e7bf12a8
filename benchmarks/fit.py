"""Table: an epoch of `Trainer.fit` beside the same loop in PyTorch and in plain NumPy.

All train the same MLP, CNN or LSTM on the digits with the same batches of 32 from a loader without
workers, by Adam, and read the loss of every step.  Then what the loop around our step costs: an
epoch of the trainer less the bare compiled steps on the same batches.  Last, the share of the rate
that is left where a loader with a worker prepares each sample, by thread and by process: of the
CNN, and of a wide one, whose steps take longer than making a batch by far.
"""

from __future__ import annotations

import itertools
import sys
from contextlib import ExitStack
from functools import partial
from time import perf_counter, process_time
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
FED_SHARE = 0.95
"""Of the rate without loading, what loading leaves."""
CHANNELS, WIDE = 16, 64


def data(kind: str) -> tuple[Any, Any]:
    """Return images, as rows of 8 pixels in 8 steps for the LSTM, and labels."""
    (images, labels), _ = ag.data.split(*ag.data.digits())
    shape = {"lstm": (-1, 8, 8), "cnn": (-1, 1, 8, 8), "wide": (-1, 1, 8, 8)}.get(kind, (-1, 64))
    return images.reshape(shape), labels


class Sequence(ag.nn.Module):
    def __init__(self) -> None:
        self.lstm = ag.nn.LSTM(8, HIDDEN, batch_first=True)
        self.out = ag.nn.Linear(HIDDEN, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0][:, -1])


def convolutions(nn: Any, channels: int = CHANNELS) -> Any:
    """Return the CNN, of our layers or PyTorch's."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * channels, 10),
    )  # fmt: skip


def trainer(kind: str, **options: Any) -> tuple[Any, Any]:
    """Return a trainer and its loader."""
    ag.nn.manual_seed(0)
    net: Any = Sequence() if kind == "lstm" else None
    if kind in ("cnn", "wide"):
        net = convolutions(ag.nn, WIDE if kind == "wide" else CHANNELS)
    net = net or ag.nn.models.MLP(*(TINY if kind == "tiny" else WIDTHS))
    loader = ag.data.DataLoader(ag.data.ArrayDataset(*data(kind)), BATCH, shuffle=True)
    solver = ag.solvers.Adam(1e-3)
    return ag.train.Trainer(net, ag.ops.cross_entropy, solver, callbacks=[], **options), loader


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

    dataset = torch.utils.data.TensorDataset(*map(torch.from_numpy, data(kind)))
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True)
    return Trial(partial(_each, torch_step(kind), loader))


def torch_step(kind: str) -> Any:
    """Return a step of PyTorch as a function of a batch."""
    import torch

    torch.manual_seed(0)
    sizes = list(itertools.pairwise(WIDTHS))
    layers = [part for size in sizes for part in (torch.nn.Linear(*size), torch.nn.ReLU())][:-1]
    lstm, out = torch.nn.LSTM(8, HIDDEN, batch_first=True), torch.nn.Linear(HIDDEN, 10)
    nets = {"lstm": torch.nn.ModuleList([lstm, out]), "cnn": convolutions(torch.nn),
            "wide": convolutions(torch.nn, WIDE)}  # fmt: skip
    net = nets.get(kind, torch.nn.Sequential(*layers))
    solver = torch.optim.Adam(net.parameters(), 1e-3)

    def step(x: Any, t: Any) -> None:
        solver.zero_grad()
        scores = out(lstm(x)[0][:, -1]) if kind == "lstm" else net(x)
        loss = torch.nn.functional.cross_entropy(scores, t)
        loss.backward()
        solver.step()
        loss.item()

    return step


def by_hand(kind: str, scope: ExitStack) -> Trial:
    """The net, its gradients and Adam, as one writes them without a library."""
    rng = np.random.default_rng(0)
    shapes, gradients = HAND[kind]
    weights = [rng.normal(0, max(shape[0], 1) ** -0.5, shape).astype("float32") for shape in shapes]
    weights += [np.zeros(shape[-1], "float32") for shape in shapes]
    means, squares = [[np.zeros_like(one) for one in weights] for _ in range(2)]
    images, labels = data(kind)
    count = [0]

    def step(x: Any, t: Any) -> float:
        loss, grads = gradients(weights, x, t)
        count[0] += 1
        below, above = 1 - 0.999 ** count[0], 1e-3 / (1 - 0.9 ** count[0])
        for w, grad, mean, square in zip(weights, grads, means, squares, strict=True):
            mean += 0.1 * (grad - mean)
            square += 0.001 * (grad * grad - square)
            w -= above * mean / (np.sqrt(square / below) + 1e-8)
        return loss

    def epoch() -> None:
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            step(images[rows], labels[rows])

    return Trial(epoch)


def _slope(scores: Any, t: Any) -> tuple[float, Any]:
    """Return the loss of scores, and its gradient."""
    scores = np.exp(scores - scores.max(1, keepdims=True))
    scores /= scores.sum(1, keepdims=True)
    loss = -np.log(scores[np.arange(len(t)), t]).mean()
    scores[np.arange(len(t)), t] -= 1
    return float(loss), scores / len(t)


def _mlp(weights: Any, x: Any, t: Any) -> Any:
    hidden, grads = [x], [None] * 6
    for place in range(3):
        z = hidden[-1] @ weights[place] + weights[3 + place]
        hidden.append(np.maximum(z, 0) if place < 2 else z)
    loss, slope = _slope(hidden.pop(), t)
    for place in (2, 1, 0):
        grads[place], grads[3 + place] = hidden[place].T @ slope, slope.sum(0)
        slope = (slope @ weights[place].T) * (hidden[place] > 0)
    return loss, grads


def _windows(x: Any) -> Any:
    """Return the 3 x 3 neighbours of each pixel of (rows, height, width, channels), as rows."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    found = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return found.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * x.shape[3])


def _cnn(weights: Any, x: Any, t: Any) -> Any:
    w1, w2, w3, b1, b2, b3 = weights
    count = len(x)
    one = _windows(x.transpose(0, 2, 3, 1))
    h1 = np.maximum(one @ w1 + b1, 0)
    two = _windows(h1.reshape(count, 8, 8, -1))
    h2 = np.maximum(two @ w2 + b2, 0).reshape(count, 4, 2, 4, 2, -1)
    pooled = h2.max((2, 4), keepdims=True)
    flat = pooled.reshape(count, -1)
    loss, slope = _slope(flat @ w3 + b3, t)
    back = ((slope @ w3.T).reshape(pooled.shape) * (h2 == pooled) * (h2 > 0)).reshape(len(two), -1)
    padded = np.zeros((count, 10, 10, CHANNELS), "float32")
    for place, part in enumerate(np.split(back @ w2.T, 9, axis=1)):
        y, x_ = divmod(place, 3)
        padded[:, y : y + 8, x_ : x_ + 8] += part.reshape(count, 8, 8, -1)
    first = padded[:, 1:9, 1:9].reshape(h1.shape) * (h1 > 0)
    grads = [one.T @ first, two.T @ back, flat.T @ slope]
    return loss, [*grads, first.sum(0), back.sum(0), slope.sum(0)]


def _lstm(weights: Any, x: Any, t: Any) -> Any:
    w, out, b, bias = weights
    h, c = np.zeros((2, len(x), HIDDEN), "float32")
    kept = []
    for step in range(x.shape[1]):
        given = np.concatenate([x[:, step], h], axis=1)
        gates = given @ w + b
        i, f, o = 1 / (
            1 + np.exp(-gates[:, : 3 * HIDDEN].reshape(len(x), 3, HIDDEN).swapaxes(0, 1))
        )
        g, before = np.tanh(gates[:, 3 * HIDDEN :]), c
        c = f * c + i * g
        kept.append((given, i, f, o, g, before, bound := np.tanh(c)))
        h = o * bound
    loss, slope = _slope(h @ out + bias, t)
    dh, dc, dw, db = slope @ out.T, 0.0, np.zeros_like(w), np.zeros_like(b)
    for given, i, f, o, g, before, bound in reversed(kept):
        dc = dc + dh * o * (1 - bound * bound)
        parts = (dc * g * i * (1 - i), dc * before * f * (1 - f), dh * bound * o * (1 - o),
                 dc * i * (1 - g * g))  # fmt: skip
        gates = np.concatenate(parts, axis=1)
        dw += given.T @ gates
        db += gates.sum(0)
        dh, dc = (gates @ w.T)[:, x.shape[2] :], dc * f
    return loss, [dw, h.T @ slope, db, slope.sum(0)]


HAND: dict[str, Any] = {
    "mlp": ([*itertools.pairwise(WIDTHS)], _mlp),
    "cnn": ([(9, CHANNELS), (9 * CHANNELS, 2 * CHANNELS), (32 * CHANNELS, 10)], _cnn),
    "lstm": ([(8 + HIDDEN, 4 * HIDDEN), (HIDDEN, 10)], _lstm),
}
"""Shapes of weights, and the function that returns loss and gradients."""


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


def prepared(sample: Any) -> Any:
    """Stand for what reading and changing an image takes: some 15 us."""
    image, label = sample
    return np.roll(image, 1, axis=1) * np.float32(0.5) + image * np.float32(0.5), label


class Samples:
    """Samples that take time, for both loaders."""

    def __init__(self) -> None:
        self.images, self.labels = data("cnn")

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> Any:
        return prepared((self.images[number], self.labels[number]))


def fed_shares(kind: str, rounds: int) -> dict[str, float]:
    """Return the rates with loading as shares of those without; one core steps, one may load."""
    installed("torch")
    import torch as peer

    machine = partial(ag.ActorMachine, workers=1)
    alone, _ = trainer(kind, machine=machine)
    batches = [*ag.data.DataLoader(Samples(), BATCH)]
    epochs = {"ours": [lambda: alone.fit(batches, 1)]}
    for process in (False, True):
        made, _ = trainer(kind, machine=machine)
        loader = ag.data.DataLoader(Samples(), BATCH, workers=1, prefetch=4, process=process)
        epochs["ours"].append(partial(made.fit, loader, 1))
    workers = {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 4}
    theirs = peer.utils.data.DataLoader(Samples(), BATCH, **workers)
    there = [tuple(map(peer.as_tensor, batch)) for batch in batches]
    step, threads = torch_step(kind), peer.get_num_threads()
    peer.set_num_threads(1)
    epochs["PyTorch"] = [partial(_each, step, there), partial(_each, step, theirs)]
    spent: dict[Any, list[float]] = {}
    for _ in range(rounds + 1):  # the first begins processes and compiles
        for name, ways in epochs.items():
            for place, run in enumerate(ways):
                started = perf_counter()
                run()
                spent.setdefault((name, place), []).append(perf_counter() - started)
    peer.set_num_threads(threads)
    best = {key: min(found[1:]) for key, found in spent.items()}
    return {
        "ours, a thread": best["ours", 0] / best["ours", 1],
        "ours, a process": best["ours", 0] / best["ours", 2],
        "PyTorch, a process": best["PyTorch", 0] / best["PyTorch", 1],
    }


def _each(step: Any, batches: Any) -> None:
    for x, t in batches:
        step(x, t)


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("fit", __doc__)
    effort = Effort(3, 0.1) if asked.quick else Effort(9, 0.5)
    print_environment()
    figures = []
    for kind in ("mlp", "cnn", "lstm"):
        builds = {NUMPY: by_hand, TORCH: torch, OURS: ours, BARE: bare}
        rows = [Peer(name, partial(build, kind), ours=name == OURS)
                for name, build in builds.items()]  # fmt: skip
        figures += measure(Case(kind, rows), effort, asked.only, keep=TORCH)
    print_table("fit, one epoch of 45 steps", "us", figures, TORCH)
    around_us = loop_us()
    tell(f"The loop around a step, with its batch, takes {around_us:.0f} us: "
         f"{around_us / 1e3:.1%} of a step of 1 ms (wanted {LOOP_SHARE:.0%}).")  # fmt: skip
    fed = {kind: fed_shares(kind, 2 if asked.quick else 8) for kind in ("cnn", "wide")}
    for kind, shares in fed.items():
        told = ", ".join(f"{share:.2f} of {name}" for name, share in shares.items())
        tell(f"{kind}: loading leaves of the rate without it {told} (wanted {FED_SHARE}).")
    write_json("fit", asked, figures, {"loop_us": around_us, "fed": fed})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
