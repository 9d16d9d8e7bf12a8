"""CUDA graphs on the stand-in for CuPy: captured once, launched as a whole, with the bits of eager.

The stand-in refuses in a capture what CuPy and CUDA do, computes nothing before a launch, and runs
what is launched late by a seed.
"""

import ctypes
import re
import sys
from random import Random
from types import SimpleNamespace
from weakref import ref

import numpy as np
import pytest

import actorgraph as ag
import tests._cupy as stand_in
from actorgraph import devices
from actorgraph.devices import capture, products
from tests.devices.test_cuda import Net, same

LIBRARY = products.library
SEEDS = pytest.mark.parametrize("world", range(6), indirect=True)


def wide(count=6):
    g = ag.Graph("wide")
    x = g.input("x", ("n", 3), "float64")
    W = g.parameter("W", np.random.default_rng(0).normal(size=(3, 3)))
    parts = [ag.ops.tanh((x * float(i + 1)) @ W).named(f"part{i}") for i in range(count)]
    return W, ag.ops.concatenate(parts).named("y")


def values(nodes, feeds, **options):
    with ag.ActorMachine(nodes, **options) as machine:
        return [machine.run_sync(feeds)[node].value for node in nodes]


def replays(world, machine, node, feeds):
    """Return how many graphs a run launches, whose result is that of the CPU."""
    before = world.replays
    assert same([machine.run_sync(feeds)[node].value], values([node], feeds))
    return world.replays - before


# -- right ------------------------------------------------------------------------------------


@SEEDS
@pytest.mark.parametrize("lanes", [1, 3])
def test_replays_have_the_bits_of_the_cpu_however_late_streams_are(world, lanes):
    expected = Net().numbers()
    net = Net()
    options = {"device": "cuda:0", "lanes": lanes, "captured": True}
    with ag.ActorMachine([net.loss, net.y], **options) as machine:
        for number in range(4):
            run = machine.run_sync(net.feeds, backward=True)
            assert same([run[net.loss].value, run[net.y].value, run[net.W].grad], expected[:3])
            assert world.replays == number + 1
        assert re.search(r"(\d+) of \1 steps on cuda:0 lane 0 are captured", machine.explain())
    assert world.races == []
    assert world.on_null == 0


@SEEDS
def test_runs_in_flight_have_memory_of_their_own(world):
    _, y = wide()
    feeds = [{"x": np.full((4, 3), float(i))} for i in range(7)]
    expected = [values([y], one)[0] for one in feeds]
    with ag.ActorMachine([y], device="cuda:0", lanes=2, captured=True) as machine:
        for _ in range(3):
            runs = [machine.start(one) for one in feeds]
            assert same([run.result()[y].value for run in runs], expected)
        instances = int(re.search(r"instances: (\d+)", machine.explain())[1])
    assert 1 <= instances <= 8
    assert world.races == []


def test_replays_for_several_runs_overlap_on_lanes_of_their_own(world, monkeypatch):
    """The second begins before the first has ended for some seed; one instance would not."""
    _, y = wide(2)
    feeds = [{"x": np.full((2, 3), float(i))} for i in range(3)]
    expected = [values([y], one)[0] for one in feeds]
    told, launch = [], stand_in.graphs.Graph.launch

    def launched(graph, stream=None):
        number = len(told)
        stream.put(lambda: told.append(("begins", number)))
        launch(graph, stream)
        stream.put(lambda: told.append(("ends", number)))

    monkeypatch.setattr(stand_in.graphs.Graph, "launch", launched)
    for seed in range(20):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
            for _ in range(3):
                told.clear()
                runs = [machine.start(one) for one in feeds]
                assert same([run.result()[y].value for run in runs], expected)
            tracks = {*machine.device._lanes}
        assert made.races == []
        if [kind for kind, _ in told][:2] == ["begins", "begins"]:
            assert {0, "0+1", "in", "out"} <= tracks
            return
    pytest.fail("no seed has two at once")


def test_an_update_between_runs_is_seen_and_what_is_as_it_was_is_not_copied_again(
    world, monkeypatch
):
    W, y = wide(2)
    feeds = {"x": np.ones((2, 3))}
    written = []
    put = stand_in.ndarray.__setitem__
    monkeypatch.setattr(
        stand_in.ndarray, "__setitem__", lambda *given: (written.append(given[0]), put(*given))
    )
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        machine.run_sync(feeds)
        for value in (np.eye(3), np.zeros((3, 3)), None):
            if value is not None:
                W.value = value
            written.clear()
            found = machine.run_sync(feeds)[y].value
            assert same([found], values([y], feeds))
            assert len(written) == (1 if value is None else 2)  # x, and W where it is another


def test_training_steps_are_those_of_the_cpu(world):
    found = []
    for options in ({}, {"device": "cuda:0", "lanes": 2, "captured": True}):
        net = Net()
        with ag.ActorMachine([net.loss], **options) as machine:
            step = machine.compile_step(ag.solvers.Adam(0.01))
            for _ in range(4):
                step(net.feeds)
        found.append(net.W.value)
    np.testing.assert_allclose(*found, rtol=1e-12)
    assert world.races == []
    assert world.replays == 4


def test_other_sizes_are_captured_anew_and_so_is_another_layout(world):
    _, y = wide(2)
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        for count in (2, 5, 2, 5):
            feeds = {"x": np.arange(3.0 * count).reshape(count, 3)}
            for given in (feeds, {"x": np.asfortranarray(feeds["x"])}):
                assert same([machine.run_sync(given)[y].value], values([y], given))
    assert world.races == []


def test_what_is_left_on_the_gpu_stays_as_it_is_when_the_graph_runs_again(world):
    _, y = wide(2)
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        feeds = [{"x": np.full((2, 3), float(i))} for i in range(3)]
        left = [machine.run_sync(one, fetch=False)[y].value.result() for one in feeds]
        found = [ag.devices.get("cuda:0").hold(one).fetch() for one in left]
    assert same(found, [values([y], one)[0] for one in feeds])


@SEEDS
def test_graphs_of_tasks_read_each_others_results_where_they_are(world, monkeypatch):
    """A node of the host's between them makes three tasks, with values saved for backward."""
    x = ag.Graph().input("x", (3,), "float64")
    a = ag.ops.exp(x * 0.5)
    h = ag.ops.tanh(a + 1.0)
    there = (ag.ops.sin(h).on("cpu") * 2.0).on("cpu")
    y = (ag.ops.tanh(there * a) * h).sum()
    feeds = [{"x": np.full(3, 0.1 * i)} for i in range(4)]

    def numbers(**options):
        with ag.ActorMachine([y], wrt=[x], **options) as machine:
            runs = [machine.start(one, backward=True) for one in (*feeds, *feeds)]
            found = [part for run in runs for part in (run.result()[y].value, run[x].grad)]
            text = machine.explain()
        return found, text

    stays, where = capture.GraphInstance._stays, []
    monkeypatch.setattr(
        capture.GraphInstance, "_stays", lambda *given: where.append(stays(*given)) or where[-1]
    )
    found, text = numbers(device="cuda:0", lanes=2, captured=True)
    assert same(found, numbers()[0])
    assert text.count("are captured") == 2
    assert any(where)
    assert world.races == []


def test_the_checker_wraps_it(world):
    checked = ag.devices.check("cuda:0")
    found = Net().numbers(device=checked, lanes=3, captured=True)
    assert same(found, Net().numbers())
    assert world.replays == 2
    assert checked.report() == []


def test_a_view_that_leaves_a_graph_keeps_what_it_shows(world):
    x = ag.Graph().input("x", (2, 3), "float64")
    y, z = (x.T * 1.0).T.named("y"), x.T.named("z")
    feeds = [{"x": np.full((2, 3), float(i))} for i in range(4)]
    with ag.ActorMachine([y, z], device="cuda:0", captured=True) as machine:
        runs = [machine.start(one) for one in feeds]
        found = [run.result()[node].value for run in runs for node in (y, z)]
    assert same(found, [part for one in feeds for part in (one["x"], one["x"].T)])


def test_most_instances_are_bounded_and_what_is_beyond_runs_eagerly(world, monkeypatch):
    monkeypatch.setattr(capture, "_MOST", 1)
    _, y = wide(2)
    feeds = [{"x": np.full((2, 3), float(i))} for i in range(6)]
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        runs = [machine.start(one) for one in feeds]
        found = [run.result()[y].value for run in runs]
        assert "instances: 1" in machine.explain()
    assert same(found, [values([y], one)[0] for one in feeds])
    assert 1 <= world.replays <= 6


def test_an_experiment_measures_graphs_beside_what_is_launched_one_by_one(world):
    _, y = wide()
    feeds = {"x": np.ones((2, 3))}
    found = ag.devices.experiment([y], feeds, lanes=(1, 2), devices=["cuda:0"])
    assert [(row.captured, row.lanes) for row in found.rows] == [
        (False, 1), (False, 2), (True, 1), (True, 2)
    ]  # fmt: skip
    assert {row.how for row in found.rows} == {"measured"}
    assert len(found.rows[3].spans) < len(found.rows[1].spans)
    assert "captured" in str(found)


def test_a_machine_that_closes_gives_the_memory_of_its_graphs_back(world, monkeypatch):
    pools = []
    monkeypatch.setattr(
        stand_in.graphs.MemoryPool, "__init__", lambda self: pools.append(ref(self))
    )
    _, y = wide(2)
    machine = ag.ActorMachine([y], device="cuda:0", captured=True)
    for _ in range(2):
        run = machine.run_sync({"x": np.ones((2, 3))})
    assert len(pools) == 1
    machine.close()
    assert pools[0]() is None
    assert run[y].value.shape == (4, 3)


# -- what cannot be captured ------------------------------------------------------------------


def test_what_the_gpu_refuses_is_launched_by_itself_and_explain_says_why(world):
    x = ag.Graph().input("x", (3, 3), "float64")
    before = ag.ops.exp(x * 0.1) + 1.0
    made = ag.ops.inv(before + 3.0 * np.eye(3)).named("made")
    y = ag.ops.sort(ag.ops.tanh(made * 2.0) + 1.0).named("y")
    feeds = {"x": np.arange(9.0).reshape(3, 3)}
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        assert "nothing has run yet" in machine.explain()
        counts = [replays(world, machine, y, feeds) for _ in range(5)]
        text = machine.explain()
    assert "made is launched by itself: NotImplementedError: calling cuBLAS" in text
    assert re.search(r"is launched by itself: CUDARuntimeError: cudaErrorStreamCaptureUnsupp", text)
    assert counts[-1] >= 1
    assert world.races == []
    with ag.ActorMachine([y], device="cuda:0", captured=True) as other:  # the device remembers
        assert replays(world, other, y, feeds) == counts[-1]


def test_what_python_has_to_do_in_every_run_is_never_captured(world):
    g = ag.Graph(seed=1)
    x = g.input("x", (4,), "float64")
    calls = []

    def forward(xp, a):
        calls.append(1)
        return a * 2.0

    own = ag.ops.define("own_in_capture", scheme="x[*s] -> x[*s]", forward=forward)
    drawn = ag.ops.random.uniform(g, (4,), dtype="float64").named("drawn")
    y = (own(ag.ops.exp(x) + 1.0).named("mine") * 2.0 + drawn).named("y")
    feeds = {"x": np.ones(4)}
    found = []
    for options in ({}, {"device": "cuda:0", "captured": True}):
        with ag.ActorMachine([y], **options) as machine:
            calls.clear()
            found.append([machine.run_sync(feeds)[y].value for _ in range(4)])
            assert len(calls) == 4
            text = machine.explain()
    assert same(*found)
    assert "mine is launched by itself: its forward is a function of yours" in text
    assert "drawn is launched by itself: it looks at numbers of the host" in text


def test_a_dim_that_only_a_run_knows_is_none_of_a_graph(world):
    x = ag.Graph().input("x", (None,), "float64")
    y = ag.ops.exp(ag.ops.sin(x) * 2.0).named("y")
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        for count in (3, 4):
            assert replays(world, machine, y, {"x": np.ones(count)}) == 0
        assert "y is launched by itself: it has a dim that only a run knows" in machine.explain()


def test_a_device_without_graphs_launches_step_by_step_and_says_so():
    _, y = wide(2)
    feeds = {"x": np.ones((2, 3))}
    with ag.ActorMachine([y], device="virtual:0", captured=True) as machine:
        assert same([machine.run_sync(feeds)[y].value], values([y], feeds))
        assert "launched step by step: virtual:0 has no graphs" in machine.explain()
    for kind in (ag.LispMachine, ag.TapeMachine):  # on the CPU it has no meaning
        with kind([y], captured=True) as machine:
            assert same([machine.run_sync(feeds)[y].value], values([y], feeds))


def test_a_capture_that_its_end_refuses_leaves_all_steps_eager(world, monkeypatch):
    def end(stream):
        stream.capturing.invalid = True
        return ended(stream)

    ended = stand_in.graphs.end
    monkeypatch.setattr(stand_in.graphs, "end", end)
    _, y = wide(2)
    feeds = {"x": np.ones((2, 3))}
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        for _ in range(3):
            assert same([machine.run_sync(feeds)[y].value], values([y], feeds))
        assert re.search(r" 0 of \d+ steps|^0 of \d+ steps", machine.explain(), re.MULTILINE)
        assert "cudaErrorStreamCaptureInvalidated" in machine.explain()
    assert world.replays == 0


# -- errors -----------------------------------------------------------------------------------


@SEEDS
def test_a_check_of_a_replay_fails_the_run_that_has_it_and_names_the_node(world):
    g = ag.Graph()
    x, i = g.input("x", (4, 3), "float64"), g.input("i", ("n",), "int64")
    y = ag.ops.exp(ag.ops.take(x, i, axis=0).named("picked")).sum()
    feeds = {"x": np.ones((4, 3)), "i": np.array([0, -1, 3])}
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        good = machine.run_sync(feeds)
        for bad in (4, -5):
            given = [feeds, {**feeds, "i": np.array([bad, 1, 1])}, feeds]
            runs = [machine.start(one) for one in given]
            with pytest.raises(ag.NodeError, match=rf"(?s)picked.*{bad}.*out of bounds.*cuda:0"):
                runs[1].result()
            assert runs[0].result()[y].value == runs[2].result()[y].value == good[y].value
        assert world.replays >= 7
    assert world.races == []


def test_watched_values_are_looked_at_in_every_replay(world):
    x = ag.Graph().input("x", (2,), "float64")
    y = ag.ops.exp(ag.ops.log(x).named("log") * 0.0)
    with ag.ActorMachine([y], device="cuda:0", watch=("nan",), captured=True) as machine:
        for _ in range(2):
            machine.run_sync({"x": np.ones(2)})
            with pytest.raises(ag.NodeError, match=r"(?s)'log'.*has NaN"):
                machine.run_sync({"x": np.array([1.0, -1.0])})


def test_no_room_fails_the_run_that_needs_it_wherever_that_is_and_leaves_nothing(world):
    net = Net()
    expected = net.numbers()
    other = {"x": np.ones((7, 4))}
    needed = 0
    for tenth in range(11):
        with ag.ActorMachine([net.loss], device="cuda:0", lanes=2, captured=True) as machine:
            machine.run_sync(other, backward=True)  # constants and parameters are there
            before = world.allocations
            if tenth:
                world.fails_at = before + max(1, needed * tenth // 10)
                with pytest.raises(ag.NodeError, match=r"(?s)Out of memory allocating.*cuda:0"):
                    machine.run_sync(net.feeds, backward=True)
            for _ in range(2):
                run = machine.run_sync(net.feeds, backward=True)
                assert same([run[net.loss].value, run[net.W].grad], [expected[0], expected[2]])
                needed = needed or world.allocations - before
    assert world.races == []


def test_an_error_in_a_step_names_it_before_anything_is_captured(world, monkeypatch):
    x = ag.Graph().input("x", (2,), "float64")
    y = (ag.ops.exp(x).named("first") * 2.0).named("second") + 1.0
    exp = stand_in.UFunc.__call__

    def failing(self, *args, **options):
        if self.name == "exp" and broken:
            raise broken.pop()
        return exp(self, *args, **options)

    broken = [ValueError("not today")]
    monkeypatch.setattr(stand_in.UFunc, "__call__", failing)
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        with pytest.raises(ag.NodeError, match=r"(?s)'first'.*not today.*float64\[2\]"):
            machine.run_sync({"x": np.ones(2)})
        assert machine.run_sync({"x": np.zeros(2)})[y].value.tolist() == [3.0, 3.0]


def test_a_fault_of_the_gpu_ends_captured_runs_with_one_clear_error(world):
    _, y = wide(2)
    feeds = {"x": np.ones((2, 3))}
    with ag.ActorMachine([y], device="cuda:0", captured=True) as machine:
        machine.run_sync(feeds)
        world.fault = RuntimeError("cudaErrorIllegalAddress")
        for _ in range(2):
            with pytest.raises(ag.GraphError, match="cudaErrorIllegalAddress"):
                machine.run_sync(feeds)


def test_a_run_that_is_cancelled_leaves_the_others_and_the_next_one_right(world):
    _, y = wide(3)
    feeds = [{"x": np.full((2, 3), float(i))} for i in range(4)]
    expected = [values([y], one)[0] for one in feeds]
    with ag.ActorMachine([y], device="cuda:0", lanes=2, captured=True) as machine:
        for _ in range(3):
            runs = [machine.start(one) for one in feeds]
            runs[1].cancel()
            assert same([runs[i].result()[y].value for i in (0, 2, 3)], expected[:1] + expected[2:])
    assert world.races == []


# -- what would be wrong shows ----------------------------------------------------------------


def no_waits_between_streams(patch):
    of = capture._Streams.of
    patch.setattr(capture._Streams, "of", lambda self, lane, reads: of(self, lane, ()))


def instances_shared_by_runs(patch):
    patch.setattr(capture.GraphInstance, "is_free", True)


def memory_given_back_to_all(patch):
    patch.setattr(capture.GraphInstance, "_own_memory", lambda self: InThePoolOfAll(self))


def dropped_too_early(patch):
    made = capture._Part.__init__

    def init(self, whole, numbers):
        made(self, whole, numbers)
        self.crossing, kept = set(), self.crossing
        self.dropped = self._dropped(False)
        self.crossing = kept

    patch.setattr(capture._Part, "__init__", init)


def operands_filled_once(patch):
    patch.setattr(capture.GraphInstance, "_fill", fill_once)


fill = capture.GraphInstance._fill


def fill_once(self, arrays):
    if self._graph is None:
        fill(self, arrays)


class InThePoolOfAll:
    def __init__(self, instance):
        instance._results, instance._checks, instance._rooms = (), [], {}
        self.within = instance._device.products.within(instance._rooms)

    def __enter__(self):
        self.within.__enter__()

    def __exit__(self, *error):
        self.within.__exit__(*error)


FAULTS = [no_waits_between_streams, instances_shared_by_runs, memory_given_back_to_all,
          dropped_too_early, operands_filled_once]  # fmt: skip


def is_wrong_somewhere(monkeypatch, fault, seeds):
    _, y = wide(4)
    total = sum(y[4 * i : 4 * i + 4] for i in range(1, 4))
    z = ag.ops.concatenate([ag.ops.exp(total * float(i)) for i in range(4)])
    feeds = [{"x": np.full((4, 3), 0.1 * i)} for i in range(3)]
    expected = [values([z], one)[0] for one in feeds]
    for seed in range(seeds):
        made = stand_in.World(seed)
        monkeypatch.setattr(stand_in, "world", made)
        devices._known.pop("cuda:0", None)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            with ag.ActorMachine([z], device="cuda:0", lanes=3, captured=True) as machine:
                for given in (feeds, feeds[::-1]):
                    runs = [machine.start(one) for one in given]
                    found = [run.result()[z].value for run in runs]
        if made.races or not same(found, expected[::-1]):
            return True
    return False


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_shows_as_a_race_for_some_seed(world, monkeypatch, fault):
    assert is_wrong_somewhere(monkeypatch, fault, 12)


def test_honest_runs_of_that_graph_have_none(world, monkeypatch):
    assert not is_wrong_somewhere(monkeypatch, lambda patch: None, 6)


# -- products ---------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 2)),
    ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((1, 4), (4, 1)), ((0, 4), (4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128", "int64"])
def test_products_of_our_own_are_those_of_numpy(world, dtype):
    draw = np.random.default_rng(0)
    cp, own = stand_in.cupy, products.Products(stand_in.cupy)
    turned = (lambda x: x, lambda x: np.asfortranarray(x), lambda x: np.repeat(x, 2, -1)[..., ::2])
    with stand_in.Stream(non_blocking=True):
        for left, right in SHAPES:
            x, y = ((draw.normal(size=shape) * 9).astype(dtype) for shape in (left, right))
            for one in turned:
                for other in turned:
                    found = own.matmul(as_it_lies(cp, one(x)), as_it_lies(cp, other(y))).get()
                    np.testing.assert_allclose(found, np.matmul(x, y), 1e-5)
        x = cp.asarray(np.eye(3).astype(dtype))
        out = cp.zeros((3, 3), dtype)
        assert own.matmul(x, x, out=out) is out
        assert np.array_equal(out.get(), np.eye(3))
    assert own.float64 is stand_in.cupy.float64


def as_it_lies(cp, array):
    """Return an array of the device with the strides of the host's."""
    if array.flags.c_contiguous:
        return cp.asarray(array)
    if array.flags.f_contiguous:
        return cp.asarray(np.ascontiguousarray(array.T)).T
    return cp.asarray(np.repeat(array, 2, -1))[..., ::2]


@pytest.mark.parametrize("captured", [False, True])
def test_an_error_of_cublas_is_told(world, monkeypatch, captured):
    def library(version):
        made = stand_in.graphs.CuBLAS()
        made.status = 13
        return made

    monkeypatch.setattr(products, "library", library)
    x = ag.Graph().input("x", (2, 2), "float64")
    y = (x @ x).named("y") + 1.0
    with (
        ag.ActorMachine([y], device="cuda:0", captured=captured) as machine,
        pytest.raises(ag.NodeError, match=r"(?s)'y'.*status 13"),
    ):
        machine.run_sync({"x": np.eye(2)})


def test_without_cublas_cupy_multiplies_and_no_graph_has_products(world, monkeypatch):
    def library(version):
        raise OSError("libcublas.so.12: cannot open shared object file")

    monkeypatch.setattr(products, "library", library)
    x = ag.Graph().input("x", (2, 2), "float64")
    y = ag.ops.tanh(ag.ops.exp(x) @ x + 1.0) * 2.0
    (expected,) = values([y], {"x": np.eye(2)})
    for captured in (False, True):
        with ag.ActorMachine([y], device="cuda:0", captured=captured) as machine:
            for _ in range(2):
                assert same([machine.run_sync({"x": np.eye(2)})[y].value], [expected])
    assert "calling cuBLAS API during stream capture" in machine.explain()


def lanes_of_products(monkeypatch, seeds):
    """Return how many seeds show that products on several lanes are in each other's way."""
    x = ag.Graph().input("x", (4, 4), "float64")
    ends = [x * float(i + 1) for i in range(4)]
    for _ in range(3):
        ends = [(end @ x).on("cuda:0", lane=lane) for lane, end in enumerate(ends)]
    feeds = {"x": np.eye(4) * 0.5}
    with ag.ActorMachine(ends, device="cuda:0", lanes=4, fuse="none") as machine:
        x.graph.placements.clear()
        expected = values(ends, feeds)
        wrong = 0
        for seed in range(seeds):
            monkeypatch.setattr(stand_in.world, "random", Random(seed))
            run = machine.run_sync(feeds)
            wrong += not same([run[end].value for end in ends], expected)
    return wrong


def test_products_on_lanes_have_workspaces_of_their_own(world, monkeypatch):
    assert lanes_of_products(monkeypatch, 10) == 0
    one, ready = {}, products.Products._is_ready

    def with_the_same(self):
        stream = stand_in.stream_now()
        self._rooms = {stream.ptr: one["room"]} if one else {}
        found = ready(self)
        one.setdefault("room", self._rooms[stream.ptr])
        return found

    monkeypatch.setattr(products.Products, "_is_ready", with_the_same)
    assert lanes_of_products(monkeypatch, 10) > 0


def test_cublas_is_that_of_the_wheel_or_of_the_system(monkeypatch):
    opened = []

    def opening(name):
        opened.append(name)
        if "cublas64" not in name and "/wheel/" not in name:
            raise OSError(name)
        return name

    library = LIBRARY
    monkeypatch.setattr(ctypes, "CDLL", opening)
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert library(12) == "cublas64_12.dll"
    assert opened == ["libcublas.so.12", "cublas64_12.dll"]
    monkeypatch.setattr(products, "_NAMES", ("libcublas.so.{}",))
    with pytest.raises(OSError, match=r"libcublas\.so\.13"):
        library(13)
    found = SimpleNamespace(abs_path="/wheel/libcublas.so.12")
    pathfinder = SimpleNamespace(load_nvidia_dynamic_lib=lambda name: found)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(pathfinder=pathfinder))
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)
    assert library(12) == "/wheel/libcublas.so.12"
