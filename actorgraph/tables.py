"""Tables of texts for a terminal: as plain lines, or drawn by rich if it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

Rows = Sequence[Sequence[str]]


def is_text(rows: Rows, column: int) -> bool:
    """Return whether a column is text; figures are right-aligned."""
    return not all(row[column][:1].isdigit() for row in rows)


def lines(heads: Sequence[str], rows: Rows) -> list[str]:
    """Return a table as lines, first that of the heads."""
    table = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    left = [is_text(rows, column) for column in range(len(heads))]
    return [
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, left, strict=True)
        ).rstrip()
        for row in table
    ]


def drawn(heads: Sequence[str], rows: Rows, **options: Any) -> Any:
    """Return a table of rich, in which cells are plain text, not markup."""
    from rich import table as rich_table
    from rich.text import Text

    table = rich_table.Table(**options)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if is_text(rows, number) else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def console(stream: TextIO) -> Any:
    """Return rich's console for a terminal or notebook; None for other streams, or without rich."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    screen = Console(file=stream, highlight=False)
    return screen if screen.is_terminal or screen.is_jupyter else None
