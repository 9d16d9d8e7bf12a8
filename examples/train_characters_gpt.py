"""A small GPT learns to write, character by character, from "Alice's Adventures in Wonderland"."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

LENGTH, EPOCHS = 64, 12

text = ag.data.book()
letters = sorted(set(text))
numbers = np.array([letters.index(one) for one in text])
rows = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH + 1)[::LENGTH]
rows, held_out = np.split(rows, [len(rows) * 9 // 10])

ag.nn.manual_seed(0)
net = ag.nn.models.GPT(len(letters), LENGTH, width=64, heads=4, layers=2, dropout=0.05)
loader = ag.data.DataLoader(ag.data.ArrayDataset(rows[:, :-1], rows[:, 1:]), 16, shuffle=True)
solver = ag.solvers.AdamW(
    ag.solvers.schedules.one_cycle(8e-3, EPOCHS * len(loader), pct_start=0.1), clip_norm=1.0
)
trainer = ag.train.Trainer(net, ag.ops.cross_entropy, solver, metrics=["perplexity"])
history = trainer.fit(loader, EPOCHS, validation=(held_out[:, :-1], held_out[:, 1:]))

curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "characters.png"
history.plot(curve)
print(f"{history['val_loss'][-1]:.3f} nats a character held out; curves in {curve}")
assert history["val_loss"][-1] < 1.7
