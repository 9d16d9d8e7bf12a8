"""The page needs nothing but itself, draws everything, and can be worked with in a browser."""

import json
import re
from collections import Counter
from html.parser import HTMLParser

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.trace.page import _columns, _layers
from actorgraph.trace.records import Actor, Edge
from tests import _browser
from tests.trace.conftest import Planned, pipelined


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


def test_a_pipeline_is_drawn_by_its_actions_and_so_is_its_prediction(tmp_path):
    t = pipelined()
    tracks = records_of(t.to_html(tmp_path / "trace.html").read_text())["tracks"]
    of = {(track["name"], track["of"]): track["slices"] for track in tracks}
    for stage in ("stage 0", "stage 1"):
        measured, planned = of[stage, "measured"], of[stage, "predicted"]
        assert {part[2] for part in measured} >= {"F0", "F3", "B0", "B3"}
        assert {part[2].replace("BW", "B") for part in planned} <= {part[2] for part in measured}
        assert {part[3] for part in planned} == {"forward", "backward"}
        assert planned[0][0] == pytest.approx(of["stage 0", "measured"][0][0], abs=1e6)
    first = min(part.start for part in t.slices if part.actor is not None)
    assert of["stage 0", "predicted"][0][0] == pytest.approx(first * 1e6, abs=0.01)


def test_an_actor_that_waits_for_nobody_stands_above_the_first_that_needs_it():
    #  0 -> 1 -> 2 -> 4, 3 -> 4
    def actor(index, *producers):
        edges = tuple(Edge("edge", "value", producer) for producer in producers)
        return Actor(index, str(index), "forward", "g", (), edges)

    actors = [actor(0), actor(1, 0), actor(2, 1), actor(3), actor(4, 2, 3), actor(5)]
    assert _layers(actors) == [0, 1, 2, 2, 3, 0]


def test_places_in_layers_are_near_their_neighbours():
    #  0   1   2       layer 0; 0 is joined to 5, 1 to 4, 2 to 3
    #  3   4   5       layer 1
    layered = [(index, index // 3) for index in range(6)]
    places = _columns(layered, [(0, 5, "value"), (1, 4, "value"), (2, 3, "value")])
    assert [places[a] == places[b] for a, b in ((0, 5), (1, 4), (2, 3))] == [True] * 3
    assert sorted(places[index] for index in range(3)) == [-1.0, 0.0, 1.0]
    assert _columns([(0, 0), (1, 1), (2, 1)], [(0, 1, "value"), (0, 2, "value")]) == {
        0: 0.0,
        1: -0.5,
        2: 0.5,
    }


# -- in a browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with _browser.started() as browser:
        yield browser


@pytest.fixture
def shown(browser, recorded, tmp_path):
    """The browser with the page of a recording."""
    page = recorded.to_html(tmp_path / "trace.html", title="a recording").as_uri()
    browser.open(page)
    yield browser
    assert browser.faults() == []
    assert browser.asked == [page]


def place_of_slice(browser, row, number):
    """Return where in the window a slice is drawn."""
    return browser.ask(
        f"""(() => {{
            const s = records.tracks[{row}].slices[{number}], box = canvas.getBoundingClientRect();
            return [box.left + x_of(s[0] + s[1] / 2), box.top + HEAD + ROW * ({row} + 0.5)];
        }})()"""
    )


def look_of(browser):
    return browser.ask("[left, right, end]")


def actors_row(recorded):
    """Return the number of a track that has turns of actors, and of a turn in the middle."""
    turns = [part for part in recorded.slices if part.actor is not None]
    row = recorded.lanes.index(turns[-1].lane)
    of_lane = [part for part in recorded.slices if part.lane == turns[-1].lane]
    return row, of_lane.index(turns[-1])


@pytest.mark.oracle
def test_a_browser_without_network_draws_all_tracks_and_nodes(shown, recorded):
    drawn = f"{len(recorded.slices)} slices, {len(recorded.actors)} actors"
    assert shown.ask("document.body.dataset.drawn") == drawn
    assert shown.ask("document.querySelector('h1').textContent") == "a recording"
    label = shown.ask("canvas.getAttribute('aria-label')")
    assert label == f"{len(recorded.lanes)} tracks: {', '.join(recorded.lanes)}"
    texts = shown.ask("[...document.querySelectorAll('#graph .node text')].map(t => t.textContent)")
    names = [text.removesuffix(" ←") for text in texts[::2]]
    assert sorted(names) == sorted(
        actor.name.removesuffix(" (backward)") for actor in recorded.actors
    )
    edges = sum(edge.producer is not None for actor in recorded.actors for edge in actor.edges)
    assert shown.ask("document.querySelectorAll('#graph path').length") == edges
    tables = shown.ask("[...document.querySelectorAll('summary')].map(s => s.textContent)")
    assert tables == [title for title, _, _ in recorded.summary().tables()]


@pytest.mark.oracle
def test_every_track_is_coloured_where_its_slices_are(shown, recorded):
    for row, lane in enumerate(recorded.lanes):
        number = sum(part.lane == lane for part in recorded.slices) // 2
        shown.ask(f"const s{row} = records.tracks[{row}].slices[{number}]")
        shown.ask(f"look(s{row}[0] - s{row}[1], s{row}[0] + 2 * s{row}[1])")
        colours = shown.ask(
            f"""(() => {{
                const dots = window.devicePixelRatio || 1, y = HEAD + ROW * {row} + 5;
                const at = share => [...pen.getImageData(
                    dots * x_of(s{row}[0] + share * s{row}[1]), dots * y, 1, 1).data].join();
                return [at(0.5), at(-0.9)];
            }})()"""
        )
        assert colours[0] != colours[1]


@pytest.mark.oracle
def test_labels_stay_in_their_boxes_and_boxes_apart(shown):
    boxes = shown.ask(
        """[...document.querySelectorAll('#graph .node')].map(node => {
            const box = node.querySelector('rect').getBBox();
            const texts = [...node.querySelectorAll('text')].map(text => text.getBBox());
            const right = Math.max(...texts.map(text => text.x + text.width));
            const bottom = Math.max(...texts.map(text => text.y + text.height));
            return [box.x, box.y, box.x + box.width, box.y + box.height, right, bottom];
        })"""
    )
    for number, (x, y, right, bottom, text_right, text_bottom) in enumerate(boxes):
        assert text_right <= right
        assert text_bottom <= bottom
        for other in boxes[:number]:
            assert right <= other[0] or other[2] <= x or bottom <= other[1] or other[3] <= y


@pytest.mark.oracle
def test_wheel_and_keys_zoom_drag_and_arrows_move_and_a_double_click_shows_all(shown):
    x, y = shown.ask(
        """(box => [box.left + LABEL + (box.width - LABEL) / 2, box.top + 30])(
            canvas.getBoundingClientRect())"""
    )
    left, right, end = look_of(shown)
    assert (left, right) == (0, end)
    shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-500)
    left, right, _ = look_of(shown)
    assert (left + right) / 2 == pytest.approx(end / 2, rel=0.01)
    assert right - left == pytest.approx(end * np.exp(-1), rel=0.01)
    shown.mouse("mousePressed", x, y)
    shown.call(
        "Input.dispatchMouseEvent", type="mouseMoved", x=x + 60, y=y, button="left", buttons=1
    )
    shown.mouse("mouseReleased", x + 60, y)
    moved_left, moved_right, _ = look_of(shown)
    assert moved_left < left
    assert moved_right - moved_left == pytest.approx(right - left)
    shown.press("ArrowRight")
    assert look_of(shown)[0] > moved_left
    shown.press("+")
    assert look_of(shown)[1] - look_of(shown)[0] == pytest.approx(0.6 * (right - left))
    for _ in range(30):
        shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=2000)
    assert look_of(shown) == [0, end, end]  # there is nothing beyond its ends
    shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-500)
    shown.click(x, y, times=2)
    assert look_of(shown) == [0, end, end]


@pytest.mark.oracle
def test_a_click_marks_an_actor_in_timeline_and_graph(shown, recorded):
    row, number = actors_row(recorded)
    shown.ask(
        f"const s = records.tracks[{row}].slices[{number}]; look(s[0] - s[1], s[0] + 2 * s[1])"
    )
    x, y = place_of_slice(shown, row, number)
    shown.mouse("mouseMoved", x, y)
    name = shown.ask("s[7]")
    assert shown.ask("tip.textContent").startswith(name)
    assert shown.ask("tip.style.display") == "block"
    shown.click(x, y)
    marked = "[...document.querySelectorAll('#graph .node.chosen')].map(n => +n.dataset.actor)"
    assert shown.ask(marked) == [shown.ask("s[6]")] == [shown.ask("chosen")]
    assert shown.ask("document.querySelectorAll('#graph path.chosen').length") > 0
    shown.press("Escape")
    assert shown.ask(marked) == []
    x, y = shown.ask(
        """(node => { node.scrollIntoView(); const b = node.getBoundingClientRect();
        return [b.left + 20, b.top + 10]; })(document.querySelector('#graph .node'))"""
    )
    shown.click(x, y)
    assert shown.ask(marked) == [shown.ask("chosen")]
    shown.click(x, y)
    assert shown.ask("chosen") is None


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["nothing", "caller", "names", "pipeline"])
def test_a_browser_draws_recordings_of_every_kind(kind, browser, model, tmp_path):
    if kind == "pipeline":
        t = pipelined("zb-h1")
        t.predict([Planned("L" * 80, 0, 1e-3, "no action")], name="other")
    else:
        name = "</script>" + "W" * 60 if kind == "names" else "y"
        y = (model.loss * 2.0).named(name)
        fuse = "none" if kind == "names" else "auto"
        with ag.ActorMachine([y], fuse=fuse) as machine, ag.trace.record() as t:
            if kind != "nothing":
                machine.run_sync(model.feeds)
    browser.open(t.to_html(tmp_path / "trace.html").as_uri(), wide=500)
    assert browser.ask("document.body.dataset.drawn").endswith(f"{len(t.actors)} actors")
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    assert browser.faults() == []
