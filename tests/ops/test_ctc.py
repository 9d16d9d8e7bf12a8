"""CTC: against all alignments, against PyTorch, its true gradient, second order, limits, errors."""

from itertools import product

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare

TARGETS = np.array([[1, 2, 2], [3, 1, 0], [2, 2, 2]])
STEPS, COUNTS = np.array([6, 5, 6]), np.array([3, 2, 1])
REDUCTIONS = ["mean", "sum", "none"]


def logits(steps=6, batch=3, classes=4):
    return np.random.default_rng(5).normal(size=(steps, batch, classes))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def spelled(path, blank):
    merged = [label for i, label in enumerate(path) if i == 0 or label != path[i - 1]]
    return [label for label in merged if label != blank]


def by_all_alignments(log_probs, target, blank=0):
    """Sum over every path that spells the target."""
    steps, classes = log_probs.shape
    total = 0.0
    for path in product(range(classes), repeat=steps):
        if spelled(path, blank) == list(target):
            total += np.exp(sum(log_probs[step, label] for step, label in enumerate(path)))
    return -np.log(total)


@each("blank", [0, 2])
@each("target", [(1,), (1, 1), (3, 1), ()])
def test_loss_is_the_sum_over_all_alignments(blank, target):
    values = logits(4, 1)
    x = ag.Graph().input("x", values.shape, "float64")
    padded = np.array([[*target, -7]])  # what stands beyond the length is not looked at
    loss = ag.ops.ctc_loss(x, padded, [4], [len(target)], blank, "sum")
    (got,) = evaluate(loss, {x: values})
    assert got == pytest.approx(by_all_alignments(values[:, 0], target, blank), rel=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_loss_and_gradient_through_log_softmax_equal_those_of_pytorch(reduction):
    """Also a regression: Gorgonia does not scale the gradient of the mean."""

    def theirs(torch, x):
        return torch.nn.functional.ctc_loss(
            torch.log_softmax(x, -1), torch.tensor(TARGETS), torch.tensor(STEPS),
            torch.tensor(COUNTS), reduction=reduction,
        )  # fmt: skip

    compare(
        lambda x: ag.ops.ctc_loss(
            ag.ops.log_softmax(x), TARGETS, STEPS, COUNTS, reduction=reduction
        ),
        theirs,
        [logits()],
        second=False,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradient_is_the_true_one_without_a_log_softmax(reduction):
    """Regression: Gorgonia, as PyTorch, adds exp(log_probs), right through a log-softmax only."""
    values = logits() - 1
    x = ag.Graph().input("x", values.shape, "float64")
    loss = ag.ops.ctc_loss(x, TARGETS, STEPS, COUNTS, reduction=reduction).sum()
    direction = np.random.default_rng(1).normal(size=values.shape)
    (dx,) = ag.gradients(loss, [x])
    step = 1e-6
    (gradient,) = evaluate(dx, {x: values})
    ahead, behind = (evaluate(loss, {x: values + s * direction})[0] for s in (step, -step))
    assert (gradient * direction).sum() == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)
    np.testing.assert_allclose(gradient[5, 1], 0)  # beyond the sample's last step


def test_second_order_agrees_with_differences_in_both_modes():
    values, rng = logits(), np.random.default_rng(2)
    x = ag.Graph().input("x", values.shape, "float64")
    loss = ag.ops.ctc_loss(ag.ops.log_softmax(x), TARGETS, STEPS, COUNTS)
    (dx,) = ag.gradients(loss, [x])
    u = rng.normal(size=values.shape)
    reverse = ag.gradients([dx], [x], seeds=[u])
    forward = tangents([dx], {x: x.graph.constant(u)})
    step = 1e-6
    ahead, behind = (evaluate(dx, {x: values + s * u})[0] for s in (step, -step))
    for got in evaluate([*reverse, *forward], {x: values}):
        np.testing.assert_allclose(got, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-9)


def test_third_order_raises():
    x = ag.Graph().input("x", (6, 3, 4), "float64")
    loss = ag.ops.ctc_loss(x, TARGETS, STEPS, COUNTS)
    (first,) = ag.gradients(loss, [x])
    (second,) = ag.gradients((first * first).sum(), [x])
    with pytest.raises(GraphTypeError, match="first and second order only"):
        ag.gradients((second * second).sum(), [x])
    with pytest.raises(GraphTypeError, match="first and second order only"):
        tangents([second], {x: x})


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_a_target_too_long_for_its_input_costs_infinity_or_nothing(zero_infinity):
    x = ag.Graph().input("x", (2, 2, 3), "float32")
    loss = ag.ops.ctc_loss(
        x, np.array([[1, 1], [1, 2]]), [2, 2], [2, 2], reduction="none", zero_infinity=zero_infinity
    )
    (dx,) = ag.gradients(loss.sum(), [x])
    value, gradient = evaluate([loss, dx], {x: log_softmax(logits(2, 2, 3)).astype("f4")})
    assert value.dtype == gradient.dtype == "float32"
    assert value[0] == (0 if zero_infinity else np.inf)
    np.testing.assert_array_equal(gradient[:, 0], 0)
    assert value[1] > 0
    np.testing.assert_allclose(gradient[:, 1].sum(), -2, rtol=1e-6)


def test_impossible_labels_give_infinity_and_no_nan():
    x = ag.Graph().input("x", (3, 1, 3), "float64")
    loss = ag.ops.ctc_loss(x, np.array([[1]]), [3], [1], reduction="sum")
    (dx,) = ag.gradients(loss, [x])
    (second,) = ag.gradients(dx.sum(), [x])
    value = np.zeros((3, 1, 3))
    value[:, :, 1] = -np.inf
    got = evaluate([loss, dx, second], {x: value})
    assert got[0] == np.inf
    np.testing.assert_array_equal(got[1:], 0)


def test_inputs_batches_and_targets_may_be_empty():
    g = ag.Graph()
    x = g.input("x", ("t", "n", 3), "float64")
    t = g.input("t", ("n", "s"), "int64")
    steps, counts = (g.input(name, ("n",), "int64") for name in ("steps", "counts"))
    loss = ag.ops.ctc_loss(x, t, steps, counts, reduction="none")
    nodes = [loss, *ag.gradients(loss.sum(), [x])]
    for length, batch, most in ((0, 2, 0), (0, 2, 1), (2, 0, 1), (2, 2, 0)):
        feeds = {
            x: np.zeros((length, batch, 3)), t: np.ones((batch, most), int),
            steps: np.full(batch, length), counts: np.full(batch, most),
        }  # fmt: skip
        value, gradient = evaluate(nodes, feeds)
        assert gradient.shape == (length, batch, 3)
        np.testing.assert_array_equal(value, np.full(batch, np.inf if most > length else 0.0))


@pytest.mark.parametrize("machine", [ag.LispMachine, ag.ActorMachine])
def test_machines_train_through_ctc(machine):
    w = ag.Graph().parameter("w", logits().astype("f4"))
    loss = ag.ops.ctc_loss(ag.ops.log_softmax(w), TARGETS, STEPS, COUNTS)
    with machine([loss]) as running:
        run = running.run_sync({}, backward=True)
    assert run[w].grad.dtype == "float32"
    np.testing.assert_allclose(run[w].grad.sum(-1), 0, atol=1e-6)


def test_far_tails_neither_underflow_nor_warn():
    values = logits(60, 1, 4).astype("f4") * 100
    x = ag.Graph().input("x", values.shape, "float32")
    loss = ag.ops.ctc_loss(ag.ops.log_softmax(x), np.array([[1, 2, 1, 3] * 5]), [60], [20])
    value, gradient = evaluate([loss, *ag.gradients(loss, [x])], {x: values})
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"input_lengths": [7, 5, 6]},
            ValueError,
            "input lengths from 5 to 7 are not within 0 and 6",
        ),
        ({"target_lengths": [3, -1, 1]}, ValueError, "target lengths from -1 to 3 are not within"),
        ({"blank": 4}, ValueError, "blank 4 is not a class, there are 4"),
        ({"targets": TARGETS + 2}, IndexError, "class indices .* are out of range for 4 classes"),
    ],
)
def test_wrong_values_raise_in_the_run(changes, error, text):
    x = ag.Graph().input("x", (6, 3, 4), "float64")
    given = {"targets": TARGETS, "input_lengths": STEPS, "target_lengths": COUNTS, **changes}
    loss = ag.ops.ctc_loss(x, **given)
    with pytest.raises(error, match=text):
        evaluate(loss, {x: logits()})


def test_wrong_types_raise_when_the_node_is_built():
    x = ag.Graph().input("x", (6, 3, 4), "float64")
    with pytest.raises(ShapeError, match="ctc_loss: dims do not fit: 3 and 2"):
        ag.ops.ctc_loss(x, TARGETS[:2], STEPS, COUNTS)
    with pytest.raises(GraphTypeError, match="is not an integer"):
        ag.ops.ctc_loss(x, TARGETS * 1.0, STEPS, COUNTS)
    with pytest.raises(GraphTypeError, match="ctc_loss: reduction is one of"):
        ag.ops.ctc_loss(x, TARGETS, STEPS, COUNTS, reduction="avg")


def test_settings_of_ctc_are_part_of_a_nodes_identity():
    """Regression: Gorgonia's hash leaves out the reduction."""
    x = ag.Graph().input("x", (6, 3, 4))
    settings = [{}, {"reduction": "sum"}, {"blank": 3}, {"zero_infinity": True}]
    assert len({ag.ops.ctc_loss(x, TARGETS, STEPS, COUNTS, **more) for more in settings}) == 4
