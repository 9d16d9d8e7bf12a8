"""Arrays of other kinds as parameters: the step of a plain array, or an error that says why not."""

import gc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import solvers
from actorgraph.devices import elementwise
from actorgraph.dual import Dual
from actorgraph.options import NATIVE
from tests._each import each
from tests.solvers.test_conformance import FACTORIES


def values(dtype):
    """Return numbers of two axes; complex ones have two parts."""
    whole = np.random.default_rng(0).normal(size=(2, 5, 3))
    return (whole[0] + 1j * whole[1] if np.dtype(dtype).kind == "c" else whole[0]).astype(dtype)


def mapped(array, path):
    found = np.memmap(path, array.dtype, "w+", shape=array.shape)
    found[...] = array
    return found


def unaligned(array, shift=1):
    raw = np.zeros(array.nbytes + shift, np.uint8)
    found = raw[shift:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def spread(array):
    found = np.zeros((2 * array.shape[0], 3 * array.shape[1]), array.dtype)[::-2, ::3]
    found[...] = array
    return found


KINDS = {
    "matrix": lambda array, path: array.view(np.matrix),
    "matrix of one": lambda array, path: array[:1, :1].view(np.matrix),
    "memmap": mapped,
    "recarray": lambda array, path: array.view(np.recarray),
    "unaligned": lambda array, path: unaligned(array),
    "gaps": lambda array, path: spread(array),
    "by columns": lambda array, path: np.asfortranarray(array),
    "other order of bytes": lambda array, path: array.astype(array.dtype.newbyteorder()),
    "no elements": lambda array, path: array[:0],
    "no dims": lambda array, path: array.reshape(-1)[:1].reshape(()),
}


@each("kind", KINDS)
@each("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("native", ["0", "wait"])
@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())
def test_an_array_of_any_kind_is_stepped_in_place_as_a_plain_one(
    make, native, dtype, kind, monkeypatch, tmp_path
):
    monkeypatch.setenv(NATIVE, native)
    odd = KINDS[kind](values(dtype), tmp_path / "array")
    plain = np.array(odd, odd.dtype.newbyteorder("="), subok=False, order="C")
    pairs = []
    for weight in (Dual(odd), Dual(plain)):
        solver, like = make(0.1), weight.value
        for number in range(4):
            weight.grad = np.asarray(like) * (number + 1)
            if like is odd:
                weight.grad = KINDS[kind](weight.grad, tmp_path / "gradient")
            solver.step([weight])
        assert weight.value is like
        pairs.append(np.array(weight.value, plain.dtype, subok=False, order="C"))
    del odd, weight, solver
    gc.collect()
    # The norms of LAMB are sums, whose order follows the layout.
    np.testing.assert_allclose(*pairs, rtol=1e-5 if plain.real.itemsize == 4 else 1e-13)


@pytest.mark.parametrize("kind", ["matrix", "memmap", "recarray", "gaps", "unaligned"])
def test_lbfgs_steps_arrays_of_any_kind_in_place_as_plain_ones(kind, tmp_path):
    arrays = values("float64"), values("float64")[:2]
    found = []
    for make in (KINDS[kind], lambda array, path: array.copy()):
        weights = [Dual(make(one, tmp_path / f"{len(one)}")) for one in arrays]

        def closure(weights=weights):
            for weight in weights:
                weight.grad = weight.value * 2
            return sum([float((np.asarray(one.value) ** 2).sum()) for one in weights])

        solvers.LBFGS(line_search_fn="strong_wolfe").step(weights, closure)
        found += [np.asarray(one.value) for one in weights]
    for odd, plain in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(odd, plain)


@pytest.mark.parametrize("of", ["value", "gradient"])
def test_a_masked_array_is_refused_since_its_mask_would_be_lost(of):
    array = np.ma.masked_array(np.ones(3), [True, False, False])
    weight = Dual(array, np.ones(3)) if of == "value" else Dual(np.ones(3), array)
    with pytest.raises(TypeError, match=r"parameter 0 of the list .* masked array.*\.filled"):
        solvers.SGD(lr=0.1).step([weight])
    np.testing.assert_array_equal(np.asarray(weight.value), 1.0)


@each("shift", [0, 1, 2, 4])
def test_an_update_may_write_an_array_at_any_address(shift, monkeypatch):
    monkeypatch.setenv(NATIVE, "wait")
    monkeypatch.setattr(elementwise, "_CACHE_BYTES", 0)  # stores past the caches
    solver, whole = solvers.SGD(lr=0.5), np.ones((100, 3), "float32")
    value, grad, out = unaligned(whole, shift), unaligned(whole, shift), unaligned(whole, shift)
    solver.update(solver.init(value), grad, value, out)
    np.testing.assert_array_equal(out, 0.5)


def test_parameters_and_states_begin_at_a_cache_line(monkeypatch):
    monkeypatch.setenv(NATIVE, "0")
    weights = [ag.nn.Parameter(np.ones(size, "float32")) for size in (1, 3, 70_001, 70_002)]
    for number, weight in enumerate(weights):
        weight.name, weight.grad = f"w{number}", np.ones(weight.shape, "float32")
    first, second = solvers.Adam(lr=0.5), solvers.Adam(lr=0.5)
    first.step(weights)
    second.load_state_dict(first.state_dict())
    second.step(weights)
    arrays = [weight.array for weight in weights]
    for solver in (first, second):
        arrays += [one for slot in solver._latest for one in slot.state.arrays.values()]
    assert len(arrays) == 4 + 16
    assert {one.ctypes.data % 64 for one in arrays} == {0}
