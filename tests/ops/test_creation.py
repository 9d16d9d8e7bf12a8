"""Arrays out of numbers: constants where sizes are known, symbols bound by the run."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.machines import LispMachine
from tests._each import each
from tests._evaluate import evaluate

ops = ag.ops

KNOWN = {
    "zeros": (lambda g: ops.zeros(g, (2, 3)), np.zeros((2, 3), "float32")),
    "ones of ints": (lambda g: ops.ones(g, 3, "int8"), np.ones(3, "int8")),
    "full": (lambda g: ops.full(g, (2,), 1.5), np.full(2, 1.5, "float32")),
    "full of an int": (lambda g: ops.full(g, (2,), 7), np.full(2, 7, "int64")),
    "full of a bool": (lambda g: ops.full(g, (2,), True), np.full(2, True)),
    "full of an array": (
        lambda g: ops.full(g, (2, 3), np.arange(3.0)),
        np.full((2, 3), np.arange(3.0)),
    ),
    "full scalar": (lambda g: ops.full(g, (), 2, "float64"), np.full((), 2.0)),
    "arange": (lambda g: ops.arange(g, 5), np.arange(5)),
    "arange of floats": (lambda g: ops.arange(g, 0, 1, 0.25), np.arange(0, 1, 0.25, "float32")),
    "arange down": (lambda g: ops.arange(g, 5, 0, -2), np.arange(5, 0, -2)),
    "arange of nothing": (lambda g: ops.arange(g, 3, 1), np.arange(3, 1)),
    "arange in float64": (lambda g: ops.arange(g, 3, dtype="float64"), np.arange(3.0)),
    "linspace": (lambda g: ops.linspace(g, 0, 1, 5, dtype="float64"), np.linspace(0, 1, 5)),
    "linspace without end": (
        lambda g: ops.linspace(g, 1.0, 3.0, 4, endpoint=False, dtype="float64"),
        np.linspace(1, 3, 4, endpoint=False),
    ),
    "linspace of one": (lambda g: ops.linspace(g, 2, 3, 1), np.linspace(2, 3, 1, dtype="float32")),
    "eye": (lambda g: ops.eye(g, 3), np.eye(3, dtype="float32")),
    "eye off the diagonal": (lambda g: ops.eye(g, 2, 4, 1, "int64"), np.eye(2, 4, 1, "int64")),
}


@each("name", KNOWN)
def test_known_sizes_give_the_array_of_numpy(name):
    call, wanted = KNOWN[name]
    g = ag.Graph()
    node = call(g)
    (value,) = evaluate(node, {})
    assert node.shape == value.shape == wanted.shape
    assert node.dtype == value.dtype == wanted.dtype
    np.testing.assert_array_equal(value, wanted)
    assert call(g) is node
    x = g.input("x", (2,))
    assert call(x) is node, "a node stands for its graph"


@each(
    ("start", "stop", "step"),
    [
        (0, "n", 1),
        (2, "n", 3),
        (-1, "n", 2),
        ("n", 0, -1),
        ("n", -3, -2),
        ("n", "m", 1),
        (7, "n", 1),
    ],
)
@each("n", [0, 1, 5])
def test_arange_of_symbols_is_that_of_numpy(start, stop, step, n):
    g = ag.Graph()
    x = g.input("x", ("n", "m"), "float32")
    y = ops.arange(g, start, stop, step)
    with LispMachine([y, x.sum()]) as machine:
        value = machine.run_sync({"x": np.zeros((n, 4), "float32")})[y].value
    sizes = {"n": n, "m": 4}
    np.testing.assert_array_equal(
        value, np.arange(sizes.get(start, start), sizes.get(stop, stop), step)
    )


def test_creation_takes_symbols_as_sizes():
    g = ag.Graph()
    x = g.input("x", ("n", 3), "float64")
    nodes = [
        ops.arange(g, "n"), ops.arange(g, x.shape[0] + 1, dtype="float64"), ops.eye(g, "n"),
        ops.eye(g, "n", 3, -1, "float64"), ops.zeros(g, ("n", 2)), ops.ones(x, (x.shape[0], 2)),
        ops.linspace(g, 0.0, 1.0, "n"),
    ]  # fmt: skip
    wanted = [np.arange(4), np.arange(5.0), np.eye(4), np.eye(4, 3, -1), np.zeros((4, 2)),
              np.ones((4, 2)), np.linspace(0, 1, 4, dtype="float32")]  # fmt: skip
    with LispMachine([*nodes, x.sum()]) as machine:
        run = machine.run_sync({"x": np.zeros((4, 3))})
        for node, want in zip(nodes, wanted, strict=True):
            np.testing.assert_array_equal(run[node].value, want)
    assert nodes[1].shape == (x.shape[0] + 1,)


@pytest.mark.parametrize("shape", [(2, 3), ("a", 3), (None, 3)], ids=str)
def test_what_is_like_a_node_has_its_shape(shape):
    x = ag.Graph().input("x", shape, "float32")
    nodes = [
        ops.zeros_like(x),
        ops.ones_like(x, "int64"),
        ops.full_like(x, 2.5),
        ops.full_like(x, x[0]),
    ]
    got = evaluate(nodes, {x: np.arange(6, dtype="float32").reshape(2, 3)})
    wanted = [np.zeros((2, 3)), np.ones((2, 3)), np.full((2, 3), 2.5), [[0, 1, 2]] * 2]
    for node, value, want in zip(nodes, got, wanted, strict=True):
        np.testing.assert_array_equal(value, want)
        assert value.dtype == node.dtype
    assert nodes[1].dtype == "int64"


def test_ends_and_fill_values_that_are_nodes_get_gradients():
    g = ag.Graph()
    a, b = g.input("a", (), "float64"), g.input("b", (), "float64")
    y = ops.linspace(g, a, b, 5)
    z = ops.full(g, (2, 2), a)
    weights = np.arange(5.0)
    da, db = ag.gradients((y * weights).sum() + z.sum(), [a, b])
    got = evaluate([y, da, db], {a: np.array(1.0), b: np.array(3.0)})
    np.testing.assert_array_equal(got[0], np.linspace(1, 3, 5))
    assert got[1] == (weights * np.linspace(1, 0, 5)).sum() + 4
    assert got[2] == (weights * np.linspace(0, 1, 5)).sum()


def test_logspace_is_that_of_numpy():
    y = ag.ops.logspace(ag.Graph(), -1, 2, 7, base=3, dtype="float64")
    (value,) = evaluate([y], {})
    np.testing.assert_allclose(value, np.logspace(-1, 2, 7, base=3), rtol=1e-14)


@each("indexing", ["xy", "ij"])
@each("shapes", [((2,), (3,), (4,)), (("a",), ("b",), (4,)), ((None,), (3,), (None,))])
def test_meshgrid_is_that_of_numpy(indexing, shapes):
    g = ag.Graph()
    xs = [g.input(f"x{i}", shape, "float64") for i, shape in enumerate(shapes)]
    values = [np.arange(float(size)) for size in (2, 3, 4)]
    feeds = dict(zip(xs, values, strict=True))
    nodes = ops.meshgrid(*xs, indexing=indexing)
    gradients = ag.gradients(sum((node * node).sum() for node in nodes), xs)
    wanted = np.meshgrid(*values, indexing=indexing)
    for value, want in zip(evaluate(nodes, feeds), wanted, strict=True):
        np.testing.assert_array_equal(value, want)
    for gradient, value in zip(evaluate(gradients, feeds), values, strict=True):
        np.testing.assert_array_equal(gradient, 2 * value * (24 // len(value)))


def test_meshgrid_takes_one_array_and_scalars():
    g = ag.Graph()
    x, s = g.input("x", (3,), "float64"), g.input("s", (), "float64")
    assert [node.shape for node in ops.meshgrid(x)] == [(3,)]
    assert [node.shape for node in ops.meshgrid(x, s)] == [(1, 3), (1, 3)]


@each(
    ("call", "error", "text"),
    [
        (lambda g: ops.zeros((2, 3), "float32"), GraphTypeError, "zeros|full takes a graph"),
        (lambda g: ops.arange(5), (GraphTypeError, TypeError), "a graph|it takes graph"),
        (lambda g: ops.arange(g, 0, 3, 0), GraphTypeError, "a number other than 0"),
        (lambda g: ops.arange(g, 0.5, "n"), GraphTypeError, "an int next to dims"),
        (lambda g: ops.arange(g, [3]), GraphTypeError, "neither a number nor a dim"),
        (lambda g: ops.full(g, (None,), 1), ShapeError, "every dim has to be an int or a symbol"),
        (lambda g: ops.full(g, (2,), 1.5, "int8"), GraphTypeError, "would change as int8"),
        (lambda g: ops.full(g, (2,), np.zeros(3)), ShapeError, "broadcast|do not fit"),
        (lambda g: ops.linspace(g, 0, 1, None), ShapeError, "num has to be"),
        (lambda g: ops.linspace(g, 0, 1, -2), ShapeError, "got -2"),
        (lambda g: ops.linspace(g, 0, 1, 3, dtype="int64"), GraphTypeError, "int64 is not float"),
        (lambda g: ops.eye(g, None), ShapeError, "eye: sizes have to be"),
        (lambda g: ops.meshgrid(), GraphTypeError, "at least one node"),
        (lambda g: ops.meshgrid(g.input("x", (2, 2))), ShapeError, "one dim at most"),
        (lambda g: ops.meshgrid(g.input("x", (2,)), indexing="yx"), GraphTypeError, "'yx'"),
        (lambda g: ops.full(g, (2,), ag.Graph("other").input("x")), GraphError, "belongs to graph"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_built(call, error, text):
    with pytest.raises(error, match=text):
        call(ag.Graph())
