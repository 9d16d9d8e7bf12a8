"""Passes that change no bit: what each makes of a graph, what it leaves alone, and equal bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError, NodeError
from actorgraph.lower import fusion
from actorgraph.memory.buffers import is_view
from actorgraph.op import CONSTANT
from actorgraph.rewrite.exact import EXACT
from actorgraph.testing._examples import bits, results
from benchmarks._work import irregular
from tests._bits import nans
from tests._each import each
from tests._soak import drawn
from tests.machines._graphs import UNARY, graphs

ops, minus = ag.ops, ag.ops.neg
NAMES = [one.name for one in EXACT]


def steps(machine):
    """Return the names of the ops of every step of the machine's only plan."""
    (plan,) = machine._plans.values()
    return [node.op.name for node in plan.compiled.joint.order]


def rewritten(node, passes, fed=None, **mode):
    """Return the steps with the passes, after checking that no bit differs from none."""
    fed = fed or {}
    found = []
    for chosen in ((), passes):
        with ag.TapeMachine(node, passes=chosen) as machine:
            run = machine.run_sync(fed, **mode)
            nodes = [node, *machine.wrt]
            found.append(results(run, nodes))
            names = steps(machine)
    assert found[0] == found[1]
    return names


def tensor(shape=("n", 3)):
    """Return a graph with an input, something computed from it, and what to feed."""
    x = ag.Graph().input("x", shape, "float32")
    values = np.array([[0.0, -0.0, 1.5], [np.inf, -np.inf, np.nan]], "float32")
    return x, ops.tanh(x), {"x": values}


@each(
    ("name", "formula", "left"),
    [
        ("times_one", lambda a: a * 1, []),
        ("times_one", lambda a: 1 * a, []),
        ("times_one", lambda a: a / 1, []),
        ("times_one", lambda a: a * ops.broadcast_to(ones(a), a.shape), ["broadcast_to"]),
        ("zero_term", lambda a: a - 0, []),
        ("zero_term", lambda a: a + (-0.0), []),
        ("undo", lambda a: minus(minus(a)), []),
        ("undo", lambda a: minus(minus(minus(a))), ["neg"]),
        ("repeat", lambda a: ops.abs(ops.abs(a)), ["abs"]),
        ("repeat", lambda a: ops.floor(ops.floor(a)), ["floor"]),
        ("abs_neg", lambda a: ops.abs(-a), ["abs"]),
        ("same_choice", lambda a: ops.maximum(a, a), []),
        ("same_choice", lambda a: ops.minimum(a, a), []),
        ("cast_back", lambda a: a.astype("float64").astype("float32"), []),
        ("transpose", lambda a: a.T.T, []),
        ("broadcast", lambda a: twice_broadcast(a), ["broadcast_to"]),
        ("squeeze", lambda a: ops.squeeze(ops.expand_dims(a, 1), 1), []),
        ("flip", lambda a: a[::-1, ::-1][::-1, ::-1], []),
        ("pass_through", ag.stop_gradient, []),
    ],
)
def test_pass_leaves_these_ops_and_every_bit(name, formula, left):
    _, a, fed = tensor()
    node = formula(a).sum()
    kept = [op for op in rewritten(node, [name], fed) if op not in ("tanh", "sum")]
    assert [op for op in kept if op != "broadcast_to"] == [o for o in left if o != "broadcast_to"]
    assert kept.count("broadcast_to") <= 1


@pytest.mark.parametrize(
    ("formula", "left"),
    [
        (lambda a: a * ops.broadcast_to(a[:1], a.shape), ["tanh", "getitem", "multiply"]),
        (lambda a: ops.broadcast_to(a[0], a.shape) / (a + 2), ["tanh", "getitem", "add", "divide"]),
        (
            lambda a: a - ops.expand_dims(ops.broadcast_to(a[0, 0], (3,)), 0),
            ["tanh", "getitem", "subtract"],
        ),
        (
            lambda a: a[:1] + ops.expand_dims(ops.broadcast_to(a[0, 0], (3,)), 1),
            ["tanh", "getitem", "getitem", "broadcast_to", "expand_dims", "add"],
        ),
        (
            lambda a: ops.broadcast_to(a[:1], a.shape) * ops.broadcast_to(a[1], a.shape),
            ["tanh", "getitem", "broadcast_to", "getitem", "broadcast_to", "multiply"],
        ),
    ],
)
def test_an_operand_is_broadcast_by_its_op_where_the_other_has_the_shape(formula, left):
    _, a, fed = tensor((2, 3))
    assert rewritten(formula(a), ["operand"], fed) == left


def ones(a):
    return a.graph.constant(np.ones((), "float32"))


def twice_broadcast(a):
    return ops.broadcast_to(ops.broadcast_to(a, (2, *a.shape)), (4, 2, *a.shape))


@pytest.mark.parametrize(
    "formula",
    [
        lambda a: a + 0.0,
        lambda a: a - (-0.0),
        lambda a: a * 0,
        lambda a: a - a,
        lambda a: a * 2,
        lambda a: 1 / a,
        lambda a: ops.sum(a, axis=()),
        lambda a: -a - (-a),
        lambda a: a.astype("float16").astype("float32"),
        lambda a: ops.astype(a * 0 == a, "float32"),
    ],
)
def test_what_could_change_a_bit_is_left_alone(formula):
    _, a, fed = tensor()
    node = formula(a).sum()
    with np.errstate(all="ignore"):
        assert rewritten(node, NAMES, fed) == rewritten(node, (), fed)


def test_copy_of_a_feed_stays_because_a_feed_may_have_any_strides():
    x, _, _ = tensor()
    node = (x * 1).sum()
    strided = np.arange(24, dtype="float32").reshape(4, 6)[:, ::2]
    assert rewritten(node, NAMES, {"x": strided}) == ["multiply", "sum"]


def test_complex_product_with_one_stays():
    x = ag.Graph().input("x", (2,), "complex128")
    node = ops.exp(x) * 1
    assert "multiply" in rewritten(node.sum(), NAMES, {"x": np.array([1j, 2.0])})


def test_reshape_of_a_reshape_is_one_where_both_are_views():
    w = ag.Graph().parameter("w", np.arange(12.0).reshape(3, 4))
    assert rewritten(w.reshape(4, 3).reshape(2, 6).sum(), ["reshape"]) == ["reshape", "sum"]
    assert rewritten(w.reshape(4, 3).reshape(3, 4).sum(), ["reshape"]) == ["sum"]
    copied = w.T.reshape(12).reshape(3, 4).sum()
    assert rewritten(copied, ["reshape"]) == ["transpose", "reshape", "reshape", "sum"]


def test_transposes_are_composed():
    w = ag.Graph().parameter("w", np.arange(24.0).reshape(2, 3, 4))
    node = ops.transpose(ops.transpose(w, (1, 2, 0)), (1, 2, 0)).sum(axis=0)
    assert rewritten(node, ["transpose"]) == ["transpose", "sum"]


def test_choice_between_equal_branches_drops_the_condition():
    x = ag.Graph().input("x", (3,), "float64")
    y = ops.exp(x)
    node = ops.where(x > 0, y, y).sum()
    assert rewritten(node, ["same_choice"], {"x": np.ones(3)}) == ["exp", "sum"]


def test_constants_are_folded_unless_that_would_warn_or_is_large():
    graph = ag.Graph()
    x = graph.input("x", (3,), "float64")
    c = graph.constant(np.array([0.0, 1.0, 4.0]))
    assert rewritten((x * ops.sqrt(c + 1)).sum(), ["fold"], {"x": np.ones(3)}) == [
        "multiply",
        "sum",
    ]
    with np.errstate(divide="ignore"):
        assert "log" in rewritten((x * ops.log(c)).sum(), ["fold"], {"x": np.ones(3)})
    large = graph.constant(np.ones(10_000))
    assert "sqrt" in rewritten(ops.sqrt(large).sum() + x.sum(), ["fold"], {"x": np.ones(3)})


def test_constants_that_are_seen_through_views_are_folded():
    x, c = ag.Graph().input("x", (3, 4), "float64"), np.arange(3.0)
    filled = ops.broadcast_to(x.graph.lift(c[:, None]), (3, 4)) * np.ones(4)
    assert "multiply" not in rewritten((x - filled).sum(), ["fold"], {"x": np.ones((3, 4))})


def test_ops_of_the_user_are_neither_folded_nor_merged():
    calls = []

    def forward(xp, x):
        calls.append(1)
        return x + 1

    graph = ag.Graph()
    op = ops.define(
        name="counted_for_passes", scheme="float64[*s] -> float64[*s]", forward=forward, vjp=None
    )
    node = op(graph.constant(np.ones(2))).sum()
    for _ in range(2):
        with ag.TapeMachine(node) as machine:
            machine.run_sync({})
    assert len(calls) == 2


def test_equal_nodes_of_different_owners_are_merged_in_a_task():
    """Both cosines' derivatives need sin(x), which nobody has computed forward."""
    x = ag.Graph().parameter("x", np.array([0.1, 0.2]))
    y = ops.cos(x)
    node = (ops.sum(y * y) + ops.sum(ops.cos(x * 1.0) * y)).named("loss")
    names = {}
    for passes in ((), NAMES):
        with ag.TapeMachine(node, passes=passes) as machine:
            machine.run_sync({}, backward=True)
            names[passes == ()] = machine.source.count(" = k")
    assert names[False] < names[True]


def test_merging_makes_anew_what_reads_a_merged_node_and_views_of_that():
    loss = irregular(600)
    with ag.TapeMachine(loss) as machine:
        machine.run_sync({"x": np.linspace(-1, 1, 16).reshape(4, 4)}, backward=True)
        [plan] = machine._plans.values()
    order, steps = plan.compiled.joint.order, plan.inline.steps
    left = {step.id: step for step in steps}
    merged = {node.id for node in order if node.id not in left}
    stale, anew = set(merged), set()
    for node in order:
        if node.id in left and any(part.id in stale for part in node.inputs):
            anew.add(node.id)
            stale |= {node.id} if is_view(node) else set()
    assert len(merged) > 20
    assert {node.id for node in order if left.get(node.id, node) is not node} == anew
    assert merged.isdisjoint([part.id for step in steps for part in step.inputs])
    assert merged.isdisjoint([
        of.id for step in steps for part in step.inputs if is_view(part) for of in part.inputs
    ])  # fmt: skip


def test_backward_step_takes_the_equal_value_of_the_forward_pass():
    x = ag.Graph().parameter("x", np.array([0.1, 0.2]))
    node = (ops.sin(x) + ops.cos(x)).sum()  # the derivative of sin needs cos(x)
    names = rewritten(node, ["merge"], backward=True)
    assert names.count("cos") == 1


def test_result_of_its_own_stays_an_array_of_its_own():
    w = ag.Graph().parameter("w", np.ones(3))
    outputs = [w * 1, minus(minus(w)), ops.maximum(w, w), w.reshape(3, 1).reshape(3)]
    with ag.ActorMachine(outputs) as machine:
        run = machine.run_sync({})
        arrays = [run[node].value for node in outputs]
    for i, one in enumerate(arrays):
        others = [*arrays[:i], w.held.array]
        assert not any(np.shares_memory(one, other) for other in others)


def test_unknown_sizes_are_still_checked():
    graph = ag.Graph()
    x, y = graph.input("x", ("n",), "float64"), graph.input("y", ("m",), "float64")
    c = graph.constant(np.ones(()))
    node = ops.where(x > y, c, c).sum()
    for passes in ((), None):
        with (
            ag.TapeMachine(node, passes=passes) as machine,
            pytest.raises(FeedError, match=r"needs n == m, but this run has 3 and 4"),
        ):
            machine.run_sync({"x": np.ones(3), "y": np.ones(4)})


def test_feeds_are_asked_for_although_nothing_needs_them():
    graph = ag.Graph()
    x, c = graph.input("x", (), "float64"), graph.input("c", (), "float64")
    y = ops.exp(x)
    with (
        ag.TapeMachine(ops.where(c > 0, y, y) + 0.5) as machine,
        pytest.raises(FeedError, match="missing feed 'c'"),
    ):
        machine.run_sync({"x": 1.0})


def test_watched_machines_look_at_every_node():
    x = ag.Graph().parameter("x", np.array([np.nan]))
    node = (x * 1).named("copy").sum()
    with (
        ag.TapeMachine(node, watch="nan") as machine,
        pytest.raises(NodeError, match="'copy' failed .* the result has NaN"),
    ):
        machine.run_sync({})


def test_passes_are_listed_and_switched_off_by_name():
    assert [one.name for one in ag.rewrite.passes() if not one.changes_bits] == NAMES
    assert len(set(NAMES)) == len(NAMES)
    _, a, fed = tensor()
    node = minus(minus(a)).sum()
    assert "neg" in rewritten(node, [name for name in NAMES if name != "undo"], fed)
    with pytest.raises(GraphError, match="no pass is named 'transposes'; .*did you mean"):
        ag.TapeMachine(node, passes=["transposes"])


def test_log_of_the_reference_names_the_nodes_of_the_user():
    _, a, fed = tensor()
    node = ops.sin(minus(minus(a)))
    seen = []
    with ag.LispMachine(node, log=lambda step, _: seen.append(step)) as machine:
        machine.run_sync(fed)
    assert seen[0] is a
    assert seen[-1] is node
    assert len(seen) == 2


def test_heavy_regions_form_no_cycle_when_forward_nodes_are_left_out():
    """Each step is heavy, so that every node may get a region of its own; skipped ones too."""
    graph = ag.Graph()
    w = graph.parameter("w", np.random.default_rng(0).normal(size=(256, 256)).astype("float32"))
    x = graph.input("x", (256, 256), "float32")
    h = x @ w
    for _ in range(3):
        h = ops.tanh(minus(minus(h))) @ ops.abs(-(h @ w)) + ops.sin(h.T).T + ops.cos(h.T).T
        h = h * 1 + ops.maximum(h, h)
    loss = h.mean()
    fed = {"x": np.ones((256, 256), "float32")}
    found = []
    for passes in ((), None):
        with ag.ActorMachine(loss, passes=passes, workers=2) as machine:
            run = machine.run_sync(fed, backward=True, timeout_s=30)
            found.append(results(run, [loss, w]))
    assert found[0] == found[1]


FOLLOWED = {
    "times one": lambda a: a * 1,
    "less zero": lambda a: a - 0,
    "twice negated": lambda a: minus(minus(a)),
    "transposed": lambda a: a.T,
    "transposed twice": lambda a: ops.tanh(a).T.T,
    "reversed twice": lambda a: a[::-1][::-1] if a.ndim else a,
    "itself or itself": lambda a: ops.where(a > 0, a, a),
    "larger of itself": lambda a: ops.maximum(a, a),
    "flat": lambda a: a.reshape(-1),
    "there and back": lambda a: a.astype("float64").astype(a.dtype.name),
    "size": lambda a: ops.abs(ops.abs(-a)),
    "stopped": lambda a: a * ag.stop_gradient(ops.tanh(a)),
    "checkpointed": lambda a: ag.checkpoint(lambda b: ops.tanh(ops.sin(b)))(a),
    "sine and cosine": lambda a: ops.sin(a) + ops.cos(a),
}


@pytest.fixture(autouse=True)
def formulas_to_draw(monkeypatch):
    """Let the random graphs draw what passes look at, more often than not."""
    for name, formula in FOLLOWED.items():
        monkeypatch.setitem(UNARY, name, formula)


quick = drawn(25, soak=500)


@quick
@given(graphs(feed_count=1, max_ops=20), st.data())
def test_tasks_form_no_cycle_however_the_graph_is_cut(example, data):
    asked = {"outputs": example.outputs, "wrt": example.wrt}
    nodes = [*example.outputs, *(example.wrt or example.graph.parameters)]
    with pytest.MonkeyPatch.context() as patch, nans():
        # Every node may be heavy, and get a region of its own.
        patch.setattr(fusion, "HEAVY_US", data.draw(st.sampled_from([0.5, 0.53, 0.6, 1.0])))
        patch.setattr(fusion, "PARALLEL_US", data.draw(st.sampled_from([0.1, 1.0, 5.0])))
        patch.setattr(fusion, "_PARTS", data.draw(st.sampled_from([1, 4, 16])))
        with (
            ag.LispMachine(**asked, passes=()) as written,
            ag.ActorMachine(**asked, workers=2, seed=1) as machine,
        ):
            for mode in example.modes(0):
                wanted = results(written.run_sync(example.feeds[0], **mode), nodes)
                run = machine.run_sync(example.feeds[0], **mode, timeout_s=30)
                assert results(run, nodes) == wanted


@quick
@given(graphs(feed_count=1), st.data())
def test_all_machines_give_the_bits_of_the_unrewritten_graph(example, data):
    asked = {"outputs": example.outputs, "wrt": example.wrt}
    feeds = example.feeds[0]
    nodes = [*example.outputs, *(example.wrt or example.graph.parameters)]
    fuse = data.draw(st.sampled_from(["none", "auto", "all"]))
    chosen = data.draw(st.one_of(st.none(), st.lists(st.sampled_from(NAMES), max_size=6)))
    with (
        nans(),
        ag.LispMachine(**asked, passes=()) as written,
        ag.LispMachine(**asked, passes=chosen) as reference,
        ag.TapeMachine(**asked, passes=chosen) as tape,
        ag.ActorMachine(**asked, passes=chosen, fuse=fuse, workers=2, seed=1) as actors,
    ):
        for mode in example.modes(0):
            wanted = results(written.run_sync(feeds, **mode), nodes)
            for machine in (reference, tape, actors):
                assert results(machine.run_sync(feeds, **mode), nodes) == wanted
        for key, plan in written._plans.items():
            assert len(reference._plans[key].compiled.joint.order) <= len(plan.compiled.joint.order)


def test_constants_of_equal_bits_only_are_one():
    graph = ag.Graph()
    x = graph.input("x", (2,), "float64")
    node = (x * graph.constant(0.0) + x * graph.constant(-0.0)).sum()
    with ag.TapeMachine(node) as machine:
        run = machine.run_sync({"x": np.array([1.0, 2.0])})
    assert bits(run[node].value) == bits(np.array(0.0))
    assert {part.op is CONSTANT for part in node.graph.nodes} == {True, False}
