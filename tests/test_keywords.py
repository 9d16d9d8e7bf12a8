"""What a call says that does not fit; `tests/test_mistakes.py` has those of newcomers."""

import doctest
import inspect
import pickle
from types import ModuleType

import pytest

import actorgraph as ag
from actorgraph.keywords import answering


class Net(ag.nn.Module):
    def __init__(self, width, *, depth=1):
        self.depth = [width] * depth


GIVEN = {
    "Action", "CPU", "Callback", "Dual", "GPU", "Handed", "Instrument", "Lane", "Laws", "Loop",
    "Measured", "Module", "Node", "Parameter", "Placement", "Run", "Schedule", "ServedModel",
    "Simulation", "Stateless", "Timed", "ToArray", "Trace",
}  # fmt: skip
"""Classes that a program is given, or that take nothing: nobody looks for their keywords."""


def public(module, seen):
    """Yield what a module and those below it make public, each once."""
    for name in () if module in (ag.errors, ag.types) else module.__all__:
        one = getattr(module, name)
        if isinstance(one, ModuleType):
            if one not in seen:
                yield from public(one, seen | {one})
        elif callable(one) and not (
            isinstance(one, type)
            and (name in GIVEN or inspect.isabstract(one) or issubclass(one, Exception))
        ):
            yield f"{module.__name__}.{name}", one


def test_whatever_is_public_answers_a_keyword_that_it_has_not():
    left = {*public(ag, frozenset())} - {("actorgraph.solvers.ValueGrad", ag.solvers.ValueGrad)}
    silent = []
    for name, one in sorted(left, key=lambda pair: pair[0]):
        try:
            one(no_such_keyword=1)
        except ag.GraphTypeError as error:
            if "no_such_keyword" not in str(error):
                silent.append(f"{name}: {error}")
        except Exception as error:
            silent.append(f"{name}: {error}")
        else:
            silent.append(f"{name} takes anything")
    assert len(left) > 700
    assert not silent


def test_what_answers_is_pickled_by_its_name():
    for one in (ag.nn.init.zeros, ag.io.save, ag.ops.tanh, ag.solvers.schedules.cosine):
        assert pickle.loads(pickle.dumps(one)) is one


def test_a_class_of_a_user_answers_with_its_own_arguments():
    assert Net(3, depth=2).depth == [3, 3]
    assert list(inspect.signature(Net).parameters) == ["width", "depth"]
    with pytest.raises(ag.GraphTypeError, match=r"^Net\(\) has no dept=: did you mean 'depth'\?"):
        Net(3, dept=2)
    with pytest.raises(ag.GraphTypeError, match=r"^Net\(\) got 3, 4; it takes width, depth="):
        Net(3, 4)


def test_what_a_class_above_takes_is_known_below():
    class Wide(Net):
        def __init__(self, **options):
            super().__init__(9, **options)

    assert Wide(depth=1).depth == [9]
    with pytest.raises(ag.GraphTypeError, match=r"Wide\(\) has no dept=: did you mean 'depth'"):
        Wide(dept=1)


def test_a_type_error_from_inside_of_a_call_that_fits_is_left_alone():
    with pytest.raises(TypeError, match="can't multiply sequence") as caught:
        Net(3, depth="x")
    assert type(caught.value) is TypeError


def test_a_function_says_all_that_it_lacks():
    @answering
    def drawn(graph, *, color="red"):
        return color

    assert drawn(1) == "red"
    with pytest.raises(ag.GraphTypeError) as caught:
        drawn(1, colour="blue", activation="relu")
    assert str(caught.value).splitlines()[0] == (
        "drawn() has no colour=: did you mean 'color'?; "
        "no activation=: call ag.ops.relu, or another, on what it returns"
    )


def test_a_call_that_fits_costs_methods_that_are_called_often_nothing():
    for often in (ag.Machine.run_sync, ag.Machine.run, ag.Machine.start, ag.Graph.apply):
        assert not hasattr(often, "__wrapped__")


def test_the_examples_of_what_answers_are_found_in_its_module():
    from actorgraph.machines import base

    found = {one.name for one in doctest.DocTestFinder().find(base) if one.examples}
    assert "actorgraph.machines.base.Machine.check" in found
