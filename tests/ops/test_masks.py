"""Boolean masks in an index: values, dims, gradients, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.machines import ActorMachine, LispMachine, TapeMachine
from tests._each import each
from tests._evaluate import evaluate

X = np.arange(60.0).reshape(3, 4, 5) - 30
ROWS = np.array([True, False, True])
MATRIX = np.random.default_rng(3).integers(0, 2, (3, 4)).astype(bool)
FULL = X % 3 == 0

INDICES = {
    "first dim": (ROWS,),
    "a list": ([True, False, True],),
    "middle dim": (slice(None), [True, False, False, True]),
    "two dims": (MATRIX,),
    "last two dims": (1, X[1] > 0),
    "after an Ellipsis": (..., np.arange(5) > 2),
    "before an Ellipsis": (MATRIX, ...),
    "around an Ellipsis": (ROWS, ..., 2),
    "all dims": (FULL,),
    "nothing": (np.zeros((3, 4, 5), bool),),
    "with a slice": (MATRIX, slice(None, None, -2)),
    "with None": (None, MATRIX, None),
    "with an index array": (ROWS, [1, 3]),
    "apart from an index array": (ROWS, slice(None), [1, 3]),
    "with an int": (ROWS, slice(None), 2),
    "two masks": (ROWS, np.array([True, False, False, True])),
}


@each("shape", [X.shape, ("a", "b", "c"), (None, None, None)])
@each("name", INDICES)
def test_values_and_gradients_are_those_of_numpy(name, shape):
    index = INDICES[name]
    x = ag.Graph().input("x", shape, "float64")
    y = x[index]
    (dx,) = ag.gradients((y * y).sum(), [x])
    (ddx,) = ag.gradients((dx * dx).sum(), [x])
    value, gradient, second = evaluate([y, dx, ddx], {x: X})
    times = np.zeros_like(X)
    np.add.at(times, index, 1)
    np.testing.assert_array_equal(value, X[index])
    np.testing.assert_allclose(gradient, 2 * times * X)
    np.testing.assert_allclose(second, 8 * times**2 * X)
    assert y.ndim == value.ndim


@each("name", INDICES)
def test_constant_masks_of_known_dims_have_a_known_result(name):
    x = ag.Graph().input("x", X.shape, "float64")
    assert x[INDICES[name]].shape == X[INDICES[name]].shape


def test_how_many_entries_a_computed_mask_takes_only_a_run_knows():
    x = ag.Graph().input("x", ("n", 4), "float64")
    assert x[x > 0].shape == (None,)
    assert x[x[:, 0] > 0].shape == (None, 4)
    assert x[:, x[0] > 0].shape == ("n", None)


@pytest.mark.parametrize("machine", [LispMachine, TapeMachine, ActorMachine])
def test_a_computed_mask_runs_on_every_machine(machine):
    x = ag.Graph().input("x", ("n", 4), "float64")
    chosen = x[x > 0]
    loss = (chosen * chosen).mean()
    with machine([loss, chosen], wrt=[x]) as running:
        for size in (3, 5):
            value = np.random.default_rng(size).normal(size=(size, 4))
            run = running.run_sync({"x": value}, backward=True)
            positive = value > 0
            np.testing.assert_array_equal(run[chosen].value, value[positive])
            np.testing.assert_allclose(run[x].grad, 2 * value * positive / positive.sum())


def test_a_mask_node_that_selects_nothing_gives_no_entries_and_no_gradient():
    x = ag.Graph().input("x", (4,), "float64")
    chosen = x[x > 10]
    (dx,) = ag.gradients(chosen.sum(), [x])
    value, gradient = evaluate([chosen, dx], {x: np.ones(4)})
    assert value.shape == (0,)
    np.testing.assert_array_equal(gradient, np.zeros(4))


@pytest.mark.parametrize("index", [True, np.bool_(False), (slice(None), True), np.array(True)])
def test_a_single_bool_says_what_to_do_instead(index):
    with pytest.raises(GraphTypeError, match=r"is a single bool, a mask of no dims; use where\("):
        ag.Graph().input("x", (4, 3))[index]


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ([True, False], r"index 0 of <x.* is a mask of shape \(2,\), .* not fit the dims \(4,\)"),
        ((0, [True, False]), r"index 1 of <x.* is a mask of shape \(2,\)"),
        (np.zeros((4, 2), bool), r"mask of shape \(4, 2\), which does not fit"),
        (np.zeros((4, 3, 1), bool), "an index of 3 dims is too long"),
    ],
)
def test_a_mask_that_does_not_fit_is_a_shape_error(index, text):
    with pytest.raises(ShapeError, match=text):
        ag.Graph().input("x", (4, 3))[index]


def test_a_mask_node_that_does_not_fit_is_a_shape_error():
    g = ag.Graph()
    x, mask = g.input("x", (4, 3)), g.input("mask", (3,), "bool")
    with pytest.raises(ShapeError, match="mask"):
        x[mask]


def test_a_mask_that_turns_out_not_to_fit_raises_in_the_run():
    g = ag.Graph()
    x, mask = g.input("x", (None,), "float64"), g.input("mask", (None,), "bool")
    with pytest.raises(IndexError, match=r"mask of shape \(3,\) does not fit the dims \(4,\)"):
        evaluate(x[mask], {x: np.ones(4), mask: ROWS})


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["first dim", "two dims", "all dims", "with a slice"])
def test_masks_mean_what_they_mean_in_pytorch(name):
    torch = pytest.importorskip("torch")
    index = INDICES[name]
    if name == "with a slice":
        index = (MATRIX, slice(1, 4))  # PyTorch has no negative steps
    x = ag.Graph().input("x", X.shape, "float64")
    y = x[index]
    (dx,) = ag.gradients((y * y * y).sum(), [x])
    t = torch.tensor(X, requires_grad=True)
    z = t[tuple(torch.tensor(part) if isinstance(part, np.ndarray) else part for part in index)]
    (z**3).sum().backward()
    value, gradient = evaluate([y, dx], {x: X})
    np.testing.assert_array_equal(value, z.detach().numpy())
    np.testing.assert_allclose(gradient, t.grad.numpy(), rtol=1e-9)
