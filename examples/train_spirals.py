"""A small network parts the arms of spirals, which no line does."""

import tempfile
from pathlib import Path

import actorgraph as ag

points, labels = ag.data.spirals(900, classes=3)
x_train, x_test, y_train, y_test = ag.data.train_test_split(points, labels, test_size=0.3)
ag.nn.manual_seed(0)
net = ag.nn.models.MLP(2, 64, 64, 3, activation=ag.nn.Tanh)
loader = ag.data.DataLoader(ag.data.ArrayDataset(x_train, y_train), batch_size=63, shuffle=True)
trainer = ag.train.Trainer(
    net,
    loss=ag.ops.cross_entropy,
    solver=ag.solvers.Adam(ag.solvers.schedules.cosine(2e-2, steps=100 * len(loader))),
    metrics=["accuracy"],
)
history = trainer.fit(loader, epochs=100, validation=(x_test, y_test))

curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "spirals.png"
history.plot(curve)
print(f"test accuracy {history['val_accuracy'][-1]:.4f}; curves in {curve}")
assert history["val_accuracy"][-1] >= 0.99
