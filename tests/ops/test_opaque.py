"""Opaque functions run on arrays, with rules of their own or none."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, NodeError
from tests._evaluate import evaluate

X = np.array([0.5, -1.0, 2.0])


def test_an_opaque_function_runs_on_arrays(g):
    v = g.input("v", ("n",), "float64")
    ranks = ag.ops.opaque(lambda v: v.argsort().argsort(), dtype="int64", name="ranks")
    pairs = ag.ops.opaque(lambda v, w: np.stack([v, w]), shape=lambda v, w: (2, *v), name="pairs")
    y, z = ranks(v), pairs(v, v)
    assert (y.shape, y.dtype, y.op.name) == (("n",), np.int64, "ranks")
    assert z.shape == (2, "n")
    with ag.ActorMachine([y, z], workers=2) as machine:
        run = machine.run_sync({"v": X})
    assert run[y].value.tolist() == [1, 0, 2]
    assert run[z].value.tolist() == [X.tolist()] * 2


def test_an_opaque_function_has_no_gradient_and_says_what_to_do(g, x):
    y = ag.ops.opaque(np.tanh, name="secret")(x).sum()
    with pytest.raises(GraphTypeError, match=r"op 'secret'.*no gradient rule.*stop_gradient"):
        ag.gradients(y, [x])
    with pytest.raises(GraphTypeError, match="op 'secret'.*no forward-mode rule"):
        tangents(y, {x: g.constant(X)})


def test_an_opaque_function_may_be_given_rules(g, x):
    tanh = ag.ops.opaque(
        np.tanh,
        vjp=(lambda ct, y, x: ct * (1.0 - y * y),),
        jvp=lambda tans, y, x: tans[0] * (1.0 - y * y),
    )
    y = tanh(x)
    (dx,) = ag.gradients(y.sum(), [x])
    (second,) = ag.gradients(dx.sum(), [x])
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})
    t = np.tanh(X)
    for got, wanted in zip(
        evaluate([dx, tangent, second], {x: X}),
        [1 - t * t, 1 - t * t, -2 * t * (1 - t * t)],
        strict=True,
    ):
        assert np.allclose(got, wanted, rtol=1e-14)


def test_the_result_of_an_opaque_function_is_checked_in_the_run(x):
    wrong_shape = ag.ops.opaque(lambda x: x[:2], name="short")(x)
    wrong_dtype = ag.ops.opaque(lambda x: x > 0, name="test")(x)
    writes = ag.ops.opaque(lambda x: x.fill(0), name="writes")(x)
    for node, text in (
        (wrong_shape, r"returned shape \(2,\)"),
        (wrong_dtype, "returned bool"),
        (writes, "read-only"),
    ):
        with ag.TapeMachine([node]) as machine, pytest.raises(NodeError, match=text):
            machine.run_sync({"x": X})


def test_opaque_wants_a_function():
    with pytest.raises(GraphTypeError, match="opaque takes a function of arrays, got 3"):
        ag.ops.opaque(3)
