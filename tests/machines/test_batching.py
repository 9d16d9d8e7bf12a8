"""Microbatches: which feeds are cut, what their losses count, how their results are joined."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphTypeError, ShapeError
from actorgraph.machines.batching import Batching


def model(reduce="mean", dtype="float64"):
    """Return loss and nodes of a layer with weight decay; only the first term has a batch."""
    g = ag.Graph()
    rng = np.random.default_rng(0)
    x = g.input("x", shape=("batch", 3), dtype=dtype)
    t = g.input("t", shape=(2, "batch"), dtype=dtype)
    scale = g.input("scale", shape=(), dtype=dtype)
    w = g.parameter("w", rng.normal(size=(3, 2)).astype(dtype))
    y = ag.ops.tanh(x @ w * scale).named("y")
    error = ag.ops.square(y - t.T)
    data = error.mean() if reduce == "mean" else error.sum()
    decay = (w * w).sum() * 0.25
    return g, (data + decay).named("loss"), {"x": x, "t": t, "w": w, "y": y, "data": data}


def feeds_of(rows, dtype="float64"):
    rng = np.random.default_rng(rows)
    return {
        "x": rng.normal(size=(rows, 3)).astype(dtype),
        "t": rng.normal(size=(2, rows)).astype(dtype),
        "scale": np.asarray(0.5, dtype),
    }


def one_after_another(batching, wrt, feeds):
    """Return loss, gradients and outputs: what a pipeline has to compute."""
    wanted = [batching.batch_loss, *batching.outputs]
    wanted += [batching.once_loss] if batching.once_loss is not None else []
    parts = batching.cut(feeds)
    with ag.LispMachine(wanted, wrt=wrt) as machine:
        runs = [
            machine.run_sync(part.feeds, backward=batching.seeds(number, part))
            for number, part in enumerate(parts)
        ]
    once = None if batching.once_loss is None else runs[0][batching.once_loss].value
    loss = batching.join_loss([run[batching.batch_loss].value for run in runs], parts, once)
    gradients = []
    for node in wrt:
        total = runs[0][node].grad.copy()
        for run in runs[1:]:
            total = total + run[node].grad
        gradients.append(total)
    outputs = [
        batching.join(node, [run[node].value for run in runs], parts) for node in batching.outputs
    ]
    return loss, gradients, outputs


@pytest.mark.parametrize("reduce", ["mean", "sum"])
@pytest.mark.parametrize(("rows", "microbatches"), [(1, 1), (8, 4), (7, 3), (11, 4), (5, 5)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_microbatches_together_are_the_whole_batch(reduce, rows, microbatches, dtype, tolerance):
    _, loss, nodes = model(reduce, dtype)
    w, x, y = nodes["w"], nodes["x"], nodes["y"]
    feeds = feeds_of(rows, dtype)
    batching = Batching(
        loss, [y, nodes["data"]], split="batch", microbatches=microbatches, reduce=reduce
    )
    found, (gradient,), (joined, data) = one_after_another(batching, [w], feeds)
    with ag.LispMachine([loss, y, nodes["data"]], wrt=[w, x]) as machine:
        whole = machine.run_sync(feeds, backward=True)
    np.testing.assert_allclose(found, whole[loss].value, rtol=tolerance)
    np.testing.assert_allclose(gradient, whole[w].grad, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(joined, whole[y].value, rtol=tolerance)
    np.testing.assert_allclose(data, whole[nodes["data"]].value, rtol=tolerance)
    assert found.dtype == gradient.dtype == dtype


def test_sizes_differ_by_one_at_most_and_the_larger_come_first():
    batching = Batching(model()[1], split="batch", microbatches=4, reduce="mean")
    for rows, sizes in ((4, [1, 1, 1, 1]), (10, [3, 3, 2, 2]), (11, [3, 3, 3, 2])):
        parts = batching.cut(feeds_of(rows))
        assert [part.rows for part in parts] == sizes
        assert [part.weight for part in parts] == [size / rows for size in sizes]


def test_feeds_are_cut_along_the_dim_wherever_it_is_and_not_copied():
    _, loss, nodes = model()
    batching = Batching(loss, split="batch", microbatches=2, reduce="sum")
    feeds = feeds_of(5)
    first, second = batching.cut(feeds)
    assert (first.feeds[nodes["x"]].shape, second.feeds[nodes["x"]].shape) == ((3, 3), (2, 3))
    np.testing.assert_array_equal(second.feeds[nodes["t"]], feeds["t"][:, 3:])
    assert all(np.shares_memory(first.feeds[nodes[name]], feeds[name]) for name in ("x", "t"))
    assert first.weight == second.weight == 1.0
    (scale,) = (node for node in first.feeds if node.name == "scale")
    assert first.feeds[scale] is second.feeds[scale]


# -- terms ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "constant"),
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
    ],
)
def test_terms_without_the_dim_count_once(build, constant):
    """The weight is 2, its decay 2; the loss of rows that are 0 is what counts once."""
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(2.0))
    data, decay = (x * w).sum(), w * 1.0
    batching = Batching(build(data, decay), split="n", microbatches=3, reduce="sum")
    loss, _, _ = one_after_another(batching, [w], {"x": np.zeros(7)})
    assert loss == constant * 2.0
    loss, (gradient,), _ = one_after_another(batching, [w], {"x": np.arange(7.0)})
    with ag.LispMachine([batching.loss], wrt=[w]) as machine:
        whole = machine.run_sync({"x": np.arange(7.0)}, backward=True)
    assert loss == pytest.approx(whole[batching.loss].value)
    assert gradient == pytest.approx(whole[w].grad)


def test_a_loss_that_is_no_sum_is_one_term():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    loss = ag.ops.exp((x.sum() + 1.0) * x.sum())
    size = len(g)
    batching = Batching(loss, split="n", microbatches=2, reduce="sum")
    assert batching.batch_loss is loss
    assert batching.once_loss is None
    assert len(g) == size


def test_a_long_sum_of_terms_does_not_recurse():
    g = ag.Graph()
    x = g.input("x", shape=("n",), dtype="float64")
    w = g.parameter("w", np.asarray(1.0))
    loss = x.sum()
    for number in range(3000):
        loss = loss + w * float(number)
    assert Batching(loss, split="n", microbatches=2, reduce="sum").once_loss is not None


# -- outputs ----------------------------------------------------------------------------------


def test_outputs_are_concatenated_taken_once_or_reduced():
    g = ag.Graph()
    x = g.input("x", shape=("n", 2), dtype="float64")
    w = g.parameter("w", np.ones(2))
    outputs = [x.T, w * 2.0, x.sum(axis=0), (x > 0.0).astype("int64").sum()]
    batching = Batching((x * w).sum(), outputs, split="n", microbatches=2, reduce="sum")
    array = np.arange(6.0).reshape(3, 2)
    _, _, (flipped, doubled, sums, count) = one_after_another(batching, [w], {"x": array})
    np.testing.assert_array_equal(flipped, array.T)
    np.testing.assert_array_equal(doubled, [2.0, 2.0])
    np.testing.assert_array_equal(sums, array.sum(axis=0))
    assert (count, count.dtype) == (5, np.int64)


@pytest.mark.parametrize(
    ("output", "error", "text"),
    [
        (lambda x: x.reshape(-1), ShapeError, "only where that is one of the dims, once and by"),
        (lambda x: ag.ops.outer(x[:, 0], x[:, 1]), ShapeError, "a batch is cut and joined along"),
        (lambda x: (x > 0.0).any(), GraphTypeError, "reduced to their mean, which bool does not"),
        (lambda x: x.argmax(), GraphTypeError, "reduced to their mean, which int64 does not"),
    ],
)
def test_outputs_that_cannot_be_joined_are_refused(output, error, text):
    g = ag.Graph()
    x = g.input("x", shape=("n", 2), dtype="float64")
    with pytest.raises(error, match=text):
        Batching(x.mean(), [output(x)], split="n", microbatches=2, reduce="mean")


# -- what is refused --------------------------------------------------------------------------


def test_a_dim_that_no_input_has_is_refused():
    with pytest.raises(
        ShapeError, match="'bach'; did you mean 'batch'.*name the one to split along"
    ):
        Batching(model()[1], split="bach", microbatches=2, reduce="mean")


def test_an_input_that_has_the_dim_twice_cannot_be_cut():
    g = ag.Graph()
    x = g.input("x", shape=("n", "n"))
    with pytest.raises(ShapeError, match="'x' has the shape .'n', 'n'.; a batch is cut"):
        Batching(x.mean(), split="n", microbatches=2, reduce="mean")


def test_a_loss_has_to_be_a_scalar_that_depends_on_the_batch():
    _, _, nodes = model()
    options = {"split": "batch", "microbatches": 2, "reduce": "mean"}
    with pytest.raises(GraphTypeError, match="the loss has to be a float scalar, got <y"):
        Batching(nodes["y"], **options)
    with pytest.raises(ShapeError, match="does not depend on an input with dim 'batch'"):
        Batching((nodes["w"] * 2.0).sum(), [nodes["y"]], **options)
    with pytest.raises(ValueError, match="reduce is 'max'; it can be 'mean' or 'sum'"):
        Batching(nodes["data"], **{**options, "reduce": "max"})


def test_fewer_rows_than_microbatches_are_refused():
    batching = Batching(model()[1], split="batch", microbatches=4, reduce="mean")
    with pytest.raises(FeedError, match="batch is 3: cannot be cut into 4 microbatches"):
        batching.cut(feeds_of(3))


def test_feeds_are_checked_before_anything_is_cut():
    batching = Batching(model()[1], split="batch", microbatches=2, reduce="mean")
    feeds = feeds_of(4)
    with pytest.raises(FeedError, match="missing feed 't'"):
        batching.cut({"x": feeds["x"], "scale": feeds["scale"]})
    with pytest.raises(FeedError, match="batch = 3, but 'x' has batch = 4"):
        batching.cut({**feeds, "t": feeds["t"][:, :3]})
