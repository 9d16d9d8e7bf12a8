"""Steps of the parameters of the step before, which look at less than a first step."""

import copy
import pickle

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.dual import Dual
from tests._each import each


def parameters(count=3):
    g = ag.Graph()
    return [g.parameter(f"w{i}", np.full((2, i + 1), i + 1.0, "float32")) for i in range(count)]


def dual(node, grad=None):
    array = node.held.array
    return Dual(array, np.full_like(array, 0.5) if grad is None else grad, node=node)


def stepped(orders):
    """Return the values after steps of parameters in these orders, and the solver's steps."""
    nodes, solver = parameters(), ag.solvers.SGD(lr=0.5, momentum=0.5)
    for order in orders:
        solver.step([dual(nodes[place]) for place in order])
    return [node.value.tolist() for node in nodes]


def test_results_of_the_same_parameters_are_validated_once(monkeypatch):
    nodes, solver, validated = parameters(), ag.solvers.SGD(lr=0.5), []
    validate = solver._validated
    monkeypatch.setattr(solver, "_validated", lambda duals: validated.append(1) or validate(duals))
    for _ in range(3):
        solver.step([dual(node) for node in nodes])
    assert validated == [1]
    assert [node.value[0, 0] for node in nodes] == [0.25, 1.25, 2.25]


@each(
    "orders",
    [
        [(0, 1, 2), (2, 1, 0), (0, 1, 2)],
        [(0, 1, 2), (0, 1), (2,), (1, 0), (2,)],
        [(0,), (1,), (2,), (0, 1, 2), (0, 1, 2)],
    ],
)
def test_each_parameter_is_stepped_with_its_own_state_in_any_order(orders):
    for place, value in enumerate(stepped(orders)):
        alone = [(place,) for order in orders if place in order]
        assert value == stepped(alone)[place]


@each(
    "grad, error, words",
    [
        (np.zeros((2, 9), "float32"), ValueError, "has a gradient of shape"),
        (np.zeros((2, 3), "complex64"), TypeError, "real part"),
        ("none", ValueError, "has no gradient"),
        ("twice", ValueError, "listed twice"),
        ("alone", ValueError, "without a node"),
    ],
)
def test_a_repeated_step_refuses_what_a_first_one_refuses(grad, error, words):
    nodes, solver = parameters(), ag.solvers.SGD(lr=0.5)
    solver.step([dual(node) for node in nodes])
    before = [node.value.tolist() for node in nodes]
    duals = [dual(node) for node in nodes]
    if isinstance(grad, np.ndarray):
        duals[-1].grad = grad
    elif grad == "none":
        duals[-1].grad = None
    elif grad == "twice":
        duals[-1] = duals[0]
    elif grad == "alone":
        duals[-1].node = None
    with pytest.raises(error, match=words):
        solver.step(duals)
    assert [node.value.tolist() for node in nodes] == before
    solver.step([dual(node) for node in nodes])
    assert solver.steps == 2


def test_gradients_of_other_dtypes_are_converted_in_repeated_steps_too():
    [node], solver = parameters(1), ag.solvers.SGD(lr=0.5)
    for grad in (
        np.full((2, 1), 0.5, "float32"),
        np.full((2, 1), 0.5),
        np.full((2, 1), 0.5, ">f4"),
    ):
        solver.step([dual(node, grad)])
    assert node.value.tolist() == [[0.25], [0.25]]


def test_a_list_without_parameters_is_refused_where_the_first_had_values_without_a_node():
    solver = ag.solvers.SGD(lr=0.5)
    solver.step([Dual(np.ones(2), np.ones(2))])
    with pytest.raises(ValueError, match="got 0 parameters without a node"):
        solver.step([])


def test_a_group_that_is_added_between_steps_has_its_settings():
    first, second = parameters(2)
    solver = ag.solvers.SGD(lr=0.5)
    solver.step([dual(first), dual(second)])
    solver.add_group([second], lr=0.25)
    solver.step([dual(first), dual(second)])
    assert [first.value[0, 0], second.value[0, 0]] == [0.5, 1.625]


@each("copied", [copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))])
def test_a_solver_that_is_copied_with_its_parameters_goes_on_with_their_state(copied):
    given, solver = [node.held for node in parameters()], ag.solvers.SGD(lr=0.5, momentum=0.5)
    solver.add_group([given[1]], lr=0.25)

    def step(solver, given):
        for held in given:
            held.grad = np.full_like(held.array, 0.5)
        solver.step(given)

    step(solver, given)
    others, other = copied((given, solver))
    for one, held in ((solver, given), (other, others)):
        step(one, held)
        step(one, held[::-1])
    assert [one.array.tolist() for one in others] == [one.array.tolist() for one in given]
