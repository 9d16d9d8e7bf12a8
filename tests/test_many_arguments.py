"""Thousands of arguments, parameters and layers: what is done with them takes linear work."""

import gc
import sys
import time

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import op, types
from actorgraph.autodiff import tangents
from actorgraph.lower.simplify import _Equals
from tests._evaluate import evaluate


@ag.custom_vjp
def total_by_vjp(*xs):
    return ag.ops.stack(xs).sum(0)


@total_by_vjp.defvjp
def total_pulled(ct, y, *xs):
    return [ct] * len(xs)


@ag.custom_jvp
def total_by_jvp(*xs):
    return ag.ops.stack(xs).sum(0)


@total_by_jvp.defjvp
def total_pushed(tans, y, *xs):
    return ag.ops.stack(tans).sum(0)


FUNCTIONS = {
    "concatenate": ag.ops.concatenate,
    "concatenate along a dim of the run": ag.ops.concatenate,
    "stack": ag.ops.stack,
    "custom_vjp": lambda xs: total_by_vjp(*xs),
    "custom_jvp": lambda xs: total_by_jvp(*xs),
}


def calls_in(function):
    """Return how many Python and C functions are called, none of them by the garbage collector."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def graph_of(function, size, dim=2):
    g = ag.Graph()
    xs = [g.input(f"x{i}", (dim,), "float64") for i in range(size)]
    return xs, function(xs)


MODES = {(name, mode) for name in FUNCTIONS for mode in ("build", "reverse", "forward")}


@pytest.mark.parametrize(("name", "mode"), sorted(MODES - {("custom_vjp", "forward")}))
def test_twice_the_arguments_take_twice_the_steps(name, mode):
    function = FUNCTIONS[name]
    dim = None if name == "concatenate along a dim of the run" else 2

    def steps(size):
        if mode == "build":
            return calls_in(lambda: graph_of(function, size, dim))
        xs, y = graph_of(function, size, dim)
        if mode == "reverse":
            return calls_in(lambda: ag.gradients([y], xs, [y]))
        return calls_in(lambda: tangents([y], {x: x for x in xs}))

    def cold(size):
        """Count with empty caches of types: what other tests have left there would decide."""
        op._cache.clear()
        types.parse.cache_clear()
        return steps(size)

    assert cold(600) <= 2.05 * cold(300)


def test_a_node_of_twice_the_inputs_is_compared_in_twice_the_time():
    _, y = graph_of(ag.ops.stack, 10_000)

    def seconds(node, inputs):
        same = _Equals()
        start = time.thread_time()
        for begin in range(0, 80_000, inputs):
            same.find(node, begin)
        return time.thread_time() - start

    many, few = y, graph_of(ag.ops.stack, 100)[1]
    many, few = (
        min(seconds(many, 10_000) for _ in range(5)),
        min(seconds(few, 100) for _ in range(5)),
    )
    assert many < 8 * few  # as many inputs in both


def test_parameters_are_bound_without_copying_those_before():
    graph = ag.Graph()
    bound = graph.store.unread()
    made = [graph.parameter(f"w{i}", np.full(2, i, "float32")) for i in range(50)]
    assert graph.store.unread() is bound  # no copy was made
    read = graph.store.arrays
    assert graph.store.arrays is read
    assert [array[0] for array in read] == list(range(50))
    made[7].value = np.full(2, -1, "float32")
    changed = graph.store.unread()
    for node in made[8:]:
        node.value = np.full(2, -1, "float32")
    assert graph.store.unread() is changed
    assert [array[0] for array in read] == list(range(50))  # what a run reads stays
    assert [array[0] for array in graph.store.arrays] == [*range(7), *[-1] * 43]


def test_a_state_of_twice_the_layers_is_loaded_in_twice_the_steps():
    def steps(layers):
        net = ag.nn.Sequential(*[ag.nn.Linear(1, 1) for _ in range(layers)])
        state = net.state_dict()
        return calls_in(lambda: net.load_state_dict(state))

    assert steps(200) <= 2.05 * steps(100)


def test_a_rule_that_serves_many_arguments_is_called_once_with_those_that_are_wanted():
    seen = []

    def rule(argnums, ct, y, *xs):
        seen.append(tuple(argnums))
        return [ct * (argnum + 1) for argnum in argnums]

    total = ag.ops.define(
        "total_of_many",
        scheme=lambda arity, attrs: " -> ".join(["f[*s]"] * arity) + " -> f[*s]",
        forward=lambda xp, *arrays: sum(arrays),
        vjp=ag.ops.Together(rule, first=1),
    )
    xs, y = graph_of(lambda xs: total(*xs), 5)
    found = ag.gradients(y.sum(), [xs[3], xs[0], xs[1]])

    assert seen == [(1, 3)]
    values = evaluate(found, {x: np.ones(2) for x in xs})
    np.testing.assert_array_equal(values, [[4, 4], [0, 0], [2, 2]])
    ag.gradients(y.sum(), [xs[0]])
    assert seen == [(1, 3)]  # the first argument has no gradient


def test_one_node_given_many_times_gets_the_sum():
    for function in FUNCTIONS.values():
        g = ag.Graph()
        x, y = g.input("x", (2,), "float64"), g.input("y", (2,), "float64")
        found = ag.gradients(function([x, y, x]).sum(), [x, y])
        np.testing.assert_array_equal(
            evaluate(found, {x: np.ones(2), y: np.ones(2)}), [[2, 2], [1, 1]]
        )
