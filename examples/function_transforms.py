"""Derivatives of plain functions of arrays: gradients, curvature, clipping and recomputing."""

import numpy as np

import actorgraph as ag


def layer(x, parameters):
    w, b = parameters
    return np.tanh(x @ w + b)


def loss(parameters, x, target, regularise=0.0):
    for parameter in parameters["layers"]:
        x = ag.checkpoint(layer)(x, parameter)  # its values are recomputed, not stored
    error = ag.hook_gradient(x - target, lambda ct: ag.ops.clip(ct, -0.1, 0.1))
    return (error * error).mean() + regularise * (parameters["layers"][0][0] ** 2).sum()


rng = np.random.default_rng(0)
parameters = {"layers": [(rng.normal(size=(3, 3)) / 2, np.zeros(3)) for _ in range(3)]}
x = rng.normal(size=(16, 3))
target = np.tanh(x[:, ::-1])

step = ag.value_and_grad(loss)  # traced at the first call, run by a machine at every call
losses = []
for _ in range(200):
    value, gradient = step(parameters, x, target, regularise=1e-4)
    losses.append(float(value))
    for pair, slopes in zip(parameters["layers"], gradient["layers"], strict=True):
        for array, slope in zip(pair, slopes, strict=True):
            array -= 1.0 * slope
assert losses[-1] < 0.1 * losses[0]


def rosenbrock(x):
    return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


at, along = np.array([-1.2, 1.0]), np.array([0.3, -0.7])
curvature = ag.hessian(rosenbrock)(at)
(product,) = ag.hvp(rosenbrock, (at,), (along,))  # without the Hessian
nested = ag.grad(lambda x: (ag.grad(rosenbrock)(x) * along).sum())(at)  # transforms nest
np.testing.assert_allclose(product, curvature @ along, rtol=1e-12)
np.testing.assert_allclose(nested, product, rtol=1e-12)

print(f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f}; curvature {curvature.tolist()}")
