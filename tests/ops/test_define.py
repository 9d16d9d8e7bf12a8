"""A user's op in one declaration."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError
from actorgraph.op import REGISTRY
from tests._each import each
from tests._evaluate import evaluate

UNARY = {"scheme": "f[*s] -> f[*s]", "forward": lambda xp, x: xp.sinh(x)}


def declare_cube(name, **more):
    return ag.ops.define(
        name,
        scheme="f[*s] -> f[*s]",
        forward=lambda xp, x: x * x * x,
        vjp=(lambda ct, y, x: ct * 3 * x * x,),
        **more,
    )


def test_one_declaration_gives_a_function_on_nodes():
    cube = declare_cube("define_cube", doc="x * x * x.")
    x = ag.Graph().input("x", (3,), "float32")
    node = cube(x)
    assert cube.__name__ == "define_cube"
    assert cube.__doc__ == "x * x * x."
    assert REGISTRY["define_cube"] is cube.op is node.op
    assert node.type == x.type
    (got,) = evaluate([node], {x: np.arange(3, dtype="float32")})
    np.testing.assert_array_equal(got, [0, 1, 8])


def test_its_rule_can_be_differentiated_twice():
    cube = declare_cube("define_cube_twice")
    x = ag.Graph().input("x", (3,), "float64")
    (first,) = ag.gradients(cube(x).sum(), [x])
    (second,) = ag.gradients(first.sum(), [x])
    got = evaluate([first, second], {x: np.array([1.0, 2.0, 3.0])})
    np.testing.assert_allclose(got, [[3, 12, 27], [6, 12, 18]])


def test_one_rule_may_serve_every_argument():
    join = ag.ops.define(
        "define_sum_of_all",
        scheme=lambda arity, attrs: " -> ".join(["f[*s]"] * arity) + " -> f[*s]",
        forward=lambda xp, *arrays, scale: sum(arrays) * scale,
        vjp=lambda argnum, ct, y, *xs, scale: ct * scale * (argnum + 1),
    )
    g = ag.Graph()
    xs = [g.input(name, (2,), "float64") for name in "abc"]
    node = join(*xs, scale=2)
    gradients = ag.gradients(node.sum(), xs)
    value, *got = evaluate([node, *gradients], {x: np.ones(2) for x in xs})
    np.testing.assert_array_equal(value, [6, 6])
    np.testing.assert_array_equal(got, [[2, 2], [4, 4], [6, 6]])


def test_attributes_tell_nodes_apart():
    scaled = ag.ops.define(
        "define_scaled", scheme="f[*s] -> f[*s]", forward=lambda xp, x, by: x * by
    )
    x = ag.Graph().input("x", (2,), "float64")
    assert scaled(x, by=1) is scaled(x, by=1)
    assert scaled(x, by=1) is not scaled(x, by=1.0)


def test_shape_rule_may_depend_on_attributes():
    repeat = ag.ops.define(
        "define_repeat",
        scheme="a[n] -> a[*out]",
        forward=lambda xp, x, times: xp.tile(x, times),
        shape=lambda checks, x, times: (x[0] * times,),
        cost=lambda shapes, result, attrs: result[0],
    )
    x = ag.Graph().input("x", ("n",), "int64")
    node = repeat(x, times=3)
    assert str(node.shape[0]) == "3*n"
    (got,) = evaluate([node], {x: np.array([1, 2])})
    np.testing.assert_array_equal(got, [1, 2, 1, 2, 1, 2])


def test_forward_mode_uses_its_jvp_and_reverse_mode_alone_says_so():
    both = ag.ops.define(
        "define_double",
        scheme="f[*s] -> f[*s]",
        forward=lambda xp, x: x + x,
        vjp=(lambda ct, y, x: ct * 2,),
        jvp=lambda tans, y, x: tans[0] * 2,
    )
    x = ag.Graph().input("x", (2,), "float64")
    v = x.graph.input("v", (2,), "float64")
    (tan,) = tangents([both(x)], {x: v})
    (got,) = evaluate([tan], {x: np.zeros(2), v: np.array([1.0, 2.0])})
    np.testing.assert_array_equal(got, [2, 4])
    cube = declare_cube("define_reverse_only")
    with pytest.raises(GraphTypeError, match=r"define_reverse_only.*no forward-mode rule"):
        tangents([cube(x)], {x: v})


def test_without_a_rule_the_gradient_says_so():
    opaque = ag.ops.define("define_opaque", **UNARY)
    x = ag.Graph().input("x", (), "float64")
    with pytest.raises(GraphTypeError, match=r"define_opaque.*has no gradient rule"):
        ag.gradients(opaque(x), [x])


def test_user_ops_are_checked_and_may_be_async_or_serial():
    async def fetch(xp, x):
        return x

    class Service:
        async def __call__(self, xp, x):
            return x

    async_op = ag.ops.define("define_async", scheme="f[*s] -> f[*s]", forward=fetch)
    service_op = ag.ops.define("define_service", scheme="f[*s] -> f[*s]", forward=Service())
    serial_op = ag.ops.define("define_serial", concurrent=False, **UNARY)
    waiting_op = ag.ops.define("define_waiting", blocking=True, concurrency=3, **UNARY)
    assert async_op.op.checked
    assert async_op.op.runs_on == service_op.op.runs_on == "loop"
    assert async_op.op.concurrency is None
    assert (serial_op.op.runs_on, serial_op.op.concurrency) == ("worker", 1)
    assert (waiting_op.op.runs_on, waiting_op.op.concurrency) == ("thread", 3)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"concurrency": 0}, "an int of at least 1, or None for no limit; got 0"),
        ({"concurrency": True}, "an int of at least 1, or None for no limit; got True"),
        ({"concurrency": 2.0}, "an int of at least 1, or None for no limit; got 2.0"),
        ({"blocking": 1}, "blocking is True or False, got 1"),
    ],
)
def test_a_limit_that_is_none_is_refused(options, told):
    with pytest.raises(GraphTypeError, match=told):
        ag.ops.define("define_unlimited", **UNARY, **options)


def test_an_async_def_cannot_block():
    async def fetch(xp, x):
        return x

    with pytest.raises(GraphTypeError, match="an async def runs on the event loop, which it must"):
        ag.ops.define("define_both", scheme="f[*s] -> f[*s]", forward=fetch, blocking=True)


def test_samples_are_kept_for_the_law_test():
    samples = [ag.ops.Sample(((2, 3),), low=0.5)]
    assert declare_cube("define_sampled", samples=samples).op.samples == tuple(samples)


@pytest.mark.parametrize("name", ["tanh", "input", "define_taken"])
def test_a_name_is_declared_once(name):
    if name not in REGISTRY and name.startswith("define"):
        ag.ops.define(name, **UNARY)
    with pytest.raises(GraphTypeError, match=f"an op named '{name}' is declared already"):
        ag.ops.define(name, **UNARY)


def test_a_notebook_declares_an_op_again_and_earlier_nodes_keep_theirs():
    def cell(factor):
        forward = eval(f"lambda xp, x: x * {factor}", {"__name__": "__main__"})
        return ag.ops.define("define_cell", scheme="f[] -> f[]", forward=forward)

    x = ag.Graph().input("x", ())
    twice = cell(2)(x)
    thrice = cell(3)(x)
    run = ag.TapeMachine([twice, thrice]).run_sync({"x": np.float32(1)})
    assert (run[twice].value, run[thrice].value) == (2, 3)
    with pytest.raises(GraphTypeError, match="'define_cell' is declared already"):
        ag.ops.define("define_cell", **UNARY)


@each(
    "wrong, said",
    [
        ({"name": "two words"}, "name is an identifier, got 'two words'"),
        ({"forward": 3}, "forward has to be callable, got 3"),
        ({"scheme": "q[*s] -> f[*s]"}, "unknown kind 'q'"),
        ({"scheme": "f(s) -> f"}, "cannot read"),
        ({"samples": [(3, 4)]}, r"a sample looks like .*; got \(3, 4\)"),
        ({"vjp": ()}, "takes 1 argument but has 0 vjp rules"),
    ],
)
def test_wrong_declarations_raise_and_register_nothing(wrong, said):
    before = set(REGISTRY)
    with pytest.raises(GraphTypeError, match=said):
        ag.ops.define(**{"name": "define_wrong", **UNARY, **wrong})
    assert set(REGISTRY) == before


def test_arguments_that_do_not_fit_the_scheme_raise_where_the_node_is_built():
    cube = declare_cube("define_typed")
    x = ag.Graph().input("x", (2,), "int64")
    with pytest.raises(GraphTypeError, match=r"define_typed: int64 is not a float.*\.astype"):
        cube(x)
    with pytest.raises(GraphTypeError, match="define_typed: takes 1 argument, got 2"):
        cube(x, x)
    with pytest.raises(GraphTypeError, match="define_typed needs at least one node"):
        cube(np.ones(2))
