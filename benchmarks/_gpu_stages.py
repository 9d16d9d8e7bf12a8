"""The stages of `benchmarks.gpu`: each tells facts by name; who fails does not end the rest."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Tell = Callable[[str, Any], None]
CONTRACT = "tests/devices/test_cupy_contract.py"
NEEDS_GPU = "needs a GPU"
SPIN = """extern "C" __global__ void spin(long long n) {
    long long t = clock64();
    while (clock64() - t < n);
}"""


def _try(tell: Tell, name: str, call: Callable[[], Any]) -> None:
    """Tell what a call gives, or that it has failed and how."""
    try:
        tell(name, call())
    except Exception as error:
        tell(name, {"failed": f"{type(error).__name__}: {str(error)[:300]}"})


def _cupy() -> Any:
    return importlib.import_module("cupy")


def _median_us(call: Callable[[], Any], wait: Callable[[], Any], count: int = 100) -> float:
    """Return the median time that the host needs to launch something."""
    for _ in range(5):
        call()
    wait()
    times = []
    for number in range(count):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
        if number % 50 == 49:
            wait()
    wait()
    return round(sorted(times)[count // 2] * 1e6, 2)


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
    return round(sorted(times)[count // 2], 2)


# -- first ----------------------------------------------------------------------------------------


def versions(tell: Tell, stand_in: bool) -> None:
    """What is here, and how the CuPy that is installed differs from the snapshot."""
    cp = _cupy()
    tell("python", sys.version.split()[0])
    tell("numpy", np.__version__)
    tell("gpus", cp.cuda.runtime.getDeviceCount())
    if stand_in:
        tell("cupy", "the stand-in of tests/_cupy")
        return
    runtime = cp.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    tell("cupy", cp.__version__)
    tell("gpu", properties["name"].decode())
    tell("sms", properties["multiProcessorCount"])
    tell("memory_bytes", properties["totalGlobalMem"])
    tell("driver", runtime.driverGetVersion())
    tell("runtime", runtime.runtimeGetVersion())
    from tests._cupy import SNAPSHOT, snapshot

    here = snapshot.snapshot()
    changed = {
        f"{part}.{name}": [SNAPSHOT[part].get(name), here[part].get(name)]
        for part in ("ufuncs", "functions", "methods")
        for name in {*SNAPSHOT[part], *here[part]}
        if SNAPSHOT[part].get(name) != here[part].get(name)
    }
    tell("snapshot", changed or "the same")


def contract(tell: Tell, stand_in: bool) -> None:
    """Is the stand-in true: its contract on what is here."""
    _try(tell, "contract", partial(_pytest, [CONTRACT]))


def _pytest(arguments: list[str], *, before: tuple[str, ...] = ()) -> str:
    command = [*before, sys.executable, "-m", "pytest", "-n0", "-q", "--tb=line", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (done.stdout.strip().splitlines() or [done.stderr[-300:]])[-1]
    if done.returncode:
        raise RuntimeError(f"{last}\n{done.stdout[-1200:]}")
    return last


def capture(tell: Tell, stand_in: bool) -> None:
    """What may stand in a CUDA graph: the forward of every op, and matmul by our own cuBLAS."""
    if stand_in:
        from actorgraph.devices import products
        from tests._cupy import graphs

        products.library = lambda version: graphs.CuBLAS()
    _try(tell, "machine", _machine_captured)
    if stand_in:
        tell("ops", NEEDS_GPU)
        return
    from benchmarks import _gpu_parity as parity

    cp = _cupy()
    _try(tell, "gemm_by_ctypes", partial(_gemm_in_capture, cp))
    for name, op in parity.OPS.items():
        _try(tell, name, partial(parity.captured, cp, op))


def _gemm_in_capture(cp: Any) -> dict[str, Any]:
    """Multiply by our own cuBLAS while a stream captures: are the bits those of CuPy's product."""
    from actorgraph.devices.products import Products

    own, stream = Products(cp), cp.cuda.Stream(non_blocking=True)
    with stream:
        a, b = (cp.asarray(np.random.default_rng(i).normal(size=(256, 256)), "f") for i in (0, 1))
        cupys, eager, c = cp.matmul(a, b).get(), own.matmul(a, b).get(), cp.zeros_like(a)
        stream.synchronize()
        stream.begin_capture()
        own.matmul(a, b, out=c)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        found = c.get()
    return {
        "bits_of_eager": bool(np.array_equal(found, eager)),
        "bits_of_cupy": bool(np.array_equal(found, cupys)),
    }


def _machine_captured() -> dict[str, Any]:
    """Run a machine eagerly and captured: are the bits equal, and what is not captured, and why."""
    import actorgraph as ag

    g = ag.Graph()
    x, W = g.input("x", (64, 64)), g.parameter("W", np.eye(64, dtype="float32"))
    parts = [ag.ops.tanh((x * float(i + 1)) @ W) for i in range(8)]
    loss = sum(parts[1:], parts[0]).sum()
    feeds = {"x": np.random.default_rng(0).normal(size=(64, 64)).astype("float32")}
    found, told = [], ""
    for captured in (False, True):
        with ag.ActorMachine([loss], device="cuda:0", lanes=4, captured=captured) as machine:
            for _ in range(3):
                run = machine.run_sync(feeds, backward=True)
            found.append(run[loss].value.tobytes() + run[W].grad.tobytes())
            told = machine.explain()
    return {"bits_of_eager": found[0] == found[1], "explained": told}


def parity(tell: Tell, stand_in: bool) -> None:
    """Every op, forward and gradient, beside NumPy; with the stand-in every tenth."""
    from benchmarks import _gpu_parity as parity

    names = [*parity.OPS][:: 10 if stand_in else 1]
    if stand_in:
        _of_some(tell, names)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    workers = min(16, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        parts = [pool.submit(_told, names[start::workers]) for start in range(workers)]
        for part in as_completed(parts):
            for name, value in part.result():
                tell(name, value)


def _of_some(tell: Tell, names: list[str]) -> None:
    from benchmarks import _gpu_parity as parity

    cp = _cupy()
    with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True):
        for name in names:
            _try(tell, name, lambda name=name: parity.check(cp, parity.OPS[name], 1e-7) or "equal")


def _told(names: list[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    _of_some(lambda name, value: found.append((name, value)), names)
    return found


def machines(tell: Tell, stand_in: bool) -> None:
    """The laws of devices on the GPU, each by itself."""
    import actorgraph as ag

    for law in ag.testing.DEVICE_LAWS:
        _try(tell, law.__name__, lambda law=law: law(lambda: "cuda:0") or "holds")


def costs(tell: Tell, stand_in: bool) -> None:
    """B1, B2, B8: what the host pays for a launch, an event, a wake-up, a node of a machine."""
    cp = _cupy()
    with cp.cuda.Device(0), cp.cuda.Stream(non_blocking=True) as stream:
        x = cp.asarray(np.ones((8, 8), "f"))
        a = cp.asarray(np.ones((64, 64), "f"))
        event = cp.cuda.Event(block=True, disable_timing=True)
        other = cp.cuda.Stream(non_blocking=True)
        calls = {
            "add": lambda: cp.add(x, x), "tanh": lambda: cp.tanh(x), "sum": lambda: x.sum(),
            "matmul_64": lambda: cp.matmul(a, a), "record": lambda: event.record(stream),
            "wait": lambda: other.wait_event(event),
            "query": lambda: cp.cuda.runtime.eventQuery(event.ptr),
        }  # fmt: skip
        for name, call in calls.items():
            _try(tell, f"{name}_us", partial(_median_us, call, stream.synchronize))
    for fuse in ("none", "all"):
        _try(tell, f"node_us fuse={fuse}", partial(_node_us, fuse))
    _try(tell, "torch_us", partial(_torch_us))


def _node_us(fuse: str) -> float:
    import actorgraph as ag

    x = ag.Graph().input("x", (8, 8))
    y = x
    for _ in range(200):
        y = ag.ops.tanh(y)
    feeds = {"x": np.ones((8, 8), "f")}
    with ag.ActorMachine([y], device="cuda:0", fuse=fuse) as machine:
        return round(_median_us(lambda: machine.run_sync(feeds), lambda: None, 10) / 200, 2)


def _torch_us() -> Any:
    try:
        import torch
    except ImportError:
        return "not installed"
    if not torch.cuda.is_available():
        return NEEDS_GPU
    x, wait = torch.ones(8, 8, device="cuda"), torch.cuda.synchronize
    a = torch.ones(64, 64, device="cuda")
    with torch.inference_mode():
        return {
            "add": _median_us(lambda: torch.add(x, x), wait),
            "tanh": _median_us(lambda: torch.tanh(x), wait),
            "matmul_64": _median_us(lambda: a @ a, wait),
        }


# -- bench ----------------------------------------------------------------------------------------


def ceilings(tell: Tell, stand_in: bool) -> None:
    """B0: what the GPU can do at most."""
    if stand_in:
        tell("ceilings", NEEDS_GPU)
        return
    cp, cupyx = _cupy(), importlib.import_module("cupyx")
    with cp.cuda.Stream(non_blocking=True) as stream:
        a, b = cp.zeros(1 << 28, "f"), cp.empty(1 << 28, "f")
        copy_us = _device_us(cp, stream, lambda: cp.copyto(b, a))
        tell("copy_TB_s", round(2 * a.nbytes / copy_us / 1e6, 2))
        for dtype in ("float32", "float64", "float16"):
            x = cp.ones((8192, 8192), dtype)
            out = cp.empty_like(x)
            took_us = _device_us(cp, stream, lambda x=x, out=out: cp.matmul(x, x, out=out), 5)
            tell(f"gemm_{dtype}_TFLOP_s", round(2 * 8192**3 / took_us / 1e6, 1))
        pinned, there = cupyx.empty_pinned((1 << 26,), "f"), cp.empty((1 << 26,), "f")
        took_us = _device_us(cp, stream, lambda: there.set(pinned), 5)
        tell("to_device_GB_s", round(pinned.nbytes / took_us / 1e3, 1))
        took_us = _device_us(cp, stream, lambda: there.get(out=pinned, blocking=False), 5)
        tell("to_host_GB_s", round(pinned.nbytes / took_us / 1e3, 1))


def replay(tell: Tell, stand_in: bool) -> None:
    """B4: what a CUDA graph costs to make and to launch."""
    if stand_in:
        tell("replay", NEEDS_GPU)
        return
    cp = _cupy()
    for count in (10, 100, 1000):
        with cp.cuda.Stream(non_blocking=True) as stream:
            x = cp.ones((8, 8), "f")
            cp.add(x, x, x)
            stream.synchronize()
            started = time.perf_counter()
            stream.begin_capture()
            for _ in range(count):
                cp.add(x, x, x)
            graph = stream.end_capture()
            made_us = (time.perf_counter() - started) * 1e6
            tell(str(count), {
                "capture_us_a_node": round(made_us / count, 2),
                "launch_us": _median_us(lambda g=graph, s=stream: g.launch(s), stream.synchronize),
                "device_us_a_node": round(
                    _device_us(cp, stream, lambda g=graph, s=stream: g.launch(s)) / count, 3
                ),
            })  # fmt: skip


def lanes(tell: Tell, stand_in: bool) -> None:
    """B3: how many kernels that only spin overlap, by their time and the number of streams."""
    if stand_in:
        tell("lanes", NEEDS_GPU)
        return
    cp = _cupy()
    spin = cp.RawKernel(SPIN, "spin")
    clock_kHz = cp.cuda.runtime.deviceGetAttribute(13, 0)
    for took_us in (5, 20, 100):
        cycles = int(took_us * clock_kHz / 1e3)
        for count in (1, 2, 4, 8, 16, 32):
            streams = [cp.cuda.Stream(non_blocking=True) for _ in range(count)]

            def work(streams: Any = streams, cycles: int = cycles) -> None:
                for _ in range(8):
                    for stream in streams:
                        with stream:
                            spin((1,), (32,), (cycles,))
                for stream in streams:
                    stream.synchronize()

            work()
            started = time.perf_counter()
            work()
            spent_us = (time.perf_counter() - started) * 1e6
            tell(f"{took_us} us on {count} streams", round(8 * count * took_us / spent_us, 2))


def overlap(tell: Tell, stand_in: bool) -> None:
    """B5: feeds in, work and results out of a stream of runs, on one lane and on several."""
    import actorgraph as ag

    rows = 64 if stand_in else 4096
    x = ag.Graph().input("x", (rows, rows))
    y = ag.ops.tanh(x @ x)
    feeds = {"x": np.ones((rows, rows), "f")}
    for in_flight in (1, 2, 4):
        with ag.ActorMachine([y], device="cuda:0", lanes=2) as machine:
            machine.run_sync(feeds)
            started = time.perf_counter()
            for _ in machine.stream([feeds] * 12, max_in_flight=in_flight):
                pass
            tell(f"{in_flight} in flight", round((time.perf_counter() - started) / 12 * 1e3, 3))


def graphs(tell: Tell, stand_in: bool) -> None:
    """B7 (b): 64 parallel branches forward and backward, by the number of lanes, beside peers."""
    import actorgraph as ag

    branches, width = (8, 32) if stand_in else (64, 256)
    g = ag.Graph("wide")
    x = g.input("x", (width, width))
    ends = []
    for number in range(branches):
        start = np.random.default_rng(number).normal(0, width**-0.5, (width, width))
        ends.append(ag.ops.tanh(x @ g.parameter(f"w{number}", start.astype("f"))).mean())
    loss = ag.ops.stack(ends).sum()
    feeds = {"x": np.ones((width, width), "f")}
    for count in (1, 4, 8):
        with ag.ActorMachine([loss], device="cuda:0", lanes=count) as machine:
            run = partial(machine.run_sync, feeds, backward=True)
            tell(f"{count} lanes, ms", round(_median_us(run, lambda: None, 10) / 1e3, 3))
    _try(tell, "torch, ms", partial(_torch_branches_ms, branches, width))


def _torch_branches_ms(branches: int, width: int) -> Any:
    try:
        import torch
    except ImportError:
        return "not installed"
    if not torch.cuda.is_available():
        return NEEDS_GPU
    x = torch.ones(width, width, device="cuda")
    weights = [
        torch.randn(width, width, device="cuda", requires_grad=True) for _ in range(branches)
    ]

    def step() -> None:
        loss = torch.stack([torch.tanh(x @ w).mean() for w in weights]).sum()
        torch.autograd.grad(loss, weights)
        torch.cuda.synchronize()

    return round(_median_us(step, lambda: None, 10) / 1e3, 3)


# -- sanitize -------------------------------------------------------------------------------------


def sanitizer(tell: Tell, stand_in: bool) -> None:
    """Stream-ordered races of the contract and the laws, by compute-sanitizer."""
    tool = shutil.which("compute-sanitizer")
    if stand_in or tool is None:
        tell("sanitizer", NEEDS_GPU if stand_in else {"failed": "no compute-sanitizer on PATH"})
        return
    before = (tool, "--tool", "memcheck", "--track-stream-ordered-races", "all",
              "--error-exitcode", "9", "--target-processes", "all")  # fmt: skip
    _try(tell, "contract", partial(_pytest, [CONTRACT], before=before))
    command = [*before, sys.executable, "-m", "benchmarks.gpu", "--stage", "machines"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tell("machines", "clean" if done.returncode == 0 else {"failed": done.stdout[-2000:]})


STAGES: dict[str, Callable[[Tell, bool], None]] = {
    call.__name__: call
    for call in (
        versions, contract, capture, parity, machines, costs, ceilings, replay, lanes, overlap,
        graphs, sanitizer,
    )
}  # fmt: skip
