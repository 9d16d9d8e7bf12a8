"""Tables: steps walked as rows of NumPy's loops, with the bits of every other form."""

import threading
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import listed, loops, native, structs
from actorgraph.devices.background import BACKGROUND
from actorgraph.errors import GraphError, GraphTypeError, NodeError, counted
from actorgraph.lower import spots, table, table_rows
from actorgraph.lower.program import CALLS_TILL_ROWS, Subprogram, Tabling
from actorgraph.lower.text import Dead
from actorgraph.testing._examples import check_in_turn, expected
from tests._bits import nans
from tests._soak import drawn
from tests.machines._graphs import graphs, graphs_of_other_dtypes

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
FLOATS = ["float32", "float64"]


def steps_of(machine):
    """Return the names of the ops that a machine's latest mode has computed, and "table"."""
    *_, plan = machine._plans.values()
    program = plan.inline.program
    assert all(part.stretch._latest for part in program.parts), "rows were not written"
    return ["table" if isinstance(one, Subprogram) else one.op.name for one in program.items]


def check(outputs, feeds, backward=False, wrt=None):
    """Check the bits of the tables against the interpreter; return the steps beside tables."""
    with ag.LispMachine(outputs, wrt=wrt) as machine:
        wanted = machine.run_sync(feeds, backward=backward)
    with ag.TapeMachine(outputs, wrt=wrt, native="wait") as machine:
        for _ in range(3):
            run = machine.run_sync(feeds, backward=backward)
            for node in machine.outputs.values():
                assert run[node].value.dtype == wanted[node].value.dtype
                assert run[node].value.tobytes() == wanted[node].value.tobytes()
            for node in machine.wrt if backward else ():
                assert run[node].grad.tobytes() == wanted[node].grad.tobytes()
        return steps_of(machine)


def layers(dtype, batch=6):
    g = ag.Graph()
    rng = np.random.default_rng(5)
    x = g.input("x", (batch, 8), dtype)
    w, b = (
        g.parameter("w", rng.normal(size=(8, 8)).astype(dtype)),
        g.parameter("b", np.ones(8, dtype)),
    )
    h = x
    for _ in range(3):
        h = ops.tanh(h @ w + b) * 0.5
    loss = ops.square(h - 1.0).sum()
    return h, loss, {"x": rng.normal(size=(6, 8)).astype(dtype)}


def test_errors_of_the_last_row_are_known_before_results_are_copied():
    x = ag.Graph().input("x", (4, 6), "float32")
    y = x
    for _ in range(6):
        y = y + 1.0  # keeps the flags of what is before it
    assert check([y], {"x": np.ones((4, 6), "float32")}) == ["table"]  # machine code is there
    steps = [node for node in y.graph.topological_order(y) if node.op.name == "add"]
    stretch = SimpleNamespace(
        steps=steps, given=[x], others={}, odd={}, shared={}, results=[y], copied={y.id},
        code_row=None, classes=None, views=(),
    )  # fmt: skip
    written = table_rows.Written(stretch, {})
    heard = [*written.lines[:, -1]]
    assert heard == [*[native.LATER] * 5, native.ALL_ERRORS, native.ALL_ERRORS]
    assert written.computing == 6


@pytest.mark.parametrize("batch", [6, "n"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_net_forward_and_backward_is_one_table_with_the_same_bits(dtype, batch):
    _, loss, feeds = layers(dtype, batch)
    assert check([loss], feeds) == ["table"]
    found = check([loss], feeds, backward=True)
    assert found.count("table") == 1
    assert len(found) < 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_products_with_large_weights_are_rows_that_leave_the_lock_to_other_threads(
    dtype, monkeypatch
):
    native.RUNTIME.request()
    native.RUNTIME.done.wait()
    monkeypatch.setattr(native.RUNTIME, "brief", None)  # what keeps the lock
    g, rng = ag.Graph(), np.random.default_rng(7)
    h = x = g.input("x", ("rows", 600), dtype)
    for name in "uvw":
        w = g.parameter(name, rng.normal(size=(600, 600)).astype(dtype))
        h = ops.relu(h @ w)
    feeds = {x: rng.normal(size=(1, 600)).astype(dtype)}
    assert check([h], feeds) == ["table"]
    y = x @ w.transpose() @ w @ w.transpose() @ w.reshape(6, 100, 600)[2].transpose()
    assert check([ops.relu(ops.neg(y)) * 2.0], feeds) == ["table"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.transpose() * 2.0 + x,
        lambda x: x[::-1] + x[:, ::-1],
        lambda x: x[1:, 2:4] - x[:-1, :2],
        lambda x: x[:, 1][:, None] * x[2] + x[None],
        lambda x: x.reshape(-1).reshape(2, 8)[:, ::2] * 3.0,
        lambda x: (x[..., None] * x[:, None, :])[:, 1:, ::2] + 1.0,
        lambda x: x.sum() * x,
        lambda x: x.sum(axis=1, keepdims=True) * x.sum(axis=0),
        lambda x: x.transpose() @ x @ x[:, :2],
        lambda x: (x[None] @ ops.stack([x, x])).sum(axis=-1),
        lambda x: ops.stack([x, x * 2.0]) @ x,
        lambda x: ops.stack([x, x * 2.0]).transpose((1, 0, 2)) @ x,
        lambda x: x.reshape(2, 2, 2, 2).transpose((1, 0, 2, 3)) @ (x * 2.0).reshape(2, 2, 2, 2),
        lambda x: x.reshape(2, 1, 2, 4) @ x.reshape(2, 4, 2).transpose((0, 1, 2)),
        lambda x: (x > 0.0) & (x < 1.0),
        lambda x: x.astype("int64") * 3 - 5,
        lambda x: ops.maximum(x, 0.0).sum(axis=(0, 1)),
        lambda x: ops.relu(x - 0.1),
        lambda x: ops.stack([x, x * 2.0], axis=1)[:, 0] + ops.stack([x[0], x[1]] * 2, axis=-1),
        lambda x: ops.concatenate([x, x * 2.0, x[:, 1:]], axis=1) * 3.0,
        lambda x: ops.stack([x > 0.5, x < 0.1]) | ops.stack([x > 0.0] * 2),
        lambda x: x.mean() * x + x.mean(axis=-1, keepdims=True),
        lambda x: ag.gradients(ops.square(x * 1.5).mean(axis=1).mean(), [x])[0] - x,
        lambda x: ops.concatenate([x > 0.0, x < 1.0, x[:1] > 0.5], axis=0),
        lambda x: ops.inv(x + 3.0 * np.eye(4).astype(x.dtype.name)) * 2.0 - x,
        lambda x: ag.gradients(ops.relu(x - 0.1).sum(), [x])[0] * 2.0,
    ],
)
def test_views_sums_and_products_are_rows_with_the_same_bits(form, dtype, monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    x = ag.Graph().input("x", (4, 4), dtype)
    values = np.random.default_rng(2).normal(size=(4, 4)).astype(dtype)
    assert "table" in check([form(ops.tanh(x)), ops.neg(x)], {"x": values})


def test_feeds_that_have_gaps_or_are_not_aligned_have_the_same_bits():
    h, loss, feeds = layers("float64", "n")
    raw = np.zeros(6 * 8 * 8 + 1, np.uint8)
    odd = raw[1:].view(np.float64).reshape(6, 8)
    odd[...] = feeds["x"]
    gaps = np.zeros((6, 16))[:, ::2]
    gaps[...] = feeds["x"]
    with ag.TapeMachine([h, loss], native="wait") as machine:
        wanted = machine.run_sync(feeds)[h].value.tobytes()
        for x in (odd, gaps, np.asfortranarray(feeds["x"])):
            assert machine.run_sync({"x": x})[h].value.tobytes() == wanted
            assert machine.run_sync(feeds)[h].value.tobytes() == wanted


def test_each_size_of_a_batch_has_rows_of_its_own():
    h, loss, _ = layers("float32", "n")
    with ag.TapeMachine([h], native="wait") as machine, ag.LispMachine([h]) as lisp:
        for size in (1, 5, 2, 5, 0, 300, 1):
            feeds = {"x": np.random.default_rng(size).normal(size=(size, 8)).astype(np.float32)}
            wanted = lisp.run_sync(feeds)[h].value
            assert machine.run_sync(feeds)[h].value.tobytes() == wanted.tobytes()
    assert loss.op.name == "sum"


def test_results_stay_as_they_are_through_later_runs():
    h, loss, feeds = layers("float32")
    with ag.TapeMachine([h, loss], native="wait") as machine:
        first = machine.run_sync(feeds, backward={loss: 1.0})
        before = [first[node].value.copy() for node in (h, loss)]
        machine.run_sync({"x": feeds["x"] * 2}, backward={loss: 1.0})
        assert [first[node].value.tobytes() for node in (h, loss)] == [
            one.tobytes() for one in before
        ]


def overflowing():
    x = ag.Graph().input("x", (3,), "float64")
    y = ops.exp(ops.square(x) + x)
    return y, ops.tanh(y - 1.0) * 2.0


def test_an_overflow_warns_as_from_python_and_names_its_node():
    y, z = overflowing()
    with ag.TapeMachine([z], native="wait") as machine:
        machine.run_sync({"x": np.ones(3)})
        assert steps_of(machine) == ["table"]
        with pytest.raises(NodeError, match=f"node '{y.name}' failed in op 'exp'"):
            machine.run_sync({"x": np.full(3, 100.0)})
        with pytest.warns(RuntimeWarning, match="overflow encountered in exp"):
            run = machine.run_sync({"x": np.full(3, 100.0)})
        assert run[z].value.tolist() == [2.0, 2.0, 2.0]


def test_what_an_errstate_ignores_or_raises_is_ignored_or_raised():
    _, z = overflowing()
    with ag.TapeMachine([z], native="wait") as machine:
        with np.errstate(over="ignore"):
            assert machine.run_sync({"x": np.full(3, 100.0)})[z].value.tolist() == [2.0] * 3
        with np.errstate(under="raise"), pytest.raises(NodeError, match="underflow"):
            machine.run_sync({"x": np.full(3, 1e-200)})
        assert machine.run_sync({"x": np.full(3, 1e-200)})[z].value.tolist() == [0.0] * 3


def test_who_declines_too_often_is_asked_no_more(monkeypatch):
    _, z = overflowing()
    check([z], {"x": np.ones(3)})  # now there is machine code
    calls = []
    walk = native.RUNTIME.brief
    monkeypatch.setattr(native.RUNTIME, "brief", lambda *args: calls.append(1) or walk(*args))
    with ag.TapeMachine([z], native="wait") as machine, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(20):
            machine.run_sync({"x": np.full(3, 100.0)})
    assert len(calls) == 8


def test_a_scalar_that_a_step_has_made_is_walked_as_an_array(monkeypatch):
    total = ag.ops.define("lower_table_total", scheme="f[*s] -> f[]", forward=lambda xp, x: x.sum())
    x = ag.Graph().input("x", (3,), "float64")
    z = total(x) * x
    for _ in range(3):
        z = ops.square(z) + 0.5
    feeds = {"x": np.array([0.25, 0.5, 0.75])}
    assert "table" in check([z], feeds)
    flags, walk = [], native.RUNTIME.brief

    def noted(*given):
        flags.append(walk(*given))
        return flags[-1]

    monkeypatch.setattr(native.RUNTIME, "brief", noted)
    check([z], feeds)
    assert flags == [0] * 3


def test_a_table_tells_the_bytes_of_its_blocks():
    [z] = chain_after(lambda x: x * 2.0)
    with ag.TapeMachine([z], native="wait") as machine:
        machine.run_sync({"x": np.ones(3)})
        *_, plan = machine._plans.values()
        [part] = plan.inline.program.parts
        total = part.stretch._latest.total
        assert total >= 3 * 8
        assert part.stretch.bytes == plan.inline.program.walked_bytes == total


def test_steps_of_training_are_tables_with_the_same_bits():
    found = []
    for options in ({"native": "wait"}, {"native": False}):
        _, loss, feeds = layers("float32")
        with ag.TapeMachine([loss], **options) as machine:
            step = machine.compile_step(ag.solvers.Adam(lr=0.1))
            losses = [step(feeds)[loss].value.tobytes() for _ in range(5)]
            found.append(losses + [node.value.tobytes() for node in machine.wrt])
            assert bool(step._plan.inline.program.parts) == (options["native"] == "wait")
    assert found[0] == found[1]


CALLED = [
    (name, index)
    for name, op in sorted(ag.op.REGISTRY.items())
    for index, sample in enumerate(op.samples)
    if not sample.complexes and op.ufunc != "matmul"
    if op.ufunc or name == "sum" or op.traced
]
UNFIT = {"clipint64", "cubeint64"}
"""What is traced, and found to have no rows when they are written."""


@pytest.mark.parametrize(
    ("dtype", "most"), [("float32", 100), ("float64", 100), ("int64", 30), ("bool", 12)]
)
def test_every_op_with_a_loop_has_its_bits_in_a_table(dtype, most, monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    rng, tabled = np.random.default_rng(8), set()
    for name, index in CALLED:
        op = ag.op.REGISTRY[name]
        sample = op.samples[index]
        g, feeds = ag.Graph(), {}
        for place, shape in enumerate(sample.shapes):
            low, high = sample.low, sample.high
            values = rng.uniform(low, high, shape)
            values = {"bool": values > 0, "int64": 3 * values}.get(dtype, values).astype(dtype)
            if place in sample.bools:
                values = values > 0
            if place in sample.ints:
                values = rng.integers(0, sample.ints[place], shape)
            feeds[f"x{place}"] = values
        inputs = [g.input(key, value.shape, value.dtype.name) for key, value in feeds.items()]
        try:
            result = g.apply(op, tuple(inputs), dict(sample.attrs))
        except GraphTypeError:  # not of this dtype
            continue
        if result.shape and 0 not in result.shape and name + dtype not in UNFIT:
            with np.errstate(divide="ignore"):  # integers by 0
                if "table" in check([result], feeds):
                    tabled.add(name)
    assert len(tabled) > most


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_recurrent_net_forward_and_backward_is_one_table(dtype):
    g, rng = ag.Graph(), np.random.default_rng(4)
    x = g.input("x", (5, 3, 4), dtype)
    w = g.parameter("w", rng.normal(size=(4, 8)).astype(dtype))
    u = x @ w
    h = ops.tanh(x[0] @ w[:, :4])
    for t in range(5):
        gate, new = ops.sigmoid(u[t][:, :4] + h), ops.tanh(u[t][:, 4:])
        h = gate * h + (1.0 - gate) * new
    feeds = {"x": rng.normal(size=(5, 3, 4)).astype(dtype)}
    assert check([(h * h).sum()], feeds) == ["table"]
    assert check([(h * h).sum()], feeds, backward=True).count("table") == 1


def image_net(dtype):
    """Return the loss of a net of convolutions, a pool and a table of rows, and feeds."""
    g, rng = ag.Graph(), np.random.default_rng(6)
    x, t = g.input("x", (3, 2, 7, 6), dtype), g.input("t", (3,), "int64")
    sizes = {"w": (4, 2, 3, 3), "v": (5, 4, 2, 3), "u": (5 * 3 * 3, 10)}
    w, v, u = [g.parameter(k, rng.normal(size=n).astype(dtype) * 0.3) for k, n in sizes.items()]
    h = ops.max_pool2d(ops.relu(ops.conv2d(x, w, padding=1, stride=(1, 2))), 2, 1)
    h = ops.flatten(ops.conv2d(h, v, padding=(0, 1), stride=2), 1)
    seen = ops.embedding(t, g.parameter("e", rng.normal(size=(10, 10)).astype(dtype)))
    loss = ops.cross_entropy(seen + ops.pad(h, ((0, 0), (0, 45 - h.shape[1]))) @ u, t)
    x = rng.normal(size=(3, 2, 7, 6)).astype(dtype)
    return loss, {"x": x, "t": np.array([9, 0, 4])}


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_net_of_convolutions_is_one_table_with_the_same_bits(dtype):
    loss, feeds = image_net(dtype)
    assert check([loss], feeds) == ["table"]
    assert check([loss], feeds, backward=True).count("table") == 1
    nan = np.where(feeds["x"] > 1.0, np.nan, feeds["x"])
    assert check([loss], feeds | {"x": nan}, backward=True).count("table") == 1


def test_an_index_that_names_nothing_fails_as_from_python():
    loss, feeds = image_net("float32")
    with ag.TapeMachine([loss], native="wait") as machine:
        good = machine.run_sync(feeds)[loss].value
        for wrong in (10, -1, 1 << 62):
            with pytest.raises(
                NodeError, match="class indices from 0 to 4|are out of range for 10"
            ):
                machine.run_sync(feeds | {"t": np.array([0, wrong, 4])})
        assert machine.run_sync(feeds)[loss].value.tobytes() == good.tobytes()


WIDE = [
    lambda x: ops.softmax(x), lambda x: ops.softmax(x, 0), lambda x: ops.log_softmax(x[:, :10]),
    lambda x: ops.softmax(x.reshape(8, 10, 60), 1), lambda x: x.mean(axis=(0, 1)) * x,
    lambda x: x.reshape(16, 5, 60).sum(axis=(0, 2)), lambda x: ops.var(x, 0) + ops.std(x, 1)[0],
    lambda x: ops.layer_norm(x, (60,)), lambda x: ops.batch_norm(x.reshape(4, 20, 60))[0],
    lambda x: ops.relu(ops.concatenate([x, -x] * 2)), lambda x: ops.clip(x, -0.5, 0.5) * x,
    lambda x: ops.gelu(x, approximate="tanh"), lambda x: ops.where(x > 0.0, x, -x) + 1.0,
    lambda x: (x > 0.3).astype("float32") * 2.0,
    lambda x: (x.astype("float64") * 2.0).astype("float32"),
    lambda x: x.reshape(2, 40, 60).sum((0, 2)) * x.transpose()[:, :40],
    lambda x: ops.avg_pool2d(x.reshape(4, 5, 4, 60), 2), lambda x: ops.max(x, 1)[:, None] - x,
    lambda x: ops.logsumexp(x, 1)[:, None] * x, lambda x: ops.logsumexp(x, (0, 1), keepdims=True),
    lambda x: ops.softplus(x) * ops.logsigmoid(x), lambda x: ops.mish(x) / ops.norm(x, 2, 1)[0],
    lambda x: ops.log_softmax(x).mean() * x, lambda x: ops.log(ops.exp(x).mean(1)).mean() * x,
    lambda x: ops.norm(x.transpose(), 2, 0) * ops.norm(x, 2, (0, 1)), lambda x: ops.norm(x, 3, 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_compound_steps_of_larger_arrays_have_the_same_bits_forward_and_backward(
    dtype, monkeypatch
):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    values = np.random.default_rng(2).normal(size=(80, 60)).astype(dtype)
    values[values > 1.5], values[3:5, :7] = 0.0, -0.0
    for form in WIDE:
        x = ag.Graph().input("x", (80, 60), dtype)
        loss = ops.square(form(x * 1.5)).sum()
        assert "table" in check([loss], {"x": values})
        assert "table" in check([loss], {"x": values}, backward=True, wrt=[x])


def test_a_sigmoid_far_below_zero_is_no_reason_to_decline(monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    x = ag.Graph().input("x", (3,), "float32")
    y = ops.sigmoid(x * 1.0) * 2.0 + 1.0
    monkeypatch.setattr(native, "is_ignored", lambda flags, _: pytest.fail(f"flags {flags}"))
    with ag.TapeMachine([y], native="wait") as machine:
        got = machine.run_sync({"x": np.array([-1e4, 0.0, 20.0], np.float32)})[y].value
    assert got.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_for_which_a_kernel_takes_another_way_have_its_bits(dtype, monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    x, line = ag.Graph().input("x", (8, 5), dtype), np.linspace(-1.0, 1.0, 40).reshape(8, 5)
    for form in (ops.softplus, ops.logsigmoid, ops.logsumexp, ops.norm):
        loss = ops.square(form(x * 2.0)).sum()
        for scale in (1.0, 30.0, 1e4, 1e-30, np.nan, np.inf):
            values = (line * scale).astype(dtype)
            with np.errstate(all="ignore"):
                assert "table" in check([loss], {"x": values})
                assert "table" in check([loss], {"x": values}, backward=True, wrt=[x])


def test_functions_of_scipy_are_rows_with_the_same_bits(monkeypatch):
    pytest.importorskip("scipy")
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    values = np.random.default_rng(2).normal(size=(30, 40))
    for dtype in FLOATS:
        x = ag.Graph().input("x", (30, 40), dtype)
        for form in (ops.gelu, ops.erf, ops.erfc):
            feeds = {"x": values.astype(dtype)}
            assert "table" in check([(form(x * 1.5) * x).sum()], feeds, backward=True, wrt=[x])


@pytest.mark.parametrize("size", [3, 16, 1000, 4099])
@pytest.mark.parametrize("dtype", FLOATS)
def test_zeros_and_nan_go_through_rectified_units_as_from_python(dtype, size, monkeypatch):
    monkeypatch.setattr(table, "FEWEST_ROWS", 1)
    g = ag.Graph()
    x, w = g.input("x", (size,), dtype), g.parameter("w", np.ones(size, dtype))
    y = ops.relu(-(x * w)) * w
    values = np.resize(np.array([0.0, -0.0, np.nan, 1.0, -2.0], dtype), size)
    seed = np.resize(np.array([1.0, -1.0, np.inf, np.nan, -0.0, 0.0, 3.0], dtype), size)
    with np.errstate(invalid="ignore"):
        assert check([y], {"x": values}) == ["table"]
        assert check([y], {"x": values}, backward={y: seed}).count("table") == 1


@drawn(40, 10_000)
@given(graphs_of_other_dtypes())
def test_drawn_graphs_of_bools_integers_and_complex_numbers_have_the_same_bits(example):
    with pytest.MonkeyPatch.context() as patch, nans():
        patch.setattr(table, "FEWEST_ROWS", 1)
        nodes, wanted = expected(example)
        with ag.TapeMachine(example.outputs, wrt=example.wrt, native="wait") as machine:
            check_in_turn(machine, example, nodes, wanted)


@drawn(40, 10_000)
@given(graphs())
def test_drawn_graphs_have_the_bits_of_the_sequential_machine(example):
    nodes, wanted = expected(example)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "FEWEST_ROWS", 1)
        with ag.TapeMachine(example.outputs, wrt=example.wrt, native="wait") as machine:
            check_in_turn(machine, example, nodes, wanted)


def test_what_is_watched_uses_no_table_and_ops_of_users_stand_beside_them():
    h, _, feeds = layers("float32")
    double = ops.define("tabled_double", scheme="f[*s] -> f[*s]", forward=lambda xp, x: x * 2)
    with ag.TapeMachine([h], native="wait", watch=("nan",)) as machine:
        machine.run_sync(feeds)
        assert all(not plan.inline.program.parts for plan in machine._plans.values())
    assert check([double(h)], feeds) == ["table", "tabled_double"]


def alone(step):
    """Return the stretch of a single step."""
    tabling = Tabling({}, wait=True, ordered=[step.id])
    return table.Stretch([step], step.inputs, [step], [0], frozenset(), tabling)


def test_a_row_that_leaves_its_memory_is_refused():
    h, _, _ = layers("float32")
    tanh = h.inputs[0]
    rows = table_rows.Written(alone(tanh), {})
    place = rows.places[tanh.id]
    loop = loops.loop_of("tanh", "ff")
    for offset, count in ((0, 49), (4, 48), (-4, 1), (2, 1)):
        argument = (place, offset, ((count, 4),))
        with pytest.raises(spots.Unfit):
            rows.write(loop, [], [count], [4, 4], [argument, argument])


def test_a_row_without_machine_code_is_refused():
    h, _, feeds = layers("float32")
    check([h], feeds)  # so that there is machine code
    tanh = h.inputs[0]
    rows = table_rows.Written(alone(tanh), {})
    place = rows.places[tanh.id]
    assert native.RUNTIME.routine("add_d")
    with pytest.raises(spots.Unfit):
        rows.row(place, loops.Routine(native.RUNTIME.routine("add_L"), 0), [place])


def test_an_unknown_layout_of_ufuncs_has_no_loops(monkeypatch):
    monkeypatch.setattr(loops, "_HEADER", 24)
    assert loops.proved.__wrapped__(np.tanh, "ff") is None


def test_where_ufuncs_have_another_struct_nothing_is_compiled_and_the_reason_is_told(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loops, "_HEADER", 24)
    for one in (loops.proved, loops.product_loop):
        monkeypatch.setattr(loops, one.__name__, one.__wrapped__)
    runtime = native.Runtime()
    runtime.request()
    assert runtime.done.wait(60)
    assert runtime.walk is None
    assert "ufuncs of this NumPy" in runtime.reason
    assert not [*tmp_path.iterdir()]


def test_a_loop_that_gives_other_bits_than_its_ufunc_is_not_used():
    sine = loops.loop_of("sin", "ff")
    assert loops._agrees(sine, np.sin, "ff")
    assert not loops._agrees(sine, np.cos, "ff")


@pytest.mark.parametrize("char", ["f", "d"])
def test_every_elementwise_ufunc_of_floats_has_a_loop(char):
    names = {op.ufunc for op in ag.op.REGISTRY.values() if op.ufunc}
    missing = [
        name
        for name in sorted(names)
        if (ufunc := getattr(np, name)).signature is None
        and f"{char * ufunc.nin}->{char}" in ufunc.types
        and loops.loop_of(name, char * ufunc.nargs) is None
    ]
    assert not missing


def test_machine_code_that_is_damaged_on_disk_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native.engine(native._text())
    [place] = (tmp_path / "actorgraph").iterdir()
    whole = place.read_bytes()
    place.write_bytes(whole[:-5] + b"wrong")
    made = native.engine(native._text())
    assert made.get_function_address("walk")
    assert place.read_bytes() == whole


def test_options_that_make_no_sense_say_so(monkeypatch):
    h, _, _ = layers("float32")
    with pytest.raises(ValueError, match="native must be False, True or 'wait', got 3"):
        ag.TapeMachine([h], native=3)
    monkeypatch.setattr("actorgraph.machines.options.has_llvmlite", lambda: False)
    with pytest.raises(GraphError, match=r"needs llvmlite: pip install 'actorgraph\[native\]'"):
        ag.TapeMachine([h], native=True)


def test_the_environment_switches_tables_off_and_on(monkeypatch):
    h, _, _ = layers("float32")
    monkeypatch.setenv("ACTORGRAPH_NATIVE", "0")
    assert ag.TapeMachine([h], native=True).native is False
    monkeypatch.setenv("ACTORGRAPH_NATIVE", "wait")
    assert ag.TapeMachine([h]).native == "wait"
    monkeypatch.delenv("ACTORGRAPH_NATIVE")
    assert ag.TapeMachine([h]).native is True
    monkeypatch.setattr("actorgraph.machines.options.has_llvmlite", lambda: False)
    assert ag.TapeMachine([h]).native is False


def chain_after(first):
    """Return what six steps make of an op without a row, whose result they may write over."""
    x = ag.Graph().input("x", (3,), "float64")
    h = first(x)
    for _ in range(3):
        h = ops.square(h) + 0.5
    return [h]


def test_operands_are_whole_where_a_table_declines_because_of_an_overflow():
    outputs = chain_after(lambda x: ops.where(x > 0.0, x, -x))
    feeds = {"x": np.array([1.0, 1e150, 3.0])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert check(outputs, feeds).count("table") == 1


@pytest.mark.parametrize("options", [{"fuse": "all"}, {"workers": 1}])
def test_tasks_of_networks_are_walked_with_the_same_bits(options):
    _, loss, feeds = layers("float64", "n")
    with ag.LispMachine([loss]) as machine:
        wanted = machine.run_sync(feeds, backward=True)
    with ag.ActorMachine([loss], native="wait", **options) as machine:
        for x in (feeds["x"], feeds["x"][:2], np.asfortranarray(feeds["x"]), feeds["x"]):
            run = machine.start({"x": x}, backward=True).result()
        programs = [task.program for network in machine._networks() for task in network.tasks]
        stretches = [part.stretch for program in programs for part in program.parts]
        assert stretches
        assert all(one.covered for one in stretches)
        assert "rows of NumPy's loops stand for it" in machine.source
        assert f"in {counted(len(stretches), 'stretch')}" in machine.explain()
    assert run[loss].value.tobytes() == wanted[loss].value.tobytes()
    assert run["w"].grad.tobytes() == wanted["w"].grad.tobytes()


def test_a_run_that_has_died_is_left_between_rows():
    outputs = chain_after(lambda x: x * 2.0)
    with ag.TapeMachine(outputs, native="wait") as machine:
        machine.run_sync({"x": np.ones(3)})
        *_, plan = machine._plans.values()
        [part] = plan.inline.program.parts
    walk = part.stretch.walked(pytest.fail, {})
    assert walk(structs._idle(), None, np.ones(3))
    before = part.stretch.bytes
    for _ in range(3):
        with pytest.raises(Dead):
            walk(structs._idle(dead=Exception()), None, np.ones(3))
    assert part.stretch.bytes == before  # its memory serves the next run


def test_rows_are_written_in_the_background_after_some_runs():
    outputs = chain_after(lambda x: x * 2.0)
    with ag.TapeMachine(outputs, native=True) as machine:
        for _ in range(CALLS_TILL_ROWS + 1):
            machine.run_sync({"x": np.ones(3)})
        *_, plan = machine._plans.values()
        written = threading.Event()
        BACKGROUND.submit(written.set)
        assert written.wait(60)
        assert [part.stretch.covered > 0 for part in plan.inline.program.parts] == [True]


def test_a_small_graph_has_tables_after_some_turns_with_the_same_bits():
    outputs = chain_after(lambda x: x * 2.0)
    feeds = [{"x": np.linspace(-1, 1, 3) + turn} for turn in range(CALLS_TILL_ROWS + 1)]
    with ag.TapeMachine(outputs, native=True) as machine, ag.LispMachine(outputs) as lisp:
        found = []
        for one in feeds:
            got, wanted = machine.run_sync(one), lisp.run_sync(one)
            assert [got[o].value.tobytes() for o in outputs] == [
                wanted[o].value.tobytes() for o in outputs
            ]
            *_, plan = machine._plans.values()
            found.append(plan.inline.program is not None and len(plan.inline.program.parts))
    assert found == [0] * (CALLS_TILL_ROWS - 1) + [False, 1]


def test_a_run_that_began_without_tables_is_blamed_by_its_own_program(monkeypatch):
    begun, broken = threading.Event(), threading.Event()

    def wait(xp, x):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert broken.wait(60)
            raise RuntimeError("on command")
        return x

    op = ag.ops.define("lower_table_waits", scheme="f[*s] -> f[*s]", forward=wait)
    [*_, last] = chain_after(lambda x: x * 2.0)
    y = op(last).named("mine") + 1.0
    with ag.TapeMachine([y], wrt=[], native=True) as machine:
        caught = []

        def fail():
            with pytest.raises(NodeError, match="'mine'") as error:
                machine.run_sync({"x": np.ones(3)})
            caught.append(error.value)

        thread = threading.Thread(target=fail)
        thread.start()
        assert begun.wait(60)
        *_, plan = machine._plans.values()
        plan.walk_inline(plan.inline)
        broken.set()
        thread.join()
        assert caught[0].inputs == ("float64[3]",)
        assert plan.latest.direct == {}
        machine.run_sync({"x": np.ones(3)})
        assert plan.inline.program.parts


def test_within_max_bytes_there_is_no_table_that_nobody_counts():
    with ag.TapeMachine(chain_after(lambda x: x * 2.0), native="wait", max_bytes=10**6) as machine:
        machine.run_sync({"x": np.ones(3)})
        assert "tables" not in machine.explain()


def test_a_function_of_numpy_that_was_replaced_for_a_while_has_its_loop_afterwards(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(np, "arctanh", lambda x: x)
        assert loops.loop_of("arctanh", "ff") is None
        assert not listed.may_have_loop("arctanh", "ff")
    assert loops.loop_of("arctanh", "ff") is not None
    assert listed.may_have_loop("arctanh", "ff")
