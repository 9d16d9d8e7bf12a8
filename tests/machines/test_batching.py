"""Slices of a batch: which feeds are cut, what outputs are made of, how results are joined."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, NodeError, ShapeError
from actorgraph.machines.batching import Batching
from tests._each import each
from tests._soak import drawn

ops = ag.ops
DIMS = {"batch", "n"}


def model(kind="mean", dtype="float64"):
    """Return loss and nodes of a layer with weight decay; only the first term has a batch."""
    g = ag.Graph()
    rng = np.random.default_rng(0)
    x = g.input("x", shape=("batch", 3), dtype=dtype)
    t = g.input("t", shape=(2, "batch"), dtype=dtype)
    scale = g.input("scale", shape=(), dtype=dtype)
    w = g.parameter("w", rng.normal(size=(3, 2)).astype(dtype))
    y = ops.tanh(x @ w * scale).named("y")
    error = ops.square(y - t.T)
    data = error.mean() if kind == "mean" else error.sum()
    decay = (w * w).sum() * 0.25
    return (data + decay).named("loss"), {"x": x, "t": t, "w": w, "y": y, "data": data}


def feeds_of(rows, dtype="float64"):
    rng = np.random.default_rng(rows)
    return {
        "x": rng.normal(size=(rows, 3)).astype(dtype),
        "t": rng.normal(size=(2, rows)).astype(dtype),
        "scale": np.asarray(0.5, dtype),
    }


def bound(batching, feeds):
    return batching.bind({node: feeds[node.name] for node in batching.inputs})


def split_and_whole(outputs, wrt, feeds, count, **options):
    """Return a run of slices, one after another, and one of the whole batch."""
    options.setdefault("backward", True)
    with (
        pipeline_of(outputs, wrt, min(count, len(feeds["x"]))) as machine,
        ag.LispMachine(outputs, wrt=wrt) as other,
    ):
        return machine.run_sync(feeds, **options), other.run_sync(feeds, **options)


def pipeline_of(outputs, wrt, count):
    (dim,) = {str(dim) for node in outputs[0].graph.inputs for dim in node.dims if node.dims} & DIMS
    loss, *others = outputs
    return ag.pipeline.Pipeline(
        loss, wrt, stages=1, microbatches=count, split=dim, outputs=others, schedule="gpipe"
    )


@each("kind", ["mean", "sum"])
@each("rows, count", [(1, 1), (8, 4), (7, 3), (11, 4), (5, 5)])
@each("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
def test_slices_together_are_the_whole_batch(kind, rows, count, dtype, tolerance):
    loss, nodes = model(kind, dtype)
    w, outputs = nodes["w"], [loss, nodes["y"], nodes["data"]]
    split, whole = split_and_whole(outputs, [w], feeds_of(rows, dtype), count)
    for node in outputs:
        np.testing.assert_allclose(split[node].value, whole[node].value, rtol=tolerance)
    np.testing.assert_allclose(split[w].grad, whole[w].grad, rtol=tolerance, atol=tolerance)
    assert split[loss].value.dtype == split[w].grad.dtype == dtype


def test_sizes_differ_by_one_at_most_and_the_larger_come_first():
    batching = Batching([model()[0]], [], dim="batch")
    for rows, sizes in ((3, [1, 1, 1]), (4, [1, 1, 1, 1]), (10, [3, 3, 2, 2]), (11, [3, 3, 3, 2])):
        parts = batching.cut(*bound(batching, feeds_of(rows)), 4)
        assert [part.rows for part in parts] == sizes
        assert [part.share for part in parts] == [size / rows for size in sizes]


def test_feeds_are_cut_along_the_dim_wherever_it_is_and_not_copied():
    loss, nodes = model()
    batching = Batching([loss], [], dim="batch")
    feeds = feeds_of(5)
    first, second = batching.cut(*bound(batching, feeds), 2)
    assert (first.feeds[nodes["x"]].shape, second.feeds[nodes["x"]].shape) == ((3, 3), (2, 3))
    np.testing.assert_array_equal(second.feeds[nodes["t"]], feeds["t"][:, 3:])
    assert all(np.shares_memory(first.feeds[nodes[name]], feeds[name]) for name in ("x", "t"))
    (scale,) = (node for node in first.feeds if node.name == "scale")
    assert first.feeds[scale] is second.feeds[scale]


# -- terms ------------------------------------------------------------------------------------


@each(
    "build, constant",
    [
        (lambda data, decay: data + decay, 1.0),
        (lambda data, decay: decay + data, 1.0),
        (lambda data, decay: data - decay, -1.0),
        (lambda data, decay: decay - data, 1.0),
        (lambda data, decay: -(data + decay), -1.0),
        (lambda data, decay: (data + decay) * 3.0, 3.0),
        (lambda data, decay: 3.0 * (data + decay) / 2.0, 1.5),
        (lambda data, decay: (data + decay) * decay, 2.0),
        (lambda data, decay: data + decay + data * 2.0 + decay * 3.0, 4.0),
        (lambda data, decay: ops.where(decay > 0.0, data, decay) + decay, 1.0),
        (lambda data, decay: ops.stack([data, decay, -data]).sum(), 1.0),
    ],
)
def test_terms_without_the_dim_count_once(build, constant):
    """The weight is 2, its decay 2; the loss of rows that are 0 is what counts once."""
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(2.0))
    loss = build((x * w).sum(), w * 1.0)
    split, _ = split_and_whole([loss], [w], {"x": np.zeros(7)}, 3)
    assert split[loss].value == constant * 2.0
    split, whole = split_and_whole([loss], [w], {"x": np.arange(7.0)}, 3)
    assert split[loss].value == pytest.approx(whole[loss].value)
    assert split[w].grad == pytest.approx(whole[w].grad)


def test_an_output_of_one_kind_is_its_own_term_and_adds_no_node():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(1.0))
    outputs = {
        "mean": -(x * w).mean() * 2.0,
        "sum": (x * w).sum() / x.sum() + (x * w).sum(),
        "once": w * 2.0,
        "rows": x * w,
    }
    size = len(g)
    batching = Batching(outputs.values(), [w], dim="n")
    assert all(batching.terms(node) == {kind: node} for kind, node in outputs.items())
    assert len(g) == size


def test_a_long_sum_of_terms_does_not_recurse():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(1.0))
    loss = (x * w).sum()
    for number in range(3000):
        loss = loss + w * float(number)
    assert Batching([loss], [w], dim="n").terms(loss).keys() == {"sum", "once"}


# -- values of the whole batch ------------------------------------------------------------------


def test_what_depends_on_feeds_alone_is_computed_once_of_the_whole_batch():
    g = ag.Graph()
    x = g.input("x", shape=("n", 2), dtype="float64")
    w = g.parameter("w", np.ones(2))
    greatest, centred = x.max(), x - x.mean(axis=0)
    loss = (centred * w).sum() / greatest
    array = np.arange(10.0).reshape(5, 2)
    outputs = [loss, greatest, centred, (x > 8.0).any(), x[:, 0].argmax()]
    split, whole = split_and_whole(outputs, [w], {"x": array}, 3)
    for node in outputs:
        np.testing.assert_allclose(split[node].value, whole[node].value)
        assert split[node].value.dtype == whole[node].value.dtype
    np.testing.assert_allclose(split[w].grad, whole[w].grad, atol=1e-15)


def test_the_number_of_rows_is_that_of_the_batch_whatever_node_is_asked_for_it():
    g = ag.Graph()
    x = g.input("x", shape=("n", 2), dtype="float64")
    w = g.parameter("w", np.ones(2))
    squares = ops.square(x * w)
    loss = squares.sum() / ops.size_of(squares, 0).astype("float64")
    split, whole = split_and_whole([loss], [w], {"x": np.arange(10.0).reshape(5, 2)}, 2)
    np.testing.assert_allclose(split[loss].value, whole[loss].value)
    np.testing.assert_allclose(split[w].grad, whole[w].grad)


def test_a_divisor_that_is_differentiated_is_refused_and_one_with_a_tangent_in_its_run():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(1.0))
    loss = (x * w).sum() / x.sum()
    with pytest.raises(GraphTypeError, match="divides by 'sum_.*', which differs from slice to"):
        pipeline_of([loss], [w, x], 2)
    feeds = {"x": np.arange(5.0)}
    with pipeline_of([loss], [w], 2) as machine:
        assert machine.run_sync(feeds, tangents={w: 2.0})[loss].tangent == pytest.approx(2.0)
        with pytest.raises(GraphTypeError, match="divides by 'sum_.*', which differs from slice"):
            machine.run_sync(feeds, tangents={x: np.ones(5)})


def test_an_op_that_fails_on_the_whole_batch_is_named_and_nothing_has_started():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    t = g.input("t", shape=("n",), dtype="int64")
    w = g.parameter("w", np.asarray(1.0))
    loss = (x * w).sum() / ops.take(g.constant(np.ones(3)), t, 0).named("taken").sum()
    feeds = {"x": np.ones(4), "t": np.array([0, 1, 9, 0])}
    with pipeline_of([loss], [w], 2) as machine:
        with pytest.raises(NodeError, match="forward of node 'taken' failed"):
            machine.run_sync(feeds, backward=True)
        assert machine._core is None
        feeds["t"] = np.zeros(4, "int64")
        assert machine.run_sync(feeds, backward=True)[w].grad == pytest.approx(1.0)


def test_seeds_of_outputs_that_share_terms_are_added():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    m = g.input("m", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(2.0))
    data = (x * w * m).sum() / m.sum()
    outputs = [data, data + w, (x * w).mean() - w * w, x * w]
    feeds = {"x": np.arange(5.0), "m": np.array([1.0, 0, 0, 1, 1])}
    seeds = dict.fromkeys(outputs[:3], 0.5) | {outputs[3]: np.arange(5.0)}
    split, whole = split_and_whole(outputs, [w], feeds, 3, backward=seeds)
    for node in outputs:
        np.testing.assert_allclose(split[node].value, whole[node].value)
    np.testing.assert_allclose(split[w].grad, whole[w].grad)


# -- what is refused --------------------------------------------------------------------------

REFUSED = {
    "the root of a mean": (lambda y: ops.sqrt(y.mean()), "op 'sqrt' built at .* is not linear in"),
    "within a sum": (lambda y: ops.exp(y.mean()) + y.sum(), "'exp_.*', the op 'exp' built at"),
    "a square": (lambda y: y.mean() * y.sum(), "multiplies with 'sum_.*', which differs from"),
    "a ratio": (lambda y: y.sum() / y.max(axis=1).sum(), "divides by 'sum_.*', which differs"),
    "a greatest": (lambda y: y.max(), "does not show whether it is a mean or a sum over the rows"),
    "a row": (lambda y: y[0].sum(), "the op 'getitem' built at .* does not show whether it is a"),
    "pairs of rows": (lambda y: ops.logsumexp(y @ y.T, axis=1).mean(), "computes differently from"),
    "neighbours": (lambda y: (y[1:] - y[:-1]).sum(), "more or fewer rows"),
    "shares of their number": (
        lambda y: ag.gradients(ops.cross_entropy(y, y.argmax(axis=1)), [y])[0].sum(axis=0),
        "shares of their number",
    ),
    "a cast": (lambda y: y.mean().astype("int64"), "the op 'astype' built at .* is not linear in"),
}


@each("what", REFUSED)
def test_what_cannot_be_joined_is_refused_with_what_to_write_instead(what):
    build, text = REFUSED[what]
    g = ag.Graph()
    y = g.input("x", shape=("n", 2), dtype="float64") * g.parameter("w", np.ones(2))
    with pytest.raises(GraphTypeError, match=text) as raised:
        Batching([build(y)], [], dim="n")
    assert "depends on 'n'" in str(raised.value)
    assert "built at" in str(raised.value)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (lambda y: y.reshape(-1), "only where that is one of the dims, once and by"),
        (lambda y: ops.outer(y[:, 0], y[:, 1]), "a batch is cut and joined along"),
    ],
)
def test_outputs_with_the_dim_in_another_form_are_refused(output, text):
    g = ag.Graph()
    y = g.input("x", shape=("n", 2), dtype="float64") * g.parameter("w", np.ones(2))
    with pytest.raises(ShapeError, match=text):
        Batching([output(y)], [], dim="n", reduce="sum")


def test_what_users_say_of_an_op_is_believed_where_its_dtype_has_it():
    g = ag.Graph()
    y = g.input("x", shape=("n", 2), dtype="float64") * g.parameter("w", np.ones(2))
    assert Batching([y.max()], [], dim="n", reduce="mean").terms(y.max()) == {"mean": y.max()}
    for output, text in (
        ((y > 0.0).any(), "has no mean of bool; convert it with .astype"),
        (y[:, 0].argmax(), "has no mean of int64; convert it with .astype"),
        (ops.sqrt(y.mean()), "is not linear in them"),
    ):
        with pytest.raises(GraphTypeError, match=text):
            Batching([output], [], dim="n", reduce="mean")


def test_a_dim_that_no_input_has_is_refused():
    with pytest.raises(
        ShapeError, match="'bach'; did you mean 'batch'.*name the one to split along"
    ):
        Batching([model()[0]], [], dim="bach")


def test_an_input_that_has_the_dim_twice_cannot_be_cut():
    x = ag.Graph().input("x", shape=("n", "n"))
    with pytest.raises(ShapeError, match="'x' has the shape .'n', 'n'.; a batch is cut"):
        Batching([x.mean()], [], dim="n")


def test_feeds_are_checked_before_anything_is_cut():
    loss, nodes = model()
    batching = Batching([loss], [], dim="batch")
    feeds = {nodes.get(name, loss.graph.node(name)): array for name, array in feeds_of(4).items()}
    with pytest.raises(FeedError, match="batch = 3, but 'x' has batch = 4"):
        batching.bind({**feeds, nodes["t"]: feeds[nodes["t"]][:, :3]})
    del feeds[nodes["t"]]
    with pytest.raises(FeedError, match="missing feed 't'"):
        batching.bind(feeds)


# -- right, or refused ----------------------------------------------------------------------------

REDUCED = [
    lambda a: a.sum(),
    lambda a: a.mean(),
    lambda a: a.sum(axis=0),
    lambda a: a.mean(axis=0).sum(),
    lambda a: a.T @ a,
    lambda a: a.max(),
    lambda a: a[0],
    lambda a: ops.size_of(a, 0).astype("float64"),
]
MADE = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (ops.square(b) + 1.0),
    lambda a, b: ops.where(b > 0.0, a, b),
    lambda a, b: ops.stack([a, b]).sum(axis=0),
    lambda a, b: ops.concatenate([a.reshape(-1), b.reshape(-1)]),
    lambda a, b: ops.maximum(a, b),
    lambda a, b: ops.sqrt(ops.square(a) + 1.0) * b,
    lambda a, b: -a,
    lambda a, b: a.reshape(-1)[0] + b.mean(),
    lambda a, b: ops.broadcast_to(a.sum(), (3,)) * 0.5,
]


@drawn(25, soak=2000)
@given(st.data())
def test_a_drawn_value_is_that_of_the_whole_batch_or_refused(data):
    """Nothing that was reduced goes back into rows, but what feeds alone tell."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    g = ag.Graph()
    x = g.input("x", ("n", 2), "float64")
    m = g.input("m", ("n", 1), "float64")
    w = g.parameter("w", rng.normal(size=(2, 2)))
    rows = [ops.tanh(x @ w), x, m, m * (x @ w), (x @ w) / m.sum(), m - x.mean(axis=0)]
    values = [(w * w).sum(), m.sum(), g.constant(2.0)]
    for _ in range(data.draw(st.integers(1, 3))):
        reduced, row = data.draw(st.sampled_from(REDUCED)), data.draw(st.sampled_from(rows))
        values += [reduced(row)]
    for _ in range(data.draw(st.integers(0, 4))):
        a, b = (data.draw(st.sampled_from(values)) for _ in range(2))
        try:
            values.append(data.draw(st.sampled_from(MADE))(a, b))
        except ShapeError:
            continue
    value = values[-1]
    loss = value.sum() + (x @ w).sum()
    feeds = {"x": rng.normal(size=(5, 2)), "m": rng.random((5, 1)) + 0.1}
    try:
        split, whole = split_and_whole([loss, value, x * m], [w], feeds, 3)
    except GraphTypeError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert "cannot be joined from slices" in refused
        return
    for got, wanted in (
        (split[value].value, whole[value].value), (split[w].grad, whole[w].grad)
    ):  # fmt: skip
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
