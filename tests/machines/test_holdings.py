"""`machine.memory()` tells who holds how many bytes at the moment."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import scratch

ROWS, WIDTH = 4200, 64
RESULT = ROWS * WIDTH * 4
WEIGHTS = WIDTH * WIDTH * 4
PARAMETER = WEIGHTS + 64  # its memory begins at a line of the cache
MACHINES = {
    "tape": ag.TapeMachine,
    "an actor for each node": lambda *given, **how: ag.ActorMachine(*given, fuse="none", **how),
}


@pytest.fixture(params=MACHINES)
def machine(request):
    g = ag.Graph()
    x = g.input("x", ("n", WIDTH))
    W = g.parameter("W", np.eye(WIDTH, dtype="float32"))
    h = np.tanh(np.tanh(x) @ W).named("h")
    with MACHINES[request.param]([(h * h).mean(), h], wrt=[W]) as machine:
        yield machine


begun, go_on = threading.Event(), threading.Event()


def wait(xp, x):
    begun.set()
    go_on.wait(30)
    return x + 1.0


waiting = ag.ops.define("holdings_waiting", scheme="f[*s] -> f[*s]", forward=wait)


def feeds():
    return {"x": np.ones((ROWS, WIDTH), "float32")}


def test_scratch_of_the_process_is_counted(machine, monkeypatch):
    monkeypatch.setattr(scratch, "_rooms", [])
    assert machine.memory().scratch == 0
    held = scratch.scratch(np, (1 << 16,), np.dtype("float64"))
    live = machine.memory()
    assert held.nbytes <= live.scratch <= held.nbytes + 64
    assert live.total == PARAMETER + live.scratch


def test_a_machine_that_has_not_run_holds_its_parameters_only(machine):
    live = machine.memory()
    assert (live.parameters, live.arenas, live.results, live.feeds) == (PARAMETER, 0, 0, 0)
    assert live.total == PARAMETER + live.scratch


def test_results_belong_to_whoever_holds_the_run_until_he_lets_go(machine):
    run = machine.run_sync(feeds(), backward=True)
    live = machine.memory()
    assert live.results == RESULT + WEIGHTS + 4  # h, the gradient of W, the loss
    assert live.parameters == PARAMETER  # the run shows W itself, which does not count twice
    del run
    after = machine.memory()
    assert after.results == 0
    assert after.peak.results == live.results
    assert after.peak.parameters == PARAMETER
    assert after.peak.total >= after.total
    assert after.arenas >= live.arenas > 0


def test_a_large_result_counts_when_its_run_is_gone():
    x = ag.Graph().input("x", ("n", WIDTH))
    with ag.ActorMachine({"y": np.tanh(x)}, fuse="none") as machine:
        kept = machine.run_sync(feeds())["y"].value
        assert machine.memory().results == kept.nbytes == RESULT
        del kept
        assert machine.memory().results == 0
        assert machine.memory().arenas >= RESULT


@pytest.mark.parametrize("kind", MACHINES)
def test_the_peak_is_that_of_moments_at_which_nobody_asked(kind):
    x = ag.Graph().input("x", ("n", WIDTH))
    with MACHINES[kind]({"y": np.tanh(x)}) as machine:
        kept = [machine.run_sync(feeds())["y"].value for _ in range(30)]
        del kept[10:]
        for _ in range(5):
            machine.run_sync(feeds())
        live = machine.memory()
        assert live.results == 10 * RESULT  # more than a machine keeps for later runs
        assert 30 * RESULT <= live.peak.results <= 32 * RESULT
        assert live.peak.feeds == RESULT
        del kept
        assert machine.memory().results == 0


def test_the_peak_of_feeds_is_that_of_the_runs_under_way():
    x = ag.Graph().input("x", ("n", WIDTH))
    go_on.clear()
    with ag.ActorMachine([waiting(x)], max_in_flight=2) as machine:
        try:
            runs = [machine.start(feeds()) for _ in range(5)]  # three are queued
        finally:
            go_on.set()
        for run in runs:
            run.result()
        live = machine.memory()
        assert (live.feeds, live.peak.feeds) == (0, 5 * RESULT)


def test_feeds_count_while_their_run_goes_on():
    x = ag.Graph().input("x", ("n", WIDTH))
    with ag.ActorMachine([waiting(x)]) as machine:
        run = machine.start(feeds())
        try:
            assert begun.wait(30)
            assert machine.memory().feeds == RESULT
        finally:
            go_on.set()
        run.result()
        assert machine.memory().feeds == 0


def test_the_second_array_of_an_update_is_the_parameters(machine):
    step = machine.compile_step(ag.solvers.SGD(lr=0.1))
    for _ in range(2):
        step(feeds())
    assert machine.memory().parameters == 2 * PARAMETER
