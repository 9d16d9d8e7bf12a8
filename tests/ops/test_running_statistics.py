"""Batch normalisation with running statistics, in training and in evaluation."""

from __future__ import annotations

import numpy as np
import pytest

import actorgraph as ag

RNG = np.random.default_rng(5)


def layer(training):
    g = ag.Graph()
    x = g.input("x", shape=("n", 3, 4), dtype="float64")
    scale = g.parameter("scale", np.array([1.0, 2.0, 0.5]))
    bias = g.parameter("bias", np.array([0.0, -1.0, 1.0]))
    mean, var = g.buffer("mean", np.zeros(3)), g.buffer("var", np.ones(3))
    y = ag.ops.running_batch_norm(x, scale, bias, mean, var, training=training)
    return g, y, mean, var


@pytest.mark.oracle
@pytest.mark.parametrize("machine_type", [ag.LispMachine, ag.TapeMachine, ag.ActorMachine])
def test_running_statistics_follow_pytorch_over_many_runs(machine_type):
    torch = pytest.importorskip("torch")
    _, y, mean, var = layer(training=True)
    theirs = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight.copy_(torch.tensor([1.0, 2.0, 0.5]))
        theirs.bias.copy_(torch.tensor([0.0, -1.0, 1.0]))
    with machine_type(y) as machine:
        for _ in range(4):
            batch = RNG.standard_normal((5, 3, 4)) * 2 + 1
            ours = machine.run_sync({"x": batch})[y].value
            np.testing.assert_allclose(ours, theirs(torch.tensor(batch)).detach(), rtol=1e-9)
    np.testing.assert_allclose(mean.value, theirs.running_mean, rtol=1e-12)
    np.testing.assert_allclose(var.value, theirs.running_var, rtol=1e-12)


def test_evaluation_uses_the_running_statistics_and_changes_nothing():
    _, y, mean, var = layer(training=False)
    mean.value, var.value = np.array([1.0, 2.0, 3.0]), np.array([4.0, 1.0, 9.0])
    x = RNG.standard_normal((2, 3, 4))
    with ag.ActorMachine(y) as machine:
        ours = machine.run_sync({"x": x})[y].value
    shape = (3, 1)
    normal = (x - mean.value.reshape(shape)) / np.sqrt(var.value.reshape(shape) + 1e-5)
    expected = normal * np.array([[1.0], [2.0], [0.5]]) + np.array([[0.0], [-1.0], [1.0]])
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
    np.testing.assert_array_equal(mean.value, [1.0, 2.0, 3.0])


def test_statistics_have_to_be_buffers_and_momentum_a_fraction():
    g, _, mean, var = layer(training=True)
    with pytest.raises(ag.GraphTypeError, match=r"are buffers, got <scale.*graph\.buffer"):
        ag.ops.running_batch_norm(g["x"], None, None, g["scale"], var, training=True)
    with pytest.raises(ag.GraphTypeError, match=r"momentum is in \[0, 1\], got 2"):
        ag.ops.running_batch_norm(g["x"], None, None, mean, var, training=True, momentum=2)
