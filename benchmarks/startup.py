"""What it costs to begin: importing the package, and the first run of the README's graph.

Each round is a fresh interpreter that imports NumPy and anyio first, so that the import time is
that of actorgraph and of nothing else, with byte code cached; then it builds the graph of the
README's first screen and runs it once, forward and forward + backward.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import textwrap
from typing import Any

from benchmarks._harness import Figure
from benchmarks._report import exit_status, options, print_environment, print_rows, write_json

# Limits in milliseconds.
TARGETS = {"import over numpy + anyio": 50.0, "build + first run_sync": 100.0}
STEPS = (*TARGETS, "first run_sync with backward=True", "second run_sync")

CHILD = textwrap.dedent(
    """
    import json, time
    clock = time.perf_counter
    import anyio, numpy as np
    times = [clock()]
    import actorgraph as ag
    times.append(clock())
    g = ag.Graph("mlp")
    x = g.input("x", shape=("batch", 64), dtype="float32")
    t = g.input("t", shape=("batch",), dtype="int64")
    W = g.parameter("W", np.zeros((64, 10), "float32"))
    b = g.parameter("b", np.zeros(10, "float32"))
    logits = x @ W + b
    loss = ag.ops.cross_entropy(logits, t)
    dW, db = ag.gradients(loss, [W, b])
    feeds = {"x": np.ones((32, 64), "float32"), "t": np.zeros(32, "int64")}
    with ag.ActorMachine([loss, logits], wrt=[W, b]) as machine:
        machine.run_sync(feeds)
        times.append(clock())
        machine.run_sync(feeds, backward=True)
        times.append(clock())
        machine.run_sync(feeds)
        times.append(clock())
    print(json.dumps([b - a for a, b in zip(times, times[1:])]))
    """
)


def child(code: str, *flags: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that may cache byte code, whatever this one may.

    `changed` are environment variables.
    """
    allowed = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | changed
    command = [sys.executable, *flags, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=allowed)


def importtime(limit: int = 20) -> None:
    """Print the modules whose own import takes longest."""
    lines = child("import anyio, numpy, actorgraph", "-X", "importtime").stderr.splitlines()
    rows = [line.removeprefix("import time:").split("|") for line in lines if "actorgraph" in line]
    rows.sort(key=lambda row: int(row[0]), reverse=True)
    print("\nown microseconds, cumulated, module")
    for own, cumulated, name in rows[:limit]:
        print(f"{own.strip():>8} {cumulated.strip():>8}  {name.strip()}")


def measure(rounds: int) -> list[Figure]:
    """Run fresh interpreters one after the other, after one that writes the byte code."""
    figures = [Figure(step, "ours", ours=True) for step in STEPS]
    for number in range(rounds + 1):
        output = child(CHILD)
        if number:
            for figure, seconds in zip(figures, json.loads(output.stdout), strict=True):
                figure.rounds.append(seconds)
    for figure in figures:
        figure.seconds = min(figure.rounds)
    return figures


def main() -> int:
    """Measure, print, write; the exit status is 1 when a row of ours has no figure."""
    asked = options("startup", __doc__, only=None, profile=True)
    print_environment()
    figures = measure(5 if asked.quick else 20)
    rows = [["step", "best", "median", "wanted", ""]]
    verdicts: list[dict[str, Any]] = []
    for figure in figures:
        best, median = min(figure.rounds) * 1e3, statistics.median(figure.rounds) * 1e3
        limit = TARGETS.get(figure.case)
        wanted = "" if limit is None else f"<= {limit:g}"
        verdict = "" if limit is None else "met" if best <= limit else "MISSED"
        rows.append([figure.case, f"{best:.1f}", f"{median:.1f}", wanted, verdict])
        if limit is not None:
            verdicts.append({"case": figure.case, "limit_ms": limit, "met": best <= limit})
    print_rows("startup: ms in fresh interpreters", rows)
    if asked.profile:
        importtime()
    write_json("startup", asked, figures, {"targets": verdicts})
    return exit_status(figures)


if __name__ == "__main__":
    sys.exit(main())
