"""B7: five graphs, each written once, that actorgraph, PyTorch and JAX compute both ways.

An engine is what its library calls what a graph is made of.  Who is not installed, and what needs a
GPU where there is none, is a row that says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

__all__ = ["GRAPHS", "NO_GPU", "SMALL", "Size", "ours", "rows"]

NO_GPU, MISSING = "no GPU", "not installed"
_LANES = 8
_STEPS = 10


@dataclass(frozen=True)
class Work:
    """A loss of feeds and weights."""

    loss: Callable[[Any, Sequence[Any], Sequence[Any]], Any]
    feeds: Sequence[np.ndarray[Any, Any]]
    weights: Sequence[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Size:
    """How large graphs are."""

    nodes: int = 1000
    branches: int = 64
    width: int = 256
    wide: int = 4096
    batch: int = 8192
    rows: int = 100_000


SMALL = Size(nodes=12, branches=3, width=8, wide=8, batch=4, rows=16)


def _weights(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    return [draw.normal(0.0, shape[0] ** -0.5, shape).astype("f") for shape in shapes]


def _tiny(size: Size) -> Work:
    def loss(o: Any, feeds: Sequence[Any], weights: Sequence[Any]) -> Any:
        heads = [feeds[0] * weights[0] + float(number) for number in range(4)]
        for number in range(size.nodes // 3):
            place = number % 4
            heads[place] = o.tanh(heads[place] * heads[(place + 1) % 4] + weights[0])
        return o.stack(heads).sum()

    return Work(loss, [np.linspace(-1.0, 1.0, 64, dtype="f")], _weights((64,)))


def _branches(size: Size) -> Work:
    def loss(o: Any, feeds: Sequence[Any], weights: Sequence[Any]) -> Any:
        ends = []
        for number in range(size.branches):
            with o.lane(number):
                one, other = weights[2 * number : 2 * number + 2]
                ends.append(o.tanh(o.tanh(feeds[0] @ one) @ other).mean())
        o.join()
        return o.stack(ends).sum()

    square = (size.width, size.width)
    return Work(loss, _weights(square), _weights(*[square] * (2 * size.branches)))


def _mlp(size: Size) -> Work:
    def loss(o: Any, feeds: Sequence[Any], weights: Sequence[Any]) -> Any:
        h = feeds[0]
        for weight in weights:
            h = o.tanh(h @ weight)
        return (h * h).mean()

    return Work(loss, _weights((size.batch, size.wide)), _weights(*[(size.wide, size.wide)] * 3))


def _attention(size: Size) -> Work:
    def loss(o: Any, feeds: Sequence[Any], weights: Sequence[Any]) -> Any:
        q, k, v = (feeds[0] @ weight for weight in weights[:3])
        mixed = o.softmax((q @ k.T) * size.width**-0.5) @ v
        h = feeds[0] + mixed @ weights[3]
        return (h * h).mean()

    square = (size.width, size.width)
    return Work(loss, _weights(square), _weights(*[square] * 4))


def _towers(size: Size) -> Work:
    towers, width = 4, 32

    def loss(o: Any, feeds: Sequence[Any], weights: Sequence[Any]) -> Any:
        ends = [o.tanh(feeds[1] @ weights[-1])]
        for number in range(towers):
            table, one = weights[2 * number : 2 * number + 2]
            ends.append(o.tanh(table[feeds[0][:, number]] @ one))
        return o.stack([(a * b).mean() for a in ends for b in ends]).sum()

    ids = np.random.default_rng(1).integers(0, size.rows, (size.batch, towers))
    shapes = [(size.rows, width), (width, width)] * towers
    return Work(loss, [ids, *_weights((size.batch, width))], _weights(*shapes, (width, width)))


GRAPHS: dict[str, Callable[[Size], Work]] = {
    "a: tiny elementwise": _tiny, "b: branches": _branches, "c: large MLP": _mlp,
    "d: attention": _attention, "e: towers, fed by the host": _towers,
}  # fmt: skip


class _Names:
    """What a library calls the parts of a graph."""

    def __init__(self, tanh: Any, softmax: Any, stack: Any, lane: Any = None) -> None:
        self.tanh, self.softmax, self.stack = tanh, softmax, stack
        self.lane: Any = lane or (lambda number: nullcontext())

    def join(self) -> None:
        """Have all lanes meet."""


def _timed(step: Callable[[], Any], wait: Callable[[], Any], steps: int = _STEPS) -> float:
    """Return the milliseconds of a step among several, which nobody waits for between."""
    for _ in range(2):
        step()
    wait()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - started) / steps * 1e3


def ours(
    work: Work, device: str, lanes: int, steps: int = _STEPS, **options: Any
) -> tuple[float, float]:
    """Return milliseconds of a step, and the loss."""
    import actorgraph as ag

    g = ag.Graph("work")
    feeds = [g.input(f"x{i}", x.shape, x.dtype) for i, x in enumerate(work.feeds)]
    weights = [g.parameter(f"w{i}", w) for i, w in enumerate(work.weights)]
    names = _Names(ag.ops.tanh, partial(ag.ops.softmax, axis=-1), ag.ops.stack)
    loss = work.loss(names, feeds, weights)
    given = {x.name: array for x, array in zip(feeds, work.feeds, strict=True)}
    with ag.ActorMachine([loss], device=device, lanes=lanes, **options) as machine:
        found = float(machine.run_sync(given)[loss].value)
        runs: list[Any] = []

        def step() -> None:
            runs.append(machine.start(given, backward=True, fetch=False))
            if len(runs) > 4:
                runs.pop(0).result()

        def wait() -> None:
            while runs:
                runs.pop().result()

        return _timed(step, wait, steps), found


def _torch(work: Work, on_gpu: bool, how: str) -> Any:
    try:
        import torch
    except ImportError:
        return MISSING
    if (on_gpu and not torch.cuda.is_available()) or (not on_gpu and how != "eager"):
        return NO_GPU
    device = "cuda" if on_gpu else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    weights = [torch.tensor(w, device=device, requires_grad=True) for w in work.weights]
    host = [torch.tensor(x, pin_memory=on_gpu) for x in work.feeds]
    there = [x.to(device) for x in host]
    names = _Names(torch.tanh, partial(torch.softmax, dim=-1), torch.stack)
    if how == "graph with streams":
        names = _torch_lanes(torch, names)
    wait = torch.cuda.synchronize if on_gpu else lambda: None

    def compute() -> Any:
        loss = work.loss(names, there, weights)
        torch.autograd.grad(loss, weights)
        return loss

    def copy() -> None:
        for x, array in zip(there, host, strict=True):
            x.copy_(array, non_blocking=True)

    if how == "eager":

        def step() -> None:
            copy()
            compute()
    else:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                compute()
        wait()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compute()

        def step() -> None:
            copy()
            graph.replay()

    return _timed(step, wait), float(work.loss(names, there, weights).detach())


def _torch_lanes(torch: Any, names: _Names) -> _Names:
    """Have branches on streams of their own, which begin behind the current one and meet there."""
    streams = [torch.cuda.Stream() for _ in range(_LANES)]

    @contextmanager
    def lane(number: int) -> Iterator[None]:
        stream = streams[number % _LANES]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield

    def join() -> None:
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)

    names.lane, names.join = lane, join  # type: ignore[method-assign]
    return names


def _jax(work: Work, on_gpu: bool) -> Any:
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        return MISSING
    if on_gpu and jax.default_backend() != "gpu":
        return NO_GPU
    names = _Names(jnp.tanh, partial(jax.nn.softmax, axis=-1), jnp.stack)
    ids = [x.astype("int32") if x.dtype.kind == "i" else x for x in work.feeds]

    def loss(weights: Any, feeds: Any) -> Any:
        return work.loss(names, feeds, weights)

    last: list[Any] = [None]
    with jax.default_matmul_precision("highest"):
        both = jax.jit(jax.value_and_grad(loss))
        weights = [jnp.asarray(w) for w in work.weights]

        def step() -> None:
            last[0] = both(weights, ids)

        return _timed(step, lambda: jax.block_until_ready(last[0])), float(last[0][0])


def _ours(lanes: int, captured: bool, work: Work, on_gpu: bool) -> tuple[float, float]:
    return ours(work, "cuda:0", lanes, _STEPS if on_gpu else 1, captured=captured)


ENGINES: dict[str, Callable[[Work, bool], Any]] = {
    **{
        f"actorgraph, {lanes} lanes{', captured' * captured}": partial(_ours, lanes, captured)
        for lanes in (1, _LANES)
        for captured in (False, True)
    },
    "torch eager": lambda work, on_gpu: _torch(work, on_gpu, "eager"),
    "torch CUDA graph": lambda work, on_gpu: _torch(work, on_gpu, "graph"),
    "torch CUDA graph, streams": lambda work, on_gpu: _torch(work, on_gpu, "graph with streams"),
    "jax.jit": _jax,
}


def rows(name: str, stand_in: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the engines of a graph, and what times each and compares losses."""
    work = GRAPHS[name](SMALL if stand_in else Size())
    losses: list[float] = []

    def timed(engine: Callable[[Work, bool], Any]) -> Any:
        found = engine(work, not stand_in)
        if isinstance(found, str):
            return found
        took_ms, loss = found
        losses.append(loss)
        np.testing.assert_allclose(loss, losses[0], 1e-3, 1e-5)
        return round(took_ms, 3)

    for engine, call in ENGINES.items():
        yield f"{name} | {engine}, ms", partial(timed, call)
