"""Fourier transforms: values against NumPy, gradients against PyTorch."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.op import REGISTRY
from actorgraph.testing._cases import Case, check_first_order, check_second_order
from tests._each import each
from tests._evaluate import evaluate

NORMS = [None, "backward", "ortho", "forward"]
ALONG = ["fft", "ifft", "irfft", "rfft"]
OVER = ["fftn", "ifftn"]
TRANSFORMS = [REGISTRY[name] for name in ("fft", "irfft")]


def signal(*shape, dtype="float64"):
    rng = np.random.default_rng(len(shape))
    value = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        value = value + 1j * rng.standard_normal(shape)
    return value.astype(dtype)


def dtypes(name):
    return ["float32", "float64"] + ["complex64", "complex128"] * (name != "rfft")


def near(got, wanted):
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    tolerance = 1e-5 if wanted.dtype.name in ("float32", "complex64") else 1e-12
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "sample"),
    [
        pytest.param(op, s, id=f"{op.name}-{i}")
        for op in TRANSFORMS
        for i, s in enumerate(op.samples)
    ],
)
def test_rules_hold_for_complex_arguments(op, sample):
    check_first_order(Case(op, sample, "complex128"))
    check_second_order(Case(op, sample, "complex128"))


@each("norm", NORMS)
@each("n", [None, 3, 4, 7, 8])
@each("name", ALONG)
def test_transforms_along_an_axis_equal_numpy(name, n, norm):
    for dtype in dtypes(name):
        for shape, axis in (((5,), -1), ((2, 6), 1), ((4, 3), 0), ((2, 5, 3), -2)):
            value = signal(*shape, dtype=dtype)
            x = ag.Graph().input("x", shape, dtype)
            y = getattr(ag.ops, name)(x, n, axis, norm)
            (got,) = evaluate(y, {x: value})
            wanted = getattr(np.fft, name)(value, n, axis, norm)
            assert (y.shape, y.dtype) == (wanted.shape, wanted.dtype)
            near(got, wanted)


@each("norm", NORMS)
@each(
    ("s", "axes"),
    [(None, None), (None, (0,)), (None, (2, 0)), ((3, 8), (0, 1)), ((4, 2, 2), (0, 1, 2))],
)
@each("name", OVER)
def test_transforms_over_axes_equal_numpy(name, s, axes, norm):
    for dtype in dtypes(name):
        value = signal(4, 3, 5, dtype=dtype)
        x = ag.Graph().input("x", value.shape, dtype)
        (got,) = evaluate(getattr(ag.ops, name)(x, s, axes, norm), {x: value})
        near(got, getattr(np.fft, name)(value, s, axes, norm))


def test_sizes_without_axes_belong_to_the_last_ones():
    value = signal(4, 3, 5)
    x = ag.Graph().input("x", value.shape, "float64")
    (got,) = evaluate(ag.ops.fftn(x, (2, 6)), {x: value})
    near(got, np.fft.fftn(value, (2, 6), (-2, -1)))


TWO_AND_MORE = "fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn".split()
HERMITIAN = "hfft2 ihfft2 hfftn ihfftn".split()


@each("norm", NORMS)
@each(("s", "axes"), [(None, (0, 1)), ((4, 6), (2, 0)), ((-1, 3), (1, 2)), ((3, 5), (-2, -1))])
@each("name", TWO_AND_MORE)
def test_transforms_of_several_axes_are_those_of_numpy(name, s, axes, norm):
    for dtype in dtypes(name.replace("2", "").replace("n", "").replace("irfft", "fft")):
        value = signal(4, 3, 5, dtype=dtype)
        x = ag.Graph().input("x", value.shape, dtype)
        wanted = getattr(np.fft, name)(value, s, axes, norm)
        got = evaluate(
            [getattr(module, name)(x, s, axes, norm) for module in (ag.ops, np.fft)], {x: value}
        )
        for mine in got:
            near(mine, wanted)


@each("name", HERMITIAN)
def test_an_error_names_the_function_that_was_called_and_no_other(name):
    x = ag.Graph().input("x", (4,), "complex128")
    with pytest.raises(GraphError, match=f"^{name}: axis"):
        getattr(ag.ops, name)(x, axes=(7,))


@each("norm", NORMS)
@each("n", [None, 3, 8])
@each("name", ["hfft", "ihfft"])
def test_transforms_of_hermitian_signals_are_those_of_numpy(name, n, norm):
    for dtype in dtypes("rfft" if name == "ihfft" else "fft"):
        value = signal(2, 5, dtype=dtype)
        x = ag.Graph().input("x", value.shape, dtype)
        (got,) = evaluate([getattr(np.fft, name)(x, n, -1, norm)], {x: value})
        near(got, getattr(np.fft, name)(value, n, -1, norm))


@each("dim", ["n", None])
@each("name", ALONG)
def test_lengths_that_are_symbols_or_unknown_differentiate(name, dim):
    value = signal(2, 5)
    x = ag.Graph().input("x", ("batch", dim), "float64")
    y = getattr(ag.ops, name)(x)
    (gradient,) = ag.gradients([y], [x], seeds=[ag.ops.zeros_like(y) + 1])
    (second,) = ag.gradients([gradient * gradient], [x], seeds=[ag.ops.zeros_like(x) + 1])
    got = evaluate([y, gradient, second], {x: value})
    wanted = getattr(np.fft, name)(value)
    assert len(y.shape) == 2
    near(got[0], wanted)
    np.testing.assert_allclose((got[1] * value).sum(), wanted.real.sum(), rtol=1e-10, atol=1e-10)
    assert got[2].shape == value.shape


def test_a_symbol_may_be_the_number_of_points():
    g = ag.Graph()
    x, other = g.input("x", (2, 5), "float64"), g.input("other", ("n",), "float64")
    y = ag.ops.rfft(x * 2, "n")
    assert y.shape == (2, "floordiv(n, 2) + 1")
    z = ag.ops.fft(x, "n") * ag.ops.astype(other, "complex128")
    (gradient,) = ag.gradients([z], [x], seeds=[ag.ops.zeros_like(z) + 1])
    for n in (3, 8):
        points = signal(n)
        got = evaluate([z, gradient], {x: signal(2, 5), other: points})
        near(got[0], np.fft.fft(signal(2, 5), n) * points)
        np.testing.assert_allclose((got[1] * signal(2, 5)).sum(), got[0].real.sum())


def test_parsevals_theorem_gives_the_gradient_of_energy():
    value = signal(6)
    x = ag.Graph().input("x", (6,), "float64")
    z = ag.ops.fft(x, norm="ortho")
    energy = ag.ops.real(z * ag.ops.conj(z)).sum()
    (gradient,) = evaluate(ag.gradients(energy, [x]), {x: value})
    assert gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, 2 * value, rtol=1e-12)


def test_transforms_stand_behind_their_numpy_names():
    value = signal(4, 6, dtype="complex128")
    x = ag.Graph().input("x", value.shape, "complex128")
    calls = [
        lambda a: np.fft.fft(a),
        lambda a: np.fft.ifft(a, 5, axis=0, norm="ortho"),
        lambda a: np.fft.irfft(a, n=7),
        lambda a: np.fft.fftn(a, axes=(0, 1)),
        lambda a: np.fft.ifftn(a, (2, 2), (0, 1)),
        lambda a: np.fft.rfft(np.real(a), axis=0),
    ]
    for call in calls:
        (got,) = evaluate([call(x)], {x: value})
        near(got, call(value))


def test_misuses_say_what_to_do():
    g = ag.Graph()
    x, empty = g.input("x", (2, 5)), g.input("empty", (2, 0))
    with pytest.raises(GraphTypeError, match="norm is one of backward, ortho, forward, got 'half'"):
        ag.ops.fft(x, norm="half")
    with pytest.raises(GraphTypeError, match=r"fft takes floats.*astype\('float64'\)"):
        ag.ops.fft(g.input("i", (3,), "int64"))
    with pytest.raises(GraphTypeError, match="rfft.*is not a float"):
        ag.ops.rfft(g.input("c", (3,), "complex64"))
    for name in ALONG:
        with pytest.raises(ShapeError, match="no points along axis -1|no points along axis 1"):
            getattr(ag.ops, name)(empty)
    with pytest.raises(ShapeError, match="at least 1"):
        ag.ops.ifft(x, 0)
    with pytest.raises(ShapeError, match="irfft: no points"):
        ag.ops.irfft(g.input("one", (2, 1)))
    for name in [name for name in ag.ops.__all__ if name.endswith(("fftn", "fft2"))]:
        with pytest.raises(ShapeError, match="name a dim twice"):
            getattr(ag.ops, name)(x, axes=(0, -2))
        assert "An axis is given twice" in getattr(ag.ops, name).__doc__, name
    with pytest.raises(ShapeError, match="got 1 sizes for 2 axes"):
        ag.ops.ifftn(x, (3,), (0, 1))
    with pytest.raises(ShapeError, match=r"axis 2 is not an int in \[-2, 2\)"):
        ag.ops.rfft(x, axis=2)
