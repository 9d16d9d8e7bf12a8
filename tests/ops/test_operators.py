"""Python's operators and the methods of nodes build the same nodes as the functions of ag.ops."""

import operator

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from tests._evaluate import evaluate

RNG = np.random.default_rng(0)
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.fixture
def graph():
    return ag.Graph()


def node_and_value(graph, name="x", shape=(2, 3), dtype="float64"):
    value = RNG.uniform(0.5, 2, shape).astype(dtype)
    return graph.input(name, shape, dtype), value


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISONS])
@pytest.mark.parametrize("other", ["node", "array", "python scalar", "numpy scalar"])
@pytest.mark.parametrize("reflected", [False, True])
def test_operator_does_what_numpy_does(graph, name, other, reflected):
    apply = getattr(operator, name)
    x, value = node_and_value(graph)
    y, other_value = node_and_value(graph, "y", (3,))
    right, right_value = {
        "node": (y, other_value),
        "array": (other_value, other_value),
        "python scalar": (1.5, 1.5),
        "numpy scalar": (np.float64(1.5), np.float64(1.5)),
    }[other]
    node = apply(right, x) if reflected else apply(x, right)
    wanted = apply(right_value, value) if reflected else apply(value, right_value)
    (got,) = evaluate([node], {x: value, y: other_value})
    assert node.dtype == got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
@pytest.mark.parametrize("other", [True, np.bool_(False), np.array([True, False])])
def test_bit_operators_are_logic_on_bools(graph, name, other):
    apply = getattr(operator, name)
    x, value = graph.input("x", (2,), "bool"), np.array([False, True])
    for node, wanted in (
        (apply(x, other), apply(value, other)),
        (apply(other, x), apply(other, value)),
        (~x, ~value),
    ):
        (got,) = evaluate([node], {x: value})
        assert got.dtype == bool
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
@pytest.mark.parametrize("other", [3, np.int64(2), np.array([1, 6])])
def test_bit_operators_work_on_integers(graph, name, other):
    apply = getattr(operator, name)
    x, value = graph.input("x", (2,), "int64"), np.array([12, 5])
    for node, wanted in (
        (apply(x, other), apply(value, other)),
        (apply(other, x), apply(other, value)),
        (~x, ~value),
    ):
        (got,) = evaluate([node], {x: value})
        assert got.dtype == "int64"
        np.testing.assert_array_equal(got, wanted)


def test_bit_operators_refuse_floats_and_mixtures_and_name_astype(graph):
    n, x = graph.input("n", (2,), "int64"), graph.input("x", (2,), "float32")
    with pytest.raises(GraphTypeError, match=r"bitwise_and: float32 is not an integer.*\.astype"):
        x & x
    with pytest.raises(GraphTypeError, match=r"bitwise_or: bool .*int64|bitwise_or: .*\.astype"):
        n | (n > 0)


def test_signs_build_nodes_and_plus_is_the_node_itself(graph):
    x, value = node_and_value(graph)
    got = evaluate([-x, abs(-x)], {x: value})
    np.testing.assert_array_equal(got, [-value, value])
    assert +x is x


def test_matrix_product_takes_arrays_on_either_side(graph):
    x, value = node_and_value(graph)
    left, right = RNG.normal(size=(4, 2)), RNG.normal(size=(3, 4))
    got = evaluate([left @ x, x @ right], {x: value})
    np.testing.assert_allclose(got[0], left @ value)
    np.testing.assert_allclose(got[1], value @ right)


def test_indexing_and_transposing_follow_numpy(graph):
    x, value = node_and_value(graph)
    got = evaluate([x[0], x[:, 1:], x[..., None], x.T], {x: value})
    for node, wanted in zip(got, [value[0], value[:, 1:], value[..., None], value.T], strict=True):
        np.testing.assert_array_equal(node, wanted)


@pytest.mark.parametrize("axes", [(), (None,), (0, 2, 1), ((0, 2, 1),), ([2, 0, 1],), (-1, 0, 1)])
def test_transpose_takes_axes_as_numpys_method_does(graph, axes):
    x, value = node_and_value(graph, shape=(2, 3, 4))
    (got,) = evaluate([x.transpose(*axes)], {x: value})
    np.testing.assert_array_equal(got, value.transpose(*axes))


@pytest.mark.parametrize("shape", [(6,), (3, 2), (-1,), ((3, 2),), ((-1, 2),), (1, 6, 1)])
def test_reshape_takes_shapes_as_numpys_method_does(graph, shape):
    x, value = node_and_value(graph)
    (got,) = evaluate([x.reshape(*shape)], {x: value})
    np.testing.assert_array_equal(got, value.reshape(*shape))


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_are_methods(graph, name, axis, keepdims):
    x, value = node_and_value(graph)
    node = getattr(x, name)(axis=axis, keepdims=keepdims)
    (got,) = evaluate([node], {x: value})
    wanted = getattr(value, name)(axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(got, wanted, rtol=1e-15)
    assert node.shape == np.shape(wanted)


@pytest.mark.parametrize("axis", [2, -3, (0, 0), (0, -2), 1.0, "0"])
def test_axis_that_is_none_of_the_node_raises(graph, axis):
    x, _ = node_and_value(graph)
    with pytest.raises(ShapeError, match="mean: axis"):
        x.mean(axis)


def test_equality_builds_nodes_and_hash_is_identity(graph):
    x, _ = node_and_value(graph)
    y, _ = node_and_value(graph, "y")
    assert (x == y).op.name == "equal"
    assert (x != y).op.name == "not_equal"
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2


@pytest.mark.parametrize("other", [None, "text", object()])
def test_what_is_no_array_is_no_operand(graph, other):
    x, _ = node_and_value(graph)
    text = "is not supported" if other is not None else "expected a node, an array or a number"
    with pytest.raises(GraphTypeError, match=text):
        x + other
    with pytest.raises(GraphTypeError, match=text):
        x == other  # noqa: B015 - it raises


def test_nodes_of_two_graphs_do_not_mix(graph):
    x, _ = node_and_value(graph)
    y, _ = node_and_value(ag.Graph("other"), "y")
    with pytest.raises(GraphError, match="belongs to graph 'other'"):
        x + y


def test_in_place_operators_rebind_the_name(graph):
    x, value = node_and_value(graph)
    y = x
    y += 1
    y *= 2
    assert y is not x
    (got,) = evaluate([y], {x: value})
    np.testing.assert_allclose(got, (value + 1) * 2)


def test_stacks_of_operators_merge_where_they_are_equal(graph):
    x, _ = node_and_value(graph)
    assert (x * 2 + 1) is (x * 2 + 1)
    assert (x * 2) is not (x * -2)
