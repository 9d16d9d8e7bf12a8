"""The chains graph on general executors: asyncio, anyio, Dask and Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks._chains_arrays import CountingTanh, Unary, executions
from benchmarks._harness import Trial, installed
from benchmarks._ray import started
from benchmarks._report import usable_cores
from benchmarks._work import DEPTH, Array, chain_arrays

RAY_HOPS = DEPTH + 1  # into the first node, between nodes, and out of the last


def asyncio_tasks(scope: ExitStack) -> Trial:
    """Start one task per node and run; a task awaits the task of its input."""
    runner = scope.enter_context(asyncio.Runner())
    x, scales = chain_arrays()

    async def first(scale: Array) -> Array:
        return x * scale

    async def fire(source: Awaitable[Array], tanh: Unary) -> Array:
        return tanh(await source)

    async def forward(tanh: Unary) -> list[Array]:
        ends = []
        for scale in scales:
            task = asyncio.create_task(first(scale))
            for _ in range(DEPTH):
                task = asyncio.create_task(fire(task, tanh))
            ends.append(task)
        return await asyncio.gather(*ends)

    count = executions(lambda tanh: runner.run(forward(tanh)))
    return Trial(lambda: runner.run(forward(np.tanh)), executions=count)


def anyio_streams(scope: ExitStack) -> Trial:
    """Join lasting tasks, one per node, by memory object streams: goMachine's way in anyio."""
    installed("anyio")
    runner = scope.enter_context(asyncio.Runner())
    x, scales = chain_arrays()
    tanh = CountingTanh()
    network = _Network(tanh)
    runner.run(network.start())
    scope.callback(lambda: runner.run(network.stop()))

    async def forward() -> list[Array]:
        for stream, scale in zip(network.sources, scales, strict=True):
            await stream.send(x * scale)
        return [await stream.receive() for stream in network.ends]

    runner.run(forward())
    network.tanh = np.tanh
    return Trial(lambda: runner.run(forward()), executions=tanh.calls)


class _Network:
    """Tasks of all nodes, kept alive between runs by one host task."""

    def __init__(self, tanh: Unary) -> None:
        import anyio

        self.tanh = tanh
        pairs = [
            [anyio.create_memory_object_stream[Array](1) for _ in range(DEPTH + 1)]
            for _ in chain_arrays()[1]
        ]
        self.chains = pairs
        self.sources = [chain[0][0] for chain in pairs]
        self.ends = [chain[-1][1] for chain in pairs]
        self.host: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.host = asyncio.create_task(self._serve())

    async def stop(self) -> None:
        """Close the sources, which ends every node in turn, and with them the host."""
        for source in self.sources:
            await source.aclose()
        if self.host is not None:
            await self.host
        for end in self.ends:
            await end.aclose()

    async def _serve(self) -> None:
        import anyio

        async with anyio.create_task_group() as group:
            for chain in self.chains:
                for (_, receive), (send, _) in pairwise(chain):
                    group.start_soon(self._node, receive, send)

    async def _node(self, receive: Any, send: Any) -> None:
        async with receive, send:
            async for value in receive:
                await send.send(self.tanh(value))


def dask_trial(*, threads: bool) -> Callable[[ExitStack], Trial]:
    """Run Dask's own graph of tasks, without the cost of collecting delayed objects."""

    def build(scope: ExitStack) -> Trial:
        installed("dask")
        import dask
        import dask.threaded

        get = scope.enter_context(_threaded_get()) if threads else dask.get
        graph, ends = _dask_graph(np.tanh)
        counting = CountingTanh()
        counting_graph, _ = _dask_graph(counting)
        get(counting_graph, ends)
        facts: dict[str, object] = {"threads": usable_cores()} if threads else {}
        return Trial(lambda: get(graph, ends), executions=counting.calls, facts=facts)

    return build


class _threaded_get:
    """`dask.threaded.get` on a pool of its own, which is gone afterwards."""

    def __enter__(self) -> Callable[..., object]:
        from concurrent.futures import ThreadPoolExecutor
        from functools import partial

        import dask.threaded

        self.pool = ThreadPoolExecutor(usable_cores())
        return partial(dask.threaded.get, pool=self.pool)

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown()


def _dask_graph(tanh: Unary) -> tuple[dict[str, object], list[str]]:
    x, scales = chain_arrays()
    graph: dict[str, object] = {"x": x}
    ends = []
    for number, scale in enumerate(scales):
        key = f"scaled-{number}"
        graph[key] = (np.multiply, "x", scale)
        for depth in range(DEPTH):
            graph[f"tanh-{number}-{depth}"] = (tanh, key)
            key = f"tanh-{number}-{depth}"
        ends.append(key)
    return graph, ends


def ray_hops(scope: ExitStack) -> Trial:
    """Compile one chain through two Ray actors in turn; the figure is per hop."""
    started(scope)
    import ray

    program = _ray_program()
    scope.callback(program.teardown)
    x, _ = chain_arrays()
    facts: dict[str, object] = {"counted": f"{RAY_HOPS} hops between 3 processes per run"}
    return Trial(lambda: [ray.get(program.execute(x))], facts=facts)


def _ray_program() -> Any:
    import ray
    from ray.dag import InputNode

    @ray.remote(num_cpus=0)
    class Actor:
        def tanh(self, value: Array) -> Array:
            return np.tanh(value)

    actors = [Actor.remote(), Actor.remote()]
    with InputNode() as node:
        for depth in range(DEPTH):
            node = actors[depth % 2].tanh.bind(node)
    return node.experimental_compile()
