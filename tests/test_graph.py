"""Graphs: leaves, names, queries, copies, size, and what nodes refuse."""

import inspect
import sys

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError
from tests._evaluate import evaluate
from tests._soak import SOAK


@pytest.fixture
def g():
    return ag.Graph("net")


def diamond(g):
    r"""Build::

          x
         / \
      left right
         \ /
          y
    """
    x = g.input("x", (3,), "float64")
    left, right = ag.ops.exp(x).named("left"), ag.ops.tanh(x).named("right")
    return x, left, right, (left + right).named("y")


# -- leaves -----------------------------------------------------------------------------------


def test_an_input_has_the_shape_that_the_user_wrote(g):
    x = g.input("x", shape=("batch", 3, None), dtype="int8")
    assert (x.name, x.shape, x.dtype, x.ndim) == ("x", ("batch", 3, None), np.int8, 3)
    assert str(x.type) == "int8[batch, 3, ?]"
    assert repr(x) == "<x: int8[batch, 3, ?]>"
    assert x.is_leaf
    assert x.inputs == ()


def test_a_parameter_copies_its_array(g):
    array = np.ones((2, 3), "float32")
    w = g.parameter("w", array)
    array[:] = 7
    assert np.array_equal(w.value, np.ones((2, 3)))
    assert w.dtype == "float32"


def test_a_parameters_value_is_set_in_place_and_by_assignment(g):
    w = g.parameter("w", np.ones(3))
    new = np.arange(3.0)
    w.value = new
    new[:] = 9
    w.value[0] = 5
    assert np.array_equal(w.value, [5, 1, 2])


def test_a_parameter_that_a_run_reads_is_switched_to_a_second_array(g):
    w = g.parameter("w", np.ones(3))
    read = w.held.array
    w.value = np.zeros(3)
    assert np.array_equal(read, [1, 1, 1])
    assert np.array_equal(w.value, [0, 0, 0])


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.ones(3), GraphTypeError, r"'w' is float32, got float64; .*\.astype\('float32'\)"),
        (np.ones(4, "float32"), ShapeError, r"'w' has shape \(3,\), got \(4,\)"),
        (np.ones((), "float32"), ShapeError, r"got \(\)"),
    ],
)
def test_a_parameter_keeps_its_shape_and_dtype(g, value, error, text):
    w = g.parameter("w", np.ones(3, "float32"))
    with pytest.raises(error, match=text):
        w.value = value
    assert np.array_equal(w.value, np.ones(3))


def test_a_constant_is_a_copy_that_nobody_can_write(g):
    array = np.ones(3)
    c = g.constant(array)
    array[:] = 7
    assert np.array_equal(c.attrs["value"], np.ones(3))
    with pytest.raises(ValueError, match="read-only"):
        c.attrs["value"][0] = 2


@pytest.mark.parametrize(("value", "dtype"), [(300, "int8"), (1.5, "int64"), (1j, "float32")])
def test_a_constant_never_loses_its_value_to_a_dtype(g, value, dtype):
    with pytest.raises(GraphTypeError, match=f"constant: .*{dtype}"):
        g.constant(value, dtype=dtype)
    assert len(g) == 0


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.array([object()]), GraphTypeError, "object is not supported"),
        (np.ma.masked_array([1.0], [True]), FeedError, r"masked array.*\.filled"),
        (np.array(["a"]), GraphTypeError, "is not supported"),
    ],
)
def test_what_no_graph_can_hold_is_refused(g, value, error, text):
    for add in (g.constant, lambda value: g.parameter("w", value)):
        with pytest.raises(error, match=text):
            add(value)
    assert len(g) == 0


# -- names ------------------------------------------------------------------------------------


def test_nodes_are_found_by_name(g):
    x, left, _, y = diamond(g)
    product = x * y
    assert g["x"] is x
    assert g.node("left") is left
    assert product.name == f"multiply_{product.id}"
    assert g[product.name] is product


def test_an_unknown_name_suggests_near_ones(g):
    g.parameter("weight", np.ones(3))
    with pytest.raises(KeyError, match="'net' has no node 'wieght'; did you mean 'weight'"):
        g["wieght"]
    with pytest.raises(KeyError, match="no node 'zzz'"):
        g["zzz"]
    with pytest.raises(KeyError, match="no node 0"):
        g[0]


@pytest.mark.parametrize("name", ["x", "exp_1", "left"])
def test_a_name_is_given_once(g, name):
    x = g.input("x", (3,))
    ag.ops.exp(x)
    (x + x).named("left")
    size = len(g)
    for take in (
        lambda: g.input(name),
        lambda: g.parameter(name, np.ones(3)),
        lambda: g.constant(1.0, name=name),
        lambda: (x * x).named(name),
    ):
        with pytest.raises(GraphError, match=f"the name '{name}' is taken by"):
            take()
    assert {node.name for node in g.inputs + g.parameters} == {"x"}
    assert len(g) <= size + 2  # The constant and the product, which bear no name.


def test_an_equal_constant_keeps_its_name(g):
    one = g.constant(1.0, name="one")
    assert g.constant(1.0) is g.constant(1.0, name="one") is one
    with pytest.raises(GraphError, match="has a name already"):
        g.constant(1.0, name="unit")


def test_a_node_is_named_once(g):
    x = g.input("x")
    assert x.named("x") is x
    with pytest.raises(GraphError, match="has a name already"):
        x.named("y")


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_leaf_needs_a_name(g, name):
    with pytest.raises(GraphError, match="an input needs a name"):
        g.input(name)


def test_an_automatic_name_gives_way_to_a_name_that_the_user_took_first(g):
    g.input("exp_1", (3,))
    y = ag.ops.exp(g["exp_1"])
    assert y.id == 1
    assert y.name == "exp_1_"
    assert g["exp_1_"] is y


def test_unnamed_inputs_do_not_exist_so_that_they_cannot_merge(g):
    """Regression: Gorgonia merges two variables without names (issue 492)."""
    assert g.input("a", (3,)) is not g.input("b", (3,))


# -- queries ----------------------------------------------------------------------------------


def test_a_graph_answers_who_feeds_whom_in_which_order(g):
    x, left, right, y = diamond(g)
    w = g.parameter("w", np.ones(3))
    z = y * w
    assert g.inputs == (x,)
    assert g.parameters == (w,)
    assert g.roots == (z,)
    assert g.consumers(x) == (left, right)
    assert g.consumers(z) == ()
    assert g.nodes == tuple(g) == (x, left, right, y, w, z)
    assert g.topological_order(y) == (x, left, right, y)
    assert g.topological_order([left, w]) == (x, left, w)
    assert len(g) == 6
    assert repr(g) == "<Graph 'net' of 6 nodes>"


def test_a_graph_knows_whether_a_node_or_a_name_is_in_it(g):
    x, *_ = diamond(g)
    assert x in g
    assert "left" in g
    assert "up" not in g
    assert ag.Graph().input("x") not in g
    assert 3 not in g


def test_a_node_consumed_twice_by_one_node_has_one_consumer(g):
    x = g.input("x")
    assert g.consumers(x) == ()
    y = x * x
    assert g.consumers(x) == (y,)


def test_a_foreign_node_names_both_graphs(g):
    x, other = g.input("x"), ag.Graph("other").input("z")
    for use in (
        lambda: x + other,
        lambda: g.consumers(other),
        lambda: g.topological_order(other),
        lambda: g.subgraph([other]),
        lambda: ag.gradients(x, other),
        lambda: ag.ops.concatenate([x, other]),
    ):
        with pytest.raises(GraphError, match="<z.*> belongs to graph 'other', not to 'net'"):
            use()


def test_a_graph_that_was_built_twice_is_told_apart(g):
    with pytest.raises(GraphError, match="another graph that is also named 'net' .built a second"):
        g.input("x", shape=(2,)) + ag.Graph("net").input("x", shape=(2,))


@pytest.mark.parametrize(("operand", "what"), [(None, "NoneType None"), ("a", "str 'a'")])
def test_an_operand_that_is_no_array_is_named(g, operand, what):
    with pytest.raises(GraphTypeError, match=f"multiply: an operand is the {what}"):
        g.input("x") * operand


def test_a_node_is_formatted_as_text_only(g):
    x = g.input("x")
    assert f"{x}" == repr(x)
    assert f"{x:>40}" == f"{x!r:>40}"
    with pytest.raises(GraphTypeError, match="no value outside a run"):
        f"{x:.3f}"


def test_what_is_no_node_is_named(g):
    with pytest.raises(GraphTypeError, match="expected a node, a list or a dict of nodes, got 3"):
        g.topological_order(3)
    with pytest.raises(GraphTypeError, match="expected a node, got str 'x'"):
        g.topological_order(["x"])


# -- copies -----------------------------------------------------------------------------------


def test_a_subgraph_holds_what_its_outputs_need_under_the_same_names(g):
    x, left, _, _ = diamond(g)
    w = g.parameter("w", np.ones(3))
    z = left * w + 1.0
    part = g.subgraph([z])
    assert {node.name for node in part} == {node.name for node in g.topological_order(z)}
    assert part is not g
    assert "right" not in part
    assert part[z.name].type == z.type
    assert part[z.name].line == z.line
    value = np.arange(3.0)
    assert np.array_equal(evaluate(part[z.name], {part["x"]: value})[0], evaluate(z, {x: value})[0])


def test_a_clone_shares_nothing_and_goes_on_merging(g):
    y = diamond(g)[-1]
    w = g.parameter("w", np.ones(3))
    c = g.constant([1.0, 2.0, 3.0])
    copy = g.clone()
    copy["w"].value = np.zeros(3)
    copy["x"] * 2
    assert len(g) == 6
    assert np.array_equal(w.value, np.ones(3))
    assert copy["left"] + copy["right"] is copy["y"]
    assert copy.constant([1.0, 2.0, 3.0]) is copy[c.name]
    assert [node.name for node in copy.parameters] == ["w"]
    assert y.graph is g


def test_names_stay_unique_in_a_subgraph_whose_numbers_moved(g):
    x = g.input("x", (3,))
    for i in range(5):
        ag.ops.exp(x * float(i))
    last = ag.ops.exp(ag.ops.exp(x))
    part = g.subgraph(last)
    for _ in range(len(g)):
        last = ag.ops.exp(part.nodes[-1])
    names = [node.name for node in part]
    assert len(set(names)) == len(names)
    assert all(part[node.name] is node for node in part)


# -- size -------------------------------------------------------------------------------------


DEPTH = 100_000 if SOAK else 20_000


def test_a_graph_may_be_deeper_than_python_recurses(g):
    x = g.input("x", (), "float64")
    y = x
    for _ in range(DEPTH):
        y = ag.ops.neg(y)
    (dx,) = ag.gradients(y, [x])
    assert sys.getrecursionlimit() < DEPTH
    assert g.topological_order(dx)[-1] is dx
    assert len(g.subgraph(y)) == DEPTH + 1


def test_a_graph_of_many_branches_is_built_and_differentiated(g):
    width = DEPTH // 4
    x = g.input("x", (2,), "float64")
    level = [x * float(i) for i in range(width)]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [a + b for a, b in pairs] + level[len(level) // 2 * 2 :]
    (dx,) = ag.gradients(level[0].sum(), [x])
    assert len(g) > DEPTH
    assert evaluate(dx, {x: np.ones(2)})[0].tolist() == [width * (width - 1) / 2] * 2


# -- the user's line --------------------------------------------------------------------------


def here():
    return inspect.currentframe().f_back.f_lineno


def test_every_node_remembers_the_line_that_built_it(g):
    x, line = g.input("x", (3, 3), "float64"), here()
    nodes = [x]
    nodes += [g.parameter("w", np.ones(3)), g.constant(2.0), ag.ops.exp(x), x + x, np.tanh(x)]
    nodes += [x @ x, x[0], x.T, x.sum(), ag.ops.concatenate([x, x])]
    number = line
    for node in nodes:
        assert number <= node.line[1] <= line + 3
        assert node.line[0] == __file__
        assert node.where_built() == (
            f"{__file__}:{node.line[1]} in test_every_node_remembers_the_line_that_built_it"
        )


def test_nodes_of_a_backward_pass_bear_the_line_that_asked_for_it(g):
    x = g.input("x", (3,), "float64")
    y = (ag.ops.exp(x) * x).sum()
    before = len(g)
    grads, line = ag.gradients(y, [x]), here()
    assert len(g) > before + 2
    assert {node.line for node in g.nodes[before:]} == {(__file__, line, grads[0].line[2])}
    assert grads[0].line[2] == inspect.currentframe().f_code.co_name


def test_an_error_leaves_the_graph_as_it_was(g):
    x, y = g.input("x", (3,)), g.input("y", (4,))
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(4,\) do not fit.*got <x.*<y"):
        x + y
    assert len(g) == 2


# -- what nodes refuse ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (bool, "truth value of <x.*> is known only in a run.*where.*'is'"),
        (len, r"len\(\) of <x.*use node.shape\[0\]"),
        (lambda node: next(iter(node)), "cannot be iterated; index it"),
        (np.roots, "docs/numpy.md"),
        (list, "cannot be iterated"),
        (float, "no value outside a run"),
        (int, "no value outside a run"),
        (complex, "no value outside a run"),
        (range, "no value outside a run"),
        (np.asarray, "no value outside a run; run a machine"),
        (lambda x: 3 in x, "'in' on <x"),
        (lambda x: x < 1 < 2 and x, "truth value"),
    ],
)
def test_what_needs_a_value_says_the_way_out(g, use, text):
    with pytest.raises(GraphTypeError, match=text):
        use(g.input("x", (3,)))


@pytest.mark.parametrize("name", ["op", "inputs", "attrs", "type", "name", "shape", "new"])
def test_nodes_are_immutable(g, name):
    x = ag.ops.exp(g.input("x", (3,)))
    with pytest.raises(AttributeError, match=f"{name}"):
        setattr(x, name, None)
    with pytest.raises(AttributeError, match=f"{name}"):
        delattr(x, name)


def test_an_attribute_that_a_node_has_not_is_answered_with_near_ones_of_any_letters(g):
    x = g.input("x", shape=(2, 3))
    for name, near in (("t", "'T' or 'mT'"), ("TT", "'T'"), ("transposed", "'transpose'")):
        with pytest.raises(AttributeError, match=f"a node has no '{name}': did you mean {near}"):
            getattr(x, name)


def test_a_node_stays_of_the_class_that_refuses_to_be_written(g):
    leaves = [g.input("x", (3,)), g.parameter("w", np.ones(3)), g.buffer("b", np.ones(3))]
    for node in [*leaves, leaves[0] + 1.0]:
        with pytest.raises(AttributeError, match="nodes are immutable; cannot set '__class__'"):
            node.__class__ = type(node).__mro__[-2]
        with pytest.raises(AttributeError, match="nodes are immutable; cannot set 'op'"):
            node.op = None


def test_attributes_of_a_node_are_read_only(g):
    node = g.input("x", (3, 4)).sum(0)
    with pytest.raises(TypeError, match="does not support item assignment"):
        node.attrs["axis"] = (1,)


def test_nodes_may_be_keys_because_their_hash_is_identity(g):
    x, y = g.input("x"), g.input("y")
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2
