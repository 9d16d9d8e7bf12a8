"""A function whose derivatives are known, at a point and in a direction."""

import numpy as np

import actorgraph as ag

X = np.array([0.5, -1.0, 2.0])
V = np.array([1.0, 0.3, -2.0])
M = np.random.default_rng(0).normal(size=(3, 3))


def scalar(x):
    return (ag.ops.exp(x) * x.sum()).sum()


def hessian_of_scalar(x):
    e = np.exp(x)
    return np.diag(e * x.sum()) + e[:, None] + e[None, :]


def close(got, wanted, rtol=1e-12):
    assert isinstance(got, np.ndarray)
    np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-12)
