"""Ops of shapes, products and pools that no other file compares with PyTorch, to second order."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate
from tests.ops._compare import draw

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

F = torch.nn.functional

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
