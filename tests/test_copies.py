"""`copy`, `deepcopy` and `pickle` of graphs and nodes work, or say what to do instead."""

import copy
import pickle

import numpy as np
import pytest

import actorgraph as ag


@pytest.fixture
def line():
    graph = ag.Graph("line")
    x = graph.input("x", (3,))
    w = graph.parameter("w", np.ones(3, "float32"))
    return graph, x, w, (x * w).sum()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_graph_shares_no_parameter_with_it(line, copied):
    graph, _, w, loss = line
    other = copied(graph)
    other["w"].value = np.zeros(3, "float32")
    assert w.value.tolist() == [1, 1, 1]
    assert other[loss.name].graph is other


def test_what_is_copied_together_stays_together(line):
    graph, _, w, loss = line
    copied = copy.deepcopy({"graph": graph, "loss": loss, "parameters": [w]})
    assert copied["loss"].graph is copied["graph"] is copied["parameters"][0].graph
    assert copied["loss"] is copied["graph"][loss.name]
    assert copied["graph"] is not graph


def test_a_shallow_copy_of_a_node_is_the_node(line):
    assert copy.copy(line[3]) is line[3]


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_pickle_of_graphs_and_nodes_says_what_to_do(line, which):
    with pytest.raises(ag.GraphTypeError, match="by a function that"):
        pickle.dumps(line[which])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [ag.ActorMachine, ag.TapeMachine, ag.LispMachine])
def test_a_machine_is_not_copied_and_says_what_to_do(line, make, copied):
    with make([line[3]]) as machine, pytest.raises(ag.GraphTypeError, match="make another one"):
        copied(machine)


def test_a_dual_without_a_node_is_pickled_and_any_dual_is_copied():
    alone = pickle.loads(pickle.dumps(ag.Dual(2.0, 3.0)))
    assert (alone.value, alone.grad, alone.node) == (2.0, 3.0, None)
    x = ag.Graph().input("x", ())
    dual = ag.Dual(np.ones(2), node=x)
    assert copy.copy(dual).value is dual.value
    assert copy.copy(dual).node is x
    deep = copy.deepcopy(dual)
    assert deep.value is not dual.value
    assert deep.node.graph is not x.graph
