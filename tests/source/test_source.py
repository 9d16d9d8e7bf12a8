"""What `ag.source` promises besides right gradients: errors, text, rules, orders, old defects."""

import ast
import gc
import inspect
import linecache
import traceback

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError
from actorgraph.source.fence import ALWAYS, WHERE_ACTIVE
from tests._each import each
from tests.source import catalogue

source = ag.source


def cubic(x):
    return x**3 + 2.0 * x


def product(x, y):
    z = np.sin(x) * y
    return z * z


# -- what is returned -----------------------------------------------------------------------------


def test_one_wrt_gives_an_array_and_several_a_tuple():
    assert source.grad(product, 1)(2.0, 3.0) == pytest.approx(6.0 * np.sin(2.0) ** 2)
    both = source.grad(product, (1, 0))(2.0, 3.0)
    assert isinstance(both, tuple)
    assert both[0] == pytest.approx(6.0 * np.sin(2.0) ** 2)


@pytest.mark.parametrize("motion", ["joint", "split"])
def test_the_value_comes_last_where_it_is_preserved(motion):
    gradient, value = source.grad(cubic, preserve_result=True, motion=motion)(2.0)
    assert (gradient, value) == (14.0, 12.0)
    assert source.jvp(cubic, preserve_result=True)(2.0, 0.5) == (7.0, 12.0)


def test_vjp_and_jvp_take_seed_and_tangents():
    x = np.array([0.5, 1.0])
    ct = np.array([2.0, -1.0])
    np.testing.assert_allclose(source.vjp(cubic)(x, ct), ct * (3 * x**2 + 2))
    np.testing.assert_allclose(source.jvp(cubic)(x, ct), ct * (3 * x**2 + 2))
    assert source.jvp(product, (0, 1))(2.0, 3.0, dx=0.0, dy=1.0) == pytest.approx(
        6.0 * np.sin(2.0) ** 2
    )
    with pytest.raises(FeedError, match="has to be given"):
        source.vjp(cubic)(x)


def test_an_array_result_needs_a_seed_or_ones_by_default():
    x = np.array([0.5, 1.0])
    with pytest.raises(ShapeError, match=r"is not a scalar.*DefaultOnes"):
        source.grad(cubic)(x)
    ones = source.autodiff(cubic, input_derivative=source.DefaultOnes)
    np.testing.assert_allclose(ones(x), 3 * x**2 + 2)


def test_a_seed_of_another_shape_is_refused_where_dims_are_checked():
    with pytest.raises(ShapeError, match="shape mismatch"):
        source.vjp(cubic)(np.ones(2), np.ones(3))
    loose = source.vjp(cubic, check_dims=False)
    np.testing.assert_allclose(loose(np.ones(2), 2.0), [10.0, 10.0])


def test_split_motion_has_both_halves():
    split = source.grad(product, (0, 1), motion="split")
    record = split.forward(2.0, 3.0)
    assert split.backward(record, 1.0) == split(2.0, 3.0)


def test_gradients_have_the_dtype_of_their_arguments():
    x = np.array([0.5, 1.0], np.float32)

    def f(x):
        return np.sum(np.where(x > 0.7, x * x, x) * np.tanh(x))

    assert source.grad(f)(x).dtype == np.float32


def test_a_gradient_is_the_callers_own():
    def total(x):
        return np.sum(x)

    def same(x):
        return x

    x = np.ones(3)
    source.grad(total)(x)[:] = 7.0
    seed = np.ones(3)
    gradient = source.vjp(same)(x, seed)
    gradient[:] = 5.0
    assert seed[0] == x[0] == 1.0


@each("wrong", [3, np.arange(3), True, "text", None])
def test_what_has_no_gradient_is_refused_when_it_is_called(wrong):
    with pytest.raises(GraphTypeError, match="argument x is"):
        source.grad(cubic)(wrong)


@each(
    "options, text",
    [
        ({"mode": "sideways"}, "mode has to be"),
        ({"motion": "slow"}, "motion has to be"),
        ({"wrt": (3,)}, "from 0 to 0 \\(x\\), got 3"),
        ({"wrt": ()}, "each once"),
        ({"wrt": (0, 0)}, "each once"),
        ({"input_derivative": "two"}, "input_derivative has to be"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, text):
    with pytest.raises(GraphError, match=text):
        source.autodiff(cubic, **options)
    with pytest.raises(GraphTypeError, match="differentiates Python functions"):
        source.grad(np.sin)


# -- orders ---------------------------------------------------------------------------------------


def power_by_loop(x):
    y = x
    for _ in range(3):
        y = y * x
    return y


def rosenbrock(x):
    return (1.0 - x[0]) ** 2 + 100.0 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.parametrize("optimized", [True, False])
def test_derivatives_of_derivatives(optimized):
    first = source.grad(power_by_loop, optimized=optimized)
    second = source.grad(first, optimized=optimized)
    assert first(1.1) == pytest.approx(4 * 1.1**3)
    assert second(1.1) == pytest.approx(12 * 1.1**2)
    if optimized:
        assert source.grad(second)(1.1) == pytest.approx(24 * 1.1)
    assert source.jvp(first, optimized=optimized)(1.1, dx=2.0) == pytest.approx(24 * 1.1**2)
    assert source.jvp(source.jvp(power_by_loop))(1.1, 1.0, 1.0) == pytest.approx(12 * 1.1**2)


def test_products_with_the_hessian():
    x, v = np.array([0.3, -0.4]), np.array([1.0, 2.0])
    hessian = np.array([[1200 * 0.09 + 160 + 2, -120], [-120, 200]])
    forward = source.jvp(source.grad(rosenbrock))
    reverse = source.vjp(source.grad(rosenbrock))
    np.testing.assert_allclose(forward(x, dx=v), hessian @ v)
    np.testing.assert_allclose(
        reverse(x, **{_last(source.grad(rosenbrock), source.vjp): v}), hessian @ v
    )


@pytest.mark.parametrize(
    "name",
    """
    writes_elements list_as_a_stack matrix_products nested_comprehension lists_added rows_written
    places_written_twice
    """.split(),
)
def test_second_order_through_control_flow_and_containers(name):
    function, args, _ = catalogue.CATALOGUE[name]
    leaves, structure = ag.autodiff.trees.flatten(args[0])
    x = leaves[0]
    first = source.grad(function)

    def slope(x):
        parts, _ = ag.autodiff.trees.flatten(
            first(ag.autodiff.trees.unflatten(structure, [x, *leaves[1:]]), *args[1:])
        )
        return np.sum(parts[0])

    moved = (slope(np.asarray(x) + 1e-5) - slope(np.asarray(x) - 1e-5)) / 2e-5
    ones = ag.autodiff.trees.unflatten(
        structure,
        [np.ones_like(x) if i == 0 else np.zeros_like(one) for i, one in enumerate(leaves)],
    )
    tangent = source.jvp(first, check_dims=False)(*args, **{_last(first, source.jvp): ones})
    parts, _ = ag.autodiff.trees.flatten(tangent)
    np.testing.assert_allclose(np.sum(parts[0]), moved, rtol=1e-5)
    second = source.vjp(first, check_dims=False)
    parts, _ = ag.autodiff.trees.flatten(second(*args, **{_last(first, source.vjp): ones}))
    np.testing.assert_allclose(np.sum(parts[0]), moved, rtol=1e-5)


def _last(function, transform):
    return list(inspect.signature(transform(function)).parameters)[-1]


# -- text, tracebacks, debuggers ------------------------------------------------------------------


def test_the_text_is_readable_and_says_which_line_each_statement_is_the_gradient_of():
    line = inspect.getsourcelines(product)[1] + 1
    text = source.grad(product, (0, 1)).__source__
    assert f"# gradient of line {line}: z = np.sin(x) * y" in text
    assert "bx = bsin_1 * np.cos(x)" in text
    assert text == source.grad(product, (0, 1)).__source__
    ast.parse(text)


def test_inspect_and_tracebacks_see_the_text():
    def divides(x):
        return np.sum(x) / len(x) + float(np.linalg.inv(x)[0, 0])

    derivative = source.grad(divides)
    assert inspect.getsource(derivative).startswith("def ddividesdx(x, bresult=None):")
    with pytest.raises(np.linalg.LinAlgError, match="Singular") as caught:
        derivative(np.zeros((2, 2)))
    shown = "".join(traceback.format_exception(caught.value))
    assert "inv_1 = np.linalg.inv(x)" in shown


def test_the_lines_of_a_text_go_with_its_function():
    derivative = source.grad(cubic)
    name = derivative.__code__.co_filename
    assert name in linecache.cache
    del derivative
    gc.collect()
    assert name not in linecache.cache


def test_verbose_prints_the_text(capsys):
    source.grad(cubic, verbose=1)
    assert "def dcubicdx(x, bresult=None):" in capsys.readouterr().out


def test_optimisation_takes_away_what_nothing_needs():
    def wasteful(x):
        unused = np.exp(x)  # noqa: F841
        return x * x

    assert "exp" not in source.grad(wasteful).__source__
    assert "exp" in source.grad(wasteful, optimized=False).__source__
    short = source.grad(cubic).__source__
    assert len(short) < len(source.grad(cubic, optimized=False).__source__)


def test_straight_lines_keep_nothing_on_a_tape():
    for name in ("chain_of_names", "same_name_again", "two_layers", "elifs"):
        function, _, wrt = catalogue.CATALOGUE[name]
        assert "tape" not in source.grad(function, wrt).__source__


# -- the fence ------------------------------------------------------------------------------------


def yields(x):
    yield x * x


async def awaits(x):
    return x


def tries(x):
    try:
        y = x * x
    except ValueError:
        y = x
    return y


def writes_global(x):
    global COUNT
    COUNT = 1
    return x


def deletes(x):
    y = x * x
    del y
    return x


def executes(x):
    exec("x = 3")
    return x * x


def unknown_function(x):
    return np.frexp(x)[0] + divmod(x, 2)[0]


def generates(x):
    return sum(a * a for a in x)


def writes_into_argument(x):
    x[0] = 1.0
    return np.sum(x)


def writes_what_is_shown(x):
    y = x * 2
    z = y[1:]
    y[1] = 5.0
    return np.sum(z)


def nonlocal_write(x):
    y = x

    def inner():
        nonlocal y
        y = y * 2

    inner()
    return y


def attribute(x, box):
    box.value = x
    return box.value * x


def pattern(x):
    match x:
        case [a, b]:
            return a * b
    return x[0]


def a_class(x):
    class Holder:
        value = x

    return Holder.value


def escapes(x):
    return list(map(lambda y: y * x, [1.0]))[0]  # noqa: C417, RUF015


def reads_a_text(x):
    print(f"{x}")
    return 2.0 * float(f"{x}")


def reads_another_text(x):
    return x * np.float64(str(x))


def reads_a_percent_text(x):
    return x * float("%s" % x)  # noqa: UP031


def reads_a_named_text(x):
    form = "{}"
    text = form.format(x)
    return x * float(text)


@each(
    ("function", "text", "offset"),
    [
        (yields, "a generator has no derivative; return a list", 1),
        (awaits, "differentiate the part between two awaits", 0),
        (tries, "move the try out of the function", 1),
        (writes_global, "return the value instead", 1),
        (nonlocal_write, "return the value instead", 4),
        (deletes, "an active name must not be deleted", 2),
        (executes, "code made at run time cannot be differentiated", 1),
        (unknown_function, "@ag.source.adjoint\\(divmod\\)", 1),
        (generates, "write a list comprehension", 1),
        (writes_into_argument, "x = x.copy\\(\\)", 1),
        (writes_what_is_shown, "z = y.copy\\(\\)", 3),
        (attribute, "use a dict", 1),
        (pattern, "a pattern cannot take active values apart", 2),
        (escapes, "holds the active x", 1),
        (reads_a_text, "a number read from a text has no gradient", 2),
        (reads_another_text, "a number read from a text has no gradient", 1),
        (reads_a_percent_text, r"gradient, and float\('%s' % x\) is one; take the number", 1),
        (reads_a_named_text, r"gradient, and float\(text\) is one; take the number", 3),
    ],
)
def test_what_is_fenced_says_file_line_reason_and_way_out(function, text, offset):
    for make in (source.grad, source.jvp):
        with pytest.raises(source.UnsupportedSyntax, match=text) as caught:
            make(function)
        error = caught.value
        assert isinstance(error, SyntaxError)
        assert isinstance(error, GraphError)
        assert error.filename == __file__
        assert error.lineno == function.__code__.co_firstlineno + offset
        assert error.text == linecache.getline(__file__, error.lineno)
        assert "^" in "".join(traceback.format_exception_only(error))


DIFFERENTIATED = frozenset(
    """
    Module Interactive Expression FunctionType FunctionDef Return Assign AugAssign AnnAssign For
    While If With Match Raise Assert Expr Pass Break Continue BoolOp NamedExpr BinOp UnaryOp Lambda
    IfExp Dict ListComp DictComp Compare Call FormattedValue JoinedStr Constant Attribute Subscript
    Name List Tuple comprehension ExceptHandler arguments arg keyword alias withitem match_case
    MatchValue MatchSingleton MatchAs MatchOr TypeIgnore TypeVar ParamSpec TypeVarTuple
    """.split()
)
"""What is differentiated, or is part of something that is."""


def test_the_fence_knows_every_construct_of_this_python():
    known = DIFFERENTIATED | ALWAYS.keys() | WHERE_ACTIVE.keys()
    kinds = (ast.stmt, ast.expr, ast.pattern, ast.mod)
    base = {"stmt", "expr", "pattern", "mod", "AST"}
    gone = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis", "Index", "ExtSlice", "Suite"}
    gone |= {"AugLoad", "AugStore", "Param", "slice"}
    found = {
        name
        for name, kind in vars(ast).items()
        if name not in gone
        and name[0] != "_"
        and isinstance(kind, type)
        and issubclass(kind, kinds)
    }
    assert found - base <= known


def test_passive_code_may_hold_anything():
    assert source.grad(catalogue.passive_statements)(1.5) == 3.0


def test_a_function_without_source_is_refused():
    space = {}
    exec(compile("def f(x): return x", "<nowhere>", "exec"), space)
    with pytest.raises(source.UnsupportedSyntax, match="no source"):
        source.grad(space["f"])


def test_lambdas_are_found_on_their_line():
    pair = (lambda x: x * x, lambda x: x * x * x)
    assert [source.grad(one)(2.0) for one in pair] == [4.0, 12.0]


def test_an_augmented_write_into_what_may_be_shared_is_refused_for_arrays():
    def f(x):
        x += 1.0
        return np.sum(x * x)

    assert source.grad(f)(1.0) == 4.0
    with pytest.raises(GraphError, match="x = x \\+ ..."):
        source.grad(f)(np.ones(2))


def test_a_row_that_is_written_later_is_refused_when_it_is_read():
    def f(x):
        y = x * 1.0
        row = y[0]
        y[0] = 2.0
        return np.sum(row * y)

    assert source.grad(f)(np.ones(2)).tolist() == [3.0, 1.0]
    with pytest.raises(GraphError, match="row is a view of y"):
        source.grad(f)(np.ones((2, 2)))


# -- rules, insertions, traces --------------------------------------------------------------------


def softened(x):
    return np.sqrt(x * x + 1e-3)


def uses_softened(x):
    return softened(x) * 2.0


def test_rules_of_ones_own_are_used():
    try:

        @source.adjoint(softened)
        def softened_adjoint(ct, y, x):
            return ct * 10.0 * x

        @source.tangent(softened)
        def softened_tangent(tans, y, x):
            return tans[0] * 100.0

        assert source.grad(uses_softened)(3.0) == 60.0
        assert source.jvp(uses_softened)(3.0, 1.0) == 200.0
        assert source.grad(source.grad(uses_softened))(3.0) == 20.0
    finally:
        from actorgraph.source.support import ADJOINTS, TANGENTS

        ADJOINTS.pop(softened)
        TANGENTS.pop(softened)


def test_a_rule_for_one_mode_only_is_told():
    try:
        source.adjoint(softened)(lambda ct, y, x: ct)
        with pytest.raises(source.UnsupportedSyntax, match="softened has no tangent"):
            source.jvp(uses_softened)
    finally:
        from actorgraph.source.support import ADJOINTS

        ADJOINTS.pop(softened)


SEEN = []


def clipped(x):
    y = x * x
    with source.insert_grad_of(y) as dy:
        SEEN.append(dy)
        dy = np.clip(dy, -1.0, 1.0)
    return y * 100.0


def test_a_block_runs_on_the_gradient_where_it_stands():
    SEEN.clear()
    assert source.grad(clipped)(3.0) == 6.0
    assert SEEN == [100.0]
    assert source.jvp(clipped)(3.0, 1.0) == 600.0
    assert clipped(3.0) == 900.0


@source.trace
def traced(x):
    return (lambda: np.tanh(x) * x)()  # noqa: PLC3002


def uses_traced(x):
    return traced(x) + x


def test_what_is_traced_needs_no_source():
    expected = np.tanh(0.7) + 0.7 / np.cosh(0.7) ** 2 + 1.0
    assert traced(0.7) == pytest.approx(np.tanh(0.7) * 0.7)
    assert source.grad(uses_traced)(0.7) == pytest.approx(expected)
    assert source.jvp(uses_traced)(0.7, 1.0) == pytest.approx(expected)


# -- Tangent's defects ----------------------------------------------------------------------------


def test_power_division_and_product_sum_over_what_was_broadcast():
    def f(x, y):
        return np.sum(x**y) + np.sum(x / y) + np.sum(np.multiply(x, y))

    x, y = np.array([1.5, 2.0]), np.array([[1.0, 2.0], [3.0, 0.5]])
    assert [one.shape for one in source.grad(f, (0, 1))(x, y)] == [(2,), (2, 2)]
    assert np.shape(source.grad(f, (0, 1))(1.5, y)[0]) == ()


def test_forward_powers_see_the_tangent_of_the_exponent():
    def f(x, y):
        return x**y

    assert source.jvp(f, (0, 1))(2.0, 3.0, 0.0, 1.0) == pytest.approx(8 * np.log(2.0))


def test_transposes_with_axes_and_slices_with_none_have_gradients():
    x = np.arange(6.0).reshape(1, 2, 3)

    def f(x):
        return np.sum(np.transpose(x, (2, 0, 1)) ** 2) + np.sum(x[0, :, None, 1] ** 2)

    expected = 2 * x
    expected[0, :, 1] += 2 * x[0, :, 1]
    np.testing.assert_allclose(source.grad(f)(x), expected)


def test_methods_rows_and_columns_and_nested_definitions_work():
    assert source.grad(catalogue.shape_unpacked)(catalogue.MATRIX).shape == (2, 3)
    assert source.grad(catalogue.nested_function)(1.0) == pytest.approx(4.0)


def test_the_maximum_by_a_loop_is_not_of_zero_gradient_and_integers_are_refused():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    expected = [0.0320586, 0.0871443, 0.2368828, 0.6439143]
    gradient = source.grad(catalogue.largest_by_loop)
    np.testing.assert_allclose(gradient(x), expected, atol=1e-7)
    with pytest.raises(GraphTypeError, match="int64"):
        gradient(np.arange(1, 5))


def test_values_at_known_points():
    assert source.grad(catalogue.iterpower)(1.1, 7) == pytest.approx(15.58973681)
    assert source.grad(catalogue.newton_root)(2.0) == pytest.approx(0.35355339)


def test_recorded_arrays_are_not_copied_and_a_loop_of_reads_is_linear():
    def f(x):
        total = 0.0
        for i in range(len(x)):
            total = total + x[i] * x[i]
        return total

    text = source.grad(f).__source__
    assert "add_at" in text
    assert ".copy()" not in text
    np.testing.assert_allclose(source.grad(f)(np.arange(5.0)), 2 * np.arange(5.0))


def test_changes_of_a_closure_and_of_globals_are_seen():
    factor = 2.0

    def f(x):
        return x * factor

    gradient = source.grad(f)
    assert gradient(1.0) == 2.0
    factor = 5.0
    assert gradient(1.0) == 5.0


def test_the_result_keeps_what_the_reversal_undoes():
    def f(x):
        y = np.zeros(2)
        y[0] = x
        y[1] = x * y[0]
        return y

    gradient, value = source.vjp(f, preserve_result=True)(3.0, np.array([1.0, 1.0]))
    assert value.tolist() == [3.0, 9.0]
    assert gradient == 7.0
