"""Differentiation of graphs, reverse and forward, as nodes of the graph."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError
from actorgraph.op import Op
from tests._evaluate import evaluate
from tests.autodiff._checks import X


def ruleless(name="ruleless"):
    """Return an op that cannot be differentiated."""
    return Op(name, "a[*s] -> a[*s]", lambda xp, x: xp.abs(x))


# -- reverse ----------------------------------------------------------------------------------


def test_gradients_are_nodes_of_the_same_graph(g, x):
    (dx,) = ag.gradients((x * x).sum(), [x])
    assert dx.graph is g
    assert (dx.shape, dx.dtype) == (x.shape, x.dtype)
    assert np.array_equal(evaluate(dx, {x: X})[0], 2 * X)


def test_nothing_is_pulled_back_through_what_does_not_depend_on_wrt(g, x):
    w = g.parameter("w", np.ones(3))
    inner = ag.ops.tanh(x)
    outer = ag.ops.exp(inner)
    loss = (w * outer.sum()).sum()
    forward = len(g)
    ag.gradients(loss, [w])
    pulled = {part.id for node in list(g)[forward:] for part in node.inputs}
    assert not pulled & {x.id, inner.id, outer.id}


def test_cotangents_add_up_at_a_fan_out(x):
    r"""Test the graph::

            x
          / | \
        exp 3* tanh
          \ | /
           sum
    """
    y = ag.ops.exp(x) + 3.0 * x + ag.ops.tanh(x)
    (dx,) = ag.gradients(y.sum(), [x])
    assert np.allclose(evaluate(dx, {x: X})[0], np.exp(X) + 3 + 1 - np.tanh(X) ** 2, rtol=1e-14)


def test_cotangents_are_summed_from_the_latest_consumer_to_the_earliest(x):
    """Floats do not associate: this order, and no other, gives 1."""
    weights = [1.0, -1e20, 1e20]
    y = [x * weight for weight in weights]
    (dx,) = ag.gradients((y[2].sum() + y[0].sum()) + y[1].sum(), [x])
    assert np.array_equal(evaluate(dx, {x: X})[0], [1, 1, 1])


def test_the_order_of_the_sum_has_the_seed_first(x):
    """(seed + latest) + earliest, where the seed comes of x being an output itself."""
    y = (x * 1.0) + (x * -1e20)
    (dx,) = ag.gradients([y, x], [x], seeds=[1.0, 1e20])
    assert np.array_equal(evaluate(dx, {x: X})[0], [1, 1, 1])


def test_an_input_used_twice_by_one_op_gets_both_cotangents(x):
    for function, slope in (
        (lambda: x * x, 2 * X),
        (lambda: x + x, 2 + 0 * X),
        (lambda: x - x, 0 * X),
        (lambda: x / x, 0 * X),
        (lambda: ag.ops.outer(x, x)[1], np.array([X[1], 2 * X[1] - X[1] + X.sum(), X[1]])),
    ):
        (dx,) = ag.gradients(function().sum(), [x])
        assert np.allclose(evaluate(dx, {x: X})[0], slope, atol=1e-14)


def test_a_wrt_that_no_output_depends_on_gets_zeros(g, x):
    other = g.input("other", ("n", 2), "float32")
    dx, zero = ag.gradients((x * x).sum(), [x, other])
    assert (zero.shape, zero.dtype) == (("n", 2), np.float32)
    value = np.ones((4, 2), "float32")
    assert np.array_equal(evaluate(zero, {other: value})[0], np.zeros((4, 2)))
    assert np.array_equal(evaluate(dx, {x: X})[0], 2 * X)


def test_a_wrt_of_unknown_dims_that_no_output_depends_on_gets_zeros_of_its_value(g, x):
    other = g.input("other", (None, 2), "float64")
    (zero,) = ag.gradients(x.sum(), [other])
    assert np.array_equal(evaluate(zero, {other: np.ones((4, 2))})[0], np.zeros((4, 2)))


def test_a_wrt_may_be_any_node(x):
    middle = ag.ops.exp(x)
    y = (middle * middle).sum()
    d_middle, dx, dy = ag.gradients(y, [middle, x, y])
    values = evaluate([d_middle, dx, dy], {x: X})
    assert np.allclose(values[0], 2 * np.exp(X), rtol=1e-14)
    assert np.allclose(values[1], 2 * np.exp(2 * X), rtol=1e-14)
    assert values[2] == 1


def test_a_wrt_may_be_named_twice_and_given_alone_or_in_a_dict(x):
    y = (x * x).sum()
    one, two = ag.gradients(y, [x, x])
    assert one is two
    assert ag.gradients(y, x) == [one]
    assert ag.gradients({"loss": y}, {"x": x}) == [one]


def test_an_int_wrt_or_output_names_astype(g, x):
    i = g.input("i", (3,), "int64")
    with pytest.raises(GraphTypeError, match=r"wrt <i.*is int64 and has no gradient.*\.astype"):
        ag.gradients(x.sum(), [i])
    with pytest.raises(GraphTypeError, match="output <sum.*is int64 and has no gradient"):
        ag.gradients(i.sum(), [x])
    with pytest.raises(GraphTypeError, match="tangent of <i.*is int64"):
        tangents(x, {i: i})


def test_an_output_that_is_no_scalar_says_how_to_seed(x):
    with pytest.raises(ShapeError, match=r"output <x.*is no scalar; pass seeds=.*node\.sum\(\)"):
        ag.gradients(x, [x])


def test_no_output_is_an_error(x):
    with pytest.raises(GraphError, match="at least one output"):
        ag.gradients([], [x])


def test_no_wrt_gives_no_gradients(x):
    assert ag.gradients(x.sum(), []) == []


@pytest.mark.parametrize("seed", [X, X.astype("float32"), list(X), 2.0, 3])
def test_seeds_are_arrays_or_scalars(x, seed):
    (dx,) = ag.gradients(x * x, [x], seeds=[seed])
    assert np.allclose(evaluate(dx, {x: X})[0], 2 * X * np.asarray(seed), rtol=1e-14)


def test_a_seed_may_be_a_node(g, x):
    seed = g.input("seed", (3,), "float64")
    (dx,) = ag.gradients(ag.ops.exp(x), x, seeds=seed)
    assert np.allclose(evaluate(dx, {x: X, seed: X})[0], np.exp(X) * X, rtol=1e-14)


def test_several_outputs_add_their_pullbacks(x):
    (dx,) = ag.gradients([x * 2.0, x * x], [x], seeds=[np.ones(3), X])
    assert np.allclose(evaluate(dx, {x: X})[0], 2 + 2 * X * X, rtol=1e-14)


def test_an_output_named_twice_counts_twice(x):
    y = x * 3.0
    (dx,) = ag.gradients([y, y], [x], seeds=[1.0, 10.0])
    assert np.array_equal(evaluate(dx, {x: X})[0], [33, 33, 33])


@pytest.mark.parametrize(
    ("seeds", "error", "text"),
    [
        ([1.0, 2.0], FeedError, "got 2 seeds for 1 outputs"),
        ([np.ones(4)], ShapeError, r"seed of <x.*has shape \(4,\)"),
        ([np.ones((1, 3))], ShapeError, r"seed of <x.*has shape \(1, 3\)"),
        ([1j], GraphTypeError, "complex128 would change as float64"),
    ],
)
def test_a_seed_that_does_not_fit_its_output_is_refused(x, seeds, error, text):
    with pytest.raises(error, match=text):
        ag.gradients(x, [x], seeds=seeds)


def test_a_seed_node_of_another_dtype_is_refused(g, x):
    seed = g.input("seed", (3,), "float32")
    with pytest.raises(GraphTypeError, match="seed of <x.*is float32; convert it to float64"):
        ag.gradients(x, [x], seeds=[seed])


def test_gradients_of_gradients_are_right(x):
    y = (ag.ops.exp(x) * x * x).sum()
    (first,) = ag.gradients(y, [x])
    (second,) = ag.gradients(first.sum(), [x])
    (third,) = ag.gradients(second.sum(), [x])
    value = evaluate(third, {x: X})[0]
    assert np.allclose(value, np.exp(X) * (X * X + 6 * X + 6), rtol=1e-13)


def test_the_gradient_stops_where_values_become_integers(x):
    y = (ag.ops.astype(ag.ops.astype(x, "int64"), "float64") * x).sum()
    (dx,) = ag.gradients(y, [x])
    assert np.array_equal(evaluate(dx, {x: X})[0], X.astype(int))


def test_only_nodes_between_wrt_and_outputs_are_differentiated(g, x):
    """The cotangent of `w * x` flows to `w` alone, and a branch without `w` gets none."""
    w = g.input("w", (3,), "float64")
    y = (w * x + g.apply(ruleless("side"), [x])).sum()
    before = len(g)
    (dw,) = ag.gradients(y, [w])
    assert [node.op.name for node in g.nodes[before:]].count("multiply") == 1
    assert np.array_equal(evaluate(dw, {w: X, x: X})[0], X)


def test_an_op_without_a_rule_on_the_way_is_named_with_its_line(g, x):
    y = g.apply(ruleless(), [x]).sum()
    with pytest.raises(
        GraphTypeError, match=r"op 'ruleless'.*test_derivatives\.py:.*no gradient rule"
    ):
        ag.gradients(y, [x])
    with pytest.raises(GraphTypeError, match="op 'ruleless'.*no forward-mode rule"):
        tangents(y, {x: g.constant(X)})


def test_an_argument_without_a_gradient_gets_none(g, x):
    rules = (lambda ct, y, x, like: ct, None)
    first = Op("first", "a[*s] -> a[*s] -> a[*s]", lambda xp, x, like: x, vjp=rules)
    y = g.apply(first, [ag.ops.exp(x), x])
    (dx,) = ag.gradients(y.sum(), [x])
    assert np.array_equal(evaluate(dx, {x: X})[0], np.exp(X))


# -- forward ----------------------------------------------------------------------------------


def test_tangents_are_the_product_with_the_jacobian(g, x):
    w = g.input("w", (3, 3), "float64")
    y = ag.ops.tanh(ag.ops.matmul(w, x))
    matrix, v = np.arange(9.0).reshape(3, 3) / 9, np.array([1.0, 0.0, -2.0])
    (tangent,) = tangents(y, {x: g.constant(v)})
    value = evaluate(tangent, {x: X, w: matrix})[0]
    assert np.allclose(value, (1 - np.tanh(matrix @ X) ** 2) * (matrix @ v), rtol=1e-13)


def test_tangents_and_gradients_are_adjoint(g, x):
    y = ag.ops.exp(x) * x.sum() + ag.ops.concatenate([x[1:], x[:1]])
    v, ct = np.array([0.3, -1.0, 2.0]), np.array([1.0, 5.0, -0.5])
    (tangent,) = tangents(y, {x: g.constant(v)})
    (grad,) = ag.gradients(y, x, seeds=[ct])
    one, other = evaluate([tangent, grad], {x: X})
    assert np.allclose(one @ ct, other @ v, rtol=1e-13)


def test_the_tangent_of_what_does_not_move_is_zero(g, x):
    still = g.input("still", ("n",), "float32")
    zero, moved = tangents([still, x], {x: g.constant(X)})
    values = evaluate([zero, moved], {still: np.ones(2, "float32"), x: X})
    assert np.array_equal(values[0], [0, 0])
    assert zero.dtype == "float32"
    assert np.array_equal(values[1], X)


def test_forward_over_reverse_is_the_product_with_the_hessian(g, x):
    y = (ag.ops.exp(x) * x.sum()).sum()
    v = np.array([1.0, -1.0, 0.5])
    (grad,) = ag.gradients(y, [x])
    (product,) = tangents(grad, {x: g.constant(v)})
    (again,) = ag.gradients((grad * v).sum(), [x])
    one, other = evaluate([product, again], {x: X})
    e = np.exp(X)
    hessian = np.diag(e * X.sum()) + e[:, None] + e[None, :]
    assert np.allclose(one, hessian @ v, rtol=1e-13)
    assert np.allclose(other, one, rtol=1e-13)


@pytest.mark.parametrize(
    ("tangent", "error", "text"),
    [
        (np.ones(4), ShapeError, r"tangent of <x.*has shape \(4,\)"),
        (np.ones(()), ShapeError, r"tangent of <x.*has shape \(\)"),
        (np.ones(3, "float32"), GraphTypeError, "tangent of <x.*is float32"),
    ],
)
def test_a_tangent_that_does_not_fit_its_node_is_refused(g, x, tangent, error, text):
    with pytest.raises(error, match=text):
        tangents(x * 2.0, {x: g.constant(tangent)})


def test_gradients_and_tangents_are_ordinary_nodes_that_nobody_owns(g, x):
    y = (np.exp(x) * x).sum()
    (dx,) = ag.gradients(y, [x])
    tangents(y, {x: dx})
    assert [node for node in g.nodes if node.owner is not None] == []


def test_outputs_of_two_graphs_have_no_gradients_together(x):
    z = ag.Graph("other").input("z", (), "float64")
    with pytest.raises(GraphError, match="belongs to"):
        ag.gradients([(x * x).sum(), z * z], [x])
