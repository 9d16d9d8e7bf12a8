"""A convolution network learns handwritten digits: the whole of a training in 40 lines."""

import tempfile
from pathlib import Path

import actorgraph as ag

nn = ag.nn


class Net(nn.Module):
    def __init__(self):
        self.conv1, self.norm1 = nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.conv2, self.norm2 = nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)
        self.drop, self.out = nn.Dropout(0.4), nn.Linear(64 * 4 * 4, 10)

    def forward(self, x):
        x = ag.ops.relu(self.norm1(self.conv1(x)))
        x = ag.ops.relu(self.norm2(self.conv2(x)))
        return self.out(self.drop(ag.ops.flatten(ag.ops.max_pool2d(x, 2), 1)))


nn.manual_seed(0)
(images, labels), (test_images, test_labels) = ag.data.split(*ag.data.digits())
dataset = ag.data.ArrayDataset(images.reshape(-1, 1, 8, 8), labels)
loader = ag.data.DataLoader(dataset, batch_size=32, shuffle=True)
EPOCHS = 15
rate = ag.solvers.schedules.one_cycle(5e-3, steps=EPOCHS * len(loader))
trainer = ag.train.Trainer(
    Net(), ag.ops.cross_entropy, ag.solvers.AdamW(rate), metrics=["accuracy"]
)
test = test_images.reshape(-1, 1, 8, 8), test_labels
history = trainer.fit(loader, EPOCHS, validation=test)

curve = Path(tempfile.mkdtemp(prefix="actorgraph-")) / "digits.png"
history.plot(curve)
accuracy = history["val_accuracy"][-1]
print(f"test accuracy {accuracy:.4f}; curves in {curve}")
assert accuracy >= 0.985
