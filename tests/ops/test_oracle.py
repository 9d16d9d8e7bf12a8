"""Values, gradients and gradients of gradients against PyTorch, in float64 and away from kinks."""

import numpy as np
import pytest

import actorgraph as ag
from tests._evaluate import evaluate

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

RTOL = 1e-9
BINARY = {
    "add": "add",
    "divide": "div",
    "maximum": "maximum",
    "minimum": "minimum",
    "mod": "remainder",
    "multiply": "mul",
    "power": "pow",
    "subtract": "sub",
}
REDUCTIONS = {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "logsumexp": "logsumexp"}


def draw(*shapes, low=0.3, high=3.0):
    rng = np.random.default_rng(7)
    return [rng.uniform(low, high, shape) for shape in shapes]


def compare(ours, theirs, values):
    """Compare value, gradients of a weighted sum, and gradients of a weighted sum of those."""
    graph = ag.Graph()
    xs = [graph.input(f"x{i}", value.shape, "float64") for i, value in enumerate(values)]
    ts = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(*ts)
    weights = np.random.default_rng(8).normal(size=y.shape)
    first = ag.gradients([y], xs, seeds=[weights])
    wanted = torch.autograd.grad(z, ts, torch.tensor(weights), create_graph=True)
    total = sum((node * node).sum() for node in first)
    second = ag.gradients(total, xs)
    theirs_total = sum((node * node).sum() for node in wanted)
    if theirs_total.requires_grad:
        wanted_second = torch.autograd.grad(theirs_total, ts, allow_unused=True)
    else:
        wanted_second = [None] * len(ts)
    got = evaluate([y, *first, *second], dict(zip(xs, values, strict=True)))
    for mine, other in zip(got, [z, *wanted, *wanted_second], strict=True):
        other = np.zeros_like(mine) if other is None else other.numpy(force=True)
        np.testing.assert_allclose(mine, other, rtol=RTOL, atol=1e-300 + RTOL * np.abs(other).max())


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1), (1, 3)), ((), (3,))])
def test_binary_op_agrees_with_pytorch(name, shapes):
    compare(getattr(ag.ops, name), getattr(torch, BINARY[name]), draw(*shapes))


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [(0,), (1,), (-1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduction_agrees_with_pytorch(name, axis, keepdims):
    compare(
        lambda x: getattr(ag.ops, name)(x, axis, keepdims),
        lambda t: getattr(torch, REDUCTIONS[name])(t, dim=axis, keepdim=keepdims),
        draw((3, 4, 2), low=-3, high=3),
    )


@pytest.mark.parametrize("exponent", [-3, -1, -0.5, 0.5, 1, 1.7, 2, 3, 4, 6])
def test_power_of_a_scalar_agrees_with_pytorch(exponent):
    compare(lambda x: x**exponent, lambda t: t**exponent, draw((5, 7)))


@pytest.mark.parametrize("base", [0.5, 2, 3.7])
def test_scalar_to_the_power_of_a_node_agrees_with_pytorch(base):
    compare(lambda x: base**x, lambda t: base**t, draw((5, 7), low=-3))


def test_clip_agrees_with_pytorch():
    compare(
        lambda x: ag.ops.clip(x, -0.5, 1.0),
        lambda t: torch.clip(t, -0.5, 1.0),
        draw((5, 7), low=-2, high=2),
    )


def test_clip_by_nodes_agrees_with_pytorch():
    xs = [*draw((5, 7), low=-2, high=2), *draw((7,), low=-1, high=0), *draw((5, 1), low=0, high=1)]
    compare(ag.ops.clip, torch.clip, xs)


def test_where_agrees_with_pytorch():
    xs = draw((3, 4), (4,), low=-2, high=2)
    condition = np.random.default_rng(9).integers(0, 2, (2, 3, 4)).astype(bool)
    compare(
        lambda x, y: ag.ops.where(condition, x, y),
        lambda t, u: torch.where(torch.tensor(condition), t, u),
        xs,
    )


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_of_a_reduction_agree_with_pytorch(name):
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    compare(
        lambda node: getattr(ag.ops, name)(node, 1),
        lambda t: getattr(torch, REDUCTIONS[name])(t, dim=1),
        [x],
    )


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_ties_of_two_agree_with_pytorch(name):
    x = np.array([1.0, 2.0, 3.0])
    compare(getattr(ag.ops, name), getattr(torch, name), [x, x[::-1].copy()])


@pytest.mark.parametrize("name", ["abs", "relu", "sign"])
def test_gradient_at_zero_agrees_with_pytorch(name):
    compare(getattr(ag.ops, name), getattr(torch, name), [np.array([0.0, 1.0])])


def test_a_small_network_agrees_with_pytorch():
    values = draw((6, 5), (5, 4), (4,), (4, 1), low=-1, high=1)

    def ours(x, w, b, v):
        hidden = ag.ops.relu(x @ w + b) + ag.ops.tanh(x @ w) * ag.ops.sigmoid(b)
        return ag.ops.logsumexp(hidden @ v, 0) + (hidden**2).mean()

    def theirs(x, w, b, v):
        hidden = torch.relu(x @ w + b) + torch.tanh(x @ w) * torch.sigmoid(b)
        return torch.logsumexp(hidden @ v, 0) + (hidden**2).mean()

    compare(ours, theirs, values)
