"""Table 1: what one node costs on tiny work, 100 chains of 10 tanh on 8x8 arrays.

Times are divided by the 1,000 tanh nodes; the 100 products `x * c_w` are part of the work.
Forward returns all 100 chain ends to the caller. Backward is from the sum of all ends to x.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np

from benchmarks import _chains_arrays as arrays
from benchmarks import _chains_ours as ours
from benchmarks import _chains_tasks as tasks
from benchmarks._harness import Case, Effort, Figure, Peer, Trial, Unavailable, measure
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    write_json,
)
from benchmarks._work import CHAINS, DEPTH, chain_arrays, twenty_arrays, twenty_ops

NODES = CHAINS * DEPTH
LOOP = "NumPy loop, hand-written"
EAGER = "PyTorch eager"
TAPE = "ours: TapeMachine"
DEFAULT = "ours: ActorMachine"
PER_NODE = 'ours: ActorMachine fuse="none" workers=1'
FORWARD, BACKWARD = "forward", "forward + backward"
ONE_NODE, AWAIT = "one node, run_sync", "one node, awaited"
TWENTY, TWENTY_LOOP = "20 ops, run_sync, p50", "NumPy, the 20 ops by hand"
NP_TANH, TO_THREAD = "np.tanh", "asyncio.to_thread of nothing"

TARGETS = (
    Target(FORWARD, TAPE, (LOOP,), 0.3),  # with llvmlite; without it 1.15
    Target(BACKWARD, TAPE, (LOOP,), 0.15),
    Target(FORWARD, DEFAULT, (LOOP,), 1.3),
    Target(FORWARD, PER_NODE, (LOOP,), 3.0),
    Target(FORWARD, PER_NODE, (EAGER,), 1.0),
    Target(FORWARD, f"{PER_NODE} capacity=1", (LOOP,), 3.5),
    Target(FORWARD, f"{PER_NODE} capacity=1", (EAGER,), 1.0),
    Target(BACKWARD, TAPE, (EAGER,), 0.25),
    Target(BACKWARD, PER_NODE, (EAGER,), 0.5),
    Target(ONE_NODE, "ours: run_sync", (NP_TANH,), 10, plus_s=3e-6),
    Target(TWENTY, TAPE, (TWENTY_LOOP,), 0.6, or_s=10e-6),
    Target(TWENTY, DEFAULT, (TWENTY_LOOP,), 0.6, or_s=10e-6),
    Target(AWAIT, "ours: await run", (TO_THREAD,), 2),
)


def counted(build: Callable[[ExitStack], Trial]) -> Callable[[ExitStack], Trial]:
    """Insist on 1,000 tanh executions per run where they can be counted."""

    def check(scope: ExitStack) -> Trial:
        trial = build(scope)
        if trial.executions is not None:
            assert trial.executions == NODES, f"{trial.executions} tanh executions, not {NODES}"
            trial.facts["tanh executions per run"] = trial.executions
        assert trial.facts.get("tanh nodes", NODES) == NODES, trial.facts
        return trial

    return check


def go_machine(_: ExitStack) -> Trial:
    """Say that goMachine needs a Go toolchain, which this project does not."""
    raise Unavailable(
        "about 2.9 us per node with Go 1.19 on two 2.x GHz Xeon cores "
        "(reference figure, not measured here)"
    )


def machines(*, backward: bool) -> list[Peer]:
    """List our rows. Capacity 1 is below `max_in_flight`, so every send tests for room."""

    def row(system: str, kind: str, features: str = ours.ALWAYS, **settings: object) -> Peer:
        trial = ours.machine_trial(kind, backward=backward, features=features, **settings)
        return Peer(system, counted(trial), ours=True)

    checked = f"{ours.ALWAYS}, capacity check"
    return [
        row("ours: LispMachine", "LispMachine"),
        row(TAPE, "TapeMachine"),
        row(DEFAULT, "ActorMachine"),
        row(PER_NODE, "ActorMachine", fuse="none", workers=1),
        row(f"{PER_NODE} capacity=1", "ActorMachine", checked, fuse="none", workers=1, capacity=1),
    ]


def forward_case() -> Case:
    """List all systems, forward only."""
    x, scales = chain_arrays()
    peers = [
        Peer(LOOP, counted(arrays.numpy_trial(arrays.numpy_forward))),
        Peer("generated straight-line code (prototype)", counted(arrays.generated)),
        Peer("JAX jit", counted(arrays.jax_trial(backward=False))),
        Peer(EAGER, counted(arrays.torch_trial(backward=False))),
        *machines(backward=False),
        Peer("asyncio task per node", counted(tasks.asyncio_tasks)),
        Peer("anyio task and stream per node", counted(tasks.anyio_streams)),
        Peer("Dask threaded", counted(tasks.dask_trial(threads=True))),
        Peer("Dask sync", counted(tasks.dask_trial(threads=False))),
        Peer("Ray compiled graph, per hop", tasks.ray_hops, apart=True, per_run=tasks.RAY_HOPS),
        Peer("goMachine in Go", go_machine),
    ]
    return Case(FORWARD, peers, NODES, arrays.numpy_forward(x, scales))


def backward_case() -> Case:
    """List the systems that differentiate."""
    x, scales = chain_arrays()
    peers = [
        Peer(LOOP, counted(arrays.numpy_trial(arrays.numpy_backward))),
        Peer("JAX jit", counted(arrays.jax_trial(backward=True))),
        Peer(EAGER, counted(arrays.torch_trial(backward=True))),
        *machines(backward=True),
    ]
    return Case(BACKWARD, peers, NODES, arrays.numpy_backward(x, scales))


def call_cases() -> list[Case]:
    """List what entering a machine costs, from plain code and from a coroutine."""
    sync = [Peer(NP_TANH, ours.numpy_call), Peer("ours: run_sync", ours.run_sync_call, ours=True)]
    wait = [
        Peer(TO_THREAD, ours.to_thread_call),
        Peer("ours: await run", ours.run_await_call, ours=True),
    ]
    twenty = [
        Peer(TWENTY_LOOP, ours.numpy_twenty),
        Peer(TAPE, ours.twenty_call("TapeMachine"), ours=True),
        Peer(DEFAULT, ours.twenty_call("ActorMachine"), ours=True),
    ]
    expected = [np.asarray(twenty_ops(*twenty_arrays()))]
    return [Case(ONE_NODE, sync), Case(TWENTY, twenty, expected=expected), Case(AWAIT, wait)]


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("overhead", __doc__)
    effort = Effort(3, 0.03) if asked.quick else Effort(15, 0.2)
    print_environment()
    figures: list[Figure] = []
    for case in (forward_case(), backward_case()):
        figures += measure(case, effort, asked.only, keep=LOOP)
    print_table("overhead, per tanh node", "us", figures, LOOP)
    for case in call_cases():
        calls = measure(case, effort, asked.only, keep=case.peers[0].system)
        print_table(case.name, "us", calls, case.peers[0].system)
        figures += calls
    verdicts = judge(TARGETS, figures)
    write_json("overhead", asked, figures, {"targets": verdicts, "nodes": NODES})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
