"""Machines with exact=False differentiate the stable form; everything else stays as it was."""

import numpy as np
import pytest
from hypothesis import given

import actorgraph as ag
from actorgraph.errors import GraphError, NodeError
from actorgraph.op import REGISTRY
from actorgraph.rewrite.stabilise import STABLE
from actorgraph.testing._examples import results
from tests._bits import nans
from tests._soak import drawn
from tests.machines._graphs import graphs

ops, minus = ag.ops, ag.ops.neg
MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]
every_machine = pytest.mark.parametrize("kind", MACHINES)


def unstable():
    """Return a parameter and a scalar whose formula overflows, cancels and divides 0 by 0."""
    graph = ag.Graph()
    x = graph.input("x", ("n",), "float64")
    w = graph.parameter("w", np.array([1000.0, -1000.0, 0.0]))
    z = x * w
    loss = ops.log(1 + ops.exp(z)).sum() + ops.sqrt(ops.sum(z * z)) + (z / z).sum()
    return w, loss.named("loss")


@every_machine
def test_values_and_gradients_are_finite(kind):
    w, loss = unstable()
    with kind(loss, exact=False, workers=2) as machine:
        run = machine.run_sync({"x": np.ones(3)}, backward=True)
    np.testing.assert_allclose(run[loss].value, 1000 + np.log(2) + np.hypot(1000, 1000) + 3)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(run[w].grad, [1 + half, -half, 0.5], rtol=1e-12)


@every_machine
def test_tangents_are_finite(kind):
    _, loss = unstable()
    with kind(loss, exact=False, workers=2) as machine:
        run = machine.run_sync({"x": np.ones(3)}, tangents={"w": np.ones(3)})
    np.testing.assert_allclose(run[loss].tangent, 1.5, rtol=1e-12)


def test_exact_machines_compute_what_was_written():
    _, loss = unstable()
    with np.errstate(all="ignore"), ag.TapeMachine(loss) as machine:
        assert np.isnan(machine.run_sync({"x": np.ones(3)})[loss].value)


def test_user_graph_is_not_changed():
    _, loss = unstable()
    before = str(loss.graph)
    with ag.ActorMachine(loss, exact=False, fuse="none") as machine:
        machine.run_sync({"x": np.ones(3)}, backward=True)
    assert str(loss.graph) == before


def test_passes_may_be_switched_off_and_chosen():
    _, loss = unstable()
    with np.errstate(all="ignore"):
        for passes in ((), ["log1p"], ["norm", "softplus", "log1p"]):
            with ag.TapeMachine(loss, exact=False, passes=passes) as machine:
                assert np.isnan(machine.run_sync({"x": np.ones(3)})[loss].value)
        some = ["norm", "softplus", "log1p", STABLE[-3]]
        with ag.TapeMachine(loss, exact=False, passes=some) as machine:
            assert np.isfinite(machine.run_sync({"x": np.ones(3)})[loss].value)


def test_exact_machine_refuses_a_pass_that_changes_bits():
    _, loss = unstable()
    with pytest.raises(GraphError, match="log1p.* may change bits; ask for it with exact=False"):
        ag.ActorMachine(loss, passes=["log1p"])


def test_exact_machine_applies_a_pass_that_changes_none():
    def rule(node):
        x, y = node.inputs
        return ops.square(x) if x is y else None

    squared = ag.rewrite.Pass(
        "square", "x * x becomes square(x)", rule, (REGISTRY["multiply"],), changes_bits=False
    )
    x = ag.Graph().input("x", (3,), "float64")
    node = x * x
    with ag.TapeMachine(node, passes=[squared]) as machine:
        machine.run_sync({"x": np.ones(3)})
        assert "square" in {
            step.op.name for plan in machine._plans.values() for step in plan.compiled.joint.order
        }


def test_a_gradient_may_be_with_respect_to_a_node_inside_a_pattern():
    """
    ::

        x -> softmax -> log -> sum      wrt softmax: 1 / softmax, though log(softmax) has a form
    """
    x = ag.Graph().input("x", (3,), "float64")
    shares = ops.softmax(x)
    loss = ops.log(shares).sum()
    with ag.LispMachine(loss, wrt=[shares, x], exact=False) as machine:
        run = machine.run_sync({"x": np.array([0.1, 0.2, 0.3])}, backward=True)
        np.testing.assert_allclose(run[shares].grad, 1 / run[shares].value, rtol=1e-12)
        moved = machine.run_sync({"x": np.zeros(3)}, tangents={shares: np.ones(3)})
    np.testing.assert_allclose(moved[loss].tangent, 9, rtol=1e-12)


def test_seeds_of_nodes_with_one_form_are_summed():
    x = ag.Graph().input("x", (), "float64")
    one, other, same = ops.log(1 + x), ops.log(x + 1), minus(minus(x))
    with ag.ActorMachine([one, other, same], wrt=[x, same], exact=False) as machine:
        run = machine.run_sync({"x": 1.0}, backward={one: 1, other: 10, same: 100})
    assert run[x].grad == pytest.approx(105.5)
    assert run[same].grad == pytest.approx(100)


@every_machine
def test_results_are_arrays_of_their_own(kind):
    graph = ag.Graph()
    x = graph.input("x", (3,), "float64")
    w = graph.parameter("w", np.ones(3))
    outputs = [
        ops.log(1 + x),
        ops.log(x + 1),
        ops.log1p(x),
        minus(minus(x)),
        minus(minus(w)),
        minus(minus(minus(minus(w)))),
    ]
    with kind(outputs, exact=False) as machine:
        fed = np.ones(3)
        run = machine.run_sync({"x": fed})
        arrays = [run[node].value for node in outputs]
        for i, one in enumerate(arrays):
            others = [*arrays[:i], fed, w.held.array]
            assert not any(np.shares_memory(one, other) for other in others)


def test_errors_name_the_node_of_the_user():
    x = ag.Graph().input("x", (), "float64")
    node = ops.log(1 + ops.exp(x)).named("surprise")
    message = r"'surprise' failed in op 'log' \(step 'softplus' of its rewritten form\)"
    with (
        ag.TapeMachine(node, exact=False, watch="nan") as machine,
        pytest.raises(NodeError, match=message) as caught,
    ):
        machine.run_sync({"x": np.nan})
    assert caught.value.line == node.where_built()


def test_log_names_what_is_computed():
    x = ag.Graph().input("x", (), "float64")
    node = ops.tanh(ops.log(1 + x))
    seen = []
    with ag.LispMachine(node, exact=False, log=lambda step, _: seen.append(step)) as machine:
        machine.run_sync({"x": 1.0})
    assert [step.op.name for step in seen] == ["log1p", "tanh"]
    assert seen[-1] is node
    assert seen[0].line == node.inputs[0].line


def test_buffers_are_assigned():
    graph = ag.Graph()
    x = graph.input("x", (3,), "float64")
    total = graph.buffer("total", np.zeros(()))
    node = ops.log(1 + x).sum()
    graph.assign(total, total + node, node)
    with ag.ActorMachine(node, exact=False) as machine:
        machine.run_sync({"x": np.full(3, 1e-30)})
    np.testing.assert_allclose(total.value, 3e-30)


def test_checkpointed_parts_are_rewritten():
    x = ag.Graph().input("x", (3,), "float64")
    shares = ops.softmax(x)
    node = ag.checkpoint(lambda s: ops.log(s) + ops.log(1 + s))(shares).sum()
    runs = []
    for exact in (True, False):
        with ag.ActorMachine(node, wrt=[x], exact=exact, fuse="none") as machine:
            runs.append(machine.run_sync({"x": np.array([0.1, -0.2, 0.3])}, backward=True))
    np.testing.assert_allclose(runs[0][x].grad, runs[1][x].grad, rtol=1e-12)


@drawn(25, soak=500)
@given(graphs(dtype="float64", feed_count=1))
def test_machines_agree_bit_for_bit_and_with_what_was_written(example):
    asked = {"outputs": example.outputs, "wrt": example.wrt}
    feeds = example.feeds[0]
    nodes = [*example.outputs, *(example.wrt or example.graph.parameters)]
    with (
        nans(),
        ag.LispMachine(**asked) as written,
        ag.LispMachine(**asked, exact=False) as first,
        ag.ActorMachine(**asked, exact=False, fuse="none", workers=2) as second,
        ag.TapeMachine(**asked, exact=False) as third,
    ):
        for mode in example.modes(0):
            one = first.run_sync(feeds, **mode)
            wanted = results(one, nodes)
            for machine in (second, third):
                assert results(machine.run_sync(feeds, **mode), nodes) == wanted
            old = written.run_sync(feeds, **mode)
            for node in nodes:
                for part in ("value", "grad", "tangent"):
                    a, b = getattr(old[node], part), getattr(one[node], part)
                    assert (a is None) == (b is None)
                    if a is not None:
                        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)
