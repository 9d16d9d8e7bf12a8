"""A recording holds who did what, when, for which run, and what was sent to whom."""

import threading
from collections import Counter
from itertools import pairwise

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from actorgraph import instrument
from actorgraph.errors import GraphError, NodeError
from actorgraph.lower import fusion
from tests._soak import SOAK
from tests._until import until

gates = []


async def answer(xp, value):
    await gates[-1].wait()
    return value + 1


def refuse(xp, value):
    raise ValueError("no")


later = ag.ops.define("record_later", scheme="f[*s] -> f[*s]", forward=answer)
broken = ag.ops.define("record_broken", scheme="f[*s] -> f[*s]", forward=refuse)


def turns(trace):
    return [part for part in trace.slices if part.actor is not None]


def test_every_node_fires_once_for_every_run(model):
    with model.actors(max_in_flight=3) as machine:
        with ag.trace.record() as t:
            runs = [machine.start(model.feeds, backward=True) for _ in range(20)]
            for run in runs:
                run.result()
        names = {task.spec.name for network in machine._networks() for task in network.tasks}
    assert {actor.name for actor in t.actors} == names
    fired = Counter((part.name, part.run) for part in turns(t))
    assert fired == dict.fromkeys([(n, r.number) for n in names for r in runs], 1)
    assert {actor.direction for actor in t.actors} == {"forward", "backward"}
    assert [run.number for run in t.runs] == list(range(20))
    assert all(run.started <= run.admitted <= run.ended for run in t.runs)
    assert max(run.admission_wait_s for run in t.runs) > 0


def test_no_turn_is_lost_when_the_block_ends_with_its_last_run(model):
    with model.actors(workers=2) as machine:
        machine.run_sync(model.feeds)
        count = len(machine._networks()[0].tasks)
        for _ in range(50):
            with ag.trace.record() as t:
                run = machine.start(model.feeds)
                run.result()
            assert len(turns(t)) == count


def test_slices_of_a_lane_do_not_overlap_and_are_sorted_by_time(model):
    with model.actors() as machine, ag.trace.record() as t:
        for run in [machine.start(model.feeds, backward=True) for _ in range(10)]:
            run.result()
    assert [part.start for part in t.slices] == sorted(part.start for part in t.slices)
    for lane in t.lanes:
        parts = [part for part in t.slices if part.lane == lane]
        assert all(a.end <= b.start for a, b in pairwise(parts))
    assert all(0 <= part.ready <= part.start <= part.end <= t.duration_s for part in t.slices)


def test_messages_say_who_sent_what_and_how_much(model):
    with model.actors() as machine, ag.trace.record() as t:
        machine.run_sync(model.feeds)
    found = {message.edge.name: message for message in t.messages}
    h = [name for name in found if name.endswith(" -> h")]
    assert len(h) == 1
    matmul = t.slices[found[h[0]].source]
    assert matmul.name.startswith("matmul")
    assert found[h[0]].bytes == 2 * 3 * 4  # the batch is known from the run
    assert found["h -> left"].bytes == found["h -> right"].bytes == 24
    assert found["left -> loss"].bytes == 4
    by_name = {part.name: part for part in turns(t)}
    assert by_name["h"].received_bytes == 24
    assert by_name["h"].sent_bytes == 48
    assert found["h -> left"].source == t.slices.index(by_name["h"])
    assert all(message.sent <= message.received for message in t.messages)
    assert found[f"x -> {matmul.name}"].source is None


def test_residuals_are_edges_from_forward_to_backward(model):
    with model.actors() as machine, ag.trace.record() as t:
        machine.run_sync(model.feeds, backward=True)
    (saved,) = [m for m in t.messages if m.edge.name == "residual of h -> h (backward)"]
    assert (saved.edge.kind, saved.bytes) == ("residual", 24)
    assert t.slices[saved.source].kind == "forward"
    assert t.slices[saved.target].kind == "backward"


@pytest.mark.parametrize("kind", [ag.ActorMachine, ag.TapeMachine])
def test_small_run_of_its_caller_is_one_slice_in_its_thread(kind, model):
    with kind([model.loss]) as machine, ag.trace.record() as t:
        machine.run_sync(model.feeds)
    (part,) = turns(t)
    assert (part.name, part.kind) == ("loss, W", "direct")
    assert part.lane == threading.current_thread().name
    assert {"h", "left", "right", "loss"} <= set(t.actors[0].nodes)
    assert [p.kind for p in t.slices] == ["feeds", "direct"]


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.LispMachine])
def test_a_machine_with_one_task_shows_one_slice_a_run(kind, model):
    with kind([model.loss], statistics=True) as machine, ag.trace.record() as t:
        machine.run_sync(model.feeds, backward=True)
        machine.run_sync(model.feeds, backward=True)
    assert [part.run for part in turns(t)] == [0, 1]


def test_all_machines_of_the_process_are_recorded_and_told_apart(model):
    with model.actors() as one, model.actors() as other, ag.trace.record() as t:
        one.run_sync(model.feeds)
        other.run_sync(model.feeds)
    assert {part.machine for part in t.slices} == {"model", "model (2)"}
    assert Counter((p.machine, p.run) for p in t.slices if p.kind == "feeds") == {
        ("model", 0): 1,
        ("model (2)", 0): 1,
    }


def test_errors_are_noted_with_their_run(model):
    with ag.ActorMachine([broken(model.loss)], fuse="none") as machine, ag.trace.record() as t:
        run = machine.start(model.feeds)
        with pytest.raises(NodeError, match="ValueError: no"):
            run.result()
    assert [run.error for run in t.runs] == ["NodeError"]
    assert t.summary().failed == 1


@pytest.mark.anyio
async def test_an_asynchronous_call_is_a_span_between_two_turns(model):
    gates.append(anyio.Event())
    async with ag.ActorMachine([later(model.loss).named("reply")], fuse="none") as machine:
        with ag.trace.record() as t:
            run = machine.start(model.feeds)
            await until(lambda: machine._core.calls)
            gates[-1].set()
            await run
    before, after = [part for part in turns(t) if part.name == "reply"]
    (call,) = t.calls
    assert (call.name, call.run) == ("reply", 0)
    assert before.start <= call.start <= call.end
    assert before.end <= after.end
    assert [step.name for step in t.summary().path][-2:] == ["reply", "reply"]


def test_recordings_may_overlap(model):
    with model.actors() as machine, ag.trace.record() as outer:
        machine.run_sync(model.feeds)
        with ag.trace.record() as inner:
            machine.run_sync(model.feeds)
    assert {part.run for part in outer.slices} == {0, 1}
    assert {part.run for part in inner.slices} == {1}


def test_a_trace_keeps_neither_machine_nor_arrays_alive(model):
    import gc
    import weakref

    with model.actors() as machine, ag.trace.record() as t:
        run = machine.run_sync(model.feeds)
    seen = [weakref.ref(machine), weakref.ref(run), weakref.ref(run.core)]
    del machine, run
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3
    assert len(turns(t)) > 0


def test_a_run_in_flight_before_the_recording_is_left_out_and_does_no_harm(model):
    entered, go = threading.Event(), threading.Event()

    def wait(xp, value):
        entered.set()
        assert go.wait(20)
        return value

    held = ag.ops.define("record_held", scheme="f[*s] -> f[*s]", forward=wait)
    with ag.ActorMachine([held(model.loss)], fuse="none") as machine:
        early = machine.start(model.feeds)
        assert entered.wait(20)
        with ag.trace.record() as t:
            go.set()
            early.result()
            machine.run_sync(model.feeds)
    assert {run.number for run in t.runs if run.started is not None} == {1}
    assert {part.run for part in turns(t)} >= {1}


def test_a_trace_cannot_be_read_before_its_end():
    with ag.trace.record() as t:
        assert repr(t) == "<Trace, recording>"
        with pytest.raises(GraphError, match="the recording has not ended; read it after"):
            t.summary()
    assert repr(t).startswith("<Trace of 0 slices in 0 runs")
    assert t.summary().path == ()


def test_recording_leaves_results_as_they_are(model):
    with model.actors() as machine:
        plain = machine.run_sync(model.feeds, backward=True)
        with ag.trace.record():
            seen = machine.run_sync(model.feeds, backward=True)
    assert np.array_equal(plain[model.W].grad, seen[model.W].grad)
    assert np.array_equal(plain[model.loss].value, seen[model.loss].value)
    assert instrument.listening == set()


SEEDS = range(12) if SOAK else range(2)


@pytest.mark.soak
@pytest.mark.parametrize("capacity", [None, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_turn_is_missed_or_told_twice_while_workers_meet(seed, capacity, monkeypatch):
    monkeypatch.setattr(fusion, "HEAVY_US", 0.0)  # every turn is offered to other workers
    g = ag.Graph()
    x = g.input("x", shape=(4,))
    W = g.parameter("W", np.ones(4, "float32"))
    branches = [np.tanh(x * W * float(i + 1)).sum() for i in range(12)]
    loss = ag.ops.stack(branches).sum()
    feeds = {"x": np.ones(4, "float32")}
    options = {"fuse": "none", "workers": 4, "max_in_flight": 6}
    machine = ag.ActorMachine([loss], seed=seed, capacity=capacity, **options)
    with machine, ag.trace.record() as t:
        runs = [machine.start(feeds, backward=True) for _ in range(40)]
        for run in runs:
            run.result()
    fired = Counter((part.actor, part.run) for part in turns(t))
    assert fired == dict.fromkeys([(a.index, r.number) for a in t.actors for r in runs], 1)
    assert all(message.sent <= message.received for message in t.messages)
