"""Random formulas of what passes look at: rewriting changes no value beyond rounding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from tests._evaluate import evaluate
from tests._soak import drawn

ops = ag.ops


def total(a):
    return ops.sum(a, axis=-1, keepdims=True)


STEPS = {
    "neg": ops.neg,
    "plus one": lambda a: 1 + a,
    "less one": lambda a: a - 1,
    "one less": lambda a: 1 - a,
    "plus two": lambda a: a + 2,
    "log": ops.log,
    "log1p": ops.log1p,
    "exp": ops.exp,
    "sigmoid": ops.sigmoid,
    "softmax": ops.softmax,
    "sqrt": ops.sqrt,
    "square": ops.square,
    "times itself": lambda a: a * a,
    "by itself": lambda a: a / a,
    "by its root": lambda a: a / ops.sqrt(a),
    "reciprocal": ops.reciprocal,
    "one by": lambda a: 1 / a,
    "total": total,
    "by its total": lambda a: a / total(a),
    "log of a product": lambda a: ops.log(ops.exp(a) * ops.softmax(a)),
}
PAIRS = {"add": ops.add, "multiply": ops.multiply, "divide": ops.divide}


@st.composite
def formulas(draw):
    x = ag.Graph().input("x", ("n", 3), "float64")
    pool = [x]
    for _ in range(draw(st.integers(2, 9))):
        newest = pool[-1]
        if draw(st.integers(0, 5)):
            pool.append(STEPS[draw(st.sampled_from(sorted(STEPS)))](newest))
        else:
            other = pool[draw(st.integers(0, len(pool) - 1))]
            pool.append(PAIRS[draw(st.sampled_from(sorted(PAIRS)))](newest, other))
    return x, pool[-1]


@drawn(60, soak=1000)
@given(formulas(), st.integers(0, 9))
def test_rewriting_changes_no_value_or_derivative_beyond_rounding(formula, seed):
    x, node = formula
    fed = np.random.default_rng(seed).uniform(0.2, 1.5, (2, 3))
    results = []
    with np.errstate(all="ignore"):
        for one in (node, ag.rewrite.rewrite(node)):
            (first,) = ag.gradients([one], [x], seeds=[np.ones(())])
            results.append(evaluate([one, first], {x: fed}))
        # Where the formula cancels, a small change of its argument shows how far to trust it.
        ahead = evaluate([node], {x: fed * (1 + 1e-12)})[0]
        (value, slope), (new_value, new_slope) = results
        trusted = np.abs(ahead - value) <= 1e-9 * (1 + np.abs(value))
        trusted &= np.abs(value) < 1e6
        tame = trusted.all() and np.abs(slope).max() < 1e4
    np.testing.assert_allclose(new_value[trusted], value[trusted], rtol=1e-6, atol=1e-8)
    if tame:
        np.testing.assert_allclose(new_slope, slope, rtol=1e-4, atol=1e-4)
