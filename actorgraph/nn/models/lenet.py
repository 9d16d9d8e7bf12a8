"""`LeNet`: the convolution network of 1998, as it is built today."""

from __future__ import annotations

from typing import Any

from actorgraph import ops
from actorgraph.nn.convolution import Conv2d
from actorgraph.nn.linear import Linear
from actorgraph.nn.module import Module
from actorgraph.node import Node


class LeNet(Module):
    """LeNet-5, with ReLU and max pooling.

    Source: Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to
    document recognition", Proceedings of the IEEE, 1998.

    Parameters
    ----------
    classes, channels : int
        Of the output, and of the image.
    padding : int
        Around the image: 2 makes one of 28 by 28 what the paper has.
    dtype : float dtype

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.nn.models.LeNet()(np.zeros((2, 1, 28, 28), "float32")).shape
    (2, 10)
    """

    def __init__(
        self, classes: int = 10, channels: int = 1, padding: int = 2, dtype: Any = "float32"
    ) -> None:
        self.conv1 = Conv2d(channels, 6, 5, padding=padding, dtype=dtype)
        self.conv2 = Conv2d(6, 16, 5, dtype=dtype)
        self.fc1 = Linear(None, 120, dtype=dtype)
        self.fc2 = Linear(120, 84, dtype=dtype)
        self.fc3 = Linear(84, classes, dtype=dtype)

    def forward(self, x: Node) -> Node:
        """Return the scores of images of shape (batch, channels, height, width)."""
        for conv in (self.conv1, self.conv2):
            x = ops.max_pool2d(ops.relu(conv(x)), 2)
        x = ops.flatten(x, 1)
        for linear in (self.fc1, self.fc2):
            x = ops.relu(linear(x))
        return self.fc3(x)  # type: ignore[no-any-return]
