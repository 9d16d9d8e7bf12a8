"""What a run reads is fixed at its start; what it returns is the caller's own."""

import itertools
import threading

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests.machines._faults import gate, nobody_reads
from tests.machines.conftest import machines


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
        del runs
        assert nobody_reads(w)


@machines
@each("change", ["value", "in place", "solver", "step"])
def test_what_a_run_has_read_stays_as_long_as_somebody_has_it(machine_type, options, change):
    w = ag.Graph().parameter("W", np.full((2, 3), 3.0))
    with machine_type([(w * w).sum()], **options) as machine:
        solver = ag.solvers.SGD(lr=0.1)
        step = machine.compile_step(ag.solvers.SGD(lr=0.1))
        kept, rows = [], []
        for number in range(4):
            run = machine.run_sync(backward=True)
            kept.append((run[w].value, run[w].value.copy()))
            rows.append((run[w].value[1], run[w].value[1].copy()))
            if change == "value":
                w.value = np.full((2, 3), 10.0 + number)
            elif change == "in place":
                w.value[...] = 10.0 + number
                np.testing.assert_array_equal(w.value, 10.0 + number)
            elif change == "solver":
                solver.step([run[w]])
            else:
                step()
        for array, was in (*kept, *rows):
            np.testing.assert_array_equal(array, was)
        assert len({was[0, 0] for _, was in kept}) == 4


@machines
def test_what_is_handed_out_to_be_written_is_the_parameter_until_a_run_or_step_comes(
    machine_type, options
):
    w = ag.Graph().parameter("W", np.ones(3))
    with machine_type([w.sum()], **options) as machine:
        array = w.value
        assert w.value is array
        for number in range(3):
            array[0] = number
            assert machine.run_sync()[w.sum()].value == number + 2
            assert w.value is array  # nobody has what the run has read
        run = machine.run_sync(backward=True)
        w.value[0] = 7
        assert run[w].value[0] == 2
        assert w.value[0] == 7
        assert w.value is w.value


@machines
def test_arrays_of_a_parameter_take_turns(machine_type, options):
    w = ag.Graph().parameter("W", np.ones(3))
    loss = (w * w).sum()
    with machine_type([loss], **options) as machine:
        solver, places = ag.solvers.SGD(lr=0.1), set()
        step = machine.compile_step(solver)
        for _ in range(20):
            run = machine.run_sync(backward=True)
            solver.step([run[w]])
            del run
            step()
            places.add(w.held.array.ctypes.data)
        assert len(places) <= 2  # nothing of a run refers to what it has read


class WaitsForARun(ag.solvers.AbstractSolver):
    """A solver that asks a machine of the same graph while it steps."""

    def __init__(self, ask):
        super().__init__()
        self.ask = ask

    def init(self, value):
        return 0

    def update(self, state, grad, current, out):
        self.ask()
        np.subtract(current, grad, out=out)
        return state + 1


@pytest.mark.parametrize("how", ["solver", "step"])
def test_a_solver_may_wait_for_a_run_of_another_thread(how):
    graph = ag.Graph()
    w, count = graph.parameter("W", np.ones(3)), graph.buffer("count", np.zeros(3))
    loss = (w * w).sum()
    after = count + w
    graph.assign(count, after, on=after)
    with ag.TapeMachine([loss]) as machine, ag.ActorMachine([after], workers=2) as other:

        def ask():
            thread = threading.Thread(target=other.run_sync)
            thread.start()
            thread.join()

        solver = WaitsForARun(ask)
        if how == "step":
            machine.compile_step(solver)()
        else:
            solver.step([machine.run_sync(backward=True)[w]])
        np.testing.assert_array_equal(w.value, -1)
        np.testing.assert_array_equal(count.value, 1)


def test_a_step_begins_again_where_another_thread_sets_the_parameter_meanwhile():
    w = ag.Graph().parameter("W", np.ones(3))
    values = [np.full(3, 5.0)]

    def set_once():
        for value in values:
            w.value = value
        values.clear()

    solver = WaitsForARun(set_once)
    solver.step([ag.Dual(w.held.array, np.ones(3), node=w)])
    np.testing.assert_array_equal(w.value, 4)
    assert solver.slots([w])[0].state == 1


def test_a_solver_that_sets_what_it_steps_is_told():
    w = ag.Graph().parameter("W", np.ones(3))
    solver = WaitsForARun(lambda: setattr(w, "value", np.zeros(3)))
    with pytest.raises(ag.GraphError, match="'W' was set while a step was under way"):
        solver.step([ag.Dual(w.held.array, np.ones(3), node=w)])


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
@each("mode", ["forward", "backward", "tangents"])
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
        assert run["W"].value is graph["W"].held.array
        arrays = arrays_of(run)
        assert len(arrays) >= 12
        del arrays["W", "value"]
        outside = [feed, seed, graph["W"].held.array, graph["B"].held.array]
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
def test_parameters_with_one_gradient_get_arrays_of_their_own(machine_type, options):
    graph = ag.Graph()
    a, b = (graph.parameter(name, np.ones(3)) for name in "ab")
    loss = ((a + b) ** 2).sum()
    with machine_type([loss], **options) as machine:
        run = machine.run_sync(backward=True)
        assert not np.shares_memory(run[a].grad, run[b].grad)
        assert run[a].grad.tolist() == run[b].grad.tolist() == [4.0] * 3


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
    w = ag.Graph().parameter("W", np.ones(3))
    y = w * 2.0
    with machine_type([y, y + 1.0], **options) as machine:
        seeds = {y: np.ones(3), machine.outputs[(y + 1.0).name]: np.ones(3)}
        for seed in seeds.values():
            seed.flags.writeable = False
        for _ in range(2):
            np.testing.assert_array_equal(machine.run_sync(backward=seeds)[w].grad, 4)


@machines
def test_gradients_do_not_accumulate_over_runs(machine_type, options):
    w = ag.Graph().parameter("W", np.ones(3))
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
            assert run[w].value is w.held.array
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
