"""In which order a task sends a value to those that take it."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.cuts import one_per_node
from actorgraph.lower.joint import Mode, join
from actorgraph.lower.regions import by_region, connect


def test_a_worker_goes_on_with_what_only_uses_a_value_up():
    """X -> a -> (last, more -> y): who gets the value as the last one is gone on with."""
    x = ag.Graph().input("x", (2,))
    a = (x * 2.0).named("a")
    last, more = ag.ops.exp(a).named("last"), ag.ops.tanh(a).named("more")
    y = more * 3.0
    joint = join([y, last], (), Mode())
    results = {joint.values[y]: 0, joint.values[last]: 1}
    tasks = connect(one_per_node(joint, {}), results)
    names = [joint.source(spec.region.nodes[0]).name for spec in tasks]
    sent = tasks[names.index("a")].sends
    assert [names[consumer] for _, consumer in sent] == ["more", "last"]


def test_values_that_travel_together_are_in_build_order():
    """So texts take them as slices of the lists in which they are."""
    x = ag.Graph().input("x", (2,))
    made = [x * (1.0 + i) for i in range(20)]
    total = ag.ops.stack([made[(7 * i) % 20] for i in range(20)]).sum()
    joint = join([total], (), Mode())
    tasks = by_region(joint, [list(joint.owners[:20]), list(joint.owners[20:])])

    _, taker = connect(tasks, {joint.values[total]: 0})

    [bundle] = [port for port in taker.ports if port.kind == "bundle"]
    assert bundle.nodes == joint.order[:20]


@pytest.mark.parametrize("capacity", [None, 1])
def test_a_value_goes_to_many_tasks_to_the_task_that_saves_it_and_to_the_caller(capacity):
    x = ag.Graph().parameter("x", np.array([0.1, 0.2]))
    value = ag.ops.tanh(x)
    loss = ag.ops.stack([ag.ops.exp(value * (1.0 + i)) for i in range(40)]).sum()
    with ag.LispMachine([loss, value]) as machine:
        wanted = machine.run_sync({}, backward=True)
    with ag.ActorMachine([loss, value], fuse="none", capacity=capacity) as machine:
        for run in [machine.start({}, backward=True) for _ in range(3)]:
            got = run.result()
            assert got[loss].value == wanted[loss].value
            np.testing.assert_array_equal(got[value].value, wanted[value].value)
            np.testing.assert_array_equal(got[x].grad, wanted[x].grad)
        assert "targets = [*zip(" in machine.source
