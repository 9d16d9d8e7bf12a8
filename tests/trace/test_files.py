"""The file for Perfetto keeps to its format."""

import json
from collections import Counter, defaultdict
from fractions import Fraction

import pytest

import actorgraph as ag
from tests.trace.conftest import Planned


def events_in(path):
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms"
    return content["traceEvents"]


def test_every_event_is_of_the_format_and_sorted_by_time(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    assert {event["ph"] for event in events} == set("MXsfCbe")
    timed = [event for event in events if event["ph"] != "M"]
    times = [event["ts"] for event in timed]
    assert times == sorted(times)
    assert times[0] >= 0
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert ("dur" in event) == (event["ph"] == "X")
    assert all(event["dur"] >= 0 for event in timed if event["ph"] == "X")


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


def test_arrows_come_in_pairs_from_slice_to_slice_forwards_in_time(recorded, tmp_path):
    events = events_in(recorded.to_json(tmp_path / "trace.json"))
    tails = {event["id"]: event for event in events if event["ph"] == "s"}
    heads = {event["id"]: event for event in events if event["ph"] == "f"}
    assert len(tails) == sum(message.source is not None for message in recorded.messages)
    assert tails.keys() == heads.keys()
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for key, tail in tails.items():
        head = heads[key]
        assert (tail["name"], tail["cat"]) == (head["name"], head["cat"])
        assert head["bp"] == "e"
        assert tail["ts"] <= head["ts"]
        for end in (tail, head):
            places = slices[end["tid"]]
            assert any(a - 1e-3 <= end["ts"] <= b + 1e-3 for a, b in places)


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
        (2, 0, "F0", 3000.0),
        (2, 1, "F0", 1500.0),
        (3, 0, "B1", 1e6),
    ]
    # Time 0 of a prediction is the start of the first turn.
    began = min(e["ts"] for e in events if e["ph"] == "X" and e["cat"] in ("forward", "backward"))
    assert [e["ts"] - began for e in planned] == pytest.approx([0.0, 3000.0, 1e6], abs=1e-2)


def test_what_is_no_predicted_slice_is_refused(recorded):
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label, got 'F0'"):
        recorded.predict(["F0"])
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label"):
        recorded.predict([Planned(0, "early", "late", "F0")])
