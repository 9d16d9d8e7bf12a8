"""einsum, tensordot, kron, vecdot, bmm: values against NumPy, gradients against PyTorch."""

import builtins

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._each import each
from tests._evaluate import evaluate

SUBSCRIPTS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 2, 5)),
    ("bijk,bkjl->bil", (2, 3, 4, 5), (2, 5, 4, 3)),
    ("abij,bjck->acbik", (2, 3, 4, 5), (3, 5, 2, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...i,...i->...", (2, 3), (1, 3)),
    ("i...,j...->...ij", (2, 3), (4, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,j->ji", (2,), (3,)),
    ("i,i", (3,), (3,)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,k->k", (2, 3), (4,)),
    (",ij->ij", (), (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("iijj->ij", (2, 2, 3, 3)),
    ("...ii->...i", (2, 3, 3)),
    ("ij->ji", (2, 3)),
    ("ba", (2, 3)),
    ("ij->", (2, 3)),
    ("ii,ij->j", (3, 3), (3, 2)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("ij,jk,kl", (2, 3), (3, 4), (4, 2)),
    ("i,ij,j->", (2,), (2, 3), (3,)),
    ("ab,bc,cd,da->", (2, 3), (3, 2), (2, 4), (4, 2)),
    ("abc,bd,ce,df->aef", (2, 3, 4), (3, 2), (4, 3), (2, 2)),
    ("ij,jk->ik", (0, 3), (3, 4)),
    ("ij,jk->ik", (2, 0), (0, 4)),
    ("ij,jk->ik", (2, 1), (3, 4)),
]


def arrays(*shapes, dtype="float64"):
    rng = np.random.default_rng(len(shapes))
    values = [rng.standard_normal(shape) for shape in shapes]
    if np.dtype(dtype).kind == "c":
        values = [value + 1j * rng.standard_normal(value.shape) for value in values]
    return [(4 * value if dtype == "int64" else value).astype(dtype) for value in values]


def inputs(graph, values, dims=None):
    return [
        graph.input(f"x{i}", value.shape if dims is None else dims[i], value.dtype)
        for i, value in enumerate(values)
    ]


def pushed(y, xs, values):
    """The tangents of y along each x, by the values themselves."""
    graph = y.graph
    return [tangents([y], {x: graph.constant(v)})[0] for x, v in zip(xs, values, strict=True)]


@each("case", SUBSCRIPTS)
@each("dtype", ["float64", "float32", "int64", "complex128"])
@each("optimize", [False, True])
def test_einsum_equals_numpy(case, dtype, optimize):
    subscripts, *shapes = case
    values = arrays(*shapes, dtype=dtype)
    xs = inputs(ag.Graph(), values)
    y = ag.ops.einsum(subscripts, *xs, optimize=optimize)
    (result,) = evaluate(y, dict(zip(xs, values, strict=True)))
    wanted = np.einsum(subscripts, *values)
    assert y.shape == result.shape == wanted.shape
    assert y.dtype == result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-4 if dtype == "float32" else 1e-12)


@each("case", SUBSCRIPTS)
def test_einsum_is_linear_in_each_operand_forward_and_reverse(case):
    subscripts, *shapes = case
    values = arrays(*shapes, dtype="complex128")
    xs = inputs(ag.Graph(), values)
    y = ag.ops.einsum(subscripts, *xs)
    (ct,) = arrays(y.shape, dtype="complex128")
    nodes = [*pushed(y, xs, values), *ag.gradients([y], xs, seeds=[ct])]
    results = evaluate([y, *nodes], dict(zip(xs, values, strict=True)))
    for tangent in results[1 : 1 + len(xs)]:
        np.testing.assert_allclose(tangent, results[0], rtol=1e-12)
    for value, gradient in zip(values, results[1 + len(xs) :], strict=True):
        assert gradient.shape == value.shape
        got, wanted = np.vdot(gradient, value), np.vdot(ct, results[0])
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)


@each("unknown", [False, True])
@each("case", SUBSCRIPTS)
def test_einsum_takes_symbols_and_dims_that_only_the_run_knows(case, unknown):
    subscripts, *shapes = case
    values = arrays(*shapes)
    names = {2: "two", 3: "three", 4: "four", 5: "five"}
    dims = [tuple(None if unknown and d > 1 else names.get(d, d) for d in s) for s in shapes]
    xs = inputs(ag.Graph(), values, dims)
    y = ag.ops.einsum(subscripts, *xs)
    wanted = np.einsum(subscripts, *values)
    gradients = ag.gradients([y], xs, seeds=[ag.ops.zeros_like(y) + 1])
    results = evaluate([y, *gradients], dict(zip(xs, values, strict=True)))
    np.testing.assert_allclose(results[0], wanted, rtol=1e-12)
    for value, gradient in zip(values, results[1:], strict=True):
        assert gradient.shape == value.shape
        np.testing.assert_allclose(np.sum(gradient * value), wanted.sum(), rtol=1e-9, atol=1e-9)


def test_einsum_of_attention_makes_one_batched_product():
    g = ag.Graph()
    q, k = g.input("q", ("batch", "time", 8, 16)), g.input("k", ("batch", "time", 8, 16))
    y = ag.ops.einsum("bihd,bjhd->bhij", q, k)
    assert y.shape == ("batch", 8, "time", "time")
    assert [node.op.name for node in g if node.inputs] == ["transpose", "transpose", "matmul"]


def test_einsum_contracts_from_left_to_right_without_opt_einsum(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **more):
        if name == "opt_einsum":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    values = arrays((2, 3), (3, 4), (4, 2))
    xs = inputs(ag.Graph(), values)
    y = ag.ops.einsum("ij,jk,kl->il", *xs)
    assert y.inputs[0].inputs == (xs[0], xs[1])
    (result,) = evaluate(y, dict(zip(xs, values, strict=True)))
    np.testing.assert_allclose(result, np.linalg.multi_dot(values))
    with pytest.raises(GraphTypeError, match=r"'optimal' needs opt_einsum; pip install actorgraph"):
        ag.ops.einsum("ij,jk,kl->il", *xs, optimize="optimal")


def test_einsum_takes_the_cheaper_order_of_opt_einsum():
    pytest.importorskip("opt_einsum")
    g = ag.Graph()
    a, b, c = g.input("a", (50, 50)), g.input("b", (50, 50)), g.input("c", (50,))
    y = ag.ops.einsum("ij,jk,k->i", a, b, c, optimize="optimal")
    assert [node.shape for node in g if node.op.name == "matmul"] == [(50, 1), (50, 1)]
    assert y.shape == (50,)


@each(
    "subscripts, shapes, error, text",
    [
        ("ij,jk->ik", [(2, 3)], GraphTypeError, "names 2 operands, got 1"),
        ("ijk->i", [(2, 3)], GraphTypeError, "names 3 dims of an operand of 2"),
        ("i->i", [(2, 3)], GraphTypeError, "names 1 dims of an operand of 2"),
        ("ij->k", [(2, 3)], GraphTypeError, "no operand has the label 'k'"),
        ("ij->ii", [(2, 3)], GraphTypeError, "names a label twice"),
        ("i1->i", [(2, 3)], GraphTypeError, "cannot read 'i1'.*labels are letters"),
        ("ij,jk->ik", [(2, 3), (4, 5)], ShapeError, "label 'j' do not fit: 3 and 4"),
        ("ii->i", [(2, 3)], ShapeError, "label 'i' do not fit: 2 and 3"),
        (3, [(2, 3)], GraphTypeError, "subscripts are a str"),
    ],
)
def test_einsum_names_what_does_not_fit(subscripts, shapes, error, text):
    xs = inputs(ag.Graph(), arrays(*shapes))
    with pytest.raises(error, match=text):
        ag.ops.einsum(subscripts, *xs)


def test_einsum_of_arrays_alone_and_of_bools_says_what_to_do():
    with pytest.raises(GraphTypeError, match="at least one node.*use NumPy"):
        ag.ops.einsum("i->i", np.ones(3))
    x = ag.Graph().input("x", (3,), "bool")
    with pytest.raises(GraphTypeError, match="is not a number"):
        ag.ops.einsum("i,i->i", x, x)


# -- tensordot, kron, vecdot, bmm -------------------------------------------------------------

TENSORDOT = [
    ((2, 3, 4), (4, 3, 5), ([1, 2], [1, 0])),
    ((2, 3, 4), (3, 4, 5), 2),
    ((2, 3), (4, 5), 0),
    ((2, 3), (3, 2), ([-1, -2], [0, 1])),
    ((2, 3), (4, 2), (0, 1)),
    ((), (3,), 0),
]


@each("left, right, axes", TENSORDOT)
def test_tensordot_is_that_of_numpy(left, right, axes):
    values = arrays(left, right)
    x, y = inputs(ag.Graph(), values)
    (got,) = evaluate(ag.ops.tensordot(x, y, axes), {x: values[0], y: values[1]})
    np.testing.assert_allclose(got, np.tensordot(*values, axes), rtol=1e-12)


@each(
    "axes, text",
    [
        (([0, 1], [0]), "2 axes of the first operand cannot be paired with 1"),
        (([0, 0], [0, 1]), r"axes \(0, 0\) name a dim"),
        (([0, 5], [0, 1]), r"axis 5 is not an int in \[-3, 3\)"),
        (4, "4 pairs of axes do not fit"),
        ("ab", "axis has to be one int, got 'a'"),
        (1.5, "an int or a pair, got 1.5"),
        ((0, 2), "dims at axes 0 and 2 of the product do not fit: 2 and 4"),
    ],
)
def test_tensordot_refuses_duplicate_and_unequal_axes(axes, text):
    x = ag.Graph().input("x", (2, 3, 4))
    with pytest.raises(ShapeError, match=text):
        ag.ops.tensordot(x, x, axes)


@each(
    "left, right", [((2, 3), (4, 5)), ((2,), (3, 4)), ((), (3,)), ((2, 3, 2), (2,)), ((0,), (2,))]
)
@each("unknown", [False, True])
def test_kron_equals_numpy_and_is_bilinear(left, right, unknown):
    values = arrays(left, right, dtype="complex128")
    dims = [tuple(None for _ in value.shape) for value in values] if unknown else None
    x, y = inputs(ag.Graph(), values, dims)
    z = ag.ops.kron(x, y)
    wanted = np.kron(*values)
    weights = ag.ops.zeros_like(z) + 1
    feeds = {x: values[0], y: values[1]}
    got = evaluate(
        [z, *ag.gradients([z], [x, y], seeds=[weights]), *pushed(z, (x, y), values)], feeds
    )
    np.testing.assert_allclose(got[0], wanted, rtol=1e-12)
    assert [result.shape for result in got[1:3]] == [left, right]
    for value, gradient in zip(values, got[1:3], strict=True):
        np.testing.assert_allclose(np.vdot(gradient, value), wanted.sum(), rtol=1e-10)
    for tangent in got[3:]:
        np.testing.assert_allclose(tangent, wanted, rtol=1e-12)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_vecdot_equals_numpy_along_any_axis(axis):
    values = arrays((3, 3, 2), (3, 3, 2), dtype="complex128")
    x, y = inputs(ag.Graph(), values)
    got = evaluate([ag.ops.vecdot(x, y, axis)], {x: values[0], y: values[1]})
    np.testing.assert_allclose(got[0], np.vecdot(*values, axis=axis), rtol=1e-12)


def test_vecdot_of_vectors_of_different_lengths_is_refused():
    g = ag.Graph()
    with pytest.raises(ShapeError, match="vecdot.*do not fit: 3 and 4"):
        ag.ops.vecdot(g.input("x", (2, 3)), g.input("y", (2, 4)))


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_bmm_multiplies_transposes_as_views(transposed):
    left, right = arrays((2, 3, 4), (2, 4, 5))
    values = [v.swapaxes(1, 2) if t else v for v, t in zip((left, right), transposed, strict=True)]
    x, y = inputs(ag.Graph(), values)
    z = ag.ops.bmm(x, y, transpose_x=transposed[0], transpose_y=transposed[1])
    got = evaluate([z, *ag.gradients(z.sum(), [x, y])], {x: values[0], y: values[1]})
    assert {node.op.name for node in z.graph} >= {"matmul"}
    np.testing.assert_allclose(got[0], left @ right, rtol=1e-12)
    ones = np.ones((2, 3, 5))
    wanted = [ones @ right.swapaxes(1, 2), left.swapaxes(1, 2) @ ones]
    for mine, theirs, turn in zip(got[1:], wanted, transposed, strict=True):
        np.testing.assert_allclose(mine, theirs.swapaxes(1, 2) if turn else theirs, rtol=1e-12)


def test_products_of_arrays_and_of_vectors_say_what_to_use():
    with pytest.raises(GraphTypeError, match="kron needs at least one node.*use NumPy"):
        ag.ops.kron(np.ones(2), np.ones(2))
    g = ag.Graph()
    with pytest.raises(ShapeError, match="bmm takes batches of matrices.*use matmul"):
        ag.ops.bmm(g.input("x", (3,)), g.input("y", (3, 2)))


def test_products_stand_behind_their_numpy_names():
    values = arrays((3, 3), (3, 3))
    x, y = inputs(ag.Graph(), values)
    feeds = {x: values[0], y: values[1]}
    calls = [
        lambda a, b: np.kron(a, b),
        lambda a, b: np.tensordot(a, b, axes=1),
        lambda a, b: np.einsum("ij,jk->ik", a, b),
        lambda a, b: np.einsum("ij,kj->ik", a, b, optimize=True),
        lambda a, b: np.vecdot(a, b),
        lambda a, b: np.linalg.vecdot(a, b, axis=0),
        lambda a, b: np.linalg.outer(a[0], b[0]),
        lambda a, b: np.linalg.matmul(a, b),
        lambda a, b: np.linalg.tensordot(a, b),
        lambda a, b: np.trace(a, 1),
        lambda a, b: np.diag(a, -1),
        lambda a, b: np.diag(a[0]),
        lambda a, b: np.diagflat(a[0], 1),
        lambda a, b: np.diagonal(a, offset=1, axis1=1, axis2=0),
        lambda a, b: np.tril(a, -1) + np.triu(b),
    ]
    for call in calls:
        (got,) = evaluate([call(x, y)], feeds)
        np.testing.assert_allclose(got, call(*values), rtol=1e-12)
    with pytest.raises(GraphTypeError, match=r"np\.einsum on nodes takes no out="):
        np.einsum("ij->ji", x, out=values[0])
