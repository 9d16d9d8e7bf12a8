"""A live view says what machines do now, in this process and through a socket."""

import io
import sys
import threading

import anyio
import anyio.lowlevel
import pytest

import actorgraph as ag
from actorgraph import instrument
from actorgraph.errors import GraphError, NodeError
from actorgraph.trace import live as live_module
from actorgraph.trace.live import Live, text
from tests._until import until

entered, go = threading.Event(), threading.Event()
gates = []


def hold(xp, value):
    entered.set()
    assert go.wait(20)
    return value


def refuse(xp, value):
    raise ValueError("no")


async def answer(xp, value):
    await gates[-1].wait()
    return value + 1


held = ag.ops.define("live_held", scheme="f[*s] -> f[*s]", forward=hold)
broken = ag.ops.define("live_broken", scheme="f[*s] -> f[*s]", forward=refuse)
later = ag.ops.define("live_later", scheme="f[*s] -> f[*s]", forward=answer)


def test_runs_are_counted_and_actors_listed(model):
    with model.actors() as machine, ag.trace.use(Live()) as live:
        assert live.views() == []
        for _ in range(5):
            machine.run_sync(model.feeds)
        (view,) = live.views()
    assert (view.name, view.workers, view.ended, view.failed) == ("model", 2, 5, 0)
    assert (view.queued, view.in_flight, view.loop_late_s) == (0, 0, None)
    assert view.per_s > 0
    assert {actor.name for actor in view.actors} >= {"h", "left", "right", "loss"}
    assert all(actor.depth == 0 for actor in view.actors)
    assert live.views() == []  # the machine was closed


def test_small_runs_of_their_caller_are_counted_too(model):
    with ag.ActorMachine([model.loss]) as machine, ag.trace.use(Live()) as live:
        machine.run_sync(model.feeds)
        assert [view.ended for view in live.views()] == [1]


def test_what_is_stuck_is_seen(model):
    entered.clear()
    go.clear()
    first = held(model.loss).named("first")
    options = {"fuse": "none", "workers": 1, "max_in_flight": 2}
    with ag.ActorMachine([first], **options) as machine, ag.trace.use(Live()) as live:
        runs = [machine.start(model.feeds) for _ in range(5)]
        assert entered.wait(20)
        (view,) = live.views()
        go.set()
        for run in runs:
            run.result()
        (after,) = live.views()
    assert (view.busy, view.in_flight, view.queued, view.ended) == (1, 2, 3, 0)
    assert sum(actor.depth for actor in view.actors) > 0
    assert (after.in_flight, after.queued, after.ended) == (0, 0, 5)


def test_failures_and_missed_deadlines_are_counted(model):
    machine = ag.ActorMachine([broken(model.loss)], fuse="none")
    with machine, ag.trace.use(Live()) as live:
        with pytest.raises(NodeError, match="ValueError: no"):
            machine.run_sync(model.feeds)
        with pytest.raises(TimeoutError, match="did not end in time"):
            machine.run_sync(model.feeds, timeout_s=0)
        (view,) = live.views()
    assert (view.ended, view.failed, view.late) == (2, 2, 1)


@pytest.mark.anyio
async def test_lateness_is_that_of_the_loop_that_awaits_a_run(model, monkeypatch):
    now = [10.0]
    monkeypatch.setattr(live_module, "monotonic", lambda: now[0])
    gates.append(anyio.Event())
    async with ag.ActorMachine([later(model.loss)]) as machine:
        with ag.trace.use(Live()) as live:
            run = machine.start(model.feeds)
            await until(lambda: machine._core.calls)
            assert live.views()[0].loop_late_s is None  # asked only now
            now[0] += 0.25
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            late_s = live.views()[0].loop_late_s
            gates[-1].set()
            await run
    assert late_s == 0.25


def test_counting_runs_does_not_look_at_turns(model):
    with model.actors() as machine, ag.trace.use(Live()), ag.trace.use(Live(), machine):
        assert instrument.listening_to_turns == set()
        assert len(instrument.listening) == 2


def test_text_has_a_line_a_machine_and_a_line_an_actor(model):
    assert text([]) == "no machine is open and has run"
    with model.actors() as machine, ag.trace.use(Live()) as live:
        machine.run_sync(model.feeds)
        lines = text(live.views()).splitlines()
    assert lines[0].startswith("model: ")
    assert "0 in flight, 0 queued" in lines[0]
    assert lines[1].split() == ["actor", "depth", "turns", "ms"]
    assert any(line.split()[:2] == ["h", "0"] for line in lines[2:])


def test_top_draws_in_this_process(model, monkeypatch):
    console = pytest.importorskip("rich.console", reason="rich is not installed")
    drawn = io.StringIO()
    screen = console.Console(file=drawn, force_terminal=True, width=120)
    monkeypatch.setattr("rich.live.get_console", lambda: screen)
    with model.actors() as machine, ag.trace.top(per_second=20):
        machine.run_sync(model.feeds)
    assert "1 ended, 0 failed" in drawn.getvalue()
    assert "right" in drawn.getvalue()
    assert instrument.listening == set()


def test_what_was_drawn_last_stays_when_machines_close(model):
    pytest.importorskip("rich", reason="rich is not installed")
    latest = []
    with ag.trace.use(Live()) as live:
        with model.actors() as machine:
            machine.run_sync(model.feeds)
            live_module._table_of(live, latest)
        assert live.views() == []
        head, _ = live_module._table_of(live, latest).renderables
    assert "1 ended, 0 failed" in str(head)


def test_top_without_rich_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.live", None)
    with pytest.raises(GraphError, match=r"needs rich: pip install 'actorgraph\[demo\]'"):
        ag.trace.top().__enter__()
