"""A network of the shape of ResNet-18, narrow and on small images, against PyTorch.

::

    image -> conv 7x7 /2 -> norm -> relu -> max pool 3x3 /2
          -> 4 stages of 2 blocks, of which the first halves the image (but in stage 1)
          -> mean over places -> linear -> cross entropy

    block:  x -> conv 3x3 -> norm -> relu -> conv 3x3 -> norm -> + -> relu
             \\-> (conv 1x1 -> norm where the shape changes) ----/

In training the norms take the batch's statistics and the run replaces the running ones.
"""

from functools import cache

import numpy as np
import pytest

import actorgraph as ag
from tests.models._pytorch import (
    MACHINES,
    assert_close,
    assert_machine_agrees,
    every_machine,
    parameters_of,
    results_of,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
ops = ag.ops

BATCH, IMAGE, CLASSES = 4, 48, 5
WIDTHS = (4, 6, 8, 10)
MOMENTUM = 0.1


# -- in PyTorch -------------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self, wide_in, wide_out, stride):
        super().__init__()
        conv, norm = torch.nn.Conv2d, torch.nn.BatchNorm2d
        self.conv1, self.bn1 = conv(wide_in, wide_out, 3, stride, 1, bias=False), norm(wide_out)
        self.conv2, self.bn2 = conv(wide_out, wide_out, 3, 1, 1, bias=False), norm(wide_out)
        self.downsample = None
        if stride != 1 or wide_in != wide_out:
            self.downsample = torch.nn.Sequential(
                conv(wide_in, wide_out, 1, stride, bias=False), norm(wide_out)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(WIDTHS[0])
        before = WIDTHS[0]
        for stage, width in enumerate(WIDTHS):
            blocks = Block(before, width, 1 if stage == 0 else 2), Block(width, width, 1)
            setattr(self, f"layer{stage + 1}", torch.nn.Sequential(*blocks))
            before = width
        self.fc = torch.nn.Linear(before, CLASSES)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


@cache
def theirs(training, dtype):
    """Return the module as it was, its feeds and its results, the new statistics among them."""
    torch.manual_seed(11)
    module = ResNet().to(getattr(torch, dtype))
    for name, parameter in module.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.8 if name.endswith("weight") else 0.1, 0.2)
    for name, value in module.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(value, 0.0, 0.3)
        elif name.endswith("running_var"):
            torch.nn.init.uniform_(value, 0.5, 1.5)
    before = {name: value.numpy().copy() for name, value in module.named_buffers()}
    module.train(training)
    images = torch.randn(BATCH, 3, IMAGE, IMAGE, dtype=getattr(torch, dtype))
    targets = torch.randint(CLASSES, (BATCH,))
    logits = module(images)
    loss = torch.nn.functional.cross_entropy(logits, targets)
    wanted = results_of(module, {"logits": logits}, loss)
    wanted |= {name: value.numpy() for name, value in module.named_buffers()}
    return module, before, {"images": images.numpy(), "t": targets.numpy()}, wanted


# -- in actorgraph ----------------------------------------------------------------------------


class Net:
    """The same network as a graph."""

    def __init__(self, training, dtype):
        module, before, *_ = theirs(training, dtype)
        self.dtype = dtype
        self.graph = ag.Graph("resnet")
        self.training = training
        self.weights = parameters_of(self.graph, module)
        self.statistics = {
            name: self.graph.buffer(name, value)
            for name, value in before.items()
            if name.endswith(("mean", "var"))
        }
        self.replaced = {}

    def norm(self, x, name):
        scale, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        running = {part: self.statistics[f"{name}.running_{part}"] for part in ("mean", "var")}
        if not self.training:
            return ops.batch_norm(
                x, scale=scale, bias=bias, mean=running["mean"], var=running["var"]
            ).y
        y, mean, var = ops.batch_norm(x, scale=scale, bias=bias)
        for part, new in (("mean", mean), ("var", var)):
            self.replaced[running[part]] = running[part] * (1 - MOMENTUM) + new * MOMENTUM
        return y

    def conv(self, x, name, **options):
        return ops.conv2d(x, self.weights[f"{name}.weight"], **options)

    def block(self, x, name, stride):
        y = ops.relu(
            self.norm(self.conv(x, f"{name}.conv1", stride=stride, padding=1), f"{name}.bn1")
        )
        y = self.norm(self.conv(y, f"{name}.conv2", padding=1), f"{name}.bn2")
        if f"{name}.downsample.0.weight" in self.weights:
            x = self.conv(x, f"{name}.downsample.0", stride=stride)
            x = self.norm(x, f"{name}.downsample.1")
        return ops.relu(y + x)

    def outputs(self):
        images = self.graph.input("images", ("batch", 3, IMAGE, IMAGE), self.dtype)
        targets = self.graph.input("t", ("batch",), "int64")
        x = ops.relu(self.norm(self.conv(images, "conv1", stride=2, padding=3), "bn1"))
        x = ops.max_pool2d(x, 3, 2, 1)
        for stage in range(4):
            x = self.block(x, f"layer{stage + 1}.0", 1 if stage == 0 else 2)
            x = self.block(x, f"layer{stage + 1}.1", 1)
        pooled = ops.mean(x, axis=(2, 3))
        logits = pooled @ self.weights["fc.weight"].T + self.weights["fc.bias"]
        loss = ops.cross_entropy(logits, targets)
        for buffer, value in self.replaced.items():
            self.graph.assign(buffer, value, loss)
        return {"loss": loss, "logits": logits}


@every_machine
@pytest.mark.parametrize("training", [True, False])
def test_resnet_agrees_with_pytorch(training, machine, dtype):
    kind, options = MACHINES[machine]
    _, before, feeds, wanted = theirs(training, dtype)
    net = Net(training, dtype)
    assert_machine_agrees(kind, net.outputs(), net.weights, feeds, wanted, **options)
    for name, buffer in net.statistics.items():
        assert_close(buffer.value, wanted[name], name)
        assert np.array_equal(buffer.value, before[name]) != training
