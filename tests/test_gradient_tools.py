"""Stopped and hooked gradients, rules of the user's own, checkpoints, opaque functions."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import FeedError, GraphTypeError, NodeError, ShapeError
from tests._evaluate import evaluate

X = np.array([0.5, -1.0, 2.0])

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="one actor"),
    pytest.param(ag.ActorMachine, {"workers": 2, "capacity": 1, "seed": 3}, id="capacity 1"),
]
every_machine = pytest.mark.parametrize(("machine", "settings"), MACHINES)


@pytest.fixture
def g():
    return ag.Graph("net")


@pytest.fixture
def x(g):
    return g.input("x", (3,), "float64")


def op_names(nodes):
    return [node.op.name for node in nodes]


def same_bits(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert got.tobytes() == wanted.tobytes()


# -- symbolic zeros ---------------------------------------------------------------------------


def test_no_zeros_are_built_for_inputs_without_a_gradient(g, x):
    index = g.input("index", (2,), "int64")
    unused = g.input("unused", (1000, 1000), "float64")
    mask = x > 0.0
    y = (ag.ops.where(mask, x * x, unused.sum() * 0.0 + x)[index]).sum()
    before = len(g)

    ag.gradients(y, [x])

    added = g.nodes[before:]
    assert all(node.type.row.dims != (1000, 1000) for node in added)
    assert all(node.dtype.kind != "b" for node in added)


def test_the_zero_of_an_independent_wrt_is_one_broadcast_scalar(g, x):
    other = g.input("other", (1000, 1000), "float64")

    (zero,) = ag.gradients(x.sum(), [other])

    assert zero.op.name == "broadcast_to"
    assert zero.inputs[0].shape == ()


def test_stopped_branches_get_no_nodes(g, x):
    y = (ag.stop_gradient(ag.ops.exp(x)) * x).sum()
    before = len(g)

    ag.gradients(y, [x])

    assert "exp" not in op_names(g.nodes[before:])
    assert not any(name.startswith("zeros") for name in op_names(g.nodes[before:]))


# -- stop_gradient ----------------------------------------------------------------------------


def test_stop_gradient_keeps_the_value_and_stops_both_directions(g, x):
    y = ag.stop_gradient(x * x) * x

    (dx,) = ag.gradients(y.sum(), [x])
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})

    value, got, pushed = evaluate([y, dx, tangent], {x: X})
    assert np.array_equal(value, X**3)
    assert np.array_equal(got, X * X)
    assert np.array_equal(pushed, X * X)


def test_stop_gradient_of_everything_gives_zeros(x):
    (dx,) = ag.gradients(ag.stop_gradient(x).sum(), [x])

    assert np.array_equal(evaluate(dx, {x: X})[0], [0, 0, 0])


def test_stop_gradient_wants_a_node():
    with pytest.raises(GraphTypeError, match="stop_gradient needs at least one node"):
        ag.stop_gradient(X)


# -- hook_gradient ----------------------------------------------------------------------------


def clip(ct):
    return ag.ops.clip(ct, -1.0, 1.0)


@every_machine
def test_a_hook_clips_the_gradient_where_it_flows(x, machine, settings):
    y = (ag.ops.exp(ag.hook_gradient(x, clip)) + 3.0 * x).sum()
    wanted = np.minimum(np.exp(X), 1) + 3

    (dx,) = ag.gradients(y, [x])

    assert np.array_equal(evaluate(dx, {x: X})[0], wanted)
    with machine([y], wrt=[x], **settings) as running:
        same_bits(running.run_sync({"x": X}, backward=True)[x].grad, wanted)


def test_a_hook_may_look_and_leave_the_gradient_as_it_is(x):
    seen = []

    (dx,) = ag.gradients((ag.hook_gradient(x, seen.append) * 2.0).sum(), [x])

    assert len(seen) == 1
    assert seen[0].type == x.type
    assert np.array_equal(evaluate(dx, {x: X})[0], [2, 2, 2])


def test_a_hook_sees_arrays_through_an_opaque_function(x):
    seen = []

    def look(ct):
        seen.append(ct.copy())
        return ct

    y = (ag.hook_gradient(x, ag.ops.opaque(look)) * 2.0).sum()

    with ag.TapeMachine([y], wrt=[x]) as machine:
        run = machine.run_sync({"x": X}, backward=True)

    assert np.array_equal(run[x].grad, [2, 2, 2])
    assert [value.tolist() for value in seen] == [[2, 2, 2]]


@every_machine
def test_a_hook_may_use_further_nodes(g, x, machine, settings):
    scale = g.input("scale", (), "float64")
    y = (ag.hook_gradient(x, lambda ct, s: ct * s, scale) * x).sum()

    with machine([y], wrt=[x, scale], **settings) as running:
        run = running.run_sync({"x": X, "scale": 10.0}, backward=True)

    assert np.array_equal(run[x].grad, 11 * X)
    assert np.array_equal(run[scale].grad, 0)


def test_a_hook_replaces_the_gradient_for_second_derivatives_too(x):
    y = (ag.hook_gradient(x, lambda ct: ct * ct) * x * x).sum()  # its own part of dy/dx: x^4

    (dx,) = ag.gradients(y, [x])
    (second,) = ag.gradients(dx.sum(), [x])

    got, again = evaluate([dx, second], {x: X})
    assert np.allclose(got, X**4 + 2 * X**2, rtol=1e-14)
    # dx = x^4 + 2 h(x) x: the second cotangent of h(x), which is 2 x, is squared in turn.
    assert np.allclose(again, 4 * X**3 + 2 * X + 4 * X**2, rtol=1e-14)


def test_forward_mode_passes_through_a_hook(g, x):
    y = ag.ops.exp(ag.hook_gradient(x, clip))

    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})

    assert np.array_equal(evaluate(tangent, {x: X})[0], np.exp(X))


def test_a_hook_that_returns_no_node_or_another_shape_is_refused(x):
    with pytest.raises(GraphTypeError, match=r"the hook .* of <x.*returned 3\.0; return a node"):
        ag.gradients(ag.hook_gradient(x, lambda ct: 3.0).sum(), [x])
    with pytest.raises(ShapeError, match=r"hooked gradient of <x.*has shape \(\)"):
        ag.gradients(ag.hook_gradient(x, lambda ct: ct.sum()).sum(), [x])


# -- custom_vjp and custom_jvp ----------------------------------------------------------------


@ag.custom_vjp
def rounded(x):
    return ag.ops.sign(x)


@rounded.defvjp
def rounded_vjp(ct, y, x):
    return ct


@ag.custom_vjp
def product(x, y, *, power=1):
    return x * y**power


@product.defvjp
def product_vjp(ct, out, x, y, *, power=1):
    return ct * y**power, ct * x * power * y ** (power - 1)


@ag.custom_jvp
def log1pexp(x):
    return ag.ops.log(1.0 + ag.ops.exp(x))


@log1pexp.defjvp
def log1pexp_jvp(tans, y, x):
    return tans[0] * ag.ops.sigmoid(x)


@ag.custom_jvp
def quotient(x, y):
    return x / y


@quotient.defjvp
def quotient_jvp(tans, out, x, y):
    return tans[0] / y - tans[1] * out / y


@every_machine
def test_a_custom_vjp_is_used_in_place_of_the_rules(x, machine, settings):
    y = (rounded(x) * x).sum()

    with machine([y], wrt=[x], **settings) as running:
        run = running.run_sync({"x": X}, backward=True)

    assert run[y].value == np.abs(X).sum()
    assert np.array_equal(run[x].grad, X + np.sign(X))


def test_the_result_bears_the_name_of_the_function(x):
    assert rounded(x).op.name == "rounded"
    assert rounded.__doc__ == rounded.__wrapped__.__doc__


def test_a_custom_vjp_has_second_derivatives_and_keywords(g, x):
    w = g.input("w", (3,), "float64")
    y = product(x, w, power=3).sum()

    dx, dw = ag.gradients(y, [x, w])
    dww, dwx = ag.gradients(dw.sum(), [w, x])

    values = evaluate([dx, dw, dww, dwx], {x: X, w: X + 3})
    for got, wanted in zip(
        values,
        [(X + 3) ** 3, 3 * X * (X + 3) ** 2, 6 * X * (X + 3), 3 * (X + 3) ** 2],
        strict=True,
    ):
        assert np.allclose(got, wanted, rtol=1e-13)


def test_an_argument_may_be_used_twice_or_be_an_array(x):
    y = product(x, x).sum() + product(x, 2 * X).sum()

    (dx,) = ag.gradients(y, [x])

    assert np.allclose(evaluate(dx, {x: X})[0], 4 * X, rtol=1e-14)


def test_a_custom_vjp_may_leave_out_a_cotangent(g, x):
    @ag.custom_vjp
    def scaled(x, by):
        return x * by

    @scaled.defvjp
    def scaled_vjp(ct, y, x, by):
        return ct * by, None

    w = g.input("w", (3,), "float64")
    dx, dw = ag.gradients(scaled(x, w).sum(), [x, w])

    values = evaluate([dx, dw], {x: X, w: X})
    assert np.array_equal(values[0], X)
    assert np.array_equal(values[1], [0, 0, 0])


def test_a_custom_jvp_serves_both_directions_and_second_order(g, x):
    y = log1pexp(x)
    big = np.array([-800.0, 1.0, 30.0])

    (dx,) = ag.gradients(y.sum(), [x])
    (second,) = ag.gradients(dx.sum(), [x])
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})

    pushed, got, again = evaluate([tangent, dx, second], {x: big})
    sigmoid = np.exp(-np.logaddexp(0, -big))
    assert np.allclose(got, sigmoid, rtol=1e-14)
    assert np.array_equal(pushed, got)
    assert np.allclose(again, sigmoid * np.exp(-np.logaddexp(0, big)), rtol=1e-13)


@every_machine
def test_a_custom_jvp_of_two_arguments_is_transposed_in_every_machine(g, x, machine, settings):
    w = g.input("w", (3,), "float64")
    y = quotient(x * 1.0, w)

    with machine([y], wrt=[x, w], **settings) as running:
        run = running.run_sync({"x": X, "w": X + 3}, backward={y: np.ones(3)})
        forward = running.run_sync({"x": X, "w": X + 3}, tangents={"w": np.ones(3)})

    assert np.allclose(run[x].grad, 1 / (X + 3), rtol=1e-14)
    assert np.allclose(run[w].grad, -X / (X + 3) ** 2, rtol=1e-14)
    assert np.allclose(forward[y].tangent, run[w].grad, rtol=1e-14)


def test_custom_rules_work_on_dims_known_in_a_run_only(g):
    v = g.input("v", (None, "n"), "float64")
    value = np.arange(6.0).reshape(2, 3) + 1

    found = ag.gradients((log1pexp(v) + rounded(v)).sum(), [v])

    assert np.allclose(evaluate(found, {v: value})[0], 1 + 1 / (1 + np.exp(-value)), rtol=1e-14)


def test_a_custom_jvp_that_is_not_linear_says_so(x):
    @ag.custom_jvp
    def wrong(x):
        return x * 2.0

    @wrong.defjvp
    def wrong_jvp(tans, y, x):
        return tans[0] * tans[0]

    with pytest.raises(GraphTypeError, match="jvp rule of wrong is not linear in its tangents"):
        ag.gradients(wrong(x).sum(), [x])


def test_misuse_of_custom_rules_says_what_to_do(g, x):
    w = g.parameter("w", np.ones(3))

    def double(x):
        return x * 2.0

    captured, ruleless = ag.custom_vjp(lambda x: x * w), ag.custom_vjp(double)
    captured.defvjp(rounded_vjp)
    wrong = ag.custom_vjp(double)
    wrong.defvjp(lambda ct, y, x: (ct, ct))
    tuples = ag.custom_vjp(lambda x: (x, x))
    tuples.defvjp(rounded_vjp)
    with pytest.raises(GraphTypeError, match=r"uses <w.*no argument.*pass it as an argument"):
        captured(x)
    with pytest.raises(GraphTypeError, match=r"double has no rule; write @double\.defvjp"):
        ruleless(x)
    with pytest.raises(GraphTypeError, match="double is a custom_vjp; give it defvjp"):
        ruleless.defjvp(rounded_vjp)
    with pytest.raises(GraphTypeError, match="double has a defvjp already"):
        wrong.defvjp(rounded_vjp)
    with pytest.raises(GraphTypeError, match="has to return one node, got tuple"):
        tuples(x)
    with pytest.raises(GraphTypeError, match="needs a node among its positional arguments"):
        rounded(X)
    with pytest.raises(GraphTypeError, match="give nodes as positional arguments"):
        product(x, x, power=x)
    with pytest.raises(FeedError, match="returned 2 cotangents for 1 arguments"):
        ag.gradients(wrong(x).sum(), [x])
    with pytest.raises(GraphTypeError, match="op 'rounded'.*no forward-mode rule"):
        tangents(rounded(x), {x: g.constant(X)})


def test_a_cotangent_of_another_shape_is_refused(x):
    bad = ag.custom_vjp(lambda x: x * 2.0)
    bad.defvjp(lambda ct, y, x: ct.sum())

    with pytest.raises(ShapeError, match="cotangent that the rule of <lambda> gave"):
        ag.gradients(bad(x).sum(), [x])


# -- opaque -----------------------------------------------------------------------------------


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


# -- checkpoint -------------------------------------------------------------------------------

V = np.random.default_rng(0).normal(size=(4, 5))
W = np.random.default_rng(1).normal(size=(5, 5))


def block(v, w):
    hidden = ag.ops.tanh(v @ w)
    return hidden * v + ag.ops.exp(hidden) + v


def leaves(g):
    return g.input("v", ("batch", 5), "float64"), g.parameter("w", W)


def chained(wrap):
    """A fan-out around blocks, so that the order of sums of cotangents matters."""
    g = ag.Graph()
    v, w = leaves(g)
    y = wrap(block)(v, w)
    z = wrap(block)(y, w) + y * 1e8
    return v, w, (wrap(block)(z * 1e-8, w) * v + z).sum()


def branching(wrap):
    """A block of two results that captures a node and uses what is built outside too."""
    g = ag.Graph()
    v, w = leaves(g)
    outside = ag.ops.exp(v)

    def fork(v):
        shared = ag.ops.exp(v) * ag.ops.tanh(v @ w)
        return {"a": shared * 3.0, "b": [ag.ops.sin(shared), outside * shared]}

    parts = wrap(fork)(v)
    return v, w, (parts["a"] * parts["b"][0] + parts["b"][1] * outside).sum()


def nested(wrap):
    g = ag.Graph()
    v, w = leaves(g)

    def outer(v, w):
        return wrap(block)(wrap(block)(v, w) * 0.1, w)

    return v, w, wrap(outer)(wrap(outer)(v, w) * 0.01, w).sum()


def twice_the_same(wrap):
    g = ag.Graph()
    v, w = leaves(g)
    plain = block(v, w)
    return v, w, (wrap(block)(v, w) * wrap(block)(v, w) * plain).sum()


def trivial(wrap):
    g = ag.Graph()
    v, w = leaves(g)
    same, constant = wrap(lambda v: (v, v.graph.constant(np.ones(5))))(v)
    return v, w, (same @ w * constant).sum()


def unwrapped(function):
    return function


GRAPHS = [chained, branching, nested, twice_the_same, trivial]


@pytest.mark.parametrize("build", GRAPHS)
@every_machine
def test_checkpoints_change_no_bit_of_a_gradient(build, machine, settings):
    results = []
    for wrap in (unwrapped, ag.checkpoint):
        v, w, loss = build(wrap)
        with machine([loss], wrt=[v, w], **settings) as running:
            run = running.run_sync({"v": V}, backward=True)
            results.append([run[node] for node in (loss, v, w)])
    plain, recomputed = results
    same_bits(recomputed[0].value, plain[0].value)
    same_bits(recomputed[1].grad, plain[1].grad)
    same_bits(recomputed[2].grad, plain[2].grad)


@pytest.mark.parametrize("build", GRAPHS)
def test_checkpoints_change_no_bit_of_symbolic_second_and_forward_derivatives(build):
    results = []
    for wrap in (unwrapped, ag.checkpoint):
        v, w, loss = build(wrap)
        dv, dw = ag.gradients(loss, [v, w])
        second = ag.gradients((dv * dv).sum() + dw.sum(), [v, w])
        pushed = tangents([loss, dv], {w: w.graph.constant(W[::-1])})
        results.append(evaluate([dv, dw, *second, *pushed], {v: V}))
    for number, (plain, got) in enumerate(zip(*results, strict=True)):
        if number in (0, 1, 4):
            same_bits(got, plain)
        np.testing.assert_allclose(got, plain, rtol=1e-11, atol=1e-11 * np.abs(plain).max())


def random_graph(seed, wrap):
    """Nested blocks of two results with fan-outs, captured parameters and dropout.

    Each node has a factor of its own: equal nodes inside and outside of a part would be one node
    without checkpoints and two with them, and sums of cotangents another order.
    """
    rng = np.random.default_rng(seed)
    g = ag.Graph()
    v, w = leaves(g)
    count = iter(range(1000))

    def piece(depth):
        def apply(*xs):
            pool = list(xs)
            for _ in range(rng.integers(2, 6)):
                a, b = (pool[i] for i in rng.integers(0, len(pool), 2))
                choices = (a @ w, a * b, a + b, ag.ops.tanh(a), ag.ops.dropout(b, 0.5))
                node = choices[rng.integers(len(choices))] * (1 + 1e-3 * next(count))
                if depth and rng.random() < 0.3:
                    node = wrap(piece(depth - 1))(node, a)[0]
                pool.append(node)
            return pool[-2], [pool[-1]]

        return apply

    pool = [v, v * 2.0]
    for _ in range(4):
        a, b = (pool[i] for i in rng.integers(0, len(pool), 2))
        y, (z,) = wrap(piece(2))(a, b)
        pool += [y * 0.5, z * 0.1]
    return v, w, (ag.ops.concatenate(pool) * 0.01).sum()


@pytest.mark.parametrize("seed", range(12))
def test_checkpoints_change_no_bit_on_random_graphs(seed):
    results = []
    for wrap in (unwrapped, ag.checkpoint):
        v, w, loss = random_graph(seed, wrap)
        for machine, settings in (
            (ag.LispMachine, {}),
            (ag.ActorMachine, {"workers": 2, "fuse": "none", "seed": seed}),
            (ag.ActorMachine, {"workers": 2, "capacity": 1}),
        ):
            with machine([loss], wrt=[v, w], **settings) as running:
                run = running.run_sync({"v": V}, backward=True)
                results.append([run[loss].value, run[v].grad, run[w].grad])
    for others in zip(*results, strict=True):
        for other in others[1:]:
            same_bits(other, others[0])


def test_the_backward_pass_recomputes_from_the_inputs_alone():
    v, w, loss = chained(ag.checkpoint)
    forward = {node for node in loss.graph.nodes if node.op.name in ("tanh", "exp")}

    derived = ag.gradients(loss, [v, w])

    used_again = {
        part for node in loss.graph.nodes if node.id > loss.id for part in node.inputs
    } & forward
    assert not used_again
    assert op_names(v.graph.topological_order(derived)).count("recompute") == 6


def test_the_graph_stays_readable(g):
    v, w = leaves(g)

    y = ag.checkpoint(block)(v, w)

    assert repr(y).startswith("<checkpoint_")
    assert op_names(g.nodes[2:]) == [
        "matmul",
        "tanh",
        "multiply",
        "exp",
        "add",
        "add",
        "checkpoint",
    ]
    assert y.inputs[1:] == (v, w)
    assert ag.checkpoint(block).__name__ == "block"


def test_checkpoints_survive_a_copy_of_the_graph():
    v, w, loss = chained(ag.checkpoint)
    copy = v.graph.subgraph(loss)

    wanted = evaluate(ag.gradients(loss, [v, w]), {v: V})
    again = copy.node(loss.name)
    got = evaluate(ag.gradients(again, [copy["v"], copy["w"]]), {copy["v"]: V})

    for one, other in zip(got, wanted, strict=True):
        same_bits(one, other)
    assert "recompute" in op_names(copy.nodes)


def peak_bytes(wrap, machine, symbolic=False):
    g = ag.Graph()
    v = g.input("v", (100_000,), "float64")

    def stage(v):
        for _ in range(8):
            v = ag.ops.sin(v * 1.5)
        return v

    y = v
    for _ in range(8):
        y = wrap(stage)(y)
    loss = y.sum()
    feeds = {"v": np.linspace(0, 1, 100_000)}
    outputs = [loss, *ag.gradients(loss, [v])] if symbolic else [loss]
    backward = not symbolic
    tracemalloc.start()  # before the first run, whose memory programs keep
    try:
        with machine(outputs, wrt=[v], workers=1) as running:
            running.run_sync(feeds, backward=backward)
            return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("machine", [ag.LispMachine, ag.TapeMachine, ag.ActorMachine])
def test_checkpoints_lower_the_peak_of_memory_on_a_chain(machine):
    """128 values of the chain are stored without them; 8 inputs and one stage's 16 with them."""
    stored, recomputed = (peak_bytes(wrap, machine) for wrap in (unwrapped, ag.checkpoint))

    assert recomputed < 0.5 * stored


def test_checkpoints_lower_the_peak_of_symbolic_gradients_too():
    stored, recomputed = (
        peak_bytes(wrap, ag.TapeMachine, symbolic=True) for wrap in (unwrapped, ag.checkpoint)
    )

    assert recomputed < 0.5 * stored


def test_checkpoint_needs_a_node():
    with pytest.raises(GraphTypeError, match="checkpoint of .*needs a node among its arguments"):
        ag.checkpoint(block)(V, W)


def test_checkpoint_passes_what_is_no_node_through(x):
    y, label = ag.checkpoint(lambda x, power=2: (x**power, "square"))(x, power=3)

    assert label == "square"
    (dx,) = ag.gradients(y.sum(), [x])
    assert np.allclose(evaluate(dx, {x: X})[0], 3 * X**2, rtol=1e-14)
