"""Train a network in microbatches, its stages on lanes of their own; see plan and run together."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

BATCH, WIDTH, STEPS = 64, 32, 40

rng = np.random.default_rng(0)
g = ag.Graph("pipeline")
x = g.input("x", shape=("batch", WIDTH))
t = g.input("t", shape=("batch",), dtype="int64")
h = x
for stage in range(2):
    with g.stage(stage):  # left out, stages are cut by cost
        for layer in range(2):
            start = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32")
            h = np.tanh(h @ g.parameter(f"W{stage}{layer}", start))
with g.stage(1):
    loss = ag.ops.cross_entropy(5 * h, t).named("loss")
weights = list(g.parameters)
feeds = {"x": rng.normal(size=(BATCH, WIDTH)).astype("float32")}
feeds["t"] = feeds["x"].argmax(axis=1)

solver = ag.solvers.Adam(lr=1e-2)
losses = []
with ag.pipeline.Pipeline(loss, weights, schedule="zb-h1", microbatches=4) as pipeline:
    run = pipeline.run_sync(feeds)
    with ag.TapeMachine([loss], wrt=weights) as machine:  # the whole batch at once
        whole = machine.run_sync(feeds, backward=True)
    for W in weights:
        np.testing.assert_allclose(run[W].grad, whole[W].grad, rtol=1e-4, atol=1e-6)

    for _ in range(STEPS):
        run = pipeline.run_sync(feeds)
        solver.step([run[W] for W in weights])
        losses.append(float(run[loss].value))
    assert losses[-1] < 0.5 * losses[0]

    with ag.trace.record() as trace:
        pipeline.run_sync(feeds)
    simulation = pipeline.simulate()  # by the times that were measured
    trace.predict(simulation.timeline)
assert {"stage 0", "stage 1"} <= set(trace.lanes)
page = trace.to_html(Path(tempfile.mkdtemp(prefix="actorgraph-")) / "pipeline.html")

print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; predicted beside measured in {page}")
