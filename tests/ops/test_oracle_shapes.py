"""Ops of shapes, products and pools that no other file compares with PyTorch, to second order."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import compare, draw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

F = torch.nn.functional

FUNCTIONS = {
    "bmm": (lambda t, x, y: torch.bmm(x, y), (2, 3, 4), (2, 4, 2)),
    "dot": (lambda t, x, y: torch.dot(x, y), (5,), (5,)),
    "outer": (lambda t, x, y: torch.outer(x, y), (3,), (4,)),
    "ravel": (lambda t, x: torch.ravel(x), (2, 3)),
}
CALLS = {
    "broadcast_to": (
        lambda x: ag.ops.broadcast_to(x, (2, 3, 4)),
        lambda t, x: torch.broadcast_to(x, (2, 3, 4)),
        (3, 1),
    ),
    "diagflat": (ag.ops.diagflat, lambda t, x: torch.diagflat(x), (2, 2)),
    "broadcast_like": (
        lambda x: ag.ops.broadcast_like(x, x.graph.constant(np.ones((2, 3, 4)))),
        lambda t, x: x.expand_as(torch.ones(2, 3, 4)),
        (3, 1),
    ),
    "cot": (lambda x: ag.ops.cot(x + 4.5), lambda t, x: 1 / torch.tan(x + 4.5), (5,), (-1, 1)),
    "csc": (lambda x: ag.ops.csc(x + 4.5), lambda t, x: 1 / torch.sin(x + 4.5), (5,), (-1, 1)),
    "sec": (ag.ops.sec, lambda t, x: 1 / torch.cos(x), (5,), (-1, 1)),
    "expand_dims": (
        lambda x: ag.ops.expand_dims(x, 1),
        lambda t, x: torch.unsqueeze(x, 1),
        (2, 3),
    ),
    "global_avg_pool": (
        ag.ops.global_avg_pool,
        lambda t, x: F.adaptive_avg_pool2d(x, 1),
        (2, 3, 4, 5),
    ),
    "global_max_pool": (
        ag.ops.global_max_pool,
        lambda t, x: F.adaptive_max_pool2d(x, 1),
        (2, 3, 4, 5),
    ),
    "reshape": (
        lambda x: ag.ops.reshape(x, (3, -1)),
        lambda t, x: torch.reshape(x, (3, -1)),
        (2, 3, 4),
    ),
    "squeeze": (lambda x: ag.ops.squeeze(x, 1), lambda t, x: torch.squeeze(x, 1), (3, 1, 2)),
    "gelu_tanh": (
        lambda x: ag.ops.gelu(x, approximate="tanh"),
        lambda t, x: F.gelu(x, approximate="tanh"),
        (5, 7),
    ),
}
ALONE, ONE = np.array(0), np.array([0])
OF_SCALARS = {
    "argsort": lambda o, x, axis: o.argsort(x, axis),
    "cosine_similarity": lambda o, x, axis: o.cosine_similarity(x, 2 * x, axis),
    "cummax": lambda o, x, axis: o.cummax(x, axis),
    "cummin": lambda o, x, axis: o.cummin(x, axis),
    "cumprod": lambda o, x, axis: o.cumprod(x, axis),
    "cumsum": lambda o, x, axis: o.cumsum(x, axis),
    "gather": lambda o, x, axis: o.gather(x, axis, o.index(ALONE)),
    "gather_ones": lambda o, x, axis: o.gather(x, axis, o.index(np.zeros(3, "int64"))),
    "index_add": lambda o, x, axis: o.index_add(x, axis, o.index(ONE), x),
    "index_copy": lambda o, x, axis: o.index_copy(x, axis, o.index(ONE), 2 * x),
    "index_fill": lambda o, x, axis: o.index_fill(x, axis, o.index(ONE), 2.5),
    "index_reduce": lambda o, x, axis: o.index_reduce(x, axis, o.index(ONE), x, "prod"),
    "index_select": lambda o, x, axis: o.index_select(x, axis, o.index(ONE)),
    "kthvalue": lambda o, x, axis: o.kthvalue(x, 1, axis, True),
    "log_softmax": lambda o, x, axis: o.log_softmax(x, axis),
    "logcumsumexp": lambda o, x, axis: o.logcumsumexp(x, axis),
    "logsumexp": lambda o, x, axis: o.logsumexp(x, (axis,)),
    "mode": lambda o, x, axis: o.mode(x, axis),
    "scatter": lambda o, x, axis: o.scatter(x, axis, o.index(ALONE), 2 * x),
    "scatter_add": lambda o, x, axis: o.scatter_add(x, axis, o.index(ALONE), x),
    "scatter_reduce": lambda o, x, axis: o.scatter_reduce(x, axis, o.index(ALONE), x, "prod"),
    "softmax": lambda o, x, axis: o.softmax(x, axis),
    "softmin": lambda o, x, axis: o.softmin(x, axis),
    "swapaxes": lambda o, x, axis: o.swapaxes(x, axis, axis),
    "topk": lambda o, x, axis: o.topk(x, 1, axis),
}
NO_GRADIENT = {
    "floor_divide": (lambda x: ag.ops.floor_divide(x, 0.3), lambda t: torch.floor_divide(t, 0.3)),
    "isfinite": (ag.ops.isfinite, torch.isfinite),
    "isinf": (ag.ops.isinf, torch.isinf),
    "isnan": (ag.ops.isnan, torch.isnan),
    "logical_not": (lambda x: ag.ops.logical_not(x > 0), lambda t: torch.logical_not(t > 0)),
    "ones_like": (ag.ops.ones_like, torch.ones_like),
    "zeros_like": (ag.ops.zeros_like, torch.zeros_like),
    "full_like": (lambda x: ag.ops.full_like(x, 2.5), lambda t: torch.full_like(t, 2.5)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_agrees_with_pytorch(name):
    theirs, *shapes = FUNCTIONS[name]
    compare(getattr(ag.ops, name), theirs, draw(*shapes))


@pytest.mark.parametrize("name", CALLS)
def test_call_agrees_with_pytorch(name):
    ours, theirs, shape, *limits = CALLS[name]
    low, high = limits[0] if limits else (-2, 2)
    compare(ours, theirs, draw(shape, low=low, high=high))


class _Index:
    """The functions of a namespace, and its arrays of positions."""

    def __init__(self, index, *spaces):
        self.index, self.spaces = index, spaces

    def __getattr__(self, name):
        return next(getattr(space, name) for space in self.spaces if hasattr(space, name))


@pytest.mark.filterwarnings("ignore:index_reduce:UserWarning")
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", OF_SCALARS)
def test_along_axis_0_of_a_scalar_a_function_agrees_with_pytorch(name, axis):
    value, call = np.array(1.5), OF_SCALARS[name]
    x = ag.Graph().input("x", (), "float64")
    t = torch.tensor(value, requires_grad=True)
    ours = call(_Index(x.graph.constant, ag.ops), x, axis)
    theirs = call(_Index(torch.tensor, torch, F), t, axis)
    pairs = zip(
        ours if isinstance(ours, tuple) else (ours,),
        (theirs,) if isinstance(theirs, torch.Tensor) else theirs,
        strict=True,
    )
    for node, wanted in pairs:
        assert node.shape == tuple(wanted.shape)
        nodes, targets = [node], [wanted]
        if wanted.requires_grad:
            nodes += ag.gradients((node * node).sum(), [x])
            targets += torch.autograd.grad((wanted * wanted).sum(), [t], retain_graph=True)
        for got, target in zip(evaluate(nodes, {x: value}), targets, strict=True):
            np.testing.assert_allclose(got, target.numpy(force=True), rtol=1e-12)


COMPLEX = {
    "normalize": (lambda x: ag.ops.normalize(x, 3.0), lambda t, x: F.normalize(x, 3.0)),
    "renorm": (lambda x: ag.ops.renorm(x, 2, 0, 0.5), lambda t, x: t.renorm(x, 2, 0, 0.5)),
    "tanhshrink": (ag.ops.tanhshrink, lambda t, x: F.tanhshrink(x)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_function_of_complex_numbers_agrees_with_pytorch(name):
    ours, theirs = COMPLEX[name]
    compare(ours, theirs, [draw((3, 4), low=-1)[0] + 1j * draw((3, 4), high=1, seed=9)[0]])


@pytest.mark.parametrize("name", NO_GRADIENT)
def test_function_without_gradient_agrees_with_pytorch(name):
    ours, theirs = NO_GRADIENT[name]
    (value,) = draw((3, 5))
    if name.startswith("is"):
        value[0, :3] = np.nan, np.inf, -np.inf
    x = ag.Graph().input("x", (3, 5), "float64")
    (got,) = evaluate([ours(x)], {x: value})
    wanted = theirs(torch.tensor(value)).numpy()
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


def test_astype_agrees_with_pytorch_in_value_and_gradient():
    (value,) = draw((3, 4))
    x = ag.Graph().input("x", (3, 4), "float64")
    y = ag.ops.astype(x, "float32")
    t = torch.tensor(value, requires_grad=True)
    got, gradient = evaluate([y, *ag.gradients((y * y).sum(), [x])], {x: value})
    half = t.to(torch.float32)
    (wanted,) = torch.autograd.grad((half * half).sum(), [t])
    np.testing.assert_array_equal(got, half.numpy(force=True))
    np.testing.assert_array_equal(gradient, wanted.numpy())


def test_one_hot_agrees_with_pytorch():
    value = np.array([[0, 3], [2, 1]])
    x = ag.Graph().input("x", (2, 2), "int64")
    (got,) = evaluate([ag.ops.one_hot(x, 4)], {x: value})
    np.testing.assert_array_equal(got, F.one_hot(torch.tensor(value), 4).numpy())


def test_meshgrid_agrees_with_pytorch():
    compare(
        lambda x, y: ag.ops.stack(ag.ops.meshgrid(x, y, indexing="ij")),
        lambda t, x, y: torch.stack(torch.meshgrid(x, y, indexing="ij")),
        draw((3,), (4,)),
    )


def test_index_put_with_accumulate_agrees_with_pytorch():
    rows = np.array([0, 2, 0])
    compare(
        lambda x, v: ag.ops.index_put(x, rows, v, accumulate=True),
        lambda t, x, v: torch.index_put(x, (torch.tensor(rows),), v, accumulate=True),
        draw((3, 2), (3, 2)),
    )
