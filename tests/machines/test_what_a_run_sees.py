"""What a run reads is fixed at its start; what it returns is the caller's own."""

import itertools

import numpy as np
import pytest

import actorgraph as ag
from tests.machines._faults import gate, new_gate

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ag.ActorMachine, {"workers": 2}, id="actor"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)


@pytest.fixture
def passing():
    found = new_gate()
    yield found
    found.open(1000)


def gated_product():
    graph = ag.Graph()
    x = graph.input("x", (2,), "float64")
    w = graph.parameter("W", np.full(2, 3.0))
    y = gate(x) * w
    return w, y, y.sum()


@machines
@pytest.mark.parametrize("change", ["value", "in place", "solver"])
def test_a_run_in_flight_keeps_the_parameters_it_started_with(
    machine_type, options, passing, change
):
    w, y, loss = gated_product()
    with machine_type([loss, y], **options) as machine:
        run = machine.start({"x": np.ones(2)}, backward=True)
        passing.wait_entered()
        if change == "value":
            w.value = np.full(2, 10.0)
        elif change == "in place":
            w.value[...] = 10.0
        else:
            dual = ag.Dual(w.value, np.full(2, -7.0), node=w)
            ag.solvers.SGD(lr=1.0).step([dual])
        np.testing.assert_array_equal(w.value, 10)
        passing.open()
        run.result()
        np.testing.assert_array_equal(run[y].value, 2 * 3)
        np.testing.assert_array_equal(run[w].value, 3)
        np.testing.assert_array_equal(w.value, 10)
        passing.open()
        np.testing.assert_array_equal(machine.run_sync({"x": np.ones(2)})[y].value, 2 * 10)


@machines
def test_a_queued_run_reads_the_parameters_when_it_starts(machine_type, options, passing):
    w, y, loss = gated_product()
    with machine_type([loss, y], max_in_flight=1, **options) as machine:
        first = machine.start({"x": np.ones(2)})
        passing.wait_entered()
        second = machine.start({"x": np.ones(2)})
        w.value = np.full(2, 10.0)
        passing.open(2)
        np.testing.assert_array_equal(first.result()[y].value, 2 * 3)
        np.testing.assert_array_equal(second.result()[y].value, 2 * 10)


@machines
def test_nobody_reads_a_parameter_after_the_last_run_has_ended(machine_type, options, passing):
    w, _, loss = gated_product()
    with machine_type([loss], **options) as machine:
        runs = [machine.start({"x": np.ones(2)}, backward=True) for _ in range(3)]
        runs[1].cancel()
        passing.open(3)
        runs[0].result()
        runs[2].result()
        with pytest.raises(ag.RunCancelled, match="was cancelled"):
            runs[1].result()
        assert w.state.readers == 0
        array = w.value
        w.value = np.zeros(2)
        assert w.value is array  # written in place


def sharing_graph():
    """Return a graph of which almost every result would be a view of something."""
    graph = ag.Graph()
    x = graph.input("x", (2, 3), "float64")
    w = graph.parameter("W", np.arange(6.0).reshape(2, 3))
    state = graph.buffer("B", np.arange(6.0).reshape(2, 3))
    h = ag.ops.tanh(x)
    c = graph.constant(np.ones((2, 3)))
    outputs = {
        "the input": x,
        "the parameter": w,
        "the buffer": state,
        "the constant": c,
        "of the input": x.T,
        "of the parameter": w.reshape(3, 2),
        "of the constant": c[0],
        "computed": h,
        "of the computed": h.T,
        "reshaped": h.reshape(6),
        "row": h[0],
        "broadcast": ag.ops.broadcast_to(h[0], (4, 3)),
        "broadcast to its own size": ag.ops.broadcast_to(ag.ops.exp(x), (1, 2, 3)),
        "expanded": ag.ops.expand_dims(h, 0),
        "again": h,
        "sum": h + w,
        "squeezed": ag.ops.squeeze(ag.ops.expand_dims(w, 1), 1),
    }
    return graph, outputs


def arrays_of(run):
    found = {}
    for dual in {id(dual): dual for dual in run.duals.values()}.values():
        for part in ("value", "grad", "tangent"):
            array = getattr(dual, part)
            if array is not None:
                found[dual.node.name, part] = array
    return found


@machines
@pytest.mark.parametrize("mode", ["forward", "backward", "tangents"])
def test_results_share_memory_with_nothing(machine_type, options, mode):
    graph, outputs = sharing_graph()
    feed, seed = np.random.default_rng(0).normal(size=(2, 2, 3))
    keywords = {
        "forward": {},
        "backward": {"backward": {"the input": seed, "sum": seed, "the parameter": seed}},
        "tangents": {"tangents": {"x": seed, "W": seed}},
    }[mode]
    names = ["x", "W"]
    wrt = [graph[name] for name in names] + [outputs["computed"], outputs["sum"]]
    with machine_type(outputs, wrt=wrt, **options) as machine:
        run = machine.run_sync({"x": feed}, **keywords)
        assert run["W"].value is graph["W"].value
        arrays = arrays_of(run)
        assert len(arrays) >= 12
        del arrays["W", "value"]
        outside = [feed, seed, graph["W"].value, graph["B"].value]
        outside += [n.attrs["value"] for n in graph.nodes if n.op.name == "constant"]
        for (name, array), other in itertools.product(arrays.items(), outside):
            assert not np.shares_memory(array, other), name
        for (one, left), (two, right) in itertools.combinations(arrays.items(), 2):
            assert not np.shares_memory(left, right), (one, two)
        kept = {name: array.copy() for name, array in arrays.items()}
        for _ in range(3):  # later runs change nothing of it
            machine.run_sync({"x": feed + 1}, **keywords)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, kept[name])
            assert array.flags.writeable
            array[...] = np.nan
        again = arrays_of(machine.run_sync({"x": feed}, **keywords))
        for name, array in kept.items():
            np.testing.assert_array_equal(again[name], array)
        assert not np.isnan(graph["W"].value).any()


@machines
def test_gradients_that_pass_through_addition_are_separate(machine_type, options):
    graph = ag.Graph()
    a, b = (graph.parameter(name, np.ones(3)) for name in "ab")
    total = a + b
    with machine_type([total], wrt=[a, b, total], **options) as machine:
        seed = np.arange(3.0)
        run = machine.run_sync(backward={total: seed})
        grads = [run[node].grad for node in (a, b, total)]
        for grad in grads:
            np.testing.assert_array_equal(grad, seed)
        for one, two in itertools.combinations([*grads, seed], 2):
            assert not np.shares_memory(one, two)


@machines
def test_seeds_are_read_and_never_written(machine_type, options):
    graph = ag.Graph()
    w = graph.parameter("W", np.ones(3))
    y = w * 2.0
    with machine_type([y, y + 1.0], **options) as machine:
        seeds = {y: np.ones(3), machine.outputs[(y + 1.0).name]: np.ones(3)}
        for seed in seeds.values():
            seed.flags.writeable = False
        for _ in range(2):
            np.testing.assert_array_equal(machine.run_sync(backward=seeds)[w].grad, 4)


@machines
def test_gradients_do_not_accumulate_over_runs(machine_type, options):
    graph = ag.Graph()
    w = graph.parameter("W", np.ones(3))
    with machine_type([(w * w).sum()], **options) as machine:
        for _ in range(3):
            np.testing.assert_array_equal(machine.run_sync(backward=True)[w].grad, 2)


@machines
def test_a_graph_without_ops_returns_its_leaves(machine_type, options):
    graph = ag.Graph()
    x = graph.input("x", (), "float64")
    w = graph.parameter("W", np.ones(2))
    with machine_type([x, w], wrt=[x, w], **options) as machine:
        for run in (machine.run_sync({"x": 2}), machine.start({"x": 2}).result()):
            assert run[x].value == 2
            assert run[w].value is w.value
        run = machine.run_sync({"x": 2}, backward=True)
        assert run[x].grad == 1
        np.testing.assert_array_equal(run[w].grad, 0)
        run = machine.run_sync({"x": 2}, tangents={w: np.ones(2)})
        assert run[x].tangent == 0
        np.testing.assert_array_equal(run[w].tangent, 1)


@machines
def test_what_was_not_asked_for_is_none(machine_type, options):
    graph = ag.Graph()
    w = graph.parameter("W", np.ones(2))
    unused = graph.parameter("unused", np.ones(2))
    loss = w.sum()
    with machine_type([loss], wrt=[w, unused], **options) as machine:
        run = machine.run_sync()
        assert run[loss].grad is run[loss].tangent is run[w].grad is run[w].tangent is None
        run = machine.run_sync(backward=True)
        assert run[loss].grad is None
        np.testing.assert_array_equal(run[unused].grad, 0)
        assert run[w].node is w


@machines
def test_buffers_are_the_machines_own_and_committed_in_order(machine_type, options):
    graph = ag.Graph()
    x = graph.input("x", (2,), "float64")
    count = graph.buffer("count", np.zeros(2))
    after = count + x
    graph.assign(count, after, on=after)
    with machine_type([after], **options) as machine:
        run = machine.run_sync({"x": np.ones(2)})
        run[after].value[...] = 100
        np.testing.assert_array_equal(count.value, 1)
        runs = [machine.start({"x": np.full(2, float(i))}) for i in range(8)]
        for run in runs:
            run.result()
        last = machine.run_sync({"x": np.full(2, 5.0)})
        np.testing.assert_array_equal(count.value, last[after].value)
        with pytest.raises(ag.FeedError, match="missing feed"):
            machine.run_sync()
        np.testing.assert_array_equal(count.value, last[after].value)
