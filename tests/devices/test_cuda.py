"""`devices/cuda.py` on a stand-in for CuPy: no GPU is here, so no kernel and no time is tested."""

import os
import sys
from itertools import count, pairwise

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices import cuda
from tests.devices.test_checker import FAULTS, run_on
from tests.pipeline._model import Model, assert_same_bits

NUMBERS = count()
"""Ops are declared by name once a process."""


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


# CuPy's own references keep memory that a view shows, and that of operands which a job has.
HARMLESS_HERE = {"views_forgotten", "released_at_launch"}
SHOWN = [fault for fault in FAULTS if fault.__name__ not in HARMLESS_HERE]


@pytest.mark.parametrize("fault", SHOWN, ids=lambda fault: fault.__name__)
def test_a_fault_shows_as_a_race_for_some_seed(monkeypatch, world, fault):
    for seed in range(40):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                run_on(devices.get("cuda:0"))
            except ag.GraphError as error:
                made.races += ["a wait is missing"] * ("a wait is missing" in str(error))
        if made.races:
            return
    pytest.fail("no seed shows it")


def test_honest_runs_of_that_graph_have_no_races(monkeypatch, world):
    for seed in range(6):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        run_on(devices.get("cuda:0"))
        assert made.races == []


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


class Broken:
    """What finds a CuPy whose libraries are not there."""

    def find_spec(self, name, path=None, target=None):
        if name == "cupy":
            raise ImportError("libnvrtc.so.12: cannot open shared object file")


def test_what_is_missing_is_told(world, monkeypatch):
    assert "cuda:0" in ag.devices.list()
    with pytest.raises(ag.GraphError, match="'cuda:7' is not there: GPUs are numbered below 1"):
        ag.devices.get("cuda:7")
    monkeypatch.setattr(stand_in.cupy, "__version__", "13.6.0")
    with pytest.raises(ag.GraphError, match=r"needs CuPy 14 or later.*this is 13\.6\.0"):
        ag.devices.get("cuda:0")
    monkeypatch.setattr(stand_in.cupy.cuda, "is_available", lambda: False)
    monkeypatch.setattr(stand_in.cupy, "__version__", "14.0.1")
    with pytest.raises(ag.GraphError, match="finds no driver or no GPU"):
        ag.devices.get("cuda:0")
    assert "cuda:0" not in ag.devices.list()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ag.GraphError, match=r"pip install 'actorgraph\[cuda12\]'"):
        ag.devices.get("cuda:0")
    assert "cuda:0" not in ag.devices.list()
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(ag.GraphError, match=r"can be imported \(libnvrtc.*pip install"):
        ag.devices.get("cuda:0")


# -- what only a run can tell -----------------------------------------------------------------


def test_an_index_out_of_range_fails_the_run_that_has_it_and_names_the_node(world):
    """CuPy itself wraps it, silently."""
    g = ag.Graph()
    x, i = g.input("x", (4, 3), "float64"), g.input("i", ("n",), "int64")
    y = ag.ops.exp(x[i].named("picked")).sum()
    feeds = {"x": np.ones((4, 3)), "i": np.array([0, -1, 3])}
    with ag.ActorMachine([y], wrt=[x], device="cuda:0", lanes=2, fuse="none") as machine:
        good = machine.run_sync(feeds, backward=True)
        for bad in (4, -5):
            runs = [machine.start({**feeds, "i": np.array([bad, 1])}), machine.start(feeds)]
            text = rf"(?s)picked.*{bad}.*out of bounds for dim 4.*cuda:0"
            with pytest.raises(ag.NodeError, match=text) as caught:
                runs[0].result()
            assert isinstance(caught.value.__cause__, IndexError)
            assert runs[1].result()[y].value == good[y].value
    assert world.races == []


@pytest.mark.parametrize(("watch", "text"), [("nan", "has NaN"), ("inf", "has Inf")])
def test_watched_values_are_told_at_the_end_of_the_run(world, watch, text):
    x = ag.Graph().input("x", (2,), "float64")
    y = ag.ops.exp(ag.ops.log(x).named("log") * 0.0)
    with (
        ag.ActorMachine([y], device="cuda:0", watch=(watch,)) as machine,
        pytest.raises(ag.NodeError, match=text),
    ):
        machine.run_sync({"x": np.array([1.0, -1.0 if watch == "nan" else 0.0])})


def test_draws_have_the_bits_of_the_cpu_and_their_number_stays_on_the_host(world):
    g = ag.Graph(seed=3)
    p = g.input("p", (5,), "float64")
    nodes = [ag.ops.random.uniform(g, (5,)), ag.ops.random.normal(g, (5,)),
             ag.ops.random.binomial(g, (5,), 4, p)]  # fmt: skip
    feeds = {"p": np.full(5, 0.3)}
    found = []
    for device in ("cpu", "cuda:0"):
        with ag.ActorMachine(nodes, device=device) as machine:
            runs = [machine.run_sync(feeds) for _ in range(2)]
            found.append([run[node].value.tobytes() for run in runs for node in nodes])
    assert found[0] == found[1]
    assert machine.transfers["feeds"] == 0, "the number and p are copied nowhere"
    assert found[0][0] != found[0][3]


# -- arrays of other libraries ----------------------------------------------------------------


def runs_on_arrays_of_the_gpu(device):
    cp = stand_in.cupy
    x = ag.Graph().input("x", ("n",), "float64")
    y = ag.ops.exp(x * 0.5)
    users = cp.cuda.Stream(non_blocking=True)
    found = []
    with ag.ActorMachine([y], device=device, lanes=2) as machine, users:
        for number in range(4):
            array = cp.asarray(np.full(64, float(number)))
            for _ in range(5):
                array = array + 1.0
            run = machine.start({"x": array})
            del array  # whose memory goes back to the user's stream
            found.append(run.result()[y].value)
        assert machine.transfers["feeds"] == 0
    return found


@pytest.mark.parametrize("world", range(6), indirect=True)
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_array_on_the_gpu_is_fed_without_a_copy_and_waited_for(world, wrapped):
    """The stream that computes it is the user's own, and late."""
    found = runs_on_arrays_of_the_gpu(ag.devices.check("cuda:0") if wrapped else "cuda:0")
    for number, value in enumerate(found):
        assert np.array_equal(value, np.exp(np.full(64, number + 5.0) * 0.5))
    assert world.races == []


class OnlyInterface:
    """An array of a library that has no DLPack."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.interface = array.__cuda_array_interface__

    @property
    def __cuda_array_interface__(self):
        return self.interface


@pytest.mark.parametrize("world", range(4), indirect=True)
def test_an_array_that_has_only_the_cuda_array_interface_is_fed_too(world):
    cp = stand_in.cupy
    x = ag.Graph().input("x", ("n",), "float64")
    y = ag.ops.exp(x * 0.5)
    with cp.cuda.Stream(non_blocking=True):
        given = OnlyInterface(cp.asarray(np.full(64, 2.0)) + 1.0)
    with ag.ActorMachine([y], device="cuda:0") as machine:
        left = machine.run_sync({"x": given}, fetch=False)[y].value
        assert machine.transfers["feeds"] == 0
        with cp.cuda.Stream(non_blocking=True):
            taken = cp.asarray(OnlyInterface(left.result()))
            assert np.array_equal(taken.get(), np.exp(np.full(64, 1.5)))
            assert left.__cuda_array_interface__["version"] == 3
    with ag.ActorMachine([y]) as machine, pytest.raises(ag.FeedError, match="on cuda:0"):
        machine.run_sync({"x": given})
    assert world.races == []


def test_without_that_wait_it_is_a_race_for_some_seed(world, monkeypatch):
    monkeypatch.setattr(stand_in.ndarray, "__dlpack__", lambda self, stream=None: self)
    for seed in range(30):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        runs_on_arrays_of_the_gpu("cuda:0")
        if made.races:
            return
    pytest.fail("no seed shows it")


def test_a_result_left_on_the_gpu_is_taken_by_others_without_a_copy(world):
    net = Net()
    with ag.ActorMachine([net.y], device="cuda:0") as machine:
        left = machine.run_sync(net.feeds, fetch=False)[net.y].value
        users = stand_in.cupy.cuda.Stream(non_blocking=True)
        with users:
            array = stand_in.cupy.from_dlpack(left)
            assert np.shares_memory(array.memory, left.result().memory)
            assert np.array_equal((array + 1.0).get(), left.fetch() + 1.0)


def test_an_array_of_another_device_is_refused_with_the_ways_out(world):
    x = ag.Graph().input("x", (3,), "float64")
    with stand_in.cupy.cuda.Stream(non_blocking=True):
        array = stand_in.cupy.asarray(np.ones(3))
    for device in ("cpu", "virtual:0"):
        with (
            ag.ActorMachine([x * 2.0], device=device) as machine,
            pytest.raises(ag.FeedError, match=rf"cuda:0.*runs on {device}.*device='cuda:0'"),
        ):
            machine.run_sync({"x": array})
    with (
        ag.ActorMachine([x * 2.0], device="cuda:0") as machine,
        stand_in.cupy.cuda.Stream(non_blocking=True),
        pytest.raises(ag.FeedError, match=r"dtype float32, not float64"),
    ):
        machine.run_sync({"x": stand_in.cupy.asarray(np.ones(3, "float32"))})


def test_an_errstate_that_a_gpu_cannot_honour_is_refused_before_the_run(world):
    x = ag.Graph().input("x", (2,), "float64")
    feeds = {"x": np.ones(2)}
    with ag.ActorMachine([ag.ops.log(x)], device="cuda:0") as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.GraphError, match="cuda:0.*watch="):
            machine.run_sync(feeds)
        with np.errstate(all="ignore"):
            machine.run_sync(feeds)
        machine.run_sync(feeds)


# -- traces -----------------------------------------------------------------------------------


@pytest.mark.parametrize("world", range(3), indirect=True)
def test_a_trace_has_a_track_for_each_lane_by_the_times_of_events(world):
    x = ag.Graph("wide").input("x", (4,), "float64")
    y = ag.ops.concatenate([ag.ops.exp(x * float(i)) for i in range(16)])
    with ag.ActorMachine([y], device="cuda:0", lanes=4) as machine:
        machine.run_sync({"x": np.ones(4)})
        with ag.trace.record() as trace:
            for run in [machine.start({"x": np.ones(4)}) for _ in range(3)]:
                run.result()
    parts = [part for part in trace.slices if part.kind == "device"]
    tracks = {}
    for part in parts:
        tracks.setdefault(part.lane, []).append(part)
    assert {f"cuda:0 lane {i}" for i in range(4)} | {"cuda:0 copies in", "cuda:0 copies out"} == {
        *tracks
    }
    assert sum("exp" in part.name for part in parts) == 3 * 16
    for track in tracks.values():
        for before, after in pairwise(track):
            assert before.end <= after.start
    assert all(0.0 < part.start <= part.end < trace.duration_s for part in parts)
    spans = [(track[0].start, track[-1].end) for lane, track in tracks.items() if " lane " in lane]
    assert max(start for start, _ in spans) < min(end for _, end in spans)


def test_a_job_whose_end_is_not_there_yet_is_told_later(world, monkeypatch):
    x = ag.Graph().input("x", (4,))
    gpu, late = devices.get("cuda:0"), []
    tell = gpu.tell

    def tell_of_none():
        if gpu._untold and not late:
            late.extend(gpu._untold)
            with monkeypatch.context() as patched:
                patched.setattr(gpu, "is_passed", lambda event: False)
                tell()
            assert [*gpu._untold][: len(late)] == late
        tell()

    monkeypatch.setattr(gpu, "tell", tell_of_none)
    with ag.TapeMachine([ag.ops.exp(x)], device="cuda:0") as machine, ag.trace.record() as trace:
        machine.run_sync({"x": np.ones(4, "float32")})
        machine.run_sync({"x": np.ones(4, "float32")})
    assert late
    told = [part.name for part in trace.slices if part.kind == "device" and "exp" in part.name]
    assert len(told) == 2


# -- faults -----------------------------------------------------------------------------------


def test_no_room_fails_one_run_wherever_that_is_and_no_other_and_leaves_nothing(world):
    net = Net()
    expected = net.numbers()
    with ag.ActorMachine([net.loss, net.y], device="cuda:0", lanes=2) as machine:
        machine.run_sync(net.feeds, backward=True)
        before = world.allocations
        machine.run_sync(net.feeds, backward=True)
        needed = world.allocations - before
        for place in (1, needed // 2, needed, 2 * needed):
            world.fails_at = world.allocations + place
            failed = []
            for run in [machine.start(net.feeds, backward=True) for _ in range(3)]:
                try:
                    run.result()
                except ag.NodeError as error:
                    assert error.device == "cuda:0"  # noqa: PT017
                    failed.append(str(error))
                    continue
                found = [run[net.loss].value, run[net.y].value, run[net.W].grad]
                assert same(found, expected[:3])
            assert len(failed) == 1
            assert "Out of memory allocating" in failed[0]
        del run, found
        lanes = machine.device._lanes.values()
    for lane in lanes:
        assert not lane.dropped
        assert not lane.retired
    assert world.races == []


@pytest.mark.parametrize("world", range(4), indirect=True)
def test_a_fault_of_the_gpu_fails_what_is_under_way_there_and_all_that_comes_after(world):
    x = ag.Graph().input("x", (3,), "float64")

    def forward(xp, a):
        if failing:
            world.fault = failing.pop()
        return a * 2.0

    failing = []
    y = ag.ops.define(f"op_that_faults_{next(NUMBERS)}", scheme="x[*s] -> x[*s]", forward=forward)(
        x
    ).named("y")
    feeds = {"x": np.ones(3)}
    with ag.ActorMachine([y], device="cuda:0") as machine:
        machine.run_sync(feeds)
        failing.append(RuntimeError("cudaErrorIllegalAddress"))
        for _ in range(3):
            with pytest.raises(
                ag.GraphError,
                match=r"(?s)cuda:0.*cudaErrorIllegalAddress|"
                r"cudaErrorIllegalAddress.*cuda:0",
            ):
                machine.run_sync(feeds)
        with ag.ActorMachine([y], device="cpu") as other:
            assert other.run_sync(feeds)[y].value.tolist() == [2.0] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_after_fork_is_told_that_a_context_does_not_survive(world):
    net = Net()
    with ag.ActorMachine([net.loss], device="cuda:0") as machine:
        machine.run_sync(net.feeds)
        child = os.fork()
        if not child:
            status = 1
            try:
                machine.run_sync(net.feeds)
            except ag.GraphError as error:
                status = int("spawn" not in str(error))
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        machine.run_sync(net.feeds)
        cuda._after_fork_in_child()  # once more where what runs is counted
        assert "spawn" in str(machine.device.lost)


@pytest.mark.parametrize("device", ["virtual:0", "cuda:0"])
def test_a_singular_matrix_is_the_error_of_the_cpu(world, device):
    x = ag.Graph().input("x", (2, 2), "float64")
    y = ag.ops.inv(x).named("y")
    with ag.ActorMachine([y], device=device) as machine:
        with pytest.raises(ag.NodeError, match=r"(?s)'y'.*Singular matrix"):
            machine.run_sync({"x": np.zeros((2, 2))})
        assert machine.run_sync({"x": np.eye(2)})[y].value.tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("device", ["virtual:0", "cuda:0"])
@pytest.mark.parametrize("dtype", [object, [("a", "f4"), ("b", "i4")], "U3"])
def test_arrays_that_no_device_holds_are_refused_before_anything_runs(world, device, dtype):
    graph = ag.Graph()
    x = graph.input("x", (2,), "float64")
    with (
        ag.ActorMachine([x * 2.0], device=device) as machine,
        pytest.raises(ag.FeedError, match="'x' should be float64"),
    ):
        machine.run_sync({"x": np.zeros(2, dtype)})
    assert machine.transfers == dict.fromkeys(machine.transfers, 0)
    with pytest.raises(ag.GraphTypeError):
        graph.parameter("w", np.zeros(2, dtype))


# -- pipelines --------------------------------------------------------------------------------


@pytest.mark.parametrize("world", range(3), indirect=True)
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "virtual:0"], ["cpu", "cuda:0"]])
def test_stages_of_a_pipeline_are_right_on_the_gpu_and_beside_it(world, devices):
    model, other = Model(), Model()
    with model.pipeline(devices=devices) as pipeline:
        run = pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, run)
        step = pipeline.compile_step(ag.solvers.Adam(0.01))
        for _ in range(2):
            step(model.feeds)
    with other.pipeline() as pipeline:
        step = pipeline.compile_step(ag.solvers.Adam(0.01))
        for _ in range(2):
            step(other.feeds)
    for one, wanted in zip(model.wrt, other.wrt, strict=True):
        np.testing.assert_allclose(one.value, wanted.value, 1e-12)
    assert world.races == []
    assert world.on_null == 0


@pytest.mark.parametrize("world", range(4), indirect=True)
def test_parts_of_a_gpu_hand_values_to_each_other_past_the_host(world):
    parts, copies = devices.get("cuda:0").partition(2), []
    for placed in (parts[:1], parts):
        model = Model()
        with model.pipeline(devices=placed) as pipeline:
            for _ in range(2):
                before = world.copies
                run = pipeline.run_sync(model.feeds)
            copies.append(world.copies - before)
            assert_same_bits(model, pipeline, run)
    assert copies[0] == copies[1]
    assert world.races == []
    assert world.on_null == 0
    with pytest.raises(ag.GraphError, match=r"check\(cuda:0\) cannot be partitioned"):
        ag.devices.check("cuda:0").partition(2)


def test_no_room_in_a_stage_fails_its_run_alone(world):
    model = Model()
    with model.pipeline(devices=["cuda:0", "virtual:0"]) as pipeline:
        pipeline.run_sync(model.feeds)
        world.fails_at = world.allocations + 20
        with pytest.raises(ag.NodeError, match="Out of memory allocating"):
            pipeline.run_sync(model.feeds)
        assert_same_bits(model, pipeline, pipeline.run_sync(model.feeds))


def test_a_lost_gpu_ends_the_runs_of_a_pipeline_with_one_clear_error(world):
    model = Model()
    with model.pipeline(devices=["cuda:0", "virtual:0"]) as pipeline:
        pipeline.run_sync(model.feeds)
        world.fault = RuntimeError("cudaErrorIllegalAddress")
        for _ in range(2):
            with pytest.raises(
                ag.GraphError,
                match=r"(?s)cuda:0.*cudaErrorIllegalAddress|"
                r"cudaErrorIllegalAddress.*cuda:0",
            ):
                pipeline.run_sync(model.feeds)


def test_a_gpu_tells_what_arrays_take_what_its_pool_has_and_what_it_has(world):
    found = devices.get("cuda:0").memory()
    assert 0 < found["used"] <= found["pool"] <= found["total"]
    assert set(found) == {"used", "pool", "total"}
