"""Losses of microbatches have the gradients of the whole batch, or are refused.

The mean of a microbatch is often not that of the batch: where targets are ignored, weighted or
masked, and where a sum is meant.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.pipeline import SCHEDULES, Pipeline
from tests._soak import drawn

ops = ag.ops
CLASSES = 3
WEIGHTS = np.array([1.0, 3.0, 0.5])


class Net:
    """A classifier of rows, with a weight used twice, and what losses are made of."""

    def __init__(self, layers=2):
        rng = np.random.default_rng(0)
        self.graph = g = ag.Graph()
        self.x = h = g.input("x", ("n", 4), "float64")
        self.t = g.input("t", ("n",), "int64")
        self.mask = g.input("mask", ("n",), "float64")
        self.scale = g.input("scale", (), "float64")
        self.tied = g.parameter("tied", rng.normal(size=(4, 4)))
        for number in range(layers):
            h = ops.tanh(h @ self.tied + g.parameter(f"b{number}", rng.normal(size=4)))
        self.z = h @ g.parameter("W", rng.normal(size=(4, CLASSES)))
        self.each = ops.cross_entropy(self.z, self.t, reduction="none")
        self.wrt = list(g.parameters)


def feeds_of(rows, seed=0):
    rng = np.random.default_rng(seed)
    mask = (rng.random(rows) < 0.6) * rng.random(rows)
    mask[rng.integers(rows)] = 1.0
    return {
        "x": rng.normal(size=(rows, 4)), "t": rng.integers(0, CLASSES, rows), "mask": mask,
        "scale": np.asarray(rng.normal()),
    }  # fmt: skip


def _two_a_row(net):
    """Return logits and targets of twice as many rows, as of sequences."""
    logits = ops.stack([net.z, net.z * 2], axis=1).reshape(-1, CLASSES)
    return logits, ops.stack([net.t, net.t], axis=1).reshape(-1)


RIGHT = {
    "ignored targets": lambda n: ops.cross_entropy(n.z, n.t, ignore_index=1),
    "ignored targets of sequences": lambda n: ops.cross_entropy(*_two_a_row(n), ignore_index=1),
    "weighted classes": lambda n: ops.cross_entropy(n.z, n.t, weight=WEIGHTS),
    "weighted, ignored, smoothed": lambda n: ops.cross_entropy(
        n.z, n.t, weight=WEIGHTS, ignore_index=2, label_smoothing=0.1
    ),
    "nll": lambda n: ops.nll_loss(ops.log_softmax(n.z), n.t, weight=WEIGHTS, ignore_index=0),
    "kl": lambda n: ops.kl_div(
        ops.log_softmax(n.z), ops.softmax(n.x[:, :CLASSES]), reduction="batchmean"
    ),
    "masked": lambda n: (n.mask * n.each).sum() / n.mask.sum(),
    "masked, or 1": lambda n: (n.mask * n.each).sum() / np.maximum(n.mask.sum(), 1.0),
    "masked or nothing": lambda n: ops.where(
        n.mask.sum() > 0, (n.mask * n.each).sum() / n.mask.sum(), 0.0
    ),
    "shares of a mask": lambda n: (n.mask / n.mask.sum() * n.each).sum(),
    "product with a mask": lambda n: n.each @ n.mask / n.mask.sum(),
    "by the root of a count": lambda n: n.each.sum() / ops.sqrt(n.mask.sum()),
    "mean": lambda n: n.each.mean(),
    "mean of means": lambda n: ops.square(n.z).mean(axis=1).mean(),
    "sum": lambda n: n.each.sum(),
    "sum by rows": lambda n: n.each.sum() / ops.size_of(n.z, 0).astype("float64"),
    "rows reduced, then columns": lambda n: (n.z.sum(axis=0) * WEIGHTS).sum() / n.mask.sum(),
    "normalised feeds": lambda n: ops.tanh((n.x - n.x.mean(axis=0)) @ n.tied).mean(),
    "decay": lambda n: 0.1 * (n.tied * n.tied).sum() - n.each.sum(),
    "scaled": lambda n: -n.each.mean() * n.scale / 3 + 1.0,
}
REFUSED = {
    "root": lambda n: ops.sqrt(n.each.mean()),
    "ratio": lambda n: n.each.sum() / ops.square(n.z).sum(),
    "greatest": lambda n: n.each.max(),
    "pairs of rows": lambda n: ops.logsumexp(n.z @ n.z.T, axis=1).mean(),
}


def whole_run(net, outputs, feeds):
    with ag.LispMachine(outputs, wrt=net.wrt) as machine:
        return machine.run_sync(feeds, backward=True)


def pipeline_of(net, loss, microbatches, schedule="1f1b", outputs=(), **options):
    return Pipeline(
        loss, net.wrt, stages=2, schedule=schedule, microbatches=microbatches, split="n",
        outputs=outputs, **options,
    )  # fmt: skip


def needed(net, feeds):
    return {node.name: feeds[node.name] for node in net.graph.inputs}


def assert_close(run, whole, loss, net, others=()):
    for node in (loss, *others):
        np.testing.assert_allclose(run[node].value, whole[node].value, rtol=1e-12, atol=1e-14)
    for node in net.wrt:
        np.testing.assert_allclose(run[node].grad, whole[node].grad, rtol=1e-10, atol=1e-12)


def bits(run, nodes):
    return [run[node].grad.tobytes() for node in nodes]


@pytest.mark.parametrize("reduce", [None, "mean", "sum"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_has_the_gradients_of_the_whole_batch_whatever_is_said_of_it(name, reduce):
    net, feeds = Net(), feeds_of(11)
    loss = RIGHT[name](net)
    whole = whole_run(net, [loss], feeds)
    with pipeline_of(net, loss, 4, reduce=reduce) as pipeline:
        run = pipeline.run_sync(needed(net, feeds))
    assert_close(run, whole, loss, net)
    with pipeline_of(net, loss, 4, "gpipe", reduce=reduce) as other:
        again = other.run_sync(needed(net, feeds))
    assert bits(run, net.wrt) == bits(again, net.wrt)
    assert run[loss].value.tobytes() == again[loss].value.tobytes()


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_cannot_be_joined_is_refused(name):
    net = Net()
    loss = REFUSED[name](net)
    with pytest.raises(GraphTypeError, match="depends on 'n' without .* cannot be joined"):
        pipeline_of(net, loss, 2)


def test_a_metric_over_a_mask_is_joined_as_a_loss_is():
    net, feeds = Net(), feeds_of(10)
    right = (net.z.argmax(axis=-1) == net.t).astype("float64")
    outputs = [(right * net.mask).sum() / net.mask.sum(), right.sum(), net.mask.max(), net.z]
    loss = net.each.mean()
    whole = whole_run(net, [loss, *outputs], feeds)
    with pipeline_of(net, loss, 3, outputs=outputs) as pipeline:
        run = pipeline.run_sync(feeds)
    assert_close(run, whole, loss, net, outputs)


def test_outputs_may_be_variables_that_nothing_is_differentiated_by():
    net, feeds = Net(), feeds_of(6)
    fixed = net.graph.buffer("fixed", np.arange(3.0))
    loss = net.each.mean() + net.wrt[0].sum() * 0.0
    outputs = [fixed, net.tied, fixed.sum(), net.wrt[1]]
    with Pipeline(loss, [net.wrt[1]], stages=2, microbatches=2, split="n", outputs=outputs) as one:
        run = one.run_sync(needed(net, feeds))
    assert run[fixed].value.tolist() == [0.0, 1.0, 2.0]
    assert run[outputs[2]].value == 3.0
    assert run[net.tied].value is net.tied.held.array


def test_the_root_of_a_mean_is_trained_as_its_refusal_says():
    net, feeds = Net(), feeds_of(9)
    mean = net.each.mean()
    root = ops.sqrt(mean)
    whole = whole_run(net, [root], feeds)
    with pipeline_of(net, mean, 4) as pipeline:
        run = pipeline.run_sync(feeds)
    slope = 0.5 / np.sqrt(run[mean].value)
    for node in net.wrt:
        np.testing.assert_allclose(slope * run[node].grad, whole[node].grad, rtol=1e-10, atol=1e-14)


def test_a_loss_that_rows_do_not_change_is_refused():
    net = Net()
    for loss in ((net.tied * net.tied).sum(), (net.tied * net.mask.sum()).sum()):
        with pytest.raises(ShapeError, match="does not depend on an input with dim 'n', except by"):
            pipeline_of(net, loss, 2, outputs=[net.z])
    with pytest.raises(GraphTypeError, match="the loss has to be a float scalar, got"):
        pipeline_of(net, net.each, 2)
    with pytest.raises(ValueError, match="reduce must be one of 'mean', 'sum', got 'max'"):
        pipeline_of(net, net.each.mean(), 2, reduce="max")
    with pytest.raises(GraphTypeError, match="wrt .* depends on 'n' without having that dim"):
        Pipeline(net.each.mean(), [net.z.mean()], stages=2, microbatches=2, split="n")


def test_a_pipeline_that_streams_counts_the_rows_of_each_batch():
    net = Net()
    loss = RIGHT["weighted, ignored, smoothed"](net) + RIGHT["masked"](net)
    batches = [feeds_of(rows, seed=rows) for rows in (4, 9, 5, 9)]
    with pipeline_of(net, loss, 4, "zb-h1") as pipeline:
        for feeds, run in zip(batches, pipeline.stream(batches), strict=True):
            assert_close(run, whole_run(net, [loss], feeds), loss, net)


# -- drawn ------------------------------------------------------------------------------------


@drawn(12, soak=500)
@given(
    terms=st.lists(
        st.tuples(st.sampled_from(sorted(RIGHT)), st.floats(-2, 2)), min_size=1, max_size=3
    ),
    rows=st.integers(1, 14),
    microbatches=st.integers(1, 6),
    schedule=st.sampled_from([*SCHEDULES, "dynamic"]),
    seed=st.integers(0, 2**16),
)
@pytest.mark.timeout(600)
def test_drawn_losses_batches_and_schedules(terms, rows, microbatches, schedule, seed):
    microbatches = min(rows, microbatches)
    net, feeds = Net(layers=4), feeds_of(rows, seed)
    loss = net.each.mean() * 0.5
    for name, factor in terms:
        loss = loss + RIGHT[name](net) * factor
    with np.errstate(all="ignore"):
        whole = whole_run(net, [loss, net.z], feeds)
        with pipeline_of(net, loss, microbatches, schedule, [net.z], seed=seed) as pipeline:
            run = pipeline.run_sync(feeds)
        with pipeline_of(net, loss, microbatches, "gpipe") as other:
            again = other.run_sync(feeds)
    assert_close(run, whole, loss, net, [net.z])
    assert bits(run, net.wrt) == bits(again, net.wrt)
