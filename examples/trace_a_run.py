"""Where the time goes: a file for Perfetto and a page for any browser, from one recording."""

import json
import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

BRANCHES, BATCH, WIDTH, RUNS = 4, 64, 256, 8

rng = np.random.default_rng(0)
g = ag.Graph("branches")
x = g.input("x", shape=(BATCH, WIDTH))
ends = []
for i in range(BRANCHES):
    W = g.parameter(f"W{i}", rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32"))
    ends.append(np.tanh(x @ W).named(f"h{i}").mean())
loss = ag.ops.stack(ends).sum().named("loss")
feeds = [{"x": rng.normal(size=(BATCH, WIDTH)).astype("float32")} for _ in range(RUNS)]

with ag.ActorMachine([loss], workers=2, fuse="none") as machine:
    machine.run_sync(feeds[0], backward=True)  # compiles, which is not what we look at
    with ag.trace.record() as t:
        for run in machine.stream(feeds, backward=True):
            assert np.isfinite(run[loss].value)

folder = Path(tempfile.mkdtemp(prefix="actorgraph-"))
timeline = t.to_json(folder / "branches.json")  # drop it on https://ui.perfetto.dev
page = t.to_html(folder / "branches.html", title="four branches")

# Every actor has fired once for every run, on some lane, and each arrow has two ends.
fired = {(part.name, part.run) for part in t.slices if part.actor is not None}
assert len(fired) == len(t.actors) * RUNS
events = json.loads(timeline.read_text())["traceEvents"]
arrows = [event["id"] for event in events if event["ph"] in "sf"]
assert len(arrows) == 2 * len(set(arrows)) > 0

busiest = t.summary().busiest[0]
print(f"busiest: {busiest.name}, {busiest.seconds / busiest.firings * 1e6:.0f} us each")
print(f"wrote {timeline} and {page}")
