"""Short-time Fourier transforms: values and gradients against PyTorch, and there and back."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, ShapeError
from tests._each import each
from tests._evaluate import evaluate
from tests.ops._matrices import square

OPTIONS = [
    {"n_fft": 8},
    {"n_fft": 8, "hop_length": 3, "win_length": 6, "normalized": True},
    {"n_fft": 7, "hop_length": 2, "center": False},
    {"n_fft": 8, "hop_length": 4, "onesided": False},
]


def signal(*shape, dtype="float64", seed=0):
    return square(1, *shape, dtype=dtype, seed=seed)[0]


def size_of(node):
    return ag.ops.real(node * ag.ops.conj(node)).sum()


def window_for(options):
    return np.hanning(options.get("win_length", options["n_fft"]) + 2)[1:-1]


def compare(ours, theirs, values):
    """Compare values, gradients, and gradients of the squares of gradients, with PyTorch."""
    torch = pytest.importorskip("torch")
    graph = ag.Graph()
    xs = [graph.input(f"x{i}", value.shape, value.dtype) for i, value in enumerate(values)]
    ts = [torch.tensor(value, requires_grad=True) for value in values]
    y, z = ours(*xs), theirs(torch, *ts)
    seed = signal(*y.shape, dtype=y.dtype.name, seed=5)
    first = ag.gradients([y], xs, seeds=[seed])
    wanted = torch.autograd.grad(z, ts, torch.tensor(seed), create_graph=True)
    second = ag.gradients(sum(size_of(node) for node in first), xs)
    total = sum((node * node.conj()).real.sum() for node in wanted)
    wanted_second = torch.autograd.grad(total, ts)
    got = evaluate([y, *first, *second], dict(zip(xs, values, strict=True)))
    for mine, other in zip(got, [z, *wanted, *wanted_second], strict=True):
        other = other.resolve_conj().numpy(force=True)
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


@pytest.mark.oracle
@pytest.mark.parametrize("options", OPTIONS)
def test_stft_agrees_with_pytorch(options):
    compare(
        lambda x, w: ag.ops.stft(x, window=w, **options),
        lambda torch, x, w: torch.stft(x, window=w, return_complex=True, **options),
        [signal(2, 21), window_for(options)],
    )


@pytest.mark.oracle
def test_stft_of_complex_signals_agrees_with_pytorch():
    window = window_for(OPTIONS[0])

    def theirs(torch, x):
        return torch.stft(x, 8, window=torch.tensor(window), return_complex=True)

    compare(lambda x: ag.ops.stft(x, 8, window=window), theirs, [signal(2, 21, dtype="complex128")])


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
@pytest.mark.parametrize(
    ("options", "length"), [(OPTIONS[0], None), (OPTIONS[0], 9), (OPTIONS[0], 40), (OPTIONS[1], 9)]
)
def test_istft_agrees_with_pytorch(options, length):
    compare(
        lambda x, w: ag.ops.istft(x, window=w, length=length, **options),
        lambda torch, x, w: torch.istft(x, window=w, length=length, **options),
        [signal(2, 5, 6, dtype="complex128"), window_for(options)],
    )


@pytest.mark.oracle
def test_complex_istft_agrees_with_pytorch():
    compare(
        lambda x: ag.ops.istft(x, 8, return_complex=True) ** 3,
        lambda torch, x: (
            torch.istft(x, 8, window=torch.ones(8).double(), return_complex=True) ** 3
        ),
        [signal(2, 8, 6, dtype="complex128")],
    )  # fmt: skip


@each("dtype", ["float32", "float64"])
@each("options", [OPTIONS[0], OPTIONS[1], OPTIONS[3]])
def test_istft_undoes_stft(options, dtype):
    value = signal(2, 32, dtype=dtype)
    window = window_for(options).astype(dtype)
    x = ag.Graph().input("x", ("batch", 32), dtype)
    there = ag.ops.stft(x, window=window, **options)
    (got,) = evaluate([ag.ops.istft(there, window=window, length=32, **options)], {x: value})
    assert got.dtype == dtype
    np.testing.assert_allclose(got, value, atol=1e-5 if dtype == "float32" else 1e-12)


def test_misuses_say_what_to_do():
    g = ag.Graph()
    x, z = g.input("x", (2, 21)), g.input("z", (2, 5, 6), "complex64")
    with pytest.raises(ShapeError, match="the number of points has to be a known int"):
        ag.ops.stft(g.input("open", ("batch", "n")), 8)
    with pytest.raises(ShapeError, match="stft: 21 points are fewer than n_fft=32"):
        ag.ops.stft(x, 32, center=False)
    with pytest.raises(ShapeError, match="the window has 6 points, got"):
        ag.ops.stft(x, 8, win_length=6, window=np.ones(8, "float32"))
    with pytest.raises(GraphError, match="win_length at most n_fft, got 8, 2 and 9"):
        ag.ops.stft(x, 8, win_length=9)
    with pytest.raises(GraphError, match="the spectrum of a complex signal has two sides"):
        ag.ops.stft(z, 4, onesided=True)
    with pytest.raises(ShapeError, match=r"istft takes \(\.\.\., 9, frames\)"):
        ag.ops.istft(z, 16)
    with pytest.raises(GraphError, match="a complex signal has a spectrum of two sides"):
        ag.ops.istft(z, 8, onesided=True, return_complex=True)
