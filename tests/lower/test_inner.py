"""Programs of loops: where the steps of a body write."""

import re

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices.structs import IDLE
from actorgraph.lower.inner import InnerLoop


def body():
    """A carry, a weight and an element, and ``tanh(carry @ weight + element) * 0.5 + carry``."""
    g = ag.Graph()
    index = g.input("index", (), "int64")
    weight, carry, x = (g.input(name, (4, 4), "float64") for name in ("weight", "carry", "x"))
    total = carry @ weight + x
    return [[index], [weight], [carry], [x]], total, ag.ops.tanh(total) * 0.5 + carry


def written(loop):
    """Return how many steps are given an array to write into."""
    return len(re.findall(r"out=b\d|, b\d+\)", loop.program.code.text))


def test_what_stays_in_an_iteration_is_written_into_memory_that_all_iterations_share():
    inputs, total, after = body()
    plain = InnerLoop(inputs, [after], [], None, {})
    stacked = InnerLoop(inputs, [after, total], [], None, {})
    copied = InnerLoop(inputs, [after, total], [], None, {}, stored=True)
    assert written(plain) == 4  # but for the carry all steps
    assert written(stacked) == 3  # and but for what is stacked, unless that is a copy
    assert written(copied) == 4


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_of_a_loop_changes_no_bit_and_is_there_for_the_next_call(order, stored):
    rng = np.random.default_rng(0)
    weight, carry, xs = (
        np.asarray(rng.normal(size=shape), order=order) for shape in ((4, 4), (4, 4), (5, 4, 4))
    )
    inputs, _, after = body()
    loop = InnerLoop(inputs, [after, after], [0], None, {}, stored=stored)
    calls = []
    for _ in range(2):
        rooms = [np.empty((5, 4, 4)), np.empty((5, 4, 4))] if stored else [[], []]
        entered, stack = rooms if stored else [room.append for room in rooms]
        given = [weight], [carry], [xs]
        calls.append((loop(IDLE, range(5), None, (), *given, [entered], [stack]), rooms))
    wanted = [carry]
    for x in xs:
        wanted.append(np.tanh(wanted[-1] @ weight + x) * 0.5 + wanted[-1])
    for ((last,), trips), (entered, stack) in calls:
        assert trips == 5
        np.testing.assert_array_equal(entered, wanted[:-1])
        np.testing.assert_array_equal(stack, wanted[1:])
        np.testing.assert_array_equal(last, wanted[-1])


def test_a_carry_that_may_come_back_in_another_order_leaves_memory_alone():
    inputs, _, after = body()
    loop = InnerLoop(inputs, [ag.ops.transpose(after)], [], None, {})
    assert written(loop) == 0
