"""`np.errstate` is taken when a run is asked for, and holds wherever its ops run."""

import warnings

import numpy as np
import pytest

import actorgraph as ag

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "none"}, id="actor per node"),
    pytest.param(ag.ActorMachine, {"workers": 2}, id="actor"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
WAYS = [
    pytest.param(lambda machine, feeds: machine.run_sync(feeds), id="run_sync"),
    pytest.param(lambda machine, feeds: machine.start(feeds).result(timeout_s=20), id="start"),
]
ways = pytest.mark.parametrize("way", WAYS)
ZEROS = {"x": np.zeros(2), "n": np.zeros(2)}


def quotient():
    graph = ag.Graph()
    x, n = graph.input("x", ("n",), "float64"), graph.input("n", ("n",), "float64")
    return (x + 1.0) / n


@machines
@ways
def test_errors_are_raised_where_the_caller_says_so(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            way(machine, ZEROS)
        with np.errstate(divide="ignore"):
            assert np.isinf(way(machine, ZEROS)[y].value).all()


@machines
@ways
def test_small_products_raise_or_warn_of_overflow_as_the_caller_says(machine_type, options, way):
    graph = ag.Graph()
    x = graph.input("x", (2, 2), "float64")
    y = x @ x
    huge = {"x": np.full((2, 2), 1e200)}
    with machine_type([y], **options) as machine:
        with np.errstate(over="raise"), pytest.raises(ag.NodeError, match="overflow"):
            way(machine, huge)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isinf(way(machine, huge)[y].value).all()
        assert any("overflow" in str(one.message) for one in caught)


@machines
@ways
def test_the_default_warns(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            way(machine, ZEROS)
        assert any("divide by zero" in str(one.message) for one in caught)


@machines
@ways
def test_errors_are_handed_to_the_callers_function(machine_type, options, way):
    y = quotient()
    seen = []
    state = np.errstate(divide="call", call=lambda kind, flag: seen.append(kind))
    with machine_type([y], **options) as machine, state:
        way(machine, ZEROS)
    assert seen == ["divide by zero"]


@machines
def test_runs_with_different_states_overlap(machine_type, options):
    y = quotient()
    with machine_type([y], **options) as machine:
        with np.errstate(divide="ignore"):
            ignoring = [machine.start(ZEROS) for _ in range(5)]
        with np.errstate(divide="raise"):
            raising = [machine.start(ZEROS) for _ in range(5)]
            fine = machine.start({**ZEROS, "n": np.ones(2)})
            for run in ignoring:  # the caller works along, under its own state
                assert np.isinf(run.result()[y].value).all()
        for run in raising:
            with pytest.raises(ag.NodeError, match="divide by zero"):
                run.result()
        np.testing.assert_array_equal(fine.result()[y].value, 1)


@machines
@pytest.mark.anyio
async def test_the_state_holds_on_both_loops(machine_type, options, anyio_backend):
    y = quotient()
    async with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            await machine.run(ZEROS)
        with np.errstate(divide="ignore"):
            assert np.isinf((await machine.run(ZEROS))[y].value).all()


async def _divide(xp, x):
    return 1 / x


divide = ag.ops.define("machines_divide_async", scheme="f[*s] -> f[*s]", forward=_divide)


@machines
@pytest.mark.anyio
async def test_the_state_holds_in_asynchronous_ops(machine_type, options, anyio_backend):
    x = ag.Graph().input("x", (2,), "float64")
    y = divide(x)
    async with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            await machine.run({"x": np.zeros(2)})
        with np.errstate(divide="ignore"):
            assert np.isinf((await machine.run({"x": np.zeros(2)}))[y].value).all()


def test_many_states_and_modes_do_not_pile_up():
    y = quotient()
    with ag.ActorMachine([y], workers=1, fuse="none") as machine:
        for number in range(40):
            with np.errstate(divide="call", call=lambda kind, flag, number=number: None):
                machine.run_sync(ZEROS, priority=number)
        assert len(machine._networks()) <= 16
        assert len(machine._core.scheduler.classes) <= 3
