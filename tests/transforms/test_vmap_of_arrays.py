"""vmap of functions of arrays, as the other transforms are of them."""

import numpy as np
import pytest

import actorgraph as ag
from tests.transforms._functions import close

DRAW = np.random.default_rng(0).normal


def loss(w, x):
    return np.tanh(x @ w).sum()


def test_gradients_of_each_example_are_those_of_single_calls():
    w, rows = DRAW(size=(3, 2)), DRAW(size=(4, 3))
    single = np.stack([ag.grad(loss)(w, row) for row in rows])
    close(ag.vmap(ag.grad(loss), in_axes=(None, 0))(w, rows), single)


def test_it_nests_in_itself_and_in_other_transforms():
    x, y = DRAW(size=4), DRAW(size=3)
    outer = ag.vmap(ag.vmap(lambda a, b: a * b, (None, 0)), (0, None))
    close(outer(x, y), np.multiply.outer(x, y))
    close(ag.grad(lambda x: outer(x, y).sum())(x), np.full(4, y.sum()))
    close(ag.jacobian(ag.vmap(np.sin))(x), np.diag(np.cos(x)))


def test_trees_and_axes_are_as_with_nodes():
    def f(pair, scale):
        return {"sum": pair[0] + pair[1], "scaled": pair[0] * scale}

    pair = DRAW(size=(3, 5)), DRAW(size=(3, 5))
    found = ag.vmap(f, in_axes=(1, None), out_axes=1)(pair, np.array(2.0))
    close(found["sum"], pair[0] + pair[1])
    close(found["scaled"], pair[0] * 2.0)


def test_a_function_is_traced_once_for_each_kind_of_arguments():
    traced = []

    def f(x):
        traced.append(x.shape)
        return x * 2.0

    of_rows = ag.vmap(f)
    for count in (2, 2, 3):
        close(of_rows(np.ones((count, 3))), np.full((count, 3), 2.0))
    assert traced == [(3,)] * 2


def test_a_captured_array_that_is_another_one_is_read_anew():
    scale = np.ones(3)
    of_rows = ag.vmap(lambda x: x * scale)
    close(of_rows(np.ones((2, 3))), np.ones((2, 3)))
    scale = np.full(3, 5.0)
    close(of_rows(np.ones((2, 3))), np.full((2, 3), 5.0))


def test_rows_of_different_numbers_raise_before_anything_runs():
    with pytest.raises(ag.ShapeError, match="different lengths"):
        ag.vmap(lambda a, b: a * b)(np.ones((2, 3)), np.ones((4, 3)))


def test_a_module_gives_arrays_of_rows_by_its_weights_of_today():
    net = ag.nn.Linear(3, 2)
    of_rows, rows = ag.vmap(net), DRAW(size=(4, 3)).astype("float32")
    close(of_rows(rows), net(rows), rtol=1e-5)
    net.load_state_dict({name: array + 1 for name, array in net.state_dict().items()})
    close(of_rows(rows), net(rows), rtol=1e-5)


@pytest.mark.anyio
async def test_inside_of_an_event_loop_it_says_how_to_call_it():
    with pytest.raises(ag.GraphError, match="to_thread"):
        ag.vmap(np.sin)(np.ones(3))
