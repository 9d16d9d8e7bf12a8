"""Convolutions and their transposes."""

from __future__ import annotations

from abc import abstractmethod
from math import prod, sqrt
from typing import Any, ClassVar

from actorgraph import ops
from actorgraph.errors import GraphTypeError
from actorgraph.nn import _draws
from actorgraph.nn._sized import Sized, per_axis
from actorgraph.node import Node
from actorgraph.options import choice

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


class _Conv(Sized):
    """What convolutions share: settings, weights, and lazy channels."""

    size_name, axis = "in_channels", 1
    axes: ClassVar[int]
    of: ClassVar[Any]
    out_channels: int
    groups: int
    has_bias: bool
    dtype: Any

    @abstractmethod
    def _shape(self, size: int) -> tuple[int, ...]: ...

    def make(self, size: int) -> None:
        """Draw weights from [-b, b), b = 1 / sqrt(fan in); see `Sized.make`."""
        if size % self.groups or self.out_channels % self.groups:
            raise GraphTypeError(
                f"groups={self.groups} has to divide {size} and {self.out_channels} channels"
            )
        shape = self._shape(size)
        bound = 1 / sqrt(max(prod(shape[1:]), 1))
        self.weight = _draws.uniform(shape, bound, self.dtype)
        self.bias = (
            _draws.uniform((self.out_channels,), bound, self.dtype) if self.has_bias else None
        )


class _Forward(_Conv):
    """A convolution of an image (batch, channels, ...)."""

    def __init__(
        self, in_channels: int | None, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", dtype: Any = "float32",
    ) -> None:  # fmt: skip
        """Take the settings.

        Parameters
        ----------
        in_channels : int or None
            None: taken from the first input.
        out_channels : int
        kernel_size, stride, padding, dilation : int or tuple of int
            `padding` may also be "same" or "valid".
        groups : int
        bias : bool
        padding_mode : {"zeros", "reflect", "replicate", "circular"}
        dtype : float dtype
        """
        self.out_channels, self.kernel_size = out_channels, per_axis(kernel_size, self.axes)
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.groups, self.has_bias, self.dtype = groups, bias, dtype
        self.padding_mode = choice("padding_mode", padding_mode, tuple(_MODES))
        if padding_mode != "zeros" and isinstance(padding, str):
            raise GraphTypeError(f"padding_mode={padding_mode!r} needs padding in numbers")
        self.start(in_channels)

    def _shape(self, size: int) -> tuple[int, ...]:
        return self.out_channels, size // self.groups, *self.kernel_size

    def size_of_weight(self, shape: tuple[int, ...]) -> int:
        return shape[1] * self.groups

    def forward(self, x: Node) -> Node:
        padding = self.padding
        if self.padding_mode != "zeros":
            widths = [(width, width) for width in per_axis(padding, self.axes)]
            batch = [(0, 0)] * (x.ndim - self.axes)
            x, padding = ops.pad(x, [*batch, *widths], mode=_MODES[self.padding_mode]), 0
        result: Node = type(self).of(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return result


class _Transposed(_Conv):
    """A transposed convolution of an image (batch, channels, ...)."""

    weight_axis = 0

    def __init__(
        self, in_channels: int | None, out_channels: int, kernel_size: Any, stride: Any = 1,
        padding: Any = 0, output_padding: Any = 0, groups: int = 1, bias: bool = True,
        dilation: Any = 1, dtype: Any = "float32",
    ) -> None:  # fmt: skip
        """Take the settings.

        Parameters
        ----------
        in_channels : int or None
            None: taken from the first input.
        out_channels : int
        kernel_size, stride, padding, output_padding, dilation : int or tuple of int
        groups : int
        bias : bool
        dtype : float dtype
        """
        self.out_channels, self.kernel_size = out_channels, per_axis(kernel_size, self.axes)
        self.stride, self.padding, self.output_padding = stride, padding, output_padding
        self.dilation, self.groups, self.has_bias, self.dtype = dilation, groups, bias, dtype
        self.start(in_channels)

    def _shape(self, size: int) -> tuple[int, ...]:
        return size, self.out_channels // self.groups, *self.kernel_size

    def forward(self, x: Node) -> Node:
        result: Node = type(self).of(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding,
            self.groups, self.dilation,
        )  # fmt: skip
        return result


class Conv1d(_Forward):
    """A convolution over one axis, as PyTorch's class of that name."""

    axes, of = 1, staticmethod(ops.conv1d)


class Conv2d(_Forward):
    """A convolution over two axes, as PyTorch's class of that name."""

    axes, of = 2, staticmethod(ops.conv2d)


class Conv3d(_Forward):
    """A convolution over three axes, as PyTorch's class of that name."""

    axes, of = 3, staticmethod(ops.conv3d)


class ConvTranspose1d(_Transposed):
    """A transposed convolution over one axis, as PyTorch's class of that name."""

    axes, of = 1, staticmethod(ops.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """A transposed convolution over two axes, as PyTorch's class of that name."""

    axes, of = 2, staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    """A transposed convolution over three axes, as PyTorch's class of that name."""

    axes, of = 3, staticmethod(ops.conv_transpose3d)
