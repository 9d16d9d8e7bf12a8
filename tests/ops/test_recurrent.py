"""Steps of recurrent networks: against PyTorch's cells with the same weights, shapes, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests.ops._compare import compare, draw

BATCH, FEATURES, HIDDEN = 2, 3, 4


def weights(gates):
    rows = gates * HIDDEN
    return (rows, FEATURES), (rows, HIDDEN), (rows,), (rows,)


def states(count, batched):
    lead = (BATCH,) if batched else ()
    return (*lead, FEATURES), *[(*lead, HIDDEN)] * count


def cell(torch, name, x, state, *parameters, **settings):
    module = getattr(torch.nn, name)(FEATURES, HIDDEN, dtype=torch.float64, **settings)
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, state))


@pytest.mark.oracle
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("batched", [True, False])
def test_rnn_cell_equals_that_of_pytorch_to_second_order(nonlinearity, batched):
    compare(
        lambda *xs: ag.ops.rnn_cell(*xs, nonlinearity=nonlinearity),
        lambda torch, *xs: cell(torch, "RNNCell", *xs, nonlinearity=nonlinearity),
        draw(*states(1, batched), *weights(1), low=-1, high=1),
    )


@pytest.mark.oracle
@pytest.mark.parametrize("batched", [True, False])
def test_gru_cell_equals_that_of_pytorch_to_second_order(batched):
    compare(
        ag.ops.gru_cell,
        lambda torch, *xs: cell(torch, "GRUCell", *xs),
        draw(*states(1, batched), *weights(3), low=-1, high=1),
    )


@pytest.mark.oracle
@pytest.mark.parametrize("batched", [True, False])
def test_lstm_cell_equals_that_of_pytorch_to_second_order(batched):
    def ours(x, h, c, *parameters):
        return ag.ops.concatenate(ag.ops.lstm_cell(x, (h, c), *parameters), -1)

    def theirs(torch, x, h, c, *parameters):
        return torch.cat(cell(torch, "LSTMCell", x, (h, c), *parameters), -1)

    compare(ours, theirs, draw(*states(2, batched), *weights(4), low=-1, high=1))


@pytest.mark.oracle
def test_a_sequence_of_lstm_steps_equals_that_of_pytorch():
    values = draw((3, BATCH, FEATURES), *weights(4), low=-1, high=1)

    def ours(x, *parameters):
        state = (np.zeros((BATCH, HIDDEN), x.dtype),) * 2
        for step in range(3):
            state = ag.ops.lstm_cell(x[step], state, *parameters)
        return state[0]

    def theirs(torch, x, *parameters):
        state = tuple(torch.zeros(BATCH, HIDDEN, dtype=x.dtype) for _ in range(2))
        for step in range(3):
            state = cell(torch, "LSTMCell", x[step], state, *parameters)
        return state[0]

    compare(ours, theirs, values)


def test_cells_keep_float32_and_symbolic_batches_and_need_no_bias():
    g = ag.Graph()
    x, h = g.input("x", ("batch", FEATURES)), g.input("h", ("batch", HIDDEN))
    wide, narrow = np.ones((16, FEATURES), "f4"), np.ones((16, HIDDEN), "f4")
    hidden, memory = ag.ops.lstm_cell(x, (h, h), wide, narrow)
    assert hidden.shape == memory.shape == ("batch", HIDDEN)
    assert hidden.dtype == "float32"
    assert ag.ops.gru_cell(x, h, wide[:12], narrow[:12]).shape == ("batch", HIDDEN)


def test_a_layer_over_time_takes_a_length_that_only_a_run_knows():
    rng = np.random.default_rng(0)
    w_ih, w_hh = (rng.normal(size=(4 * HIDDEN, size)) for size in (FEATURES, HIDDEN))
    x = ag.Graph().input("x", ("steps", FEATURES), "float64")
    outputs, (hidden, cell) = ag.ops.lstm(x, None, w_ih, w_hh)
    again, _ = ag.ops.lstm(x[::-1], None, w_ih, w_hh, reverse=True)
    state, stepped = (np.zeros(HIDDEN),) * 2, []
    for step in range(5):
        state = ag.ops.lstm_cell(x[step], state, w_ih, w_hh)
        stepped.append(state[0])
    with ag.TapeMachine([outputs, hidden, cell, again, *stepped, *state], wrt=[]) as machine:
        run = machine.run_sync({"x": rng.normal(size=(5, FEATURES))})
    values = [run[node].value for node in (outputs, again, *stepped)]
    np.testing.assert_allclose(values[0], values[2:], rtol=1e-12)
    np.testing.assert_array_equal(values[1][::-1], values[0])
    np.testing.assert_array_equal(run[hidden].value, values[0][-1])
    np.testing.assert_allclose(run[cell].value, run[state[1]].value, rtol=1e-12)


def test_wrong_layers_are_explained():
    x = ag.Graph().input("x", (5, 2, 3))
    w = np.ones((16, 3), "f4")
    with pytest.raises(ShapeError, match=r"gru takes sequences, \(length, \[batch,\] features\)"):
        ag.ops.gru(x[0, 0], None, w, w)
    with pytest.raises(ShapeError, match=r"lstm: weights have 4 \* 3 rows, one block"):
        ag.ops.lstm(x, None, w, w)
    with pytest.raises(GraphTypeError, match=r"lstm: state is a pair \(hidden, cell\)"):
        ag.ops.lstm(x, np.zeros((2, 4), "f4"), w, np.ones((16, 4), "f4"))
    with pytest.raises(GraphTypeError, match="peepholes are three vectors, got 2"):
        ag.ops.lstm(x, None, w, np.ones((16, 4), "f4"), peepholes=[w[0], w[0]])
    with pytest.raises(GraphTypeError, match="nonlinearity is 'tanh' or 'relu', got 'gelu'"):
        ag.ops.rnn(x, None, w, np.ones((16, 16), "f4"), nonlinearity="gelu")


def test_wrong_cells_are_explained():
    g = ag.Graph()
    x, h = g.input("x", (2, 3)), g.input("h", (2, 4))
    w = np.ones((12, 3), "f4")
    with pytest.raises(ShapeError, match=r"lstm_cell: weights have 4 \* 4 rows, one block"):
        ag.ops.lstm_cell(x, (h, h), w, w)
    with pytest.raises(ShapeError, match="gru_cell: weights have rank 2"):
        ag.ops.gru_cell(x, h, np.ones(12, "f4"), w)
    with pytest.raises(GraphTypeError, match=r"state is a pair \(hidden, cell\)"):
        ag.ops.lstm_cell(x, h, w, w)
    with pytest.raises(GraphTypeError, match="nonlinearity is 'tanh' or 'relu', got 'gelu'"):
        ag.ops.rnn_cell(x, h, w[:4], np.ones((4, 4), "f4"), nonlinearity="gelu")


@pytest.mark.parametrize("layer", [ag.ops.rnn, ag.ops.lstm])
def test_biases_are_added_in_the_steps_and_not_to_the_products_of_all(g, layer):
    gates = 1 if layer is ag.ops.rnn else 4
    shapes = (5, BATCH, FEATURES), (gates * 4, FEATURES), (gates * 4, HIDDEN), (gates * 4,)
    x, w, u, b = [g.input(name, shape) for name, shape in zip("xwub", shapes, strict=True)]
    layer(x, None, w, u, b)
    assert not [node for node in g.nodes if node.op.name == "add" and node.ndim == 3]
