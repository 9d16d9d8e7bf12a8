"""Errors name what the user wrote: the function or operator, not an op that it is built of."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.errors import GraphTypeError, ShapeError


@pytest.fixture
def g():
    return ag.Graph()


@pytest.fixture
def nodes(g):
    kinds = {"i": "int64", "u": "uint8", "f": "float32"}
    return {name: g.input(name, (3,), kind) for name, kind in kinds.items()}


@pytest.mark.parametrize(
    "exponent", [-1, -2, -1.0, -0.5, np.int64(-3), np.array([1, -1, 2]), "constant"]
)
def test_a_negative_power_of_integers_names_power_and_astype(g, nodes, exponent):
    if isinstance(exponent, str):
        exponent = g.constant(np.array([2, 0, -1]))
    match = r"power: <i: int64\[3\]> is int64 and an exponent is negative.*\.astype\('float64'\)"
    with pytest.raises(GraphTypeError, match=match):
        nodes["i"] ** exponent
    with pytest.raises(GraphTypeError, match="power: .* an exponent is negative"):
        np.power(nodes["i"], exponent)


def test_other_powers_of_integers_are_built(nodes):
    assert (nodes["i"] ** 2).dtype == np.int64
    assert (nodes["u"] ** np.array([0, 1, 2], "uint8")).dtype == np.uint8
    assert (nodes["f"] ** -1).dtype == np.float32
    with pytest.raises(GraphTypeError, match="power: .* cannot hold the scalar 1j"):
        nodes["i"] ** 1j


def test_a_dim_that_does_not_split_evenly_says_the_sizes_to_give(nodes):
    match = (
        r"split: dim 3 at axis 0 of <f: float32\[3\]> cannot be split into 2 equal parts; give the "
        r"sizes of the parts, as split\(x, \[2, 1\], axis=0\)"
    )
    with pytest.raises(ShapeError, match=match):
        ops.split(nodes["f"], 2)
    with pytest.raises(ShapeError, match="split: dim 3 at axis 0 .* into 2 equal parts"):
        np.split(nodes["f"], 2)
    assert [part.shape for part in ops.split(nodes["f"], [2, 1], axis=0)] == [(2,), (1,)]


def test_sizes_that_do_not_add_up_are_counted(nodes):
    match = r"split: the sizes \[1, 1\] add up to 2, but dim at axis 0 of <f: .*> is 3; give sizes"
    with pytest.raises(ShapeError, match=match):
        ops.split(nodes["f"], [1, 1])
    with pytest.raises(ShapeError, match="split: a dim is a non-negative int.* got -1"):
        ops.split(nodes["f"], [4, -1])


def other(g, *shape, dtype="float32"):
    return g.input(f"other{len(g)}", shape, dtype)


WRONG = {
    "allclose": lambda f, g: ops.allclose(f, other(g, 4)),
    "bmm": lambda f, g: ops.bmm(other(g, 2, 3), other(g, 4, 2)),
    "broadcast_like": lambda f, g: ops.broadcast_like(f, other(g, 4)),
    "clip_by_norm": lambda f, g: ops.clip_by_norm(f, other(g, 4)),
    "cholesky_solve": lambda f, g: ops.cholesky_solve(f, other(g, 2, 2)),
    "cond": lambda f, g: ops.cond(f),
    "copysign": lambda f, g: ops.copysign(f, other(g, 4)),
    "cosine_similarity": lambda f, g: ops.cosine_similarity(f, other(g, 4), axis=0),
    "dot": lambda f, g: np.dot(f, other(g, 4)),
    "full_like": lambda f, g: ops.full_like(f, other(g, 4)),
    "getitem": lambda f, g: f[other(g, 4, dtype="bool")],
    "hfft": lambda f, g: ops.hfft(other(g, 1)),
    "householder_product": lambda f, g: ops.householder_product(f, f),
    "i0": lambda f, g: ops.i0(other(g, dtype="int64")),
    "index_put": lambda f, g: ops.index_put(f, other(g, 2, dtype="int64"), other(g, 4)),
    "lstsq": lambda f, g: ops.lstsq(other(g, 3, 2), other(g, 4)),
    "lu_solve": lambda f, g: ops.lu_solve(ops.lu_factor(other(g, 2, 2)), f),
    "multi_dot": lambda f, g: ops.multi_dot([f, other(g, 4, 2)]),
    "nll_loss": lambda f, g: ops.nll_loss(other(g), other(g, dtype="int64")),
    "permute": lambda f, g: ops.permute(f, 0, 1),
    "pick_neg_log_sigmoid": lambda f, g: ops.pick_neg_log_sigmoid(other(g), np.array(0)),
    "put": lambda f, g: ops.put(f, np.array([0, 1]), other(g, 4)),
    "rfftn": lambda f, g: ops.rfftn(other(g, 0, 2)),
    "scaled_dot_product_attention": lambda f, g: ops.scaled_dot_product_attention(
        other(g, 3, 4), other(g, 3, 4), other(g, 5, 7)
    ),
    "take": lambda f, g: ops.take(f, other(g, 2, 2, dtype="bool")),
    "tensorsolve": lambda f, g: ops.tensorsolve(other(g, 3, 2), f),
    "triplet_margin_loss": lambda f, g: ops.triplet_margin_loss(other(g, 2), other(g, 4), f),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_is_built_of_ops_names_itself_first(g, nodes, name):
    with pytest.raises((ShapeError, GraphTypeError), match=f"^{name}[: ]") as caught:
        WRONG[name](nodes["f"], g)
    assert not str(caught.value).startswith(f"{name}: {name}")


def test_the_similarity_of_integers_says_what_to_do(nodes):
    with pytest.raises(GraphTypeError, match=r"cosine_similarity: int64 is not a float.*\.astype"):
        ops.cosine_similarity(nodes["i"], nodes["i"], axis=0)
