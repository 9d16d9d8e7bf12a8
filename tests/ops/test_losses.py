"""Softmax and losses: values, stability, gradients of first and second order, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate

REDUCTIONS = ["mean", "sum", "none"]


def logits_and_targets(*rows, classes=4, dtype="float64", kind="int64"):
    rng = np.random.default_rng(7)
    logits = rng.standard_normal((*rows, classes)).astype(dtype) * 3
    return logits, rng.integers(0, classes, rows).astype(kind)


def graph_of(logits, targets, reduction="mean"):
    g = ag.Graph()
    z = g.input("z", logits.shape, logits.dtype)
    t = g.input("t", np.shape(targets), targets.dtype)
    return z, t, ag.ops.cross_entropy(z, t, reduction=reduction)


# -- softmax and log_softmax ------------------------------------------------------------------


@each("axis", [0, 1, -1])
@each("dtype", ["float16", "float32", "float64"])
def test_softmax_sums_to_one_and_log_softmax_is_its_log(axis, dtype):
    x = ag.Graph().input("x", (2, 3, 4), dtype)
    value = np.linspace(-3, 3, 24).reshape(2, 3, 4).astype(dtype)
    p, log_p = evaluate([ag.ops.softmax(x, axis), ag.ops.log_softmax(x, axis)], {x: value})
    assert p.dtype == log_p.dtype == dtype
    tolerance = 8 * np.finfo(dtype).eps
    assert np.allclose(p.sum(axis), 1, atol=tolerance)
    assert np.allclose(np.exp(log_p), p, atol=tolerance)


def test_softmax_and_log_softmax_of_one_node_never_merge():
    """Regression: Gorgonia leaves the flag that tells the two apart out of the hash."""
    x = ag.Graph().input("x", (3, 4))
    nodes = {ag.ops.softmax(x), ag.ops.log_softmax(x), ag.ops.softmax(x, 0)}
    assert len(nodes) == 3
    assert ag.ops.softmax(x) is ag.ops.softmax(x, 1)


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_softmax_is_stable_far_from_zero(shift):
    x = ag.Graph().input("x", (3,), "float32")
    value = np.array([1, 2, 3], "float32")
    nodes = [ag.ops.softmax(x), ag.ops.log_softmax(x)]
    assert np.array_equal(
        evaluate(nodes, {x: value + np.float32(shift)}), evaluate(nodes, {x: value})
    )


@each("order", ["C", "F", "strided"])
@each("rows", [(31,), (32,), (8, 4), (300,)])
@each("classes", [1, 2, 16, 17])
def test_few_classes_are_computed_like_many(rows, classes, order):
    """From 32 rows on NumPy is faster along columns, so that few classes take another way."""
    value, targets = logits_and_targets(*rows, classes=classes)
    value += 100 * np.arange(value[..., 0].size).reshape(*rows, 1)
    laid = np.asfortranarray(value) if order == "F" else value
    if order == "strided":
        laid = np.repeat(value, 2, axis=-1)[..., ::2]
    z, t, loss = graph_of(value, targets, "none")
    shifted = value - value.max(-1, keepdims=True)
    p = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    one_hot = targets[..., None] == np.arange(classes)
    wanted = p, np.log(p), -np.log(p[one_hot]).reshape(rows), p - one_hot
    nodes = [ag.ops.softmax(z), ag.ops.log_softmax(z), loss, *ag.gradients(loss.sum(), [z])]
    results = evaluate(nodes, {z: laid, t: targets})
    for got, true in zip(results, wanted, strict=True):
        assert np.allclose(got, true, rtol=1e-12, atol=1e-13)


def test_softmax_gives_masked_entries_nothing():
    x = ag.Graph().input("x", (3,), "float64")
    p = ag.ops.softmax(x)
    value, grad = evaluate([p, *ag.gradients((p * p).sum(), [x])], {x: np.array([0, -np.inf, 0])})
    assert np.array_equal(value, [0.5, 0, 0.5])
    assert np.array_equal(grad, [0, 0, 0])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_nothing_is_nothing(name, shape):
    x = ag.Graph().input("x", shape, "float32")
    y = getattr(ag.ops, name)(x)
    results = evaluate([y, *ag.gradients(y.sum(), [x])], {x: np.zeros(shape, "float32")})
    assert [(result.shape, result.dtype.name) for result in results] == [(shape, "float32")] * 2


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_wants_floats_and_an_axis(name):
    g = ag.Graph()
    function = getattr(ag.ops, name)
    with pytest.raises(GraphTypeError, match=r"int64 is not a float; convert with \.astype"):
        function(g.input("i", (3,), "int64"))
    with pytest.raises(ShapeError, match=f"{name}: axis 2 is not an int in"):
        function(g.input("x", (3, 4)), 2)
    with pytest.raises(ShapeError, match=f"{name}: axis has to be one int"):
        function(g["x"], (0, 1))


# -- cross_entropy ----------------------------------------------------------------------------


@each("rows", [(), (3,), (2, 3)])
@each("kind", ["int8", "int32", "int64", "uint8", "uint64"])
def test_cross_entropy_is_the_negative_log_softmax_at_the_target(rows, kind):
    logits, targets = logits_and_targets(*rows, kind=kind)
    expected = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
        logits, targets[..., None].astype(int), -1
    ).squeeze(-1)
    for reduction, reduced in (
        ("none", expected),
        ("sum", expected.sum()),
        ("mean", expected.mean()),
    ):
        z, t, loss = graph_of(logits, targets, reduction)
        (result,) = evaluate(loss, {z: logits, t: targets})
        assert loss.shape == result.shape == np.shape(reduced)
        assert np.allclose(result, reduced, rtol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_keeps_float32_and_is_as_exact_as_float32_can_be(reduction):
    logits, targets = logits_and_targets(50, classes=10, dtype="float32")
    logits *= 20
    z, t, loss = graph_of(logits, targets, reduction)
    grads = ag.gradients(loss, [z], seeds=[np.ones(loss.shape, "float32")])
    wide, tw, wide_loss = graph_of(logits.astype("float64"), targets, reduction)
    wide_grads = ag.gradients(wide_loss, [wide], seeds=[np.ones(loss.shape)])
    results = evaluate([loss, *grads], {z: logits, t: targets})
    exact = evaluate([wide_loss, *wide_grads], {wide: logits.astype("float64"), tw: targets})
    for result, true in zip(results, exact, strict=True):
        assert result.dtype == "float32"
        assert np.allclose(result, true, rtol=2e-6, atol=2e-6 * np.abs(true).max())


def test_cross_entropy_and_its_gradient_share_one_logarithm_of_softmax():
    logits, targets = logits_and_targets(3)
    z, t, loss = graph_of(logits, targets)
    (dz,) = ag.gradients(loss, [z])
    logs, chosen = loss.inputs
    assert (logs.op.name, logs.inputs, chosen) == ("log_softmax", (z,), t)
    found = [node.op.name for node in z.graph.topological_order([loss, dz])]
    assert found.count("log_softmax") == 1


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_cross_entropy_neither_overflows_nor_warns(scale):
    logits = np.array([[scale, 0.0], [0.0, scale]])
    z, t, loss = graph_of(logits, np.array([0, 0]), "none")
    grads = ag.gradients(loss.sum(), [z])
    value, grad = evaluate([loss, *grads], {z: logits, t: np.array([0, 0])})
    assert np.array_equal(value, [0, 1e4] if scale > 0 else [1e4, 0])
    assert np.isfinite(grad).all()


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_cross_entropy_takes_any_memory_layout(order):
    logits, targets = logits_and_targets(6)
    laid = np.asfortranarray(logits) if order == "F" else logits
    if order == "strided":
        laid = np.repeat(logits, 2, axis=1)[:, ::2]
        targets = np.repeat(targets, 2)[::2]
    z, t, loss = graph_of(logits, targets, "none")
    nodes = [loss, *ag.gradients(loss.sum(), [z])]
    for got, expected in zip(
        evaluate(nodes, {z: laid, t: targets}),
        evaluate(nodes, {z: logits, t: targets.copy()}),
        strict=True,
    ):
        assert np.allclose(got, expected, rtol=1e-14)


def test_cross_entropy_of_an_empty_batch_is_nan_without_a_warning():
    g = ag.Graph()
    z, t = g.input("z", ("n", 4), "float32"), g.input("t", ("n",), "int64")
    feeds = {z: np.zeros((0, 4), "float32"), t: np.zeros(0, "int64")}
    expected = {"mean": np.nan, "sum": 0, "none": np.zeros(0)}
    for reduction in REDUCTIONS:
        loss = ag.ops.cross_entropy(z, t, reduction=reduction)
        value, grad = evaluate([loss, *ag.gradients(loss.sum(), [z])], feeds)
        assert np.array_equal(value, expected[reduction], equal_nan=True)
        assert value.dtype == grad.dtype == "float32"
        assert grad.shape == (0, 4)


@pytest.mark.parametrize("wrong", [-1, 4, 127, -128])
def test_a_target_out_of_range_raises_in_the_run_forward_and_backward(wrong):
    logits, targets = logits_and_targets(3, kind="int8")
    z, t, loss = graph_of(logits, targets)
    (dz,) = ag.gradients(loss, [z])
    targets[1] = wrong
    for node in (loss, dz):
        with pytest.raises(IndexError, match=f"{wrong}.* out of range for 4 classes"):
            evaluate(node, {z: logits, t: targets})


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((4,), "int64", "dims do not fit: 3 and 4"),
        ((3, 1), "int64", "rank 2 .* does not fit rank 1"),
        ((3,), "float32", "float targets are probabilities"),
        ((3,), "bool", "bool is not an integer"),
    ],
)
def test_cross_entropy_wants_one_integer_per_row(shape, dtype, text):
    g = ag.Graph()
    with pytest.raises((ShapeError, GraphTypeError), match=f"cross_entropy: .*{text}"):
        ag.ops.cross_entropy(g.input("z", (3, 4)), g.input("t", shape, dtype))


@pytest.mark.parametrize("function", [ag.ops.cross_entropy, ag.ops.nll_loss])
def test_a_reduction_in_the_place_of_the_weight_is_told_its_name(function):
    g = ag.Graph()
    with pytest.raises(GraphTypeError, match="third argument is the weight .* reduction='sum'"):
        function(g.input("z", (3, 4)), g.input("t", (3,), "int64"), "sum")


@pytest.mark.parametrize("function", [ag.ops.cross_entropy, ag.ops.mse_loss])
def test_an_unknown_reduction_lists_the_known_ones(function):
    x = ag.Graph().input("x", (3, 4))
    with pytest.raises(GraphTypeError, match=r"one of \('mean', 'sum', 'none'\), got 'avg'"):
        function(x, x, reduction="avg")


@each("reduction", REDUCTIONS)
@each("shape", [("n", 4), (None, 4), (None, "n", 4)])
def test_cross_entropy_differentiates_thrice_with_dims_only_a_run_knows(reduction, shape):
    """The mean's count comes from the run; forward over reverse equals reverse over reverse."""
    rows = (3,) if len(shape) == 2 else (2, 3)
    logits, targets = logits_and_targets(*rows)
    feeds = {}
    results = []
    for dims in (shape, logits.shape):
        g = ag.Graph()
        z, t = g.input("z", dims, "float64"), g.input("t", dims[:-1], "int64")
        direction = g.constant(np.array([0.5, -1.0, 2.0, 0.0]))
        feeds = {z: logits, t: targets}
        loss = ag.ops.cross_entropy(z, t, reduction=reduction)
        loss = (loss * loss).sum()
        (first,) = ag.gradients(loss, [z])
        (second,) = ag.gradients((first * direction).sum(), [z])
        (third,) = ag.gradients((second * direction).sum(), [z])
        forward = tangents(first, {z: direction + 0 * z})
        results.append(evaluate([first, second, third, *forward], feeds))
    for symbolic, fixed in zip(*results, strict=True):
        assert np.allclose(symbolic, fixed, rtol=1e-12)
    assert np.allclose(results[0][1], results[0][3], rtol=1e-9, atol=1e-14)


# -- mse_loss ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_mse_loss_is_the_squared_difference(reduction):
    x = ag.Graph().input("x", (2, 3), "float64")
    a, b = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    loss = ag.ops.mse_loss(x, b, reduction=reduction)
    value, grad = evaluate([loss, *ag.gradients(loss.sum(), [x])], {x: a})
    squares = (a - b) ** 2
    expected = {"mean": squares.mean(), "sum": squares.sum(), "none": squares}[reduction]
    assert np.allclose(value, expected, rtol=1e-15)
    assert np.allclose(grad, 2 * (a - b) / (6 if reduction == "mean" else 1), rtol=1e-15)


@pytest.mark.parametrize(("left", "right"), [((3, 1), (3,)), ((3, 1), (3, 4)), (("n",), (1,))])
def test_mse_loss_never_broadcasts(left, right):
    g = ag.Graph()
    with pytest.raises(ShapeError, match=r"mse_loss: shapes \("):
        ag.ops.mse_loss(g.input("x", left), g.input("y", right))


def test_mse_loss_of_an_empty_batch_is_nan_without_a_warning():
    x = ag.Graph().input("x", ("n", 2), "float32")
    loss = ag.ops.mse_loss(x, x * 2)
    value, grad = evaluate([loss, *ag.gradients(loss, [x])], {x: np.zeros((0, 2), "float32")})
    assert np.isnan(value)
    assert grad.shape == (0, 2)


# -- PyTorch ----------------------------------------------------------------------------------


def compare_with_torch(build, theirs, *values, rtol=1e-9):
    """Compare values, gradients and gradients of gradients of a function of float64 arrays."""
    torch = pytest.importorskip("torch")
    g = ag.Graph()
    nodes = [g.input(f"x{i}", value.shape, "float64") for i, value in enumerate(values)]
    out = build(*nodes)
    first = ag.gradients((out * out).sum(), nodes)
    second = ag.gradients((first[0] * first[0]).sum(), nodes)
    ours = evaluate([out, *first, *second], dict(zip(nodes, values, strict=True)))

    tensors = [torch.tensor(value, requires_grad=True) for value in values]
    out = theirs(torch, *tensors)
    first = torch.autograd.grad((out * out).sum(), tensors, create_graph=True)
    second = torch.autograd.grad((first[0] ** 2).sum(), tensors)

    for one, other in zip(ours, [out, *first, *second], strict=True):
        other = other.detach().numpy()
        assert np.allclose(one, other, rtol=rtol, atol=1e-9 * np.abs(other).max(initial=0))


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_mse_loss_equals_that_of_pytorch_to_second_order(reduction):
    rng = np.random.default_rng(3)
    compare_with_torch(
        lambda x, y: ag.ops.mse_loss(x, y, reduction=reduction),
        lambda torch, x, y: torch.nn.functional.mse_loss(x, y, reduction=reduction),
        rng.standard_normal((2, 3)),
        rng.standard_normal((2, 3)),
    )
