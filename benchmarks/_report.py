"""Command line, tables, targets and JSON of the benchmarks."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks._harness import Figure

# What the run has told so far: it goes into the JSON, from which docs/performance.md is written.
_TOLD: list[dict[str, object]] = []
PACKAGES = (
    "actorgraph",
    "numpy",
    "llvmlite",
    "torch",
    "jax",
    "anyio",
    "dask",
    "ray",
    "threadpoolctl",
)
LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # before anything is measured
RESULTS = Path(__file__).parent / "results"
UNITS = {"us": 1e6, "ms": 1e3}


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    quick: bool
    json: Path
    only: str = ""
    profile: bool = False

    def wants(self, name: str) -> bool:
        """Whether a row of this name is asked for."""
        return self.only.lower() in name.lower()


@dataclass(frozen=True)
class Target:
    """`system` should need at most `factor` times the best of `against`, plus `plus_s`.

    Or at most `or_s`, if that is more.
    """

    case: str
    system: str
    against: tuple[str, ...]
    factor: float
    plus_s: float = 0.0
    or_s: float = 0.0


def options(
    name: str,
    description: str | None,
    *,
    only: str | None = "only rows with this text",
    profile: bool = False,
) -> Options:
    """Parse the command line that all benchmarks share.

    `profile` adds that option; where `only` is None there is no such option.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="a short run, for a first look")
    if only is not None:
        parser.add_argument("--only", default="", metavar="SUBSTR", help=only)
    parser.add_argument("--json", type=Path, metavar="PATH")
    if profile:
        parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parsed = Options(**vars(parser.parse_args()))
    # What docs/performance.md shows is replaced by a whole run only.
    part = "part" if parsed.quick or parsed.only else ""
    return replace(parsed, json=parsed.json or RESULTS / part / f"{name}.json")


def usable_cores() -> int:
    """Count the cores this process may use, which a container may have cut down."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Look up the versions of everything measured, without importing it."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def environment() -> dict[str, object]:
    """Collect what a figure depends on: versions, BLAS, cores, the date."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cores": usable_cores(),
        "load": LOAD,
        "cpu": cpu_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": blas(),
        "versions": versions(),
    }


def cpu_name() -> str:
    """Return the processor's model, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def blas() -> str:
    """Name NumPy's BLAS with its kernels and threads, and who multiplies for us."""
    from actorgraph.devices.blas import provider

    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return "unknown: threadpoolctl is not installed"
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    named = [
        f"{p['internal_api']} {p['version']} ({p.get('architecture')}, {p['num_threads']} thread)"
        for p in pools
    ]
    return ", ".join([*named, f"matmul by {provider().name} {provider().version}"])


def print_environment() -> None:
    """Print the paragraph that belongs to every table."""
    facts = environment()
    print(f"{facts['date']}, {facts['cores']} cores, {facts['cpu']}, BLAS {facts['blas']}")
    print(", ".join(f"{name} {version}" for name, version in versions().items()))


def print_table(title: str, unit: str, figures: Sequence[Figure], baseline: str) -> None:
    """Print systems down, cases across; a cell has the time and its ratio to `baseline`."""
    cases = list(dict.fromkeys(figure.case for figure in figures))
    systems = list(dict.fromkeys(figure.system for figure in figures))
    cells = {(figure.system, figure.case): figure for figure in figures}
    rows = [["system", *cases]]
    for system in systems:
        pairs = [(cells.get((system, case)), cells.get((baseline, case))) for case in cases]
        rows.append([system, *(_cell(figure, base, unit) for figure, base in pairs)])
    print_rows(f"{title}: {unit}, and the ratio to `{baseline}` in the same rounds", rows)
    for system in systems:
        notes = [_note(cells[system, case]) for case in cases if (system, case) in cells]
        for note in dict.fromkeys(note for note in notes if note):
            print(f"  {system}: {note}")


def tell(text: str) -> None:
    """Print a sentence about the figures, which the page shows too."""
    _TOLD.append({"text": text})
    print(f"\n{text}")


def print_rows(title: str, rows: Sequence[Sequence[str]], words: int = 1) -> None:
    """Print a plain table: the first columns hold words, to the left, the others figures."""
    _TOLD.append({"title": title, "rows": rows, "words": words})
    print(f"\n{title}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        first, *others = (
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _cell(figure: Figure | None, baseline: Figure | None, unit: str) -> str:
    if figure is None or figure.seconds is None:
        return "-"
    text = f"{figure.seconds * UNITS[unit]:.3f}"
    if baseline is None or baseline.seconds is None:
        return text
    return f"{text} ({figure.seconds / baseline.seconds:.2f}x)"


def _note(figure: Figure) -> str:
    facts = [f"{name}: {value}" for name, value in figure.facts.items()]
    return "; ".join([*([figure.note] if figure.note else []), *facts])


def judge(targets: Sequence[Target], figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Compare the figures with what the project wants, print and return the verdicts."""
    seconds = {(f.case, f.system): f.seconds for f in figures if f.seconds is not None}
    verdicts: list[dict[str, object]] = []
    for target in targets:
        value = seconds.get((target.case, target.system))
        rivals = {
            system: seconds[target.case, system]
            for system in target.against
            if (target.case, system) in seconds
        }
        if value is None or not rivals:
            continue
        best = min(rivals, key=rivals.__getitem__)
        limit_s = max(target.factor * rivals[best] + target.plus_s, target.or_s)
        verdicts.append(
            {
                "case": target.case,
                "system": target.system,
                "against": best,
                "ratio": value / rivals[best],
                "target": _limit(target),
                "met": value <= limit_s,
            }
        )
    _print_verdicts(verdicts)
    return verdicts


def _limit(target: Target) -> str:
    plus = f" + {target.plus_s * 1e6:g} us" if target.plus_s else ""
    other = f" or {target.or_s * 1e6:g} us" if target.or_s else ""
    return f"<= {target.factor:.3g}x{plus}{other}"


def _print_verdicts(verdicts: Sequence[dict[str, object]]) -> None:
    if verdicts:
        rows = [["case", "system", "against", "ratio", "target", ""]]
        for v in verdicts:
            words = [str(v[key]) for key in ("case", "system", "against")]
            met = "met" if v["met"] else "MISSED"
            rows.append([*words, f"{v['ratio']:.3f}", str(v["target"]), met])
        print_rows("targets", rows, words=3)


def write_json(
    name: str, asked: Options, figures: Sequence[Any], extra: Mapping[str, object]
) -> None:
    """Write figures (dataclasses) with everything needed to read them later.

    Raises
    ------
    SystemExit
        There are none: no row has the text of `--only`.
    """
    if not figures:
        raise SystemExit(f"--only {asked.only!r}: no row has this text")
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": name,
        "quick": asked.quick,
        "only": asked.only,
        **environment(),
        "figures": [asdict(figure) for figure in figures],
        **extra,
        "told": _TOLD,
    }
    asked.json.write_text(json.dumps(document, indent=1, default=str) + "\n")
    print(f"\nwrote {os.path.relpath(asked.json)}")


def exit_status(figures: Sequence[Figure]) -> int:
    """Return 1 when a row of ours has no figure: only a missing peer is just a note."""
    return int(any(figure.ours and figure.seconds is None for figure in figures))
