"""Gradients of gradients: Newton's method, and a product with the Hessian that is never built."""

import numpy as np

import actorgraph as ag

g = ag.Graph("rosenbrock")
x = g.parameter("x", np.array([-1.2, 1.0]))
v = g.input("v", shape=(2,), dtype="float64")
f = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

(df,) = ag.gradients(f, [x])  # an ordinary node, so it can be differentiated again
hessian = ag.ops.stack([ag.gradients(df[i], [x])[0] for i in range(2)])
(hvp,) = ag.gradients((df * v).sum(), [x])  # reverse over reverse

direction = np.array([0.3, -0.7])
with ag.ActorMachine({"f": f, "df": df, "hessian": hessian, "hvp": hvp}, workers=2) as machine:
    run = machine.run_sync({"v": direction})
    exact = np.array([[1200 * 1.2**2 - 400 + 2, 480], [480, 200]])  # by hand, at (-1.2, 1)
    np.testing.assert_allclose(run["hessian"].value, exact, rtol=1e-12)
    np.testing.assert_allclose(run["hvp"].value, exact @ direction, rtol=1e-12)

    # Forward over reverse gives the same product, without a node for it.
    forward = machine.run_sync({"v": direction}, tangents={"x": direction})
    np.testing.assert_allclose(forward["df"].tangent, run["hvp"].value, rtol=1e-12)

    steps = 0
    while run["f"].value > 1e-20:
        x.value -= np.linalg.solve(run["hessian"].value, run["df"].value)
        run = machine.run_sync({"v": direction})
        steps += 1
        assert steps < 20

np.testing.assert_allclose(x.value, [1, 1], rtol=1e-9)
print(f"Newton's method found the minimum {x.value} in {steps} steps")
