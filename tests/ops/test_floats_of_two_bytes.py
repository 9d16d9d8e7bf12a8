"""float16 and bfloat16: stored in two bytes, summed in float32, rounded once."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.errors import GraphTypeError
from actorgraph.op import REGISTRY
from actorgraph.types import dtype_of
from tests._each import each
from tests._evaluate import evaluate

SIZE = 3000
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
ZEROS = np.zeros(SIZE, "int64")


def grid(x):
    return x.reshape((2, -1))


def gradient(f):
    return lambda x: ag.gradients(f(x).sum(), [x])[0]


PRODUCTS = {
    "matmul": lambda x: ops.matmul(grid(x), grid(x).T),
    "matmul of vectors": lambda x: ops.matmul(x, x),
    "matmul by apply": lambda x: x.graph.apply(REGISTRY["matmul"], [x, x]),
    "dot": lambda x: ops.dot(x, x),
    "vecdot": lambda x: ops.vecdot(grid(x), grid(x)),
    "tensordot": lambda x: ops.tensordot(grid(x), grid(x), ((1,), (1,))),
    "einsum": lambda x: ops.einsum("ij,kj->ik", grid(x), grid(x)),
    "bmm": lambda x: ops.bmm(grid(x), grid(x), transpose_y=True),
    "conv1d": lambda x: ops.conv1d(x.reshape((1, 1, -1)), x.reshape((1, 1, -1))),
}
REDUCTIONS = {
    "sum": lambda x: x.sum(),
    "sum of an axis": lambda x: grid(x).sum(0),
    "mean": lambda x: x.mean(),
    "var": lambda x: x.var(),
    "std": lambda x: x.std(),
    "prod": lambda x: x[:9].prod(),
    "norm": lambda x: ops.norm(x),
    "norm of order 1": lambda x: ops.norm(x, 1),
    "norm of order 3": lambda x: ops.norm(x, 3),
    "logsumexp": lambda x: ops.logsumexp(x),
    "cumsum": lambda x: x.cumsum(),
    "cumprod": lambda x: x[:9].cumprod(),
    "softmax": lambda x: ops.softmax(x),
    "log_softmax": lambda x: ops.log_softmax(x),
    "cross_entropy": lambda x: ops.cross_entropy(grid(x), np.array([0, 3])),
    "sparsemax": lambda x: ops.sparsemax(x * 2),
    "avg_pool1d": lambda x: ops.avg_pool1d(x.reshape((1, 1, -1)), SIZE),
    "index_add": lambda x: ops.index_add(x[:1], 0, ZEROS, x),
    "gradient of broadcasting": gradient(lambda x: x[:1] + x),
    "gradient of an index that repeats": gradient(lambda x: x[ZEROS]),
    "gradient of embedding": gradient(lambda x: ops.embedding(ZEROS, x.reshape((-1, 1)))),
    "gradient of repeat": gradient(lambda x: ops.repeat(x[:1], SIZE)),
}
# Linear algebra asks for float32, see below, and what it is built of is not tried here.
LAPACK = {
    f"actorgraph.ops.{module}"
    for module in "decompositions inverses lu pseudo_inverse spectral".split()
}


def kind_of(name):
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    return dtype_of(name)


def errors(f, name, array):
    """Return the errors against the same in float64, in epsilons of the dtype."""
    found = []
    for dtype in (array.dtype, np.float64):
        x = ag.Graph().input("x", array.shape, dtype)
        y = f(x)
        (value,) = evaluate([y], {x: array.astype(dtype)})
        assert value.dtype == y.dtype == dtype
        found.append(value.astype(np.float64))
    got, wanted = found
    return np.abs(got - wanted) / np.maximum(np.abs(wanted), 1e-2) / EPSILON[name]


@each("name", EPSILON)
@each("what", [*PRODUCTS, *REDUCTIONS])
def test_products_and_reductions_round_once(what, name):
    f = {**PRODUCTS, **REDUCTIONS}[what]
    array = np.random.default_rng(0).uniform(0.25, 1, SIZE).astype(kind_of(name))
    assert errors(f, name, array).max() <= 1.01


@each("name", EPSILON)
@each("what", ["cholesky", "eigh", "inv", "pinv", "qr", "svd"])
def test_linear_algebra_asks_for_float32(what, name):
    x = ag.Graph().input("x", (3, 3), kind_of(name))
    with pytest.raises(GraphTypeError, match=rf"{what} takes float32.*with \.astype\('float32'\)"):
        getattr(ops, what)(x)


def draw(sample, kind):
    rng = np.random.default_rng(2)
    for i, shape in enumerate(sample.shapes):
        if i in sample.ints:
            yield rng.integers(0, sample.ints[i], shape)
        elif i in sample.bools:
            yield rng.integers(0, 2, shape).astype(bool)
        else:
            yield np.asarray(rng.uniform(sample.low, sample.high, shape)).astype(kind)


@pytest.mark.parametrize("name", EPSILON)
def test_every_op_returns_the_dtype_that_its_type_says(name):
    kind, tried, wrong = kind_of(name), 0, []
    elsewhere = [op for op in REGISTRY.values() if op.forward.__module__ not in LAPACK]
    for op in [op for op in elsewhere if not op.checked]:
        for sample in [sample for sample in op.samples if not sample.complexes]:
            arrays, g = list(draw(sample, kind)), ag.Graph()
            xs = [g.input(f"x{i}", array.shape, array.dtype) for i, array in enumerate(arrays)]
            try:
                y = g.apply(op, xs, sample.attrs)
                value = op.forward(np, *arrays, **sample.attrs)
            except GraphTypeError:  # complex numbers only
                continue
            tried += 1
            if value.dtype != y.dtype:
                wrong.append((op.name, value.dtype, y.dtype))
    assert wrong == [], "a number in a forward is `scalar(x, number)`, else it widens bfloat16"
    assert tried > 500
