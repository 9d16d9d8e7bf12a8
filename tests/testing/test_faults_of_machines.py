"""The laws of machines catch a fault that is planted, and say which law it breaks."""

from typing import final

import pytest

import actorgraph as ag
from actorgraph.lower.cuts import one_per_node


@final
class HalvesMachine(ag.Machine):
    """A machine of one's own: tasks of one node each."""

    def _cut(self):
        return one_per_node


def test_a_machine_that_is_right_passes():
    ag.testing.check_machine(HalvesMachine)


def sums_in_another_order(outputs, **options):
    """(a + b) + c becomes a + (b + c)."""

    def turn(node):
        if node.op.name == "add" and node.inputs[0].op.name == "add":
            (a, b), c = node.inputs[0].inputs, node.inputs[1]
            return a + (b + c)
        return None

    one = ag.rewrite.Pass("another order", "(a + b) + c becomes a + (b + c)", turn)
    return ag.LispMachine(outputs, **{**options, "passes": [one], "exact": False})


class OtherDraws(ag.LispMachine):
    """Draws random numbers by its own count of runs, whatever the caller says."""

    def run_sync(self, *args, run_number, **options):
        return super().run_sync(*args, run_number=run_number + 1, **options)


class LosesBuffers(ag.LispMachine):
    def run_sync(self, *args, **options):
        buffers = {node: node.value for node in self.graph.buffers}
        run = super().run_sync(*args, **options)
        for node, value in buffers.items():
            node.value = value
        return run


class Backwards(ag.LispMachine):
    def stream(self, source, **options):
        return list(super().stream(source, **options))[::-1]


LISP = "values gradients and tangents have the bits of the sequential machine"


@pytest.mark.parametrize(
    ("wrong", "law"),
    [
        (sums_in_another_order, f"{LISP}: on the graph 'fan out': the value of node .*to the bit"),
        (OtherDraws, f"{LISP}: on the graph 'random ops'"),
        (LosesBuffers, f"{LISP}: on the graph 'buffers'"),
        (Backwards, "runs of a stream come in the order of the source: got .* expected squares"),
    ],
)
def test_a_planted_fault_is_caught_by_the_law_that_it_breaks(wrong, law):
    with pytest.raises(AssertionError, match=f"(?s)broken law: {law}"):
        ag.testing.check_machine(wrong)
