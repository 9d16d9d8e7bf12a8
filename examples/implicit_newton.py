"""The root of an equation by Newton's method, differentiated in two ways.

Through the loop: iterations are taken back one by one.  By the implicit function theorem: where
f(y, a) = 0, dy/da = -(df/da) / (df/dy) at the root, whatever way led there.
"""

import numpy as np

import actorgraph as ag


def equation(y, a):
    """Return what is zero at the root: Kepler's equation, of mean anomaly 1 and eccentricity a."""
    return y - a * ag.ops.sin(y) - 1.0


def root(a):
    """Solve the equation, until its value is small."""

    def step(state):
        y, _ = state
        value = equation(y, a)
        (rate,) = ag.gradients(value, [y])
        return y - value / rate, abs(value)

    start = (np.ones(()), np.ones(()))
    return ag.while_loop(lambda state: state[1] > 1e-14, step, start, max_trips=50)[0]


@ag.custom_vjp
def implicit_root(a):
    """Solve it in the same way; the loop is not differentiated."""
    return root(a)


@implicit_root.defvjp
def _(ct, y, a):
    # Partial derivatives of the equation: each with the other fixed.
    by_y, by_a = 1.0 - a * ag.ops.cos(y), -ag.ops.sin(y)
    return (-ct * by_a / by_y,)


g = ag.Graph("Kepler")
a = g.input("a", (), "float64")
through, implicit = root(a), implicit_root(a)
slopes = [ag.gradients(y, [a])[0] for y in (through, implicit)]
curvatures = [ag.gradients(slope, [a])[0] for slope in slopes]

with ag.TapeMachine([through, *slopes, *curvatures], wrt=[]) as machine:
    for eccentricity in (0.1, 0.5, 0.9):
        run = machine.run_sync({"a": eccentricity})
        y = float(run[through].value)
        exact = np.sin(y) / (1 - eccentricity * np.cos(y))
        for slope in slopes:
            np.testing.assert_allclose(run[slope].value, exact, rtol=1e-9)
        np.testing.assert_allclose(run[curvatures[0]].value, run[curvatures[1]].value, rtol=1e-6)
print(f"the root is {y:.12f}, its derivative {exact:.12f}, both ways")
