"""Loops by data: scans and while loops of small bodies, and an LSTM over time, beside peers.

One call of a loop of 1000 iterations with a body of two ops on 8 x 8 matrices; one of an LSTM of 3
layers over 100 steps, forward, and forward and backward; and a wider one on one worker and on two,
as a scan a layer and as one scan whose body has all layers, beside threads that do nothing but
products of its sizes: they say what two can gain here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any

import numpy as np

import actorgraph as ag
from benchmarks._harness import MISSING_PEER, Figure, best_call
from benchmarks._report import (
    Target,
    exit_status,
    judge,
    options,
    print_environment,
    print_table,
    write_json,
)

TRIPS = 1000
STEPS, BATCH, HIDDEN, LAYERS = 100, 16, 64, 3
WIDE = 512
NATIVE, JIT = "TapeMachine, native", "TapeMachine, jit"

DRAWN = np.random.default_rng(0)
WEIGHTS = DRAWN.normal(size=(8, 8)).astype("float32") * np.float32(0.3)
ELEMENTS = DRAWN.normal(size=(TRIPS, 8, 8)).astype("float32")
START = np.ones((8, 8), "float32")
SEQUENCE = DRAWN.normal(size=(STEPS, BATCH, HIDDEN)).astype("float32")
WIDE_SEQUENCE = DRAWN.normal(size=(STEPS, BATCH, WIDE)).astype("float32")

_QUICK: dict[str, Any] = {"native": "wait", "jit": "wait", "exact": False}

Ways = dict[str, Callable[[], Any] | None]


def python_scan() -> Any:
    carry = START
    for x in ELEMENTS:
        carry = np.tanh(carry @ WEIGHTS + x)
    return carry


def python_while() -> Any:
    carry, count = START, np.float32(0)
    while count < TRIPS:
        carry, count = np.tanh(carry @ WEIGHTS), count + np.float32(1)
    return carry


def _ours(build: Callable[[Any, Any], Any], machine: Any) -> Callable[[], Any]:
    graph = ag.Graph()
    start = graph.input("start", START.shape)
    weights, xs = graph.input("weights", WEIGHTS.shape), graph.input("xs", ELEMENTS.shape)
    last = build(start, (weights, xs))
    made = machine([last], wrt=[])
    feeds = {"start": START, "weights": WEIGHTS, "xs": ELEMENTS}

    def run() -> Any:
        return made.run_sync(feeds)[last].value

    return run


def our_scan(start: Any, given: Any) -> Any:
    weights, xs = given
    return ag.scan(lambda c, x: (ag.ops.tanh(c @ weights + x), None), start, xs)[0]


def our_while(start: Any, given: Any) -> Any:
    weights, _ = given
    step = lambda c: (ag.ops.tanh(c[0] @ weights), c[1] + 1.0)  # noqa: E731
    return ag.while_loop(lambda c: c[1] < TRIPS, step, (start, np.float32(0)))[0]


def of_torch(kind: str) -> Callable[[], Any] | None:
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    weights, xs, start = map(torch.from_numpy, (WEIGHTS, ELEMENTS, START))

    def scan() -> Any:
        carry = start
        for x in xs:
            carry = torch.tanh(carry @ weights + x)
        return carry

    def while_loop() -> Any:
        carry, count = start, torch.zeros(())
        while count < TRIPS:
            carry, count = torch.tanh(carry @ weights), count + 1
        return carry

    return scan if kind == "scan" else while_loop


def of_jax(kind: str) -> Callable[[], Any] | None:
    try:
        jax = import_module("jax")
    except ImportError:
        return None
    np_ = jax.numpy

    def scan(start: Any, weights: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda c, x: (np_.tanh(c @ weights + x), None), start, xs)[0]

    def while_loop(start: Any, weights: Any, xs: Any) -> Any:
        step = lambda c: (np_.tanh(c[0] @ weights), c[1] + 1.0)  # noqa: E731
        return jax.lax.while_loop(lambda c: c[1] < TRIPS, step, (start, np_.float32(0)))[0]

    call = jax.jit(scan if kind == "scan" else while_loop)
    given = [np_.asarray(one) for one in (START, WEIGHTS, ELEMENTS)]
    return lambda: call(*given).block_until_ready()


def loops(kind: str) -> Ways:
    build, plain = (our_scan, python_scan) if kind == "scan" else (our_while, python_while)
    ways: Ways = {
        "TapeMachine": _ours(build, ag.TapeMachine),
        NATIVE: _ours(build, partial(ag.TapeMachine, native="wait")),
        "ActorMachine": _ours(build, ag.ActorMachine),
        "Python, NumPy": plain,
        "PyTorch eager": of_torch(kind),
        "JAX jit": of_jax(kind),
    }
    wanted = plain()
    found = ways["TapeMachine"]
    assert found is not None
    np.testing.assert_allclose(found(), wanted, rtol=1e-4, atol=1e-5)
    return ways


def lstm(backward: bool) -> Ways:
    run = partial(_our_lstm, SEQUENCE, backward)
    return {
        "TapeMachine": run(ag.TapeMachine),
        NATIVE: run(partial(ag.TapeMachine, native="wait")),
        JIT: run(partial(ag.TapeMachine, **_QUICK)),
        "ActorMachine, jit": run(partial(ag.ActorMachine, **_QUICK)),
        "PyTorch": _torch_lstm(backward),
        "JAX jit": _jax_lstm(backward),
    }


def _our_lstm(
    sequence: Any, backward: bool, machine: Any, in_one: bool = False
) -> Callable[[], Any]:
    size = sequence.shape[-1]
    graph = ag.Graph()
    x = graph.input("x", sequence.shape)
    y = _in_one_body(x) if in_one else ag.nn.LSTM(size, size, LAYERS)(x)[0]
    loss = (y * y).sum()
    made = machine([loss if backward else y], wrt=None if backward else [])
    return partial(made.run_sync, {"x": sequence}, backward=backward)


def _in_one_body(x: Any) -> Any:
    """Return what the layers of an LSTM give that one scan has all of."""
    size = x.shape[-1]
    drawn = DRAWN.uniform(-1.0, 1.0, (LAYERS, 2, 4 * size, size)).astype("float32") * size**-0.5
    weights = [[x.graph.parameter(f"w_{i}{j}", drawn[i, j]) for j in (0, 1)] for i in range(LAYERS)]

    def step(states: Any, x: Any) -> Any:
        new = []
        for state, (into, again) in zip(states, weights, strict=True):
            new.append(ag.ops.lstm_cell(x, state, into, again))
            x = new[-1][0]
        return new, x

    start = np.zeros((BATCH, size), "float32")
    return ag.scan(step, [(start, start)] * LAYERS, x)[1]


def wide_lstm(backward: bool, in_one: bool) -> Ways:
    run = partial(_our_lstm, WIDE_SEQUENCE, backward, in_one=in_one)
    return {
        "ActorMachine, 1 worker": run(partial(ag.ActorMachine, workers=1)),
        "ActorMachine, 2 workers": run(partial(ag.ActorMachine, workers=2)),
        "bare products, 1 thread": partial(_products, 1),
        "bare products, 2 threads": partial(_products, 2),
    }


def _products(threads: int) -> None:
    """Make the products of the states, in so many threads."""
    turned = [np.ones((WIDE, 4 * WIDE), "float32") for _ in range(2)]

    def work(one: int) -> None:
        out = np.empty((BATCH, 4 * WIDE), "float32")
        for _ in range(STEPS // 2):
            WIDE_SEQUENCE[0].dot(turned[one], out)

    started = [Thread(target=work, args=(1,))] if threads > 1 else []
    for thread in started:
        thread.start()
    for one in range(2 - len(started)):
        work(one)
    for thread in started:
        thread.join()


def _jax_lstm(backward: bool) -> Callable[[], Any] | None:
    try:
        jax = import_module("jax")
    except ImportError:
        return None
    np_, scale = jax.numpy, HIDDEN**-0.5
    shapes = ((4 * HIDDEN, HIDDEN), (4 * HIDDEN, HIDDEN), (4 * HIDDEN,))
    layers = [
        [np_.asarray(DRAWN.uniform(-scale, scale, shape).astype("float32")) for shape in shapes]
        for _ in range(LAYERS)
    ]

    def net(layers: Any, xs: Any) -> Any:
        for into, again, bias in layers:

            def step(state: Any, gates: Any, again: Any = again) -> Any:
                enter, forget, new, out = np_.split(gates + state[0] @ again.T, 4, axis=-1)
                opened = [jax.nn.sigmoid(one) for one in (enter, forget, out)]
                cell = opened[1] * state[1] + opened[0] * np_.tanh(new)
                hidden = opened[2] * np_.tanh(cell)
                return (hidden, cell), hidden

            start = np_.zeros((BATCH, HIDDEN), "float32")
            xs = jax.lax.scan(step, (start, start), xs @ into.T + bias)[1]
        return xs

    def loss(layers: Any, xs: Any) -> Any:
        return (net(layers, xs) ** 2).sum()

    call, xs = jax.jit(jax.value_and_grad(loss) if backward else net), np_.asarray(SEQUENCE)
    return lambda: jax.block_until_ready(call(layers, xs))


def _torch_lstm(backward: bool) -> Callable[[], Any] | None:
    try:
        torch = import_module("torch")
    except ImportError:
        return None
    net = torch.nn.LSTM(HIDDEN, HIDDEN, LAYERS)
    x = torch.from_numpy(SEQUENCE)

    def forward() -> Any:
        with torch.no_grad():
            return net(x)[0]

    def both() -> Any:
        net.zero_grad()
        y = net(x)[0]
        (y * y).sum().backward()

    return both if backward else forward


CASES: dict[str, Callable[[], Ways]] = {
    "scan, 1000 x 8x8": partial(loops, "scan"),
    "while, 1000 x 8x8": partial(loops, "while"),
    "LSTM, 3 layers, 100 steps, forward": partial(lstm, False),
    "LSTM, 3 layers, 100 steps, both passes": partial(lstm, True),
    "LSTM, 3 layers of 512, forward": partial(wide_lstm, False, False),
    "LSTM, 3 layers of 512 in one body, forward": partial(wide_lstm, False, True),
    "LSTM, 3 layers of 512 in one body, both passes": partial(wide_lstm, True, True),
}
_LOOPS, _NETS, _WIDE = [*CASES][:2], [*CASES][2:4], [*CASES][4:]
PEERS = ("PyTorch", "JAX jit")
TARGETS = [
    *[Target(case, "TapeMachine", ("Python, NumPy",), 1.2) for case in _LOOPS],
    *[Target(case, NATIVE, ("JAX jit",), 1.3) for case in _LOOPS],
    *[Target(case, "TapeMachine", PEERS, 2.0) for case in _NETS],
    *[Target(case, JIT, PEERS, 1.3) for case in _NETS],
    *[Target(c, "ActorMachine, 2 workers", ("ActorMachine, 1 worker",), 1 / 1.5) for c in _WIDE],
]


def measure(rounds: int, only: str | None) -> list[Figure]:
    figures: list[Figure] = []
    for case, made in CASES.items():
        if only and only.lower() not in case.lower():
            continue
        ways = made()
        found = [Figure(case, way, ours="Machine" in way) for way in ways]
        for figure, run in zip(found, ways.values(), strict=True):
            figure.note = "" if run is not None else MISSING_PEER
        for _ in range(max(1, rounds // 4) if case in _WIDE else rounds):
            for figure, run in zip(found, ways.values(), strict=True):
                if run is not None:
                    figure.rounds.append(best_call(run, 0.05))
                    figure.seconds = min(figure.rounds)
        figures += found
    return figures


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("control_flow", __doc__)
    print_environment()
    figures = measure(3 if asked.quick else 20, asked.only)
    print_table("one call", "us", figures, "TapeMachine")
    write_json("control_flow", asked, figures, {"targets": judge(TARGETS, figures)})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
