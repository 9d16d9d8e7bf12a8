"""The provider of matrix products is chosen once, by the environment or by what is installed."""

import os
import subprocess
import sys

import numpy as np
import pytest

from actorgraph.devices import blas
from actorgraph.errors import GraphError

needs_mkl = pytest.mark.skipif(blas.library() is None, reason="mkl is not installed")


@pytest.fixture(autouse=True)
def undecided(monkeypatch):
    """Have each test decide afresh, and forget what it decided."""
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    blas.provider.cache_clear()
    yield
    blas.provider.cache_clear()


def in_another_process(code, choice):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, blas.VARIABLE: choice},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return done.stdout.strip(), done.stderr


def test_without_mkl_numpy_multiplies(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: None)
    assert blas.chosen() == "numpy"
    assert blas.provider().multiply is np.matmul


def test_mkl_is_used_where_it_is_found(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: "/nowhere/libmkl_rt.so")
    assert blas.chosen() == "mkl"


def test_mkl_that_cannot_be_loaded_is_passed_over(monkeypatch):
    monkeypatch.setattr(blas, "library", lambda: "/nowhere/libmkl_rt.so")
    assert blas.provider().name == "numpy"


def test_mkl_that_was_asked_for_and_cannot_be_loaded_is_an_error(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    monkeypatch.setattr(blas, "library", lambda: "/nowhere/libmkl_rt.so")
    with pytest.raises(GraphError, match=r"is 'mkl', but libmkl_rt\.so cannot be loaded"):
        blas.provider()


def test_mkl_that_was_asked_for_and_is_missing_is_an_error(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    monkeypatch.setattr(blas, "library", lambda: None)
    with pytest.raises(GraphError, match=r"not installed: pip install 'actorgraph\[mkl\]'"):
        blas.chosen()


def test_an_unknown_provider_is_an_error_before_anything_starts():
    code = (
        "import numpy as np, actorgraph as ag\n"
        "x = ag.Graph().input('x', (2,))\n"
        "try: ag.TapeMachine([x + x]).run_sync({'x': np.ones(2, 'f')})\n"
        "except ag.GraphError as error: print(error)\n"
    )
    said, trace = in_another_process(code, "cublas")
    assert said.startswith("ACTORGRAPH_MATMUL is 'cublas'; set it to 'numpy' or 'mkl'"), trace


def test_the_choice_of_the_first_run_stays(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "numpy")
    first = blas.provider()
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    assert blas.provider() is first


def test_the_library_is_the_one_that_the_package_records(tmp_path, monkeypatch):
    recorded = tmp_path / "site" / "mkl-2026.0.dist-info"
    recorded.mkdir(parents=True)
    (recorded / "RECORD").write_text(
        "mkl-2026.0.dist-info/METADATA,,\n../lib/libmkl_core.so.3,,\n../lib/libmkl_rt.so.3,,\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    found = blas.library.__wrapped__()
    assert found == os.path.realpath(tmp_path / "lib" / "libmkl_rt.so.3")


@needs_mkl
@pytest.mark.parametrize("dtype", blas.BLAS_DTYPES)
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_mkl_multiplies_what_numpy_multiplies(monkeypatch, dtype, orders):
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    random = np.random.default_rng(3)
    x, y = (
        np.array(random.normal(size=size) + 1j * random.normal(size=size)).astype(dtype, order)
        if dtype in "FD"
        else random.normal(size=size).astype(dtype, order)
        for size, order in zip([(33, 70), (70, 41)], orders, strict=True)
    )
    found = np.empty((33, 41), dtype)
    blas.provider().multiply(x, y, found)
    accuracy = 1e-5 if dtype in "fF" else 1e-13
    np.testing.assert_allclose(found, x @ y, rtol=accuracy, atol=20 * accuracy)


@needs_mkl
def test_bits_of_mkl_do_not_depend_on_where_operands_begin(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    random = np.random.default_rng(3)
    x, y = random.normal(size=(33, 100)).astype("f"), random.normal(size=(100, 130)).astype("f")
    found = set()
    for start in range(8):
        memory = np.empty(x.size + y.size + 16, "f")
        left = memory[start:][: x.size].reshape(x.shape)
        right = memory[x.size + 2 * start :][: y.size].reshape(y.shape)
        left[:], right[:] = x, y
        out = np.empty((33, 130), "f")
        blas.provider().multiply(left, right, out)
        found.add(out.tobytes())
    assert len(found) == 1
