"""Types: unification, schemes as text, symbolic dims and their broadcasting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actorgraph.errors import GraphTypeError, ShapeError
from actorgraph.types import (
    UNKNOWN,
    Checks,
    Dim,
    DType,
    Function,
    RowVar,
    Substitution,
    Tensor,
    Var,
    bind_dims,
    broadcast,
    dim_max,
    dim_min,
    dtype_of,
    parse,
    public_shape,
    shape_from,
    shapes_differ,
    size_of,
    slice_size,
    symbol,
    unify,
)
from tests._each import each

n, m, k = symbol("n"), symbol("m"), symbol("k")


def tensor(dtype, *dims):
    return Tensor.of(dtype, dims)


def applied(scheme, *args):
    """Return the result of a scheme applied to concrete tensors, and the equations left."""
    function = parse(scheme)
    found = Substitution()
    for wanted, got in zip(function.args, args, strict=True):
        unify(wanted, got, found)
    return str(found.resolve(function.result)), found.checks


# -- unification ------------------------------------------------------------------------------


@each(
    "scheme, args, result",
    [
        ("n[*s] -> n[*t] -> n[*s|t]", [("float32", 3, 4), ("float32", 4)], "float32[3, 4]"),
        ("n[*s] -> n[*t] -> n[*s|t]", [("int8", 2, 1), ("int8", 1, 3)], "int8[2, 3]"),
        ("f[m, k] -> f[k, n] -> f[m, n]", [("float64", n, 3), ("float64", 3, m)], "float64[n, m]"),
        ("a[*s] -> bool[*s]", [("complex64", 3)], "bool[3]"),
        ("a[*s, c] -> i[*s] -> a[*s]", [("float32", 2, 3, 4), ("int8", 2, 3)], "float32[2, 3]"),
        ("a[*s, c] -> i[*s] -> a[*s]", [("float32", 4), ("int8",)], "float32[]"),
        ("a[*s] -> a1[*t] -> a[*t]", [("float32",), ("int8", 7)], "float32[7]"),
        ("a[m, m] -> a[]", [("float32", 3, 3)], "float32[]"),
        ("a[3, 4] -> a", [("float32", 3, 4)], "float32[]"),
    ],
)
def test_a_scheme_applies(scheme, args, result):
    assert applied(scheme, *[tensor(*arg) for arg in args]) == (result, [])


@each(
    "scheme, args, text",
    [
        ("n[*s] -> n[*s]", [("bool", 3)], "bool is not a number"),
        ("r[*s] -> r[*s]", [("complex64", 3)], "complex64 is not a real number"),
        ("f[*s] -> f[*s]", [("complex64", 3)], "complex64 is not a float"),
        ("x[*s] -> x[*s]", [("int64", 3)], "int64 is not float or complex"),
        ("i[*s] -> i[*s]", [("bool", 3)], "bool is not an integer"),
        ("a[*s] -> a[*t] -> a[*s|t]", [("float32", 3), ("float64", 3)], "float32.*float64"),
        ("float32[*s] -> a[*s]", [("float64", 3)], "float32.*float64"),
        ("a[m, k] -> a[m]", [("float32", 3)], "rank 1 .* does not fit rank 2"),
        ("a[m] -> a[m]", [("float32", 3, 1)], "rank 2 .* does not fit rank 1"),
        ("a[*s, m, k] -> a[m]", [("float32", 3)], "rank 1 .* does not fit rank at least 2"),
        ("a[*s] -> a[*s] -> a[*s]", [("float32", 3), ("float32", 3, 1)], "rank"),
    ],
)
def test_what_does_not_unify_is_a_type_error_that_says_why(scheme, args, text):
    with pytest.raises(GraphTypeError, match=text):
        applied(scheme, *[tensor(*arg) for arg in args])


def test_unification_compares_rank_and_dims_and_not_the_dtype_alone():
    """Regression: Gorgonia's unify ignores rank, so that a vector passes for a matrix."""
    with pytest.raises(GraphTypeError, match="rank 2"):
        unify(tensor("float32", 3), tensor("float32", 3, 1))
    with pytest.raises(ShapeError, match="3 and 4"):
        unify(tensor("float32", 3), tensor("float32", 4))
    with pytest.raises(ShapeError, match="3 and 4"):
        applied("a[m, m] -> a[]", tensor("float32", 3, 4))


def test_constructors_differ():
    function = parse("float32[] -> float32[]")
    for other in (tensor("float32"), DType("float32")):
        with pytest.raises(GraphTypeError, match="float32"):
            unify(function, other)
    with pytest.raises(GraphTypeError, match="float32"):
        unify(tensor("float32"), DType("float32"))


def test_functions_unify_part_by_part():
    found = unify(parse("a[*s] -> a[*s] -> f"), parse("int8[2] -> int8[2] -> float64"))
    assert found.types[Var("a")] == DType("int8")
    assert found.rows[RowVar("s")] == (2,)
    assert found.types[Var("f", "f")] == DType("float64")
    with pytest.raises(GraphTypeError, match="different numbers of arguments"):
        unify(parse("a -> a"), parse("a -> a -> a"))


def test_a_variable_never_contains_itself():
    a = Var("a")
    endless = Function((a,), a)
    with pytest.raises(GraphTypeError, match="contain itself: a = a -> a"):
        unify(a, endless)
    found = Substitution()
    unify(a, Var("b"), found)
    with pytest.raises(GraphTypeError, match="contain itself"):
        unify(Var("b"), Function((DType("int8"),), a), found)


def test_the_narrower_kind_survives_when_two_variables_meet():
    found = unify(Var("a"), Var("n", "n"))
    with pytest.raises(GraphTypeError, match="bool is not a number"):
        unify(Var("a"), DType("bool"), found)
    found = unify(Var("n", "n"), Var("a"))
    with pytest.raises(GraphTypeError, match="bool is not a number"):
        unify(Var("a"), DType("bool"), found)


def test_kinds_that_share_dtypes_without_one_being_narrower_meet_in_what_both_admit():
    """``r`` (int or float) and ``x`` (float or complex) have the floats in common."""
    for left, right in ((Var("r", "r"), Var("x", "x")), (Var("x", "x"), Var("r", "r"))):
        for dtype in ("int8", "complex64"):
            found = unify(left, right)
            with pytest.raises(GraphTypeError, match="is not a float"):
                unify(right, DType(dtype), found)
        found = unify(left, right)
        unify(left, DType("float32"), found)
        assert found.resolve(right) == DType("float32")


def test_kinds_without_a_common_dtype_do_not_unify():
    with pytest.raises(GraphTypeError, match="an integer"):
        unify(Var("i", "i"), Var("f", "f"))


def test_unify_is_symmetric_in_its_failures():
    cases = [
        (tensor("float32", 3), tensor("float32", 3, 4), "rank . .* does not fit rank"),
        (tensor("float32", 3), tensor("int8", 3), "cannot be unified"),
        (Var("n", "n"), DType("bool"), "bool is not a number"),
    ]
    for left, right, text in cases:
        for one, other in ((left, right), (right, left)):
            with pytest.raises(GraphTypeError, match=text):
                unify(one, other)


def test_an_equation_that_is_open_is_left_to_the_run():
    assert applied("a[m, m] -> a[m]", tensor("int8", n, 3))[1] == [(n, 3)]
    assert applied("a[*s] -> a[*t] -> a[*s|t]", tensor("int8", n), tensor("int8", m))[1] == [(n, m)]
    assert applied("a[m, m] -> a[m]", tensor("int8", UNKNOWN, 3)) == ("int8[?]", [])


# -- schemes as text --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["n[*s] -> n[*t] -> n[*s|t]", "a[] -> float32[]", "x[*s, m, m] -> x[*s]", "i3[k, 2] -> bool[]"],
)
def test_a_scheme_prints_as_it_is_written(text):
    assert str(parse(text)) == text


@each(
    "text, error",
    [
        ("q[*s] -> q[*s]", "unknown kind 'q'.*kinds are a, n, r"),
        ("a[*s -> a", "cannot read"),
        ("a[2x] -> a", "cannot read the dims"),
        ("float23[]", "not a dtype"),
        ("a[m, *s] -> a", "cannot read the dims"),
    ],
)
def test_text_that_is_no_scheme_is_a_type_error(text, error):
    with pytest.raises(GraphTypeError, match=error):
        parse(text)


@each("dtype", ["float32", np.int8, np.dtype("bool"), complex, "float16"])
def test_dtype_of_reads_what_numpy_reads(dtype):
    assert dtype_of(dtype) == np.dtype(dtype)


@each("dtype", ["O", "U3", "M8[s]", "longdouble", "nonsense", ">f4", "V8", None])
def test_dtypes_that_graphs_do_not_hold_are_type_errors(dtype):
    if dtype is None:
        assert dtype_of(None) == "float64"  # As NumPy reads it.
        return
    with pytest.raises(GraphTypeError, match="not supported|not a dtype"):
        dtype_of(dtype)


# -- dims -------------------------------------------------------------------------------------


@each(
    ("dim", "text"),
    [
        (n + 3, "n + 3"),
        (3 + n, "n + 3"),
        (n - 3, "n - 3"),
        (3 - n, "-n + 3"),
        (2 * n + m * n, "m*n + 2*n"),
        (n * n, "n*n"),
        ((n + 1) * (n - 1), "n*n - 1"),
        ((6 * n) // 3, "2*n"),
        ((n * m) // m, "n"),
        (n // 2, "floordiv(n, 2)"),
        (n % 2, "mod(n, 2)"),
        (7 // n, "floordiv(7, n)"),
        (dim_min(n, 10), "min(n, 10)"),
        (dim_max(n - 1, 0), "max(n - 1, 0)"),
    ],
)
def test_dims_print_as_people_write_them(dim, text):
    assert str(dim) == repr(dim) == text


def test_dims_are_normalised_so_that_equal_expressions_are_equal():
    assert 2 * n - n == n
    assert n - n == 0
    assert n + m == m + n
    assert (n + m) * k == k * m + k * n
    assert hash(n + m) == hash(m + n)
    assert n * 0 == 0
    assert n != m
    assert n + 1 != n
    assert n == "n"
    assert (n, 3) == ("n", 3)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(-3, 3), st.integers(1, 4))
def test_arithmetic_of_dims_is_that_of_ints(a, b, c, d):
    symbols = {"n": a, "m": b}
    for function in (
        lambda x, y: x + y * c - 2,
        lambda x, y: (x + c) * (y - d),
        lambda x, y: (x * d * d + d * y) // d,
        lambda x, y: (x + y) // d + (x + 1) % d,
        lambda x, y: c - x,
    ):
        assert bind_dims(function(n, m), symbols) == function(a, b)
    assert bind_dims(dim_max(n + c, m), symbols) == max(a + c, b)
    assert bind_dims(dim_min(n + c, m), symbols) == min(a + c, b)


@given(
    st.integers(0, 6),
    st.none() | st.integers(-7, 7),
    st.none() | st.integers(-7, 7),
    st.sampled_from([None, 1, 2, 3, -1, -2]),
)
def test_the_size_of_a_slice_of_a_symbol_is_that_of_a_range(size, start, stop, step):
    part = slice(start, stop, step)
    assert bind_dims(slice_size(n, part), {"n": size}) == len(range(size)[part])
    assert slice_size(size, part) == len(range(size)[part])


def test_min_and_max_resolve_where_symbols_that_are_sizes_decide():
    assert dim_max(n + 1, n) == n + 1
    assert dim_min(n + m, n) == n
    assert dim_max(n, 0) == n
    assert dim_min(3, 5) == 3
    assert dim_max(UNKNOWN, 3) is UNKNOWN
    assert slice_size(2 * n + 3, slice(n, n + 3)) == 3
    assert slice_size(2 * n + 3, slice(n + 3, None)) == n


def test_a_symbol_that_is_not_bound_is_named():
    with pytest.raises(KeyError, match="^'n'$"):
        (n + 1).bind({"m": 2})
    with pytest.raises(KeyError, match="only at run time"):
        UNKNOWN.bind({})


def test_arithmetic_with_an_unknown_dim_is_unknown():
    results = (UNKNOWN + 1, 1 + UNKNOWN, n * UNKNOWN, UNKNOWN // 2, 5 // UNKNOWN, UNKNOWN % 2)
    results += (UNKNOWN - n, 3 - UNKNOWN, -UNKNOWN)
    assert all(result is UNKNOWN for result in results)
    assert size_of((3, UNKNOWN)) is UNKNOWN


def test_shapes_are_read_as_users_write_them():
    assert shape_from(("batch", 3, None, n + 1, np.int64(4))) == ("batch", 3, UNKNOWN, n + 1, 4)
    assert shape_from(5) == (5,)
    assert shape_from("n") == (n,)
    assert shape_from(()) == ()
    assert public_shape((n, UNKNOWN, 3)) == ("n", None, 3)


@each("dims", [(-1,), (2.5,), (True,), ("a b",), ("2n",), object(), (b"n",)])
def test_what_is_no_shape_is_a_shape_error(dims):
    with pytest.raises(ShapeError, match="(a shape is|a dim is|a dim symbol must be) .* got"):
        shape_from(dims)


# -- checks and broadcasting ------------------------------------------------------------------


def test_equations_are_proved_refuted_or_kept():
    checks = Checks()
    assert checks.equal(3, 3) == 3
    assert checks.equal(2 * n, n + n) == 2 * n
    assert checks == []
    assert checks.equal(n, 3) == 3
    assert checks.equal(n, m) == m
    assert checks == [(n, 3), (n, m)]
    with pytest.raises(ShapeError, match="dims do not fit: n \\+ 1 and n"):
        checks.equal(n + 1, n)
    with pytest.raises(ShapeError, match="widths do not fit: 3 and 4"):
        checks.equal(3, 4, "widths")


@each(
    "left, right, result",
    [
        ((3, 4), (4,), (3, 4)),
        ((3, 1), (1, 4), (3, 4)),
        ((), (2, 3), (2, 3)),
        ((n, 1), (m,), (n, m)),
        ((n,), (1,), (n,)),
        ((n,), (n,), (n,)),
        ((0,), (1,), (0,)),
        ((UNKNOWN,), (3,), (3,)),
        ((UNKNOWN,), (n,), (n,)),
        ((UNKNOWN,), (1,), (UNKNOWN,)),
        ((UNKNOWN,), (UNKNOWN,), (UNKNOWN,)),
    ],
)
def test_shapes_broadcast_as_numpys_do(left, right, result):
    assert broadcast(left, right) == result
    assert broadcast(right, left) == result


def test_a_symbol_never_broadcasts_though_a_run_may_bind_it_to_one():
    checks = Checks()
    assert checks.broadcast((n, 3), (4, 3)) == (4, 3)
    assert checks == [(n, 4)]
    assert Dim.bind(checks[0][0], {"n": 1}) != 4


@pytest.mark.parametrize(("left", "right"), [((3,), (4,)), ((n,), (n + 1,)), ((2, 3), (3, 2))])
def test_shapes_that_cannot_broadcast_are_named(left, right):
    with pytest.raises(ShapeError, match=r"shapes \(.*\) and \(.*\) do not fit"):
        broadcast(left, right)


@each(
    "left, right, differ",
    [
        ((3, n), (3, n), False),
        ((n,), (m,), False),
        ((n,), (3,), False),
        ((UNKNOWN,), (1,), False),
        ((3,), (4,), True),
        ((n,), (n + 1,), True),
        ((1,), (n,), True),
        ((1,), (3,), True),
        ((3,), (3, 1), True),
    ],
)
def test_shapes_differ_where_it_can_be_shown_or_where_they_would_broadcast(left, right, differ):
    assert shapes_differ(left, right) == shapes_differ(right, left) == differ
