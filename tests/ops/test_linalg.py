"""Products of vectors and matrices: values against NumPy, gradients against PyTorch."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.op import REGISTRY
from tests._each import each
from tests._evaluate import evaluate

SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 2)),
    ((3, 4), (4, 2)),
    ((5, 3, 4), (4,)),
    ((4,), (5, 4, 2)),
    ((5, 3, 4), (4, 2)),
    ((3, 4), (5, 4, 2)),
    ((5, 3, 4), (5, 4, 2)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((0, 4), (4, 2)),
    ((3, 0), (0, 2)),
    ((0, 3, 4), (4, 2)),
]


def arrays(*shapes, dtype="float64"):
    rng = np.random.default_rng(len(shapes[0]))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def inputs(graph, values, symbolic=False):
    names = {3: "k3", 4: "k4", 2: "k2", 5: "k5"} if symbolic else {}
    return [
        graph.input(f"x{i}", tuple(names.get(d, d) for d in value.shape), value.dtype)
        for i, value in enumerate(values)
    ]


@each(("left", "right"), SHAPES)
@each("dtype", ["float32", "float64", "int32", "complex128"])
def test_matmul_equals_numpy_in_every_rank_and_keeps_the_dtype(left, right, dtype):
    values = arrays(left, right, dtype=dtype)
    x, y = inputs(ag.Graph(), values)
    z = ag.ops.matmul(x, y)
    (result,) = evaluate(z, {x: values[0], y: values[1]})
    expected = np.matmul(*values)
    assert z.shape == expected.shape
    assert z.dtype == result.dtype == expected.dtype
    assert np.array_equal(result, expected)


@each(("left", "right"), SHAPES)
def test_matmul_has_the_shape_of_its_value_when_dims_are_symbols(left, right):
    values = arrays(left, right)
    x, y = inputs(ag.Graph(), values, symbolic=True)
    grads = ag.gradients(ag.ops.matmul(x, y).sum(), [x, y])
    results = evaluate(grads, {x: values[0], y: values[1]})
    assert [grad.shape for grad in grads] == [x.shape, y.shape]
    assert [result.shape for result in results] == [left, right]


def test_matmul_of_arrays_without_known_dims_differentiates():
    g = ag.Graph()
    x, y = g.input("x", (None, None, 4), "float64"), g.input("y", (4, None), "float64")
    a, b = arrays((2, 3, 4), (4, 5))
    results = evaluate(ag.gradients(ag.ops.matmul(x, y).sum(), [x, y]), {x: a, y: b})
    ones = np.ones((2, 3, 5))
    assert np.allclose(results[0], ones @ b.T, rtol=1e-12)
    assert np.allclose(results[1], np.einsum("bij,bik->jk", a, ones), rtol=1e-12)


def test_the_gradient_of_a_batch_times_a_matrix_is_one_product():
    g = ag.Graph()
    x, w = g.input("x", ("batch", "time", 4), "float32"), g.parameter("w", np.ones((4, 2), "f4"))
    (dw,) = ag.gradients(ag.ops.matmul(x, w).sum(), [w])
    assert dw.op.name == "matmul"
    assert [part.shape for part in dw.inputs] == [(4, "batch*time"), ("batch*time", 2)]


@pytest.mark.parametrize(
    ("left", "right", "text"),
    [
        ((3, 4), (5, 2), "inner dims of the product do not fit: 4 and 5; got <x"),
        ((4,), (5,), "inner dims"),
        ((2, 3, 4), (3, 4, 5), r"shapes \(2,\) and \(3,\) do not fit"),
        ((), (3,), r"a scalar has no matrix product; multiply with \*"),
    ],
)
def test_matmul_names_what_does_not_fit(left, right, text):
    g = ag.Graph()
    with pytest.raises(ShapeError, match=text):
        ag.ops.matmul(g.input("x", left), g.input("y", right))


def test_matmul_of_a_symbol_and_another_symbol_is_checked_in_the_run():
    g = ag.Graph()
    z = ag.ops.matmul(g.input("x", (3, "n")), g.input("y", ("m", 2)))
    assert z.checks == [("n", "m")]


def test_matmul_of_mixed_dtypes_names_both_nodes_and_the_way_out():
    g = ag.Graph()
    x, y = g.input("x", (3, 4), "float32"), g.input("y", (4, 2), "float64")
    with pytest.raises(GraphTypeError, match=r"'x' is float32 but 'y' is float64.*\.astype"):
        ag.ops.matmul(x, y)


def test_matmul_of_bools_is_a_type_error():
    x = ag.Graph().input("x", (3, 3), "bool")
    with pytest.raises(GraphTypeError, match="bool is not a number"):
        ag.ops.matmul(x, x)


def test_matmul_takes_an_array_on_either_side():
    x = ag.Graph().input("x", (3, 3), "float64")
    a, b = arrays((3, 3), (3, 3))
    left, right = evaluate([ag.ops.matmul(a, x), ag.ops.matmul(x, a)], {x: b})
    assert np.array_equal(left, a @ b)
    assert np.array_equal(right, b @ a)


def test_the_cost_of_matmul_is_two_operations_per_multiplication():
    matmul = REGISTRY["matmul"]
    assert matmul.flops(((7, 3, 4), (4, 2)), (7, 3, 2), {}) == 2 * 7 * 3 * 2 * 4
    assert matmul.flops(((4,), (4,)), (), {}) == 8
    assert matmul.flops(((0, 4), (4, 2)), (0, 2), {}) == 1


@pytest.mark.parametrize(
    ("name", "shapes", "result", "attrs"),
    [
        ("matmul", ((2**60, 4), (4, 4)), (2**60, 4), {}),
        ("sort", ((2**32, 2**32),), (2**32, 2**32), {"axis": 0}),
        ("searchsorted", ((4,), (2**32, 2**32)), (2**32, 2**32), {"side": "left"}),
    ],
)
def test_the_cost_of_more_than_an_int64_counts_is_no_negative_number(name, shapes, result, attrs):
    assert REGISTRY[name].flops(shapes, result, attrs) > 2**62


@each("left, right", [((), (3,)), ((3,), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 2))])
def test_dot_equals_numpy_up_to_rank_2(left, right):
    values = arrays(left, right)
    x, y = inputs(ag.Graph(), values)
    (result,) = evaluate(ag.ops.dot(x, y), {x: values[0], y: values[1]})
    assert np.array_equal(result, np.dot(*values))


def test_dot_takes_python_scalars():
    x = ag.Graph().input("x", (3,), "float32")
    (result,) = evaluate(ag.ops.dot(2, x), {x: np.ones(3, "float32")})
    assert result.dtype == "float32"
    assert np.array_equal(result, [2, 2, 2])


def test_dot_above_rank_2_names_matmul():
    g = ag.Graph()
    with pytest.raises(ShapeError, match="ranks 3 and 2; for batches of matrices use matmul"):
        ag.ops.dot(g.input("x", (2, 3, 4)), g.input("y", (4, 2)))


@pytest.mark.parametrize(
    ("left", "right"), [((3,), (4,)), ((2, 3), (4,)), ((), (2, 2)), ((0,), (3,))]
)
def test_outer_equals_numpy_and_flattens(left, right):
    values = arrays(left, right)
    x, y = inputs(ag.Graph(), values)
    z = ag.ops.outer(x, y)
    (result,) = evaluate(z, {x: values[0], y: values[1]})
    assert z.shape == result.shape
    assert np.array_equal(result, np.outer(*values))


def test_the_gradient_of_outer_does_not_swap_its_operands():
    """Regression: Gorgonia's symbolic rule gives x where y belongs."""
    g = ag.Graph()
    x, y = g.input("x", (2,), "float64"), g.input("y", (3,), "float64")
    a, b = np.array([1.0, 2.0]), np.array([3.0, 5.0, 7.0])
    weight = np.array([[1.0, 0.0, 2.0], [0.0, 4.0, 0.0]])
    dx, dy = evaluate(ag.gradients((ag.ops.outer(x, y) * weight).sum(), [x, y]), {x: a, y: b})
    assert np.array_equal(dx, weight @ b)
    assert np.array_equal(dy, weight.T @ a)


def test_complex_gradients_are_adjoints():
    """<J t, ct> equals <t, J^H ct>, so the other operand has to be conjugated."""
    g = ag.Graph()
    x, y = g.input("x", (3, 4), "complex128"), g.input("y", (4, 2), "complex128")
    rng = np.random.default_rng(0)
    a, b, t, ct = (
        rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
        for shape in ((3, 4), (4, 2), (3, 4), (3, 2))
    )
    z = ag.ops.matmul(x, y)
    (dx,) = evaluate(ag.gradients(z, x, seeds=[ct]), {x: a, y: b})
    (tangent,) = evaluate(tangents(z, {x: g.constant(t)}), {x: a, y: b})
    assert np.allclose(np.vdot(tangent, ct), np.vdot(t, dx), rtol=1e-12)
