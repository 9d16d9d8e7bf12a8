"""A recording as one HTML page that needs nothing but itself: `page.html` with records in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from actorgraph.trace.analysis import Summary
from actorgraph.trace.assembly import Records
from actorgraph.trace.records import Actor, PredictedSlice

__all__ = ["page"]

MOST_SLICES = 50_000
"""Slices drawn, the longest ones: a browser has to hold them."""
MOST_ACTORS = 400
"""Actors drawn, the busiest ones."""


def page(
    records: Records,
    predicted: Mapping[str, Sequence[PredictedSlice]],
    summary: Summary,
    title: str,
) -> str:
    """Return the page."""
    content = {
        "duration": records.duration_s * 1e6,
        "tracks": _tracks(records, predicted),
        "graph": _graph(records),
        "notes": _notes(records),
    }
    # A name may hold what would end the element, or open a comment in it.
    text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c")
    template = files("actorgraph.trace").joinpath("page.html").read_text(encoding="utf-8")
    parts = {"title": escape(title), "summary": _tables(summary), "records": text}
    for name, part in parts.items():
        before, mark, after = template.partition(f"<!--{name}-->")
        assert mark
        parts[name], template = before + part, after
    return "".join([*parts.values(), template])


def _tracks(
    records: Records, predicted: Mapping[str, Sequence[PredictedSlice]]
) -> list[dict[str, Any]]:
    """Return name and slices of each lane: start, duration (us), label, kind, run, wait (us)."""
    kept = _largest([part.seconds for part in records.slices], MOST_SLICES)
    lanes: dict[str, list[Any]] = {lane: [] for lane in records.lanes}
    for index, part in enumerate(records.slices):
        if index in kept:
            lanes[part.lane].append([
                round(part.start * 1e6, 3), round(part.seconds * 1e6, 3), part.name, part.kind,
                part.run, round(part.waited_s * 1e6, 3),
            ])  # fmt: skip
    tracks = [{"name": lane, "of": "measured", "slices": parts} for lane, parts in lanes.items()]
    for name, slices in predicted.items():
        by_lane: dict[str, list[Any]] = defaultdict(list)
        for one in slices:
            start, taken = round(one.start * 1e6, 3), round((one.end - one.start) * 1e6, 3)
            by_lane[one.lane].append([start, taken, one.label, "predicted", None, 0])
        tracks += [{"name": lane, "of": name, "slices": parts} for lane, parts in by_lane.items()]
    return tracks


def _graph(records: Records) -> dict[str, Any]:
    """Return the busiest actors with their place in a layered drawing, and the edges among them."""
    seconds = [0.0] * len(records.actors)
    firings: list[set[int]] = [set() for _ in records.actors]
    for part in records.slices:
        if part.actor is not None:
            seconds[part.actor] += part.seconds
            firings[part.actor].add(part.run)
    shown = _largest(seconds, MOST_ACTORS)
    layers = _layers(records.actors)
    columns: dict[int, int] = defaultdict(int)
    nodes, edges = [], []
    for actor in records.actors:
        if actor.index not in shown:
            continue
        layer = layers[actor.index]
        nodes.append({
            "id": actor.index, "name": actor.name, "direction": actor.direction,
            "machine": actor.machine, "nodes": actor.nodes[:50], "layer": layer,
            "column": columns[layer], "us": round(seconds[actor.index] * 1e6, 3),
            "firings": len(firings[actor.index]),
        })  # fmt: skip
        columns[layer] += 1
        edges += [
            [edge.producer, actor.index, edge.kind]
            for edge in actor.edges
            if edge.producer in shown
        ]
    return {"nodes": nodes, "edges": edges}


def _layers(actors: Sequence[Actor]) -> list[int]:
    """Return the length of the longest path to each actor, without recursion."""
    layers: dict[int, int] = {}
    for actor in actors:
        stack = [actor.index]
        while stack:
            at = stack[-1]
            producers = [e.producer for e in actors[at].edges if e.producer is not None]
            missing = [producer for producer in producers if producer not in layers]
            if missing:
                stack += missing
            else:
                layers[at] = 1 + max([layers[producer] for producer in producers], default=-1)
                stack.pop()
    return [layers[actor.index] for actor in actors]


def _notes(records: Records) -> list[str]:
    notes = []
    if len(records.slices) > MOST_SLICES:
        notes.append(f"the longest {MOST_SLICES} of {len(records.slices)} slices are drawn")
    if len(records.actors) > MOST_ACTORS:
        notes.append(f"the busiest {MOST_ACTORS} of {len(records.actors)} actors are drawn")
    return notes


def _tables(summary: Summary) -> str:
    parts = [f"<p>{escape(summary.head())}</p>"]
    for title, heads, rows in summary.tables():
        cells = "".join(f"<th>{escape(head)}</th>" for head in heads)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        parts.append(
            f"<details open><summary>{escape(title)}</summary>"
            f"<table><tr>{cells}</tr>{body}</table></details>"
        )
    return "\n".join(parts)


def _largest(values: Sequence[float], count: int) -> set[int]:
    """Return the indices of the `count` largest values."""
    return set(sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count])
