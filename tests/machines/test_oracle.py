"""Whole models on every machine agree with PyTorch."""

import numpy as np
import pytest

import actorgraph as ag
from tests.machines.conftest import machines

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

rng = np.random.default_rng(7)


def mlp(x, t, params, lib):
    w1, b1, w2, b2 = params
    if lib is ag:
        return ag.ops.cross_entropy(ag.ops.relu(x @ w1 + b1) @ w2 + b2, t)
    return torch.nn.functional.cross_entropy(torch.relu(x @ w1 + b1) @ w2 + b2, t)


def attention(x, t, params, lib):
    wq, wk, wv, wo = params
    q, k, v = x @ wq, x @ wk, x @ wv
    if lib is ag:
        weights = ag.ops.softmax((q @ k.T) * 0.5, axis=-1)
        logits = (ag.ops.tanh(weights @ v) + x) @ wo
        return ag.ops.cross_entropy(logits, t) + ag.ops.logsumexp(weights)
    weights = torch.softmax((q @ k.T) * 0.5, -1)
    logits = (torch.tanh(weights @ v) + x) @ wo
    return torch.nn.functional.cross_entropy(logits, t) + torch.logsumexp(weights.flatten(), 0)


def recurrent(x, t, params, lib):
    w, u, b, out = params
    ops = ag.ops if lib is ag else torch
    h = ops.tanh(x[0] @ w + b)
    for i in range(1, 5):
        gate = ops.sigmoid(x[i] @ w)
        h = ops.tanh(x[i] @ w + h @ u + b) * gate + h * (1.0 - gate)
    logits = ops.stack([h, h * h]) @ out
    target = t[:2]
    loss = ag.ops.cross_entropy if lib is ag else torch.nn.functional.cross_entropy
    return loss(logits, target)


MODELS = {
    "mlp": (mlp, [(4, 8), (8,), (8, 3), (3,)]),
    "attention": (attention, [(4, 4), (4, 4), (4, 4), (4, 3)]),
    "recurrent": (recurrent, [(4, 4), (4, 4), (4,), (4, 3)]),
}


@machines
@pytest.mark.parametrize("name", MODELS)
def test_values_gradients_and_tangents_of_models_agree(machine_type, options, name):
    model, shapes = MODELS[name]
    arrays = [rng.normal(size=shape) for shape in shapes]
    x, t = rng.normal(size=(5, 4)), rng.integers(0, 3, 5)
    direction = rng.normal(size=(5, 4))
    graph = ag.Graph(name)
    params = [graph.parameter(f"p{i}", array) for i, array in enumerate(arrays)]
    xs, ts = graph.input("x", (5, 4), "float64"), graph.input("t", (5,), "int64")
    loss = model(xs, ts, params, ag)
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    tx = torch.tensor(x, requires_grad=True)
    wanted = model(tx, torch.tensor(t), tensors, torch)
    wanted.backward()
    with machine_type([loss], wrt=[*params, xs], **options) as machine:
        run = machine.run_sync({"x": x, "t": t}, backward=True)
        np.testing.assert_allclose(run[loss].value, wanted.item(), rtol=1e-12)
        for node, tensor in zip([*params, xs], [*tensors, tx], strict=True):
            np.testing.assert_allclose(run[node].grad, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)
        pushed = machine.run_sync({"x": x, "t": t}, tangents={xs: direction})
        slope = float((tx.grad.numpy() * direction).sum())
        np.testing.assert_allclose(pushed[loss].tangent, slope, rtol=1e-9)


@machines
def test_second_derivatives_agree(machine_type, options):
    graph = ag.Graph()
    x = graph.input("x", (4,), "float64")
    w = graph.parameter("w", rng.normal(size=(4, 4)))
    y = ag.ops.tanh(x @ w).sum() * ag.ops.logsumexp(x)
    (dx,) = ag.gradients(y, [x])
    value, direction = rng.normal(size=(2, 4))
    tx, tw = torch.tensor(value), torch.tensor(w.value)
    wanted = torch.autograd.functional.hvp(
        lambda v: torch.tanh(v @ tw).sum() * torch.logsumexp(v, 0), tx, torch.tensor(direction)
    )[1].numpy()
    with machine_type([dx], wrt=[x], **options) as machine:
        back = machine.run_sync({"x": value}, backward={dx: direction})
        np.testing.assert_allclose(back[x].grad, wanted, rtol=1e-10)
        ahead = machine.run_sync({"x": value}, tangents={"x": direction})
        np.testing.assert_allclose(ahead[dx].tangent, wanted, rtol=1e-10)
