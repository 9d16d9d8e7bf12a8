"""Names may be any text; what leaves for terminals, files and other people's eyes is printable."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, printable, shown
from actorgraph.trace import live
from actorgraph.trace.live import MachineView

EVIL = "a\x1b[31m\nimport os\u202e\ud800\0"
FEEDS = {EVIL: np.ones((3, 2))}


def is_clean(text):
    return all(line.isprintable() for line in text.split("\n")) and "\nimport" not in text


@pytest.fixture
def named():
    g = ag.Graph(f"g{EVIL}")
    x = g.input(EVIL, ("n", 2), "float64")
    w = g.parameter(f"w{EVIL}", np.ones((2, 2)))
    y = ag.ops.opaque(lambda a: a * 1.0, name=f"op{EVIL}", vjp=lambda i, ct, y, x: ct)(x @ w)
    return g, y, y.sum().named(f"loss{EVIL}")


def test_a_graph_and_what_is_in_it(named):
    g, y, loss = named
    for text in (repr(g), str(g), g.to_dot(), g.to_mermaid(), y.op, *g.nodes, y.where_built()):
        assert is_clean(str(text))
    assert g.node(f"loss{EVIL}") is loss


@pytest.mark.parametrize("fuse", ["none", "auto", "all"])
def test_a_machine_its_runs_and_its_programs(named, fuse):
    _, y, loss = named
    view = live.Live()
    with (
        ag.ActorMachine({f"out{EVIL}": loss, "y": y}, fuse=fuse) as machine,
        ag.trace.use(view),
        ag.trace.record() as recorded,
    ):
        run = machine.run_sync(FEEDS, backward=True)
        texts = [machine, run, run[loss], machine.source, machine.explain(), machine.check()]
        texts += [live.text(view.views()), machine.channels()]
    assert run[f"out{EVIL}"] is run[loss]
    for text in (*texts, recorded.summary()):
        assert is_clean(str(text))


def test_the_files_of_a_recording(named, tmp_path):
    _, _, loss = named
    with ag.TapeMachine([loss]) as machine, ag.trace.record() as recorded:
        machine.run_sync(FEEDS)
    recorded.predict([], name=EVIL)
    page = recorded.to_html(tmp_path / "page.html", title=EVIL).read_text(encoding="utf-8")
    assert is_clean(page.replace("\t", " "))
    assert recorded.to_json(tmp_path / "trace.json").read_text(encoding="utf-8").isascii()


def test_a_pipeline(named):
    with ag.pipeline.Pipeline(named[2], stages=2, microbatches=1, split="n") as pipeline:
        assert is_clean(repr(pipeline))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda g, loss: ag.TapeMachine([loss]).run_sync({}),
        lambda g, loss: ag.TapeMachine([loss]).run_sync({EVIL: np.ones(3)}),
        lambda g, loss: ag.TapeMachine([loss]).run_sync({**FEEDS, f"q{EVIL}": 3}),
        lambda g, loss: ag.TapeMachine([loss], device=EVIL),
        lambda g, loss: ag.ActorMachine([loss], capacity={f"q{EVIL}": 3}),
        lambda g, loss: ag.ops.add(loss, g.node(EVIL).astype("float32")),
        lambda g, loss: ag.Graph().lift(loss),
        lambda g, loss: g.input(EVIL),
        lambda g, loss: g.input("x", (EVIL,)),
        lambda g, loss: ag.TapeMachine(
            [ag.ops.opaque(lambda x: 1 / 0, name=EVIL)(loss)]
        ).run_sync(FEEDS),
        lambda g, loss: ag.pipeline.schedule(EVIL, stages=1, microbatches=1),
    ],
)  # fmt: skip
def test_an_error(named, wrong):
    g, _, loss = named
    with pytest.raises(GraphError, match=r"\\x1b\[31m") as caught:
        wrong(g, loss)
    assert is_clean(str(caught.value))


def test_what_another_process_says_of_its_machines():
    actor = live.ActorView(EVIL, 1, 2, 3.0)
    view = MachineView(EVIL, 1, 0, 0, 0, 0, 0, 0, 0.0, None, [actor])
    assert is_clean(live.text([view]))


def test_printable_text_is_left_alone_and_all_else_is_written_out():
    assert printable("größe 重み ∇ \\n") == "größe 重み ∇ \\n"
    assert printable(EVIL) == r"a\x1b[31m\nimport os\u202e\ud800\x00"


def test_any_value_can_be_shown_in_one_line():
    class Silent:
        def __repr__(self):
            raise RuntimeError

    assert shown("a") == "'a'"
    assert shown(10**10_000) == "a value of type int"
    assert shown(Silent()) == "a value of type Silent"
    assert shown(np.zeros((3, 3))).startswith(r"array([[0., 0., 0.],\n ")
    assert len(shown("a" * 1000)) == 80
