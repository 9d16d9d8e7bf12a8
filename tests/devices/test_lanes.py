"""Lanes that several threads use: order, credits, copies, events, and runs that share a lane."""

import threading

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices import base, checker, cuda
from actorgraph.devices.base import Lane
from actorgraph.devices.events import HostEvent
from actorgraph.devices.virtual import ThreadQueue, Virtual
from actorgraph.lower.placing import Placing
from actorgraph.lower.residents import Brought
from tests.devices.test_checker import run_on
from tests.devices.test_cuda import same


def in_a_thread(call):
    """Return what a call gives in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def others_may_take(lock):
    def taken():
        had = lock.acquire(blocking=False)
        if had:
            lock.release()
        return had

    return in_a_thread(taken)


class Gate:
    """A job that returns when it may."""

    def __init__(self):
        self.may = threading.Event()

    def __call__(self, *arrays):
        assert self.may.wait(30)
        return np.ones(2)


# -- ends -------------------------------------------------------------------------------------


class Meanwhile:
    """Has somebody else begin to use a device in the moment when its last machine has let go."""

    def __init__(self, monkeypatch, device, begin):
        self.values, was = [], ThreadQueue.stop

        def stop(queue, join):
            if not self.values:
                device.retain()
                self.values.extend(begin())
            was(queue, join=False)

        monkeypatch.setattr(ThreadQueue, "stop", stop)
        device.retain()
        device.lane(0).launch(np.zeros, [device.hold(2)], name="first")
        device.release()


def test_a_lane_stays_in_order_when_its_last_machine_ends_while_another_begins(monkeypatch):
    device, gate = Virtual("shared"), Gate()
    lane = device.lane(0)
    begun = Meanwhile(monkeypatch, device, lambda: [lane.launch(gate, [], name="gate")])
    behind = lane.launch(np.negative, begun.values, name="behind", record=True)
    gate.may.set()
    assert behind.fetch().tolist() == [-1.0, -1.0]
    device.release()


def test_memory_of_who_begins_is_not_freed_by_who_ends(monkeypatch):
    device, gate, freed = Virtual("shared"), Gate(), []
    home, other = device.lane(0), device.lane(1)

    def begin():
        value = home.launch(np.ones, [device.hold(2)], name="value")
        read = other.launch(lambda *arrays: gate(), [value], name="read", record=True)
        return [value.cell, read]

    monkeypatch.setattr(ThreadQueue, "free", lambda queue, cell: freed.append(cell))
    cell, read = Meanwhile(monkeypatch, device, begin).values
    assert cell not in freed
    gate.may.set()
    read.event.block()
    home.settle()
    assert cell in freed
    device.release()


def test_threads_of_a_device_end_with_its_last_machine_and_not_before():
    device, gate = Virtual("ends"), Gate()
    for _ in range(2):
        device.retain()
        device.lane(0).launch(gate, [], name="gate")
    device.release()
    assert [one for one in threading.enumerate() if one.name == "actorgraph-ends lane 0"]
    gate.may.set()
    device.release()
    assert not [one for one in threading.enumerate() if one.name == "actorgraph-ends lane 0"]


# -- values -----------------------------------------------------------------------------------


def test_a_value_is_fetched_when_it_is_there():
    device = ag.devices.adversary("cpu")
    value = device.lane(0).launch(np.ones, [device.hold(2)], name="late")
    assert value.fetch().tolist() == [1.0, 1.0]


def test_a_job_ends_before_the_event_behind_it_whatever_others_do_meanwhile():
    device = ag.devices.adversary("cpu")
    lane, other = device.lane(0), device.lane(1)
    later = other.launch(np.ones, [device.hold(2)], name="later", record=True)
    passed, events = [], []

    def work():
        later.event.block()
        while device.step():
            pass
        passed.extend(event.passed for event in events)

    with base.issuing:
        lane.launch(work, [], name="work")
        events.append(lane.record())
    events[0].block()
    assert passed == [False]


@pytest.mark.parametrize("call", ["resident", "bring", "fetch"])
def test_a_value_is_copied_once_however_many_workers_ask_for_it(call, monkeypatch):
    x = ag.Graph().parameter("x", np.ones(3))
    device, alone = devices.get("virtual:0"), []
    placing = Placing(x.graph, [device], 1)
    placing.retain()
    brought = placing.resident(x, x.held.array)
    place = {"resident": ("_residents", dict), "fetch": ("transfers", dict)}.get(call)
    if place is None:
        was = Virtual.bring

        def bring(*given):
            alone.append(not others_may_take(base.issuing))
            return was(*given)

        monkeypatch.setattr(Virtual, "bring", bring)
    else:

        class Watched(dict):
            def __setitem__(self, key, value):
                alone.append(not others_may_take(base.issuing))
                super().__setitem__(key, value)

        setattr(placing, place[0], Watched(getattr(placing, place[0])))
    again = placing.resident(x, x.held.array.copy())
    there = placing.bring(brought, device, None)
    assert placing.bring(brought, device, None) is there
    assert placing.fetch(there, "results").fetch().tolist() == [1.0, 1.0, 1.0]
    assert isinstance(again, Brought)
    assert alone
    assert all(alone)
    placing.release()


def test_clocks_of_the_checker_are_merged_by_one_thread_at_a_time(monkeypatch):
    alone, was = [], checker._merge

    def merge(*clocks):
        alone.append(not others_may_take(base.issuing))
        was(*clocks)

    monkeypatch.setattr(checker, "_merge", merge)
    run_on(ag.devices.check("virtual:0"))
    assert alone
    assert all(alone)


# -- credits ----------------------------------------------------------------------------------


def test_who_launches_waits_where_a_lane_is_far_behind(monkeypatch):
    device, gate, launched, waits = Virtual("slow"), Gate(), [], threading.Event()
    lane, block = device.lane(0), HostEvent.block

    def blocks(event):
        waits.set()
        block(event)

    def launch():
        for _ in range(2000):
            lane.await_credit()
            launched.append(lane.launch(np.ones, [device.hold(2)], name="one"))

    device.retain()
    lane.launch(gate, [], name="gate")
    monkeypatch.setattr(HostEvent, "block", blocks)
    thread = threading.Thread(target=launch)
    thread.start()
    assert waits.wait(30)
    assert len(launched) < base._MARKED * (base._MARKS + 1)
    gate.may.set()
    thread.join()
    assert len(launched) == 2000
    assert launched[-1].fetch().tolist() == [1.0, 1.0]
    device.release()


@pytest.mark.parametrize("kind", ["virtual", "adversary", "cuda"])
def test_a_run_of_more_steps_than_a_lane_has_credits_ends(kind, monkeypatch, world):
    monkeypatch.setattr(base, "_MARKED", 2)
    monkeypatch.setattr(Lane, "await_credit", counted(Lane.await_credit, blocked := []))
    device = {"virtual": "virtual:3", "cuda": "cuda:0"}.get(kind) or ag.devices.adversary("cpu")
    devices._known.pop("virtual:3", None)
    x = ag.Graph().input("x", (3,), "float64")
    nodes = [x, x + 1.0]
    for _ in range(60):
        nodes.append(nodes[-1] * 0.5 + nodes[-2])
    with ag.ActorMachine([nodes[-1]], device=device, lanes=2, fuse="none") as machine:
        found = machine.run_sync({"x": np.ones(3)})[nodes[-1]].value
    with ag.LispMachine([nodes[-1]]) as machine:
        assert same([found], [machine.run_sync({"x": np.ones(3)})[nodes[-1]].value])
    assert any(blocked)


def counted(call, found):
    def awaits(lane):
        found.append(len(lane.ahead) == base._MARKS)
        assert in_a_thread(lambda: base.issuing.acquire(timeout=30) and not base.issuing.release())
        call(lane)

    return awaits


# -- machines that share a lane ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["virtual:2", "check", "cuda:0"])
def test_a_machine_inside_an_op_of_its_own_device_is_refused_and_does_not_hang(kind, world):
    device = ag.devices.check("virtual:2") if kind == "check" else kind
    x = ag.Graph().input("x", (2,), "float64")
    feeds, used = {"x": np.ones(2)}, []

    def forward(xp, a):
        used[-1].run_sync(feeds)
        return a + 1.0

    name = f"op_with_machine_{kind.replace(':', '_')}"
    y = ag.ops.define(name, scheme="x[*s] -> x[*s]", forward=forward)(x)
    with (
        ag.ActorMachine([y], device=device) as outer,
        ag.ActorMachine([x * 2.0], device=device) as same_device,
        ag.ActorMachine([x * 2.0]) as elsewhere,
    ):
        used.append(same_device)
        with pytest.raises(ag.NodeError, match=r"(?s)run inside an op on .* lane 0.*on 'cpu'"):
            outer.run_sync(feeds)
        used.append(elsewhere)
        assert outer.run_sync(feeds)[y].value.tolist() == [2.0, 2.0]


def test_two_machines_that_share_a_lane_both_get_on():
    gate = Gate()
    x = ag.Graph().input("x", (2,), "float64")
    held = ag.ops.define("op_held", scheme="x[*s] -> x[*s]", forward=lambda xp, a: gate() * a)(x)
    checked = ag.devices.check("virtual:2")
    with ag.ActorMachine([held], device=checked) as one:
        first = one.start({"x": np.ones(2)})
        with ag.ActorMachine([x + 1.0], device=checked) as other:
            second = other.start({"x": np.ones(2)})
            gate.may.set()
            assert second.result()[x + 1.0].value.tolist() == [2.0, 2.0]
        assert first.result()[held].value.tolist() == [1.0, 1.0]
    assert checked.report() == []


# -- constants, and arrays of others ----------------------------------------------------------


@pytest.mark.parametrize("make", [ag.ActorMachine, ag.LispMachine])
def test_a_constant_for_which_there_is_no_memory_is_named_and_the_next_run_is_right(make):
    failing = []

    class Small(Virtual):
        def to_device(self, array):
            if failing and array.size == 7:
                raise MemoryError("no room")
            return np.array(array)

    g = ag.Graph()
    x = g.input("x", (1,), "float64")
    y = x * g.constant(np.arange(7.0)).named("seven")
    with make([y], device=Small("small")) as machine:
        failing.append(True)
        with pytest.raises(ag.NodeError, match=r"(?s)'seven'.*no room.*device: small") as caught:
            machine.run_sync({"x": np.ones(1)})
        assert caught.value.node == "seven"
        failing.clear()
        for _ in range(2):
            assert machine.run_sync({"x": np.ones(1)})[y].value.tolist() == [*range(7)]


def test_a_device_that_takes_no_arrays_of_others_says_so():
    with pytest.raises(ag.GraphError, match="virtual:0 takes no arrays of other libraries"):
        devices.get("virtual:0").adopt(np.ones(2))


# -- streams ----------------------------------------------------------------------------------


def test_a_stream_is_made_by_one_thread(world, monkeypatch):
    device, alone = devices.get("cuda:0"), []
    was = device.new_stream

    def made(*given):
        alone.append(not others_may_take(device.making))
        return was(*given)

    monkeypatch.setattr(device, "new_stream", made)
    queue = device.lane(0).queue
    assert queue.made() is queue.made()
    assert alone == [True]


def test_the_end_of_a_gpu_waits_for_what_is_not_issued_yet(world, monkeypatch):
    device, gate = devices.get("cuda:0"), Gate()

    def opening(call):
        def opened(*given):
            gate.may.set()
            return call(*given)

        return opened

    monkeypatch.setattr(cuda._StreamEvent, "block", opening(cuda._StreamEvent.block))
    monkeypatch.setattr(device, "stop", opening(device.stop))
    device.retain()
    device.issue(gate)
    device.lane(0).launch(lambda *_: stand_in.cupy.ones(2), [], name="late")
    device.release()
    assert not any(stream.todo for stream in world.streams)


def test_copies_and_the_longest_path_go_first_on_a_gpu(world):
    device = devices.get("cuda:0")
    found = {which: device.lane(which).queue.made().priority for which in (0, 1, "in", "out")}
    assert found == {0: -1, 1: 0, "in": -2, "out": -2}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_lane_has_the_priority_that_the_user_says(world, wrapped):
    x = ag.Graph().input("x", (3,), "float64")
    with ag.device("cuda:0", lane=2, priority=-3):
        y = ag.ops.exp(x)
    z = (y * 2.0).on("cuda:0", lane=1, priority=-5)
    device = ag.devices.check("cuda:0") if wrapped else devices.get("cuda:0")
    with ag.ActorMachine([z], device=device, lanes=3) as machine:
        machine.run_sync({"x": np.ones(3)})
    assert {stream.priority for stream in world.streams} == {-5, -3, -2}
    assert {which: device.lane(which).priority for which in range(4)} == {0: -1, 1: -5, 2: -3, 3: 0}


def test_a_priority_that_no_lane_can_have_is_told():
    text = "a priority is a whole number from -5 .first. to 0"
    for bad in (1, -6, 0.0, True, "high"):
        with pytest.raises(ag.GraphError, match=text), ag.device("virtual:9", lane=1, priority=bad):
            pass
    with pytest.raises(ag.GraphError, match="say which, by lane="):
        ag.devices.placement("virtual:9", priority=-1)
    ag.devices.placement("virtual:9", lane=1)
    device = devices.get("virtual:9")
    assert device.lane(1, priority=-4).priority == -4
    for _ in range(2):
        with pytest.raises(ag.GraphError, match="virtual:9 lane 1 has priority -4.*got -2"):
            ag.devices.placement("virtual:9", lane=1, priority=-2)
    assert ag.devices.placement("virtual:9", lane=1, priority=-4).lane == 1


def events_of_runs(count):
    """Return how many events some runs in flight need, and whether they are right."""
    x = ag.Graph().input("x", (3,), "float64")
    y = ag.ops.exp(x)
    for number in range(6):
        y = ag.ops.sin(y + x).on("cuda:0", lane=number % 2)
    before = len(stand_in.known_events)
    feeds = [{"x": np.full(3, float(i))} for i in range(count)]
    with ag.ActorMachine([y], device="cuda:0", lanes=2, fuse="none") as machine:
        found = [run[y].value for run in machine.stream(feeds, max_in_flight=4)]
    with ag.LispMachine([y], device="cpu") as machine:
        y.graph.placements.clear()
        expected = [machine.run_sync(one)[y].value for one in feeds]
    return len(stand_in.known_events) - before, same(found, expected)


def test_events_are_used_again(world):
    made, right = events_of_runs(40)
    assert right
    assert made < 6 * 40  # each run has more
    assert world.races == []


def read_behind_an_event(monkeypatch):
    """Return the races of some seeds, where others record events before one is waited for."""
    races = []
    for seed in range(12):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        device = devices.get("cuda:0")
        device.retain()
        first = device.bring(np.ones(8))
        for _ in range(12):
            first = device.lane(0).launch(stand_in.cupy.sin, [first], name="sin", record=True)
        second = device.lane(1).launch(lambda: stand_in.cupy.ones(8), [], name="ones", record=True)
        read = device.lane(2).launch(stand_in.cupy.negative, [first], name="negative")
        assert second.fetch().shape == (8,)
        assert read.fetch().shape == (8,)
        device.release()
        races += made.races[:1]
    return races


def test_an_event_that_is_used_again_too_early_is_a_race_for_some_seed(world, monkeypatch):
    """It is taken for idle while others may still have to wait for it."""
    idle_event = cuda.CUDA.idle_event

    def still_idle(device):
        made = idle_event(device)
        device.events.append(made)
        return made

    assert read_behind_an_event(monkeypatch) == []
    monkeypatch.setattr(cuda.CUDA, "idle_event", still_idle)
    monkeypatch.setattr(cuda.CUDA, "is_passed", lambda *_: True)
    assert len(read_behind_an_event(monkeypatch)) > 3
