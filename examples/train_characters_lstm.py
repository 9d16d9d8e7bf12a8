"""An LSTM learns to write, character by character, from "Alice's Adventures in Wonderland"."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

LENGTH, EPOCHS = 128, 12

text = ag.data.book()
letters = sorted(set(text))
numbers = np.array([letters.index(one) for one in text])
rows = np.lib.stride_tricks.sliding_window_view(numbers, LENGTH + 1)[::LENGTH]
rows, held_out = np.split(rows, [len(rows) * 9 // 10])


class Writer(ag.nn.Module):
    def __init__(self):
        self.table = ag.nn.Embedding(len(letters), 32)
        self.lstm = ag.nn.LSTM(32, 128, batch_first=True)
        self.dropout = ag.nn.Dropout(0.2)
        self.scores = ag.nn.Linear(128, len(letters))

    def forward(self, x):
        return self.scores(self.dropout(self.lstm(self.table(x))[0]))


ag.nn.manual_seed(0)
loader = ag.data.DataLoader(ag.data.ArrayDataset(rows[:, :-1], rows[:, 1:]), 16, shuffle=True)
rate = ag.solvers.schedules.one_cycle(1e-2, steps=EPOCHS * len(loader))
solver = ag.solvers.Adam(rate, clip_norm=1.0)
trainer = ag.train.Trainer(Writer(), ag.ops.cross_entropy, solver, metrics=["perplexity"])
history = trainer.fit(loader, EPOCHS, validation=(held_out[:, :-1], held_out[:, 1:]))

words, random = held_out[:1, :12], np.random.default_rng(0)
while words.shape[1] < LENGTH:
    padded = np.pad(words, ((0, 0), (0, LENGTH - words.shape[1])))
    scores = trainer.predict(padded)[0, words.shape[1] - 1]
    drawn = 2 * scores + random.gumbel(size=len(scores))  # what is likely is drawn more often
    words = np.append(words, [[drawn.argmax()]], axis=1)
curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "characters.png"
history.plot(curve)
print(f"{history['val_loss'][-1]:.3f} nats a character held out; curves in {curve}")
print(" ".join("".join(letters[one] for one in words[0]).split()))
assert history["val_loss"][-1] < 1.7
