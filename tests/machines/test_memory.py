"""Programs write into memory that they keep; what a user sees never changes by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.memory.buffers import regular, usage, writable
from actorgraph.memory.packing import assign
from actorgraph.testing._examples import results
from tests._each import each
from tests._soak import drawn
from tests.machines._graphs import graphs

KINDS = [ag.TapeMachine, ag.ActorMachine]
quick = drawn(12, soak=500)


def chain(length=12, size=64):
    g = ag.Graph()
    x = g.input("x", ("n", size), "float64")
    w = g.parameter("w", np.linspace(0.5, 1.5, size))
    y = x
    for i in range(length):
        y = np.tanh(y * w) + y if i % 3 else y * (i + 2.0)
    return g, y, y.sum()


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(graphs(feed_count=3))
def test_results_stay_as_they_are_through_later_runs(kind, example):
    with kind(example.outputs, wrt=example.wrt, workers=2) as machine:
        nodes = [*example.outputs, *machine.wrt]
        runs = [
            machine.run_sync(feeds, **mode)
            for number, feeds in enumerate(example.feeds)
            for mode in example.modes(number)
        ]
        before = [results(run, nodes) for run in runs]
        for number, feeds in enumerate(example.feeds):
            for mode in example.modes(number):
                machine.run_sync(feeds, **mode)
        assert [results(run, nodes) for run in runs] == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, 700])
def test_a_feed_of_another_layout_gives_the_bits_of_the_sequential_machine(kind, size):
    _, y, loss = chain(size=size)
    array = np.random.default_rng(0).normal(size=(size, 50)).T  # F-contiguous
    with ag.LispMachine([loss, y]) as lisp, kind([loss, y]) as machine:
        for fed in (array, array.copy(), array[::-1], array):
            expected = results(lisp.run_sync({"x": fed}, backward=True), [loss, y])
            assert results(machine.run_sync({"x": fed}, backward=True), [loss, y]) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_numbers_have_the_same_bits_also_where_there_is_one(kind, dtype):
    x = ag.Graph().input("x", ("n",), dtype)
    y = x * (0.6 + 0.8j)
    for _ in range(3):
        y = ag.ops.square(y * y) * x  # NumPy rounds the product of one element by where it writes
    z, rng = y + 1.0, np.random.default_rng(0)
    with ag.LispMachine([z]) as lisp, kind([z]) as machine:
        for n in [1, 2, 7] * 20:
            feeds = {"x": np.exp(1j * rng.normal(size=n)).astype(dtype)}
            expected = lisp.run_sync(feeds, tangents=feeds)
            found = machine.run_sync(feeds, tangents=feeds)
            assert results(found, [z]) == results(expected, [z])


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_that_alternate_keep_their_bits(kind):
    _, _, loss = chain()
    feeds = [np.random.default_rng(n).normal(size=(n, 64)) for n in (3, 200, 1, 50, 400, 7)]
    with ag.LispMachine([loss]) as lisp, kind([loss]) as machine:
        for array in feeds * 3:
            expected = results(lisp.run_sync({"x": array}, backward=True), [loss])
            assert results(machine.run_sync({"x": array}, backward=True), [loss]) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_op_of_the_user_keeps_is_never_written_over(kind):
    kept = []

    def forward(xp, x):
        kept.append(x)
        return x

    op = ag.ops.define(
        name=f"keep_operand_of_{kind.__name__}", scheme="a[*s] -> a[*s]", forward=forward
    )
    x = ag.Graph().input("x", (50, 50), "float64")
    y = np.tanh(op(np.tanh(x * 2.0)) * 3.0).sum()
    with kind([y]) as machine:
        for seed in range(3):
            machine.run_sync({"x": np.random.default_rng(seed).normal(size=(50, 50))})
    for seed, array in enumerate(kept):
        fed = np.random.default_rng(seed).normal(size=(50, 50))
        np.testing.assert_array_equal(array, np.tanh(fed * 2.0))


def test_results_that_are_views_of_one_another_are_the_callers_own():
    x = ag.Graph().input("x", (40, 40), "float64")
    y = np.tanh(x * 2.0)
    outputs = [y.transpose(), y.reshape(1600), (y + 1.0)[3:]]
    with ag.TapeMachine(outputs) as machine:
        first = machine.run_sync({"x": np.ones((40, 40))})
        copies = [first[node].value.copy() for node in outputs]
        machine.run_sync({"x": np.zeros((40, 40))})
        for node, copy in zip(outputs, copies, strict=True):
            np.testing.assert_array_equal(first[node].value, copy)


@pytest.mark.usefixtures("values_share_memory")
def test_steps_share_memory_and_write_in_place():
    g, _, loss = chain(length=12)
    order = [node for node in g.topological_order(loss) if not node.is_leaf]
    planned = writable(order, [loss], regular(order))
    buffers = assign(order, [loss], planned, {"n": 10})
    assert len(planned) > 15
    assert buffers.total_bytes <= 3 * 10 * 64 * 8
    assert buffers.in_place


def test_nothing_is_planned_behind_dims_that_only_a_run_knows():
    x = ag.Graph().input("x", (None, 4), "float64")
    order = [np.tanh(x)]
    order += [np.tanh(order[0])]
    assert writable(order, order[1:], regular(order)) == frozenset()


def test_memory_that_a_view_shows_lives_as_long_as_the_view():
    x = ag.Graph().input("x", (4, 4), "float64")
    a = x * 2.0
    view = a.transpose()
    b = np.tanh(x)
    c = b + view
    steps = [a, view, b, c]
    assert usage(steps, [c], {}).last[a.id] == 3
    buffers = assign(steps, [c], writable(steps, [c], regular(steps)), {})
    assert buffers.place_of[a.id] != buffers.place_of[b.id]


def test_two_threads_that_run_one_machine_do_not_share_memory():
    _, _, loss = chain(length=6, size=8)
    with ag.TapeMachine([loss]) as machine:
        machine.run_sync({"x": np.ones((2, 8))})
        plan = next(iter(machine._plans.values()))
        binding = plan.bind({"n": 2})
        first, second = plan.inline.take(binding, True), plan.inline.take(binding, True)
        assert first is not second
        plan.inline.give(binding, True, first)
        assert plan.inline.take(binding, True) is first


@pytest.mark.usefixtures("values_share_memory")
def test_tasks_share_memory_as_turns_that_run_at_once_do():
    x = ag.Graph().input("x", (200, 200), "float64")
    total = 0.0
    for i in range(8):
        y = x * (i + 1.0)
        for _ in range(6):
            y = np.tanh(y * 1.5) + y
        total = total + y.sum()
    with ag.ActorMachine([total], workers=2) as machine:
        for _ in range(4):
            machine.run_sync({"x": np.ones((200, 200))})
        [plan] = machine._plans.values()
        assert len(plan.partition.tasks) > 5
        assert len(machine._core.networks.arenas.idle) <= 2
        [report] = machine.memory_plan()
        assert report.kept_bytes <= 4 * 200 * 200 * 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_fails_gives_its_memory_back(kind):
    def forward(xp, x):
        if x[0, 0] < 0:
            raise ArithmeticError("negative")
        return x.copy()

    name = f"no_negative_of_{kind.__name__}"
    op = ag.ops.define(name=name, scheme="a[*s] -> a[*s]", forward=forward)
    x = ag.Graph().input("x", (200, 200), "float64")
    y = np.tanh(op(np.tanh(x * 2.0)) * 3.0 * 2.0).sum()
    good = np.ones((200, 200))
    with kind([y], fuse="all") as machine:
        expected = machine.run_sync({"x": good})[y].value
        for _ in range(5):
            with pytest.raises(ag.errors.NodeError, match="negative"):
                machine.run_sync({"x": -good})
            assert machine.run_sync({"x": good})[y].value == expected
        assert len(machine._core.networks.arenas.idle) <= 1


@quick
@given(graphs(max_ops=30), st.sampled_from([1, 7, 64, 1000]))
def test_no_two_values_that_live_at_once_overlap(example, size):
    """In place is the exception: a value may lie where one lay that ends at its step."""
    order = [node for node in example.graph.nodes if not node.is_leaf]
    if not order:
        return
    kept = [node for node in example.outputs if not node.is_leaf]
    symbols = {"n": size}
    buffers = assign(order, kept, writable(order, kept, regular(order)), symbols)
    lives = usage(order, kept, symbols)
    begun = {step.id: i for i, step in enumerate(order)}
    spans = [
        (begun[number], lives.last[number], place, place + lives.bytes[number], number)
        for number, place in buffers.place_of.items()
    ]
    assert all(span[3] <= buffers.total_bytes for span in spans)
    for one in spans:
        for other in spans:
            apart = one[3] <= other[2] or other[3] <= one[2]
            if one[0] < other[0] <= one[1] and not apart:
                assert other[0] == one[1]
                assert other[4] in buffers.in_place
                assert one[2:4] == other[2:4]


@pytest.mark.parametrize("kind", KINDS)
def test_the_terms_of_a_gradient_do_not_wait_for_one_another(kind):
    """x -> tanh(x @ w) -> tanh(. @ w) -> ...: twelve terms of one gradient."""
    g = ag.Graph()
    x = g.input("x", (2, 200), "float64")
    w = g.parameter("w", np.eye(200))
    y = x
    for _ in range(12):
        y = np.tanh(y @ w)
    with kind([y.sum()], workers=1) as machine:
        machine.run_sync({"x": np.ones((2, 200))}, backward=True)
        [report] = machine.memory_plan()
    assert report.bound_bytes < 4 * w.value.nbytes


def wide_network(width=300, layers=4):
    """x -> relu(x @ w + b) -> ... -> mean: gradients of weights as large as all else together."""
    g = ag.Graph()
    rng = np.random.default_rng(5)
    x = g.input("x", ("n", width), "float64")
    y = x
    for _ in range(layers):
        y = ag.ops.relu(y @ g.parameter(f"w{len(g)}", rng.normal(size=(width, width)) / 17) + 0.1)
    return g, (y * y).mean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("values_share_memory")
def test_what_ends_before_a_result_is_written_may_lie_in_its_array(kind):
    g, loss = wide_network()
    with kind([loss], workers=1, fuse="all") as machine, ag.LispMachine([loss]) as lisp:
        nodes = [loss, *g.parameters]
        runs, expected = [], []
        for seed in range(5):
            feeds = {"x": np.random.default_rng(seed).normal(size=(200, 300))}
            handle = machine.start(feeds, backward=True)  # never in the calling thread
            runs.append(handle.result())
            expected.append(results(lisp.run_sync(feeds, backward=True), nodes))
        assert [results(run, nodes) for run in runs] == expected
        [report] = machine.memory_plan()
        [plan] = machine._plans.values()
        assert plan.inline.program is None
    if kind is ag.TapeMachine:
        assert report.peak_bytes <= 1.1 * report.bound_bytes


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_is_a_view_is_handed_out_as_it_is(kind):
    g = ag.Graph()
    x = g.input("x", (200, 200), "float64")
    w = g.parameter("w", np.linspace(-1, 1, 40_000).reshape(200, 200))
    loss = np.tanh(x * w.transpose()).sum()
    with kind([loss]) as machine, ag.LispMachine([loss]) as lisp:
        feeds = {"x": np.ones((200, 200))}
        grads = [machine.run_sync(feeds, backward=True)[w].grad for _ in range(4)]
        expected = lisp.run_sync(feeds, backward=True)[w].grad
    for number, grad in enumerate(grads):
        assert grad.base is not None
        np.testing.assert_array_equal(grad, expected)
        assert not any(np.shares_memory(grad, other) for other in grads[:number])
        grad[...] = number


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_results_that_show_one_array_are_copied(order):
    x = ag.Graph().input("x", (200, 200), "float64")
    y = np.tanh(x)
    outputs = [(y, y.transpose(), y.reshape(40_000))[place] for place in order]
    with ag.TapeMachine(outputs) as machine:
        run = machine.run_sync({"x": np.ones((200, 200))})
    arrays = [run[node].value for node in outputs]
    for number, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in arrays[:number])


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@each("kind", KINDS)
@each(
    "attribute, value",
    [("strides", (8, 1600)), ("shape", (400, 100)), ("dtype", "int64"), ("dtype", ">f8")],
)
def test_a_result_that_its_owner_has_laid_out_anew_changes_no_later_run(kind, attribute, value):
    x = ag.Graph().input("x", (200, 200), "float64")
    y = np.tanh(x)
    fed = [{"x": np.random.default_rng(seed).normal(size=(200, 200))} for seed in range(6)]
    with kind([y, y.sum(axis=0)]) as machine, ag.LispMachine([y, y.sum(axis=0)]) as lisp:
        for feeds in fed:
            run = machine.start(feeds).result()  # never in the calling thread
            assert results(run, run.duals) == results(lisp.run_sync(feeds), run.duals)
            setattr(run[y].value, attribute, value)
            del run


def test_memory_that_a_loop_keeps_for_its_next_call_is_among_the_arenas(g):
    x = g.input("x", (100, 64, 8))
    _, ys = ag.scan(lambda c, e: (c + e, np.tanh(c)), np.zeros((64, 8), "float32"), x)
    y = ys.sum()
    with ag.TapeMachine([y], wrt=[], native=False) as machine:
        machine.run_sync({"x": np.zeros((100, 64, 8), "float32")})
        assert machine.memory().arenas >= 100 * 64 * 8 * 4
