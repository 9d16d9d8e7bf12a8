"""Losses with options, and those built of other ops: against PyTorch, at their limits, errors."""

import inspect

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

REDUCTIONS = ["mean", "sum", "none"]
TARGETS = np.array([[0, 2, 1], [3, 2, 2]])


def flat(torch, function, scores, *rest, reduction, **settings):
    """Call a loss of PyTorch, where classes stand in axis 1, with classes in the last axis."""
    targets = torch.tensor(TARGETS).reshape(-1)
    result = function(scores.reshape(-1, 4), targets, *rest, reduction=reduction, **settings)
    return result.reshape(TARGETS.shape) if reduction == "none" else result


# -- classes ----------------------------------------------------------------------------------


@pytest.mark.oracle
@each("reduction", REDUCTIONS)
@each("smoothing", [0.0, 0.1, 1.0])
@each("ignored", [None, 2])
@each("weighted", [False, True])
def test_cross_entropy_with_options_equals_that_of_pytorch(reduction, smoothing, ignored, weighted):
    def ours(z, *w):
        return ag.ops.cross_entropy(
            z, TARGETS, reduction=reduction, weight=w[0] if w else None, ignore_index=ignored,
            label_smoothing=smoothing,
        )  # fmt: skip

    def theirs(torch, z, *w):
        return flat(
            torch, torch.nn.functional.cross_entropy, z, reduction=reduction,
            weight=w[0].detach() if w else None, ignore_index=-100 if ignored is None else ignored,
            label_smoothing=smoothing,
        )  # fmt: skip

    z, w = draw((2, 3, 4), (4,), low=0.1, high=3)
    if weighted:  # PyTorch gives no gradient to weights.
        compare(
            lambda z: ours(z, w.astype(z.dtype)),
            lambda torch, z: theirs(torch, z, torch.tensor(w, dtype=z.dtype)),
            [z],
        )
    else:
        compare(ours, theirs, [z])


@pytest.mark.oracle
@each("reduction", REDUCTIONS)
@each("ignored", [None, 2])
def test_nll_loss_equals_that_of_pytorch(reduction, ignored):
    (w,) = draw((4,), low=0.2, high=2)
    compare(
        lambda z: ag.ops.nll_loss(
            z, TARGETS, w.astype(z.dtype), ignore_index=ignored, reduction=reduction
        ),
        lambda torch, z: flat(
            torch, torch.nn.functional.nll_loss, z, torch.tensor(w, dtype=z.dtype),
            reduction=reduction, ignore_index=-100 if ignored is None else ignored,
        ),
        draw((2, 3, 4)),
    )  # fmt: skip


@pytest.mark.oracle
@each("reduction", REDUCTIONS)
@each("weighted, smoothing", [(False, 0.0), (True, 0.3)])
@each("shape", [(2, 4, 3), (4,)])
def test_cross_entropy_of_probabilities_equals_that_of_pytorch(
    shape, weighted, smoothing, reduction
):
    """In PyTorch's layout, (N, C, d1, ...); targets get a gradient, too."""
    z, w = draw(shape, (4,), low=0.1, high=3)
    q = np.exp(draw(shape, seed=1)[0])
    axis = 1 if len(shape) > 1 else 0
    q /= q.sum(axis, keepdims=True)
    compare(
        lambda z, q: ag.ops.cross_entropy(
            z, q, w.astype(z.dtype) if weighted else None, reduction=reduction,
            label_smoothing=smoothing, axis=axis,
        ),
        lambda torch, z, q: torch.nn.functional.cross_entropy(
            z, q, torch.tensor(w, dtype=z.dtype) if weighted else None, reduction=reduction,
            label_smoothing=smoothing,
        ),
        [z, q],
    )  # fmt: skip


@pytest.mark.oracle
@each("reduction", ["mean", "none"])
@each("options", [{}, {"ignore_index": 2}, {"label_smoothing": 0.2}])
@each("shape", [(5, 4), (2, 4, 3, 2)])
def test_classes_may_stand_in_axis_1_as_in_pytorch(shape, options, reduction):
    targets = np.random.default_rng(0).integers(0, 4, (shape[0], *shape[2:]))
    compare(
        lambda z: ag.ops.cross_entropy(z, targets, reduction=reduction, axis=1, **options),
        lambda torch, z: torch.nn.functional.cross_entropy(
            z, torch.tensor(targets), reduction=reduction, **options
        ),
        draw(shape),
    )


def test_targets_that_are_neither_classes_nor_probabilities_are_explained():
    z = ag.Graph().input("z", ("batch", 4), "float64")
    with pytest.raises(
        ShapeError, match=r"probabilities of the shape .* \(5,\); classes are integ"
    ):
        ag.ops.cross_entropy(z, np.zeros(5))
    with pytest.raises(GraphTypeError, match="no index to ignore; give rows of zeros"):
        ag.ops.cross_entropy(z, np.zeros((5, 4)), ignore_index=1)
    with pytest.raises(ShapeError, match="axis 2"):
        ag.ops.cross_entropy(z, np.zeros(5, int), axis=2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_mean_over_nothing_that_counts_is_nan_without_a_warning(smoothing):
    z = ag.Graph().input("z", (2, 3), "float32")
    loss = ag.ops.cross_entropy(z, np.array([-1, -1]), ignore_index=-1, label_smoothing=smoothing)
    value, gradient = evaluate([loss, *ag.gradients(loss, [z])], {z: np.ones((2, 3), "float32")})
    assert np.isnan(value)
    assert value.dtype == gradient.dtype == "float32"


def test_an_ignored_row_may_hold_anything():
    z = ag.Graph().input("z", (2, 3), "float64")
    loss = ag.ops.cross_entropy(z, np.array([-1, 0]), ignore_index=-1)
    value = np.array([[-np.inf, 0.0, -np.inf], [0.0, 0.0, 0.0]])
    got, gradient = evaluate([loss, *ag.gradients(loss, [z])], {z: value})
    assert got == pytest.approx(np.log(3))
    np.testing.assert_allclose(gradient, [[0, 0, 0], [-2 / 3, 1 / 3, 1 / 3]])


def test_a_target_out_of_range_raises_unless_it_is_the_ignored_one():
    g = ag.Graph()
    z, t = g.input("z", (2, 3), "float64"), g.input("t", (2,), "int64")
    feeds = {z: np.zeros((2, 3)), t: np.array([0, -1])}
    with pytest.raises(IndexError, match="class indices from -1 to 0 are out of range"):
        evaluate(ag.ops.nll_loss(z, t), feeds)
    evaluate(ag.ops.nll_loss(z, t, ignore_index=-1), feeds)


def test_gradients_flow_to_class_weights():
    g = ag.Graph()
    z, w = g.input("z", (2, 3), "float64"), g.input("w", (3,), "float64")
    loss = ag.ops.nll_loss(z, np.array([0, 2]), w, reduction="sum")
    value = np.arange(6.0).reshape(2, 3)
    (gradient,) = evaluate(ag.gradients(loss, [w]), {z: value, w: np.ones(3)})
    np.testing.assert_array_equal(gradient, [-0.0, 0, -5])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_pick_is_take_along_axis_with_one_index_a_row(axis):
    x = ag.Graph().input("x", (2, 3, 4), "float64")
    (value,) = draw(x.shape)
    shape = tuple(np.delete(x.shape, axis))
    index = np.random.default_rng(0).integers(0, 2, shape)
    (got,) = evaluate(ag.ops.pick(x, index, axis), {x: value})
    wanted = np.take_along_axis(value, np.expand_dims(index, axis), axis).squeeze(axis)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dims", [("n", "c"), (None, None)])
def test_pick_takes_dims_that_only_a_run_knows(dims):
    x = ag.Graph().input("x", dims, "float64")
    y = ag.ops.pick(x, np.array([1, 0]))
    (dx,) = ag.gradients((y * y).sum(), [x])
    (gradient,) = evaluate(dx, {x: np.array([[1.0, 2, 3], [4, 5, 6]])})
    np.testing.assert_array_equal(gradient, [[0, 4, 0], [8, 0, 0]])


def test_losses_have_short_names_too():
    for name, short in {
        "mse_loss": "mse", "l1_loss": "l1", "smooth_l1_loss": "smooth_l1", "huber_loss": "huber",
        "nll_loss": "nll", "hinge_loss": "hinge", "triplet_margin_loss": "triplet",
        "bce_with_logits": "binary_cross_entropy_with_logits",
    }.items():  # fmt: skip
        assert getattr(ag.ops, short) is getattr(ag.ops, name)


def test_pick_softmax_keeps_the_digits_of_small_probabilities():
    x = ag.Graph().input("x", (1, 2), "float64")
    (got,) = evaluate(ag.ops.pick_softmax(x, np.array([1])), {x: np.array([[0.0, -300.0]])})
    np.testing.assert_allclose(got, np.exp(-300.0), rtol=1e-12)


# -- two classes ------------------------------------------------------------------------------


@pytest.mark.oracle
@each("reduction", REDUCTIONS)
@each("weighted", [False, True])
def test_binary_cross_entropy_equals_that_of_pytorch(reduction, weighted):
    p, t, w = draw((3, 4), (3, 4), (4,), low=0.05, high=0.95)

    def theirs(torch, name, *args, **settings):
        more = {"weight": torch.tensor(w)} if weighted else {}
        function = getattr(torch.nn.functional, name)
        return function(*args, reduction=reduction, **more, **settings)

    weight = w if weighted else None
    compare(
        lambda x, y: ag.ops.binary_cross_entropy(x, y, weight, reduction=reduction),
        lambda torch, x, y: theirs(torch, "binary_cross_entropy", x, y),
        [p, t],
        single=False,
    )
    compare(
        lambda x, y: ag.ops.bce_with_logits(
            x * 20, y, weight, pos_weight=w * 3, reduction=reduction
        ),
        lambda torch, x, y: theirs(
            torch, "binary_cross_entropy_with_logits", x * 20, y, pos_weight=torch.tensor(w * 3)
        ),
        [p - 0.5, t],
        single=False,
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_binary_cross_entropy_is_finite_at_zero_and_one(dtype):
    """Regression: Gorgonia's guard 1 + 1e-16 equals 1, so p = 1 gives NaN."""
    p = ag.Graph().input("p", (4,), dtype)
    targets = np.array([0, 1, 0, 1], dtype)
    losses = ag.ops.binary_cross_entropy(p, targets, reduction="none")
    (value,) = evaluate(losses, {p: np.array([0, 0, 1, 1], dtype)})
    np.testing.assert_array_equal(value, [0, 100, 100, 0])
    assert value.dtype == dtype


def test_gradient_of_binary_cross_entropy_at_zero_and_one_is_that_of_pytorch():
    p = ag.Graph().input("p", (4,), "float64")
    losses = ag.ops.binary_cross_entropy(p, np.array([0.0, 1, 0, 1]), reduction="sum")
    (gradient,) = evaluate(ag.gradients(losses, [p]), {p: np.array([0.0, 0, 1, 1])})
    np.testing.assert_allclose(gradient, [1, -1e12, 1e12, -1])


def test_bce_with_logits_neither_overflows_nor_cancels():
    x = ag.Graph().input("x", (4,), "float32")
    targets = np.array([0, 1, 0, 1], "float32")
    loss = ag.ops.bce_with_logits(x, targets, reduction="none")
    value = np.array([1e4, 1e4, -50, 50], "float32")
    got, gradient = evaluate([loss, *ag.gradients(loss.sum(), [x])], {x: value})
    np.testing.assert_allclose(got, [1e4, 0, np.exp(-50), np.exp(-50)], rtol=1e-5)
    assert np.isfinite(gradient).all()


def test_hinge_loss_is_zero_beyond_the_margin():
    x = ag.Graph().input("x", (4,), "float64")
    targets = np.array([1.0, -1, 1, -1])
    loss = ag.ops.hinge_loss(x, targets, reduction="none")
    value, gradient = evaluate(
        [loss, *ag.gradients(loss.sum(), [x])], {x: np.array([2.0, -0.5, 1.0, 3])}
    )
    np.testing.assert_array_equal(value, [0, 0.5, 0, 4])
    np.testing.assert_array_equal(np.abs(gradient), [0, 1, 0, 1])


# -- distances --------------------------------------------------------------------------------

PAIRS = {
    "l1_loss": {},
    "huber_loss": {"delta": 0.7},
    "smooth_l1_loss": {"beta": 0.7},
}


@pytest.mark.oracle
@each("reduction", REDUCTIONS)
@each("name", PAIRS)
def test_distance_equals_that_of_pytorch_to_second_order(name, reduction):
    settings = {"reduction": reduction, **PAIRS[name]}
    compare(
        lambda x, y: getattr(ag.ops, name)(x, y, **settings),
        lambda torch, x, y: getattr(torch.nn.functional, name)(x, y, **settings),
        draw((3, 4), (3, 4)),
    )


@pytest.mark.oracle
@each("reduction", [*REDUCTIONS, "batchmean"])
@each("log_target", [False, True])
@pytest.mark.filterwarnings("ignore:reduction")  # PyTorch on its own mean
def test_kl_div_equals_that_of_pytorch_to_second_order(reduction, log_target):
    settings = {"reduction": reduction, "log_target": log_target}
    compare(
        lambda x, y: ag.ops.kl_div(x, y, **settings),
        lambda torch, x, y: torch.nn.functional.kl_div(x, y, **settings),
        draw((3, 4), (3, 4), low=0.1, high=0.9),
    )


@pytest.mark.oracle
@each("axis", [0, 1, -1])
@each("shapes", [((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((3, 4), (2, 1, 4))])
def test_cosine_similarity_equals_that_of_pytorch_to_second_order(axis, shapes):
    compare(
        lambda x, y: ag.ops.cosine_similarity(x, y, axis),
        lambda torch, x, y: torch.nn.functional.cosine_similarity(x, y, axis),
        draw(*shapes),
    )


@pytest.mark.oracle
@each("p", [1, 2, 3.5])
@each("swap", [False, True])
def test_triplet_margin_loss_equals_that_of_pytorch_to_second_order(p, swap):
    settings = {"margin": 0.8, "p": p, "swap": swap, "reduction": "none"}
    compare(
        lambda *xs: ag.ops.triplet_margin_loss(*xs, **settings),
        lambda torch, *xs: torch.nn.functional.triplet_margin_loss(*xs, **settings),
        draw((5, 3), (5, 3), (5, 3)),
        rtol=1e-8,
    )


def test_losses_of_equal_or_zero_arrays_have_finite_gradients():
    g = ag.Graph()
    x, y = g.input("x", (2, 3), "float32"), g.input("y", (2, 3), "float32")
    losses = [
        ag.ops.l1_loss(x, y), ag.ops.huber_loss(x, y), ag.ops.smooth_l1_loss(x, y),
        ag.ops.kl_div(x, y), ag.ops.cosine_similarity(x, y).sum(),
        ag.ops.triplet_margin_loss(x, y, y),
    ]  # fmt: skip
    nodes = losses + [part for loss in losses for part in ag.gradients(loss, [x, y])]
    for value in evaluate(nodes, {x: np.zeros((2, 3), "f4"), y: np.zeros((2, 3), "f4")}):
        assert np.isfinite(value).all()
        assert value.dtype == "float32"


def test_huber_loss_squares_nothing_large():
    x = ag.Graph().input("x", (1,), "float32")
    loss = ag.ops.huber_loss(x, np.zeros(1, "f4"))
    value, gradient = evaluate([loss, *ag.gradients(loss, [x])], {x: np.array([1e30], "f4")})
    assert value == pytest.approx(1e30)
    assert gradient == 1


# -- errors -----------------------------------------------------------------------------------

SAME_SHAPE = ["l1_loss", "huber_loss", "smooth_l1_loss", "kl_div", "binary_cross_entropy",
              "bce_with_logits", "hinge_loss"]  # fmt: skip


@each("name", SAME_SHAPE)
def test_losses_never_broadcast_and_know_three_reductions(name):
    g = ag.Graph()
    x, y = g.input("x", (3, 1)), g.input("y", (3,))
    with pytest.raises(ShapeError, match=rf"{name}: shapes \(3, 1\) and \(3,\) differ"):
        getattr(ag.ops, name)(x, y)
    with pytest.raises(GraphTypeError, match=rf"{name}: reduction is one of \('mean'"):
        getattr(ag.ops, name)(x, x, reduction="avg")
    with pytest.raises(GraphTypeError, match=f"{name} needs at least one node, got ndarray"):
        getattr(ag.ops, name)(np.zeros(3), np.zeros(3))


def test_wrong_options_are_explained():
    g = ag.Graph()
    z, t = g.input("z", (2, 3)), g.input("t", (2,), "int64")
    with pytest.raises(GraphTypeError, match=r"label_smoothing is in \[0, 1\], got 2"):
        ag.ops.cross_entropy(z, t, label_smoothing=2)
    with pytest.raises(ShapeError, match="class weights have rank 1"):
        ag.ops.cross_entropy(z, t, weight=np.ones((1, 3), "f4"))
    for loss, targets in (
        (ag.ops.cross_entropy, t), (ag.ops.cross_entropy, z), (ag.ops.multi_margin_loss, t),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match="class weights have rank 1, 3 for"):
            loss(z, targets, weight=np.ones(2, "f4"))
    with pytest.raises(GraphTypeError, match="delta is a float > 0, got 0"):
        ag.ops.huber_loss(z, z, delta=0)
    with pytest.raises(GraphTypeError, match="beta is a float >= 0, got -1"):
        ag.ops.smooth_l1_loss(z, z, beta=-1)
    with pytest.raises(GraphTypeError, match="p is a float > 0, got 0"):
        ag.ops.triplet_margin_loss(z, z, z, p=0)
    with pytest.raises(ShapeError, match="pick: axis 2 is not an int in"):
        ag.ops.pick(z, t, 2)
    with pytest.raises(ShapeError, match="cosine_similarity: axis 2 is not an int in"):
        ag.ops.cosine_similarity(z, z, 2)


def needed(function):
    """Return how many arguments a function cannot do without."""
    parameters = inspect.signature(function).parameters.values()
    return sum(one.default is one.empty and one.kind is not one.VAR_KEYWORD for one in parameters)


def with_reduction(module):
    """Return by name what a module offers that takes a `reduction`."""
    offered = {name: getattr(module, name) for name in module.__all__}
    return {
        name: one for name, one in offered.items()
        if callable(one) and "reduction" in inspect.signature(one).parameters
    }  # fmt: skip


def losses():
    """Return names, ``loss(*args)`` with an unknown reduction, and how many arguments it needs."""
    functions = {**with_reduction(ag.ops), "linear_cross_entropy": ag.ops.linear_cross_entropy}
    for name, function in functions.items():
        yield name, lambda *args, of=function: of(*args, reduction="foo"), needed(function)
    for name, kind in with_reduction(ag.nn).items():
        settings = [4] * needed(kind)
        yield (
            name,
            lambda *args, kind=kind, settings=settings: kind(*settings, reduction="foo")(*args),
            needed(kind._of) if hasattr(kind, "_of") else 2,
        )


def test_an_unknown_reduction_is_refused_before_anything_is_built():
    tried = set()
    for name, loss, count in losses():
        g = ag.Graph()
        x = g.input("x", (3, 4))
        with pytest.raises(GraphTypeError, match="reduction is one of .*'none'.*, got 'foo'"):
            loss(x, *[np.ones((3, 4), "float32")] * (count - 1))
        assert len(g.nodes) == 1, name
        tried.add(name)
    assert {"cross_entropy", "ctc_loss", "LinearCrossEntropyLoss", "NLLLoss"} < tried
