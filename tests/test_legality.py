"""What makes a graph legal, and that what breaks it is named."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError
from actorgraph.legality import check_nodes
from actorgraph.lower.joint import Mode, join
from actorgraph.types import Tensor


@pytest.fixture
def loss(g, x):
    return (x * g.parameter("w", np.ones(3)) * 2.0).sum()


def test_a_graph_that_was_built_and_one_that_was_differentiated_are_legal(g, loss):
    ag.gradients(loss, g.parameters)
    g.check()
    g.subgraph(loss).check()
    join([loss], g.parameters, Mode("backward", (loss,))).check()


def test_a_node_before_its_input_is_named(g, loss):
    with pytest.raises(GraphError, match="<sum.* comes before its input <multiply"):
        check_nodes([loss], g.inputs)


def test_a_node_that_stands_twice_is_named(x):
    with pytest.raises(GraphError, match="<x: .* occurs in the order twice"):
        check_nodes([x, x])


@pytest.mark.parametrize("wrong", [Tensor.of("float32", ()), Tensor.of("float64", (1,))])
def test_a_node_of_another_type_than_its_op_infers_is_named(g, loss, wrong):
    object.__setattr__(loss, "type", wrong)
    with pytest.raises(GraphError, match=r"has the type .*, its op 'sum' float64\[\]"):
        g.check()


def test_a_node_whose_op_refuses_its_inputs_is_named(g, x, loss):
    object.__setattr__(x, "type", Tensor.of("float32", (3,)))
    with pytest.raises(GraphError, match="does not fit its inputs: GraphTypeError"):
        g.check()
