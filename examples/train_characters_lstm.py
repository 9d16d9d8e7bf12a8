"""An LSTM learns to write, character by character, from a text that a small grammar makes."""

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


class Writer(ag.nn.Module):
    def __init__(self):
        self.table = ag.nn.Embedding(len(letters), 32)
        self.lstm = ag.nn.LSTM(32, 128, batch_first=True)
        self.scores = ag.nn.Linear(128, len(letters))

    def forward(self, x):
        return self.scores(self.lstm(self.table(x))[0])


ag.nn.manual_seed(0)
loader = ag.data.DataLoader(ag.data.ArrayDataset(rows[:, :-1], rows[:, 1:]), 32, shuffle=True)
rate = ag.solvers.schedules.one_cycle(1e-2, steps=EPOCHS * len(loader))
solver = ag.solvers.Adam(rate, clip_norm=1.0)
trainer = ag.train.Trainer(Writer(), ag.ops.cross_entropy, solver, metrics=["perplexity"])
history = trainer.fit(loader, EPOCHS, validation=(held_out[:, :-1], held_out[:, 1:]))

words = held_out[:1, :12]
while words.shape[1] < LENGTH - 1:
    padded = np.pad(words, ((0, 0), (0, LENGTH - 1 - words.shape[1])))
    scores = trainer.predict(padded)[0, words.shape[1] - 1]
    words = np.append(words, [[scores.argmax()]], axis=1)
curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "characters.png"
history.plot(curve)
print(f"{history['val_loss'][-1]:.3f} nats a character held out; curves in {curve}")
print("".join(letters[one] for one in words[0]))
assert history["val_loss"][-1] < 0.8
