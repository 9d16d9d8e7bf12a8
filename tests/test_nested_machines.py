"""Machines inside ops of other machines: the pool always has a thread for what an op waits for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import actorgraph as ag
from tests.machines.conftest import new_threads

SIZE = 300  # large enough to need actors and threads


def inner_machine(workers=1):
    y = ag.Graph().input("y", shape=(SIZE, SIZE), dtype="float64")
    return ag.ActorMachine([np.matmul(np.sin(y), np.cos(y))], workers=workers)


def outer_machine(op):
    x = ag.Graph().input("x", shape=(SIZE, SIZE), dtype="float64")
    return ag.ActorMachine([np.exp(op(x) * 0)], workers=1)


@pytest.mark.usefixtures("threads_of_its_own")
def test_an_op_may_start_a_run_of_another_machine_and_wait_for_it_and_no_thread_is_left():
    before = set(threading.enumerate())
    with inner_machine() as inner:

        def forward(xp, x):
            run = inner.start({"y": np.array(x)})
            return next(iter(run.result().duals.values())).value

        op = ag.ops.define("starts_and_waits", scheme="f[*s] -> f[*s]", forward=forward)
        with outer_machine(op) as outer:
            run = outer.start({"x": np.ones((SIZE, SIZE))})
            run._wait()  # without helping: the op runs in the only thread of the pool
            assert run.result().done
    assert new_threads(before) == []


@pytest.mark.parametrize("depth", [2, 4])
def test_machines_may_be_nested_in_depth(depth):
    machines = [inner_machine()]

    def nested(level):
        def forward(xp, x):
            machine = machines[level]
            name = next(iter(machine._inputs))
            return next(iter(machine.start({name: np.array(x)}).result().duals.values())).value

        return forward

    for level in range(depth):
        op = ag.ops.define(
            f"nested_{depth}_{level}", scheme="f[*s] -> f[*s]", forward=nested(level)
        )
        machines.append(outer_machine(op))
    run = machines[-1].start({"x": np.ones((SIZE, SIZE))})
    run._wait()
    assert run.result().done
    for machine in machines:
        machine.close()
