"""A fault in any node, forward or backward, reaches the caller and harms nothing else."""

import asyncio
import traceback

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.testing._examples import results
from tests._each import each
from tests.machines._faults import PLACES, TRAP, feeds, gate, new_gate, traced_model, trap

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 4, "seed": 3, "capacity": 1}, id="four workers"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="fused"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)


@pytest.fixture(autouse=True)
def disarmed():
    yield
    TRAP.forward = TRAP.backward = None


def broken():
    return RuntimeError("on command")


@machines
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_fault_in_any_node_names_it_and_the_next_run_is_right(
    machine_type, options, place, where, every_turn_is_worth_a_worker
):
    _, outputs = traced_model()
    graph, trapped = traced_model(place)
    with ag.LispMachine(outputs) as machine:
        right = machine.run_sync(feeds(), backward={outputs[0]: 1, outputs[1]: np.ones(4)})
        wanted = [right[output].value for output in outputs] + [right[w].grad for w in ("W", "b")]
    (node,) = (node for node in graph.nodes if node.op is trap.op)
    with machine_type(trapped, **options) as machine:
        seeds = {trapped[0]: 1, trapped[1]: np.ones(4)}
        setattr(TRAP, where, broken)
        expectation = pytest.raises(ag.NodeError, match="RuntimeError: on command")
        if where == "backward" and place == 0:
            run = machine.run_sync(feeds(), backward=seeds)  # no wrt behind x: it is never called
        else:
            with expectation as caught:
                machine.run_sync(feeds(), backward=seeds)
            error = caught.value
            assert (error.node, error.op, error.phase) == (node.name, "machines_trap", where)
            assert f"{where} of node {node.name!r}" in str(error)
            assert len(error.inputs) == 1
            assert error.inputs[0].startswith("float64[")
            assert "_faults.py" in error.line
            assert error.line in str(error)
            assert error.device == machine.device.name
            assert isinstance(error.__cause__, RuntimeError)
            assert "_faults.py" in "".join(traceback.format_exception(error))
        setattr(TRAP, where, None)
        run = machine.run_sync(feeds(), backward=seeds)
        got = [run[output].value for output in trapped] + [run[w].grad for w in ("W", "b")]
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


class Unprintable(Exception):
    def __str__(self):
        raise ValueError("no text")


UNUSUAL = [
    MemoryError, StopIteration, StopAsyncIteration, SystemExit, GeneratorExit, AssertionError,
    KeyError, RecursionError, Unprintable, asyncio.CancelledError, BaseException,
    lambda: ExceptionGroup("several", [ValueError("one")]), lambda: ValueError("generator already"),
]  # fmt: skip


@machines
@each("where", ["forward", "backward"])
@each("raised", UNUSUAL)
def test_whatever_an_op_raises_is_a_node_error(machine_type, options, where, raised):
    _, outputs = traced_model(4)
    with machine_type(outputs, **options) as machine:
        setattr(TRAP, where, raised)
        for _ in range(2):
            with pytest.raises(ag.NodeError, match="machines_trap") as caught:
                machine.run_sync(feeds(), backward=True)
            assert isinstance(caught.value.__cause__, type(raised()))
        setattr(TRAP, where, None)
        assert machine.run_sync(feeds(), backward=True)["W"].grad.any()


@machines
def test_an_interrupt_raised_in_a_worker_is_a_node_error(machine_type, options):
    _, outputs = traced_model(4)
    with machine_type(outputs, **options) as machine:
        TRAP.forward = KeyboardInterrupt
        run = machine.start(feeds())
        with pytest.raises(ag.NodeError, match="KeyboardInterrupt"):
            run.result(timeout_s=20)  # with a timeout the caller does not work along
        TRAP.forward = None
        assert machine.run_sync(feeds())[outputs[0]].value.shape == ()


def test_later_failures_are_notes_of_the_first(every_turn_is_worth_a_worker):
    x = ag.Graph().input("x", (2,), "float64")
    branches = [trap(gate(x * factor)) for factor in (1.0, 2.0, 3.0)]
    passing = new_gate()
    with ag.ActorMachine(branches, workers=3) as machine:
        TRAP.forward = broken
        run = machine.start({"x": np.ones(2)})
        for _ in branches:
            passing.wait_entered()
        passing.open(3)
        with pytest.raises(ag.NodeError, match="on command") as caught:
            run.result(timeout_s=20)
        assert not isinstance(caught.value, BaseExceptionGroup)
        code, *notes = caught.value.__notes__
        assert code.endswith("AG105")
        assert all(note.startswith("later: NodeError: forward of node") for note in notes)
        TRAP.forward = None
        passing.open(3)
        machine.run_sync({"x": np.ones(2)})


def test_an_error_that_is_raised_twice_is_the_same_for_everybody():
    _, outputs = traced_model(4)
    with ag.ActorMachine(outputs) as machine:
        TRAP.forward = broken
        run = machine.start(feeds())
        for _ in range(2):
            with pytest.raises(ag.NodeError, match="on command"):
                run.result()
        with pytest.raises(ag.NodeError, match="on command"):
            run["W"]
        assert "failed" in repr(run)


@machines
def test_results_of_a_user_op_are_checked_against_its_type(machine_type, options):
    x = ag.Graph().input("x", ("n",), "float32")
    for how, text in (("dtype", "returned float64"), ("shape", r"returned shape \(3,\)")):
        expectation = pytest.raises(ag.NodeError, match=f"{text}, but its type scheme says")
        with machine_type([wrong(x, how=how)], **options) as machine, expectation:
            machine.run_sync({"x": np.ones(2, "float32")})


def _wrong(xp, x, how):
    return xp.zeros(3, "float32") if how == "shape" else x.astype("float64")


wrong = ag.ops.define("machines_wrong", scheme="f[*s] -> f[*s]", forward=_wrong)


@machines
def test_a_user_op_cannot_write_to_what_it_reads(machine_type, options):
    x = ag.Graph().input("x", (2,), "float64")
    array = np.ones(2)
    outputs = [scribble(x), scribble(ag.ops.tanh(x))]
    expectation = pytest.raises(ag.NodeError, match="read-only")
    with machine_type(outputs, **options) as machine, expectation:
        machine.run_sync({"x": array})
    np.testing.assert_array_equal(array, 1)


def _scribble(xp, x):
    x[...] = 0
    return x


scribble = ag.ops.define("machines_scribble", scheme="f[*s] -> f[*s]", forward=_scribble)


# Rules of differentiation that use less than they are given.
ignores_ct = ag.ops.define(
    "machines_ignores_ct",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: x * x,
    vjp=(lambda ct, y, x: x * 2,),
)
returns_y = ag.ops.define(
    "machines_returns_y",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: xp.exp(x),
    vjp=(lambda ct, y, x: y,),
    jvp=lambda tans, y, x: y,
)


@machines
def test_rules_may_ignore_the_cotangent(machine_type, options):
    x = ag.Graph().input("x", (2,), "float64")
    deeper = ag.ops.tanh(ignores_ct(ag.ops.exp(x)))
    with machine_type([deeper, ignores_ct(x)], wrt=[x], **options) as machine:
        value = np.array([0.5, 2.0])
        seeds = {deeper: np.ones(2)}
        run = machine.run_sync({"x": value}, backward=seeds)
        np.testing.assert_allclose(run[x].grad, 2 * np.exp(value) ** 2)
        again = machine.run_sync({"x": value}, backward=seeds)
        np.testing.assert_array_equal(again[x].grad, run[x].grad)


@machines
def test_a_gradient_may_be_the_forward_value_itself(machine_type, options):
    x = ag.Graph().input("x", (2,), "float64")
    y = returns_y(x)
    with machine_type([x, y], wrt=[x], **options) as machine:
        run = machine.run_sync({"x": np.zeros(2)}, backward={y: np.ones(2)})
        run[x].grad[...] = 7
        np.testing.assert_array_equal(run[y].value, 1)
        run = machine.run_sync({"x": np.zeros(2)}, tangents={"x": np.ones(2)})
        run[y].tangent[...] = 7
        np.testing.assert_array_equal(run[y].value, 1)


@machines
def test_runs_after_a_fault_have_the_bits_of_runs_before(machine_type, options):
    _, outputs = traced_model(5)
    with machine_type(outputs, **options) as machine:
        nodes = [*outputs, *machine.wrt]
        before = results(machine.run_sync(feeds(), backward=True), nodes)
        for _ in range(5):
            TRAP.backward = broken
            with pytest.raises(ag.NodeError, match="on command"):
                machine.run_sync(feeds(), backward=True)
            TRAP.backward = None
            assert results(machine.run_sync(feeds(), backward=True), nodes) == before


@pytest.mark.parametrize("fuse", ["none", "auto"])
def test_a_traceback_shows_the_generated_line_and_the_users_line(fuse):
    x = ag.Graph().input("x", ("n", "n"))
    inverse = ag.ops.inv(x).named("inverse")
    with (
        ag.ActorMachine([inverse], fuse=fuse) as machine,
        pytest.raises(ag.NodeError, match=r"built at .*test_faults\.py:\d+") as caught,
    ):
        machine.run_sync({"x": np.zeros((2, 2), "float32")})
    assert "v0 = k0(" in "".join(traceback.format_exception(caught.value))
