"""The file for Perfetto keeps to its format; the page needs nothing but itself."""

import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

import actorgraph as ag


@dataclass
class Planned:
    lane: object
    start: object
    end: object
    label: str


@pytest.fixture
def recorded(model):
    with model.actors() as machine, ag.trace.record() as t:
        for run in [machine.start(model.feeds, backward=True) for _ in range(12)]:
            run.result()
    return t


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
    assert [(e["pid"], e["tid"], e["name"], e["ts"], e["dur"]) for e in planned] == [
        (2, 0, "F0", 0.0, 3000.0),
        (2, 1, "F0", 3000.0, 1500.0),
        (3, 0, "B1", 1e6, 1e6),
    ]
    page = recorded.to_html(tmp_path / "trace.html").read_text()
    tracks = records_of(page)["tracks"]
    assert [track["of"] for track in tracks[-3:]] == ["predicted", "predicted", "other"]


def test_what_is_no_predicted_slice_is_refused(recorded):
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label, got 'F0'"):
        recorded.predict(["F0"])
    with pytest.raises(TypeError, match="has lane, start, end .numbers. and label"):
        recorded.predict([Planned(0, "early", "late", "F0")])


# -- the page -----------------------------------------------------------------------------------


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.addresses = []
        self.elements = Counter()

    def handle_starttag(self, tag, attrs):
        self.elements[tag] += 1
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]


def records_of(page):
    (text,) = re.findall(r'type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_page_holds_everything_itself(recorded, tmp_path):
    page = recorded.to_html(tmp_path / "trace.html", title="a <run> & more").read_text()
    reader = Reader()
    reader.feed(page)
    assert reader.addresses == []
    assert reader.elements["link"] == reader.elements["img"] == reader.elements["iframe"] == 0
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    # Names of namespaces are no addresses that a browser would open.
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "<title>a &lt;run&gt; &amp; more</title>" in page
    assert "critical path of run" in page
    assert "<!--" not in page


def test_page_draws_every_slice_and_the_graph_in_layers(recorded, tmp_path):
    records = records_of(recorded.to_html(tmp_path / "trace.html").read_text())
    assert sum(len(track["slices"]) for track in records["tracks"]) == len(recorded.slices)
    nodes = {node["id"]: node for node in records["graph"]["nodes"]}
    assert {node["name"] for node in nodes.values()} == {a.name for a in recorded.actors}
    assert all(node["firings"] == 12 for node in nodes.values())
    assert len({(node["layer"], node["column"]) for node in nodes.values()}) == len(nodes)
    for producer, consumer, _ in records["graph"]["edges"]:
        assert nodes[producer]["layer"] < nodes[consumer]["layer"]
    assert records["notes"] == []


def test_name_of_a_node_cannot_break_the_page(tmp_path):
    g = ag.Graph("</script><b>")
    x = g.input("x", shape=(2,))
    y = (x * 2).named("</script><!--")
    with ag.ActorMachine([y], fuse="none") as machine, ag.trace.record() as t:
        machine.run_sync({"x": np.ones(2, "float32")})
    page = t.to_html(tmp_path / "trace.html").read_text()
    assert page.count("</script>") == 2
    assert [node["name"] for node in records_of(page)["graph"]["nodes"]] == ["</script><!--"]


def test_page_of_a_large_recording_draws_the_largest_and_says_so(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr("actorgraph.trace.page.MOST_SLICES", 10)
    monkeypatch.setattr("actorgraph.trace.page.MOST_ACTORS", 3)
    records = records_of(recorded.to_html(tmp_path / "trace.html").read_text())
    assert sum(len(track["slices"]) for track in records["tracks"]) == 10
    assert len(records["graph"]["nodes"]) == 3
    assert [note.split(" of ")[0] for note in records["notes"]] == [
        "the longest 10",
        "the busiest 3",
    ]


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def test_a_browser_without_network_draws_the_page(recorded, tmp_path):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no headless browser: none of {', '.join(BROWSERS)} is on the PATH")
    page = recorded.to_html(tmp_path / "trace.html")
    ended = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--host-rules=MAP * ^NOTFOUND",
         f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    drawn = f"{len(recorded.slices)} slices, {len(recorded.actors)} actors"
    assert f'data-drawn="{drawn}"' in ended.stdout
    assert ended.stdout.count('class="node"') == len(recorded.actors)
