"""Which schedule a pipeline should have: all of them simulated, before anything is run."""

import tempfile
from fractions import Fraction
from pathlib import Path

import actorgraph as ag

DEVICES, MICROBATCHES = 4, 16
forward, inputs, weights = costs = (10, 11, 8)  # ms for one microbatch on one device
latency = Fraction(1, 2)  # ms from the end of a step to the arrival of its message

# What fits where each device can hold the activations of five microbatches.
found = ag.pipeline.recommend(
    stages=DEVICES, microbatches=MICROBATCHES, costs=costs, latency=latency, memory=5
)
best = found[0]
assert max(best.peak_activations) <= 5
assert best.makespan == min(simulation.makespan for simulation in found)

# Times are exact: without latency the bubble of ZB-H1 is (p - 1) (F + B - W).
exact = ag.pipeline.simulate("zb-h1", stages=DEVICES, microbatches=MICROBATCHES, costs=costs)
assert exact.global_bubble == (DEVICES - 1) * (forward + inputs - weights)

# A device of half the speed decides the makespan, whatever the schedule.
slow = ag.pipeline.simulate(
    best.schedule, costs=costs, latency=latency, speeds=(1, 1, Fraction(1, 2), 1)
)
assert slow.makespan > 2 * MICROBATCHES * sum(costs)
assert any(timed.device == 2 for timed in slow.critical_path)

# The order is a file: a row for each device, to be changed by hand and read again.
path = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "plan.csv"
best.schedule.save(path)
assert ag.pipeline.load(path).lanes == best.schedule.lanes

share = float(best.global_bubble / best.makespan)
print(f"{best.schedule.name}: {float(best.makespan):g} ms, idle {share:.1%}; wrote {path}")
