"""A compiled step is a run with gradients and the solver's step, as one call, all or nothing."""

import threading
from functools import partial

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, NodeError, ShapeError
from tests._each import each

KINDS = [ag.TapeMachine, ag.ActorMachine, ag.LispMachine]
SOLVERS = {
    "sgd": lambda: ag.solvers.SGD(lr=0.1),
    "momentum": lambda: ag.solvers.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda: ag.solvers.Adam(lr=0.01),
}


def mlp(width=16):
    rng = np.random.default_rng(5)
    g = ag.Graph()
    x = g.input("x", ("n", 8), "float32")
    t = g.input("t", ("n",), "int64")
    w = g.parameter("w", rng.normal(size=(8, width)).astype("float32"))
    b = g.parameter("b", np.zeros(width, "float32"))
    v = g.parameter("v", rng.normal(size=(width, 3)).astype("float32"))
    loss = ag.ops.cross_entropy(ag.ops.relu(x @ w + b) @ v, t)
    return g, loss, [w, b, v]


def batches(count, size=12):
    rng = np.random.default_rng(1)
    for _ in range(count):
        x = rng.normal(size=(size, 8)).astype("float32")
        yield {"x": x, "t": rng.integers(0, 3, size)}


@pytest.mark.parametrize(
    ("options", "awaited"), [({}, 0), ({"jit": "wait", "exact": False}, 1), ({"native": "wait"}, 1)]
)
def test_a_step_waits_for_the_code_of_its_solver_only_where_its_machine_waits_for_code(
    options, awaited, monkeypatch
):
    seen = []
    monkeypatch.setattr(ag.solvers.SGD, "await_code", lambda solver, slots: seen.append(slots))
    _, loss, _ = mlp()
    with ag.TapeMachine([loss], **options) as machine:
        machine.compile_step(ag.solvers.SGD(lr=0.1, momentum=0.9))
    assert len(seen) == awaited


def trained_by_hand(solver, count, size):
    _, loss, parameters = mlp()
    losses = []
    with ag.LispMachine([loss]) as machine:
        for feeds in batches(count, size):
            run = machine.run_sync(feeds, backward=True)
            losses.append(run[loss].value)
            solver.step([run[node] for node in parameters])
    return losses, [node.value.copy() for node in parameters]


@each("size", [4, 600])
@each("solver", SOLVERS)
@each("kind", KINDS)
def test_a_step_has_the_bits_of_a_run_and_a_solver_step(kind, solver, size):
    losses, values = trained_by_hand(SOLVERS[solver](), 5, size)
    _, loss, parameters = mlp()
    with kind([loss], workers=2) as machine:
        step = machine.compile_step(SOLVERS[solver]())
        got = [step(feeds)[loss].value for feeds in batches(5, size)]
    assert got == losses
    for node, value in zip(parameters, values, strict=True):
        np.testing.assert_array_equal(node.value, value)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_a_step_can_be_awaited(kind):
    losses, _ = await anyio.to_thread.run_sync(trained_by_hand, SOLVERS["adam"](), 4, 12)
    _, loss, _ = mlp()
    async with kind([loss], workers=2) as machine:
        step = machine.compile_step(SOLVERS["adam"]())
        assert [(await step.run(feeds))[loss].value for feeds in batches(4)] == losses
        with pytest.raises(GraphError, match="await step.run"):
            step(next(batches(1)))


def test_steps_and_solver_steps_share_the_state_of_the_solver():
    losses, _ = trained_by_hand(SOLVERS["adam"](), 6, 12)
    _, loss, parameters = mlp()
    solver = SOLVERS["adam"]()
    got = []
    with ag.TapeMachine([loss]) as machine:
        step = machine.compile_step(solver)
        for number, feeds in enumerate(batches(6)):
            if number % 2:
                got.append(step(feeds)[loss].value)
            else:
                run = machine.run_sync(feeds, backward=True)
                got.append(run[loss].value)
                solver.step([run[node] for node in parameters])
    assert got == losses


@each("options", [{}, {"fuse": "none"}])
@each("kind", KINDS)
def test_what_a_step_has_used_up_is_told_with_where_to_read_it(kind, options):
    _, loss, (w, b, _) = mlp()
    with kind({"loss": loss, "w": w}, wrt=[w, b], **options) as machine:
        run = machine.compile_step(SOLVERS["sgd"]())(next(batches(1)))
        assert run[w].value.shape == w.shape
        for key in (b, "b"):
            with pytest.raises(KeyError, match=r"'b' is a parameter that .* \.value.* '.*', 'w'\""):
                run[key]
        with pytest.raises(KeyError, match="'c' is neither an output nor a wrt"):
            run["c"]


class FailsAtTheSecondParameter(ag.solvers.AbstractSolver):
    def init(self, value):
        return None

    def update(self, state, grad, current, out):
        if grad.ndim == 1:
            raise ArithmeticError("no more")
        out[...] = 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_solver_that_fails_leaves_every_parameter_as_it_was(kind):
    _, loss, parameters = mlp()
    before = [node.value.copy() for node in parameters]
    with kind([loss], workers=2) as machine:
        step = machine.compile_step(FailsAtTheSecondParameter())
        with pytest.raises(ArithmeticError, match="no more"):
            step(next(batches(1)))
        for node, value in zip(parameters, before, strict=True):
            np.testing.assert_array_equal(node.value, value)
        with pytest.raises(ArithmeticError, match="no more"):
            step(next(batches(1)))


class FailsWhereTold(ag.solvers.AbstractSolver):
    """A solver that steps and then fails, at the second parameter."""

    def __init__(self, solver):
        super().__init__()
        self.inside, self.fails = solver, False

    def init(self, value):
        return self.inside.init(value)

    def update(self, state, grad, current, out):
        after = self.inside.update(state, grad, current, out)
        if self.fails and grad.ndim == 1:
            raise ArithmeticError("no more")
        return after


@each("name", SOLVERS)
@each("kind", KINDS)
def test_a_solver_that_fails_keeps_the_state_that_it_had(kind, name):
    losses, _ = trained_by_hand(SOLVERS[name](), 5, 12)
    _, loss, parameters = mlp()
    solver = FailsWhereTold(SOLVERS[name]())
    got = []
    with kind([loss], workers=2) as machine:
        step = machine.compile_step(solver)
        for i, feeds in enumerate(batches(5)):
            solver.fails = True
            with pytest.raises(ArithmeticError, match="no more"):
                step(feeds)
            run = machine.run_sync(feeds, backward=True)
            with pytest.raises(ArithmeticError, match="no more"):
                solver.step([run[node] for node in parameters])
            solver.fails = False
            if i % 2:
                got.append(step(feeds)[loss].value)
            else:
                got.append(run[loss].value)
                solver.step([run[node] for node in parameters])
    assert got == losses


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_that_fails_leaves_every_parameter_as_it_was(kind):
    _, loss, parameters = mlp()
    before = [node.value.copy() for node in parameters]
    feeds = {"x": np.ones((2, 8), "float32"), "t": np.array([0, 7])}  # there is no class 7
    with kind([loss], workers=2) as machine:
        step = machine.compile_step(SOLVERS["sgd"]())
        with pytest.raises(NodeError, match="cross_entropy"):
            step(feeds)
        for node, value in zip(parameters, before, strict=True):
            np.testing.assert_array_equal(node.value, value)
        step(next(batches(1)))


_meeting = threading.Barrier(2)


def _meet(xp, x):
    _meeting.wait(10)
    return x + 1


meet = ag.ops.define(
    "machines_meet",
    scheme="f[*s] -> f[*s]",
    forward=_meet,
    vjp=(lambda ct, y, x: ct,),
    cost=lambda shapes, result, attrs: 1e9,
)
"""Two of one run wait for each other."""


def test_a_step_computes_long_branches_beside_each_other():
    w = ag.Graph().parameter("w", np.ones(3))
    loss = (meet(w) * meet(w * 2.0)).sum()
    with ag.ActorMachine([loss], workers=2) as machine:
        machine.compile_step(SOLVERS["sgd"]())()
    np.testing.assert_allclose(w.value, 1 - 0.1 * (3 + 2 * 2))


lasting = ag.ops.define(
    "machines_lasting",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: x + 1,
    vjp=(lambda ct, y, x: ct,),
    cost=lambda shapes, result, attrs: 1e9,
)


@pytest.mark.parametrize(
    ("make", "networks"),
    [
        (ag.TapeMachine, 0),
        (partial(ag.ActorMachine, workers=1), 0),
        (partial(ag.ActorMachine, workers=2), 1),
    ],
)
def test_a_long_step_needs_actors_only_where_there_are_workers_for_them(make, networks):
    w = ag.Graph().parameter("w", np.ones(3))
    for last in (lasting(w) * lasting(w * 2.0), lasting(lasting(w))):
        with make([last.sum()]) as machine:
            machine.compile_step(SOLVERS["sgd"]())()
            assert len(machine._core.networks) == networks


def test_a_run_in_flight_keeps_the_parameters_that_it_began_with():
    _, loss, parameters = mlp()
    feeds = next(batches(1))
    with ag.ActorMachine([loss, *parameters], workers=2) as machine:
        step = machine.compile_step(SOLVERS["sgd"]())
        before = [node.value.copy() for node in parameters]
        held = [node.held.array for node in parameters]  # as a run in flight does
        for _ in range(4):
            step(feeds)
        for array, value in zip(held, before, strict=True):
            np.testing.assert_array_equal(array, value)


def test_a_parameter_that_is_set_during_a_step_stays_as_it_was_set():
    _, _, (w, *_) = mlp()
    loss = (w * w).sum()

    class Sets(ag.solvers.AbstractSolver):
        def init(self, value):
            return None

        def update(self, state, grad, current, out):
            w.value = np.full_like(current, 3)
            out[...] = current - grad

    with ag.TapeMachine([loss], wrt=[w]) as machine:
        step = machine.compile_step(Sets())
        with pytest.raises(GraphError, match="'w' was set while a step"):
            step()
    assert (w.value == 3).all()


def test_what_cannot_be_stepped_is_said_before_anything_runs():
    g, loss, (w, *_) = mlp()
    x = g.node("x")
    with ag.TapeMachine([loss], wrt=[w, x]) as machine, pytest.raises(GraphError, match="x.* none"):
        machine.compile_step(SOLVERS["sgd"]())
    with ag.TapeMachine([loss]) as machine, pytest.raises(GraphError, match="takes a solver"):
        machine.compile_step(0.1)
    vector = w.sum(axis=0)
    with ag.TapeMachine([vector]) as machine, pytest.raises(ShapeError, match="must be a scalar"):
        machine.compile_step(SOLVERS["sgd"]())


def test_two_steps_at_once_are_refused():
    _, loss, _ = mlp()
    with ag.TapeMachine([loss]) as machine:
        inner = []

        class Steps(ag.solvers.AbstractSolver):
            def init(self, value):
                return None

            def update(self, state, grad, current, out):
                out[...] = current
                with pytest.raises(GraphError, match="another step"):
                    step(next(batches(1)))
                inner.append(1)

        step = machine.compile_step(Steps())
        step(next(batches(1)))
    assert len(inner) == 3


def test_a_parameter_that_the_loss_does_not_depend_on_gets_a_zero_gradient():
    g = ag.Graph()
    a, b = g.parameter("a", np.ones(3)), g.parameter("b", np.ones(3))
    loss = (a * a).sum()
    with ag.TapeMachine([loss], wrt=[a, b]) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.5, weight_decay=0.5))
        step()
    np.testing.assert_array_equal(b.value, np.full(3, 0.75))


def test_running_statistics_are_committed_by_a_step():
    g = ag.Graph()
    x = g.input("x", ("n", 4), "float64")
    w = g.parameter("w", np.ones(4))
    mean = g.buffer("mean", np.zeros(4))
    y = x * w
    g.assign(mean, y.mean(axis=0), y)
    loss = (y * y).mean()
    with ag.TapeMachine([loss], wrt=[w]) as machine:
        machine.compile_step(ag.solvers.SGD(lr=0.0))({"x": np.full((2, 4), 2.0)})
    np.testing.assert_array_equal(mean.value, np.full(4, 2.0))


def test_a_step_is_seen_where_modes_are():
    _, loss, weights = mlp()
    with ag.ActorMachine([loss], wrt=weights) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.1))
        for feeds in batches(3):
            step(feeds)
        assert repr(step) == "<Step of <ActorMachine of cross_entropy_10 (open)> by SGD>"
        assert machine.explain().startswith("mode step (n = 12)")
        assert machine.explain().endswith("in the calling thread")
        assert machine.source.startswith("# mode: step")
        [plan] = [plan for plan in machine.memory_plan() if plan.mode == "step"]
        assert plan.peak_bytes > 0
        assert plan.bound_bytes > 0
        assert machine.busiest(1)[0][3] == 3


@each("size", [4, 600])
@each("kind", KINDS)
def test_a_check_sees_the_outputs_before_the_update_and_stops_it(kind, size):
    _, loss, parameters = mlp()
    seen = []

    def check(duals):
        seen.append(duals[loss].value)
        if len(seen) == 2:
            raise GraphError("no further")

    with kind([loss], workers=2) as machine:
        solver = ag.solvers.Adam(lr=0.1)
        step = machine.compile_step(solver, check=check)
        first, second = batches(2, size)
        assert step(first)[loss].value == seen[0]
        before = [node.value.copy() for node in parameters]
        with pytest.raises(GraphError, match="^no further"):
            step(second)
        for node, value in zip(parameters, before, strict=True):
            np.testing.assert_array_equal(node.value, value)
        assert solver.steps == 1
        assert step(second)[loss].value == seen[1]
