"""Laws of every op and function on calls that hypothesis chooses; see `_drawn`.

Normal runs try a few, the same ones each time; with ACTORGRAPH_SOAK=1 many, and new ones.
"""

from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.graph import topological_order
from actorgraph.op import REGISTRY
from actorgraph.testing._cases import check_first_order, check_second_order, check_type, close
from tests._evaluate import evaluate
from tests._soak import SOAK
from tests.ops import (  # noqa: F401 - they fill the rows
    _drawn_matrices,
    _drawn_neural,
    _drawn_places,
    _drawn_products,
    _drawn_shapes,
    _drawn_special,
    _drawn_statistics,
    _drawn_windows,
)
from tests.ops._drawn import LIBRARY, MADE_OF, ROWS

EXAMPLES = 100 if SOAK else 6

LAYOUTS = {
    "transposed": lambda value: value.T.copy().T,
    "every second entry": lambda value: np.repeat(value, 2, axis=-1)[..., ::2],
    "backwards": lambda value: np.flip(np.flip(value).copy()),
}
"""Views of the values of an array whose entries do not lie in C order."""

REDUCTIONS = "all any count_nonzero logsumexp max mean min prod sum var std".split()
NOT_DRAWN = {
    "takes no array": "eye full ones zeros",
    "asks for the number of the run; the op inside is drawn": (
        "alpha_dropout bernoulli binomial categorical dropout dropout1d dropout2d dropout3d "
        "feature_alpha_dropout gumbel_softmax normal truncated_normal uniform"
    ),
    "writes to buffers; batch_norm inside is drawn": "running_batch_norm",
    "makes ops, and is none": "Sample Together define opaque",
}


def value_and_gradients(case):
    """Return the result and its gradients by `wrt` along a random cotangent, and the feeds."""
    if not case.wrt:
        return [case.y], case.feeds
    ct = case.graph.input("ct", case.y.shape, case.y.dtype)
    feeds = {**case.feeds, ct: case.random_like(case.y)}
    return [case.y, *ag.gradients([case.y], case.wrt, seeds=[ct])], feeds


def check_layouts(case, rtol):
    """Check that values and gradients are those of contiguous copies, to the bit for rtol 0."""
    nodes, feeds = value_and_gradients(case)
    wanted = evaluate(nodes, feeds)
    for name, layout in LAYOUTS.items():
        laid = {x: layout(value) if value.ndim else value for x, value in feeds.items()}
        for got, want in zip(evaluate(nodes, laid), wanted, strict=True):
            if rtol and want.dtype.kind in "fc":
                close(got, want, rtol, name)
            else:
                np.testing.assert_array_equal(got, want, err_msg=name)


def check_float32(case32, case64, rtol):
    """Check that in float32 all is float32, and near what float64 gives for the same numbers."""
    nodes32, feeds32 = value_and_gradients(case32)
    nodes64, feeds64 = value_and_gradients(case64)
    rounded = {x: value.astype(mine.dtype) for (x, mine), value in
               zip(feeds64.items(), feeds32.values(), strict=True)}  # fmt: skip
    got, wanted = evaluate(nodes32, feeds32), evaluate(nodes64, rounded)
    for node, value, want in zip(nodes32, got, wanted, strict=True):
        assert value.dtype == node.dtype
        assert value.shape == want.shape
        if value.dtype.kind in "fc":
            close(value, want, rtol)
        else:
            np.testing.assert_array_equal(value, want)


def check_laws(one, turn):
    """Check the first order of a call, and the rest in a soak; else one third of it in turn."""
    case = one.case()
    check_type(case)
    check_first_order(case)
    if one.second and (SOAK or turn % 3 == 0):
        check_second_order(one.case())
    if SOAK or turn % 3 == 1:
        check_float32(one.case("float32"), one.case(), one.rtol32)
        check_layouts(one.case(), one.rtol_layout)
    if one.repeatable and (SOAK or turn % 3 == 2):
        check_first_order(one.case(repeat=True))
        if one.second:
            check_second_order(one.case(repeat=True))


@pytest.mark.parametrize("name", sorted(ROWS))
def test_laws_hold_for_any_call(name):
    applied, turns = set(), count()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=not SOAK,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(ROWS[name])
    def check(one):
        applied.update(node.op.name for node in topological_order([one.case().y]))
        check_laws(one, next(turns))

    check()
    meant = {op for op, made_of in MADE_OF.items() if made_of == name} | ({name} & set(REGISTRY))
    assert meant <= applied


def test_every_op_is_drawn():
    assert {op.name for op in LIBRARY} <= {*ROWS, *MADE_OF}
    assert set(MADE_OF.values()) <= set(ROWS)


def test_every_function_is_drawn_or_says_why_not():
    drawn = {getattr(ag.ops, name, None) for name in ROWS}
    missing = {name for name in ag.ops.__all__ if getattr(ag.ops, name) not in drawn}
    assert missing == {name for names in NOT_DRAWN.values() for name in names.split()}


@pytest.mark.parametrize("name", REDUCTIONS)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=not SOAK, database=None)
@given(picks=st.data())
def test_reduction_is_that_of_numpy_over_any_axes(name, picks):
    one = picks.draw(ROWS[name])
    case = one.case()
    (value,) = evaluate([case.y], case.feeds)
    reference = {"logsumexp": np.logaddexp.reduce}.get(name) or getattr(np, name)
    wanted = reference(case.feeds[case.xs[0]], **one.call.keywords)
    np.testing.assert_allclose(value, wanted, rtol=1e-12)
