"""Table 9: models that people run, forward and both passes, beside PyTorch and JAX.

An LSTM over 50 steps, a transformer block, a residual net, ensembles of 32 nets: all systems have
the same weights and have to give the same values, and of both passes the same loss and the same
first gradient, of the mean of squares of what comes out.  Then a graph of 500 elementwise nodes,
beside NumPy, and a step of Adam.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import actorgraph as ag
from benchmarks import _models_peers as peers
from benchmarks import solvers
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

TORCH = ("PyTorch, 1 thread", "PyTorch, 2 threads", "PyTorch, vmap")
JAX, LOOP = "JAX jit", "NumPy"
TAPE, ACTORS = "ours: TapeMachine", "ours: ActorMachine"
INEXACT = "ours: ActorMachine, exact=False, jit"
MACHINES: dict[str, Callable[..., Any]] = {
    TAPE: ag.TapeMachine,
    ACTORS: ag.ActorMachine,
    INEXACT: partial(ag.ActorMachine, exact=False, jit="wait"),
}
PASSES = {"forward": False, "both": True}
NETS, DAG, DAG_SIZES = 32, 500, (10**3, 10**5)


class Model(NamedTuple):
    """A net of `nn`, ours or PyTorch's; what it is given; its form in JAX and its first weight."""

    build: Callable[[Any], Any]
    shape: tuple[int, ...]
    kind: str
    first: str


def residual(nn: Any) -> Any:
    """Return a net of 14 layers."""

    class Block(nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            step = 1 + (before != after)
            self.conv1 = nn.Conv2d(before, after, 3, stride=step, padding=1, bias=False)
            self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
            self.relu, self.short = nn.ReLU(), None
            if step > 1:
                self.short = nn.Conv2d(before, after, 1, stride=step, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
            return self.relu(y + (x if self.short is None else self.short(x)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
            sizes = [16, 16, 16, 32, 32, 64, 64]
            self.relu = nn.ReLU()
            self.blocks = nn.Sequential(*map(Block, sizes[:-1], sizes[1:]))
            self.out = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.out(self.blocks(self.relu(self.norm(self.stem(x)))).mean((2, 3)))

    return Net()


def several(nn: Any) -> Any:
    """Return an ensemble of nets that see the same batch."""
    is_ours = nn is ag.nn

    class Ensemble(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nets = nn.ModuleList([self.one() for _ in range(NETS)])

        def one(self) -> Any:
            sizes = (nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
            return nn.Sequential(*sizes)

        def forward(self, x: Any) -> Any:
            found = [net(x) for net in self.nets]
            if is_ours:
                return ag.ops.stack(found)
            import torch

            return torch.stack(found)

    return Ensemble()


MODELS = {
    "LSTM, 50 steps": Model(lambda nn: nn.LSTM(64, 64), (50, 16, 64), "LSTM", "weight_ih_l0"),
    "transformer block": Model(
        lambda nn: nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True),
        (4, 64, 128), "transformer", "self_attn.in_proj_weight",
    ),
    "ResNet-14, 8x3x32x32": Model(residual, (8, 3, 32, 32), "ResNet", "stem.weight"),
    "ResNet-14, 1x3x64x64": Model(residual, (1, 3, 64, 64), "ResNet", "stem.weight"),
    "ensemble, batch 4": Model(several, (4, 64), "ensemble", "nets.0.0.weight"),
    "ensemble, batch 64": Model(several, (64, 64), "ensemble", "nets.0.0.weight"),
}  # fmt: skip


def ours(
    machine: Callable[..., Any], net: Any, x: Any, first: str, backward: bool, scope: ExitStack
) -> Trial:
    """A run of a machine."""
    net.train(backward)
    found = net(ag.Graph().input("x", x.shape))
    y = found[0] if isinstance(found, tuple) else found
    loss = ag.ops.square(y).mean()
    made = scope.enter_context(machine([loss if backward else y], wrt=None if backward else []))
    slope = dict(net.named_parameters())[first]

    def run() -> list[Any]:
        done = made.run_sync({"x": x}, backward=backward)
        return [done[loss].value, done[slope].grad] if backward else [done[y].value]

    return Trial(run)


def model_case(told: str, model: Model, passes: str) -> Case:
    """All systems on one net."""
    ag.nn.manual_seed(0)
    net, backward = model.build(ag.nn), PASSES[passes]
    x = np.random.default_rng(1).standard_normal(model.shape, np.float32)
    weights = {name: np.asarray(one) for name, one in net.state_dict().items()}
    given = (weights, x, backward)
    rows = [Peer(TORCH[i], partial(peers.torch, model.build, *given, 1 + i)) for i in range(2)]
    if model.kind == "ensemble":
        rows.append(Peer(TORCH[2], partial(peers.torch_stacked, model.build, *given)))
    rows.append(Peer(JAX, partial(peers.jax, model.kind, weights, model.first, x, backward)))
    made = {
        name: partial(ours, one, net, x, model.first, backward) for name, one in MACHINES.items()
    }
    rows += [Peer(name, trial, ours=True) for name, trial in made.items()]
    with ExitStack() as scope:
        wanted = ours(ag.LispMachine, net, x, model.first, backward, scope).run()
    return Case(f"{told}, {passes}", rows, expected=wanted)


def elementwise_case(size: int) -> Case:
    """A graph of 500 elementwise nodes, each of the two before it."""

    def last(xp: Any, x: Any) -> Any:
        before, now = x, xp.tanh(x)
        for place in range(DAG - 1):
            before, now = now, xp.tanh(now) if place % 4 == 0 else now * 0.5 + before
        return now

    x = np.linspace(-1, 1, size, dtype=np.float32)

    def of_machine(machine: Any, scope: ExitStack) -> Trial:
        y = last(ag.ops, ag.Graph().input("x", x.shape))
        made = scope.enter_context(machine([y], wrt=[]))
        return Trial(lambda: [made.run_sync({"x": x})[y].value])

    rows = [Peer(LOOP, lambda scope: Trial(lambda: [last(np, x)]))]
    rows += [
        Peer(name, partial(of_machine, machine), ours=True) for name, machine in MACHINES.items()
    ]
    return Case(f"{DAG} elementwise, {size}", rows, expected=[last(np, x)])


def adam_case(told: str) -> Case:
    """A step of Adam."""
    size = solvers.SIZES[told]
    rows = [
        Peer(solvers.FUSED, partial(solvers.torch, "Adam", size, "fused")),
        Peer(solvers.CODE, partial(solvers.ours, "Adam", size, True), ours=True),
    ]
    return Case(f"Adam, {told}", rows)


def targets(figures: list[Figure]) -> list[Target]:
    """Return what is wanted of each model, of the faster of our machines where bits are exact."""
    seconds = {(one.case, one.system): one.seconds or 0.0 for one in figures}

    def exact(case: str) -> str:
        found = [name for name in (TAPE, ACTORS) if (case, name) in seconds]
        return min(found, key=lambda name: seconds[case, name], default=TAPE)

    lstm, block, *nets = MODELS
    found = []
    for case, rivals, factor, inexact_factor in (
        (f"{lstm}, forward", TORCH, 1.2, 1.05),
        (f"{lstm}, both", TORCH, 1.1, 0.8),
        (f"{block}, forward", (JAX,), 1.1, 1.0),
        (f"{block}, both", (JAX,), 1.1, 1.0),
    ):
        found.append(Target(case, exact(case), rivals, factor))
        found.append(Target(case, INEXACT, rivals, inexact_factor))
    found += [Target(f"{net}, both", INEXACT, TORCH, 1.3) for net in nets[:2]]
    every = [f"{net}, {passes}" for net in nets[2:] for passes in PASSES]
    found += [Target(case, exact(case), (*TORCH, JAX), 1.0) for case in every]
    every = [f"{DAG} elementwise, {size}" for size in DAG_SIZES]
    found += [Target(case, name, (LOOP,), 1.0) for case in every for name in (exact(case), INEXACT)]
    return found + [
        Target(f"Adam, {told}", solvers.CODE, (solvers.FUSED,), 1.1) for told in solvers.SIZES
    ]


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("models", __doc__, only="only models with this text")
    effort = Effort(2, 0.03) if asked.quick else Effort(8, 0.12)
    print_environment()
    figures: list[Figure] = []

    def show(title: str, cases: list[Case], baseline: str) -> None:
        found = [one for case in cases for one in measure(case, effort)]
        if found:
            print_table(title, "us", found, baseline)
            figures.extend(found)

    for told, model in MODELS.items():
        if asked.wants(told):
            show(told, [model_case(told, model, passes) for passes in PASSES], TORCH[0])
    elementwise = [elementwise_case(size) for size in DAG_SIZES]
    show("elementwise", [case for case in elementwise if asked.wants(case.name)], LOOP)
    adam = [adam_case(told) for told in solvers.SIZES if asked.wants(f"Adam, {told}")]
    show("one step of Adam", adam, solvers.FUSED)
    write_json("models", asked, figures, {"targets": judge(targets(figures), figures)})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
