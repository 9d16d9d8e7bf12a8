"""Checkpoints: what is recomputed has the same bits, in less memory."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError
from tests._each import each
from tests._evaluate import evaluate
from tests.autodiff._checks import X, every_machine, op_names, same_bits

V = np.random.default_rng(0).normal(size=(4, 5))
W = np.random.default_rng(1).normal(size=(5, 5))


def block(v, w):
    hidden = ag.ops.tanh(v @ w)
    return hidden * v + ag.ops.exp(hidden) + v


def leaves(g):
    return g.input("v", ("batch", 5), "float64"), g.parameter("w", W)


def chained(wrap):
    """A fan-out around blocks, so that the order of sums of cotangents matters."""
    v, w = leaves(ag.Graph())
    y = wrap(block)(v, w)
    z = wrap(block)(y, w) + y * 1e8
    return v, w, (wrap(block)(z * 1e-8, w) * v + z).sum()


def branching(wrap):
    """A block of two results that captures a node and uses what is built outside too."""
    v, w = leaves(ag.Graph())
    outside = ag.ops.exp(v)

    def fork(v):
        shared = ag.ops.exp(v) * ag.ops.tanh(v @ w)
        return {"a": shared * 3.0, "b": [ag.ops.sin(shared), outside * shared]}

    parts = wrap(fork)(v)
    return v, w, (parts["a"] * parts["b"][0] + parts["b"][1] * outside).sum()


def nested(wrap):
    v, w = leaves(ag.Graph())

    def outer(v, w):
        return wrap(block)(wrap(block)(v, w) * 0.1, w)

    return v, w, wrap(outer)(wrap(outer)(v, w) * 0.01, w).sum()


def twice_the_same(wrap):
    v, w = leaves(ag.Graph())
    plain = block(v, w)
    return v, w, (wrap(block)(v, w) * wrap(block)(v, w) * plain).sum()


def trivial(wrap):
    v, w = leaves(ag.Graph())
    same, constant = wrap(lambda v: (v, v.graph.constant(np.ones(5))))(v)
    return v, w, (same @ w * constant).sum()


def unwrapped(function):
    return function


GRAPHS = [chained, branching, nested, twice_the_same, trivial]


@each("build", GRAPHS)
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


@each("build", GRAPHS)
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
    v, w = leaves(ag.Graph())
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


@each("seed", range(12))
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
    v = ag.Graph().input("v", (100_000,), "float64")

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
