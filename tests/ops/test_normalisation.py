"""Normalisation: against PyTorch to second order, statistics, stability, symbolic dims, errors."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 2), (2, 3, 2, 3)])
def test_batch_norm_in_training_equals_that_of_pytorch_to_second_order(shape):
    compare(
        lambda x, s, b: ag.ops.batch_norm(x, scale=s, bias=b, eps=1e-3).y,
        lambda torch, x, s, b: torch.nn.functional.batch_norm(
            x, None, None, s, b, training=True, eps=1e-3
        ),
        draw(shape, (3,), (3,)),
        rtol=1e-8,
    )


@pytest.mark.oracle
def test_batch_norm_in_evaluation_equals_that_of_pytorch_to_second_order():
    mean, var = draw((3,), (3,), low=0.5, high=2)
    compare(
        lambda x, s, b: ag.ops.batch_norm(x, scale=s, bias=b, mean=mean, var=var).y,
        lambda torch, x, s, b: torch.nn.functional.batch_norm(
            x, torch.tensor(mean), torch.tensor(var), s, b
        ),
        draw((4, 3, 2), (3,), (3,)),
        single=False,
    )


@pytest.mark.oracle
def test_statistics_of_a_batch_are_those_that_pytorch_runs_on():
    torch = pytest.importorskip("torch")
    (value,) = draw((4, 3, 2))
    mean, var = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    torch.nn.functional.batch_norm(torch.tensor(value), mean, var, training=True, momentum=1.0)
    x = ag.Graph().input("x", value.shape, "float64")
    _, ours, spread = ag.ops.batch_norm(x)
    for got, wanted in zip(evaluate([ours, spread], {x: value}), (mean, var), strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-12)


def test_gradients_flow_to_given_statistics():
    g = ag.Graph()
    x = g.input("x", (4, 3), "float64")
    mean, var = g.input("mean", (3,), "float64"), g.input("var", (3,), "float64")
    y, same, spread = ag.ops.batch_norm(x, mean=mean, var=var)
    gradients = evaluate(
        ag.gradients(y.sum(), [mean, var]), {x: np.ones((4, 3)), mean: np.zeros(3), var: np.ones(3)}
    )
    assert (same, spread) == (mean, var)
    assert all(np.abs(gradient).min() > 1 for gradient in gradients)


@pytest.mark.oracle
@pytest.mark.parametrize(("shape", "last"), [((4, 5), 5), ((2, 3, 4), (3, 4)), ((2, 3, 4), 4)])
def test_layer_norm_equals_that_of_pytorch_to_second_order(shape, last):
    dims = last if isinstance(last, tuple) else (last,)
    compare(
        lambda x, w, b: ag.ops.layer_norm(x, last, w, b),
        lambda torch, x, w, b: torch.nn.functional.layer_norm(x, dims, w, b),
        draw(shape, dims, dims),
        rtol=1e-8,
    )


@pytest.mark.oracle
@pytest.mark.parametrize("eps", [None, 1e-2])
def test_rms_norm_equals_that_of_pytorch_to_second_order(eps):
    compare(
        lambda x, w: ag.ops.rms_norm(x, 5, w, eps),
        lambda torch, x, w: torch.nn.functional.rms_norm(x, (5,), w, eps),
        draw((2, 3, 5), (5,)),
        rtol=1e-8,
    )


@pytest.mark.oracle
@each("shape", [(3, 6), (2, 6, 4), (2, 6, 2, 3)])
@each("groups", [1, 2, 3])
def test_group_norm_equals_that_of_pytorch_to_second_order(shape, groups):
    compare(
        lambda x, w, b: ag.ops.group_norm(x, groups, w, b),
        lambda torch, x, w, b: torch.nn.functional.group_norm(x, groups, w, b),
        draw(shape, (6,), (6,)),
        rtol=1e-8,
    )


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 3)])
def test_instance_norm_equals_that_of_pytorch_to_second_order(shape):
    compare(
        lambda x, w, b: ag.ops.instance_norm(x, weight=w, bias=b),
        lambda torch, x, w, b: torch.nn.functional.instance_norm(x, weight=w, bias=b),
        draw(shape, (3,), (3,)),
        rtol=1e-8,
    )


@pytest.mark.oracle
@each("shape", [(2, 5, 3), (2, 5, 2, 3)])
@each("size", [1, 2, 3, 4])
def test_local_response_norm_equals_that_of_pytorch_to_second_order(shape, size):
    settings = {"alpha": 0.5, "beta": 0.6, "k": 1.5}
    compare(
        lambda x: ag.ops.local_response_norm(x, size, **settings),
        lambda torch, x: torch.nn.functional.local_response_norm(x, size, **settings),
        draw(shape),
    )


def test_group_norm_of_long_groups_is_right():
    """Regression: Gorgonia merges pairwise means wrongly, which shows in long groups only."""
    x = ag.Graph().input("x", (2, 4, 5000), "float64")
    value = np.random.default_rng(0).normal(3, 2, x.shape)
    y = ag.ops.group_norm(x, 2, eps=0.0)
    groups = value.reshape(2, 2, -1)
    wanted = (groups - groups.mean(-1, keepdims=True)) / groups.std(-1, keepdims=True)
    (got,) = evaluate(y, {x: value})
    np.testing.assert_allclose(got, wanted.reshape(value.shape), rtol=1e-10)


def test_settings_of_norms_are_part_of_a_nodes_identity():
    """Regression: Gorgonia's hash leaves out all but one decimal of eps."""
    x = ag.Graph().input("x", (2, 4))
    nodes = {ag.ops.layer_norm(x, 4, eps=eps) for eps in (1e-5, 1e-6, 0.01, 0.02)}
    assert len(nodes) == 4


def test_a_large_mean_costs_no_accuracy():
    x = ag.Graph().input("x", (1, 1000), "float32")
    small = np.random.default_rng(0).normal(size=(1, 1000))
    value = (small + 1000).astype("float32")
    wide = value.astype("float64")
    wanted = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
    (got,) = evaluate(ag.ops.layer_norm(x, 1000), {x: value})
    np.testing.assert_allclose(got, wanted, atol=2e-4)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_norms_keep_the_dtype_and_half_precision_does_not_overflow(dtype):
    x = ag.Graph().input("x", (2, 4, 8), dtype)
    value = np.linspace(-3e4, 3e4, 64).reshape(x.shape).astype(dtype)
    outputs = [
        ag.ops.layer_norm(x, 8), ag.ops.group_norm(x, 2), ag.ops.instance_norm(x),
        ag.ops.batch_norm(x).y,
    ]  # fmt: skip
    nodes = outputs + [ag.gradients((y * y).sum(), [x])[0] for y in outputs]
    for got in evaluate(nodes, {x: value}):
        assert got.dtype == dtype
        assert np.isfinite(got).all()


@pytest.mark.parametrize("dims", [("n", 4, "m"), (None, 4, None)])
def test_dims_that_only_a_run_knows_give_the_same_to_second_order(dims):
    (value,) = draw((3, 4, 5))
    results = []
    for shape in (dims, value.shape):
        g = ag.Graph()
        x = g.input("x", shape, "float64")
        scale = g.constant(np.arange(1.0, 5.0))
        outputs = [
            ag.ops.group_norm(x, 2, scale, scale),
            ag.ops.instance_norm(x, weight=scale, bias=scale),
            ag.ops.batch_norm(x, scale=scale, bias=scale).y,
            ag.ops.local_response_norm(x, 3),
        ]
        total = sum((y * y * y).sum() for y in outputs)
        (first,) = ag.gradients(total, [x])
        results.append(
            evaluate([total, first, *ag.gradients((first * first).sum(), [x])], {x: value})
        )
    for symbolic, fixed in zip(*results, strict=True):
        np.testing.assert_allclose(symbolic, fixed, rtol=1e-10)


def test_empty_batches_give_nothing_without_a_warning():
    x = ag.Graph().input("x", ("n", 4), "float32")
    outputs = [ag.ops.layer_norm(x, 4), ag.ops.rms_norm(x, 4), ag.ops.batch_norm(x).y]
    nodes = outputs + [ag.gradients(y.sum(), [x])[0] for y in outputs]
    for value in evaluate(nodes, {x: np.zeros((0, 4), "float32")}):
        assert value.shape == (0, 4)


@each(
    "name, shape, arguments, error, text",
    [
        ("layer_norm", (2, 3), (4,), ShapeError, "normalized_shape .* do not fit: 4 and 3"),
        ("layer_norm", (3,), ((2, 3),), ShapeError, "normalized_shape .* does not fit"),
        ("layer_norm", (2, 3), (3, None, None, -1.0), GraphTypeError, "eps is a float >= 0"),
        ("rms_norm", (2, 3), ((),), ShapeError, "normalized_shape"),
        ("group_norm", (2, 3), (2,), ShapeError, "3 channels do not make 2 groups"),
        ("group_norm", (2, 3), (0,), ShapeError, "num_groups is an int >= 1"),
        ("instance_norm", (2, 3), (), ShapeError, r"takes \(batch, channels, axes\)"),
        ("batch_norm", (3,), (), ShapeError, r"takes \(batch, channels, \.\.\.\)"),
        ("batch_norm", (1, 3, 1), (), ShapeError, "one value per channel"),
        ("local_response_norm", (1, 3), (0,), ShapeError, "size is an int >= 1"),
    ],
)
def test_wrong_norms_are_explained(name, shape, arguments, error, text):
    x = ag.Graph().input("x", shape)
    with pytest.raises(error, match=text):
        getattr(ag.ops, name)(x, *arguments)


def test_batch_norm_takes_both_statistics_or_neither():
    x = ag.Graph().input("x", (2, 3))
    with pytest.raises(GraphTypeError, match="both mean and var, or neither"):
        ag.ops.batch_norm(x, mean=np.zeros(3, "float32"))


def test_channels_that_do_not_make_groups_raise_in_the_run():
    x = ag.Graph().input("x", (1, None), "float64")
    with pytest.raises(ShapeError, match="dim 3 is no multiple of 2"):
        evaluate(ag.ops.group_norm(x, 2), {x: np.ones((1, 3))})


def test_local_response_norm_of_nothing_is_nothing():
    x = ag.Graph().input("x", (2, 3, 0), "float32")
    assert ag.ops.local_response_norm(x, 5).shape == (2, 3, 0)
