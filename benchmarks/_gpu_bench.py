"""The stages of `benchmarks.gpu --bench`, B0 to B10; with the stand-in they run on small arrays."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from threading import Event
from typing import Any

import numpy as np

from benchmarks import _gpu_graphs
from benchmarks._gpu_graphs import NO_GPU, SMALL, Size
from benchmarks._gpu_stages import Tell, _cupy, _median_us, _try

SPIN = """extern "C" __global__ void spin(long long n) {
    long long t = clock64();
    while (clock64() - t < n);
}"""


def _device_us(cp: Any, stream: Any, call: Callable[[], Any], count: int = 10) -> float:
    """Return the median time between two events around a call."""
    call()
    times = []
    for _ in range(count):
        before, after = cp.cuda.Event(), cp.cuda.Event()
        before.record(stream)
        call()
        after.record(stream)
        after.synchronize()
        times.append(cp.cuda.get_elapsed_time(before, after) * 1e3)
    return round(max(sorted(times)[count // 2], 1e-3), 2)


def ceilings(tell: Tell, stand_in: bool) -> None:
    """B0: what the GPU can do at most."""
    cp, cupyx = _cupy(), importlib.import_module("cupyx")
    many, side = (1 << 10, 16) if stand_in else (1 << 28, 8192)
    with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True) as stream:
        a, b = cp.zeros(many, "f"), cp.zeros(many, "f")
        took_us = _device_us(cp, stream, lambda: cp.copyto(b, a))
        tell("copy_TB_s", round(2 * a.nbytes / took_us / 1e6, 2))
        for dtype in ("float32", "float64", "float16"):
            x, out = cp.ones((side, side), dtype), cp.zeros((side, side), dtype)
            took_us = _device_us(cp, stream, lambda x=x, out=out: cp.matmul(x, x, out=out), 5)
            tell(f"gemm_{dtype}_TFLOP_s", round(2 * side**3 / took_us / 1e6, 1))
        pinned, there = cupyx.empty_pinned((many // 4,), "f"), cp.zeros(many // 4, "f")
        pageable, other = np.zeros(many // 4, "f"), cp.cuda.Stream(non_blocking=True)
        pinned[:] = 0.0

        def back(stream: Any) -> None:
            with stream:
                there.get(out=pinned, blocking=False)

        def both() -> None:
            back(other)
            cp.asarray(pinned)
            event = cp.cuda.Event(block=True, disable_timing=True)
            event.record(other)
            stream.wait_event(event)

        calls = {
            "to_device_pinned": lambda: cp.asarray(pinned),
            "to_device_pageable": lambda: cp.asarray(pageable),
            "to_host_pinned": lambda: back(stream), "both_ways": both,
        }  # fmt: skip
        for name, call in calls.items():
            took_us = _device_us(cp, stream, call, 5)
            tell(f"{name}_GB_s", round(pinned.nbytes * (1 + (call is both)) / took_us / 1e3, 1))


def waking(tell: Tell, stand_in: bool) -> None:
    """B2: what it takes until a thread of the host knows that an event is passed."""
    import actorgraph as ag

    cp, device = _cupy(), ag.devices.get("cuda:0")
    lane = device.lane(0)
    ones = np.ones(8, "f")

    def waiter() -> None:
        done = Event()
        value = device.bring(ones)
        assert value.event is not None
        value.event.then(done.set)
        done.wait()

    def polled(every_s: float) -> None:
        with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True) as stream:
            event = cp.cuda.Event(block=True, disable_timing=True)
            event.record(stream)
            if stand_in:
                stream.synchronize()
            while cp.cuda.runtime.eventQuery(event.ptr):
                time.sleep(every_s)

    device.retain()
    try:
        assert lane.device is device
        tell("waiter_us", _median_us(waiter, lambda: None, 20))
    finally:
        device.release()
    for every_us in (50, 200):
        call = partial(polled, every_us * 1e-6)
        tell(f"polled_each_{every_us}_us", _median_us(call, lambda: None, 20))


def lanes(tell: Tell, stand_in: bool) -> None:
    """B3: how many kernels that only spin overlap, by their time, their share, and streams."""
    cp = _cupy()
    if stand_in:
        small, clock_kHz = cp.cuda.Stream(non_blocking=True), 1
        with small:
            x = cp.ones(4, "f")
        spin: Any = partial(_added, cp, x)
    else:
        spin, clock_kHz = cp.RawKernel(SPIN, "spin"), cp.cuda.runtime.deviceGetAttribute(13, 0)
    counts = (1, 2) if stand_in else (1, 2, 4, 8, 16, 32)
    for blocks in (1, 16, 66):
        for took_us in (2, 10, 50, 200):
            cycles = int(took_us * clock_kHz / 1e3)
            for count in counts:
                streams = [cp.cuda.Stream(non_blocking=True) for _ in range(count)]
                work = partial(_spun, spin, streams, blocks, cycles)
                work()
                started = time.perf_counter()
                work()
                spent_us = (time.perf_counter() - started) * 1e6
                name = f"{took_us} us, {blocks} of 132 SMs, {count} streams"
                tell(name, round(8 * count * took_us / spent_us, 2))


def _added(cp: Any, x: Any, *launch: Any) -> None:
    cp.add(x, x)


def _spun(spin: Any, streams: list[Any], blocks: int, cycles: int) -> None:
    for _ in range(8):
        for stream in streams:
            with stream:
                spin((blocks,), (1024,), (cycles,))
    for stream in streams:
        stream.synchronize()


def replay(tell: Tell, stand_in: bool) -> None:
    """B4: what a CUDA graph costs to make and to launch: a chain, and branches that meet."""
    cp = _cupy()
    if not hasattr(cp.cuda.Stream, "begin_capture"):
        tell("replay", NO_GPU)
        return
    for count in (4, 8) if stand_in else (10, 100, 1000, 5000):
        for width in (1, 8):
            with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True) as stream:
                x = cp.ones((8, 8), "f")
                rooms = [cp.ones((8, 8), "f") for _ in range(width)]
                others = [cp.cuda.Stream(non_blocking=True) for _ in range(width - 1)]
                stream.synchronize()
                started = time.perf_counter()
                stream.begin_capture()
                _forked(cp, stream, others, x, rooms, count // width)
                graph = stream.end_capture()
                made_us = (time.perf_counter() - started) * 1e6
                launch = partial(graph.launch, stream)
                tell(f"{count} nodes, {width} wide", {
                    "capture_us_a_node": round(made_us / count, 2),
                    "launch_us": _median_us(launch, stream.synchronize, 20),
                    "device_us_a_node": round(_device_us(cp, stream, launch) / count, 3),
                })  # fmt: skip


def _forked(cp: Any, stream: Any, others: list[Any], x: Any, rooms: list[Any], depth: int) -> None:
    """Add up on a stream and on others, which begin behind it and meet it at the end."""
    for one, room in zip([stream, *others], rooms, strict=True):
        if one is not stream:
            _wait(cp, one, stream)
        with one:
            for _ in range(depth):
                cp.add(room, x, room)
    for one in others:
        _wait(cp, stream, one)


def _wait(cp: Any, stream: Any, other: Any) -> None:
    event = cp.cuda.Event(block=True, disable_timing=True)
    event.record(other)
    stream.wait_event(event)


def overlap(tell: Tell, stand_in: bool) -> None:
    """B5: feeds in, work and results out of a stream of runs, with more and more runs in flight."""
    import actorgraph as ag

    rows = 16 if stand_in else 4096
    x = ag.Graph().input("x", (rows, rows))
    y = ag.ops.tanh(x @ x)
    feeds = {"x": np.ones((rows, rows), "f")}
    first = 0.0
    for in_flight in (1, 2, 3, 4):
        with ag.ActorMachine([y], device="cuda:0", lanes=2) as machine:
            machine.run_sync(feeds)
            started = time.perf_counter()
            for _ in machine.stream([feeds] * 12, max_in_flight=in_flight):
                pass
            took_ms = (time.perf_counter() - started) / 12 * 1e3
        first = first or took_ms
        told = {"ms": round(took_ms, 3), "speedup": round(first / took_ms, 2)}
        tell(f"{in_flight} in flight", told)


def lifetimes(tell: Tell, stand_in: bool) -> None:
    """B6: memory that comes back: by the retire queue, by a wait, never, and by CUDA's own pool."""
    cp = _cupy()
    work = _gpu_graphs.GRAPHS["b: branches"](SMALL if stand_in else Size())
    for name, policy in {"retired": None, "joined": _joined, "held": _held}.items():
        pool = getattr(cp, "get_default_memory_pool", None) if not stand_in else None
        if pool is not None:
            pool().free_all_blocks()
        with _settled_by(policy):
            took_ms, _ = _gpu_graphs.ours(work, "cuda:0", 8, steps=2 if stand_in else 10)
        peak = NO_GPU if pool is None else pool().total_bytes()
        tell(name, {"ms": round(took_ms, 3), "peak_bytes": peak})
    if not stand_in:
        with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
            tell("MemoryAsyncPool", round(_gpu_graphs.ours(work, "cuda:0", 8)[0], 3))
    else:
        tell("MemoryAsyncPool", NO_GPU)


def _joined(lane: Any, ended: bool = False) -> None:
    """Have the home lane wait for all that uses memory which comes back."""
    while lane.dropped:
        cell, uses = lane.dropped.popleft()
        for other, (seq, event) in uses.items():
            if lane.seen.get(other, 0) < seq:
                lane.queue.wait(event or other.record())
        lane.queue.free(cell)


def _held(lane: Any, ended: bool = False) -> None:
    """Give memory back at the end of all."""
    while ended and lane.dropped:
        lane.queue.free(lane.dropped.popleft()[0])


@contextmanager
def _settled_by(policy: Callable[..., None] | None) -> Iterator[None]:
    from actorgraph.devices.base import Lane

    before = Lane.settle
    Lane.settle = policy or before  # type: ignore[method-assign]
    try:
        yield
    finally:
        Lane.settle = before  # type: ignore[method-assign]


def graphs(tell: Tell, stand_in: bool) -> None:
    """B7: graphs forward and backward, by the number of lanes, beside PyTorch and JAX."""
    for name in _gpu_graphs.GRAPHS:
        for row, call in _gpu_graphs.rows(name, stand_in):
            _try(tell, row, call)


def predicted(tell: Tell, stand_in: bool) -> None:
    """B9: how far a simulation that is fitted to the GPU is off, on graphs without a part in it."""
    from benchmarks.devices import held_out

    found = held_out(1 if stand_in else 20, "cuda:0")
    errors = [one.error for one in found]
    tell("median_error", round(median(errors), 3))
    tell("largest_error", round(max(errors), 3))


def parts(tell: Tell, stand_in: bool) -> None:
    """B10: one GPU as two and four devices with lanes of their own, a pipeline's stages on them."""
    import actorgraph as ag

    batch, wide = (8, 8) if stand_in else (8192, 1024)
    g = ag.Graph("staged")
    h = g.input("x", ("batch", wide))
    draw = np.random.default_rng(0)
    for number in range(4):
        with g.stage(number):
            start = draw.normal(0.0, wide**-0.5, (wide, wide)).astype("f")
            h = ag.ops.tanh(h @ g.parameter(f"w{number}", start))
            if number == 3:
                h = (h * h).mean()
    feeds = {"x": draw.normal(size=(batch, wide)).astype("f")}
    wanted = None
    for count in (1, 2, 4):
        devices = ag.devices.get("cuda:0").partition(count)
        names = [devices[number * count // 4] for number in range(4)]
        with ag.pipeline.Pipeline(h, microbatches=4, devices=names) as pipeline:
            grad = pipeline.run_sync(feeds)["w0"].grad
            wanted = grad if wanted is None else wanted
            took_us = _median_us(lambda p=pipeline: p.run_sync(feeds), lambda: None, 5)
        tell(f"{count} parts", {
            "ms": round(took_us / 1e3, 3), "same_gradients": bool(np.array_equal(grad, wanted)),
        })  # fmt: skip


STAGES: dict[str, Callable[[Tell, bool], None]] = {
    call.__name__: call
    for call in (
        ceilings, waking, lanes, replay, overlap, lifetimes, graphs, predicted, parts,
    )
}  # fmt: skip
