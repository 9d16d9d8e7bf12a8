"""Simulations as tables and pictures for a terminal: with colours if rich is there, else plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from actorgraph.pipeline.grids import spans
from actorgraph.pipeline.simulation import Simulation, cells_for

__all__ = ["as_json", "show"]

COLUMNS = ("schedule", "makespan", "bubble", "of makespan", "span bubble", "peak")
COLOURS = {"F": "on blue", "B": "on green", "BW": "on green", "W": "on magenta", "FBW": "on cyan"}


def show(simulations: Sequence[Simulation], stream: TextIO, *, width: int) -> None:
    """Write a table of the simulations, and a picture of the first.

    Parameters
    ----------
    simulations : sequence of Simulation
        At least one.
    stream : text file
        Coloured if it is a terminal and rich is installed.
    width : int
        Characters of the picture.
    """
    console = _console(stream)
    if console is None:
        stream.write("\n".join([*_table(simulations), "", _title(simulations[0]), ""]))
        stream.write(simulations[0].grid(width) + "\n")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*COLUMNS, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for simulation in simulations:
        table.add_row(*_row(simulation))
    console.print(table)
    console.print()
    console.print(Text(_title(simulations[0])))
    rows = simulations[0].bars()
    cells = cells_for(rows, float(simulations[0].makespan), width)
    margin = len(str(len(rows) - 1))
    for number, row in enumerate(rows):
        line = Text(f"{number:>{margin}} | ")
        for piece, kind in spans(row, cells):
            line.append(piece, COLOURS.get(kind))
        console.print(line, no_wrap=True, overflow="crop")


def as_json(simulation: Simulation) -> dict[str, Any]:
    """Return the figures of a simulation as what `json` can write; fractions become floats."""
    return {
        "schedule": simulation.schedule.name,
        "devices": simulation.schedule.devices,
        "stages": simulation.schedule.stages,
        "microbatches": simulation.schedule.microbatches,
        "makespan": float(simulation.makespan),
        "global_bubble": float(simulation.global_bubble),
        "span_bubble": float(simulation.span_bubble),
        "peak_activations": [float(peak) for peak in simulation.peak_activations],
        "peak_memory": [float(peak) for peak in simulation.peak_memory],
    }


def _console(stream: TextIO) -> Any:
    """Return a console of rich for a terminal, or None."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=stream, highlight=False)


def _row(simulation: Simulation) -> tuple[str, ...]:
    share = simulation.global_bubble / simulation.makespan if simulation.makespan else 0
    return (
        simulation.schedule.name,
        f"{float(simulation.makespan):g}",
        f"{float(simulation.global_bubble):g}",
        f"{float(share):.1%}",
        f"{float(simulation.span_bubble):g}",
        f"{float(max(simulation.peak_memory)):g}",
    )


def _table(simulations: Sequence[Simulation]) -> list[str]:
    rows = [COLUMNS, *map(_row, simulations)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        )
        for row in rows
    ]


def _title(simulation: Simulation) -> str:
    return f"{simulation.schedule.name} (F forward, B backward, W gradients of weights)"
