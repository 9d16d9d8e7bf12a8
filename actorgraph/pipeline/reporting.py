"""Simulations and measurements for a terminal: with colours if rich is there, else plain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TextIO

from actorgraph import tables
from actorgraph.pipeline.measuring import Measured
from actorgraph.schedules.actions import Schedule
from actorgraph.schedules.grids import Bar, draw, spans
from actorgraph.schedules.simulation import Simulation, cells_for

COLOURS = {"F": "on blue", "B": "on green", "BW": "on green", "W": "on magenta", "FBW": "on cyan"}
_KINDS = "(F forward, B backward, W gradients of weights)"


class Picture(NamedTuple):
    """Rows of bars to draw below a title; a time of `length` fills the width."""

    title: str
    rows: list[list[Bar]]
    length: float


class Table(NamedTuple):
    """A table of texts, with pictures for its rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    pictures: Sequence[Picture]


def simulations(results: Sequence[Simulation]) -> Table:
    """Return a table of simulations, at least one, and a picture of the first."""
    columns = ("schedule", "makespan", "bubble", "of makespan", "span bubble", "peak")
    first = results[0]
    picture = Picture(f"{first.schedule.name} {_KINDS}", first.bars(), float(first.makespan))
    return Table(columns, [_simulated(one) for one in results], [picture])


def measurements(results: Sequence[Measured]) -> Table:
    """Return a table of measurements, at least one, and the first drawn above its prediction."""
    columns = ("schedule", "measured ms", "predicted ms", "ratio", "bubble ms", "whole run ms")
    first = results[0]
    predicted = float(first.predicted.makespan)
    length = max(first.makespan_s, predicted)
    name = first.schedule.name
    pictures = [
        Picture(f"{name}, measured {_KINDS}", first.rows, length),
        Picture(f"{name}, predicted by its measured costs", first.predicted.bars(), length),
    ]
    return Table(columns, [_measured(one) for one in results], pictures)


def show(table: Table, stream: TextIO, *, width: int) -> None:
    """Write a table and its pictures, which are `width` characters wide.

    They are coloured if the stream is a terminal and rich is installed.
    """
    console = tables.console(stream)
    if console is None:
        stream.write("\n".join(tables.lines(table.columns, table.rows)) + "\n")
        for _, title, rows, cells in _scaled(table, width):
            picture = draw(rows, cells=cells, idle=".")
            stream.write(f"\n{title}\n{picture}\n")
        return
    from rich.text import Text

    console.print(tables.drawn(table.columns, table.rows, box=None))
    for margin, title, rows, cells in _scaled(table, width):
        console.print()
        console.print(Text(title))
        for number, bars in enumerate(rows):
            line = Text(f"{number:>{margin}} | ")
            for piece, kind in spans(bars, cells):
                line.append(piece, COLOURS.get(kind))
            console.print(line, no_wrap=True, overflow="crop")


def _scaled(table: Table, width: int) -> Iterator[tuple[int, str, list[list[Bar]], float]]:
    """Yield the width of the margin, title, rows and scale of each picture."""
    for title, rows, length in table.pictures:
        yield len(str(len(rows) - 1)), title, rows, cells_for(rows, length, width)


def as_json(simulation: Simulation) -> dict[str, Any]:
    """Return the figures of a simulation as values of JSON; fractions become floats."""
    return {
        **_named(simulation.schedule),
        "makespan": float(simulation.makespan),
        "global_bubble": float(simulation.global_bubble),
        "span_bubble": float(simulation.span_bubble),
        "peak_activations": [float(peak) for peak in simulation.peak_activations],
        "peak_memory": [float(peak) for peak in simulation.peak_memory],
    }


def measured_as_json(measured: Measured) -> dict[str, Any]:
    """Return the figures of a measurement as values of JSON."""
    return {
        **_named(measured.schedule),
        "makespan_s": measured.makespan_s,
        "predicted_s": float(measured.predicted.makespan),
        "global_bubble_s": measured.global_bubble_s,
        "run_s": measured.run_s,
        "costs_s": [list(costs) for costs in measured.costs],
        "overhead_s": measured.overhead_s,
        "latency_s": measured.latency_s,
    }


def _named(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule": schedule.name,
        "devices": schedule.devices,
        "stages": schedule.stages,
        "microbatches": schedule.microbatches,
    }


def _simulated(simulation: Simulation) -> tuple[str, ...]:
    share = simulation.global_bubble / simulation.makespan if simulation.makespan else 0
    return (
        simulation.schedule.name,
        f"{float(simulation.makespan):g}",
        f"{float(simulation.global_bubble):g}",
        f"{float(share):.1%}",
        f"{float(simulation.span_bubble):g}",
        f"{float(max(simulation.peak_memory)):g}",
    )


def _measured(measured: Measured) -> tuple[str, ...]:
    predicted_s = float(measured.predicted.makespan)
    return (
        measured.schedule.name,
        _ms(measured.makespan_s),
        _ms(predicted_s),
        f"{measured.makespan_s / predicted_s:.2f}",
        _ms(measured.global_bubble_s),
        _ms(measured.run_s),
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
