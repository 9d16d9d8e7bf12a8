"""A run that took longer than its deadline raises, however soon after it has ended."""

import math

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import deadlines
from actorgraph.machines import run as run_module
from actorgraph.pipeline import Pipeline
from tests.machines._faults import nobody_reads

HOUR_S = 3600.0
"""Deadlines are so far away that the thread that watches them sleeps through every test."""

now = [0.0]


def turn_the_clock(xp, value):
    now[0] += float(np.max(value))
    return value + 0.0


slow = ag.ops.define(
    "deadline_slow", scheme="f[*s] -> f[*s]", forward=turn_the_clock,
    vjp=lambda argnum, ct, y, x: ct,
)  # fmt: skip
"""Takes as many seconds as its largest number says."""


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now[0] = 0.0
    for module in (deadlines, run_module):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])


def graph():
    g = ag.Graph()
    x = g.input("x", shape=("batch",), dtype="float64")
    seen = g.buffer("seen", np.zeros(()))
    w = g.parameter("w", np.ones(()))
    loss = (slow(x) * w).mean()
    g.assign(seen, seen + 1.0, loss)
    return loss, seen, w


def taking(seconds):
    return {"x": np.full(4, float(seconds))}


MACHINES = {
    "lisp": (ag.LispMachine, {}),
    "tape": (ag.TapeMachine, {}),
    "actor": (ag.ActorMachine, {"workers": 1}),
    "one actor a node": (ag.ActorMachine, {"workers": 2, "fuse": "none"}),
}


def made(kind):
    """Return a machine, or a pipeline, and its buffer and parameter."""
    loss, seen, w = graph()
    if kind == "pipeline":
        return Pipeline(loss, [w], stages=1, microbatches=1), loss, seen, w
    machine_type, options = MACHINES[kind]
    return machine_type(loss, wrt=[w], **options), loss, seen, w


every_kind = pytest.mark.parametrize("kind", [*MACHINES, "pipeline"])


@every_kind
def test_a_run_that_ends_past_its_deadline_raises_though_nobody_has_watched(kind):
    machine, loss, seen, _ = made(kind)
    with machine:
        assert machine.run_sync(taking(1), timeout_s=2 * HOUR_S)[loss].value == 1
        assert seen.value == 1
        with pytest.raises(TimeoutError, match="run [0-9]+ did not end in time"):
            machine.run_sync(taking(3 * HOUR_S), timeout_s=2 * HOUR_S)
        assert seen.value == 1  # what it would have assigned is not there
        run = machine.start(taking(3 * HOUR_S), timeout_s=2 * HOUR_S)
        with pytest.raises(TimeoutError, match="did not end in time"):
            run.result()
        with pytest.raises(TimeoutError, match="did not end in time"):
            run[loss]
        assert machine.run_sync(taking(1), timeout_s=2 * HOUR_S)[loss].value == 1
        assert machine.run_sync(taking(3 * HOUR_S))[loss].value == 3 * HOUR_S


@every_kind
def test_parameters_are_free_again_after_a_late_run(kind):
    machine, _, _, w = made(kind)
    with machine:
        with pytest.raises(TimeoutError, match="did not end in time"):
            machine.run_sync(taking(2 * HOUR_S), timeout_s=HOUR_S)
        assert nobody_reads(w)


def test_a_deadline_in_centuries_is_kept_without_being_watched():
    machine, loss, _, _ = made("actor")
    with machine:
        assert machine.run_sync(taking(1), timeout_s=1e300)[loss].value == 1
        assert machine.run_sync(taking(1), timeout_s=math.inf)[loss].value == 1


@pytest.mark.anyio
@every_kind
async def test_a_stream_gives_what_came_before_the_run_that_was_late(kind):
    machine, loss, _, _ = made(kind)
    lengths = [1, 2, 2 * HOUR_S, 1]
    async with machine:
        stream = machine.stream(map(taking, lengths), max_in_flight=1, timeout_s=HOUR_S)
        for length in (1, 2):
            assert (await anext(stream))[loss].value == length
        with pytest.raises(TimeoutError, match="did not end in time"):
            await anext(stream)


@pytest.mark.anyio
async def test_instruments_and_the_live_view_hear_of_a_late_run():
    machine, _, _, _ = made("actor")
    view = ag.trace.live.Live()
    async with machine:
        with ag.trace.use(view, machine), pytest.raises(TimeoutError, match="in time"):
            await machine.run(taking(2 * HOUR_S), timeout_s=HOUR_S)
        (seen,) = view.views()
    assert (seen.ended, seen.failed, seen.late) == (1, 1, 1)
