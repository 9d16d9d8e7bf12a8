"""A TreeLSTM says whether phrases are kind; trees are generated, and "not" turns what follows."""

import tempfile
from pathlib import Path

import numpy as np

import actorgraph as ag

WORDS = {"good": 1, "great": 2, "kind": 1, "bad": -1, "awful": -2, "dull": -1, "not": 0, "film": 0}
WORTH, NOT = np.array([*WORDS.values()]), [*WORDS].index("not")
SHAPES = [(0, 0), ((0, 0), 0), (0, (0, 0)), ((0, 0), (0, 0))]  # of trees; 0 is a word
rng = np.random.default_rng(0)


def grown(shape, count):
    """Return a tree of words, `count` of each as an array, and what they are worth."""
    if shape == 0:
        words = rng.integers(len(WORDS), size=count)
        return words, WORTH[words]
    (left, one), (right, two) = [grown(part, count) for part in shape]
    return (left, right), np.where(left == NOT, -two, one + two) if shape[0] == 0 else one + two


def batches(count):
    """Return batches, each of trees of one shape: for each shape there will be a graph."""
    trees = [grown(SHAPES[number % len(SHAPES)], 32) for number in range(count)]
    return [(tree, (worth > 0).astype("int64")) for tree, worth in trees]


class Reader(ag.nn.Module):
    def __init__(self):
        self.table, self.cell = ag.nn.Embedding(len(WORDS), 16), ag.nn.TreeLSTM(16, 32)
        self.join, self.scores = ag.nn.Linear(2 * 32, 16), ag.nn.Linear(32, 2)

    def read(self, tree):
        if not isinstance(tree, tuple):
            return self.cell(self.table(tree))
        children = [self.read(part) for part in tree]
        both = ag.ops.concatenate([hidden for hidden, _ in children], axis=1)
        return self.cell(self.join(both), children)  # a child-sum alone knows no order

    def forward(self, tree):
        return self.scores(self.read(tree)[0])


ag.nn.manual_seed(0)
trainer = ag.train.Trainer(
    Reader(), ag.ops.cross_entropy, ag.solvers.Adam(1e-2), metrics=["accuracy", "f1"]
)
history = trainer.fit(batches(200), epochs=15, validation=batches(40))
curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "sentiment.png"
history.plot(curve)
print(f"accuracy {history['val_accuracy'][-1]:.3f} on other trees; curves in {curve}")
assert history["val_accuracy"][-1] > 0.97
