"""Cotangents of three consumers meet at their producer: summed once each, in edge order.

The values are float32, so that another order gives other bits.
"""

from __future__ import annotations

from itertools import count

import pytest

from actorgraph.node_actor import Message
from tests.races._interleave import assert_found, assert_holds
from tests.races._wires import Machine, TextBug, fan

FOCUS = ("actor", "_work")


class Backward(Machine):
    """Two runs with gradients are under way when two workers start."""

    def __init__(self, **options):
        super().__init__(fan, max_in_flight=2, **options)
        self.begin(2)

    def threads(self):
        return [lambda: self.serve(until=lambda: True)] * 2


def unbounded():
    return Backward()


def with_credits():
    return Backward(capacity=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [unbounded, with_credits])
def test_the_sum_of_cotangents_has_the_sequential_bits(make):
    assert_holds(make, f"fan-out {make.__name__}", 1000, FOCUS)


class Stamped(Message):
    """A message that knows when it was made."""

    __slots__ = ("stamp",)
    stamps = count()

    def __init__(self, value, run):
        super().__init__(value, run)
        self.stamp = next(self.stamps)


class sums_in_order_of_arrival(Backward):
    """In generated text: cotangents are added up in the order in which they were made."""

    def __init__(self):
        taken = r"^( +)m0 = p0\(\)\n +m1 = p1\(\)\n +m2 = p2\(\)\n"
        in_order = r"\1m0, m1, m2 = sorted((p0(), p1(), p2()), key=lambda m: -m.stamp)\n"
        super().__init__(text=TextBug((taken, in_order)), message=Stamped)


def test_a_planted_bug_is_found():
    assert_found(sums_in_order_of_arrival, "fan-out sums_in_order_of_arrival", 4000, ["actor"])
