"""Drawn calls of products, decompositions, solvers and Fourier transforms."""

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.control.in_blocks import in_blocks
from actorgraph.ops.decompositions import complement as complete
from tests.ops._drawn import (
    ROWS,
    applied,
    axes_in,
    axis_in,
    broadcast,
    drawn,
    flags,
    knowledge,
    one_of_results,
    part_of,
    pulled,
    row,
    shapes,
    sizes,
)

# -- products -----------------------------------------------------------------------------------


@st.composite
def factors(draw):
    """Shapes of two factors of `matmul`: vectors, matrices and stacks that broadcast."""
    m, k, n = draw(sizes()), draw(sizes()), draw(sizes())
    left, right = draw(broadcast(2, max_dims=2))
    x = (k,) if draw(flags) else (*left, m, k)
    return x, (k,) if draw(flags) else (*right, k, n)


@row("matmul")
def matmul(draw, f):
    return drawn(f, *draw(factors()), sizes=draw(st.sampled_from(("known", "named"))))


@row("dot")
def dot(draw, f):
    x, y = draw(st.one_of(factors(), shapes().map(lambda shape: (shape, ()))))
    return drawn(f, x[-2:], y[-2:])


@row("bmm")
def bmm(draw, f):
    b, m, k, n = (draw(sizes()) for _ in range(4))
    x, y = draw(flags), draw(flags)
    return drawn(
        f, (b, k, m) if x else (b, m, k), (b, n, k) if y else (b, k, n),
        options={"transpose_x": x, "transpose_y": y},
    )  # fmt: skip


@row("matmul_in_blocks")
def matmul_in_blocks(draw, f):
    steps = st.sampled_from((0, 1, 3, 140)) | sizes()
    n, s, k, m = draw(steps), draw(sizes()), draw(sizes()), draw(sizes())
    return drawn(lambda x, y: in_blocks(x, y), (n, s, k), (k, m), sizes=draw(knowledge))


@row("outer")
def outer(draw, f):
    return drawn(f, draw(shapes(1, 1)), draw(shapes(1, 1)), sizes=draw(knowledge))


@row("kron")
def kron(draw, f):
    return drawn(f, draw(shapes(max_dims=2)), draw(shapes(max_dims=2)))


@row("vecdot")
def vecdot(draw, f):
    x, y = draw(broadcast(2, max_dims=2))
    ndim, k = min(len(x), len(y)) + 1, draw(sizes())
    axis = draw(axis_in(ndim)) if len(x) == len(y) else draw(st.integers(-ndim, -1))

    def with_axis(shape):
        place = axis + len(shape) + 1 if axis < 0 else axis
        return (*shape[:place], k, *shape[place:])

    return drawn(f, with_axis(x), with_axis(y), options={"axis": axis})


@row("tensordot")
def tensordot(draw, f):
    x, y = draw(shapes()), list(draw(shapes()))
    count = draw(st.integers(0, min(len(x), len(y))))
    left = draw(st.permutations(range(len(x))))[:count]
    right = draw(st.permutations(range(len(y))))[:count]
    for one, other in zip(left, right, strict=True):
        y[other] = x[one]
    left = [axis - len(x) * draw(flags) for axis in left]
    axes = (left, [axis - len(y) * draw(flags) for axis in right])
    return drawn(f, x, tuple(y), options={"axes": axes})


@row("einsum")
def einsum(draw, f):
    extent = {label: draw(sizes()) for label in "abc"}
    labels = st.text("abc", max_size=3)
    operands = draw(st.lists(labels, min_size=1, max_size=3))
    result = draw(st.permutations(sorted(set("".join(operands)))))
    result = "".join(result[: draw(st.integers(0, len(result)))])
    found = [tuple(extent[label] for label in operand) for operand in operands]
    subscripts = f"{','.join(operands)}->{result}"
    if draw(flags):
        stacks = draw(broadcast(len(operands), max_dims=1))
        found = [(*stack, *shape) for stack, shape in zip(stacks, found, strict=True)]
        subscripts = ",".join(f"...{operand}" for operand in operands) + f"->...{result}"
    return drawn(lambda *xs: f(subscripts, *xs), *found)


# -- matrices -----------------------------------------------------------------------------------


def square(draw, least=0):
    n = draw(sizes(least))
    return (*draw(shapes(max_dims=2, most=2)), n, n)


def well(x, factor=4.0):
    """`x` with so much added to its diagonal that its condition is small."""
    return x + factor * np.diag(np.arange(1.0, x.shape[-1] + 1)).astype(x.dtype)


@row("inv", "det")
def of_matrix(draw, f):
    return drawn(lambda x: f(well(x)), square(draw), low=-1, high=1)


@row("slogdet")
def slogdet(draw, f):
    f = one_of_results(draw, f, 2)
    return drawn(lambda x: f(well(x)), square(draw), low=-1, high=1)


@row("matrix_power")
def matrix_power(draw, f):
    n = draw(st.integers(-3, 4))
    return drawn(lambda x: f(well(x, 0.5 if n >= 0 else 4.0), n), square(draw), low=-1, high=1)


@row("solve")
def solve(draw, f):
    a = square(draw)
    if draw(flags):
        return drawn(lambda a, b: f(well(a), b), a, (a[-1],), low=-1, high=1)
    b = (*draw(part_of(a[:-2])), a[-1], draw(sizes()))
    return drawn(lambda a, b: f(well(a), b), a, b, low=-1, high=1)


@row("cholesky")
def cholesky(draw, f):
    def call(x):
        return f(well(x @ ag.ops.swapaxes(x, -1, -2), 1.0), upper=upper)

    upper = draw(flags)
    return drawn(call, square(draw), low=-1, high=1)


@row("eigvalsh")
def eigvalsh(draw, f):
    return drawn(lambda x: f(well(x)), square(draw), low=-1, high=1)


@row("eigh")
def eigh(draw, f):
    f, triangle = one_of_results(draw, f, 2), draw(st.sampled_from((None, "L", "U")))
    return drawn(lambda x: f(well(x), UPLO=triangle), square(draw), low=-1, high=1)


def rectangle(draw, tall=False):
    m, n = draw(sizes()), draw(sizes())
    m = max(m, n) if tall else m
    return (*draw(shapes(max_dims=1, most=2)), m, n)


def apart(x):
    """`x` plus a diagonal of numbers apart from each other, so that singular values are."""
    m, n = x.shape[-2:]
    diagonal = np.zeros((m, n), x.dtype)
    np.fill_diagonal(diagonal, 4.0 * np.arange(1, min(m, n) + 1))
    return x + diagonal


@row("qr")
def qr(draw, f):
    f = one_of_results(draw, f, 2)
    return drawn(lambda x: f(apart(x)), rectangle(draw, tall=True), low=-1, high=1)


@row("svd")
def svd(draw, f):
    f = one_of_results(draw, f, 3)
    return drawn(lambda x: f(apart(x)), rectangle(draw), low=-1, high=1)


@row("svdvals", "pinv", "matrix_rank")
def of_rectangle(draw, f):
    return drawn(lambda x: f(apart(x)), rectangle(draw), low=-1, high=1)


@row("lstsq")
def lstsq(draw, f):
    a = rectangle(draw)[-2:]
    b = (a[-2],) if draw(flags) else (a[-2], draw(sizes()))
    f = one_of_results(draw, f, 4)
    return drawn(lambda a, b: f(apart(a), b), a, b, low=-1, high=1)


@row("complement")
def complement(draw, f):
    def projection(x):  # the basis itself is arbitrary
        basis = complete(apart(x))
        return basis @ ag.ops.swapaxes(basis, -1, -2)

    return drawn(projection, rectangle(draw, tall=True), low=-1, high=1)


# -- Fourier ------------------------------------------------------------------------------------

norms = st.sampled_from((None, "backward", "ortho", "forward"))


def one_axis(draw, least=1):
    """A shape, an axis of it with `least` entries, and another length or None."""
    shape = list(draw(shapes(1)))
    axis = draw(axis_in(len(shape)))
    shape[axis] = max(least, shape[axis] + draw(sizes()))
    return tuple(shape), axis, draw(st.one_of(st.none(), st.integers(1, 7)))


@row("fft", "ifft")
def fft(draw, f):
    shape, axis, n = one_axis(draw)
    complexes = (0,) if draw(flags) else ()
    return drawn(f, shape, options={"n": n, "axis": axis, "norm": draw(norms)}, complexes=complexes)


@row("rfft", "ihfft")
def rfft(draw, f):
    shape, axis, n = one_axis(draw)
    return drawn(f, shape, options={"n": n, "axis": axis, "norm": draw(norms)})


@row("irfft", "hfft")
def irfft(draw, f):
    shape, axis, n = one_axis(draw, least=2)
    return drawn(f, shape, options={"n": n, "axis": axis, "norm": draw(norms)}, complexes=(0,))


@row("fftn", "ifftn")
def fftn(draw, f):
    shape = draw(shapes(1, least=1))
    axes = draw(st.one_of(st.none(), st.permutations(range(len(shape))).map(lambda p: p[:2])))
    s = draw(st.one_of(st.none(), st.just([draw(st.integers(1, 5)) for _ in axes or shape])))
    return drawn(f, shape, options={"s": s, "axes": axes, "norm": draw(norms)}, complexes=(0,))


def _over_axes(draw, f, two, real_in):
    shape = tuple(
        size + 1 for size in draw(shapes(2 if two else 1, least=1))
    )  # two points at least
    order = st.permutations(range(len(shape)))
    axes = draw(order.map(lambda p: p[:2]) if two else st.one_of(st.none(), order))
    s = draw(st.one_of(st.none(), st.just([draw(st.integers(2, 5)) for _ in axes or shape])))
    options = {"s": s, "axes": axes, "norm": draw(norms)}
    return drawn(f, shape, options=options, complexes=() if real_in else (0,))


@row("rfftn", "ihfftn")
def rfftn(draw, f):
    return _over_axes(draw, f, two=False, real_in=True)


@row("irfftn", "hfftn")
def irfftn(draw, f):
    return _over_axes(draw, f, two=False, real_in=False)


@row("rfft2", "ihfft2")
def rfft2(draw, f):
    return _over_axes(draw, f, two=True, real_in=True)


@row("irfft2", "hfft2", "fft2", "ifft2")
def irfft2(draw, f):
    return _over_axes(draw, f, two=True, real_in=False)


@row("fftshift", "ifftshift")
def fftshift(draw, f):
    shape = draw(shapes(least=1))
    return drawn(f, shape, options={"axes": draw(st.one_of(st.none(), axes_in(len(shape))))})


@row("stft")
def stft(draw, f):
    n_fft, hop, center = draw(st.integers(2, 5)), draw(st.integers(1, 3)), draw(flags)
    width = draw(st.integers(1, n_fft))
    options = {
        "n_fft": n_fft, "hop_length": hop, "win_length": width, "center": center,
        "normalized": draw(flags), "onesided": draw(flags),
    }  # fmt: skip
    shape = (*draw(shapes(max_dims=1, most=2)), n_fft + draw(sizes(2, 6)))
    return drawn(lambda x, w: f(x, window=w, **options), shape, (width,), repeats=False)


@row("istft")
def istft(draw, f):
    n_fft, onesided = draw(st.integers(2, 5)), draw(flags)
    options = {
        "n_fft": n_fft, "hop_length": 1, "center": draw(flags), "normalized": draw(flags),
        "onesided": onesided, "length": draw(st.sampled_from((None, 3, 20))),
    }  # fmt: skip
    shape = (*draw(shapes(max_dims=1, most=2)), n_fft // 2 + 1 if onesided else n_fft, 6)
    return drawn(
        lambda x, w: f(x, window=w * w + 1, **options), shape, (n_fft,), complexes=(0,),
        repeats=False,
    )  # fmt: skip


# -- ops without a function of their own --------------------------------------------------------


@st.composite
def gaps(draw):
    n = draw(sizes())
    mode = draw(st.sampled_from(("difference", "squares", "value")))
    m = n if mode != "value" else draw(sizes())
    stack = draw(shapes(max_dims=1))
    return ((*stack, m, n), (*stack, n)), {"mode": mode}, {"low": 0.5, "high": 3.0}


ROWS.update({
    "cofactor": pulled("det"),
    "gap_divide": applied("gap_divide", gaps()),
    "irfft_adjoint": pulled("irfft"),
    "rfft_adjoint": pulled("rfft"),
    "turn_free": pulled("complement"),
})  # fmt: skip
