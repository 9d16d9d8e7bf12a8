"""The file for Perfetto keeps to its format."""

import json
from collections import Counter, defaultdict
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

import actorgraph as ag
from tests.trace.conftest import Planned, pipelined


def refuse_constant(name):
    raise AssertionError(f"{name} is no JSON")


def events_in(path):
    content = json.loads(path.read_text(), parse_constant=refuse_constant)
    assert set(content) == {"traceEvents", "displayTimeUnit"}
    assert content["displayTimeUnit"] == "ms"
    validate(content["traceEvents"])
    return content["traceEvents"]


# -- the format: Trace Event Format, Google, 2016, as strictly as Perfetto reads it ----------------

COMMON = {"ph", "name", "pid", "tid"}
FIELDS = {
    "M": COMMON | {"args"},
    "X": COMMON | {"cat", "ts", "dur", "args"},
    "s": COMMON | {"cat", "id", "ts", "args"},
    "f": COMMON | {"cat", "id", "ts", "bp"},
    "C": COMMON | {"ts", "args"},
    "b": COMMON | {"cat", "id", "ts", "args"},
    "e": COMMON | {"cat", "id", "ts"},
}
ARGS = {
    "process_name": {"name": str},
    "process_sort_index": {"sort_index": int},
    "thread_name": {"name": str},
    "thread_sort_index": {"sort_index": int},
}
TEXT, NUMBER = ("ph", "name", "cat", "bp"), ("ts", "dur")


def validate(events):
    """Check a list of events against the format; times are whole nanoseconds."""
    for event in events:
        assert set(event) == FIELDS[event["ph"]], event
        assert all(isinstance(event[key], str) and event[key] for key in TEXT if key in event)
        assert all(type(event[key]) is int and event[key] > 0 for key in ("pid", "tid"))
        for key in set(NUMBER) & set(event):
            assert isinstance(event[key], (int, float))
            assert event[key] >= 0
            assert event[key] * 1e3 == pytest.approx(round(event[key] * 1e3), abs=1e-3)
    timed = [event for event in events if event["ph"] != "M"]
    assert timed == sorted(timed, key=lambda event: event["ts"])
    validate_names([event for event in events if event["ph"] == "M"], timed)
    slices = validate_slices([event for event in timed if event["ph"] == "X"])
    validate_flows([event for event in timed if event["ph"] in "sf"], slices)
    validate_counters([event for event in timed if event["ph"] == "C"])
    validate_spans([event for event in timed if event["ph"] in "be"])


def validate_names(names, timed):
    once = Counter((e["name"], e["pid"], e["tid"] * ("thread" in e["name"])) for e in names)
    assert set(once.values()) <= {1}
    for event in names:
        ((key, kind),) = ARGS[event["name"]].items()
        assert type(event["args"][key]) is kind
    for event in timed:
        assert ("process_name", event["pid"], 0) in once
        if event["ph"] in "Xsf":
            assert ("thread_name", event["pid"], event["tid"]) in once


def nanoseconds(us):
    return round(us * 1e3)


def validate_slices(events):
    """Check that slices of a thread nest, and return begin and end of each."""
    threads = defaultdict(list)
    for event in events:
        start = nanoseconds(event["ts"])
        threads[event["pid"], event["tid"]].append((start, start + nanoseconds(event["dur"])))
    for slices in threads.values():
        open_ends = []
        for start, end in sorted(slices, key=lambda part: (part[0], -part[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], "slices of a thread overlap"
            open_ends.append(end)
    return threads


def validate_flows(events, slices):
    """Check that each arrow has one tail and one later head, both within slices."""
    arrows = defaultdict(list)
    for event in events:
        arrows[event["cat"], event["id"]].append(event)
        at = nanoseconds(event["ts"])
        assert any(start <= at < end for start, end in slices[event["pid"], event["tid"]])
    for tail, head in arrows.values():
        assert (tail["ph"], head["ph"], head["bp"]) == ("s", "f", "e")
        assert tail["name"] == head["name"]


def validate_counters(events):
    series = {}
    for event in events:
        assert series.setdefault((event["pid"], event["name"]), set(event["args"])) == set(
            event["args"]
        )
        assert all(type(level) in (int, float) for level in event["args"].values())


def validate_spans(events):
    """Check that spans of one id nest and all end."""
    open_spans = defaultdict(list)
    for event in events:
        spans = open_spans[event["pid"], event["cat"], event["id"]]
        if event["ph"] == "b":
            spans.append(event["name"])
        else:
            assert spans.pop() == event["name"]
    assert not any(open_spans.values())


def test_every_event_is_of_the_format(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    assert {event["ph"] for event in events} == set("MXsfCbe")


async def answer(xp, value):
    return value + 1


def run_inside(xp, value):
    """Run another machine within an op."""
    x = ag.Graph("inner").input("x", (), "float32")
    with ag.ActorMachine([x * 2.0], fuse="none") as machine:
        machine.run_sync({x: np.float32(1)})
    return value


def refuse(xp, value):
    raise ValueError("no")


later = ag.ops.define("files_later", scheme="f[*s] -> f[*s]", forward=answer)
nested = ag.ops.define("files_nested", scheme="f[*s] -> f[*s]", forward=run_inside)
broken = ag.ops.define("files_broken", scheme="f[*s] -> f[*s]", forward=refuse)


@pytest.mark.parametrize("of", ["nothing", "direct", "calls", "nested", "failed", "tape"])
def test_recordings_of_every_kind_are_of_the_format(of, model, tmp_path):
    op = {"calls": later, "nested": nested, "failed": broken}.get(of, ag.ops.neg)
    fuse = "auto" if of == "direct" else "none"
    kind = ag.TapeMachine if of == "tape" else ag.ActorMachine
    with kind([op(model.loss)], fuse=fuse) as machine, ag.trace.record() as t:
        for _ in range(0 if of == "nothing" else 3):
            with suppress(ag.NodeError):
                machine.run_sync(model.feeds)
    found = Counter(event["ph"] for event in events_in(t.to_json(tmp_path / "trace.json")))
    assert (found["X"] > 0) == (of != "nothing")
    assert (found["s"] > 0) == (of in ("calls", "nested", "failed"))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zb-h1"])
def test_recordings_of_pipelines_are_of_the_format(schedule, tmp_path):
    t = pipelined(schedule)
    events = events_in(t.to_json(tmp_path / "trace.json"))
    tracks = {
        (event["pid"], event["args"]["name"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] != "MainThread"
    }
    assert tracks == {(process, f"stage {stage}") for process in (1, 2) for stage in (0, 1)}
    batches = {e["args"]["microbatch"] for e in events if e["ph"] == "X" and e["cat"] == "forward"}
    assert batches == {0, 1, 2, 3}


def test_there_is_one_named_track_a_lane(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    named = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    assert tuple(named.values()) == recorded.lanes
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} == set(named)
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(recorded.slices)
    assert {"run", "machine", "waited_us", "received_bytes", "sent_bytes", "nodes"} <= set(
        slices[-1]["args"]
    )


def test_arrows_lead_from_the_slice_that_has_sent_to_the_one_that_has_received(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    tails = {event["id"]: event for event in events if event["ph"] == "s"}
    heads = {event["id"]: event for event in events if event["ph"] == "f"}
    sent = [message for message in recorded.messages if message.source is not None]
    assert len(tails) == len(heads) == len(sent)

    def names_at(end):
        return [
            event["name"]
            for event in events
            if (event["ph"], event["tid"]) == ("X", end["tid"])
            and event["ts"] <= end["ts"] < event["ts"] + event["dur"]
        ]

    for key, tail in tails.items():
        message = recorded.messages[key]
        assert names_at(tail) == [recorded.slices[message.source].name]
        assert names_at(heads[key]) == [recorded.slices[message.target].name]
        assert tail["args"] == {"edge": message.edge.name, "bytes": message.bytes}


def test_counters_of_channels_go_up_and_end_at_zero(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    levels = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            ((_, level),) = event["args"].items()
            levels[event["name"]].append(level)
    assert {"model: channels, messages", "model: channels, bytes"} <= set(levels)
    assert any(name.startswith("model: h -> left") for name in levels)
    assert len(levels) <= 2 * (1 + ag.trace.chrome.COUNTED_CHANNELS)
    for name, found in levels.items():
        assert min(found) == 0, name
        assert found[-1] == 0, name
    assert max(levels["model: channels, messages"]) > 1


def test_runs_and_their_admission_are_spans_that_end(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    begun = Counter((e["cat"], e["id"]) for e in events if e["ph"] == "b")
    ended = Counter((e["cat"], e["id"]) for e in events if e["ph"] == "e")
    assert begun == ended
    assert set(begun.values()) == {1}
    assert sum(category == "run" for category, _ in begun) == 12
    assert any(category == "admission" for category, _ in begun)  # 8 are in flight at once


def test_a_prediction_is_a_process_of_its_own_next_to_what_was_measured(recorded, tmp_path):
    recorded.predict(
        [Planned("stage 0", 0, 3, "F0"), Planned("stage 1", Fraction(3), Fraction(9, 2), "F0")],
        unit_s=1e-3,
    )
    recorded.predict([Planned(0, 1.0, 2.0, "B1")], name="other")
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    names = {
        event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    assert list(names.values()) == ["measured", "predicted", "other"]
    planned = [event for event in events if event.get("cat") == "predicted"]
    assert [(e["pid"], e["tid"], e["name"], e["dur"]) for e in planned] == [
        (2, 1, "F0", 3000.0),
        (2, 2, "F0", 1500.0),
        (3, 1, "B1", 1e6),
    ]
    # Time 0 of a prediction is the start of the first turn.
    began = min(e["ts"] for e in events if e["ph"] == "X" and e["cat"] in ("forward", "backward"))
    assert [e["ts"] - began for e in planned] == pytest.approx([0.0, 3000.0, 1e6], abs=1e-2)


def test_what_is_no_predicted_slice_is_refused(recorded):
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label, got 'F0'"):
        recorded.predict(["F0"])
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label"):
        recorded.predict([Planned(0, "early", "late", "F0")])
    for start, end in [(1, 0), (0, float("inf")), (float("nan"), 1), (float("inf"), float("inf"))]:
        with pytest.raises(TypeError, match="it should end after its start, both at finite times"):
            recorded.predict([Planned(0, start, end, "F0")])
