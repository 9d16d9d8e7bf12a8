import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.graph import Graph
from actorgraph.solvers import SGD, Adam


@pytest.fixture
def weight():
    return Graph("g").parameter("W", np.ones((2, 3), "float32"))


def dual_of(parameter):
    array = parameter.held.array
    return Dual(array, np.full_like(array, 0.5), node=parameter)


@pytest.mark.parametrize("solver", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.1)])
def test_the_two_arrays_of_a_parameter_take_turns(solver, weight):
    places = []
    for _ in range(6):
        solver.step([dual_of(weight)])
        places.append(weight.held.array.ctypes.data)
    assert places[:2] * 3 == places
    assert len(set(places)) == 2
    assert weight.value.dtype == np.float32
    assert np.all(weight.value < 1.0)


@pytest.mark.parametrize("solver", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.1)])
def test_what_somebody_has_read_stays(solver, weight):
    read, set_, part = weight.held.array, weight.value, weight.value[0]
    for _ in range(3):
        solver.step([dual_of(weight)])
    for array in (read, set_, part):
        assert np.all(array == 1.0)
    assert np.all(weight.value < 1.0)


def test_missing_gradient_names_the_parameter(weight):
    with pytest.raises(ValueError, match="parameter 'W' has no gradient; run with backward=True"):
        SGD().step([Dual(weight.value, node=weight)])
