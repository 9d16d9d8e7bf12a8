"""`np.errstate` is taken when a run is asked for, and holds wherever its ops run."""

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.tiles import compute_parts
from tests.machines.conftest import machines

WAYS = [
    pytest.param(lambda machine, feeds: machine.run_sync(feeds), id="run_sync"),
    pytest.param(lambda machine, feeds: machine.start(feeds).result(timeout_s=20), id="start"),
]
ways = pytest.mark.parametrize("way", WAYS)
ZEROS = {"x": np.zeros(2), "n": np.zeros(2)}


def quotient():
    graph = ag.Graph()
    x, n = graph.input("x", ("n",), "float64"), graph.input("n", ("n",), "float64")
    return (x + 1.0) / n


@machines
@ways
def test_errors_are_raised_where_the_caller_says_so(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            way(machine, ZEROS)
        with np.errstate(divide="ignore"):
            assert np.isinf(way(machine, ZEROS)[y].value).all()


@machines
@ways
def test_small_products_raise_or_warn_of_overflow_as_the_caller_says(machine_type, options, way):
    x = ag.Graph().input("x", (2, 2), "float64")
    y = x @ x
    huge = {"x": np.full((2, 2), 1e200)}
    with machine_type([y], **options) as machine:
        with np.errstate(over="raise"), pytest.raises(ag.NodeError, match="overflow"):
            way(machine, huge)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isinf(way(machine, huge)[y].value).all()
        assert any("overflow" in str(one.message) for one in caught)


@machines
@ways
def test_the_default_warns(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            way(machine, ZEROS)
        assert any("divide by zero" in str(one.message) for one in caught)


@machines
@ways
def test_errors_are_handed_to_the_callers_function(machine_type, options, way):
    y = quotient()
    seen = []
    state = np.errstate(divide="call", call=lambda kind, flag: seen.append(kind))
    with machine_type([y], **options) as machine, state:
        way(machine, ZEROS)
    assert seen == ["divide by zero"]


@machines
def test_runs_with_different_states_overlap(machine_type, options):
    y = quotient()
    with machine_type([y], **options) as machine:
        with np.errstate(divide="ignore"):
            ignoring = [machine.start(ZEROS) for _ in range(5)]
        with np.errstate(divide="raise"):
            raising = [machine.start(ZEROS) for _ in range(5)]
            fine = machine.start({**ZEROS, "n": np.ones(2)})
            for run in ignoring:  # the caller works along, under its own state
                assert np.isinf(run.result()[y].value).all()
        for run in raising:
            with pytest.raises(ag.NodeError, match="divide by zero"):
                run.result()
        np.testing.assert_array_equal(fine.result()[y].value, 1)


@machines
@pytest.mark.anyio
async def test_the_state_holds_on_both_loops(machine_type, options, anyio_backend):
    y = quotient()
    async with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            await machine.run(ZEROS)
        with np.errstate(divide="ignore"):
            assert np.isinf((await machine.run(ZEROS))[y].value).all()


async def _divide(xp, x):
    return 1 / x


divide = ag.ops.define("machines_divide_async", scheme="f[*s] -> f[*s]", forward=_divide)


@machines
@pytest.mark.anyio
async def test_the_state_holds_in_asynchronous_ops(machine_type, options, anyio_backend):
    x = ag.Graph().input("x", (2,), "float64")
    y = divide(x)
    async with machine_type([y], **options) as machine:
        with np.errstate(divide="raise"), pytest.raises(ag.NodeError, match="divide by zero"):
            await machine.run({"x": np.zeros(2)})
        with np.errstate(divide="ignore"):
            assert np.isinf((await machine.run({"x": np.zeros(2)}))[y].value).all()


def test_many_states_and_modes_do_not_pile_up():
    y = quotient()
    with ag.ActorMachine([y], workers=1, fuse="none") as machine:
        for number in range(40):
            with np.errstate(divide="call", call=lambda kind, flag, number=number: None):
                machine.run_sync(ZEROS, priority=number)
        assert len(machine._networks()) <= 16
        assert len(machine._core.scheduler.classes) <= 3


# -- warnings ---------------------------------------------------------------------------------


def warned(function):
    """Return the warnings of a call, by file and line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return {(Path(one.filename).name, one.lineno): str(one.message) for one in caught}


def line_of(node):
    file, line, _ = node.line
    return Path(file).name, line


@machines
@ways
def test_a_warning_names_the_node_and_the_line_that_built_it(machine_type, options, way):
    y = quotient().named("ratio")
    with machine_type([y], **options) as machine:
        [(where, text)] = warned(lambda: way(machine, ZEROS)).items()
    assert where == line_of(y) == ("test_errstate.py", y.line[1])
    assert text.startswith("divide by zero encountered in divide, node 'ratio', built at ")


@machines
def test_a_warning_of_the_backward_pass_names_the_forward_node(machine_type, options):
    x = ag.Graph().input("x", (3,), "float64")
    root = ag.ops.sqrt(x)
    with machine_type([root.sum()], wrt=[x], **options) as machine:
        for run in (machine.run_sync, lambda *args, **kw: machine.start(*args, **kw).result()):
            told = warned(lambda run=run: run({"x": np.zeros(3)}, backward=True))
            assert list(told) == [line_of(root)]
            assert f"the derivative of sqrt, node {root.name!r}" in told[line_of(root)]


@machines
def test_a_warning_is_given_once_a_line_as_python_does_by_default(machine_type, options):
    y = quotient()
    with machine_type([y], **options) as machine, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            machine.run_sync(ZEROS)
    assert len(caught) == 1


@machines
@ways
def test_a_warning_that_python_makes_an_error_is_one_of_the_node(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ag.NodeError, match="RuntimeWarning: divide by zero"):
            way(machine, ZEROS)


@machines
@ways
def test_where_some_errors_are_ignored_warnings_of_others_name_the_node(machine_type, options, way):
    y = quotient()
    with machine_type([y], **options) as machine, np.errstate(over="ignore", under="raise"):
        [text] = warned(lambda: way(machine, ZEROS)).values()
    assert f"node {y.name!r}" in text


@machines
@ways
def test_of_a_function_and_warnings_each_gets_its_own(machine_type, options, way):
    graph, seen = ag.Graph(), []
    x = graph.input("x", (2,), "float64")
    y = ag.ops.log(x) * ag.ops.exp(x + 1e4)
    state = np.errstate(over="call", call=lambda kind, flag: seen.append(kind))
    with machine_type([y], **options) as machine, state:
        [text] = warned(lambda: way(machine, {"x": np.zeros(2)})).values()
    assert (seen, "in log" in text) == (["overflow"], True)


@machines
def test_the_callers_state_is_what_it_was_after_a_run(machine_type, options):
    y = quotient()
    with machine_type([y], **options) as machine:
        before = np.geterr(), np.geterrcall()
        warned(lambda: machine.run_sync(ZEROS))
        assert (np.geterr(), np.geterrcall()) == before
        assert list(warned(lambda: np.ones(1) / np.zeros(1))) != [line_of(y)]


def _log(xp, x):
    return xp.log(x)


log = ag.ops.define("machines_log", scheme="f[*s] -> f[*s]", forward=_log)
waiting_log = ag.ops.define("machines_log_waiting", scheme="f[*s] -> f[*s]", forward=_log,
                            blocking=True)  # fmt: skip


@machines
@ways
def test_a_warning_in_an_op_of_the_user_names_the_node_too(machine_type, options, way):
    y = log(ag.Graph().input("x", (2,), "float64"))
    with machine_type([y], **options) as machine:
        assert list(warned(lambda: way(machine, {"x": np.zeros(2)}))) == [line_of(y)]


@machines
@ways
def test_a_warning_in_an_op_that_waits_is_of_its_own_line(machine_type, options, way):
    y = waiting_log(ag.Graph().input("x", (2,), "float64"))
    with machine_type([y], **options) as machine:
        [((file, line), text)] = warned(lambda: way(machine, {"x": np.zeros(2)})).items()
    assert (file, line) == ("test_errstate.py", _log.__code__.co_firstlineno + 1)
    assert text == "divide by zero encountered in _log"


@machines
@ways
def test_a_warning_in_a_body_names_the_node_of_the_body(machine_type, options, way):
    x = ag.Graph().input("x", (3,), "float64")
    inside = []

    def body(carry, one):
        inside.append(ag.ops.log(one))
        return carry + inside[-1], None

    def branch():
        inside.append(ag.ops.sqrt(x - 1))
        return inside[-1].sum()

    total, _ = ag.scan(body, np.float64(0), x)
    chosen = ag.cond(x[0] > 0, branch, lambda: x.sum())
    with machine_type([total, chosen], **options) as machine:
        texts = warned(lambda: way(machine, {"x": np.array([1.0, 0.0, 1.0])}))
    assert texts.keys() == {line_of(inside[0]), line_of(inside[-1])}
    assert "encountered in log, node 'log" in texts[line_of(inside[0])]


def test_a_warning_on_a_lane_of_a_device_names_the_node():
    y = quotient()
    with ag.ActorMachine([y], device="virtual:0", lanes=2) as machine:
        assert list(warned(lambda: machine.run_sync(ZEROS))) == [line_of(y)]


def test_a_warning_of_a_part_is_read_from_the_frames_of_who_owns_the_step():
    x = ag.Graph().input("x", (2,), "float64")

    def in_parts(xp, x):
        result, entered = np.empty(2), threading.Barrier(2, timeout=20)

        def part(number):
            entered.wait()
            result[number] = np.log(x[number])

        compute_parts(part, 2)
        return result

    y = ag.ops.define("machines_log_in_parts", scheme="f[*s] -> f[*s]", forward=in_parts)(x)
    with ag.ActorMachine([y], workers=2) as machine:
        assert list(warned(lambda: machine.run_sync({"x": np.zeros(2)}))) == [line_of(y)]


def test_a_warning_in_a_pipeline_names_the_node():
    graph = ag.Graph()
    x, w = graph.input("x", ("batch", 2), "float64"), graph.parameter("w", np.zeros(2))
    y = x / w
    with ag.pipeline.Pipeline(y.sum(), [w], stages=1, microbatches=2) as pipeline:
        told = warned(lambda: pipeline.run_sync({"x": np.ones((4, 2))}))
    assert "divide by zero" in told[line_of(y)]


def _calmly(xp, x):
    y = quotient()
    with ag.TapeMachine([y]) as inner, np.errstate(divide="ignore"):
        assert np.isinf(inner.run_sync(ZEROS)[y].value).all()
    return x


calm = ag.ops.define("errstate_calm", scheme="f[*s] -> f[*s]", forward=_calmly)


@machines
def test_a_machine_that_an_op_runs_has_the_state_of_the_op(machine_type, options):
    """What the op leaves as it was is the outer caller's."""
    x = ag.Graph().input("x", (2,), "float64")
    with machine_type([calm(x)], **options) as machine:
        machine.run_sync({"x": np.ones(2)})
