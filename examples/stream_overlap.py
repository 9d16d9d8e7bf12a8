"""What CUDA streams bring to a wide graph: the law min(W, S, 1/f, t/h), beside what is measured.

W independent branches on S lanes (streams); each kernel takes t, fills the share f of the GPU, and
costs the host h to launch.  Launched one by one, kernels shorter than h never overlap, whatever the
number of streams; captured as a CUDA graph they do.  The law is a bound: at the end of a run fewer
kernels are left than lanes.  No GPU is needed: the law stands beside a simulation, and what a GPU
measures where there is one.
"""

import numpy as np

import actorgraph as ag

BRANCHES, DEPTH, SHARE = 16, 12, 1 / 132  # a small kernel fills one of 132 multiprocessors
LAUNCH_US = 10.0

g = ag.Graph("wide")
x = g.input("x", (2048,))
ends = []
for i in range(BRANCHES):
    h = x * float(i + 1)
    for _ in range(DEPTH):
        h = ag.ops.tanh(h)
    ends.append(h)
feeds = {"x": np.ones(2048, "float32")}

told = {False: [], True: []}
for kernel_us in (2.0, 20.0, 200.0):
    gpu = ag.devices.GPU(kernel_us=kernel_us, launch_us=LAUNCH_US, copy_us=1.0)
    found = ag.devices.experiment(ends, feeds, lanes=(1, 2, 4, 8, 16), gpu=gpu)
    for row in found.rows:
        law = min(BRANCHES, row.lanes, 1 / SHARE)
        if not row.captured:
            law = min(law, kernel_us / LAUNCH_US)
        assert row.overlap <= 1.05 * law + 0.05
        if row.lanes == 16:
            told[row.captured].append(f"{kernel_us:g} us {row.overlap:.1f}x (law {law:g}x)")
    assert found.best.captured
gpu = ag.devices.GPU(kernel_us=50.0, launch_us=LAUNCH_US, copy_us=1.0)
several = [
    ag.devices.experiment(ends, feeds, lanes=(4,), devices=count, captured=(True,), gpu=gpu).best
    for count in (1, 2, 4)
]
assert several[0].took_us > 3.0 * several[2].took_us
told[True].append("on 1, 2, 4 GPUs " + ", ".join(f"{one.took_us:.0f} us" for one in several))
print("Simulated, 16 lanes, launched one by one, kernels of", "; ".join(told[False]))
print("Simulated, 16 lanes, captured as a CUDA graph, kernels of", "; ".join(told[True]))

for name in [one for one in ag.devices.list() if one.startswith("cuda:")]:
    print(ag.devices.experiment(ends, feeds, lanes=(1, 2, 4, 8, 16), devices=[name]))
