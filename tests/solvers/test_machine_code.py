"""Steps of solvers as machine code: the bits of NumPy, all or nothing, whoever strikes."""

import copy
import pickle
import types

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import elementwise
from actorgraph.devices.elementwise import code_of
from actorgraph.devices.helpers import HELPERS
from actorgraph.options import NATIVE
from actorgraph.solvers import _formula, schedules
from tests._each import each
from tests._soak import SOAK

pytest.importorskip("llvmlite", reason="the extra native is not installed")

SHAPES = [(), (33, 5), (0, 3), (2, 3, 4), (70,)]

SOLVERS = {
    "descent": lambda: ag.solvers.SGD(lr=0.1),
    "penalties": lambda: ag.solvers.SGD(lr=0.1, weight_decay=0.3, l1=0.2),
    "momentum": lambda: ag.solvers.SGD(lr=0.1, momentum=0.9),
    "nesterov": lambda: ag.solvers.SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda: ag.solvers.Adam(lr=schedules.exponential(0.1, 0.9)),
    "amsgrad": lambda: ag.solvers.Adam(lr=0.1, weight_decay=0.3, betas=(0.5, 0.7), amsgrad=True),
    "adamw": lambda: ag.solvers.AdamW(lr=0.1, weight_decay=0.3),
    "adagrad": lambda: ag.solvers.AdaGrad(lr=0.1),
    "adadelta": lambda: ag.solvers.AdaDelta(weight_decay=0.1),
    "rmsprop": lambda: ag.solvers.RMSProp(momentum=0.5, centered=True),
    "nadam": lambda: ag.solvers.NAdam(),
    "radam": lambda: ag.solvers.RAdam(),
    "adamax": lambda: ag.solvers.Adamax(),
    "lion": lambda: ag.solvers.Lion(weight_decay=0.1),
    "lamb": lambda: ag.solvers.LAMB(lr=0.1, weight_decay=0.1),
    "barzilai": lambda: ag.solvers.BarzilaiBorwein(lr=0.1),
}


@pytest.fixture(autouse=True, scope="module")
def directory(tmp_path_factory):
    """Machine code goes to a directory of the module's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def asked_for(monkeypatch):
    """Return the codes that are asked for from here on, none of which was before."""
    monkeypatch.setattr(_formula, "_codes", {})
    monkeypatch.setattr(_formula, "_SOON", 0)
    code_of.cache_clear()
    return _formula._codes


def drawn(rng, shape, dtype):
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.normal(size=shape)
    return np.asarray(values).astype(dtype)


def trained(make, dtype, *, steps=6):
    """Return the bytes of parameters and states after some steps."""
    rng, solver, parameters = np.random.default_rng(0), make(), []
    for number, shape in enumerate(SHAPES):
        parameters.append(ag.nn.Parameter(drawn(rng, shape, dtype)))
        parameters[-1].name = f"w{number}"
    for _ in range(steps):
        for one in parameters:
            one.grad = drawn(rng, one.shape, dtype)
        solver.step(parameters)
    states = solver.state_dict()["states"]
    kept = [np.asarray(one).tobytes() for state in states.values() for one in state.values()]
    return [one.value.tobytes() for one in parameters], kept


DTYPES = ["float32", "float64", "complex64"] if SOAK else ["float32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SOLVERS)
def test_machine_code_has_the_bits_of_numpy(name, dtype, asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, "0")
    wanted = trained(SOLVERS[name], dtype)
    asked_for.clear()
    code_of.cache_clear()
    monkeypatch.setenv(NATIVE, "wait")
    assert trained(SOLVERS[name], dtype) == wanted
    if dtype == "float32":
        (code,) = asked_for.values()
        assert code.call is not None, code.reason


@pytest.mark.parametrize("cache", [0, 1 << 30], ids=["past the caches", "cached"])
@pytest.mark.parametrize("name", ["momentum", "adam", "lamb"])
def test_what_several_threads_compute_together_has_the_bits_of_numpy(
    name, cache, asked_for, monkeypatch
):
    monkeypatch.setenv(NATIVE, "0")
    wanted = trained(SOLVERS[name], "float32", steps=40)
    asked_for.clear()
    code_of.cache_clear()
    monkeypatch.setenv(NATIVE, "wait")
    monkeypatch.setattr(elementwise, "_SHARED_BYTES", 0)
    monkeypatch.setattr(elementwise, "_CACHE_BYTES", cache)
    monkeypatch.setattr(elementwise, "_PIECE_BYTES", 64)
    monkeypatch.setattr(HELPERS, "count", 2)
    assert trained(SOLVERS[name], "float32", steps=40) == wanted


def test_sums_of_lbfgs_are_machine_code_with_the_bits_of_numpy(asked_for, monkeypatch):
    def found(native):
        monkeypatch.setenv(NATIVE, native)
        scales = np.linspace(1, 9, 77, dtype="float32")
        weight = types.SimpleNamespace(value=np.sin(scales), grad=None)

        def closure():
            weight.grad = scales * weight.value
            return float(weight.grad @ weight.value) / 2

        solver = ag.solvers.LBFGS(max_iter=9, line_search_fn="strong_wolfe")
        losses = [solver.step([weight], closure) for _ in range(3)]
        return losses, weight.value.tobytes()

    wanted = found("0")
    asked_for.clear()
    code_of.cache_clear()
    assert found("wait") == wanted
    (code,) = asked_for.values()
    assert code.call is not None, code.reason


@pytest.mark.parametrize("past", [0, 1])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 47, 1000])
def test_elements_before_and_after_whole_lines_of_the_cache_are_computed_too(
    size, past, asked_for, monkeypatch
):
    solver = ag.solvers.Adam(lr=0.1)
    code = code_of(solver.loop(), "d")
    code.done.wait()
    whole = np.random.default_rng(0).normal(size=(6, 1100))
    for first in (3, 7):
        p, g, out, mean, variance, _ = [row[first : first + size] for row in whole]
        variance[:] = abs(variance)
        wanted, around = np.empty(size), whole[2].copy()
        state = _formula.Arrays(4, {"mean": mean.copy(), "variance": variance.copy()})
        after = solver.update(state, g, p, wanted)
        block = code.block(solver.numbers(5), [size], 5)
        block[elementwise._BLOCK.split().index("is.past")] = past
        code.call((block, p, g, out, mean, mean, variance, variance))
        around[first : first + size] = wanted
        np.testing.assert_array_equal(whole[2], around)
        np.testing.assert_array_equal(mean, after.arrays["mean"])
        np.testing.assert_array_equal(variance, after.arrays["variance"])


@pytest.mark.parametrize("name", ["momentum", "adam", "lamb"])
def test_numbers_in_another_byte_order_are_left_to_numpy(name, asked_for, monkeypatch):
    found = []
    for how, order in (("0", "="), ("wait", "S")):
        monkeypatch.setenv(NATIVE, how)
        start = np.linspace(-1, 1, 70).astype(np.dtype("float32").newbyteorder(order))
        weight, solver = types.SimpleNamespace(value=start, grad=None), SOLVERS[name]()
        for number in range(3):
            weight.grad = np.cos(start + number).astype(start.dtype)
            solver.step([weight])
        found.append(weight.value.astype("float32"))
    assert all(code.call is None for code in asked_for.values())
    np.testing.assert_array_equal(*found)


def test_not_a_number_is_handled_as_numpy_does_and_raises_no_flag(asked_for, monkeypatch):
    class Odd(ag.solvers.LoopSolver):
        def loop(self):
            lines = ("top = maximum(top, g)", "p = sign(g) + abs(top) * half")
            return ag.solvers.Loop(lines, ("top",), ("half",))

        def numbers(self, step):
            return (0.5,)

    results = []
    given = [np.array([*values, *range(20)]) for values in np.random.default_rng(0).permutation(
        np.tile([np.nan, 0.0, -0.0, -np.inf, np.inf], 4).reshape(4, 5), axis=1)]  # fmt: skip
    for how in ("0", "wait"):
        asked_for.clear()
        code_of.cache_clear()
        monkeypatch.setenv(NATIVE, how)
        weight, solver = ag.nn.Parameter(np.ones(25)), Odd()
        weight.name = "w"
        for grad in given:
            weight.grad = grad
            solver.step([weight])
        results.append((weight.value.copy(), solver.state_dict()["states"]["w"]["top"]))
    np.testing.assert_array_equal(*results)


def test_lines_that_are_not_understood_are_left_to_numpy(asked_for, monkeypatch):
    class Mixed(ag.solvers.LoopSolver):
        def loop(self):
            return ag.solvers.Loop(("p = p - g * (rate + rate)",), (), ("rate",))

        def numbers(self, step):
            return (0.25,)

    monkeypatch.setenv(NATIVE, "wait")
    weight = types.SimpleNamespace(value=np.ones(3), grad=np.ones(3))
    Mixed().step([weight])
    np.testing.assert_array_equal(weight.value, 0.5)
    (code,) = asked_for.values()
    assert code.call is None
    assert "rate + rate" in code.reason


@pytest.mark.parametrize("native", ["0", "wait"])
@each("line", ["d = g", "p -= g", "p = q", "p = log(g)", "p = g ** 2", "p = p + -g", "p = rate"])
def test_a_line_that_is_none_is_told_with_what_lines_may_have(line, native, asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, native)

    class Odd(ag.solvers.LoopSolver):
        def loop(self):
            return ag.solvers.Loop((line,), (), ("rate",))

        def numbers(self, step):
            return (0.25,)

    weight = types.SimpleNamespace(value=np.ones(3), grad=np.ones(3))
    with pytest.raises(ValueError, match="cannot read '.*' in the lines of a Loop; each assigns"):
        Odd().step([weight])
    np.testing.assert_array_equal(weight.value, 1.0)


@pytest.mark.parametrize("machine", [ag.LispMachine, ag.TapeMachine, ag.ActorMachine])
def test_a_gradient_without_dims_may_be_a_scalar_of_numpy(machine, asked_for, monkeypatch):
    found = []
    for how in ("0", "wait"):
        monkeypatch.setenv(NATIVE, how)
        asked_for.clear()
        code_of.cache_clear()
        w = ag.Graph().parameter("w", np.float32(1.5))
        loss = ag.ops.square(ag.ops.tanh(w) * 1.5 - 0.5)
        with machine([loss]) as made:
            step = made.compile_step(ag.solvers.Adam(lr=0.1))
            for _ in range(4):
                step()
        found.append(w.value)
    np.testing.assert_array_equal(*found)
    (code,) = asked_for.values()
    assert code.call is not None, code.reason


@pytest.mark.parametrize("setting", [{"clip_value": 0.5}, {"clip_norm": 0.5}, {"batch_size": 2.0}])
@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_a_gradient_that_clipping_makes_a_scalar_of_numpy_is_taken(
    setting, name, asked_for, monkeypatch
):
    found = []
    for how in ("0", "wait"):
        monkeypatch.setenv(NATIVE, how)
        asked_for.clear()
        code_of.cache_clear()
        solver, weight = SOLVERS[name](), ag.nn.Parameter(np.float32(1.5))
        for key, value in setting.items():
            setattr(solver, key, value)
        for _ in range(4):
            weight.grad = np.array(3.0, "f")
            solver.step([weight])
        found.append(weight.value)
    np.testing.assert_array_equal(*found)


def test_a_state_that_is_no_array_of_the_parameters_size_is_never_written(asked_for, monkeypatch):
    class Short(ag.solvers.LoopSolver):
        def loop(self):
            return ag.solvers.Loop(("mean = mean * half + g", "p = p - mean"), ("mean",), ("half",))

        def numbers(self, step):
            return (0.5,)

        def init(self, value):
            return _formula.Arrays(0, {"mean": np.zeros((), value.dtype)})

    monkeypatch.setenv(NATIVE, "wait")
    weight = ag.nn.Parameter(np.ones(1000))
    weight.grad = np.ones(1000)
    with pytest.raises(ValueError, match="non-broadcastable output"):
        Short().step([weight])
    np.testing.assert_array_equal(weight.value, 1.0)


@pytest.mark.parametrize("given", [(), (0.5,), (0.5, 0.5, 3.0)])
@pytest.mark.parametrize("native", ["0", "wait"])
def test_another_count_of_numbers_than_that_of_the_lines_is_refused(
    native, given, asked_for, monkeypatch
):
    class Miscounts(ag.solvers.LoopSolver):
        def loop(self):
            return ag.solvers.Loop(("p = p * half - g * lr",), (), ("half", "lr"))

        def numbers(self, step):
            return given

    monkeypatch.setenv(NATIVE, native)
    weight = ag.nn.Parameter(np.ones(1000))
    weight.grad = np.ones(1000)
    text = rf"Miscounts.numbers returned {len(given)} numbers, its lines have 2: half, lr"
    with pytest.raises(ValueError, match=text):
        Miscounts().step([weight])
    np.testing.assert_array_equal(weight.value, 1.0)


def test_a_loaded_state_of_another_size_is_refused(asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    weight, solver = ag.nn.Parameter(np.ones(1000)), ag.solvers.SGD(lr=0.1, momentum=0.9)
    weight.name, weight.grad = "w", np.ones(1000)
    solver.step([weight])
    state = solver.state_dict()
    [name] = [one for one, value in state["states"]["w"].items() if np.ndim(value)]
    state["states"]["w"][name] = np.zeros(())
    text = rf"the state of 'w' does not fit: {name} of shape \(\), expected \(1000,\)"
    with pytest.raises(ag.GraphError, match=text):
        solver.load_state_dict(state)


def test_settings_may_change_from_step_to_step(asked_for, monkeypatch):
    results = []
    for how in ("wait", "0"):
        monkeypatch.setenv(NATIVE, how)
        asked_for.clear()
        code_of.cache_clear()
        solver, weight = ag.solvers.SGD(lr=0.1), ag.nn.Parameter(np.linspace(-1, 1, 50))
        for momentum in (0.0, 0.9, 0.9, 0.0, 0.5):
            solver.momentum = momentum
            weight.grad = np.cos(weight.value)
            solver.step([weight])
        results.append(weight.value)
    np.testing.assert_array_equal(*results)


def test_groups_and_parameters_of_other_age_or_order_are_stepped_as_by_numpy(
    asked_for, monkeypatch
):
    results = []
    for how in ("wait", "0"):
        monkeypatch.setenv(NATIVE, how)
        asked_for.clear()
        code_of.cache_clear()
        first, second, third = [ag.nn.Parameter(np.linspace(-1, 1, 12).reshape(3, 4))] * 1 + [
            ag.nn.Parameter(np.ones((2, 2), "f")), ag.nn.Parameter(np.ones(5)),
        ]  # fmt: skip
        solver = ag.solvers.AdamW(lr=0.1)
        solver.add_group([third], weight_decay=0.5, lr=0.01)
        for number in range(4):
            for one in (first, second, third):
                one.grad = np.asfortranarray(np.sin(one.value + number))
            solver.step([first] if number == 0 else [third, first, second])
        results.append([one.value for one in (first, second, third)])
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_overflow_is_told_as_the_error_state_says(asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    graph = ag.Graph()
    w, x = graph.parameter("w", np.ones(8, "f")), graph.input("x", (8,))
    feeds = {"x": np.full(8, 1e8, "f")}
    with ag.TapeMachine([(w * x).sum()]) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=1e35))
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            step(feeds)
        np.testing.assert_array_equal(w.value, 1)
        with pytest.warns(RuntimeWarning, match="overflow encountered in a step of SGD"):
            step(feeds)
        assert np.isinf(w.value).all()
        with np.errstate(all="ignore"):
            step(feeds)


def test_what_machine_code_has_stepped_can_be_copied_saved_and_gone_on_with(asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    weight = ag.nn.Parameter(np.ones(4))
    weight.name, weight.grad = "w", np.arange(4.0)
    solver = ag.solvers.Adam(lr=0.1)
    solver.step([weight])
    others = [copy.deepcopy(solver), pickle.loads(pickle.dumps(solver))]
    fresh = ag.solvers.Adam(lr=0.1)
    fresh.load_state_dict(solver.state_dict())
    for one in [*others, fresh]:
        found = one.state_dict()["states"]["w"]["mean"]
        np.testing.assert_array_equal(found, (1 - 0.9) * np.arange(4.0))
    value = weight.value.copy()
    solver.step([weight])
    twin = ag.nn.Parameter(value)
    twin.name, twin.grad = "w", weight.grad
    fresh.step([twin])
    np.testing.assert_array_equal(twin.value, weight.value)


def test_a_run_keeps_what_it_has_read(asked_for, monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    w = ag.Graph().parameter("w", np.ones(4))
    with ag.TapeMachine([(w * w).sum()]) as machine:
        run = machine.run_sync({}, backward=True)
        solver = ag.solvers.SGD(lr=0.25)
        solver.step([run[w]])
        np.testing.assert_array_equal(run[w].value, 1.0)
        np.testing.assert_array_equal(w.value, 0.5)


def test_ctrl_c_while_arrays_of_a_state_are_looked_at_leaves_none_of_them_for_machine_code(
    monkeypatch,
):
    monkeypatch.setenv(NATIVE, "wait")
    w = ag.Graph().parameter("w", np.ones(8))
    solver = ag.solvers.Adam(lr=0.1)

    class Struck(dict):
        def __getitem__(self, name):
            raise KeyboardInterrupt

    with ag.TapeMachine([(w * w).sum()]) as machine:
        step = machine.compile_step(solver)
        step()
        [slot] = solver._slots.values()
        state, arrays = slot.state, slot.state.arrays
        state.fitting, state.twice, state.arrays = None, (), Struck(arrays)
        with pytest.raises(KeyboardInterrupt):
            step()
        assert (state.fitting, state.twice) == (None, ())  # else the next step ends the process
        state.arrays = arrays
        step()
    np.testing.assert_allclose(w.value, 0.8, rtol=1e-3)
