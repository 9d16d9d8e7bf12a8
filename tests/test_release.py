"""What users gave is free when they have dropped what they built of it."""

import gc
import threading
from functools import wraps
from weakref import ref

import numpy as np
import pytest

import actorgraph as ag
from tests.conftest import await_threads


class Big(np.ndarray):
    """An array that can be referred to weakly, as a function or an object of a user's can."""


def doubled_while_small(big):
    def f(x):
        y = x @ big
        while ag.ops.sum(y * y) < 1.0:
            y = y * 2.0
        return y

    return ag.function(f)


def held_by(big):
    """A function that refers to an array without any node in it."""
    return lambda value: value if big.size else None


BUILD = {
    "a constant": lambda x, big: x @ big,
    "a body of a scan": lambda x, big: ag.scan(lambda c, r: (c @ big + r, None), x[0], x)[0],
    "a body of rows": lambda x, big: ag.vmap(lambda row: row @ big)(x),
    "a body of a branch": lambda x, big: ag.cond(x.sum() > 0, lambda x: x @ big, lambda x: x, x),
    "a converted function": lambda x, big: doubled_while_small(big)(x),
    "a hook": lambda x, big: ag.hook_gradient(x, held_by(big)),
    "a checkpoint": lambda x, big: ag.checkpoint(lambda x: x @ big)(x),
}


def used(build, big, machine):
    """Build with an array, run if there is a machine, and drop all."""
    x = ag.Graph().input("x", (2, 3), "float64")
    y = build(x, big)
    if machine is not None:
        opened = machine([y.sum()], wrt=[x])
        opened.run_sync({x: np.ones((2, 3))}, backward=True)


@pytest.fixture
def collected():
    """Return a function that ends the threads of dropped machines, and collects the garbage."""
    before = set(threading.enumerate())

    def collect():
        await_threads("actorgraph compiler")  # pauses the collector
        gc.collect()  # drops machines, whose threads end then
        while begun := set(threading.enumerate()) - before:
            for thread in begun:
                if thread.ident is not None:  # None while another thread starts it
                    thread.join()
        gc.collect()

    return collect


@pytest.mark.parametrize("machine", [None, ag.LispMachine, ag.TapeMachine, ag.ActorMachine])
@pytest.mark.parametrize("build", BUILD)
def test_what_a_graph_was_made_of_goes_with_it(build, machine, collected):
    arrays = [np.ones((3, 3)).view(Big) for _ in range(2)]
    gone = [ref(one) for one in arrays]
    while arrays:
        used(BUILD[build], arrays.pop(), machine)
    collected()
    assert [one() is None for one in gone] == [True, True]


def test_a_converted_function_goes_with_what_it_closes_over(collected):
    big = np.ones((3, 3)).view(Big)
    gone = ref(big)
    function = doubled_while_small(big)
    del big
    x = ag.Graph().input("x", (2, 3), "float64")
    function(x)
    del function, x
    collected()
    assert gone() is None


def test_a_wrapper_of_a_converted_function_is_converted_itself():
    def small(x):
        return x * 2.0 if x.sum() > 0 else x

    x = ag.Graph().input("x", (2,), "float64")
    ag.function(small)(x)

    @wraps(small)
    def negative(x):
        return -small(x) if x.sum() > 0 else small(x)

    y = ag.function(negative)(x)
    with ag.TapeMachine([y]) as machine:
        np.testing.assert_array_equal(machine.run_sync({x: np.ones(2)})[y].value, [-2.0, -2.0])
