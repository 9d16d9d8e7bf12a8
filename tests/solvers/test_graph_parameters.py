import numpy as np
import pytest

from actorgraph.dual import Dual
from actorgraph.graph import Graph
from actorgraph.solvers import SGD, Adam


@pytest.fixture
def weight():
    return Graph("g").parameter("W", np.ones((2, 3), "float32"))


def dual_of(parameter):
    array = parameter.state.array
    return Dual(array, np.full_like(array, 0.5), node=parameter)


@pytest.mark.parametrize("solver", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.1)])
def test_parameter_of_a_graph_is_stepped_in_place(solver, weight):
    array = weight.value
    for _ in range(3):
        solver.step([dual_of(weight)])
    assert weight.value is array
    assert array.dtype == np.float32
    assert np.all(array < 1.0)


@pytest.mark.parametrize("solver", [SGD(lr=0.1, momentum=0.9), Adam(lr=0.1)])
def test_run_in_flight_keeps_what_it_read(solver, weight):
    weight.state.readers += 1  # as a run does when it starts
    read = weight.state.array
    solver.step([dual_of(weight)])
    assert np.all(read == 1.0)
    assert weight.value is not read
    assert np.all(weight.value < 1.0)


def test_missing_gradient_names_the_parameter(weight):
    with pytest.raises(ValueError, match="parameter 'W' has no gradient; run with backward=True"):
        SGD().step([Dual(weight.value, node=weight)])
