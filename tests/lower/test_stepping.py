"""Stepping: parts are interpreted until their text pays off; results and errors are the same."""

import warnings
import weakref

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import native
from actorgraph.errors import NodeError
from actorgraph.lower import keys, stepping
from actorgraph.lower.keys import CallKey, DirectKey, StepKey
from actorgraph.lower.stepping import SteppingCode, stepping_code
from actorgraph.lower.text import direct_code
from benchmarks._work import irregular
from tests._each import each


def feeds():
    return {"x": np.linspace(-1, 1, 16).reshape(4, 4)}


def codes(machine):
    """Return the code of all innermost parts."""
    made = [task.program for network in machine._networks() for task in network.tasks]
    parts = [part for program in made for part in program.parts]
    inner = [one for part in parts for one in part.program.parts or [part]]
    return [part.program.code for part in inner]


def test_a_part_that_is_stepped_through_returns_what_its_text_returns():
    steps = (
        StepKey(4, (0, 1), 0),
        StepKey(2, (2,), keys.BUFFERED),
        StepKey(7, (3, -1), keys.LEAVING | keys.BY_NAME),
        StepKey(2, (-2,), 0),
        StepKey(4, (5, 4), keys.LEAVING),
    )
    key = DirectKey(2, steps, (6, 2, 0, -1), True)
    given = [np.add, np.tanh, np.multiply, np.array([3.0, 5.0]), np.array([0.5, 0.25])]
    found = []
    for code in (stepping_code(key), direct_code(key)):
        out = [np.empty(2) for _ in range(3)]
        results = code.make(*given)(None, out, np.array([1.0, 2.0]), np.array([0.1, 0.2]))
        assert results[0] is out[2]
        found.append([one.tobytes() for one in (*results, *out)])
    assert found[0] == found[1]


def test_a_part_of_parts_that_is_stepped_through_returns_what_its_text_returns():
    def made(count):
        def part(run, out, *values):
            total = sum(values) + run
            return [np.add(total, j, *([] if out is None else [out[j]])) for j in range(count)]

        return part

    steps = (
        CallKey((1, 0), 2, True), CallKey((3,), 1, False), CallKey((), 1, True),
        CallKey((2, 4, 5, 0), 2, True),
    )  # fmt: skip
    key = DirectKey(2, steps, (7, 3, 1, 6), True, (2, 1, 2))
    given = [made(2), made(1), made(1), made(2)]
    found = []
    for code in (stepping_code(key), direct_code(key)):
        out = [np.empty(2) for _ in range(5)]
        results = code.make(*given)(0.5, out, np.array([1.0, 2.0]), np.array([0.1, 0.2]))
        assert results[0] is out[4]
        found.append([one.tobytes() for one in (*results, *out)])
    assert found[0] == found[1]


@each("how", [keys.BOUND, keys.LONG, keys.AWAITED, keys.OVER, keys.OWN, keys.GIVES_RUN])
def test_what_is_more_than_a_call_of_a_kernel_is_not_stepped_through(how):
    assert stepping_code(DirectKey(1, (StepKey(0, (0,), how),), (1,), True)) is None
    assert stepping_code(DirectKey(1, (CallKey((0,), 1, False),), (1,), True)) is None


@pytest.mark.parametrize("of_parts", [False, True])
def test_values_are_forgotten_when_nothing_needs_them_any_more(of_parts):
    steps = [CallKey((j,), 1, False) if of_parts else StepKey(j, (j,), 0) for j in range(3)]
    held = []

    def first(value):
        made = value + 1
        held.append(weakref.ref(made))
        return made

    def last(value):
        assert held[0]() is None
        return value

    given = [first, np.negative, last]
    if of_parts:
        given = [lambda run, out, value, one=one: [one(value)] for one in given]
    key = DirectKey(1, tuple(steps), (3,), True, () if of_parts else None)
    part = SteppingCode(key).make(*given)
    assert part(None, None, np.ones(3))[0].tolist() == [-2, -2, -2]


@pytest.mark.parametrize("native", [False, True])
def test_no_run_compiles_all_parts_of_an_irregular_graph_and_bits_stay(native):
    loss = irregular(2000)
    stepping_code.cache_clear()
    turns = stepping._FEWEST + stepping._SPREAD
    with ag.LispMachine([loss]) as sequential, ag.TapeMachine([loss], native=native) as machine:
        wanted = sequential.run_sync(feeds(), backward=True)
        compiled = []
        for _ in range(turns + 1):
            got = machine.start(feeds(), backward=True).result()
            assert got[loss].value == wanted[loss].value
            np.testing.assert_array_equal(got["w"].grad, wanted["w"].grad)
            found = [one for one in codes(machine) if isinstance(one, SteppingCode)]
            compiled.append(sum(one.compiled is not None for one in found))
    assert len(found) > 20
    assert compiled[0] == 0
    assert max(np.diff(compiled)) <= 2
    assert compiled[-1] == len(found)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_that_fails_within_a_part_is_named_with_its_operands(compiled):
    loss = irregular(600, lambda value: ag.ops.log(value * 0.0).named("doomed"))
    with ag.TapeMachine([loss], native=False) as machine, np.errstate(divide="raise"):
        for _ in range(stepping._FEWEST + stepping._SPREAD + 1 if compiled else 1):
            with pytest.raises(NodeError, match="'doomed'") as caught:
                machine.start(feeds()).result()
        found = codes(machine)
        assert all(isinstance(one, SteppingCode) for one in found)
        assert any(one.compiled is not None for one in found) == compiled
    assert caught.value.inputs == ("float64[4, 4]",)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_warning_within_a_part_tells_of_its_node(compiled):
    loss = irregular(600, lambda value: ag.ops.log(value * 0.0).named("doomed"))
    with ag.TapeMachine([loss], native=False) as machine:
        for _ in range(stepping._FEWEST + stepping._SPREAD + 1 if compiled else 1):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                machine.start(feeds()).result()
    assert ["'doomed'" in str(one.message) for one in caught] == [True]


@pytest.mark.skipif(native.expected() is not None, reason=f"no tables: {native.expected()}")
def test_parts_of_a_table_are_called_one_by_one_until_their_text_pays_and_errors_stay(monkeypatch):
    monkeypatch.setattr(stepping, "_FEWEST_OF_PARTS", stepping._FEWEST)
    stepping_code.cache_clear()
    loss = irregular(700, lambda value: ag.ops.log(value * 0.0).named("doomed"))
    with ag.TapeMachine([loss], native="wait") as machine, np.errstate(divide="raise"):
        compiled = []
        for _ in range(stepping._FEWEST + stepping._SPREAD + 1):
            with pytest.raises(NodeError, match="'doomed'") as caught:
                machine.run_sync(feeds())
            assert caught.value.inputs == ("float64[4, 4]",)
            [plan] = machine._plans.values()
            outer = [part for part in plan.inline.program.parts if part.program.parts]
            compiled.append([part.program.code.compiled is not None for part in outer])
    assert compiled[0] == [False]
    assert compiled[-1] == [True]


def test_the_source_shows_the_text_of_parts_that_are_stepped_through():
    loss = irregular(600)
    with ag.TapeMachine([loss], native=False) as machine:
        machine.start(feeds()).result()
        assert "def program(run, out, x0" in machine.source
