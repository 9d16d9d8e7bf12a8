"""Parameters outlive graphs: several bind one, and none sees half of a step."""

import copy
import gc
import pickle

import numpy as np
import pytest

import actorgraph as ag
from tests._strikes import strikes

FEEDS = {"x": np.linspace(-1, 1, 6).reshape(3, 2)}


def held():
    return ag.nn.Parameter(np.linspace(0.5, 2, 4).reshape(2, 2)), ag.nn.Parameter(np.ones(2))


def bound(weights, name="g"):
    """Return (outputs, graph): the square of an affine map, and the map."""
    graph = ag.Graph(name)
    x = graph.input("x", ("n", 2), "float64")
    y = x @ graph.bind(weights[0], "w") + graph.bind(weights[1], "b")
    return (y * y).sum(), y


def test_graphs_that_bind_one_parameter_read_the_same_value():
    weights = held()
    loss, served = bound(weights)[0], bound(weights)[1]
    with ag.TapeMachine(loss) as train, ag.ActorMachine(served, fuse="none") as serve:
        solver = ag.solvers.Adam(lr=0.1)
        for _ in range(3):
            run = train.run_sync(FEEDS, backward=True)
            solver.step([run[weight] for weight in weights])
            y = serve.run_sync(FEEDS)[served].value
            np.testing.assert_array_equal(y, FEEDS["x"] @ weights[0].array + weights[1].array)


def test_one_solver_goes_on_with_its_state_where_another_graph_gives_the_gradient():
    (w, b), (w2, b2) = held(), held()
    one, solver = ag.TapeMachine(bound([w, b])[0]), ag.solvers.Adam(lr=0.1)
    others = [ag.TapeMachine(bound([w2, b2])[0]) for _ in range(2)]
    twin = ag.solvers.Adam(lr=0.1)
    for number in range(4):
        run = one.run_sync(FEEDS, backward=True)
        solver.step([run[w], run[b]])
        run = others[number % 2].run_sync(FEEDS, backward=True)
        twin.step([run[w2], run[b2]])
    np.testing.assert_array_equal(w.array, w2.array)


def test_what_a_run_of_any_graph_has_read_is_never_written():
    weights = held()
    first, second = bound(weights)[0], bound(weights)[0]
    one, other = ag.TapeMachine(first), ag.TapeMachine(second)
    run = other.run_sync(FEEDS, backward=True)
    read = run[weights[0]].value
    before = read.copy()
    step = one.compile_step(ag.solvers.SGD(lr=0.01))
    for _ in range(4):
        step(FEEDS)
        weights[0].value[0, 0] += 1.0
    np.testing.assert_array_equal(read, before)
    assert read is not weights[0].array


def test_memory_that_nobody_reads_is_used_again_with_several_graphs():
    weights = held()
    losses = [bound(weights)[0] for _ in range(3)]
    step = ag.TapeMachine(losses[0]).compile_step(ag.solvers.SGD(lr=0.01))
    places = set()
    for _ in range(8):
        step(FEEDS)
        places.add(weights[0].array.ctypes.data)
    assert len(places) == 2
    window = weights[0].value
    del losses
    gc.collect()
    assert np.shares_memory(weights[0].value, window)


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize("change", [{"shape": (6,)}, {"dtype": "int64"}, {"strides": (8, 8)}])
def test_what_is_handed_out_to_be_written_has_the_layout_of_the_parameter_again(change):
    weight = ag.nn.Parameter(np.ones((2, 3)))
    for name, value in change.items():
        setattr(weight.value, name, value)
    assert weight.value.shape == (2, 3)
    assert weight.value.strides == (24, 8)
    assert weight.value.dtype == "float64"
    np.testing.assert_array_equal(weight.value, 1.0)


def test_a_graph_that_is_gone_leaves_no_trace_in_its_parameters():
    weights = held()
    for _ in range(5):
        loss, _ = bound(weights)
        del loss, _
        gc.collect()
    kept, _ = bound(weights)
    assert len(weights[0].homes) == 1
    assert kept.graph["w"].held is weights[0]


def test_a_step_that_is_struck_shows_every_graph_all_or_nothing():
    weights = held()
    machines = [ag.TapeMachine(bound(weights)[0]) for _ in range(2)]
    step = machines[0].compile_step(ag.solvers.SGD(lr=0.01))
    before = None

    def ready():
        nonlocal before
        step(FEEDS)
        before = [weight.array for weight in weights]

    for moment in strikes(lambda: step(FEEDS), ready):
        new = {weight.array is not old for weight, old in zip(weights, before, strict=True)}
        assert len(new) == 1, f"half of a step was made, at {moment}"
        for machine in machines:
            arrays = machine.graph.store.arrays
            assert all(
                arrays[machine.graph.bound(weight).place] is weight.array for weight in weights
            )
    for machine in machines:
        machine.close()


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine, ag.LispMachine])
def test_parameters_stand_for_their_nodes_wherever_nodes_are_taken(kind):
    w, b = held()
    loss, y = bound([w, b])
    with kind({"loss": loss, "y": y}, wrt=[w, b]) as machine:
        run = machine.run_sync(FEEDS, backward=True)
        assert run[w].grad is run["w"].grad
        pushed = machine.run_sync(FEEDS, tangents={b: np.ones(2)})
        np.testing.assert_allclose(pushed[loss].tangent, run[b].grad.sum())
        machine.compile_step(ag.solvers.SGD(lr=0.1))(FEEDS)
    (slope,) = ag.gradients(loss, b)
    assert slope.shape == (2,)
    with ag.pipeline.Pipeline(loss, wrt=w, stages=1, microbatches=1, split="n") as pipeline:
        assert pipeline.run_sync(FEEDS)[w].grad.shape == (2, 2)


def test_a_parameter_whose_gradient_is_set_is_stepped_by_itself():
    w = ag.nn.Parameter(np.ones(2))
    w.grad = np.array([1.0, 2.0])
    ag.solvers.SGD(lr=0.5).step([w])
    assert w.value.tolist() == [0.5, 0.0]


def test_what_a_graph_makes_is_a_parameter_that_others_bind():
    graph, other = ag.Graph(), ag.Graph()
    node, mean = graph.parameter("w", np.ones(2)), graph.buffer("mean", np.zeros(2))
    assert isinstance(node.held, ag.nn.Parameter)
    assert isinstance(mean.held, ag.nn.Buffer)
    again = other.parameter("v", node.held)
    node.value = np.full(2, 3.0)
    assert again.value.tolist() == [3.0, 3.0]
    assert graph.bind(node.held) is node
    assert graph.clone()["w"].held is not node.held


def test_a_parameter_meets_nodes_as_an_operand():
    w, b = held()
    graph = ag.Graph()
    x = graph.input("x", ("n", 2), "float64")
    assert (x @ w + b).shape == ("n", 2)
    assert ag.ops.linear(x, w).graph.parameters == (graph.bound(w), graph.bound(b))


def test_what_a_graph_has_not_bound_is_refused():
    w, b = held()
    loss, _ = bound([w, b])
    stranger = ag.nn.Parameter(np.ones(2))
    with pytest.raises(ag.GraphError, match="is not bound by graph 'g', which has 'w', 'b'; call"):
        ag.TapeMachine(loss, wrt=[stranger])
    with pytest.raises(KeyError, match="not bound by graph"):
        ag.TapeMachine(loss).run_sync(FEEDS)[stranger]
    with pytest.raises(ag.GraphError, match="is bound already, as <w"):
        loss.graph.parameter("again", w)
    with pytest.raises(ag.GraphTypeError, match="buffer 'mean' cannot hold <parameter"):
        loss.graph.buffer("mean", stranger)
    with pytest.raises(ag.GraphTypeError, match="parameter 'w' is float64, got int64"):
        w.value = np.ones((2, 2), "int64")
    with pytest.raises(ag.ShapeError, match=r"parameter 'w' has shape \(2, 2\), got \(2,\)"):
        w.value = np.ones(2)
    with pytest.raises(ag.FeedError, match="masked array"):
        ag.nn.Parameter(np.ma.masked_array([1.0], [True]))
    with pytest.raises(ag.GraphTypeError, match="object"):
        ag.nn.Parameter(np.array([None]))


def test_parameters_are_copied_and_pickled_alone():
    w, b = held()
    bound([w, b])
    for made in (copy.deepcopy(w), pickle.loads(pickle.dumps(w))):
        np.testing.assert_array_equal(made.array, w.array)
        assert (type(made), made.name, made.homes) == (ag.nn.Parameter, "w", ())
