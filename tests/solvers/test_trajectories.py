"""200 steps of every solver and schedule are PyTorch's; states go on in mid-training."""

import copy
import math
import pickle

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import solvers
from actorgraph.dual import Dual
from actorgraph.solvers import schedules
from tests._each import each

S = schedules
STEPS = 200
SOLVERS = {
    "sgd": ("SGD", "SGD", {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-3}),
    "adam": ("Adam", "Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 1e-2}),
    "adamw": ("AdamW", "AdamW", {"lr": 0.05, "amsgrad": True}),
    "adagrad": ("AdaGrad", "Adagrad", {"lr": 0.5, "lr_decay": 0.01, "weight_decay": 1e-2,
                                       "initial_accumulator_value": 0.1}),
    "adadelta": ("AdaDelta", "Adadelta", {"lr": 2.0, "rho": 0.8, "weight_decay": 1e-2}),
    "rmsprop": ("RMSProp", "RMSprop", {"lr": 0.02, "weight_decay": 1e-2}),
    "rmsprop centered": ("RMSProp", "RMSprop",
                         {"lr": 0.01, "alpha": 0.9, "centered": True, "momentum": 0.5}),
    "nadam": ("NAdam", "NAdam", {"lr": 0.05, "weight_decay": 1e-2}),
    "radam": ("RAdam", "RAdam", {"lr": 0.05, "betas": (0.8, 0.99)}),
    "adamax": ("Adamax", "Adamax", {"lr": 0.05, "weight_decay": 1e-2}),
}  # fmt: skip
SETTINGS = {
    "SGD": [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1},
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}],
    "Adam": [{}, {"betas": (0.5, 0.9)}, {"betas": (0.0, 0.9)}, {"eps": 1e-2},
             {"weight_decay": 0.1}],
    "AdamW": [{}, {"betas": (0.5, 0.9)}, {"weight_decay": 0.5}, {"weight_decay": 0.0}],
}  # fmt: skip


def slope(value):
    """Return the gradient of a curved bowl: nothing flat, nothing linear."""
    return 4 * value**3 - 2 * np.cos(value) + 0.3 * value


def goes_with_pytorch(ours, theirs, options, start, grads, tolerance):
    """Check that steps along these gradients end where those of PyTorch end."""
    torch = pytest.importorskip("torch")
    weight, tensor = Dual(start.copy(), None), torch.tensor(start, requires_grad=True)
    solver = getattr(solvers, ours)(**options)
    oracle = getattr(torch.optim, theirs)([tensor], **options)
    for grad in grads:
        weight.grad = grad.astype(start.dtype)
        tensor.grad = torch.tensor(weight.grad)
        solver.step([weight])
        oracle.step()
    np.testing.assert_allclose(weight.value, tensor.detach().numpy(), tolerance, tolerance)


@pytest.mark.oracle
@each("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-9)])
@each("name", SOLVERS)
def test_two_hundred_steps_are_those_of_pytorch(name, dtype, tolerance):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4)).astype(dtype)
    # Not the slope where they are: near a minimum that would blow up what rounding does.
    grads = [slope(start) + rng.normal(size=(3, 4)) for _ in range(STEPS)]
    goes_with_pytorch(*SOLVERS[name], start, grads, tolerance)


@pytest.mark.oracle
@each("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12), ("complex128", 1e-12)])
@each("kind", SETTINGS)
def test_steps_are_those_of_pytorch_for_other_settings(kind, dtype, tolerance):
    rng = np.random.default_rng(0)
    start, *grads = rng.normal(size=(21, 3, 4)) + 1j * rng.normal(size=(21, 3, 4))
    if dtype != "complex128":
        start, grads = start.real, [grad.real for grad in grads]
    for options in SETTINGS[kind]:
        goes_with_pytorch(
            kind, kind, {"lr": 0.05, **options}, start.astype(dtype), grads, tolerance
        )


def test_lion_and_lamb_follow_their_papers():
    rng = np.random.default_rng(0)
    start = rng.normal(size=5)
    lion, lamb = Dual(start.copy(), None), Dual(start.copy(), None)
    one = solvers.Lion(1e-2, weight_decay=0.1)
    other = solvers.LAMB(1e-2, weight_decay=0.1)
    p, m = start.copy(), np.zeros(5)
    q, mean, variance = start.copy(), np.zeros(5), np.zeros(5)
    for step in range(1, STEPS + 1):
        lion.grad, lamb.grad = slope(lion.value), slope(lamb.value)
        one.step([lion])
        other.step([lamb])
        g, h = slope(p), slope(q)
        p = p - 1e-2 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * p)
        m = 0.99 * m + 0.01 * g
        mean, variance = 0.9 * mean + 0.1 * h, 0.999 * variance + 0.001 * h * h
        r = mean / (1 - 0.9**step) / (np.sqrt(variance / (1 - 0.999**step)) + 1e-6) + 0.1 * q
        q = q - 1e-2 * np.linalg.norm(q) / np.linalg.norm(r) * r
    np.testing.assert_allclose(lion.value, p, 1e-9)
    np.testing.assert_allclose(lamb.value, q, 1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_goes_where_pytorch_s_goes(search):
    torch = pytest.importorskip("torch")
    start = np.array([-1.2, 1.0, 0.5])
    options = {"lr": 0.1 if search is None else 1.0, "max_iter": 7, "line_search_fn": search}
    tensor, weight = torch.tensor(start, requires_grad=True), ag.nn.Parameter(start)
    oracle, solver = torch.optim.LBFGS([tensor], **options), solvers.LBFGS(**options)

    def theirs():
        oracle.zero_grad()
        loss = (100 * (tensor[1:] - tensor[:-1] ** 2) ** 2 + (1 - tensor[:-1]) ** 2).sum()
        loss.backward()
        return loss

    w = ag.Graph().bind(weight, "w")
    loss = (100.0 * (w[1:] - w[:-1] ** 2) ** 2 + (1.0 - w[:-1]) ** 2).sum()
    machine = ag.TapeMachine(loss)

    def ours():
        run = machine.run_sync(backward=True)
        weight.grad = run[w].grad
        return run[loss].value

    for _ in range(9):
        expected = oracle.step(theirs)
        found = solver.step([weight], ours)
        # Rosenbrock's valley blows up what rounding does, by 10 to 1,000 times a step.
        np.testing.assert_allclose(found, expected.item(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(weight.array, tensor.detach().numpy(), 1e-4)


def test_lbfgs_whose_closure_fails_leaves_parameters_as_they_were():
    weight, calls = ag.nn.Parameter(np.ones(2)), []

    def closure():
        calls.append(None)
        if len(calls) == 3:
            raise ZeroDivisionError("third")
        weight.grad = 2 * weight.value
        return float((weight.array**2).sum())

    with pytest.raises(ZeroDivisionError, match="third"):
        solvers.LBFGS(lr=0.1).step([weight], closure)
    assert weight.value.tolist() == [1, 1]
    with pytest.raises(ag.GraphError, match="has no gradient after the closure"):
        solvers.LBFGS().step([ag.nn.Parameter(np.ones(1))], lambda: 0.0)


MAKES = {
    **{name: lambda row=row: getattr(solvers, row[0])(**row[2]) for name, row in SOLVERS.items()},
    "lion": lambda: solvers.Lion(0.01),
    "lamb": lambda: solvers.LAMB(0.01),
    "barzilai_borwein": lambda: solvers.BarzilaiBorwein(0.01),
}


@each("name", MAKES)
def test_a_state_goes_on_in_mid_training(name):
    def steps(solver, weights, count):
        for _ in range(count):
            for weight in weights:
                weight.grad = slope(weight.array)
            solver.step(weights)

    graph = ag.Graph()
    weights = [graph.parameter(key, np.linspace(-1, 1, 4)).held for key in "ab"]
    solver = MAKES[name]()
    steps(solver, weights, 7)
    state = pickle.loads(pickle.dumps(solver.state_dict()))
    again = copy.deepcopy(weights)
    resumed = MAKES[name]()
    resumed.load_state_dict(state)
    steps(solver, weights, 5)
    steps(resumed, again, 5)
    for weight, twin in zip(weights, again, strict=True):
        np.testing.assert_array_equal(weight.array, twin.array)
    assert resumed.steps == 12
    other = MAKES[name]()
    other.load_state_dict(state)
    stranger = ag.Graph().parameter("c", np.ones(4)).held
    stranger.grad = np.ones(4)
    with pytest.raises(ag.GraphError, match="loaded has no parameter 'c'; it has a, b"):
        other.step([stranger])
    with pytest.raises(ag.GraphError, match="the state is that of 'Other', not of"):
        other.load_state_dict({**state, "solver": "Other"})
    with pytest.raises(ag.GraphError, match="the state is that of other parameters: b"):
        resumed.load_state_dict({**state, "states": {"a": state["states"]["a"]}})


def test_a_state_that_was_loaded_is_saved_again_before_the_first_step():
    weight = ag.Graph().parameter("w", np.ones(2)).held
    weight.grad = np.ones(2)
    solver, resumed = ag.solvers.Adam(), ag.solvers.Adam()
    solver.step([weight])
    resumed.load_state_dict(solver.state_dict())
    assert repr(resumed.state_dict()) == repr(solver.state_dict())


def test_a_state_whose_count_of_steps_is_none_changes_nothing():
    weight = ag.Graph().parameter("w", np.ones(2)).held
    weight.grad = np.ones(2)
    solver = ag.solvers.Adam()
    solver.step([weight])
    before = solver.state_dict()
    solver.step([weight])
    after = repr(solver.state_dict())
    with pytest.raises(ValueError, match="many"):
        solver.load_state_dict({**before, "steps": "many"})
    assert repr(solver.state_dict()) == after


ORACLES = {
    "step": (S.step(0.5, 30, 0.3), "StepLR", {"step_size": 30, "gamma": 0.3}),
    "multi_step": (S.multi_step(0.5, [20, 90]), "MultiStepLR", {"milestones": [20, 90]}),
    "exponential": (S.exponential(0.5, 0.97), "ExponentialLR", {"gamma": 0.97}),
    "cosine": (S.cosine(0.5, STEPS, 0.1), "CosineAnnealingLR", {"T_max": STEPS, "eta_min": 0.1}),
    "cosine_restarts": (S.cosine_restarts(0.5, 20, 2, 0.1), "CosineAnnealingWarmRestarts",
                        {"T_0": 20, "T_mult": 2, "eta_min": 0.1}),
    "one_cycle": (S.one_cycle(0.5, STEPS), "OneCycleLR", {"max_lr": 0.5, "total_steps": STEPS}),
    "linear": (S.linear(0.5, 50), "LinearLR", {"total_iters": 50}),
    "polynomial": (S.polynomial(0.5, 50, 2.0), "PolynomialLR", {"total_iters": 50, "power": 2.0}),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@each("name", ORACLES)
def test_schedules_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    schedule, theirs, options = ORACLES[name]
    oracle = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler = getattr(torch.optim.lr_scheduler, theirs)(oracle, **options)
    for count in range(STEPS):
        assert math.isclose(schedule(count), oracle.param_groups[0]["lr"], rel_tol=1e-9), count
        oracle.step()
        if count < STEPS - 1:
            scheduler.step()


@pytest.mark.oracle
def test_plateau_is_that_of_pytorch():
    torch = pytest.importorskip("torch")
    options = {"factor": 0.5, "patience": 2, "cooldown": 3}
    rate = S.plateau(1.0, **options)
    oracle = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(oracle, **options)
    for loss in np.round(np.random.default_rng(0).exponential(size=80), 1):
        rate.tell(loss)
        scheduler.step(loss)
        assert rate(0) == oracle.param_groups[0]["lr"]


def test_schedules_are_chained_and_warmed_up():
    rate = S.chain([S.warmup(S.step(1.0, 2, 0.5), 2), lambda count: 10.0 + count], [5])
    assert [rate(count) for count in range(7)] == [0.0, 0.5, 1.0, 1.0, 0.5, 10.0, 11.0]
    with pytest.raises(ValueError, match="2 schedules need one milestone less"):
        S.chain([rate, rate], [])
    assert pickle.loads(pickle.dumps(ORACLES["one_cycle"][0]))(3) == ORACLES["one_cycle"][0](3)


def model():
    graph = ag.Graph()
    w = graph.parameter("w", np.linspace(-1, 1, 6))
    b = graph.parameter("b", np.ones(2))
    return (w**4).sum() + (b * b).sum(), w, b


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop"])
def test_a_schedule_holds_in_a_compiled_step_as_in_steps_by_hand(name):
    kind = getattr(solvers, SOLVERS[name][0])
    loss, w, b = model()
    twin, v, c = model()
    step = ag.TapeMachine(loss).compile_step(kind(lr=S.cosine(0.1, 10), clip_norm=0.5))
    machine, solver = ag.TapeMachine(twin), kind(lr=S.cosine(0.1, 10), clip_norm=0.5)
    for _ in range(10):
        step()
        run = machine.run_sync(backward=True)
        solver.step([run[v], run[c]])
    np.testing.assert_array_equal(w.value, v.value)
    np.testing.assert_array_equal(b.value, c.value)
    still = w.value.copy()
    step()  # the rate is 0 here
    if name != "sgd":
        np.testing.assert_array_equal(w.value, still)


def test_a_schedule_changes_the_rate_of_a_pipeline_and_compiles_nothing(monkeypatch):
    seen = []
    rates = S.cosine(0.1, 10)
    graph = ag.Graph()
    w, x = graph.parameter("w", np.ones(3)), graph.input("x", ("batch", 3), "float64")
    with graph.stage(0):
        h = x * w
    with graph.stage(1):
        loss = h.sum()
    with ag.pipeline.Pipeline(loss, microbatches=2) as pipeline:
        step = pipeline.compile_step(solvers.SGD(lr=rates))
        for count in range(6):
            before = w.value.copy()
            step({"x": np.ones((4, 3))})
            seen.append(float((before - w.value)[0] / 4))
            if count == 1:
                monkeypatch.setattr("builtins.compile", None)
    np.testing.assert_allclose(seen, [rates(count) for count in range(6)], rtol=1e-12)


def test_groups_have_settings_of_their_own_and_one_count_of_steps():
    loss, w, b = model()
    solver = solvers.SGD(lr=S.step(1.0, 1, 0.5))
    solver.add_group([b], lr=lambda count: 0.25 * (count + 1))
    machine = ag.TapeMachine(loss)
    for number in range(2):
        run = machine.run_sync(backward=True)
        before = b.value.copy()
        solver.step([run[w], run[b]])
        np.testing.assert_allclose(b.value, before - 0.25 * (number + 1) * 2 * before)
    compiled = machine.compile_step(solver)
    before = b.value.copy()
    compiled()
    np.testing.assert_allclose(b.value, before - 0.75 * 2 * before)
    with pytest.raises(TypeError, match=r"SGD\(\) has no rho=: it takes lr, momentum"):
        solver.add_group([w], rho=1)


def test_gradients_are_clipped_by_value_and_by_their_norm_together():
    one, other = Dual(np.zeros(2), np.array([3.0, 0.0])), Dual(np.zeros(1), np.array([4.0]))
    solvers.SGD(lr=1.0, clip_norm=1.0).step([one, other])
    np.testing.assert_allclose([*one.value, *other.value], [-0.6, 0, -0.8], atol=1e-5)
    solvers.SGD(lr=1.0, clip_value=0.5).step([one, other])
    np.testing.assert_allclose([*one.value, *other.value], [-1.1, 0, -1.3], atol=1e-5)


def test_a_step_with_an_infinite_gradient_is_left_out_where_asked():
    one, other = Dual(np.ones(2), np.array([np.inf, 0])), Dual(np.ones(1), np.ones(1))
    solver = solvers.Adam(lr=1.0, skip_nonfinite=True)
    solver.step([one, other])
    assert (one.value.tolist(), other.value.tolist(), solver.steps) == ([1, 1], [1], 0)
    loss, w, b = model()
    w.value = np.full(6, np.inf)
    step = ag.TapeMachine(loss).compile_step(solvers.Adam(lr=1.0, skip_nonfinite=True))
    step()
    assert b.value.tolist() == [1, 1]


@each("name", [*SOLVERS, "lion"])
def test_loops_that_are_compiled_give_the_bits_of_the_steps(name):
    pytest.importorskip("llvmlite")
    loss, w, _ = model()
    twin, v, _ = model()
    one = ag.TapeMachine(loss, exact=False, jit="wait").compile_step(MAKES[name]())
    other = ag.TapeMachine(twin, exact=False).compile_step(MAKES[name]())
    for _ in range(3):
        one()
        other()
    np.testing.assert_allclose(w.value, v.value, rtol=1e-13)
