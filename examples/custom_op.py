"""An op of your own: the inverse of a matrix, with rules for both modes of differentiation."""

import numpy as np

import actorgraph as ag

# The rules build nodes, so that they can be differentiated again; y is the result.
inverse = ag.ops.define(
    "inverse",
    scheme="f[m, m] -> f[m, m]",  # a float matrix, square
    forward=lambda xp, x: xp.linalg.inv(x),
    vjp=(lambda ct, y, x: -(y.T @ ct @ y.T),),
    jvp=lambda tans, y, x: -(y @ tans[0] @ y),
    cost=lambda shapes, result, attrs: 2 * result[0] ** 3,
    samples=[ag.ops.Sample(((3, 3),))],
    doc="Inverse of a square matrix.",
)
ag.testing.check_op(inverse)  # both modes against differences, second order, every machine

rng = np.random.default_rng(0)
start = np.eye(4) + 0.1 * rng.normal(size=(4, 4))
direction = rng.normal(size=(4, 4))

g = ag.Graph("inverse")
a = g.parameter("a", start)
loss = (inverse(a) ** 2).sum()
(da,) = ag.gradients(loss, [a])


def loss_at(matrix):
    return np.sum(np.linalg.inv(matrix) ** 2)


h = 1e-6
slope = (loss_at(start + h * direction) - loss_at(start - h * direction)) / (2 * h)

with ag.ActorMachine([loss, da], wrt=[a], workers=2) as machine:
    reverse = machine.run_sync(backward=True)
    forward = machine.run_sync(tangents={"a": direction})

assert np.isclose(reverse[loss].value, loss_at(start))
assert np.isclose(np.vdot(reverse[a].grad, direction), slope, rtol=1e-6)
assert np.isclose(forward[loss].tangent, slope, rtol=1e-6)
# Forward over reverse differentiates the vjp itself: the curvature along the direction.
curvature = np.vdot(forward[da].tangent, direction)
h = 1e-4
ahead, here, behind = (loss_at(start + step * direction) for step in (h, 0, -h))
assert np.isclose(curvature, (ahead - 2 * here + behind) / h**2, rtol=1e-5)
print(f"slope {slope:.6f} in both modes, curvature {curvature:.4f}: as by finite differences")

try:
    inverse(g.input("x", shape=(3, 4), dtype="float64"))
except ag.ShapeError as error:
    print("refused while building:", error)
