"""What each pass of stabilisation puts where, what it leaves, and the numbers at the extremes."""

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each
from tests._evaluate import evaluate
from tests.rewrite._draw import draw

ops, minus, inf, nan = ag.ops, ag.ops.neg, np.inf, np.nan


def leaves(dtype="float64", rows="n"):
    graph = ag.Graph()
    return graph.input("a", (rows, 3), dtype), graph.input("b", (rows, 3), dtype)


def shares_by_hand(x):
    return ops.exp(x) / ops.exp(x).sum(axis=0, keepdims=True)


def row(a):
    return a.sum(axis=1, keepdims=True)


# pass: (written as, drawn before, drawn after)
PATTERNS = {
    "log1p": (lambda a, b: ops.log(1 + a), "log(add(1, a))", "log1p(a)"),
    "log1p_neg": (lambda a, b: ops.log(1 - a), "log(subtract(1, a))", "log1p(neg(a))"),
    "logsigmoid": (lambda a, b: ops.log(ops.sigmoid(a)), "log(sigmoid(a))", "logsigmoid(a)"),
    "log_softmax": (
        lambda a, b: ops.log(ops.softmax(a, axis=0)),
        "log(softmax(a, axis=0))",
        "log_softmax(a, axis=0)",
    ),
    "log_product": (
        lambda a, b: ops.log(a * ops.softmax(b)),
        "log(multiply(a, softmax(b, axis=1)))",
        "add(log(a), log_softmax(b, axis=1))",
    ),
    "logsumexp": (
        lambda a, b: ops.log(row(ops.exp(a))),
        "log(sum(exp(a), axis=(1,), keepdims=True))",
        "logsumexp(a, axis=(1,), keepdims=True)",
    ),
    "softplus": (lambda a, b: ops.log1p(ops.exp(a)), "log1p(exp(a))", "softplus(a)"),
    "softplus_neg": (
        lambda a, b: ops.log1p(-ops.sigmoid(a)),
        "log1p(neg(sigmoid(a)))",
        "neg(softplus(a))",
    ),
    "expm1": (lambda a, b: ops.exp(a) - 1, "subtract(exp(a), 1)", "expm1(a)"),
    "sigmoid_rest": (
        lambda a, b: 1 - ops.sigmoid(a),
        "subtract(1, sigmoid(a))",
        "sigmoid(neg(a))",
    ),
    "sigmoid": (
        lambda a, b: 1 / (1 + ops.exp(-a)),
        "divide(1, add(1, exp(neg(a))))",
        "sigmoid(a)",
    ),
    "softmax": (
        lambda a, b: ops.exp(a) / row(ops.exp(a)),
        "divide(exp(a), sum(exp(a), axis=(1,), keepdims=True))",
        "softmax(a, axis=1)",
    ),
    "abs": (lambda a, b: ops.sqrt(a * a), "sqrt(multiply(a, a))", "abs(a)"),
    "sqrt_squared": (
        lambda a, b: ops.square(ops.sqrt(a)),
        "square(sqrt(a))",
        "where(greater_equal(a, 0), a, nan)",
    ),
    "norm": (
        lambda a, b: ops.sqrt(ops.sum(a * a, axis=1)),
        "sqrt(sum(multiply(a, a), axis=(1,), keepdims=False))",
        "norm(a, axis=(1,), keepdims=False)",
    ),
    "ratio": (lambda a, b: a / a, "divide(a, a)", "one_unless_nan(a)"),
    "sqrt_ratio": (lambda a, b: a / ops.sqrt(a), "divide(a, sqrt(a))", "sqrt(a)"),
    "double_neg": (lambda a, b: minus(minus(a)), "neg(neg(a))", "a"),
}
OTHER_SPELLINGS = {
    "log(a + 1)": (lambda a, b: ops.log(a + 1), "log1p(a)"),
    "log(a - -1)": (lambda a, b: ops.log(a - (-1)), "log1p(a)"),
    "a literal one of the same shape": (
        lambda a, b: ops.log(ops.broadcast_to(a.graph.constant(1.0), ("n", 3)) + a),
        "log1p(a)",
    ),
    "log(softmax b * a)": (
        lambda a, b: ops.log(ops.softmax(b) * a),
        "add(log(a), log_softmax(b, axis=1))",
    ),
    "log of a product of two": (
        lambda a, b: ops.log(ops.softmax(a) * ops.softmax(b)),
        "add(log_softmax(a, axis=1), log_softmax(b, axis=1))",
    ),
    "log of the sum of all": (
        lambda a, b: ops.log(ops.exp(a).sum()),
        "logsumexp(a, axis=(0, 1), keepdims=False)",
    ),
    "exp(a) + -1": (lambda a, b: ops.exp(a) + -1, "expm1(a)"),
    "-1 + exp(a)": (lambda a, b: -1 + ops.exp(a), "expm1(a)"),
    "1 + -sigmoid(a)": (lambda a, b: 1 + -ops.sigmoid(a), "sigmoid(neg(a))"),
    "reciprocal of 1 + exp(-a)": (
        lambda a, b: ops.reciprocal(ops.exp(-a) + 1),
        "sigmoid(a)",
    ),
    "sqrt of a square": (lambda a, b: (a**2) ** 0.5, "abs(a)"),
    "a root by itself": (
        lambda a, b: ops.sqrt(a) * ops.sqrt(a),
        "where(greater_equal(a, 0), a, nan)",
    ),
    "norm of squares": (
        lambda a, b: ops.sqrt(row(ops.square(a))),
        "norm(a, axis=(1,), keepdims=True)",
    ),
}
# What the parts become is rewritten again.
CHAINS = {
    "log(1 + exp(a))": (lambda a, b: ops.log(1 + ops.exp(a)), "softplus(a)"),
    "log(1 - sigmoid(a))": (
        lambda a, b: ops.log(1 - ops.sigmoid(a)),
        "logsigmoid(neg(a))",
    ),
    "log of a sigmoid by hand": (
        lambda a, b: ops.log(1 / (1 + ops.exp(-a))),
        "logsigmoid(a)",
    ),
    "log of a softmax by hand": (
        lambda a, b: ops.log(ops.exp(a) / row(ops.exp(a))),
        "log_softmax(a, axis=1)",
    ),
    "four signs": (lambda a, b: minus(minus(minus(minus(a)))), "a"),
}
UNCHANGED = {
    "log(a - 1)": lambda a, b: ops.log(a - 1),
    "log(a + 2)": lambda a, b: ops.log(a + 2),
    "log(2 - a)": lambda a, b: ops.log(2 - a),
    "log(1.0000001 + a)": lambda a, b: ops.log(1.0000001 + a),
    "log(a + b)": lambda a, b: ops.log(a + b),
    "log(1 * a)": lambda a, b: ops.log(1 * a),
    "log2(1 + a)": lambda a, b: ops.log2(1 + a),
    "log of ones that enlarge": lambda a, b: ops.log(np.ones((1, 1, 1)) + a),
    "log of one minus that enlarges": lambda a, b: ops.log(np.ones((1, 1, 1)) - a),
    "log(-sigmoid(a))": lambda a, b: ops.log(-ops.sigmoid(a)),
    "log(softmax(a) + 2)": lambda a, b: ops.log(ops.softmax(a) + 2),
    "log(sum(a))": lambda a, b: ops.log(a.sum()),
    "log(mean(exp(a)))": lambda a, b: ops.log(ops.exp(a).mean()),
    "log1p(a)": lambda a, b: ops.log1p(a),
    "log1p(-exp(a))": lambda a, b: ops.log1p(-ops.exp(a)),
    "log1p(sigmoid(a))": lambda a, b: ops.log1p(ops.sigmoid(a)),
    "exp(a) + 1": lambda a, b: ops.exp(a) + 1,
    "exp(a) - 2": lambda a, b: ops.exp(a) - 2,
    "1 - exp(a)": lambda a, b: 1 - ops.exp(a),
    "exp(a) - b": lambda a, b: ops.exp(a) - b,
    "1 + sigmoid(a)": lambda a, b: 1 + ops.sigmoid(a),
    "sigmoid(a) - 1": lambda a, b: ops.sigmoid(a) - 1,
    "2 - sigmoid(a)": lambda a, b: 2 - ops.sigmoid(a),
    "2 / (1 + exp(-a))": lambda a, b: 2 / (1 + ops.exp(-a)),
    "1 / (2 + exp(-a))": lambda a, b: 1 / (2 + ops.exp(-a)),
    "1 / (1 + exp(a))": lambda a, b: 1 / (1 + ops.exp(a)),
    "exp(a) / sum(exp(b))": lambda a, b: ops.exp(a) / row(ops.exp(b)),
    "exp(a) / sum of all": lambda a, b: ops.exp(a) / ops.exp(a).sum(keepdims=True),
    "sqrt(a * b)": lambda a, b: ops.sqrt(a * b),
    "sqrt(cube(a))": lambda a, b: ops.sqrt(ops.cube(a)),
    "sqrt(sum(a * b))": lambda a, b: ops.sqrt(ops.sum(a * b, axis=1)),
    "sqrt(a) * sqrt(b)": lambda a, b: ops.sqrt(a) * ops.sqrt(b),
    "a / b": lambda a, b: a / b,
    "a / sqrt(b)": lambda a, b: a / ops.sqrt(b),
    "neg(a)": lambda a, b: -a,
}


@each("name", PATTERNS)
def test_pattern_becomes_its_stable_form(name):
    """
    ::

        log(add(1, a))    ->    log1p(a)    and so on: the table is the drawing
    """
    written, before, after = PATTERNS[name]
    node = written(*leaves())
    assert draw(node) == before
    new = ag.rewrite.rewrite(node, [name])
    assert draw(new) == after
    assert draw(node) == before
    assert new.type == node.type
    assert draw(ag.rewrite.rewrite(node)) == after


@each("name", OTHER_SPELLINGS | CHAINS)
def test_other_spelling_and_chain_become_the_stable_form(name):
    written, after = (OTHER_SPELLINGS | CHAINS)[name]
    assert draw(ag.rewrite.rewrite(written(*leaves()))) == after


@each("name", UNCHANGED)
def test_formula_stays_as_it_is(name):
    node = UNCHANGED[name](*leaves())
    assert ag.rewrite.rewrite(node) is node


def test_every_pass_has_a_pattern():
    changing = [one.name for one in ag.rewrite.passes() if one.changes_bits]
    assert changing == list(PATTERNS)


@each("dtype", ["complex64", "complex128"])
@each("name", ["log1p", "logsumexp", "expm1", "abs", "norm", "ratio"])
def test_complex_formula_stays_as_it_is(name, dtype):
    node = PATTERNS[name][0](*leaves(dtype))
    assert ag.rewrite.rewrite(node) is node


@pytest.mark.parametrize("dtype", ["int32", "uint8", "complex64"])
def test_two_signs_cancel_in_every_number(dtype):
    a, _ = leaves(dtype)
    assert ag.rewrite.rewrite(minus(minus(a))) is a


@each("dtype", ["float16", "bfloat16", "float32"])
@each("name", PATTERNS)
def test_dtype_is_kept(name, dtype):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    new = ag.rewrite.rewrite(PATTERNS[name][0](*leaves(dtype)))
    assert new.dtype.name == dtype
    assert draw(new) == PATTERNS[name][2]


@each("name", PATTERNS)
def test_dims_that_only_a_run_knows_are_no_hindrance(name):
    a, b = leaves(rows=None)
    node = PATTERNS[name][0](a, b)
    new = ag.rewrite.rewrite(node)
    assert draw(new) == PATTERNS[name][2]
    feeds = {"a": np.full((2, 3), 0.5), "b": np.ones((2, 3))}
    machines = [ag.TapeMachine(node, wrt=[a]), ag.ActorMachine(node, wrt=[a], exact=False)]
    seed = np.ones(evaluate([node], {a: feeds["a"], b: feeds["b"]})[0].shape)
    runs = []
    for machine in machines:
        with machine:
            runs.append(machine.run_sync(feeds, backward={node: seed}))
    for part in (node, a):
        np.testing.assert_allclose(runs[1][part].value, runs[0][part].value, rtol=1e-12)
    np.testing.assert_allclose(runs[1][a].grad, runs[0][a].grad, rtol=1e-12, atol=1e-15)


def test_log_of_a_shared_softmax_leaves_the_softmax_to_others():
    """
    ::

        a -> softmax -> log      becomes    a -> softmax -> sum
                 \\-> sum                     \\-> log_softmax
    """
    a, _ = leaves()
    shares = ops.softmax(a)
    total, logs = row(shares), ops.log(shares)
    new = ag.rewrite.rewrite({"total": total, "logs": logs, "shares": shares})
    assert new["total"] is total
    assert new["shares"] is shares
    assert draw(new["logs"]) == "log_softmax(a, axis=1)"


def test_sum_of_nothing_keeps_its_logarithm():
    x = ag.Graph().input("x", (0, 3), "float64")
    node = ops.log(ops.exp(x).sum(axis=0))
    assert ag.rewrite.rewrite(node) is node


def test_logarithm_of_a_sum_that_a_run_finds_empty_is_minus_infinity():
    a, _ = leaves()
    (value,) = evaluate([ag.rewrite.rewrite(ops.log(ops.exp(a).sum(axis=0)))], {a: np.ones((0, 3))})
    np.testing.assert_array_equal(value, np.full(3, -inf))


# -- numbers ----------------------------------------------------------------------------------


def derivatives(node, a, orders=2):
    """Return the node and its elementwise derivatives along `a`."""
    found = [node]
    for _ in range(orders):
        found += ag.gradients([found[-1]], [a], seeds=[np.ones(())])
    return found


@each("name", PATTERNS)
def test_stable_form_agrees_with_what_was_written_to_second_order(name):
    rng = np.random.default_rng(5)
    a, b = leaves()
    node = PATTERNS[name][0](a, b)
    feeds = {a: rng.uniform(0.2, 0.9, (4, 3)), b: rng.uniform(-1, 1, (4, 3))}
    written = evaluate(derivatives(node, a), feeds)
    stable = evaluate(derivatives(ag.rewrite.rewrite(node), a), feeds)
    for one, other in zip(written, stable, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)


# Formula of x, then x with the value, derivative and second derivative there.
EXTREMES = {
    "log(1 + x)": (
        lambda x: ops.log(1 + x),
        [(1e-30, 1e-30, 1, -1), (-1e-20, -1e-20, 1, -1), (0.0, 0, 1, -1)],
    ),
    "log(1 - x)": (lambda x: ops.log(1 - x), [(1e-30, -1e-30, -1, -1)]),
    "log(sigmoid(x))": (
        lambda x: ops.log(ops.sigmoid(x)),
        [(-1000, -1000, 1, 0), (1000, 0, 0, 0), (40, -np.exp(-40), np.exp(-40), -np.exp(-40))],
    ),
    "log(1 + exp(x))": (
        lambda x: ops.log(1 + ops.exp(x)),
        [(1000, 1000, 1, 0), (-1000, 0, 0, 0), (-40, np.exp(-40), np.exp(-40), np.exp(-40))],
    ),
    "log(1 - sigmoid(x))": (
        lambda x: ops.log(1 - ops.sigmoid(x)),
        [(1000, -1000, -1, 0), (-40, -np.exp(-40), -np.exp(-40), -np.exp(-40))],
    ),
    "log1p(-sigmoid(x))": (
        lambda x: ops.log1p(-ops.sigmoid(x)),
        [(1000, -1000, -1, 0), (-1000, 0, 0, 0)],
    ),
    "exp(x) - 1": (lambda x: ops.exp(x) - 1, [(1e-30, 1e-30, 1, 1), (-1000, -1, 0, 0)]),
    "1 - sigmoid(x)": (
        lambda x: 1 - ops.sigmoid(x),
        [(40, np.exp(-40), -np.exp(-40), np.exp(-40)), (1000, 0, 0, 0)],
    ),
    "1 / (1 + exp(-x))": (
        lambda x: 1 / (1 + ops.exp(-x)),
        [(-1000, 0, 0, 0), (1000, 1, 0, 0), (0, 0.5, 0.25, 0)],
    ),
    "sqrt(x * x)": (
        lambda x: ops.sqrt(x * x),
        [(0, 0, 0, 0), (1e300, 1e300, 1, 0), (-1e-300, 1e-300, -1, 0)],
    ),
    "square(sqrt(x))": (lambda x: ops.square(ops.sqrt(x)), [(0, 0, 1, 0), (-1, nan, 0, 0)]),
    "x / x": (
        lambda x: x / x,
        [(0, 1, 0, 0), (inf, 1, 0, 0), (-inf, 1, 0, 0), (nan, nan, 0, 0), (1e-320, 1, 0, 0)],
    ),
    "x / sqrt(x)": (lambda x: x / ops.sqrt(x), [(4, 2, 0.25, -1 / 32)]),
    "log of softmax of x and 0": (
        lambda x: ops.log(ops.softmax(ops.stack([x, x * 0])))[0],
        [(-1000, -1000, 1, 0), (1000, 0, 0, 0)],
    ),
    "log(2 softmax) of x and 0": (
        lambda x: ops.log(ops.softmax(ops.stack([x, x * 0])) * 2.0)[0],
        [(-1000, np.log(2) - 1000, 1, 0)],
    ),
    "log of sum of exp of x and 0": (
        lambda x: ops.log(ops.exp(ops.stack([x, x * 0])).sum()),
        [(1000, 1000, 1, 0), (-1000, 0, 0, 0), (0, np.log(2), 0.5, 0.25)],
    ),
    "softmax by hand of x and 0": (
        lambda x: shares_by_hand(ops.stack([x, x * 0]))[0],
        [(1000, 1, 0, 0), (-1000, 0, 0, 0)],
    ),
}


@each("name", EXTREMES)
def test_stable_form_is_right_at_extremes_to_second_order(name):
    formula, points = EXTREMES[name]
    x = ag.Graph().input("x", (), "float64")
    nodes = derivatives(ag.rewrite.rewrite(formula(x)), x)
    for point, *wanted in points:
        got = evaluate(nodes, {x: np.float64(point)})
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-300, err_msg=f"at {point}")


def test_norm_and_its_gradients_are_finite_at_the_origin():
    a, _ = leaves()
    length = ag.rewrite.rewrite(ops.sqrt(ops.sum(a * a, axis=1)))
    value, first, second = evaluate(derivatives(length, a), {a: np.zeros((2, 3))})
    np.testing.assert_array_equal(value, np.zeros(2))
    np.testing.assert_array_equal(first, np.zeros((2, 3)))
    assert np.isfinite(second).all()


def test_norm_neither_overflows_nor_vanishes():
    a, _ = leaves()
    length = ag.rewrite.rewrite(ops.sqrt(ops.sum(a * a, axis=1)))
    (value,) = evaluate([length], {a: np.array([[3e200, 0, 4e200], [3e-200, 4e-200, 0]])})
    np.testing.assert_allclose(value, [5e200, 5e-200], rtol=1e-15)


def test_square_root_ratio_is_zero_at_zero_and_infinite_at_infinity():
    x = ag.Graph().input("x", (2,), "float64")
    node = ag.rewrite.rewrite(x / ops.sqrt(x))
    np.testing.assert_array_equal(evaluate([node], {x: np.array([0, inf])})[0], [0, inf])
