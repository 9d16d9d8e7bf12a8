"""Split rows: each part writes some elements of the result; together they give its bits."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorgraph.devices import native
from actorgraph.devices.loops import Routine, call, dot_loop, loop_of, product_loop
from actorgraph.lower import splitting
from actorgraph.lower.splitting import TableRow, beside, split, touched
from tests._each import each
from tests._soak import SOAK, drawn

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
PARTS = st.integers(2, 4)


def row_of(loop, arrays, dims=None, strides=None):
    """Return a row on arrays with a base each; without `dims` its loop is elementwise."""
    axes = np.ndim(arrays[-1]) - 1 if dims is None else 0
    none, shape = (0,) * (2 - axes), arrays[-1].shape
    steps = [(*none, *one.strides[:axes]) for one in arrays]
    places = [word for base, one in enumerate(steps) for word in (base, 0, *one)]
    times = ((1,) * (2 - axes) + shape)[:2]
    return TableRow(
        loop, times, dims or shape[axes:], strides or tuple(one.strides[-1] for one in arrays),
        tuple(places), tuple(one.itemsize for one in arrays), native.ALL_ERRORS,
    )  # fmt: skip


def calls(row, arrays):
    """Call a row's loop as machine code does."""
    places = list(zip(*[iter(row.places)] * 4, strict=True))
    for u, o in np.ndindex(row.times):
        at = [arrays[base].ctypes.data + i + u * s + o * t for base, i, s, t in places]
        shown = [SimpleNamespace(ctypes=SimpleNamespace(data=one)) for one in at]
        call(row.loop, shown, row.dims, row.strides)


def array(shape, dtype="f", seed=0):
    """Return random numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def bits_in_parts(row, arrays, parts):
    """Return the parts, and the bytes of the result, computed whole and in parts."""
    *given, result = arrays
    whole, apart = array(result.shape, result.dtype), array(result.shape, result.dtype)
    whole[...] = apart[...] = result
    calls(row, [*given, whole])
    made = split(row, parts)
    for one in made or [row]:
        calls(one, [*given, apart])
    return made, whole.tobytes(), apart.tobytes()


@drawn(100, 3000)
@given(
    st.sampled_from(["add", "tanh", "exp", "divide", "maximum", "sin"]),
    st.tuples(st.integers(1, 9), st.integers(1, 70)), PARTS, st.sampled_from("fd"),
)  # fmt: skip
def test_parts_of_an_elementwise_row_have_its_bits(name, shape, parts, char):
    count = getattr(np, name).nargs
    loop = loop_of(name, count * char)
    arrays = [array(shape, char, seed) for seed in range(count)]
    row = row_of(loop, arrays)
    made, whole, apart = bits_in_parts(row, arrays, parts)
    assert whole == apart
    if made is not None:
        assert len(made) == parts
        spans = sorted(touched(one)[-1] for one in made)
        assert shape[0] % parts or all(one[2] <= two[1] for one, two in pairwise(spans))
        assert (spans[0][1], spans[-1][2]) == touched(row)[-1][1:]


@each("axis", [0, 1])
@each("shape", [(40, 64), (64, 129), (2, 1000)])
@each("parts", [2, 3, 4])
def test_parts_of_a_sum_leave_together_what_is_summed_up(axis, shape, parts):
    x = array(shape)
    result = array((shape[1 - axis],))
    result[...] = -0.0
    loop = loop_of("add", "fff")
    step = 4 * (axis == 0)
    row = TableRow(
        loop, (1, shape[0]), (shape[1],), (step, 4, step),
        (1, 0, 0, 4 * (axis == 1), 0, 0, 0, 4 * shape[1], 1, 0, 0, 4 * (axis == 1)),
        (4, 4, 4), native.ALL_ERRORS,
    )  # fmt: skip
    made, whole, apart = bits_in_parts(row, [x, result], parts)
    assert whole == apart == x.sum(axis).tobytes()
    assert made is not None or (axis == 1 and shape[0] == 2 and parts > 2)


PRODUCTS = [
    (1, 256, 128, 128), (1, 16, 64, 256), (4, 64, 32, 64), (1, 128, 256, 512), (3, 20, 10, 36),
    (1, 4, 64, 300), (1, 300, 64, 4), (1, 33, 65, 129), (1, 8, 8, 8), (1, 1, 512, 512),
    (1, 96, 7, 5),
]  # fmt: skip


@pytest.mark.parametrize("char", ["f", "d"])
@pytest.mark.parametrize("transposed", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_a_product_have_its_bits_on_any_numbers(char, transposed, parts):
    split_of = 0
    for seed, (count, n, k, m) in enumerate(PRODUCTS):
        x, y = array((count, n, k), char, seed), array((count, k, m), char, seed + 1)
        if 0 in transposed:
            x = array((count, k, n), char, seed).transpose(0, 2, 1)
        if 1 in transposed:
            y = array((count, m, k), char, seed).transpose(0, 2, 1)
        z = array((count, n, m), char)
        dims = count, n, k, m
        strides = [one.strides[0] for one in (x, y, z)]
        strides += [step for one in (x, y, z) for step in one.strides[1:]]
        row = row_of(product_loop(char), [x, y, z], dims, tuple(strides))
        for _ in range(3 if SOAK else 1):
            x[...] = array(x.shape, char, seed + 7)
            made, whole, apart = bits_in_parts(row, [x, y, z], parts)
            assert whole == apart == np.matmul(x, y).tobytes()
        split_of += made is not None
    assert split_of > 3


def test_a_product_whose_parts_would_have_other_bits_is_left_whole(monkeypatch):
    x, y, z = [array(shape, "d") for shape in ((256, 128), (128, 128), (256, 128))]
    strides = (0, 0, 0, *x.strides, *y.strides, *z.strides)
    row = row_of(product_loop("d"), [x, y, z], (1, 256, 128, 128), strides)
    assert len(split(row, 2)) == 2
    splitting._have_its_bits.cache_clear()
    honest = splitting.call

    def by_shape(loop, arrays, dims, strides):  # like a BLAS with another algorithm for fewer rows
        honest(loop, arrays, dims, strides)
        arrays[-1][0] ^= dims[1] * dims[3] < 256 * 128

    monkeypatch.setattr(splitting, "call", by_shape)
    assert split(row, 2) is None
    splitting._have_its_bits.cache_clear()


def test_where_a_product_lies_has_no_say_in_its_parts():
    x, y, z = [array(shape, "d") for shape in ((256, 128), (128, 128), (256, 128))]
    strides = (0, 0, 0, *x.strides, *y.strides, *z.strides)
    row = row_of(product_loop("d"), [x, y, z], (1, 256, 128, 128), strides)

    def elsewhere(one):
        places = [
            word + (4096, 5)[at % 4 == 0] * (at % 4 < 2) for at, word in enumerate(one.places)
        ]
        return one._replace(places=tuple(places))

    assert split(elsewhere(row), 2) == [*map(elsewhere, split(row, 2))]


def test_a_product_of_a_matrix_and_itself_is_compared_as_one():
    x, z = array((64, 64)), array((64, 64))
    strides = (0, 0, 0, *x.strides, *x.T.strides, *z.strides)
    row = row_of(product_loop("f"), [x, x, z], (1, 64, 64, 64), strides)
    row = row._replace(places=(0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0))
    _, whole, apart = bits_in_parts(row, [x, z], 2)
    assert whole == apart == (x @ x.T).tobytes()


def test_parts_of_dot_products_have_their_bits():
    x, y, z = array((50, 300)), array((50, 300), seed=1), array((50,))
    strides = (x.strides[0], y.strides[0], 4, 4, 4)
    row = row_of(dot_loop("f"), [x, y, z], (50, 300), strides)
    made, whole, apart = bits_in_parts(row, [x, y, z], 2)
    assert len(made) == 2
    assert whole == apart == np.vecdot(x, y).tobytes()


def test_a_row_touches_each_argument_from_its_first_to_its_last_byte():
    x, y, z = array((4, 5)), array((5, 6)), array((4, 6))
    dots, ends = array((4, 5), seed=1), array((4,))
    product = (0, 0, 0, *x.strides, *y.strides, *z.strides)
    of_dots = (x.strides[0], dots.strides[0], 4, 4, 4)
    for row, arrays in (
        (row_of(loop_of("tanh", "ff"), [x, dots]), [x, dots]),
        (row_of(product_loop("f"), [x, y, z], (1, 4, 5, 6), product), [x, y, z]),
        (row_of(dot_loop("f"), [x, dots, ends], (4, 5), of_dots), [x, dots, ends]),
    ):
        assert touched(row) == [(base, 0, one.nbytes) for base, one in enumerate(arrays)]


@pytest.mark.parametrize(
    "change",
    [
        {"heard": native.REFUSES},
        {"dims": (), "strides": ()},
        {"dims": (16, 16, 4), "strides": (4, 8, 4, 0, 0)},
        {"dims": (1,), "strides": (4, 4, 4), "times": (1, 1)},
    ],
)
def test_a_row_that_is_not_known_or_has_one_element_is_left_whole(change):
    arrays = [array((8, 64)) for _ in range(3)]
    row = row_of(Routine(1, 0), arrays)._replace(**change)
    assert split(row, 2) is None


def moved(row, *by):
    """Return the row with the offsets of its arguments moved by some bytes."""
    places = [*row.places]
    for argument, one in enumerate(by):
        places[4 * argument + 1] += one
    return row._replace(places=tuple(places))


def test_rows_that_one_step_has_become_are_dealt_to_parts_as_they_are():
    arrays = [array((8, 64)) for _ in range(2)]
    row = row_of(loop_of("tanh", "ff"), arrays)
    rows = [moved(row, 4096 * k, 2048 * k) for k in range(4)]
    assert list(beside(rows, 2)) == [[rows[:2], rows[2:]]]
    assert list(beside(rows, 4)) == [[[one] for one in rows]]
    parts = [[[part] for part in split(one, 3)] for one in rows]
    assert list(beside(rows, 3)) == parts


@pytest.mark.parametrize(
    "second",
    [
        lambda row: row,  # the same bytes
        lambda row: moved(row, 0, 1024),  # some of them
        lambda row: row._replace(places=(1, *row.places[1:4], 2, *row.places[5:])),  # reads them
    ],
)
def test_rows_that_touch_what_others_write_are_split_one_by_one(second):
    row = row_of(loop_of("tanh", "ff"), [array((8, 64)) for _ in range(2)])
    rows = [row, second(row)]
    assert list(beside(rows, 2)) == [[[part] for part in split(one, 2)] for one in rows]


def test_a_row_that_has_no_parts_is_alone():
    row = row_of(loop_of("tanh", "ff"), [array((1, 1)) for _ in range(2)])
    assert list(beside([row], 2)) == [[[row]]]
