"""One GPU: is what was built without one right, what may be captured, and what takes how long.

    python -m benchmarks.gpu --first       # under 9 minutes; what decides most comes first
    python -m benchmarks.gpu --bench       # B0 to B10: ceilings to graphs beside PyTorch and JAX
    python -m benchmarks.gpu --sanitize    # the contract and a machine under compute-sanitizer
    python -m benchmarks.gpu --first --stand-in    # the same script without a GPU, as CI runs it

Each stage is a process of its own, since a fault of a GPU is sticky, with a limit of its own.  It
tells each fact in a line as soon as it is known, and the JSON is written after every stage: what
a time limit cuts off loses nothing.  With the stand-in, times mean nothing, and what needs a GPU
says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._report import environment

ROOT = Path(__file__).parents[1]
STAGES: dict[str, tuple[tuple[str, float], ...]] = {
    "first": (
        ("versions", 20.0), ("contract", 60.0), ("capture", 90.0), ("parity", 150.0),
        ("machines", 90.0), ("costs", 100.0),
    ),
    "bench": (
        ("ceilings", 60.0), ("costs", 60.0), ("waking", 20.0), ("replay", 40.0), ("lanes", 60.0),
        ("overlap", 40.0), ("graphs", 150.0), ("lifetimes", 40.0), ("predicted", 60.0),
        ("parts", 40.0),
    ),
    "sanitize": (("sanitizer", 480.0),),
}  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Run the stages that are asked for; the exit status is 1 where one of them has failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    for name in STAGES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--stand-in", action="store_true", help="without a GPU")
    parser.add_argument("--json", type=Path, help="default: benchmarks/results/gpu.json")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.stage:
        return _child(asked.stage, asked.stand_in)
    groups = [name for name in STAGES if getattr(asked, name)] or ["first"]
    path = asked.json or ROOT / "benchmarks" / "results" / "gpu.json"
    stages = dict.fromkeys(stage for group in groups for stage in STAGES[group])
    document: dict[str, Any] = {
        "benchmark": "gpu", "quick": False, **environment(), "told": [],
        "stand_in": asked.stand_in, "stages": {},
    }  # fmt: skip
    bench = {name for name, _ in STAGES["bench"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, limit_s in stages:
        document["stages"][name] = found = _stage(name, limit_s, asked.stand_in)
        told = f"{name}: {found['status']}, in {found['took_s']:.0f} s"
        document["told"].append({"text": told})
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"{name:<10} {found['took_s']:6.1f} s  {found['status']}", flush=True)
        for fact, value in found["facts"].items() if name in bench else ():
            print(f"    {fact:<44} {value}")
    print(f"wrote {os.path.relpath(path)}")
    return int(any(found["status"] != "ok" for found in document["stages"].values()))


def _stage(name: str, limit_s: float, stand_in: bool) -> dict[str, Any]:
    """Run a stage in a process of its own, and return what it has told, whatever its end."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--stage", name]
    environment = {
        "CUPY_NVRTC_USE_PCH": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUPY_TF32": "0",
        **os.environ,
    }  # fmt: skip
    started = time.monotonic()
    child = subprocess.Popen(
        command + ["--stand-in"] * stand_in, cwd=ROOT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = child.communicate(timeout=limit_s)
        status = "ok" if child.returncode == 0 else f"exit code {child.returncode}"
    except subprocess.TimeoutExpired:
        child.kill()
        out, errors = child.communicate()
        status = f"stopped at its limit of {limit_s:g} s"
    facts = [json.loads(line) for line in out.splitlines() if line.startswith('{"fact"')]
    found: dict[str, Any] = {
        "status": status, "took_s": round(time.monotonic() - started, 1),
        "facts": {one["fact"]: one["value"] for one in facts},
    }  # fmt: skip
    bad = [key for key, value in found["facts"].items() if _is_failure(value)]
    if bad and status == "ok":
        found["status"] = f"failed: {', '.join(bad[:8])}"
    if found["status"] != "ok":
        found["stderr"] = errors[-2000:]
    return found


def _is_failure(value: Any) -> bool:
    return isinstance(value, dict) and "failed" in value


def _child(name: str, stand_in: bool) -> int:
    """Do one stage in this process, telling each fact in a line."""

    def tell(fact: str, value: Any) -> None:
        print(json.dumps({"fact": fact, "value": value}), flush=True)

    if stand_in:
        from actorgraph.devices import products
        from tests import _cupy

        sys.modules.update(_cupy.MODULES)
        products.library = lambda version: _cupy.graphs.CuBLAS()
    stages()[name](tell, stand_in)
    return 0


def stages() -> dict[str, Any]:
    """Return what stages do, by name."""
    from benchmarks import _gpu_bench, _gpu_stages

    return _gpu_stages.STAGES | _gpu_bench.STAGES


if __name__ == "__main__":
    sys.exit(main())
