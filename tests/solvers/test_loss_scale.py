"""Losses are scaled, so that gradients of float16 do not vanish, by what the gradients allow."""

from functools import partial

import numpy as np
import pytest

import actorgraph as ag

STAGED = partial(ag.pipeline.Pipeline, stages=1, microbatches=2, split="n")


class Half:
    """A net whose products are of float16, and whose parameters are not."""

    def __init__(self):
        self.graph = ag.Graph()
        x = self.graph.input("x", ("n", 4))
        self.w = self.graph.parameter("w", np.ones((4, 2), "float32"))
        h = x.astype("float16") @ self.w.astype("float16")
        self.loss = h.astype("float32").mean()


FEEDS = {"x": np.full((6, 4), 1e-6, "float32")}
QUIET = {"over": "ignore", "invalid": "ignore"}


@pytest.mark.oracle
def test_the_scale_falls_and_grows_as_that_of_pytorch():
    torch = pytest.importorskip("torch")
    start, rng = np.ones(3, "float32"), np.random.default_rng(0)
    tensor, weight = torch.tensor(start, requires_grad=True), ag.nn.Parameter(start)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    oracle = torch.optim.SGD([tensor], 0.1, momentum=0.9)
    solver = ag.solvers.SGD(0.1, momentum=0.9, loss_scale=2.0**10, growth_interval=3)
    for step in range(20):
        slope = rng.normal(size=3).astype("float32")
        slope[0] = np.inf if step in (2, 9, 10) else slope[0]
        oracle.zero_grad()
        scaler.scale((tensor * torch.tensor(slope)).sum()).backward()
        weight.grad = slope * np.float32(solver.scale)
        scaler.step(oracle)
        scaler.update()
        solver.step([weight])
        assert solver.scale == scaler.get_scale()
        np.testing.assert_allclose(weight.array, tensor.detach().numpy(), 1e-5, 1e-5)
    assert solver.steps == 17


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine, ag.LispMachine, STAGED])
def test_compiled_steps_scale_the_loss_as_steps_by_hand(kind):
    found = []
    for compiled in (False, True):
        net = Half()
        solver = ag.solvers.Adam(0.1, loss_scale=2.0**40, growth_interval=4, accumulate=2)
        with np.errstate(**QUIET), kind(net.loss) as machine:
            step = machine.compile_step(solver)
            for _ in range(40):
                if compiled:
                    loss = step(FEEDS)[net.loss].value
                else:
                    run = machine.run_sync(FEEDS, backward={net.loss: solver.scale})
                    loss = run[net.loss].value
                    solver.step([run[net.w]])
        found.append((net.w.value.tobytes(), repr(solver.state_dict()), loss))
    assert found[0] == found[1]
    assert solver.steps > 5
    assert np.isfinite(net.w.value).all()
    assert loss < 1e-4  # that of the net, not the scaled one


def test_gradients_that_vanish_in_float16_are_found():
    slopes = []
    for solver in (ag.solvers.SGD(1e6), ag.solvers.SGD(1e6, loss_scale=2.0**16)):
        net = Half()
        feeds = {"x": np.full((6, 4), 1e-4, "float32")}
        with ag.TapeMachine(net.loss * 1e-4) as machine:
            machine.compile_step(solver)(feeds)
        slopes.append(float(1 - net.w.value[0, 0]))
    assert slopes[0] == 0
    assert slopes[1] > 0


def test_a_scale_goes_on_from_a_saved_state():
    weight = ag.nn.Parameter(np.ones(2))
    weight.name, weight.grad = "w", np.array([np.inf, 1.0])
    solver, resumed = [ag.solvers.SGD(0.1, loss_scale=8.0, growth_interval=5) for _ in range(2)]
    solver.step([weight])
    weight.grad = np.ones(2)
    solver.step([weight])
    resumed.load_state_dict(solver.state_dict())
    assert (resumed.scale, resumed.scaled, resumed.steps) == (4.0, 1, 1)
    with pytest.raises(ValueError, match="loss_scale"):
        ag.solvers.SGD(0.1, loss_scale=0.0)
