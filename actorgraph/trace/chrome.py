"""A recording as events of the Chrome trace format, which Perfetto reads, too.

Source: Trace Event Format, Google, 2016.  Times are microseconds.  Phases used: ``M`` for names,
``X`` slices, ``s`` and ``f`` the two ends of an arrow, ``C`` counters, ``b`` and ``e`` spans that
may overlap.  Events other than names are sorted by time.  Lanes are threads, numbered from 1: until
2025 Perfetto confused threads 0 and 1 (https://github.com/thoren-d/tracing-chrome/issues/32).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from actorgraph.trace.records import PredictedSlice, Records

COUNTED_CHANNELS = 16
"""Number of channels with counters of their own, the deepest ones."""

_MEASURED = 1
_ORDER = {"b": 0, "X": 1, "s": 2, "f": 3, "C": 4, "e": 5}

Event = dict[str, Any]


def events(records: Records, predicted: Mapping[str, Sequence[PredictedSlice]]) -> list[Event]:
    """Return the events of a recording, with predictions as further processes."""
    names = _tracks(_MEASURED, "measured", _threads(records.lanes))
    timed = [*_slices(records), *_arrows(records), *_counters(records), *_spans(records)]
    for process, (name, slices) in enumerate(predicted.items(), _MEASURED + 1):
        threads = _threads(dict.fromkeys(part.lane for part in slices))
        names += _tracks(process, name, threads)
        timed += [
            _slice(process, threads[part.lane], part.label, "predicted", part.start, part.end)
            for part in slices
        ]
    return [*names, *sorted(timed, key=_when)]


def _threads(lanes: Iterable[str]) -> dict[str, int]:
    return {lane: number for number, lane in enumerate(lanes, 1)}


def _tracks(process: int, name: str, threads: Mapping[str, int]) -> list[Event]:
    named = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 1, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 1,
         "args": {"sort_index": process}},
    ]  # fmt: skip
    for lane, number in threads.items():
        place = {"ph": "M", "pid": process, "tid": number}
        named.append({**place, "name": "thread_name", "args": {"name": lane}})
        named.append({**place, "name": "thread_sort_index", "args": {"sort_index": number}})
    return named


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _slice(
    process: int, lane: int, name: str, category: str, start: float, end: float, **args: Any
) -> Event:
    at = _us(start)
    duration = round(max(0.0, _us(end) - at), 3)
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": lane, "ts": at,
            "dur": duration, "args": args}  # fmt: skip


def _slices(records: Records) -> list[Event]:
    lanes = _threads(records.lanes)
    events = []
    for part in records.slices:
        args: dict[str, Any] = {"run": part.run, "machine": part.machine}
        if part.microbatch is not None:
            args["microbatch"] = part.microbatch
        if part.actor is not None:
            args["waited_us"] = _us(part.waited_s)
            args["received_bytes"], args["sent_bytes"] = part.received_bytes, part.sent_bytes
            args["nodes"] = ", ".join(records.actors[part.actor].nodes[:20])
        events.append(
            _slice(_MEASURED, lanes[part.lane], part.name, part.kind, part.start, part.end, **args)
        )
    return events


def _arrows(records: Records) -> list[Event]:
    lanes = _threads(records.lanes)
    events = []
    for number, message in enumerate(records.messages):
        if message.source is None:
            continue
        sender, receiver = records.slices[message.source], records.slices[message.target]
        # A slice includes its start, but not its end.
        start = max(_us(sender.start), min(_us(message.sent), round(_us(sender.end) - 1e-3, 3)))
        both = {"name": message.edge.kind, "cat": "edge", "id": number, "pid": _MEASURED}
        edge = {"edge": message.edge.name, "bytes": message.bytes}
        events.append({**both, "ph": "s", "tid": lanes[sender.lane], "ts": start, "args": edge})
        end = max(start, _us(message.received))
        # "e": the arrow ends at the slice that encloses this time.
        events.append({**both, "ph": "f", "bp": "e", "tid": lanes[receiver.lane], "ts": end})
    return events


def _counters(records: Records) -> list[Event]:
    """Return counters of messages and bytes in channels: of all, and of the deepest ones."""
    changes: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for message in records.messages:
        machine = records.slices[message.target].machine
        for track in (f"{machine}: channels", f"{machine}: {message.edge.name}"):
            changes[track].append((_us(message.sent), 1, message.bytes))
            changes[track].append((_us(message.received), -1, -message.bytes))
    by_track: dict[str, list[Event]] = {}
    peaks: dict[str, int] = {}
    for track, listed in changes.items():
        listed.sort()
        levels: dict[float, tuple[int, int]] = {}
        depth = size_held = peak = 0
        for at, more, size in listed:
            depth, size_held = depth + more, size_held + size
            peak = max(peak, depth)
            levels[at] = depth, size_held
        peaks[track] = peak
        by_track[track] = [
            {"ph": "C", "name": f"{track}, {what}", "pid": _MEASURED, "tid": 1, "ts": at,
             "args": {what: level}}
            for at, held in levels.items()
            for what, level in zip(("messages", "bytes"), held, strict=True)
        ]  # fmt: skip
    totals = [track for track in by_track if track.endswith(": channels")]
    single = sorted(by_track.keys() - set(totals), key=peaks.__getitem__, reverse=True)
    return [event for track in totals + single[:COUNTED_CHANNELS] for event in by_track[track]]


def _spans(records: Records) -> list[Event]:
    """Return the spans of runs, of their waits for admission, and of asynchronous calls."""
    events: list[Event] = []
    for number, run in enumerate(records.runs):
        start = run.started if run.started is not None else run.admitted
        if start is None:
            continue
        name = f"run {run.number}"
        args = {"machine": run.machine, "error": run.error}
        end = records.duration_s if run.ended is None else run.ended
        events += _span(name, "run", f"run-{number}", start, end, args)
        if run.admission_wait_s:
            waited = f"{name} waits for admission"
            events += _span(
                waited, "admission", f"admission-{number}", start, start + run.admission_wait_s, {}
            )
    for number, call in enumerate(records.calls):
        args = {"machine": call.machine, "error": None}
        events += _span(f"{call.name} (call)", "call", f"call-{number}", call.start, call.end, args)
    return events


def _span(
    name: str, category: str, key: str, start: float, end: float, args: dict[str, Any]
) -> list[Event]:
    both = {"name": name, "cat": category, "id": key, "pid": _MEASURED, "tid": 1}
    begun, ended = _us(start), max(_us(start), _us(end))
    return [{**both, "ph": "b", "ts": begun, "args": args}, {**both, "ph": "e", "ts": ended}]


def _when(event: Event) -> tuple[float, int]:
    return event["ts"], _ORDER[event["ph"]]
