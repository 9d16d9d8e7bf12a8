"""A program as a user writes it, which mypy and pyright accept in their strict modes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anyio
import numpy as np
from numpy.typing import NDArray

import actorgraph as ag

Feeds = dict[str, NDArray[np.float32]]


def layer(x: ag.Node, name: str, inputs: int, outputs: int) -> tuple[ag.Node, list[ag.Parameter]]:
    W = x.graph.parameter(f"{name}.W", np.zeros((inputs, outputs), "float32"))
    b = x.graph.parameter(f"{name}.b", np.zeros(outputs, "float32"))
    return ag.ops.relu(x @ W + b), [W, b]


def build() -> tuple[ag.Graph, ag.Node, list[ag.Parameter]]:
    graph = ag.Graph("typed", seed=1, convert="same_kind")
    x = graph.input("x", shape=("batch", 8), dtype="float32")
    hidden, first = layer(x, "hidden", 8, 16)
    out, second = layer(hidden, "out", 16, 4)
    scaled: ag.Node = np.tanh(x).sum() + 2.0 * out[:, 0] - out.mean(axis=1) / 3
    loss = (scaled**2).sum() / x.shape[0] + out.flatten().max()
    return graph, loss, first + second


def train(loss: ag.Node, weights: list[ag.Parameter], feeds: Feeds) -> float:
    solver = ag.solvers.Adam(lr=1e-2)
    with ag.ActorMachine([loss], wrt=weights, workers=2, fuse="auto") as machine:
        run = machine.run_sync(feeds, backward=True, timeout_s=10.0)
        gradient = run[weights[0]].grad
        assert gradient is not None
        solver.step([run[weight] for weight in weights])
        step = machine.compile_step(solver)
        value = step(feeds)[loss].value
    assert value is not None
    return float(value) + float(gradient.sum())


def batches(count: int) -> Iterator[Feeds]:
    for number in range(count):
        yield {"x": np.full((4, 8), number, np.float32)}


async def serve(loss: ag.Node, feeds: Feeds) -> AsyncIterator[float]:
    async with ag.ActorMachine({"loss": loss}, max_in_flight=4) as machine:
        run = await machine.run(feeds, priority=1)
        yield float(run["loss"].value)
        async for other in machine.stream(batches(3)):
            yield float(other[loss].value)


async def total(loss: ag.Node, feeds: Feeds) -> float:
    return sum([value async for value in serve(loss, feeds)])


def squares(w: NDArray[np.float64]) -> np.float64:
    total: np.float64 = (w**2).sum()
    return total


def main() -> None:
    graph, loss, weights = build()
    (dW,) = ag.gradients(loss, [graph.parameters[0]])
    feeds = next(batches(1))
    print(train(loss, weights, feeds), anyio.run(total, loss, feeds), dW.shape)
    assert np.array_equal(ag.grad(squares)(np.ones(3)), [2.0, 2.0, 2.0])


if __name__ == "__main__":
    main()
