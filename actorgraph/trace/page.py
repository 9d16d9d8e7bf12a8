"""A recording as one self-contained HTML page: `page.html` with the records inserted."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from html import escape
from importlib.resources import files
from statistics import fmean
from typing import Any

from actorgraph.errors import printable
from actorgraph.tables import is_text
from actorgraph.trace.analysis import Summary, by_actor
from actorgraph.trace.records import Actor, PredictedSlice, Records

MOST_SLICES = 50_000
"""Most slices drawn, the longest ones: a browser has to hold them."""
MOST_ACTORS = 400
"""Most actors drawn, the busiest ones."""

_KINDS = {"F": "forward", "B": "backward", "W": "weights"}
_SWEEPS = 4


def page(
    records: Records, predicted: Mapping[str, Sequence[PredictedSlice]], summary: Summary,
    title: str,
) -> str:  # fmt: skip
    """Return the page."""
    content = {
        "duration": records.duration_s * 1e6,
        "tracks": _tracks(records, predicted),
        "graph": _graph(records),
        "notes": _notes(records),
    }
    # A name may contain text that would end the element, or open a comment.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    template = files("actorgraph.trace").joinpath("page.html").read_text(encoding="utf-8")
    parts = {"title": escape(printable(title)), "summary": _tables(summary), "records": text}
    for name, part in parts.items():
        before, mark, after = template.partition(f"<!--{name}-->")
        assert mark
        parts[name], template = before + part, after
    return "".join([*parts.values(), template])


def _tracks(
    records: Records, predicted: Mapping[str, Sequence[PredictedSlice]]
) -> list[dict[str, Any]]:
    """Return the name and the slices of each lane.

    A slice has start and duration (us), label, kind, run, wait (us), index of the actor, and name.
    In a pipeline's lane the label is that of the schedule, such as B3.
    """
    drawn = _largest([part.seconds for part in records.slices], MOST_SLICES)
    lanes: dict[str, list[Any]] = {lane: [] for lane in records.lanes}
    for index, part in enumerate(records.slices):
        if index in drawn:
            staged = part.actor is not None and records.actors[part.actor].lane is not None
            label = f"{part.kind[0].upper()}{part.microbatch}" if staged else part.name
            lanes[part.lane].append([
                round(part.start * 1e6, 3), round(part.seconds * 1e6, 3), label, part.kind,
                part.run, round(part.waited_s * 1e6, 3), part.actor, part.name,
            ])  # fmt: skip
    tracks = [{"name": lane, "of": "measured", "slices": parts} for lane, parts in lanes.items()]
    for name, slices in predicted.items():
        by_lane: dict[str, list[Any]] = defaultdict(list)
        for one in slices:
            start, duration = round(one.start * 1e6, 3), round((one.end - one.start) * 1e6, 3)
            # The simulator's label is stage, kind and microbatch; the lane tells the stage.
            action = re.fullmatch(r"\d*(([FBW])W?\d+)", one.label)
            label, kind = (action[1], _KINDS[action[2]]) if action else (one.label, "predicted")
            by_lane[one.lane].append([start, duration, label, kind, None, 0, None, one.label])
        tracks += [{"name": lane, "of": name, "slices": parts} for lane, parts in by_lane.items()]
    return tracks


def _graph(records: Records) -> dict[str, Any]:
    """Return the busiest actors with their places in a layered drawing, and their edges."""
    busy = by_actor(records)
    seconds = [busy[at].seconds if at in busy else 0.0 for at in range(len(records.actors))]
    shown = _largest(seconds, MOST_ACTORS)
    actors = [actor for actor in records.actors if actor.index in shown]
    edges = [
        (edge.producer, actor.index, edge.kind)
        for actor in actors
        for edge in actor.edges
        if edge.producer in shown
    ]
    layers = _layers(records.actors)
    columns = _columns([(actor.index, layers[actor.index]) for actor in actors], edges)
    nodes = [
        {
            "id": actor.index, "name": actor.name, "direction": actor.direction,
            "machine": actor.machine, "nodes": actor.nodes[:50], "layer": layers[actor.index],
            "column": columns[actor.index], "us": round(seconds[actor.index] * 1e6, 3),
            "firings": busy[actor.index].firings if actor.index in busy else 0,
        }
        for actor in actors
    ]  # fmt: skip
    return {"nodes": nodes, "edges": edges}


def _columns(
    layered: Sequence[tuple[int, int]], edges: Sequence[tuple[int | None, int, str]]
) -> dict[int, float]:
    """Return for each actor its place in its layer, near its neighbours; layers are centred.

    Barycentre heuristic of Sugiyama, Tagawa and Toda, 1981: sweeps down and up, which sort each
    layer by the mean places of neighbours in the layers before.
    """
    layers: dict[int, list[int]] = defaultdict(list)
    for index, layer in layered:
        layers[layer].append(index)
    near: tuple[dict[int, list[int]], ...] = defaultdict(list), defaultdict(list)
    for producer, consumer, _ in edges:
        assert producer is not None
        near[0][consumer].append(producer)
        near[1][producer].append(consumer)
    places = {index: 0.0 for index, _ in layered}
    for sweep in range(2 * _SWEEPS):
        for layer in sorted(layers, reverse=sweep % 2 == 1):
            among = near[sweep % 2]
            means = {
                index: fmean([places[one] for one in among[index] or [index]])
                for index in layers[layer]
            }
            layers[layer].sort(key=means.__getitem__)
            for place, index in enumerate(layers[layer]):
                places[index] = place - (len(layers[layer]) - 1) / 2
    return places


def _layers(actors: Sequence[Actor]) -> list[int]:
    """Return the layer of each actor: the length of the longest path to it.

    An actor without producers is placed right above its first consumer.
    """
    before = {a.index: [e.producer for e in a.edges if e.producer is not None] for a in actors}
    layers: dict[int, int] = {}
    for at in TopologicalSorter(before).static_order():
        layers[at] = 1 + max([layers[producer] for producer in before[at]], default=-1)
    needed: dict[int, list[int]] = defaultdict(list)
    for at, producers in before.items():
        for producer in producers:
            needed[producer].append(layers[at] - 1)
    return [layers[a.index] or min(needed[a.index], default=0) for a in actors]


def _notes(records: Records) -> list[str]:
    notes = []
    if len(records.slices) > MOST_SLICES:
        notes.append(f"the longest {MOST_SLICES} of {len(records.slices)} slices are drawn")
    if len(records.actors) > MOST_ACTORS:
        notes.append(f"the busiest {MOST_ACTORS} of {len(records.actors)} actors are drawn")
    return notes


def _tables(summary: Summary) -> str:
    parts = [f"<p>{escape(summary.head())}</p>", '<div class="tables">']
    for title, heads, rows in summary.tables():
        kinds = [' class="text"' if is_text(rows, column) else "" for column in range(len(heads))]
        lines = [_line("th", heads, kinds), *[_line("td", row, kinds) for row in rows]]
        parts.append(
            f"<details open><summary>{escape(title)}</summary>"
            f"<table>{''.join(lines)}</table></details>"
        )
    return "\n".join([*parts, "</div>"])


def _line(tag: str, cells: Sequence[str], kinds: Sequence[str]) -> str:
    written = [
        f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)
    ]
    return f"<tr>{''.join(written)}</tr>"


def _largest(values: Sequence[float], count: int) -> set[int]:
    return set(sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count])
