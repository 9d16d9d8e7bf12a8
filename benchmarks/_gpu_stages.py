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
        versions, contract, capture, parity, machines, costs, sanitizer,
    )
}  # fmt: skip
