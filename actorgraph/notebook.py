"""Results in notebooks: small HTML tables.  Imported when something is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from actorgraph.errors import printable

_SHOWN = 100
"""Most rows of a table; further rows are only counted."""


def in_words(array: Any) -> str:
    """Return a description of an array: its type, and its value or range."""
    if array is None:
        return ""
    array = np.asarray(array)
    text = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if not array.size:
        return text
    if array.size == 1:
        return f"{text}, {array.reshape(-1)[0]:.6g}"
    if array.dtype.kind not in "iuf":
        return text
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not finite.size:
        return f"{text}, no finite entry"
    missing = array.size - finite.size
    text += f", {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean(dtype=float):.6g}"
    return f"{text}, {missing} not finite" if missing else text


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; texts are escaped."""
    shown = list(rows)
    more = f"; {len(shown) - _SHOWN} more rows" if len(shown) > _SHOWN else ""
    lines = [_row("th", head), *[_row("td", row) for row in shown[:_SHOWN]]]
    return f"<table><caption>{_text(caption + more)}</caption>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(printable(text))


def of_dual(dual: Any) -> str:
    """Return the table of a dual."""
    rows = [(name, in_words(getattr(dual, name))) for name in ("value", "grad", "tangent")]
    name = "Dual" if dual.node is None else f"Dual of {dual.node.name}"
    return table(name, ("", "array"), [row for row in rows if row[1]])


def of_run(caption: str, duals: Iterable[Any]) -> str:
    """Return the table of a run's results."""
    head = ("node", "value", "gradient", "tangent")
    rows = [
        (dual.node.name, in_words(dual.value), in_words(dual.grad), in_words(dual.tangent))
        for dual in duals
    ]
    return table(caption, head, rows)


def verbatim(text: str) -> str:
    """Return preformatted text."""
    return f"<pre>{escape(text)}</pre>"


def framed(page: str) -> str:
    """Return an iframe with a whole page."""
    style = "width: 100%; height: 640px; border: 0"
    return f'<iframe style="{style}" srcdoc="{escape(page)}"></iframe>'
