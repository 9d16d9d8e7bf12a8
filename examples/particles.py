"""Particles that attract each other, 200 steps by a scan, and the gradient of where they end.

The backward pass keeps 15 states at a time and computes the others again (`save=`).
"""

import numpy as np

import actorgraph as ag

PARTICLES, STEPS, STEP, SOFT = 12, 200, 0.01, 0.1

g = ag.Graph("particles")
at, velocity = g.input("at", (PARTICLES, 3), "float64"), g.input("v", (PARTICLES, 3), "float64")
mass = g.input("mass", (PARTICLES,), "float64")


def acceleration(x):
    """Return the pull of all others on each."""
    apart = x[None, :, :] - x[:, None, :]
    return (mass[None, :, None] * apart / ((apart**2).sum(-1)[..., None] + SOFT) ** 1.5).sum(1)


def energy(x, v):
    """Return the kinetic and the potential energy."""
    squares = ((x[None, :, :] - x[:, None, :]) ** 2).sum(-1)
    bound = (mass[:, None] * mass[None, :] / (squares + SOFT) ** 0.5).sum()
    return (mass * (v**2).sum(-1)).sum() / 2 - (bound - (mass**2).sum() / SOFT**0.5) / 2


def leapfrog(state, _):
    """Return the next positions and velocities, and where the particles are."""
    x, v = state
    half = v + STEP / 2 * acceleration(x)
    x = x + STEP * half
    return (x, half + STEP / 2 * acceleration(x)), x


(end, final), path = ag.scan(leapfrog, (at, velocity), None, length=STEPS, save=15)
spread = (end**2).sum()
machine = ag.TapeMachine([spread, energy(at, velocity), energy(end, final), path], wrt=[velocity])

rng = np.random.default_rng(0)
feeds = {"at": rng.normal(size=(PARTICLES, 3)), "v": rng.normal(size=(PARTICLES, 3)) / 4,
         "mass": rng.uniform(0.5, 1.5, PARTICLES) / PARTICLES}  # fmt: skip
run = machine.run_sync(feeds, backward={spread: 1.0})
before, after = (float(run[machine.outputs[name]].value) for name in [*machine.outputs][1:3])
assert abs(after - before) < 1e-4 * abs(before)
assert run[path].value.shape == (STEPS, PARTICLES, 3)

# The gradient is that of the whole simulation: a push of one particle, twice.
push = np.zeros((PARTICLES, 3))
push[3, 1] = 1e-6
moved = [
    machine.run_sync({**feeds, "v": feeds["v"] + sign * push})[spread].value for sign in (1, -1)
]
np.testing.assert_allclose(run[velocity].grad[3, 1], (moved[0] - moved[1]) / 2e-6, rtol=1e-5)
print(f"energy {before:.6f} and {after:.6f}; gradients agree with differences")
