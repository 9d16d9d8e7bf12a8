"""`devices/cuda.py` on a stand-in for CuPy: no GPU is here, so no kernel and no time is tested."""

import sys
import threading

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices.base import Lane


@pytest.fixture
def world(request, monkeypatch):
    """CuPy, with streams that are late by a seed."""
    made = stand_in.World(getattr(request, "param", 0))
    monkeypatch.setattr(stand_in, "world", made)
    monkeypatch.setitem(sys.modules, "cupy", stand_in.cupy)
    monkeypatch.setitem(sys.modules, "cupyx", stand_in.cupyx)
    yield made
    devices._known.pop("cuda:0", None)
    left = [thread.name for thread in threading.enumerate() if "cuda" in thread.name]
    assert left == []


class Net:
    def __init__(self):
        draw = np.random.default_rng(0)
        g = ag.Graph("net")
        self.x = g.input("x", ("n", 4), "float64")
        self.W = g.parameter("W", draw.normal(size=(4, 3)))
        branches = [ag.ops.tanh(self.x @ self.W + float(i)) for i in range(3)]
        turned = [ag.ops.exp(branch.T * 0.5) for branch in branches]
        self.y = (turned[0] * turned[1] + turned[2]).named("y")
        self.loss = self.y.sum().named("loss")
        self.feeds = {"x": draw.normal(size=(5, 4))}

    def numbers(self, **options):
        with ag.ActorMachine([self.loss, self.y], **options) as machine:
            found = []
            for _ in range(2):
                run = machine.run_sync(self.feeds, backward=True)
                found += [run[self.loss].value, run[self.y].value, run[self.W].grad]
        return found


def same(found, expected):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("world", range(8), indirect=True)
@pytest.mark.parametrize("fuse", ["none", "auto"])
def test_values_and_gradients_are_right_however_late_streams_are(world, fuse):
    expected = Net().numbers()
    found = Net().numbers(device="cuda:0", lanes=3, fuse=fuse)
    assert same(found, expected)
    assert {type(one) for one in found} == {np.ndarray}
    assert world.races == []
    assert world.on_null == 0


def test_a_parameter_is_copied_once(world):
    net = Net()
    with ag.ActorMachine([net.loss], device="cuda:0") as machine:
        for _ in range(3):
            machine.run_sync(net.feeds)
        assert machine.transfers == {"parameters": 1, "feeds": 3, "edges": 0, "results": 3}


def without_waits(patch):
    patch.setattr(Lane, "join", lambda self, value: None)


def without_release_joins(patch):
    def settle(self):
        while self.dropped:
            self.dropped.popleft()

    patch.setattr(Lane, "settle", settle)


def without_waits_for_results(patch):
    join = Lane.join

    def joined(self, value):
        if "copies out" not in self.name:
            join(self, value)

    patch.setattr(Lane, "join", joined)


@pytest.mark.parametrize("fault", [without_waits, without_release_joins, without_waits_for_results])
def test_a_fault_shows_as_a_race_for_some_seed(monkeypatch, world, fault):
    for seed in range(30):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            Net().numbers(device="cuda:0", lanes=3, fuse="none")
        if made.races:
            return
    pytest.fail("no seed shows it")


def test_a_value_left_on_the_gpu_is_an_array_of_cupy_and_can_be_fetched(world):
    net = Net()
    expected = net.numbers()[1]
    with ag.ActorMachine([net.y], device="cuda:0") as machine:
        left = machine.run_sync(net.feeds, fetch=False)[net.y].value
        assert left.device == "cuda:0"
        assert type(left.result()) is stand_in.ndarray
        assert np.array_equal(left.fetch(), expected)


def test_the_checker_wraps_it(world):
    checked = ag.devices.check("cuda:0")
    assert same(Net().numbers(device=checked, lanes=3, fuse="none"), Net().numbers())
    assert checked.report() == []


def test_an_error_on_the_gpu_names_node_and_device_and_the_next_run_is_right(world):
    x = ag.Graph().input("x", (3,), "float64")

    def forward(xp, a):
        if len(failing):
            raise failing.pop()
        return a * 2.0

    failing = [ValueError("not today")]
    y = ag.ops.define("op_on_gpu", scheme="x[*s] -> x[*s]", forward=forward)(x).named("y")
    with ag.ActorMachine([y], device="cuda:0") as machine:
        with pytest.raises(ag.NodeError, match=r"(?s)'y' failed.*not today.*device: cuda:0"):
            machine.run_sync({"x": np.ones(3)})
        assert machine.run_sync({"x": np.ones(3)})[y].value.tolist() == [2.0] * 3


def test_a_lost_gpu_ends_its_runs_with_one_clear_error(world):
    net = Net()
    with ag.ActorMachine([net.loss], device="cuda:0") as machine:
        machine.run_sync(net.feeds)
        machine.device.lost = RuntimeError("an illegal address")
        with pytest.raises(ag.GraphError, match=r"(?s)cuda:0.*illegal address"):
            machine.run_sync(net.feeds)


def test_what_is_missing_is_told(world, monkeypatch):
    with pytest.raises(ag.GraphError, match="'cuda:7' is not there: GPUs are numbered below 1"):
        ag.devices.get("cuda:7")
    monkeypatch.setattr(stand_in.cupy.cuda, "is_available", lambda: False)
    with pytest.raises(ag.GraphError, match="finds no driver or no GPU"):
        ag.devices.get("cuda:0")
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ag.GraphError, match=r"pip install 'actorgraph\[cuda12\]'"):
        ag.devices.get("cuda:0")
