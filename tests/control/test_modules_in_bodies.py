"""Modules called in bodies of loops, branches and rows: their weights are the graph's."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests.control._runs import MACHINES

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
CALLS = {
    "map": ag.map,
    "vmap": lambda net, x: ag.vmap(net)(x),
    "scan": lambda net, x: ag.scan(lambda c, row: (c, net(row)), np.zeros(()), x)[1],
    "loop in rows": lambda net, x: ag.vmap(lambda row: ag.map(net, ag.ops.stack([row]))[0])(x),
    "branch": lambda net, x: ag.cond(ag.ops.sum(x * x) > 0, net, lambda x: x, x),
    "called outside as well": lambda net, x: net(x) * 0.0 + ag.map(net, x),
    "called outside later": lambda net, x: ag.map(net, x) + 0.0 * net(x),
}


def gradient(machine, net, y, x):
    with machine([ag.ops.sum(y * y)]) as opened:
        return opened.run_sync({x: X}, backward=True)[net.weight].grad


@each("call", CALLS)
def test_gradients_of_weights_are_those_of_one_call_on_all_rows(call):
    net, g = ag.nn.Linear(3, 3), ag.Graph()
    x = g.input("x", (4, 3), "float32")
    y = CALLS[call](net, x)
    assert [node.name for node in g.parameters] == ["weight", "bias"]
    found = [gradient(machine, net, y, x) for machine in MACHINES]
    outside = ag.Graph().input("x", (4, 3), "float32")
    wanted = gradient(ag.LispMachine, net, net(outside), outside)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_two_modules_in_bodies_have_weights_of_their_own():
    one, two, g = ag.nn.Linear(3, 3), ag.nn.Linear(3, 3), ag.Graph()
    y = ag.map(two, ag.map(one, g.input("x", (4, 3), "float32")))
    assert [node.held for node in g.parameters] == [one.weight, one.bias, two.weight, two.bias]
    with ag.TapeMachine([y]) as machine:
        np.testing.assert_allclose(machine.run_sync({"x": X})[y].value, two(one(X)), rtol=1e-5)


def test_a_parameter_made_of_a_row_of_a_body_is_one_of_the_graph():
    g = ag.Graph()
    x = g.input("x", (4, 3), "float32")
    ag.map(lambda row: row * row.graph.parameter("scale", np.ones(3, "float32")), x)
    assert [node.name for node in g.parameters] == ["scale"]


def test_batch_normalisation_runs_in_bodies_by_its_statistics():
    net = ag.nn.BatchNorm1d(3).eval()
    x = ag.Graph().input("x", (2, 4, 3), "float32")
    y = ag.map(net, x)
    with ag.TapeMachine([y]) as machine:
        found = machine.run_sync({x: np.stack([X, X])})[y].value
    np.testing.assert_allclose(found, np.stack([net(X)] * 2), rtol=1e-6)


def test_running_statistics_that_a_body_would_move_are_refused():
    x = ag.Graph().input("x", (2, 4, 3), "float32")
    with pytest.raises(
        ag.GraphError, match=r"running_mean.* the body of scan.*track_running_stats"
    ):
        ag.map(ag.nn.BatchNorm1d(3), x)


def test_a_scan_of_a_cell_is_a_layer_of_its_network():
    cell, layer = ag.nn.LSTMCell(3, 2), ag.nn.LSTM(3, 2)
    layer.load_state_dict({f"{name}_l0": one for name, one in cell.state_dict().items()})
    x = ag.Graph().input("x", (4, 3), "float32")
    zeros = np.zeros(2, "float32")
    hidden = ag.scan(lambda c, x: (cell(x, c), cell(x, c)[0]), (zeros, zeros), x)[1]
    with ag.TapeMachine([hidden]) as machine:
        np.testing.assert_allclose(machine.run_sync({x: X})[hidden].value, layer(X)[0], rtol=1e-5)
