"""The drag of a thrown ball, fitted to where it lands: Runge-Kutta until an event ends the flight.

The loop is plain Python that `ag.function` makes a loop of the graph, and its length depends on the
parameter.  Where the ball meets the ground is interpolated in the last step, so that the gradient
knows of the event.
"""

import numpy as np

import actorgraph as ag

STEP_S, GRAVITY = 0.02, 9.81


def slope(state, drag):
    """Return how position and velocity change."""
    speed = (state[2] ** 2 + state[3] ** 2) ** 0.5
    return np.stack([
        state[2], state[3], -drag * speed * state[2], -GRAVITY - drag * speed * state[3],
    ])  # fmt: skip


@ag.function
def landing(start, drag):
    """Return the distance at which the height is 0 again."""
    before = state = start
    while state[1] >= 0:
        before = state
        k1 = slope(state, drag)
        k2 = slope(state + STEP_S / 2 * k1, drag)
        k3 = slope(state + STEP_S / 2 * k2, drag)
        k4 = slope(state + STEP_S * k3, drag)
        state = state + STEP_S / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    share = before[1] / (before[1] - state[1])
    return before[0] + share * (state[0] - before[0])


START, TRUE_DRAG = np.array([0.0, 0.0, 20.0, 20.0]), 0.05
g = ag.Graph("flight")
start, drag = g.input("start", (4,), "float64"), g.parameter("drag", np.array(0.005))
where = landing(start, drag)
machine = ag.TapeMachine([where], wrt=[drag])


def observed(value):
    """Return where a ball with that drag lands, and the derivative by it."""
    drag.value = np.array(value)
    run = machine.run_sync({"start": START}, backward=True)
    return float(run[where].value), float(run[drag].grad)


target, _ = observed(TRUE_DRAG)
found = 0.005
for _ in range(8):  # Newton's method, on the logarithm: the drag is positive
    at, rate = observed(found)
    found *= np.exp((target - at) / (rate * found))
assert abs(found - TRUE_DRAG) < 1e-8
print(f"lands after {target:.3f} m; the drag is {found:.6f}")
