"""Transpose, concatenate and stack: values against NumPy, symbolic dims, gradients."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.types import symbol
from tests._each import each
from tests._evaluate import evaluate

n = symbol("n")


def counted(*shape):
    return np.arange(np.prod(shape), dtype="float64").reshape(shape)


@each(
    "shape, axes",
    [
        ((3, 4), None),
        ((2, 3, 4), None),
        ((2, 3, 4), (1, 0, 2)),
        ((2, 3, 4), (-1, 0, 1)),
        ((), None),
    ],
)
def test_transpose_equals_numpy(shape, axes):
    x = ag.Graph().input("x", shape, "float64")
    y = ag.ops.transpose(x, axes)
    (result,) = evaluate(y, {x: counted(*shape)})
    assert y.shape == result.shape
    assert np.array_equal(result, np.transpose(counted(*shape), axes))


def test_a_transpose_that_changes_nothing_is_the_node_itself():
    g = ag.Graph()
    x, v = g.input("x", (2, 3)), g.input("v", (3,))
    assert ag.ops.transpose(x, (0, 1)) is x
    assert ag.ops.transpose(v) is v


def test_an_empty_batch_is_reshaped_where_numpy_alone_could_not_tell_its_size():
    x = ag.Graph().input("x", ("n", 3, 4))
    y = ag.ops.reshape(x, ("n", -1))
    assert str(y.type) == "float32[n, 12]"
    assert evaluate([y], {x: np.zeros((0, 3, 4), "float32")})[0].shape == (0, 12)


def test_a_size_beside_a_zero_has_to_be_written():
    with pytest.raises(ShapeError, match=r"-1 in \(0, -1\) could be any size beside a 0"):
        ag.ops.reshape(ag.Graph().input("x", (0, 3)), (0, -1))


def test_what_cannot_be_squeezed_is_not_to_be_converted():
    with pytest.raises(ShapeError, match=r"^squeeze: dim 3 at axis 0 is not 1.*squeezed; got"):
        ag.ops.squeeze(ag.Graph().input("x", (3,)), 0)


@each("axis", [0, -1])
@each("name", "sum mean max var logsumexp argmin nansum median count_nonzero".split())
def test_a_scalar_is_reduced_along_its_one_axis_to_itself_as_in_numpy(name, axis):
    x = ag.Graph().input("x", (), "float64")
    reduce = getattr(ag.ops, name)
    got, wanted = evaluate([reduce(x, axis=axis), reduce(x)], {x: np.float64(2.5)})
    assert got.shape == ()
    assert got == wanted


@pytest.mark.parametrize("axis", [1, -2, (0, -1)])
def test_a_scalar_has_no_other_axis_to_name(axis):
    with pytest.raises(ShapeError, match=r"sum: axis .* is not there: a scalar has no axes"):
        ag.ops.sum(ag.Graph().input("x", ()), axis)


@pytest.mark.parametrize("name", "cumsum cummax softmax sort".split())
def test_a_scalar_has_no_other_axis_to_go_along(name):
    with pytest.raises(ShapeError, match=rf"{name}: axis 1 is not there: a scalar has no axes"):
        getattr(ag.ops, name)(ag.Graph().input("x", ()), 1)


def test_a_scalar_has_no_axis_for_what_is_more_than_along_it():
    with pytest.raises(ShapeError, match="split: axis 0 is not there: a scalar has no axes"):
        ag.ops.split(ag.Graph().input("x", ()), 1, 0)


def test_transpose_undoes_itself_in_the_gradient():
    x = ag.Graph().input("x", (2, 3, 4), "float64")
    weight = counted(4, 2, 3)
    (dx,) = ag.gradients((ag.ops.transpose(x, (2, 0, 1)) * weight).sum(), [x])
    assert np.array_equal(evaluate(dx, {x: counted(2, 3, 4)})[0], weight.transpose(1, 2, 0))


@pytest.mark.parametrize("axes", [(0, 0), (0,), (0, 2), (0, 1, 2)])
def test_transpose_wants_each_axis_once(axes):
    g = ag.Graph()
    with pytest.raises(ShapeError, match="transpose"):
        ag.ops.transpose(g.input("x", (2, 3)), axes)


def test_swapaxes_equals_numpy():
    x = ag.Graph().input("x", (2, 3, 4), "float64")
    (result,) = evaluate(ag.ops.swapaxes(x, 0, -1), {x: counted(2, 3, 4)})
    assert np.array_equal(result, counted(2, 3, 4).swapaxes(0, -1))


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_concatenate_equals_numpy(axis):
    g = ag.Graph()
    x, y = g.input("x", (2, 3), "float64"), g.input("y", (2, 3), "float64")
    a, b = counted(2, 3), -counted(2, 3)
    z = ag.ops.concatenate([x, b, y, x], axis)
    (result,) = evaluate(z, {x: a, y: b})
    assert z.shape == result.shape
    assert np.array_equal(result, np.concatenate([a, b, b, a], axis))


def test_concatenating_a_symbol_and_a_number_adds_them():
    x = ag.Graph().input("x", ("n", 2), "float64")
    z = ag.ops.concatenate([x, np.ones((3, 2)), x])
    assert z.shape == (2 * n + 3, 2)


def test_the_gradient_of_concatenate_is_each_operands_own_part():
    """Regression: Gorgonia's rule slices axis 0 whatever the axis."""
    g = ag.Graph()
    x, y = g.input("x", (2, "n"), "float64"), g.input("y", (2, 3), "float64")
    weight = g.input("w", (2, 2 * n + 3), "float64")
    z = ag.ops.concatenate([x, y, x], 1)
    grads = ag.gradients((z * weight).sum(), [x, y])
    feeds = {x: counted(2, 2), y: counted(2, 3), weight: counted(2, 7)}
    dx, dy = evaluate(grads, feeds)
    assert [grad.shape for grad in grads] == [x.shape, y.shape]
    assert np.array_equal(dx, counted(2, 7)[:, :2] + counted(2, 7)[:, 5:])
    assert np.array_equal(dy, counted(2, 7)[:, 2:5])


def test_concatenate_differentiates_twice_where_only_the_run_knows_dims():
    g = ag.Graph()
    x, y = g.input("x", (None, 2), "float64"), g.input("y", (None, 2), "float64")
    z = ag.ops.concatenate([x, y])
    cubes = (z * z * z).sum()
    feeds = {x: counted(2, 2), y: counted(3, 2) + 1}
    first = ag.gradients(cubes, [x, y])
    second = ag.gradients((first[1] * first[1]).sum(), [y])
    for grad, of in zip(evaluate(first, feeds), feeds.values(), strict=True):
        assert np.allclose(grad, 3 * of**2, rtol=1e-12)
    assert np.allclose(evaluate(second, feeds)[0], 36 * feeds[y] ** 3, rtol=1e-12)


def test_the_tangent_of_concatenate_is_zero_where_an_operand_does_not_move():
    g = ag.Graph()
    x, y = g.input("x", (2,), "float64"), g.input("y", (1,), "float64")
    (tangent,) = tangents(ag.ops.concatenate([x, y]), {x: g.constant(np.ones(2))})
    assert np.array_equal(evaluate(tangent, {x: np.zeros(2), y: np.zeros(1)})[0], [1, 1, 0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack_equals_numpy_and_its_gradient_takes_the_layers_apart(axis):
    g = ag.Graph()
    x, y = g.input("x", ("n", 3), "float64"), g.input("y", ("n", 3), "float64")
    a, b = counted(2, 3), -counted(2, 3)
    z = ag.ops.stack([x, y, x], axis)
    grads = ag.gradients((z * z).sum(), [x, y])
    result, dx, dy = evaluate([z, *grads], {x: a, y: b})
    expected = np.stack([a, b, a], axis)
    assert np.array_equal(result, expected)
    assert z.shape == tuple("n" if dim == 2 else dim for dim in expected.shape)
    assert np.array_equal(dx, 4 * a)
    assert np.array_equal(dy, 2 * b)


@pytest.mark.parametrize("function", [ag.ops.concatenate, ag.ops.stack])
def test_joining_mixed_dtypes_names_both_nodes(function):
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match=r"'x' is float32 but 'y' is float64.*\.astype"):
        function([g.input("x", (2,), "float32"), g.input("y", (2,), "float64")])


@pytest.mark.parametrize("function", [ag.ops.concatenate, ag.ops.stack])
@pytest.mark.parametrize(
    ("left", "right", "text"),
    [((2, 3), (2,), "ranks 2 and 1 cannot be"), ((2, 3), (2, 4), "dims at axis 1 do not fit")],
)
def test_joining_shapes_that_do_not_fit_says_where(function, left, right, text):
    g = ag.Graph()
    with pytest.raises(ShapeError, match=text):
        function([g.input("x", left), g.input("y", right)])


@pytest.mark.parametrize("function", [ag.ops.concatenate, ag.ops.stack])
def test_joining_wants_a_list_with_a_node(function):
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match="takes a list of nodes, got the node <x"):
        function(g.input("x", (2,)))
    with pytest.raises(GraphTypeError, match="needs at least one node, got 0 without any"):
        function([])


@pytest.mark.parametrize(
    ("function", "axis"), [(ag.ops.concatenate, 1), (ag.ops.concatenate, -2), (ag.ops.stack, 2)]
)
def test_joining_along_an_axis_that_is_not_there_is_a_shape_error(function, axis):
    g = ag.Graph()
    with pytest.raises(ShapeError, match=f"axis {axis} is not an int in"):
        function([g.input("x", (2,))], axis)


def test_a_thousand_arrays_are_joined():
    x = ag.Graph().input("x", (2,), "float64")
    z = ag.ops.concatenate([x] * 1000)
    assert z.shape == (2000,)
    assert np.array_equal(evaluate(z, {x: np.arange(2.0)})[0], np.tile([0.0, 1.0], 1000))
