"""Schedules of a pipeline measured beside their predictions.

`actorgraph pipeline run examples/measure_schedules.py:build --schedule 1f1b,zb-h1` shows the same
in a table, with a picture of the fastest run.
"""

from typing import Any

import numpy as np

import actorgraph as ag

BATCH, WIDTH, STAGES, MICROBATCHES = 512, 128, 2, 8


def build() -> tuple[ag.Node, dict[str, Any]]:
    """Return the loss of a network in two stages, and a batch."""
    rng = np.random.default_rng(0)
    g = ag.Graph("network")
    h = g.input("x", shape=("batch", WIDTH))
    for stage in range(STAGES):
        with g.stage(stage):
            for layer in range(2):
                start = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32")
                h = np.tanh(h @ g.parameter(f"W{stage}{layer}", start))
    with g.stage(STAGES - 1):
        loss = (h * h).mean().named("loss")
    return loss, {"x": rng.normal(size=(BATCH, WIDTH)).astype("float32")}


def main() -> None:
    """Run a batch by two schedules, in turns, and compare."""
    loss, feeds = build()
    pipelines = [
        ag.pipeline.Pipeline(loss, schedule=name, microbatches=MICROBATCHES)
        for name in ("gpipe", "1f1b")
    ]
    found = ag.pipeline.measure(pipelines, feeds, runs=5)  # the fastest first
    for pipeline in pipelines:
        pipeline.close()
    for one in found:
        # Each stage did its list, in its order.
        for row, lane in zip(one.rows, one.schedule.lanes, strict=True):
            assert [bar.label for bar in row] == [f"{a.kind}{a.microbatch}" for a in lane]
        measured_ms, predicted_ms = one.makespan_s * 1e3, float(one.predicted.makespan) * 1e3
        print(f"{one.schedule.name}: {measured_ms:.2f} ms, predicted {predicted_ms:.2f} ms")


if __name__ == "__main__":
    main()
