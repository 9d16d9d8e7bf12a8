"""The kernel of matrix products gives what NumPy gives, whatever the layouts, in tiles or whole."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import blas
from actorgraph.lower import matmul
from actorgraph.tiles import CUT_FLOPS

RANDOM = np.random.default_rng(7)
LARGE = 130, 520, 510  # not divisible, and above the cut
providers = pytest.mark.parametrize(
    "name",
    [
        "numpy",
        pytest.param(
            "mkl",
            marks=pytest.mark.skipif(blas.library() is None, reason="mkl is not installed"),
        ),
    ],
)


def kernel_by(name, monkeypatch, x=("a", "b"), y=("b", "c"), dtype="float32"):
    monkeypatch.setenv(blas.VARIABLE, name)
    blas.provider.cache_clear()
    graph = ag.Graph()
    node = graph.input("x", x, dtype) @ graph.input("y", y, dtype)
    found = matmul.product(node, {})
    blas.provider.cache_clear()
    return found


def array(shape, dtype="float32"):
    return RANDOM.normal(size=shape).astype(dtype)


def strided(matrix):
    wide = np.zeros((matrix.shape[0], 2 * matrix.shape[1]), matrix.dtype)
    wide[:, ::2] = matrix
    return wide[:, ::2]


def with_gaps(matrix):
    wide = np.zeros((matrix.shape[0], matrix.shape[1] + 3), matrix.dtype)
    wide[:, 3:] = matrix
    return wide[:, 3:]


def backwards(matrix):
    return matrix[::-1].copy()[::-1]


def repeated(matrix):
    return np.broadcast_to(matrix[:1], matrix.shape)


LAYOUTS = [np.ascontiguousarray, np.asfortranarray, strided, with_gaps, backwards, repeated]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@providers
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_every_layout_gives_the_product(name, left, right, monkeypatch):
    m, k, n = LARGE
    x, y = left(array((m, k))), right(array((k, n)))
    found = kernel_by(name, monkeypatch)(x, y)
    assert (found.shape, found.dtype, found.base) == ((m, n), x.dtype, None)
    close(found, x @ y)


@providers
@pytest.mark.parametrize("dtype", ["float64", "complex64", "complex128", "int64"])
def test_every_dtype_gives_the_product(name, dtype, monkeypatch):
    x, y = array((100, 600)).astype(dtype), array((600, 570)).astype(dtype)
    found = kernel_by(name, monkeypatch, dtype=dtype)(x, y)
    assert found.dtype == dtype
    close(found, x @ y)


@providers
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((5, 64, 256), (256, 512)),  # one tall product
        ((3, 2, 128, 512), (2, 512, 512)),  # large entries, broadcast
        ((64, 3, 64, 80), (64, 1, 80, 64)),  # small entries
        ((3000, 20), (20, 700)),  # rows are the longer side
        ((1, 3000), (3000, 700)),
        ((700, 3000), (3000, 1)),
        ((700, 3000), (3000,)),
        ((0, 600), (600, 600)),
        ((600, 0), (0, 600)),
        ((2, 0, 5), (5, 600)),
        ((0, 300, 300), (1, 300, 800)),
    ],
)
def test_every_rank_and_size_gives_the_product(name, x, y, monkeypatch):
    x, y = array(x), array(y)
    found = kernel_by(name, monkeypatch, *((None,) * v.ndim for v in (x, y)))(x, y)
    assert found.base is None
    close(found, x @ y)


@providers
def test_a_result_may_be_written_where_the_caller_says(name, monkeypatch):
    m, k, n = LARGE
    x, y = array((m, k)), array((k, n))
    kernel = kernel_by(name, monkeypatch)
    expected = kernel(x, y)
    out = np.full((m, n), np.nan, "f")
    assert kernel(x, y, out) is out
    np.testing.assert_array_equal(out, expected)


@providers
def test_a_result_may_be_written_over_an_operand(name, monkeypatch):
    x, y = array((520, 520)), array((520, 520))
    kernel = kernel_by(name, monkeypatch)
    expected = kernel(x, y)
    assert kernel(x, y, x) is x
    np.testing.assert_array_equal(x, expected)


@providers
@pytest.mark.parametrize("shapes", [((200, 600), (601, 600)), ((200, 600), (600,))])
def test_numpy_tells_what_does_not_fit(name, shapes, monkeypatch):
    x, y = array(shapes[0]), array(shapes[1])
    kernel = kernel_by(name, monkeypatch, (None, None), (None,) * y.ndim)
    if x.shape[-1] == y.shape[0]:
        close(kernel(x, y), x @ y)
        return
    with pytest.raises(ValueError, match="mismatch in its core dimension"):
        kernel(x, y)


@providers
def test_overflow_is_told_as_numpy_tells_it(name, monkeypatch):
    m, k, n = LARGE
    kernel = kernel_by(name, monkeypatch)
    huge, y = np.full((m, k), 3e38, "f"), np.full((k, n), 10, "f")
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
        kernel(huge, y)
    with np.errstate(over="ignore"):
        assert np.isinf(kernel(huge, y)).all()
    with pytest.warns(RuntimeWarning, match="overflow"):
        kernel(huge, y)


def test_a_product_known_to_be_small_is_numpys_own(monkeypatch):
    assert kernel_by("numpy", monkeypatch, (8, 64), (64, 64)) in (np.ndarray.dot, np.matmul)
    assert kernel_by("numpy", monkeypatch, (8, 64), (64,)) is np.matmul
    assert kernel_by("numpy", monkeypatch, (2, 8, 64), (2, 64, 64)) is np.matmul
    assert kernel_by("numpy", monkeypatch, (2, 8, 64), (64, 64), "int64") is np.matmul


def test_a_small_product_of_a_stack_and_a_matrix_is_that_of_a_tall_matrix(monkeypatch):
    for shape, width in [
        ((3, 2, 5, 6), 4),
        ((2, 1, 6), 4),
        ((0, 3, 6), 4),
        ((2, 3, 0), 4),
        ((2, 3, 6), 0),
    ]:
        kernel = kernel_by("numpy", monkeypatch, shape, (shape[-1], width))
        x, y = array(shape), array((shape[-1], width))
        tall = x.reshape(int(np.prod(shape[:-1])), shape[-1])
        wanted = tall.dot(y).tobytes()
        for left in (x, x[..., ::-1].copy()[..., ::-1]):
            for out in (None, np.zeros((*shape[:-1], width), "f")):
                found = kernel(left, y, out=out)
                assert out is None or found is out
                assert found.tobytes() == wanted


def test_small_products_of_known_and_unknown_dims_have_the_same_bits(monkeypatch):
    for shapes in [((8, 64), (64, 64)), ((1, 3), (3, 5)), ((7, 1), (1, 4)), ((0, 3), (3, 2))]:
        x, y = map(array, shapes)
        known = kernel_by("numpy", monkeypatch, *shapes)
        unknown = kernel_by("numpy", monkeypatch, (None, None), (None, None))
        for left in (x, np.asfortranarray(x)):
            assert known(left, y).tobytes() == unknown(left, y).tobytes()
            np.testing.assert_allclose(known(left, y), left @ y, rtol=1e-5, atol=1e-6)


def test_tiles_cover_the_longer_side_once_and_depend_on_the_shape_alone():
    for shape in [(64, 256, 256), (128, 512, 512), LARGE, (3000, 70, 300), (4096, 4096, 4096)]:
        tiles = matmul.cuts(*shape)
        side = max(shape[0], shape[2])
        assert [i for tile in tiles for i in range(side)[tile]] == list(range(side))
        assert (len(tiles) > 1) == (2 * np.prod(shape) >= CUT_FLOPS)
