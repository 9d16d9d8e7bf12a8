"""How many steps of the models that people run are rows of tables, on both machines."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import native
from actorgraph.lower import walkable
from actorgraph.lower.kernels import class_numbers
from actorgraph.lower.loop_table import LoopTable
from actorgraph.lower.walkable import kind_of, kinds
from actorgraph.rewrite.exact import restated
from benchmarks._work import irregular
from benchmarks.models import MODELS
from tests.lower.test_stepping import feeds

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)


def elementwise():
    """Return the mean square of what a chain of 100 steps makes of an input, and feeds."""
    x = ag.Graph().input("x", (32, 32), "float32")
    y = x
    for _ in range(50):
        y = ops.tanh(y * 0.9)
    return ops.square(y).mean(), [x], np.ones((32, 32), "float32")


def of(name):
    """Return the mean square of what a model of the benchmarks gives, and feeds."""
    model = MODELS[name]
    ag.nn.manual_seed(0)
    found = model.build(ag.nn)(ag.Graph().input("x", model.shape))
    y = found[0] if isinstance(found, tuple) else found
    return ops.square(y).mean(), None, np.ones(model.shape, "float32")


def layers():
    """Return the mean square of what five dense layers give, and feeds."""
    ag.nn.manual_seed(0)
    sizes = [64, 128, 128, 128, 128, 10]
    dense = [ag.nn.Linear(n, m) for n, m in pairwise(sizes)]
    net = ag.nn.Sequential(*[part for one in dense for part in (one, ag.nn.ReLU())])
    x = ag.Graph().input("x", (256, 64))
    return ops.square(net(x)).mean(), None, np.ones((256, 64), "float32")


FAMILIES = {
    "a chain": elementwise, "an MLP": layers, "an LSTM": partial(of, "LSTM, 50 steps"),
    "a transformer block": partial(of, "transformer block"),
    "a residual net": partial(of, "ResNet-14, 8x3x32x32"),
    "an ensemble": partial(of, "ensemble, batch 64"),
}  # fmt: skip


def steps_and_rows(machine):
    """Return how many steps a run makes, those of all iterations, and for how many rows stand."""
    [plan] = machine._plans.values()
    programs = [task.program for network in machine._networks() for task in network.tasks]
    if plan.inline.program is not None:
        programs = [plan.inline.program]
    steps = rows = 0
    for program in programs:
        steps += len(program.steps)
        walked = [part.stretch for part in program.parts if part.stretch is not None]
        rows += sum([len(one.steps) for one in walked if one.covered])
    loops = plan.compiled.loops
    tables = {loop.node.id for loop in loops if isinstance(loop.call._made, LoopTable)}
    for loop in {loop.node.id: loop for loop in loops}.values():
        inside = loop.length * len(loop.call.program.steps)
        steps += inside
        rows += inside * (loop.node.id in tables)
    return steps, rows


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [ag.TapeMachine, partial(ag.ActorMachine, fuse="all")])
def test_nine_of_ten_steps_of_the_models_that_people_run_are_rows_in_both_passes(family, kind):
    loss, wrt, x = FAMILIES[family]()
    for backward in (False, True):
        with kind([loss], wrt=wrt, native="wait", workers=2) as machine:
            machine.run_sync({"x": x}, backward=backward)
            steps, rows = steps_and_rows(machine)
        assert rows >= 0.9 * steps, f"{rows} of {steps} steps are rows"


def test_of_each_class_one_step_is_looked_at_even_if_merging_made_its_steps_anew(monkeypatch):
    looked = []
    monkeypatch.setattr(
        walkable, "kind_of", lambda step, *given: looked.append(step) or kind_of(step, *given)
    )
    loss = irregular(2500)
    with ag.TapeMachine([loss], native="wait") as machine:
        machine.run_sync(feeds(), backward=True)
        [plan] = machine._plans.values()
        steps = [step for spec in plan.partition.tasks for step in spec.steps]
        before = {id(node) for node in plan.compiled.joint.order}
    assert len([step for step in steps if id(step) not in before]) > 200
    assert 0 < len(looked) < 60


def test_a_step_of_another_op_in_the_place_of_a_node_is_not_of_its_class():
    y = np.tanh(ag.Graph().input("x", (3,), "float64"))
    z = np.cumsum(y)
    other = restated(y, z.op, z.inputs, z.attrs)
    for steps, wanted in (([y, other], ["row", ""]), ([other, y], ["", "row"])):
        assert kinds(steps, {}, classes=class_numbers([y]), known={}) == wanted


def test_steps_of_one_other_op_in_the_places_of_nodes_of_one_class_are_looked_at_each():
    g = ag.Graph()
    nodes = [np.tanh(g.input(name, (3, 4), "float64")) for name in "xy"]
    attrs = [{"axis": axis, "keepdims": True} for axis in ((0,), ())]
    steps = [
        restated(node, walkable.SUM, node.inputs, some)
        for node, some in zip(nodes, attrs, strict=True)
    ]
    classes = class_numbers(nodes)
    assert len({*classes.values()}) == 1
    assert kinds(steps, {}, classes=classes, known={}) == ["row", ""]
    assert kinds(steps[::-1], {}, classes=classes, known={}) == ["", "row"]
