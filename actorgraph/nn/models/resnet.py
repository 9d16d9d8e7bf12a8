"""`ResNet`: residual networks for images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actorgraph import ops
from actorgraph.nn.containers import Sequential
from actorgraph.nn.convolution import Conv2d
from actorgraph.nn.linear import Linear
from actorgraph.nn.module import Module
from actorgraph.nn.normalisation import BatchNorm2d
from actorgraph.node import Node


class _Block(Module):
    """Two convolutions, or if `wide` three of which the last widens by 4, and a way around them."""

    def __init__(self, before: int, width: int, stride: int, wide: bool, dtype: Any) -> None:
        after = 4 * width if wide else width
        # The stride stands in the convolution of 3 by 3, as in torchvision ("ResNet V1.5").
        shapes = (
            [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
            if wide
            else [(before, width, 3, stride), (width, width, 3, 1)]
        )
        self.count = len(shapes)
        for number, (inputs, outputs, size, step) in enumerate(shapes, 1):
            conv = Conv2d(inputs, outputs, size, step, size // 2, bias=False, dtype=dtype)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"bn{number}", BatchNorm2d(outputs, dtype=dtype))
        self.downsample = None
        if stride != 1 or before != after:
            conv = Conv2d(before, after, 1, stride, bias=False, dtype=dtype)
            self.downsample = Sequential(conv, BatchNorm2d(after, dtype=dtype))

    def forward(self, x: Node) -> Node:
        y = x
        for number in range(1, self.count + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = ops.relu(y) if number < self.count else y
        return ops.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(Module):
    """A residual network; names of weights are torchvision's.

    Source: K. He, X. Zhang, S. Ren and J. Sun, "Deep residual learning for image recognition",
    CVPR 2016.

    Parameters
    ----------
    blocks : sequence of int
        How many each of the four stages has.
    wide : bool
        Blocks of three convolutions, as from 50 layers on.
    classes, channels : int
        Of the output, and of the image.
    width : int
        Channels of the first stage.
    dtype : float dtype

    Examples
    --------
    >>> import actorgraph as ag
    >>> net = ag.nn.models.ResNet([1, 1, 1, 1], classes=5, width=4)
    >>> [name for name, _ in net.named_parameters()][:3]
    ['conv1.weight', 'bn1.weight', 'bn1.bias']
    """

    def __init__(
        self, blocks: Sequence[int], *, wide: bool = False, classes: int = 1000, channels: int = 3,
        width: int = 64, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.conv1 = Conv2d(channels, width, 7, 2, 3, bias=False, dtype=dtype)
        self.bn1 = BatchNorm2d(width, dtype=dtype)
        before, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            made = []
            for place in range(count):
                stride = 2 if stage and not place else 1
                made.append(_Block(before, width << stage, stride, wide, dtype))
                before = (width << stage) * (4 if wide else 1)
            setattr(self, f"layer{stage + 1}", Sequential(*made))
        self.fc = Linear(before, classes, dtype=dtype)

    def forward(self, x: Node) -> Node:
        """Return the scores of images of shape (batch, channels, height, width)."""
        x = ops.max_pool2d(ops.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean(axis=(2, 3)))  # type: ignore[no-any-return]


def resnet18(**options: Any) -> ResNet:
    """Return the `ResNet` of 18 layers.

    Examples
    --------
    >>> import actorgraph as ag
    >>> net = ag.nn.models.resnet18(classes=10)
    >>> len(net.state_dict())
    122
    """
    return ResNet([2, 2, 2, 2], **options)


def resnet50(**options: Any) -> ResNet:
    """Return the `ResNet` of 50 layers.

    Examples
    --------
    >>> import actorgraph as ag
    >>> net = ag.nn.models.resnet50(classes=2)
    >>> len(net.state_dict())
    320
    """
    return ResNet([3, 4, 6, 3], wide=True, **options)
