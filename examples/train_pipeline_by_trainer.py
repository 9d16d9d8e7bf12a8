"""Train a network by the Trainer in two stages, each on a lane of its own, and in one piece."""

import tempfile
from pathlib import Path

import actorgraph as ag

training, test = ag.data.split(*ag.data.digits())


def trained(**options):
    """Return a trainer that has seen the digits three times, and its history."""
    ag.nn.manual_seed(0)
    net = ag.nn.models.MLP(64, 128, 64, 10)
    loader = ag.data.DataLoader(ag.data.ArrayDataset(*training), 64, shuffle=True)
    solver = ag.solvers.Adam(lr=3e-3)
    trainer = ag.train.Trainer(
        net, ag.ops.cross_entropy, solver, metrics=["accuracy"], callbacks=[], **options
    )
    return trainer, trainer.fit(loader, epochs=3, validation=test)


staged, history = trained(stages=2)
whole, expected = trained()
accuracy = history["val_accuracy"][-1]
curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "pipeline.png"
history.plot(curve)
assert accuracy > 0.9
assert max(abs(a - b) for a, b in zip(history["loss"], expected["loss"], strict=True)) < 1e-3
print(f"accuracy {accuracy:.3f} in two stages, {expected['val_accuracy'][-1]:.3f} in one piece")
print(f"curves in {curve}")
