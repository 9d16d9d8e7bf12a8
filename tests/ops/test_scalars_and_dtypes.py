"""Weak scalars take the operand's dtype; nothing else changes one but astype."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError
from tests._each import each
from tests._evaluate import evaluate

DTYPES = ["int8", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64"]


def leaf(dtype, name="x", graph=None):
    return (graph or ag.Graph()).input(name, (2,), dtype)


@each("dtype", DTYPES)
@each("scalar", [2, True, np.int64(2), np.uint8(2), np.bool_(True)])
def test_integer_and_bool_scalars_take_any_dtype(dtype, scalar):
    x = leaf(dtype)
    value = np.array([1, 3], dtype)
    for node in (x + scalar, scalar + x, x * scalar, x - scalar):
        assert node.dtype == dtype
    (got,) = evaluate([x * scalar], {x: value})
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, value * np.array(scalar, dtype))


@each("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@each("scalar", [1.5, np.float64(1.5), np.float32(1.5), np.float16(1.5)])
def test_float_scalars_take_float_and_complex_dtypes(dtype, scalar):
    assert (leaf(dtype) * scalar).dtype == dtype
    assert (scalar / leaf(dtype)).dtype == dtype


@pytest.mark.parametrize("scalar", [1.5, np.float32(1.5), 1j, float("nan")])
def test_scalar_of_a_higher_kind_raises_and_names_astype(scalar):
    x = leaf("int64")
    with pytest.raises(GraphTypeError, match=r"x: int64.* cannot hold the scalar .*\.astype"):
        x + scalar


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_complex_and_integer_scalars_need_a_dtype_that_holds_them(dtype):
    x = leaf(dtype)
    with pytest.raises(GraphTypeError, match="cannot hold the scalar"):
        x == 2j  # noqa: B015 - it raises


def test_integer_scalar_out_of_range_raises():
    with pytest.raises(GraphTypeError, match="uint8 and cannot hold the scalar 300"):
        leaf("uint8") + 300
    with pytest.raises(GraphTypeError, match="uint8 and cannot hold the scalar -1"):
        leaf("uint8") + -1


def test_an_int_of_more_than_64_bits_is_a_float_or_refused():
    assert (ag.Graph().input("x", (), "float64") + 2**70).dtype == "float64"
    for dtype in ("int64", "uint8", "bool"):
        with pytest.raises(GraphTypeError, match="cannot hold the scalar 1180591620717411303424"):
            ag.Graph().input("x", (), dtype) + 2**70


def test_two_scalars_meet_no_operand():
    x = leaf("bool")
    with pytest.raises(GraphTypeError, match="meets no operand that gives it a dtype"):
        ag.ops.where(x, 1.0, 0.0)


def test_arrays_are_not_weak_even_without_dims():
    x = leaf("float32")
    with pytest.raises(GraphTypeError, match=r"mixed dtypes.*float64.*\.astype"):
        x * np.array(2.0)


@each("name", ["add", "divide", "maximum", "power", "less", "equal"])
def test_mixed_dtypes_name_both_nodes_and_astype(name):
    x = leaf("float32")
    y = leaf("float64", "y", x.graph)
    with pytest.raises(
        GraphTypeError, match=r"'x' is float32 but 'y' is float64.*x\.astype\('float64'\)"
    ):
        getattr(ag.ops, name)(x, y)


@each(
    "build",
    [
        lambda n: n / 2,
        lambda n: 2 / n,
        lambda n: n.mean(),
        lambda n: ag.ops.exp(n),
        lambda n: ag.ops.logsumexp(n),
        lambda n: ag.ops.sigmoid(n),
        lambda n: np.sqrt(n),
    ],
)
def test_what_integers_cannot_do_names_astype(build):
    with pytest.raises(GraphTypeError, match=r"int64 is not (a )?float.*\.astype"):
        build(leaf("int64"))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_integers_do_what_numpy_lets_them_do(dtype):
    x = leaf(dtype)
    value = np.array([7, 3], dtype)
    pairs = [
        (x // 2, value // np.array(2, dtype)),
        (x % 2, value % np.array(2, dtype)),
        (x**2, value * value),
        (x**3, value * value * value),
        (2**x, np.array(2, dtype) ** value),
        (-x, -value),
        (abs(x), value),
        (x.sum(), np.array(10, dtype)),
        (x.max(), np.array(7, dtype)),
        (ag.ops.sign(x), np.array([1, 1], dtype)),
        (ag.ops.relu(x), value),
        (ag.ops.maximum(x, 5), np.array([7, 5], dtype)),
        (ag.ops.clip(x, 4), np.array([7, 4], dtype)),
        (ag.ops.clip(x, high=4), np.array([4, 3], dtype)),
        (ag.ops.where(x > 5, x, 0), np.array([7, 0], dtype)),
    ]
    for node, wanted in pairs:
        (got,) = evaluate([node], {x: value})
        assert got.dtype == node.dtype == dtype
        np.testing.assert_array_equal(got, wanted)


@each("exponent", [0, 1, 2, 3, 4, 5, -1, -2, 0.5, -0.5, 2.5, np.float32(2), True])
@each("dtype", ["float32", "float64"])
def test_scalar_powers_have_the_value_and_gradient_of_the_power(exponent, dtype):
    x = leaf(dtype)
    value = np.array([0.7, 1.9], dtype)
    node = x**exponent
    got, gradient = evaluate([node, *ag.gradients(node.sum(), [x])], {x: value})
    power = float(exponent)
    assert got.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(got, value**power, rtol=3e-7)
    np.testing.assert_allclose(gradient, power * value ** (power - 1), rtol=1e-6)


@each(
    "exponent, op",
    [(2, "square"), (-1, "reciprocal"), (0.5, "sqrt"), (2.0, "square"), (2.5, "power")],
)
def test_scalar_powers_build_the_cheap_op(exponent, op):
    assert (leaf("float64") ** exponent).op.name == op


def test_first_power_is_the_node_and_its_zeroth_is_one():
    x = leaf("float64")
    assert x**1 is x
    (got,) = evaluate([x**0], {x: np.array([0.0, np.nan])})
    np.testing.assert_array_equal(got, [1, 1])


@each("target", ["bool", "int32", "float16", "float32", "float64", "complex128"])
def test_astype_converts_as_numpy_does(target):
    x = leaf("float64")
    value = np.array([0.0, 2.5])
    node = x.astype(target)
    (got,) = evaluate([node], {x: value})
    assert got.dtype == node.dtype == target
    np.testing.assert_array_equal(got, value.astype(target))


def test_astype_to_the_same_dtype_is_the_node_itself():
    x = leaf("float32")
    assert x.astype(np.float32) is x
    assert x.astype("float64").astype("float32") is not x


def test_gradient_through_astype_has_the_dtype_of_the_argument():
    x = leaf("float32")
    (gradient,) = ag.gradients((x.astype("float64") * 3).sum(), [x])
    assert gradient.dtype == np.float32
    (got,) = evaluate([gradient], {x: np.ones(2, "float32")})
    np.testing.assert_array_equal(got, [3, 3])


def test_no_gradient_flows_through_integers_and_bools():
    x = leaf("float64")
    y = (x.astype("int64").astype("float64") * (x > 0).astype("float64")).sum()
    (gradient,) = ag.gradients(y, [x])
    (got,) = evaluate([gradient], {x: np.array([1.5, 2.5])})
    np.testing.assert_array_equal(got, [0, 0])


@each("dtype", ["S3", object, "datetime64[s]", "float128x", ">f8"])
def test_astype_refuses_dtypes_that_graphs_do_not_hold(dtype):
    with pytest.raises(GraphTypeError, match="not supported|not a dtype"):
        leaf("float32").astype(dtype)


def test_complex_does_not_become_real_silently():
    with pytest.raises(GraphTypeError, match="the imaginary part would be lost"):
        leaf("complex64").astype("float32")


@each("op", ["less", "greater_equal", "maximum", "floor_divide", "max"])
def test_complex_numbers_have_no_order(op):
    x = leaf("complex64")
    with pytest.raises(GraphTypeError, match="complex64 is not a real number"):
        getattr(ag.ops, op)(*[x] * (1 if op == "max" else 2))
