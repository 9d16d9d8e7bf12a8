"""Draws schedules and their times as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Bar(NamedTuple):
    """A bar from `start` to `end` of a row; `kind` may give it a colour."""

    start: float
    end: float
    label: str
    kind: str


def spans(row: Sequence[Bar], cells: float) -> list[tuple[str, str]]:
    """Return a row as pieces of text with their kinds; the kind of idle time is ``""``.

    Parameters
    ----------
    row : sequence of Bar
        In order, without overlap.
    cells : float
        Characters for one unit of time.
    """
    pieces: list[tuple[str, str]] = []
    at = 0
    for bar in row:
        first, last = round(bar.start * cells), round(bar.end * cells)
        if first > at:
            pieces.append((" " * (first - at), ""))
        if last > first:
            pieces.append((_fitting(bar.label, bar.kind, last - first), bar.kind))
        at = max(at, last)
    return pieces


def draw(rows: Sequence[Sequence[Bar]], *, cells: float, idle: str) -> str:
    """Return lines of text, a row for each device, with `idle` where a device is idle."""
    margin = len(str(len(rows) - 1))
    lines = []
    for number, row in enumerate(rows):
        text = "".join(piece if kind else idle * len(piece) for piece, kind in spans(row, cells))
        lines.append(f"{number:>{margin}} | {text}".rstrip())
    return "\n".join(lines)


def _fitting(label: str, kind: str, width: int) -> str:
    """Return the label, or its kind if there is no room, followed by a gap if possible."""
    if len(label) <= width:
        return label.ljust(width)
    return (kind[0] * max(width - 1, 1)).ljust(width)
