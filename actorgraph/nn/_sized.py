"""`Sized`: a layer that may take its input's size from its first call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.nn.module import Module
from actorgraph.node import Node


class Layer(Module):
    """A module whose settings are attributes under the names of its constructor's parameters."""

    def extra_repr(self) -> str:
        return settings(self)


class Sized(Layer, ABC):
    """Base of layers whose input size may be None until they are first called.

    Subclasses name the attribute in `size_name` and make their parameters in `make`.
    """

    size_name = "in_features"
    axis = -1  # of the input
    weight_axis = 1  # of the weight
    weight: Any
    bias: Any

    @abstractmethod
    def make(self, size: int) -> None:
        """Make the parameters for inputs of that size."""

    def start(self, size: int | None) -> None:
        """Set the size and make the parameters, or leave both to the first call."""
        setattr(self, self.size_name, size)
        if size is None:
            self.weight = self.bias = None
        elif isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise GraphTypeError(f"{self.size_name} is an int or None, got {shown(size)}")
        else:
            self.make(size)

    def prepare(self, *args: Any) -> None:
        x = args[0]
        if getattr(self, self.size_name) is None and isinstance(x, Node):
            size = x.dims[self.axis] if x.ndim > max(self.axis, 0) else None
            if not isinstance(size, int):
                raise ShapeError(
                    f"{self.size_name} is taken from axis {self.axis} of {x!r}, which has no "
                    "known size there; give the size to the layer"
                )
            self.start(size)

    def prepare_for(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        shape = shapes.get("weight", ())
        # The shape of an empty weight proves nothing: a corrupt file could claim any size.
        if getattr(self, self.size_name) is None and len(shape) > self.weight_axis and all(shape):
            self.start(self.size_of_weight(shape))

    def size_of_weight(self, shape: tuple[int, ...]) -> int:
        """Return the input's size from the shape of a weight."""
        return shape[self.weight_axis]


def settings(module: Module) -> str:
    """Return the constructor's arguments, read from the attributes of the same names."""
    from inspect import signature

    texts = []
    for name, parameter in signature(type(module)).parameters.items():
        value = module.__dict__.get(name, parameter.default)
        if value is parameter.empty or isinstance(value, Module) or name == "dtype":
            continue
        plain = isinstance(value, (bool, int, float, str, tuple))
        if parameter.default is parameter.empty or (plain and value != parameter.default):
            texts.append(f"{name}={value!r}")
    return ", ".join(texts)


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """Return one number for each axis."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
