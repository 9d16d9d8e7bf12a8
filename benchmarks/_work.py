"""The pieces of work that the benchmarks share: their arrays, and our graphs of them.

actorgraph is imported when a graph is built, so that peers can be measured without it.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import actorgraph as ag

Array = np.ndarray

CHAINS, DEPTH = 100, 10
BRANCHES, LAYERS = 16, 6
# (batch, width) of the wide graph.
SIZES = ((8, 64), (64, 256), (128, 512))


@dataclass(frozen=True)
class Built:
    """A graph with the nodes that a benchmark feeds and reads."""

    graph: ag.Graph
    x: ag.Node
    ends: Sequence[ag.Node]
    loss: ag.Node
    parameters: Sequence[ag.Node] = ()


def chain_arrays() -> tuple[Array, list[Array]]:
    """Make the 8x8 input, and one factor per chain so that no two chains are equal.

    The factors are 0-d arrays: of all scalars NumPy is fastest with those.
    """
    x = np.random.default_rng(0).standard_normal((8, 8)).astype("float32")
    return x, [np.array(c, "float32") for c in np.linspace(0.5, 1.5, CHAINS)]


def chains() -> Built:
    """Build 100 chains of 10 tanh from `x * c_w`; the loss is the sum of all chain ends."""
    import actorgraph as ag

    graph = ag.Graph("chains")
    x = graph.input("x", shape=(8, 8), dtype="float32")
    ends = []
    for scale in chain_arrays()[1]:
        node = x * graph.constant(scale)
        for _ in range(DEPTH):
            node = np.tanh(node)
        ends.append(node)
    return Built(graph, x, ends, np.stack(ends).sum())


def one_tanh() -> Built:
    """Build the smallest graph: what a call costs."""
    import actorgraph as ag

    graph = ag.Graph("one tanh")
    x = graph.input("x", shape=(8, 8), dtype="float32")
    end = np.tanh(x)
    return Built(graph, x, [end], end)


def twenty_arrays() -> tuple[Array, Array, Array]:
    """Draw the operands of `twenty_ops`."""
    draw = np.random.default_rng(3).standard_normal
    x, weight, bias = draw((8, 16)), draw((16, 16)) / 4, draw(16) / 10
    return x.astype("float32"), weight.astype("float32"), bias.astype("float32")


def twenty_ops(x: Any, weight: Any, bias: Any) -> Any:
    """Apply 20 ops as small graphs have them, to arrays or nodes: products, sums, elementwise."""
    hidden = np.tanh(x @ weight + bias)
    gate = np.exp(-np.abs(hidden))
    hidden = np.sqrt(np.square(hidden * gate + x) + 1.0)
    hidden = np.log(hidden) / np.maximum(hidden, 1.5)
    hidden = np.tanh(hidden @ weight - bias)
    return (hidden * hidden).sum(axis=1).sum()


def twenty() -> Built:
    """Build `twenty_ops` of an input and two parameters."""
    import actorgraph as ag

    arrays = twenty_arrays()
    graph = ag.Graph("twenty ops")
    x = graph.input("x", shape=arrays[0].shape, dtype="float32")
    parameters = [graph.parameter("W", arrays[1]), graph.parameter("b", arrays[2])]
    end = twenty_ops(x, *parameters)
    return Built(graph, x, [end], end, parameters)


def branch_arrays(batch: int, width: int) -> tuple[Array, list[list[tuple[Array, Array]]]]:
    """Draw the input, and weights and biases by branch and layer.

    Scaled so that activations and gradients stay of order 1: denormals make tanh 50 times
    slower, and saturated units would be a different benchmark.
    """
    draw = np.random.default_rng(1).standard_normal
    gain = 1.5 / np.sqrt(width)

    def layer() -> tuple[Array, Array]:
        weight = gain * draw((width, width), dtype="float32")
        return weight.astype("float32"), 0.1 * draw(width, dtype="float32")

    x = draw((batch, width), dtype="float32")
    return x, [[layer() for _ in range(LAYERS)] for _ in range(BRANCHES)]


def branches(batch: int, width: int) -> Built:
    """Build 16 branches x 6 layers of `tanh(x @ W + b)`; the loss sums all branch ends."""
    import actorgraph as ag

    graph = ag.Graph("branches")
    x = graph.input("x", shape=(batch, width), dtype="float32")
    ends, parameters = [], []
    for number, layers in enumerate(branch_arrays(batch, width)[1]):
        node = x
        for depth, (weight, bias) in enumerate(layers):
            W = graph.parameter(f"W{number}_{depth}", weight)
            b = graph.parameter(f"b{number}_{depth}", bias)
            node = np.tanh(node @ W + b)
            parameters += [W, b]
        ends.append(node)
    return Built(graph, x, ends, np.stack(ends).sum(), parameters)


def matmul_weights(size: int = 512) -> Array:
    """Draw a square matrix whose products keep their scale."""
    draw = np.random.default_rng(2).standard_normal((size, size))
    return (draw / np.sqrt(size)).astype("float32")


def matmuls(size: int = 512, count: int = 8) -> Built:
    """Build `count` independent products of square matrices, each about 2 ms of BLAS."""
    import actorgraph as ag

    graph = ag.Graph("matmuls")
    x = graph.input("x", shape=(size, size), dtype="float32")
    weight = matmul_weights(size)
    ends = [x @ graph.constant(np.roll(weight, shift)) for shift in range(count)]
    return Built(graph, x, ends, np.stack(ends).sum())


def irregular(count: int, ending: Callable[[ag.Node], ag.Node] = lambda value: value) -> ag.Node:
    """Return a loss that needs about `count` nodes, with random ones of the last 20 as operands."""
    import actorgraph as ag

    kinds: tuple[Callable[[Any, Any], Any], ...] = (
        lambda one, _: np.tanh(one),
        operator.add,
        lambda one, other: np.tanh(one @ other),
    )
    draw, start = random.Random(3), np.linspace(-1, 1, 16).reshape(4, 4)
    x = ag.Graph("irregular").input("x", shape=(4, 4), dtype="float64")
    values: list[Any] = [x, x * x.graph.parameter("w", start)]
    while len(values) < count:
        one, other = (values[-draw.randint(1, min(20, len(values)))] for _ in range(2))
        values.append(draw.choice(kinds)(one, other))
    return np.stack([*values[-30:-1], ending(values[-1])]).sum()
