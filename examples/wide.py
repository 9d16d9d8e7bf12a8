"""64 branches on two workers: the same bits as one branch after the other."""

from time import perf_counter

import numpy as np

import actorgraph as ag

BRANCHES, LAYERS, BATCH, WIDTH = 64, 2, 64, 256

rng = np.random.default_rng(0)
g = ag.Graph("wide")
x = g.input("x", shape=(BATCH, WIDTH))
ends = []
for i in range(BRANCHES):
    h = x
    for j in range(LAYERS):
        start = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32")
        h = np.tanh(h @ g.parameter(f"W{i}_{j}", start))
    ends.append(h.mean())
total = ag.ops.stack(ends).sum()
feeds = {"x": rng.normal(size=(BATCH, WIDTH)).astype("float32")}


def measure(machine):
    """Return a run and the shortest of five times in milliseconds."""
    times = []
    for _ in range(5):
        started = perf_counter()
        run = machine.run_sync(feeds, backward=True)
        times.append((perf_counter() - started) * 1e3)
    return run, min(times)


with ag.LispMachine([total]) as reference, ag.ActorMachine([total], workers=2) as machine:
    expected, sequential_ms = measure(reference)
    run, parallel_ms = measure(machine)

assert np.array_equal(run[total].value, expected[total].value)
for W in g.parameters:
    assert np.array_equal(run[W].grad, expected[W].grad)
print(f"{BRANCHES} branches, forward and backward, {len(g.parameters)} gradients: bitwise equal")
print(f"LispMachine {sequential_ms:.1f} ms, ActorMachine with two workers {parallel_ms:.1f} ms")
