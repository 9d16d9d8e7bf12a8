"""Least squares by L-BFGS, against the normal equation: petal widths of irises from the rest."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

measures, _ = ag.data.iris()
x, y = measures[:, :3], measures[:, 3:]
net = ag.nn.Linear(3, 1, dtype="float64")
solver = ag.solvers.LBFGS(line_search_fn="strong_wolfe", tolerance_change=1e-14)
trainer = ag.train.Trainer(net, ag.ops.mse_loss, solver, metrics=["mae"])
history = trainer.fit([(x, y)], epochs=10)  # a list of batches is a loader, too

ones = np.column_stack([x, np.ones(len(x))])
wanted = np.linalg.solve(ones.T @ ones, ones.T @ y)[:, 0]
found = np.append(net.weight.value[0], net.bias.value)
curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "iris.png"
history.plot(curve)
print(f"off by {np.abs(found - wanted).max():.1e} from the normal equation; curves in {curve}")
assert np.abs(found - wanted).max() < 1e-6
