"""Two GPUs of the stand-in: what goes from one to the other, and what fails on one of them."""

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices.base import Lane
from tests.devices.test_cuda import OnlyInterface, same
from tests.pipeline._model import Model, assert_same_bits

GPUS = ["cuda:0", "cuda:1"]


@pytest.fixture
def two(world):
    """A world of two GPUs, with the seed of `world`."""
    world.gpus = 2
    yield world
    devices._known.pop("cuda:1", None)


class Spread:
    """Branches on two lanes of each of two devices, which meet on each of them and on the CPU."""

    def __init__(self, places=()):
        def on(node, device, lane):
            return node.on(places[device], lane=lane) if places else node

        draw = np.random.default_rng(0)
        g = ag.Graph("spread")
        x, w = g.input("x", ("n", 4), "float64"), g.parameter("w", draw.normal(size=(4, 3)))
        branches = [on(ag.ops.tanh(x @ w + float(i)), i % 2, i // 2) for i in range(4)]
        turned = [on(branch.T, i % 2, i // 2) for i, branch in enumerate(branches)]
        first = on(ag.ops.exp(turned[0] * branches[1].T), 1, 1)
        second = on(ag.ops.sin(branches[2] - branches[3]), 0, 0)
        self.far = on(second * first.T, 0, 1).named("far")
        self.y = (self.far * 2.0 + first.T).named("y")
        if places:
            self.y.on("cpu")
        self.w, self.loss = w, self.y.sum().named("loss")
        self.feeds = {"x": draw.normal(size=(5, 4))}

    def results(self, run):
        return [run[self.loss].value, run[self.y].value, run[self.w].grad]

    def numbers(self, **options):
        with ag.ActorMachine([self.loss, self.y], **options) as machine:
            runs = [machine.run_sync(self.feeds, backward=True) for _ in range(2)]
        return [one for run in runs for one in self.results(run)]


@pytest.fixture(scope="module")
def expected():
    return Spread().numbers()


@pytest.mark.parametrize("world", range(8), indirect=True)
@pytest.mark.parametrize("options", [{"fuse": "none"}, {}, {"captured": True}], ids=str)
def test_values_and_gradients_are_right_where_lanes_of_two_gpus_meet(two, expected, options):
    assert same(Spread(GPUS).numbers(devices=GPUS, lanes=2, **options), expected)
    assert two.races == []
    assert two.on_null == 0


@pytest.mark.parametrize("world", range(2), indirect=True)
def test_the_checker_finds_nothing_there(two, expected):
    checked = [ag.devices.check(name) for name in GPUS]
    assert same(Spread(GPUS).numbers(devices=checked, lanes=2, fuse="none"), expected)
    assert [one.report() for one in checked] == [[], []]


def test_a_value_goes_from_one_gpu_to_the_other_past_the_host(two):
    x = ag.Graph().input("x", (3, 2), "float64")
    there = ag.ops.exp(x).on("cuda:0").T.on("cuda:0")
    y = (there * 2.0).on("cuda:1")
    with ag.ActorMachine([y], devices=GPUS) as machine:
        machine.run_sync({"x": np.ones((3, 2))})
        copies, peers = two.copies, two.peers
        got = machine.run_sync({"x": np.ones((3, 2))})[y].value
        assert (two.copies - copies, two.peers - peers) == (2, 1)  # x comes, and y goes
    assert np.array_equal(got, np.exp(np.ones((2, 3))) * 2.0)


def no_wait_for_the_other_gpu(patch):
    join = Lane.join

    def joined(self, value):
        if value.lane.device is self.device:
            join(self, value)

    patch.setattr(Lane, "join", joined)


def source_forgotten(patch):
    """The memory of what is copied to another GPU comes back before the copy is made."""
    launch = Lane.launch

    def launched(self, work, operands, **options):
        made = launch(self, work, operands, **options)
        for operand in operands:
            for memory in operand.memories:
                if memory.lane.device is not self.device:
                    memory.uses.pop(self, None)
        return made

    patch.setattr(Lane, "launch", launched)


@pytest.mark.parametrize("fault", [no_wait_for_the_other_gpu, source_forgotten])
def test_a_fault_between_two_gpus_is_a_race_for_some_seed(two, monkeypatch, fault):
    for seed in range(40):
        made = stand_in.World(seed, gpus=2)
        monkeypatch.setattr(stand_in, "world", made)
        for name in GPUS:
            devices._known.pop(name, None)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                Spread(GPUS).numbers(devices=GPUS, lanes=2, fuse="none")
            except ag.GraphError as error:
                made.races += ["a wait is missing"] * ("a wait is missing" in str(error))
        if made.races:
            return
    pytest.fail("no seed shows it")


@pytest.mark.parametrize("world", range(3), indirect=True)
def test_stages_of_a_pipeline_are_on_a_gpu_each(two):
    model = Model()
    with model.pipeline(devices=GPUS) as pipeline:
        for _ in range(2):
            assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))
    assert two.peers > 0
    assert two.races == []
    assert two.on_null == 0


def test_an_array_of_the_other_gpu_is_refused_with_the_ways_out(two):
    y = ag.Graph().input("x", (3,), "float64") * 2.0
    with stand_in.cupy.cuda.Device(1), stand_in.cupy.cuda.Stream(non_blocking=True):
        array = stand_in.cupy.asarray(np.ones(3)) + 1.0
        for given in (array, OnlyInterface(array)):
            with (
                ag.ActorMachine([y], device="cuda:0") as machine,
                pytest.raises(ag.FeedError, match="on cuda:1.*runs on cuda:0.*device='cuda:1'"),
            ):
                machine.run_sync({"x": given})
            with ag.ActorMachine([y], devices=GPUS) as machine:
                assert machine.run_sync({"x": given})[y].value.tolist() == [4.0] * 3
                assert machine.transfers["feeds"] <= 1  # from the one GPU to the other
        with ag.ActorMachine([y], device="cuda:1") as machine:
            left = machine.run_sync({"x": array}, fetch=False)[y].value
    with (
        ag.ActorMachine([y], device="cuda:0") as machine,
        pytest.raises(ag.FeedError, match="lies on cuda:1.*to_device"),
    ):
        machine.run_sync({"x": left})
    assert two.on_null == 0


def test_a_gpu_that_is_lost_leaves_the_other_one(two, expected):
    x = ag.Graph().input("x", (3,), "float64")
    y = ag.ops.exp(x).on("cuda:1")
    with ag.ActorMachine([y], devices=GPUS) as machine:
        machine.run_sync({"x": np.ones(3)})
        devices.get("cuda:1").lost = RuntimeError("an illegal address")
        with pytest.raises(ag.GraphError, match=r"(?s)cuda:1.*illegal address"):
            machine.run_sync({"x": np.ones(3)})
    assert same(Spread().numbers(device="cuda:0", lanes=2), expected)


def test_no_room_on_one_gpu_fails_its_run_alone(two, expected):
    net = Spread(GPUS)
    with ag.ActorMachine([net.loss, net.y], devices=GPUS, lanes=2) as machine:
        machine.run_sync(net.feeds, backward=True)
        before = two.allocations
        machine.run_sync(net.feeds, backward=True)
        needed = two.allocations - before
        for place in (1, needed // 2, needed):
            two.fails_at = two.allocations + place
            with pytest.raises(ag.NodeError, match="Out of memory allocating") as caught:
                machine.run_sync(net.feeds, backward=True)
            assert caught.value.device in GPUS
            got = net.results(machine.run_sync(net.feeds, backward=True))
            assert same(got, expected[:3])
    assert two.races == []
