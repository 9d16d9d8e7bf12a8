"""The provider of matrix products is chosen once, by the environment or by what is faster."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.devices import blas, fastest
from actorgraph.devices.files import cache_path
from actorgraph.errors import GraphError

needs_mkl = pytest.mark.skipif(blas.library() is None, reason="mkl is not installed")


@pytest.fixture(autouse=True)
def undecided(monkeypatch, tmp_path):
    """Have each test decide afresh, and forget what it decided."""
    monkeypatch.delenv(blas.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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
    assert blas.provider().multiply is np.matmul
    assert not os.path.exists(cache_path("matmul"))


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Have a library that is found and loaded; its products are those of `np.matmul`."""
    library = tmp_path / "libmkl_rt.so"
    library.touch()
    loaded = blas.Provider("mkl", "1.0", np.matmul)
    monkeypatch.setattr(blas, "library", lambda: str(library))
    monkeypatch.setattr(blas, "load_mkl", lambda path: loaded)
    return library


def speed_of(ratio, monkeypatch):
    """Have MKL measured as so many times as fast as NumPy; return a list with a 1 a measurement."""
    measured = []
    monkeypatch.setattr(fastest, "ratio", lambda numpy, other: measured.append(1) or ratio)
    return measured


@pytest.mark.parametrize(("ratio", "name"), [(2.0, "mkl"), (1.01, "numpy"), (0.5, "numpy")])
def test_the_faster_one_multiplies_and_numpy_does_in_a_tie(ratio, name, installed, monkeypatch):
    speed_of(ratio, monkeypatch)
    assert blas.provider().name == name


def test_a_machine_is_measured_once(installed, monkeypatch):
    measured = speed_of(2.0, monkeypatch)
    for _ in range(3):  # processes
        assert blas.provider().name == "mkl"
        blas.provider.cache_clear()
    assert measured == [1]


def test_another_library_is_measured_anew(installed, monkeypatch):
    measured = speed_of(2.0, monkeypatch)
    blas.provider()
    os.utime(installed, ns=(1, 1))
    blas.provider.cache_clear()
    blas.provider()
    assert measured == [1, 1]


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"library": 1, "ratio": "x"}'])
def test_a_file_that_cannot_be_used_is_measured_again(text, installed, monkeypatch):
    measured = speed_of(0.5, monkeypatch)
    os.makedirs(os.path.dirname(cache_path("matmul")))
    with open(cache_path("matmul"), "w", encoding="utf-8") as file:
        file.write(text)
    assert blas.provider().name == "numpy"
    assert measured == [1]
    with open(cache_path("matmul"), encoding="utf-8") as file:
        assert json.load(file)["ratio"] == 0.5


def test_a_file_that_cannot_be_written_is_no_error(installed, monkeypatch, tmp_path):
    (tmp_path / "cache").touch()  # where a directory should be
    measured = speed_of(2.0, monkeypatch)
    assert blas.provider().name == "mkl"
    assert measured == [1]


def test_who_asks_for_a_provider_measures_nothing(installed, monkeypatch):
    measured = speed_of(0.5, monkeypatch)
    monkeypatch.setenv(blas.VARIABLE, "mkl")
    assert blas.provider().name == "mkl"
    assert measured == []


def test_small_products_measure_nothing(installed, monkeypatch):
    measured = speed_of(2.0, monkeypatch)
    x = ag.Graph().input("x", (8, 8))
    with ag.ActorMachine([x @ np.ones((8, 8), "f")]) as machine:
        machine.run_sync({"x": np.ones((8, 8), "f")})
    assert measured == []


def test_the_ratio_of_a_library_to_itself_is_about_one():
    ratios = (fastest.ratio(np.matmul, np.matmul) for _ in range(5))  # other work may disturb some
    assert any(0.2 < ratio < 5.0 for ratio in ratios)


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
        blas.asked()


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
