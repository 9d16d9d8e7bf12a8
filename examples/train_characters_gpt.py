"""A small GPT learns to write, character by character, from a text that a small grammar makes."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

LENGTH, EPOCHS = 48, 12

text = ag.data.sentences(60_000)
letters = sorted(set(text))
numbers = np.array([letters.index(one) for one in text])
rows = numbers[: len(numbers) // LENGTH * LENGTH].reshape(-1, LENGTH)
rows, held_out = rows[:-100], rows[-100:]

ag.nn.manual_seed(0)
net = ag.nn.models.GPT(len(letters), LENGTH, width=64, heads=4, layers=2)
loader = ag.data.DataLoader(ag.data.ArrayDataset(rows[:, :-1], rows[:, 1:]), 32, shuffle=True)
solver = ag.solvers.AdamW(
    ag.solvers.schedules.one_cycle(5e-3, steps=EPOCHS * len(loader)), clip_norm=1.0
)
trainer = ag.train.Trainer(net, ag.ops.cross_entropy, solver, metrics=["perplexity"])
history = trainer.fit(loader, EPOCHS, validation=(held_out[:, :-1], held_out[:, 1:]))

curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "characters.png"
history.plot(curve)
print(f"{history['val_loss'][-1]:.3f} nats a character held out; curves in {curve}")
assert history["val_loss"][-1] < 0.8
