"""Long tasks of small steps are in parts, functions that what repeats in a graph shares."""

import gc
import traceback
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower import fusion, keys, table, text
from actorgraph.lower.keys import CallKey, DirectKey, StepKey
from actorgraph.lower.parts import FEWEST, cut_steps, ends
from actorgraph.lower.text import direct_code

_broken = []


def _trapped(xp, x):
    if _broken:
        _broken.append(weakref.ref(x.base))
        raise RuntimeError("on command")
    return x + 0


trapped = ag.ops.define(
    "lower_parts_trapped", scheme="f[*s] -> f[*s]", forward=_trapped,
    vjp=(lambda ct, y, x: ct,), cost=lambda shapes, result, attrs: 1.0,
)  # fmt: skip


@pytest.fixture(autouse=True)
def disarmed():
    yield
    _broken.clear()


def branches(count, middle=lambda value, branch: value):
    """Return a loss of so many equal branches of 13 steps, over a batch of any size."""
    x = ag.Graph().input("x", ("n", 3), dtype="float64")
    w = x.graph.parameter("w", np.linspace(-1, 1, 9).reshape(3, 3))
    ends = []
    for branch in range(count):
        value = x @ w * (1 + branch / 16)
        for _ in range(8):
            value = np.tanh(value)
        value = middle(value - value.mean(0), branch)
        ends.append((value * value).sum().named(f"end {branch}"))
    return ag.ops.stack(ends).sum()


def feeds(rows):
    return {"x": np.linspace(-1, 1, 3 * rows).reshape(rows, 3)}


def programs(machine):
    return [task.program for network in machine._networks() for task in network.tasks]


def test_a_part_of_parts_gives_each_its_arrays_and_forgets_what_it_no_longer_needs():
    called = StepKey(0, (0,), keys.LEAVING)
    inner = direct_code(DirectKey(1, (called,), (1,), True))
    steps = (CallKey((0,), 1, True), CallKey((1,), 1, False), CallKey((2, 0), 2, True))
    code = direct_code(DirectKey(1, steps, (4, 3, 0), True, (2, 1)))
    assert code.text.splitlines()[1:] == [
        "    def program(run, out, *x):",
        "        r0 = f0(run, out[0:2], x[0])",
        "        r1 = f1(run, None, r0[0])",
        "        r0 = None",
        "        r2 = f2(run, out[2:3], r1[0], x[0])",
        "        r1 = None",
        "        return [*r2[1::-1], x[0]]",
        "    return program",
    ]
    assert [code.lines[line] for line in (3, 4, 6)] == [0, 1, 2]
    assert code.expressions == {0: "x[0]", 1: "r0[0]", 2: "r1[0]", 3: "r2[0]", 4: "r2[1]"}
    assert inner.make(lambda x, out: x + out)(None, [1], 2) == [3]


MACHINES = pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(ag.TapeMachine, {}, id="tape"),
        pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
        pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="fused"),
    ],
)


@MACHINES
def test_parts_have_the_bits_of_steps_one_by_one(kind, options):
    loss = branches(64)
    with ag.LispMachine([loss]) as sequential, kind([loss], **options) as machine:
        for rows in (5, 2, 5):
            wanted = sequential.run_sync(feeds(rows), backward=True)
            # `start` takes the way through tasks.
            got = machine.start(feeds(rows), backward=True).result()
            assert got[loss].value == wanted[loss].value
            np.testing.assert_array_equal(got["w"].grad, wanted["w"].grad)
        assert [program for program in programs(machine) if program.parts]


@pytest.mark.parametrize("native", [False, True])
def test_what_repeats_is_compiled_once(native):
    loss = branches(64)
    text.direct_code.cache_clear()
    with ag.TapeMachine([loss], native=native) as machine:
        machine.start(feeds(5), backward=True).result()
        made = programs(machine)
    parts = [part.program for program in made for part in program.parts]
    parts = [inner.program for part in parts for inner in part.parts] or parts
    steps = sum(len(program.steps) for program in made)
    compiled = {id(part.code): part.code.text.count("\n") for part in parts}
    assert sum(len(part.steps) for part in parts) > 0.9 * steps
    assert sum(compiled.values()) < 0.4 * steps


def test_tasks_of_what_repeats_share_their_text():
    loss = branches(400)
    text.code_of.cache_clear()
    with ag.TapeMachine([loss]) as machine:
        machine.start(feeds(5)).result()
        made = programs(machine)
    assert len(made) > 5
    # The first has the product that all share, and the last is short.
    assert len({id(program.code) for program in made}) <= 4


def test_many_values_that_pass_between_tasks_are_no_variables_each():
    loss = branches(200)
    with ag.LispMachine([loss]) as sequential, ag.TapeMachine([loss], native=True) as machine:
        wanted = sequential.run_sync(feeds(5), backward=True)
        got = machine.start(feeds(5), backward=True).result()
        np.testing.assert_array_equal(got["w"].grad, wanted["w"].grad)
        tasks = [task for network in machine._networks() for task in network.tasks]
    assert max(len(nodes) for task in tasks for nodes, _ in task.spec.bundles) > 100
    texts = [task.program.code.text for task in tasks]
    assert max(len(line) for text in texts for line in text.splitlines()) < 1500


def test_values_of_a_part_that_end_at_several_steps_are_forgotten_one_by_one():
    inner, writes = StepKey(0, (1,), 0), False
    parts = (CallKey((0,), 20, writes), inner, CallKey(tuple(range(2, 22)), 1, writes))
    code = direct_code(DirectKey(1, parts, (22,)))
    assert "v0, v1, v2, " in code.text
    together = (CallKey((0,), 20, writes), CallKey(tuple(range(20, 0, -1)), 1, writes))
    code = direct_code(DirectKey(1, together, (21, 0)))
    assert code.text.splitlines()[1:] == [
        "    def program(x0):",
        "        v0 = f0(None, None, x0)",
        "        v1, = f1(None, None, *v0[19::-1])",
        "        v0 = None",
        "        return [v1, x0]",
        "    return program",
    ]
    assert code.expressions[20] == "v0[19]"
    assert code.make(lambda *_: [*range(20)], lambda _, __, *found: [found])(7) == [
        tuple(range(19, -1, -1)), 7,
    ]  # fmt: skip


def test_tasks_too_short_for_a_table_are_not_looked_through(monkeypatch):
    monkeypatch.setattr(table, "kinds", pytest.fail)
    with ag.ActorMachine([branches(4)], fuse="none") as machine:
        machine.start(feeds(5), backward=True).result()


def test_parts_end_where_the_fewest_values_pass():
    loss = branches(32)
    order = loss.graph.topological_order(loss)
    steps = [node for node in order if not node.is_leaf]
    cuts = list(cut_steps(steps, [loss], [(0, len(steps), False)]))
    assert [part.begin for part in cuts[1:]] == [part.end for part in cuts[:-1]]
    assert (cuts[0].begin, cuts[-1].end) == (0, len(steps))
    # The product with w is shared by all; of a branch nothing but its end is handed over.
    ends = {node.name for part in cuts[:-2] for node in part.returned}
    assert len([name for name in ends if not name.startswith("end ")]) == 1


def chain(count):
    """Return so many steps, each of which needs the one before."""
    steps = [np.sin(ag.Graph().input("x", (2,), "float64"))]
    while len(steps) < count:
        steps.append(np.sin(steps[-1]))
    return steps


def test_parts_have_a_least_and_a_most_number_of_steps_but_for_the_last():
    """Only the first three values are used up at once: the fewest cross behind each of them."""
    steps = [SimpleNamespace(id=number) for number in range(20)]
    crossing = {number: max(number, 19 * (number > 2)) for number in range(20)}
    assert [*ends(steps, 0, 20, crossing, (4, 8))] == [4, 8, 12, 20]
    assert [*ends(steps, 0, 20, {}, (4, 8))] == [8, 16, 20]
    assert [*ends(steps, 0, 8, {}, (4, 8))] == [8]
    far = dict.fromkeys(range(20), 1000)  # needed so late that they distinguish no position
    assert [*ends(steps, 0, 20, far, (4, 8))] == [8, 16, 20]


def test_what_a_table_may_walk_is_one_part_which_consists_of_those_that_are_called():
    steps = chain(300)
    for count, inner in ((100, 0), (200, 2), (300, 3)):
        [part] = cut_steps(steps[:count], [steps[count - 1]], [(0, count, True)])
        assert (part.begin, part.end, part.is_walked) == (0, count, True)
        assert len(part.parts) == inner
        assert [node.id for node in part.returned] == [steps[count - 1].id]
        called = [*cut_steps(steps[:count], [steps[count - 1]], [(0, count, False)])]
        assert [(one.begin, one.end) for one in called] == [
            (one.begin, one.end) for one in part.parts or [part]
        ]
        assert not any(one.is_walked for one in [*called, *part.parts])


def test_a_short_task_has_no_parts():
    for count in (FEWEST - 1, FEWEST):
        *_, last = chain(count)
        with ag.TapeMachine([last], native=False) as machine:
            machine.start({"x": np.zeros(2)}).result()
            [program] = programs(machine)
            assert len(program.parts) == (count == FEWEST) * 2


def test_the_source_shows_every_step_with_its_name():
    loss = branches(32)
    with ag.TapeMachine([loss]) as machine:
        machine.start(feeds(5)).result()
        source = machine.source
    for branch in range(32):
        assert source.count(f"  # end {branch}: float64[]") == 1
    assert " steps, from " in source


@MACHINES
def test_a_fault_in_a_part_names_the_node_and_shows_the_generated_line(kind, options):
    def middle(value, branch):
        return trapped(value).named("the trap") if branch == 20 else value

    loss = branches(32, middle)
    with kind([loss], **options) as machine:
        machine.start(feeds(5), backward=True).result()
        assert any(program.parts for program in programs(machine))
        _broken.append(True)
        with pytest.raises(ag.NodeError, match="'the trap' failed .*: on command") as caught:
            machine.start(feeds(5), backward=True).result()
        assert caught.value.inputs == ("float64[5, 3]",)
        assert "test_parts.py" in caught.value.line
        shown = "".join(traceback.format_exception(caught.value))
        assert "<actorgraph program" in shown
        assert " in program\n    v" in shown  # the line of the part
        _broken.clear()
        machine.start(feeds(5), backward=True).result()  # overwrites what the machine keeps


def test_an_error_keeps_nothing_of_its_run_alive():
    def middle(value, branch):
        return trapped(value) if branch == 20 else value

    loss = branches(32, middle)
    with ag.TapeMachine([loss]) as machine:
        _broken.append(True)
        run = machine.start(feeds(5), backward=True)
        with pytest.raises(ag.NodeError, match="on command") as caught:
            run.result()
        cause, gone = caught.value.__cause__, weakref.ref(run)
        del caught, run
        while not machine._core.scheduler.quiet():
            pass  # a run ends within its last turn, whose worker holds it until then
        gc.collect()
        assert cause.__traceback__ is not None
        assert gone() is None


@pytest.mark.parametrize(("rows", "in_parts"), [(16, True), (32768, False)])
def test_large_values_are_forgotten_at_once_so_their_tasks_have_no_parts(rows, in_parts):
    loss = branches(32)
    with ag.TapeMachine([loss]) as machine:
        machine.start(feeds(rows)).result()
        long = [program for program in programs(machine) if len(program.steps) >= FEWEST]
    assert long
    assert all(bool(program.parts) is in_parts for program in long)


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 4, "capacity": 1, "seed": 5}])
def test_a_task_of_many_ports_and_sends_waits_for_all_and_serves_all(options, monkeypatch):
    monkeypatch.setattr(fusion, "HEAVY_US", 0.0)  # every turn may wake a worker
    loss = branches(40)
    with (
        ag.LispMachine([loss]) as sequential,
        ag.ActorMachine([loss], fuse="none", **options) as machine,
    ):
        runs = [machine.start(feeds(rows), backward=True) for rows in range(2, 22)]
        for rows, run in enumerate(runs, 2):
            wanted, got = sequential.run_sync(feeds(rows), backward=True), run.result()
            assert got[loss].value == wanted[loss].value
            np.testing.assert_array_equal(got["w"].grad, wanted["w"].grad)
        source = machine.source
    assert "if not all(queues):" in source
    assert "for (o, a, t), message in zip(targets, (" in source
