"""Layers that normalise."""

from __future__ import annotations

from typing import Any

import numpy as np

from actorgraph import ops
from actorgraph.errors import ShapeError
from actorgraph.nn import _draws
from actorgraph.nn._sized import Layer, Sized, per_axis
from actorgraph.node import Node
from actorgraph.options import real
from actorgraph.parameters import Buffer


class _PerChannel(Sized):
    """What norms with weights per channel share."""

    size_name, axis, weight_axis = "num_features", 1, 0
    affine: bool
    dtype: Any
    ranks: tuple[int, ...]

    def make(self, size: int) -> None:
        self.weight = _draws.filled((size,), 1, self.dtype) if self.affine else None
        self.bias = _draws.filled((size,), 0, self.dtype) if self.affine else None

    def _check(self, x: Node) -> None:
        if x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(f"takes (batch, channels, ...) of rank {ranks}, got {x!r}")
        if x.dims[1] != self.__dict__[self.size_name] and isinstance(x.dims[1], int):
            raise ShapeError(f"has {self.__dict__[self.size_name]} channels, got {x!r}")


class BatchNorm2d(_PerChannel):
    """Each channel normalised by the batch in training, by running statistics in evaluation.

    Parameters
    ----------
    num_features : int or None
        None: taken from the first input.
    eps, momentum : float
        Running statistics move by `momentum` towards those of the batch.
    affine : bool
        Whether there are weights.
    track_running_stats : bool
        False: the batch's statistics always.
    dtype : float dtype

    References
    ----------
    S. Ioffe and C. Szegedy, "Batch Normalization", ICML 2015.
    """

    ranks: tuple[int, ...] = (4,)

    def __init__(
        self, num_features: int | None, eps: float = 1e-5, momentum: float = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.eps, self.momentum = real("eps", eps), real("momentum", momentum)
        self.affine, self.track_running_stats, self.dtype = affine, track_running_stats, dtype
        self.start(num_features)

    def make(self, size: int) -> None:
        super().make(size)
        if self.track_running_stats:
            self.running_mean: Any = Buffer(np.zeros(size, self.dtype))
            self.running_var: Any = Buffer(np.ones(size, self.dtype))
            self.num_batches_tracked: Any = Buffer(np.array(0, "int64"))

    def forward(self, x: Node) -> Node:
        self._check(x)
        if not self.track_running_stats:
            return ops.batch_norm(x, scale=self.weight, bias=self.bias, eps=self.eps).y
        y = ops.running_batch_norm(
            x, self.weight, self.bias, self.running_mean, self.running_var,
            training=self.training, momentum=self.momentum, eps=self.eps,
        )  # fmt: skip
        if self.training:
            x.graph.assign(self.num_batches_tracked, self.num_batches_tracked + 1, on=y)
        return y


class BatchNorm1d(BatchNorm2d):
    """`BatchNorm2d` for (batch, channels) and (batch, channels, length)."""

    ranks = (2, 3)


class BatchNorm3d(BatchNorm2d):
    """`BatchNorm2d` for (batch, channels, depth, height, width)."""

    ranks = (5,)


class InstanceNorm2d(_PerChannel):
    """Each channel of each example normalised by itself.

    Parameters
    ----------
    num_features : int or None
        None: taken from the first input.
    eps : float
    affine : bool
        Whether there are weights.
    dtype : float dtype

    References
    ----------
    D. Ulyanov, A. Vedaldi, V. Lempitsky, "Instance Normalization", 2016.
    """

    ranks: tuple[int, ...] = (4,)

    def __init__(
        self, num_features: int | None, eps: float = 1e-5, affine: bool = False,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.eps, self.affine, self.dtype = real("eps", eps), affine, dtype
        self.start(num_features)

    def forward(self, x: Node) -> Node:
        self._check(x)
        return ops.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)


class InstanceNorm1d(InstanceNorm2d):
    """`InstanceNorm2d` for (batch, channels, length)."""

    ranks = (3,)


class InstanceNorm3d(InstanceNorm2d):
    """`InstanceNorm2d` for (batch, channels, depth, height, width)."""

    ranks = (5,)


class GroupNorm(Layer):
    """Groups of channels of each example normalised together.

    Source: Y. Wu and K. He, "Group Normalization", ECCV 2018.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, real("eps", eps)
        self.weight = _draws.filled((num_channels,), 1, dtype) if affine else None
        self.bias = _draws.filled((num_channels,), 0, dtype) if affine else None

    def forward(self, x: Node) -> Node:
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class LayerNorm(Layer):
    """The last axes of each example normalised together.

    Source: J. Ba, J. Kiros, G. Hinton, "Layer Normalization", 2016.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        Sizes of these axes.
    eps : float
    elementwise_affine, bias : bool
        Whether there are weights, and among them a bias.
    dtype : float dtype
    """

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = per_axis(normalized_shape, 1), real("eps", eps)
        self.weight = _draws.filled(self.normalized_shape, 1, dtype) if elementwise_affine else None
        self.bias = (
            _draws.filled(self.normalized_shape, 0, dtype) if elementwise_affine and bias else None
        )

    def forward(self, x: Node) -> Node:
        return ops.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Layer):
    """The last axes of each example divided by the root of the mean of their squares.

    Source: B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.
    """

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = per_axis(normalized_shape, 1), eps
        self.weight = _draws.filled(self.normalized_shape, 1, dtype) if elementwise_affine else None

    def forward(self, x: Node) -> Node:
        return ops.rms_norm(x, self.normalized_shape, self.weight, self.eps)
