"""What the rules and forwards of a user's ops give is checked: nothing wrong trains in silence."""

import itertools

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import FeedError, GraphTypeError, NodeError, ShapeError
from tests._each import each

COUNT = itertools.count()
WRONG = [
    (lambda ct: ct.sum(), ShapeError, r"has shape \(\); it has to have shape \(3,\)"),
    (lambda ct: ct.astype("float32"), GraphTypeError, "is float32; convert it to float64"),
    (lambda ct: np.ones(3), GraphTypeError, "has to be a node, got ndarray"),
    (lambda ct: 1.0, GraphTypeError, "has to be a node, got float"),
    (lambda ct: (ct, ct), GraphTypeError, "has to be a node, got tuple|returned 2 cotangents"),
    (lambda ct: ag.Graph().constant(np.ones(3)), GraphTypeError, "of another graph"),
]
IDS = ["shape", "dtype", "array", "scalar", "tuple", "graph"]


def defined(**rules):
    return ag.ops.define(
        f"checked_{next(COUNT)}", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x * 2, **rules
    )


def awaiting(**rules):
    async def forward(xp, x):
        return x * 2

    return ag.ops.define(
        f"checked_{next(COUNT)}", scheme="f[*s] -> f[*s]", forward=forward, **rules
    )


def opaque(**rules):
    return ag.ops.opaque(lambda x: x * 2, **rules)


def custom_vjp(vjp):
    rule = ag.custom_vjp(lambda x: x * 2.0)
    rule.defvjp(vjp[0] if isinstance(vjp, tuple) else lambda *a: vjp(0, *a))
    return rule


def custom_jvp(jvp):
    rule = ag.custom_jvp(lambda x: x * 2.0)
    rule.defjvp(jvp)
    return rule


def reversed_by(make, wrong):
    yield lambda: make(vjp=(lambda ct, y, x: wrong(ct),))
    yield lambda: make(vjp=lambda i, ct, y, x: wrong(ct))
    if make is not custom_vjp:
        yield lambda: make(vjp=ag.ops.Together(lambda i, ct, y, x: [wrong(ct)]))


@each("make", [defined, awaiting, opaque, custom_vjp])
@each(("wrong", "error", "text"), WRONG)
def test_a_cotangent_that_does_not_fit_is_refused_before_anything_runs(make, wrong, error, text):
    for made in reversed_by(make, wrong):
        w = ag.Graph().parameter("w", np.ones(3))
        loss = made()(w).sum()
        with pytest.raises((error, FeedError), match=text):
            ag.gradients(loss, [w])
        with ag.TapeMachine([loss]) as machine, pytest.raises((error, FeedError), match=text):
            machine.compile_step(ag.solvers.SGD(lr=0.1))({})
        assert w.value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("make", [defined, awaiting, opaque, custom_jvp])
@pytest.mark.parametrize(("wrong", "error", "text"), WRONG, ids=IDS)
def test_a_tangent_that_does_not_fit_is_refused_before_anything_runs(
    g, x, make, wrong, error, text
):
    y = make(jvp=lambda tans, y, x: wrong(tans[0]))(x)
    with pytest.raises(error, match=text):
        tangents(y, {x: g.constant(np.ones(3))})
    with ag.TapeMachine([y]) as machine, pytest.raises(error, match=text):
        machine.run_sync({"x": np.ones(3)}, tangents={"x": np.ones(3)})


def test_a_rule_for_many_arguments_gives_a_list_of_one_for_each(g, x):
    for given in (None, [], lambda ct: ct):
        op = defined(vjp=ag.ops.Together(lambda i, ct, y, x, given=given: given))
        with pytest.raises(GraphTypeError, match=r"returned .* for 1 arguments; return a list"):
            ag.gradients(op(x).sum(), [x])


def test_what_only_a_run_can_tell_of_a_cotangent_the_run_tells(g):
    x, y = g.input("x", ("n",), "float64"), g.input("y", ("m",), "float64")
    first = ag.ops.define(
        "first_of_checked", scheme="f[n] -> f[m] -> f[n]", forward=lambda xp, x, y: x + 0,
        vjp=(lambda ct, z, x, y: y, None),
    )  # fmt: skip
    with ag.TapeMachine([first(x, y).sum()], wrt=[x]) as machine:
        run = machine.run_sync({"x": np.zeros(3), "y": np.arange(3.0)}, backward=True)
        assert run[x].grad.tolist() == [0, 1, 2]
        with pytest.raises(FeedError, match="needs m == n, but this run has 2 and 3"):
            machine.run_sync({"x": np.zeros(3), "y": np.zeros(2)}, backward=True)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x: None, "returned object"),
        (lambda x: np.ma.masked_less(x, 0), r"masked array; use \.filled"),
        (lambda x: x.astype("float32"), "returned float32"),
        (lambda x: x[:2], r"returned shape \(2,\)"),
        (lambda x: "text", "returned <U4"),
        (lambda x: [1, 2, 3], "returned int64"),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_result_of_a_forward_is_checked(x, result, text, kind):
    async def forward(xp, x):
        return result(x)

    plain = forward if kind == "async" else lambda xp, x: result(x)
    op = ag.ops.define(f"checked_{next(COUNT)}", scheme="f[*s] -> f[*s]", forward=plain)
    with ag.ActorMachine([op(x)]) as machine, pytest.raises(NodeError, match=text):
        machine.run_sync({"x": np.ones(3)})


def test_a_forward_that_forgot_to_await_is_told(x):
    async def later(x):
        return x

    op = ag.ops.define("checked_forgotten", scheme="f[*s] -> f[*s]", forward=lambda xp, x: later(x))
    with ag.TapeMachine([op(x)]) as machine, pytest.raises(NodeError, match="an `async def`"):
        machine.run_sync({"x": np.ones(3)})


def test_the_result_of_a_forward_is_a_plain_array(x):
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(np.ones((1, 1)))
    op = ag.ops.opaque(lambda x: matrix, shape=(1, 1))(x)
    with ag.TapeMachine([op]) as machine:
        assert type(machine.run_sync({"x": np.ones(3)})[op].value) is np.ndarray


def test_a_rule_that_cannot_be_called_is_refused_where_the_op_is_made():
    for make in (defined, opaque):
        for vjp in (3, (3,), ["ct"]):
            with pytest.raises(GraphTypeError, match="a vjp rule is a function of nodes, got"):
                make(vjp=vjp)
        with pytest.raises(GraphTypeError, match="jvp has to be a function of nodes, got 3"):
            make(jvp=3)
