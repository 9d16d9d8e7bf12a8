"""Nodes on devices: where they run, what is copied, and that results are those of the CPU."""

import os
import threading
from itertools import count

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.virtual import Virtual
from tests._each import each
from tests.machines.conftest import no_thread_is_left  # noqa: F401 - for all tests here

MACHINES = [ag.ActorMachine, ag.TapeMachine, ag.LispMachine]
every_machine = pytest.mark.parametrize("machine", MACHINES)

DEVICES = {
    "one lane": lambda: {"device": "virtual:0"},
    "lanes": lambda: {"device": "virtual:0", "lanes": 4, "fuse": "none"},
    "two devices": lambda: {"devices": ["virtual:0", "virtual:1"], "lanes": 2, "fuse": "none"},
    "checked": lambda: {"device": ag.devices.check("virtual:0"), "lanes": 3, "fuse": "none"},
    "checked cpu": lambda: {"device": ag.devices.check("cpu"), "lanes": 2},
    "adversary": lambda: {
        "device": ag.devices.adversary("cpu", seed=3),
        "lanes": 3,
        "fuse": "none",
    },
}
every_device = pytest.mark.parametrize("options", DEVICES.values(), ids=DEVICES)


numbers = count()


def op(forward):
    """Declare an op of a user's."""
    name = f"op_on_lane_{next(numbers)}"
    return ag.ops.define(name, scheme="x[*s] -> x[*s]", forward=forward)


class Net:
    def __init__(self):
        draw = np.random.default_rng(0)
        self.g = ag.Graph("net")
        self.x = self.g.input("x", ("n", 4), "float64")
        self.W = self.g.parameter("W", draw.normal(size=(4, 3)))
        self.b = self.g.parameter("b", draw.normal(size=3))
        self.h = ag.ops.tanh(self.x @ self.W + self.b)
        self.loss = (self.h * self.h).mean()
        self.feeds = {"x": draw.normal(size=(5, 4))}

    def expected(self, **options):
        """What the CPU computes; asked for once before there is a loop."""
        with ag.LispMachine([self.loss, self.h]) as machine:
            return machine.run_sync(self.feeds, **options)

    def same(self, run, expected):
        for node in (self.loss, self.h):
            assert run[node].value.tobytes() == expected[node].value.tobytes()
        for node in (self.W, self.b):
            if expected[node].grad is not None:
                assert run[node].grad.tobytes() == expected[node].grad.tobytes()


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def on_cpu(net):
    return net.expected()


# -- results ----------------------------------------------------------------------------------


@every_machine
@every_device
def test_values_and_gradients_have_the_bits_of_the_cpu(net, machine, options):
    given = options()
    with machine([net.loss, net.h], **given) as made:
        for _ in range(2):
            net.same(made.run_sync(net.feeds, backward=True), net.expected(backward=True))
        net.same(made.run_sync(net.feeds), net.expected())
    report = getattr(made.device, "report", list)
    assert report() == []


@every_device
def test_tangents_too(net, options):
    tangents = {"W": np.ones((4, 3))}
    expected = net.expected(tangents=tangents)
    with ag.ActorMachine([net.loss, net.h], **options()) as machine:
        run = machine.run_sync(net.feeds, tangents=tangents)
    assert run[net.loss].tangent == expected[net.loss].tangent


@every_machine
def test_a_result_is_the_callers_own(net, machine):
    with machine([net.h], device="virtual:0") as made:
        first = made.run_sync(net.feeds)[net.h].value
        kept = first.copy()
        first += 1.0
        assert made.run_sync(net.feeds)[net.h].value.tobytes() == kept.tobytes()


OTHER_ORDERS = {
    "turned": lambda x: x.T,
    "backwards": lambda x: x[::-1],
    "with gaps": lambda x: x.T[::2],
    "a row again and again": lambda x: ag.ops.broadcast_to(x[0], (50, 41)),
    "a matrix again and again": lambda x: ag.ops.broadcast_to(x[None], (3, 37, 41)),
}
READS = {
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(0),
    "sum of last": lambda x: x.sum(-1),
    "sum of exponentials": lambda x: ag.ops.exp(x).sum(),
    "product": lambda x: ag.ops.swapaxes(x, -1, -2) @ x,
}


@every_device
@each("shown", OTHER_ORDERS.values())
def test_what_reads_copies_of_views_has_the_bits_of_the_cpu(shown, options):
    """NumPy adds up in the order of memory, so copies have the strides of their source."""
    given = options()
    one, two = given.get("devices", (given.get("device"),) * 2)
    x = ag.Graph().input("x", (37, 41), "float64")
    feeds = {"x": np.random.default_rng(0).normal(size=(37, 41))}
    with ag.device("cpu"):
        here = shown(x)
    with ag.device(one):
        there = ag.ops.to_device(here, one)
        made = [read(there) for read in READS.values()]
        views = shown(x)
    with ag.device(two):
        made += [read(ag.ops.to_device(views, two)) for read in READS.values()]
    with ag.device("cpu"):
        made += [read(ag.ops.to_device(views, "cpu")) for read in READS.values()]
        wanted = [read(here) for read in READS.values()]
    with ag.LispMachine(wanted, wrt=[]) as machine, ag.ActorMachine(made, **given) as other:
        expected, run = machine.run_sync(feeds), other.run_sync(feeds)
        for node, as_on_cpu in zip(made, wanted * 3, strict=True):
            assert run[node].value.tobytes() == expected[as_on_cpu].value.tobytes()


def test_user_ops_and_watched_values_and_errstate_hold_on_a_lane(net):
    seen = []
    double = op(lambda xp, a: (seen.append(threading.current_thread().name), a * 2.0)[1],
    )  # fmt: skip
    with ag.ActorMachine([double(net.h)], device="virtual:0") as machine:
        machine.run_sync(net.feeds)
    assert seen == ["actorgraph-virtual:0 lane 0"]
    log = ag.ops.log(net.x - net.x).named("log")
    for watch, divide, text in ((("inf",), "ignore", "Inf"), ((), "raise", "divide by zero")):
        with (
            ag.ActorMachine([log], device="virtual:0", watch=watch) as machine,
            np.errstate(divide=divide),
            pytest.raises(ag.NodeError, match=text),
        ):
            machine.run_sync(net.feeds)


@pytest.mark.anyio
async def test_asynchronous_ops_run_on_the_host_between_nodes_of_a_device(net, on_cpu):
    async def forward(xp, a):
        assert type(a) is np.ndarray
        return a + 1.0

    call = op(forward)
    y = ag.ops.exp(call(net.h)).named("y")
    async with ag.ActorMachine([y], device="virtual:0") as machine:
        run = await machine.run(net.feeds)
    assert np.allclose(run[y].value, np.exp(on_cpu[net.h].value + 1.0))


def test_an_op_on_a_lane_that_runs_its_own_machine_is_told(net):
    again = op(lambda xp, a: machine.run_sync(net.feeds))
    with (
        ag.ActorMachine([again(net.h)], device="virtual:0") as machine,
        pytest.raises(ag.NodeError, match="run_sync was called inside an op of the same machine"),
    ):
        machine.run_sync(net.feeds)


@pytest.mark.anyio
async def test_several_asynchronous_ops_wait_at_once(net):
    inside, all_inside = [], anyio.Event()

    async def forward(xp, a):
        inside.append(1)
        if len(inside) == 4:
            all_inside.set()
        with anyio.fail_after(30):
            await all_inside.wait()
        return a + 1.0

    call = op(forward)
    calls = [ag.ops.exp(call(net.h * float(number))) for number in range(4)]
    async with ag.ActorMachine(calls, device="virtual:0") as machine:
        await machine.run(net.feeds)


@pytest.mark.anyio
async def test_runs_are_awaited_and_streamed(net, on_cpu):
    async with ag.ActorMachine([net.loss, net.h], device="virtual:0", lanes=2) as machine:
        net.same(await machine.run(net.feeds), on_cpu)
        async for run in machine.stream([net.feeds] * 20, max_in_flight=8):
            net.same(run, on_cpu)


def test_steps_train_as_on_the_cpu(net):
    values = []
    for device in ("cpu", "virtual:0"):
        other = Net()
        with ag.ActorMachine([other.loss], device=device, lanes=2) as machine:
            step = machine.compile_step(ag.solvers.Adam(lr=0.1))
            for _ in range(3):
                step(other.feeds)
            values.append(other.W.value.copy())
    assert values[0].tobytes() == values[1].tobytes()


def test_buffers_are_assigned(net):
    count = net.g.buffer("count", np.zeros(()))
    net.g.assign(count, count + 1.0, on=net.loss)
    with ag.ActorMachine([net.loss], device="virtual:0") as machine:
        for _ in range(3):
            machine.run_sync(net.feeds)
    assert count.value == 3.0


# -- transfers --------------------------------------------------------------------------------


def test_a_second_run_copies_no_parameter(net):
    with ag.ActorMachine([net.loss], device="virtual:0", lanes=4, fuse="none") as machine:
        machine.run_sync(net.feeds, backward=True)
        assert machine.transfers["parameters"] == 2
        machine.run_sync(net.feeds)
        assert machine.transfers == {"parameters": 2, "feeds": 3, "edges": 0, "results": 4}
        net.W.value = net.W.value + 1.0
        run = machine.run_sync(net.feeds)
        assert machine.transfers["parameters"] == 3
    assert run[net.loss].value == net.expected()[net.loss].value


def test_what_is_written_into_a_parameter_is_seen_by_the_next_run(net):
    with ag.ActorMachine([net.loss], device="virtual:0") as machine:
        machine.run_sync(net.feeds)
        net.W.value[...] = 2.0
        run = machine.run_sync(net.feeds)
    assert run[net.loss].value == net.expected()[net.loss].value


def test_a_value_left_on_its_device_is_fed_without_a_copy(net):
    t = net.g.input("t", ("n", 3), "float64")
    y = (t * 2.0).named("y")
    with ag.ActorMachine([net.h], device="virtual:0") as machine:
        left = machine.run_sync(net.feeds, fetch=False)[net.h].value
        assert machine.transfers["results"] == 0
    assert left.device == "virtual:0"
    assert left.shape == (5, 3)
    expected = net.expected()[net.h].value
    assert left.fetch().tobytes() == expected.tobytes()
    assert np.asarray(left).tobytes() == expected.tobytes()
    with ag.ActorMachine([y], device="virtual:0") as machine:
        run = machine.run_sync({"t": left})
        assert machine.transfers == {"parameters": 0, "feeds": 0, "edges": 0, "results": 1}
    assert run[y].value.tobytes() == (expected * 2.0).tobytes()
    with ag.ActorMachine([y], devices=["virtual:0", "virtual:1"]) as machine:
        assert machine.run_sync({"t": left})[y].value.tobytes() == run[y].value.tobytes()


@pytest.mark.parametrize("device", ["cpu", "virtual:1"])
def test_a_value_of_another_device_is_refused_as_a_feed_with_the_ways_out(net, device):
    t = net.g.input("t", ("n", 3), "float64")
    with ag.ActorMachine([net.h], device="virtual:0") as machine:
        left = machine.run_sync(net.feeds, fetch=False)[net.h].value
    with (
        ag.ActorMachine([t * 2.0], device=device) as machine,
        pytest.raises(ag.GraphError, match=r"(?s)virtual:0.*fetch.*device=.*to_device"),
    ):
        machine.run_sync({"t": left})


# -- placement by the user --------------------------------------------------------------------


def test_a_placement_is_no_part_of_what_a_node_is(net):
    with ag.device("virtual:0", lane=1):
        same = ag.ops.tanh(net.x @ net.W + net.b)
        fresh = ag.ops.exp(net.h)
    assert same is net.h
    assert net.h.placement is None
    assert fresh.placement.device.name == "virtual:0"
    assert fresh.placement.lane == 1
    assert fresh.on("cpu") is fresh
    assert fresh.placement.device.name == "cpu"


def places(trace):
    return {part.name: part.lane for part in trace.slices if part.kind == "device"}


@every_machine
def test_nodes_run_where_the_user_has_placed_them(net, machine):
    with ag.device("virtual:1", lane=1):
        a = ag.ops.exp(net.h).named("aa")
    b = ag.ops.to_device(a, "virtual:0").named("bb")
    c = (b + 1.0).named("cc").on("cpu")
    d = (c * a).sum().named("dd")
    with machine([d], device="virtual:1", lanes=2) as made, ag.trace.record() as trace:
        run = made.run_sync(net.feeds, backward=True)
    found = places(trace)
    assert found["aa"] == found["aa (backward)"] == "virtual:1 lane 1"
    assert found["bb"] == "virtual:0 lane 0"
    assert "cc" not in found
    assert made.transfers["edges"] >= 3
    x, W, v = net.feeds["x"], net.W.value, net.b.value
    e = np.exp(np.tanh(x @ W + v))
    assert run[d].value == ((e + 1.0) * e).sum()
    assert run[net.W].grad.shape == (4, 3)


def test_a_machine_of_the_cpu_goes_to_devices_where_nodes_are_placed_there(net):
    y = ag.ops.to_device(net.h, "virtual:0") * 2.0
    (slope,) = ag.gradients(y.sum(), [net.W])
    expected = net.expected()[net.h].value * 2.0
    with ag.ActorMachine([y, slope]) as machine:
        run = machine.run_sync(net.feeds)
        assert machine.transfers["edges"] > 0
    assert run[y].value.tobytes() == expected.tobytes()
    assert run[slope].value.shape == (4, 3)


def test_a_checker_stands_for_the_device_that_it_wraps(net):
    with ag.device("virtual:0", lane=1):
        y = ag.ops.exp(net.h).named("y")
    checked = ag.devices.check("virtual:0")
    with ag.ActorMachine([y], device=checked, lanes=2) as machine, ag.trace.record() as trace:
        machine.run_sync(net.feeds)
    assert places(trace)["y"] == "check(virtual:0) lane 1"
    assert checked.report() == []


def test_sixteen_branches_on_four_lanes_are_four_overlapping_tracks():
    g = ag.Graph("wide")
    x = g.input("x", (4,), "float64")
    meeting = threading.Barrier(4)

    def forward(xp, a):
        meeting.wait(30)  # nobody goes on alone: four lanes are inside at once
        return a + 1.0

    meet = op(forward)
    y = ag.ops.concatenate([meet(x * float(i)) for i in range(16)])
    with (
        ag.ActorMachine([y], device="virtual:0", lanes=4) as machine,
        ag.trace.record() as trace,
    ):
        run = machine.run_sync({"x": np.ones(4)})
    assert run[y].value.shape == (64,)
    met = [part for part in trace.slices if part.name.startswith("op_on_lane")]
    met = [part for part in met if part.kind == "device"]
    assert len({part.lane for part in met}) == 4
    assert len(met) == 16
    assert {part.run for part in met} == {0}


def test_copies_and_work_overlap():
    """A lane waits inside an op until the feed of the next run has been copied."""
    copied = threading.Semaphore(0)

    class Telling(Virtual):
        def to_device(self, array):
            copied.release()
            return np.array(array)

    def forward(xp, a):
        assert copied.acquire(timeout=30)
        assert copied.acquire(timeout=30)
        copied.release()
        return a * 2.0

    x = ag.Graph().input("x", (3,), "float64")
    y = op(forward)(x)
    with ag.ActorMachine([y], device=Telling("telling")) as machine:
        copied.release()  # after the last run there is no next one
        runs = [machine.start({"x": np.ones(3)}) for _ in range(4)]
        assert [run.result()[y].value[0] for run in runs] == [2.0] * 4


# -- errors -----------------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("device", ["virtual:0", "adversary"])
def test_what_an_op_raises_on_a_lane_names_node_and_device_and_no_other_run_suffers(
    net, machine, device
):
    def forward(xp, a):
        if a[0, 0] > 100.0:
            raise ValueError("too large")
        return a * 2.0

    picky = op(forward)
    y = ag.ops.exp(picky(net.x).named("picked")).sum()
    bad = net.feeds["x"].copy()
    bad[0, 0] = 1000.0
    given = ag.devices.adversary("virtual:0") if device == "adversary" else device
    with machine([y], device=given, lanes=2) as made:
        good = made.run_sync(net.feeds)[y].value
        runs = [made.start({"x": bad}), made.start(net.feeds)]
        with pytest.raises(ag.NodeError, match=r"(?s)picked.*too large.*float64\[5, 4\]") as caught:
            runs[0].result()
        assert runs[1].result()[y].value == good
    assert "virtual:0" in caught.value.device
    assert "device: " + caught.value.device in str(caught.value)
    assert caught.value.node == "picked"


def test_a_cancelled_and_a_late_run_end_while_a_lane_is_busy(net):
    inside, go = threading.Event(), threading.Event()

    def forward(xp, a):
        inside.set()
        assert go.wait(30)
        return a * 2.0

    held = op(forward)
    y = held(net.x).named("y")
    with ag.ActorMachine([y], device="virtual:0") as machine:
        run = machine.start(net.feeds)
        assert inside.wait(30)
        assert run.cancel()
        go.set()
        with pytest.raises(ag.RunCancelled, match="cancelled"):
            run.result()
        assert machine.run_sync(net.feeds)[y].value.shape == (5, 4)


def test_memory_that_is_not_there_fails_one_run(net):
    failing = []

    class Small(Virtual):
        def to_device(self, array):
            if failing:
                raise failing.pop()
            return np.array(array)

    with ag.ActorMachine([net.loss, net.h], device=Small("small")) as machine:
        failing.append(MemoryError("no room"))
        with pytest.raises(ag.NodeError, match="no room"):
            machine.run_sync(net.feeds)
        net.same(machine.run_sync(net.feeds), net.expected())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "virtual:x"}, "unknown device"),
        ({"device": "virtual:"}, "unknown device"),
        ({"device": 3}, "unknown device 3"),
        ({"device": "virtual:0", "lanes": 0}, "lanes"),
        ({"devices": "virtual:0"}, "a list of devices"),
        ({"devices": []}, "names no device"),
        ({"device": "cuda:0"}, r"actorgraph\[cuda12\]"),
        ({"device": "virtual:0", "jit": True, "exact": False}, "jit"),
    ],
)
def test_bad_options_are_told_before_anything_starts(net, options, text):
    with pytest.raises((ag.GraphError, ValueError), match=text):
        ag.ActorMachine([net.loss], **options)


@pytest.mark.parametrize("lane", [-1, 1000, 1.5, "a", True])
def test_a_lane_is_a_small_whole_number(net, lane):
    with pytest.raises(ag.GraphError, match="a lane is a whole number"):
        net.h.on("virtual:0", lane=lane)


def test_a_lane_that_the_machine_has_not_is_told(net):
    net.h.on("virtual:0", lane=5)
    with pytest.raises(ag.GraphError, match=r"lane 5 of virtual:0.*lanes=2"):
        ag.ActorMachine([net.loss], device="virtual:0", lanes=2)


def test_a_list_of_devices_has_what_was_named():
    ag.devices.get("virtual:7")
    assert {"cpu", "virtual:7"} <= {*ag.devices.list()}


# -- lives ------------------------------------------------------------------------------------


def test_nothing_waits_to_be_given_back_after_a_machine_has_closed(net):
    device = Virtual("alone")
    with ag.ActorMachine([net.loss, net.h], device=device, lanes=3, fuse="none") as machine:
        for _ in range(5):
            machine.run_sync(net.feeds, backward=True)
    for lane in device._lanes.values():
        lane.settle()
        assert not lane.dropped
        assert not lane.retired


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_after_fork_has_lanes_of_its_own(net):
    expected = net.expected()
    with ag.ActorMachine([net.loss, net.h], device="virtual:0") as machine:
        machine.run_sync(net.feeds)
        child = os.fork()
        if not child:
            status = 1
            try:
                net.same(machine.run_sync(net.feeds), expected)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        net.same(machine.run_sync(net.feeds), expected)
