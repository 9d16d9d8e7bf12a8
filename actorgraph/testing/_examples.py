"""Example graphs with feeds, and the bits that machines have to compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from actorgraph import ops
from actorgraph.graph import Graph
from actorgraph.machines import LispMachine, Machine, Run
from actorgraph.node import Node
from actorgraph.op import INPUT, Op
from actorgraph.testing._laws import claim

Feeds = Mapping[Any, Any]
Bits = list[tuple[Any, ...]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A graph with outputs, wrt and several sets of feeds.

    `backward` and `tangents` have the arguments of runs for each set; None for no backward run.
    """

    graph: Graph
    outputs: Sequence[Node]
    wrt: Sequence[Node] | None
    feeds: Sequence[Feeds]
    backward: Sequence[Any]
    tangents: Sequence[Any]

    def modes(self, number: int) -> list[dict[str, Any]]:
        """Return the keywords of the runs to compare, for one set of feeds."""
        modes: list[dict[str, Any]] = [{}, {"tangents": self.tangents[number]}]
        if self.backward[number] is not None:
            modes.append({"backward": self.backward[number]})
        return modes

    def runs(self) -> list[tuple[Feeds, dict[str, Any]]]:
        """Return the feeds and keywords of every run, with run numbers for random ops."""
        every = [
            (feeds, mode) for number, feeds in enumerate(self.feeds) for mode in self.modes(number)
        ]
        return [(feeds, {**mode, "run_number": n}) for n, (feeds, mode) in enumerate(every)]


def bits(value: Any) -> Any:
    """Return a key that is equal exactly for arrays of equal bits."""
    return None if value is None else (value.dtype, value.shape, value.tobytes())


def results(run: Run, nodes: Iterable[Node]) -> Bits:
    """Return the bits of all results of a run."""
    return [
        (node.name, bits(run[node].value), bits(run[node].grad), bits(run[node].tangent))
        for node in nodes
    ]


def expected(example: Example) -> tuple[list[Node], list[Bits]]:
    """Return the results of `LispMachine` without passes for every run; buffers are restored."""
    buffers = {buffer: np.copy(buffer.value) for buffer in example.graph.buffers}
    with LispMachine(example.outputs, wrt=example.wrt, passes=()) as machine:
        nodes = [*example.outputs, *machine.wrt]
        wanted = [results(machine.run_sync(feeds, **mode), nodes) for feeds, mode in example.runs()]
    for buffer, value in buffers.items():
        buffer.value = value
    return nodes, wanted


def check_in_turn(
    machine: Machine, example: Example, nodes: Sequence[Node], wanted: Sequence[Bits]
) -> None:
    """Compare the runs of the example, one after the other."""
    for (feeds, mode), want in zip(example.runs(), wanted, strict=True):
        _compare(results(machine.run_sync(feeds, **mode), nodes), want, mode)


def check_overlapping(
    machine: Machine, example: Example, nodes: Sequence[Node], wanted: Sequence[Bits]
) -> None:
    """Compare the runs of the example, each started twice before the first is read."""
    runs = [
        (machine.start(feeds, **mode, priority=again), want, mode)
        for again in range(2)
        for (feeds, mode), want in zip(example.runs(), wanted, strict=True)
    ]
    for run, want, mode in runs:
        _compare(results(run.result(), nodes), want, mode)


def _compare(got: Bits, wanted: Bits, mode: Mapping[str, Any]) -> None:
    for mine, right in zip(got, wanted, strict=True):
        for what, one, other in zip(("value", "gradient", "tangent"), mine[1:], right[1:]):
            if one != other:
                asked = " and ".join(sorted(mode.keys() - {"run_number"})) or "values only"
                raise AssertionError(
                    f"the {what} of node {right[0]!r}, in a run that asks for {asked}: got "
                    f"{_read(one)}, expected to the bit {_read(other)}"
                )


def _read(one: Any) -> str:
    if one is None:
        return "None"
    dtype, shape, data = one
    return f"{dtype} of shape {shape} {np.frombuffer(data, dtype).reshape(shape).tolist()}"


# -- the table ------------------------------------------------------------------------------------

EXAMPLES: dict[str, Callable[[], Example]] = {}
"""Builders of graphs that a machine has to run, by the special property of each."""


def _example(build: Callable[[Graph], Example]) -> None:
    name = build.__name__.strip("_").replace("_", " ")

    def example() -> Example:
        return build(Graph(name))

    EXAMPLES[name] = example


def _drawn(
    graph: Graph, *outputs: Node, wrt: Sequence[Node] | None = None, rows: Sequence[int] = (3, 1)
) -> Example:
    """Return an example with random feeds, one set for each size of symbolic dims in `rows`.

    The first output is a scalar.  The last set seeds all outputs of floats and known shape.
    """
    rng = np.random.default_rng(7)
    inputs = [node for node in graph.nodes if node.op is INPUT]
    moved = [node for node in (*inputs, *graph.parameters) if node.dtype.kind in "fc"]
    known = [node for node in dict.fromkeys(outputs) if node.dtype.kind in "fc"]
    known = [node for node in known if all(isinstance(dim, int) for dim in node.shape)]
    feeds = [{node: _random(rng, node, size) for node in inputs} for size in rows]
    tangents = [{node: _random(rng, node, size) for node in moved} for size in rows]
    seeds = {node: _random(rng, node, 0) for node in known}
    claim(not outputs[0].ndim, "the first output of an example is a scalar")
    return Example(graph, outputs, wrt, feeds, [True] * (len(rows) - 1) + [seeds], tangents)


def _random(rng: np.random.Generator, node: Node, size: int) -> Any:
    shape = tuple([dim if isinstance(dim, int) else size for dim in node.shape])
    if node.dtype.kind == "i":
        return rng.integers(0, 3, shape)
    value = rng.normal(size=shape)
    return (value + 1j * value[::-1] if node.dtype.kind == "c" else value).astype(node.dtype)


def _weights(graph: Graph, *shapes: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    rng = np.random.default_rng(3)
    return [
        graph.parameter(f"w{number}", rng.normal(size=shape).astype(dtype))
        for number, shape in enumerate(shapes)
    ]


@_example
def _fan_out(graph: Graph) -> Example:
    x = graph.input("x", ("n", 4), "float64")
    w, b = _weights(graph, (4, 5), (5,))
    h = ops.tanh(x @ w + b)
    sides = [ops.sin(h * float(k)) for k in range(1, 8)]
    total = sides[0] * h
    for side in sides:
        total = total + side
    return _drawn(graph, total.sum(), h.sum(axis=0), total)


@_example
def _repeated_inputs(graph: Graph) -> Example:
    x = graph.input("x", (3, 3), "float64")
    (w,) = _weights(graph, (3, 3))
    y = ops.concatenate([x * x, w @ w, x * x + w])
    return _drawn(graph, (y * y).sum(), y, wrt=[w, x])


@_example
def _tied_weights(graph: Graph) -> Example:
    x = graph.input("x", ("n", 4), "float32")
    (w,) = _weights(graph, (4, 4), dtype="float32")
    h = x
    for _ in range(5):
        h = ops.tanh(h @ w) + h @ w.T
    return _drawn(graph, h.sum(), h)


@_example
def _several_outputs(graph: Graph) -> Example:
    """One output stands twice, one is a leaf, one is within another, one has a constant only."""
    x = graph.input("x", (4,), "float64")
    (w,) = _weights(graph, (4,))
    y = ops.exp(ops.sin(x * w))
    fixed = graph.constant(np.arange(3.0)) * 2.0
    return _drawn(graph, y.sum(), y, y, w, x[::-1], fixed)


@_example
def _zero_rows(graph: Graph) -> Example:
    x = graph.input("x", ("n", 4), "float64")
    w, b = _weights(graph, (4, 3), (3,))
    h = ops.sigmoid(x @ w + b)
    return _drawn(graph, h.sum(), h, h.T, rows=(2, 0, 1))


@_example
def _unused_wrt(graph: Graph) -> Example:
    """One parameter does not act on the first output, one on none; one wrt is in the middle."""
    x = graph.input("x", (3,), "float64")
    w, v, unused = _weights(graph, (3,), (3,), (2, 2))
    h = ops.tanh(x * w)
    return _drawn(graph, h.sum(), h * v, wrt=[w, v, unused, h])


@_example
def _integers(graph: Graph) -> Example:
    x = graph.input("x", ("n", 3), "float64")
    index = graph.input("index", (5,), "int64")
    (table,) = _weights(graph, (3, 3))
    rows = table[index]
    largest = ops.argmax(x, axis=1)
    chosen = ops.where(rows > 0, rows, rows * 0.5)
    return _drawn(graph, chosen.sum() + ops.square(x).sum(), index * 2 + 1, largest, chosen)


@_example
def _views(graph: Graph) -> Example:
    x = graph.input("x", (4, 6), "float64")
    turned = x.T[::-1, ::2]
    flat = ops.reshape(turned, (3, 4))
    return _drawn(graph, (flat * 2.0).sum() + turned.sum(), turned, flat, x.T, wrt=[x])


@_example
def _a_long_chain(graph: Graph) -> Example:
    x = graph.input("x", (50,), "float32")
    (w,) = _weights(graph, (50,), dtype="float32")
    y = x
    for k in range(30):
        y = ops.tanh(y * w) + x * float(k % 3)
    return _drawn(graph, ops.logsumexp(y), y)


@_example
def _complex_numbers(graph: Graph) -> Example:
    x = graph.input("x", (4,), "complex128")
    w = graph.parameter("w", np.array([1 + 2j, -1j, 0.5, 2]))
    y = w * w * x
    return _drawn(graph, ops.real(y * ops.conj(y)).sum(), y, wrt=[w, x])


@_example
def _buffers(graph: Graph) -> Example:
    x = graph.input("x", (3,), "float64")
    (w,) = _weights(graph, (3,))
    mean = graph.buffer("mean", np.zeros(3))
    y = (x - mean) * w
    graph.assign(mean, mean * 0.9 + x * 0.1, on=y)
    return _drawn(graph, (y * y).sum(), y, mean * 1.0)


@_example
def _random_ops(graph: Graph) -> Example:
    x = graph.input("x", (40,), "float64")
    (w,) = _weights(graph, (40,))
    kept = ops.dropout(x * w, 0.5)
    return _drawn(graph, kept.sum(), kept, ops.dropout(x, 0.25))


_CUBE = Op(
    "testing_cube", "f[*s] -> f[*s]", lambda xp, x: x * x * x, checked=True,
    vjp=(lambda ct, y, x: ct * 3 * x * x,), jvp=lambda tans, y, x: tans[0] * 3 * x * x,
)  # fmt: skip


@_example
def _an_op_of_a_user(graph: Graph) -> Example:
    x = graph.input("x", ("n", 3), "float32")
    (w,) = _weights(graph, (3,), dtype="float32")
    y = graph.apply(_CUBE, [ops.sin(x) * w], {})
    return _drawn(graph, y.sum(), y)
