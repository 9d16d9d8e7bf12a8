"""Steps that are fused and compiled: what they compute, when they run, and what else may happen."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import jit as compiling
from actorgraph.errors import GraphError, NodeError
from actorgraph.lower import groups as forming
from actorgraph.lower import jit
from actorgraph.ops.activations import where_positive
from tests.machines._graphs import graphs

pytest.importorskip("numba", reason="the extra jit is not installed")

RTOL = {np.dtype("float32"): 1e-6, np.dtype("float64"): 1e-13}
pytestmark = pytest.mark.usefixtures("machine_code")
SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"


@pytest.fixture
def by_hand(monkeypatch):
    """A compiler that compiles nothing before it is allowed to."""
    allowed = threading.Event()

    def compile_text(one):
        assert allowed.wait(50)
        return compiling._compile(one)

    compiler = compiling.Compiler(compile_text)
    monkeypatch.setattr(jit, "COMPILER", compiler)
    yield allowed, compiler
    allowed.set()


def near(got, wanted, scale=1.0):
    tolerance = RTOL[wanted.dtype] * scale
    size = np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * size)


def chain(dtype="float32", rows="n", columns=64):
    """Return a graph whose forward is one group: relu(x * w + b) - x / 4."""
    graph = ag.Graph()
    x = graph.input("x", (rows, columns), dtype)
    w = graph.parameter("w", np.linspace(-1, 1, columns).astype(dtype))
    b = graph.parameter("b", np.linspace(1, 2, columns).astype(dtype))
    return graph, x, ops.relu(x * w + b) - x * 0.25


def sample(rows=256, columns=64, dtype="float32"):
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(dtype)


def steps_of(machine):
    """Return the op names of all steps of the programs that have run."""
    found = []
    for plan in machine._plans.values():
        specs = [spec.steps for spec in plan.tasks]
        found += [step.op.name for steps in (specs if not plan.direct else [plan.direct_steps])
                  for step in steps]  # fmt: skip
    return found


# -- what is computed -------------------------------------------------------------------------


def layer_norm(x, w, b):
    centred = x - x.mean(-1, keepdims=True)
    spread = ops.square(centred).mean(-1, keepdims=True)
    return centred / ops.sqrt(spread + 1e-5) * w + b


def squared_mean(x, w, b):
    return ops.square(x * w - b).mean()


FORMS = {
    "columns and numbers": lambda x, w, b: ops.relu(x * w + b) * 0.5 - ops.abs(x),
    "numbers first": lambda x, w, b: 1.5 - x * w,
    "where": lambda x, w, b: ops.where((x > 0) & (x < w), x * b, ops.clip(x, -0.5, 0.5)),
    "maximum and minimum": lambda x, w, b: ops.maximum(x, w) * ops.minimum(x, b) + ops.sign(x),
    "roots": lambda x, w, b: ops.sqrt(ops.square(x) + 1) + ops.rsqrt(ops.square(w * x) + 1),
    "rounding": lambda x, w, b: ops.floor(x * 3) + ops.ceil(x) * w - ops.trunc(x * b),
    "tests": lambda x, w, b: ops.where(ops.isfinite(x / w) | ops.isnan(x), x * 2, b),
    "casts": lambda x, w, b: (x > w).astype(x.dtype) * x + b,
    "sums of rows": lambda x, w, b: (x * w + b).sum(-1),
    "means of rows": lambda x, w, b: ops.mean(ops.square(x) - w, -1, keepdims=True),
    "sums of columns": lambda x, w, b: (x * w + b).sum(0),
    "means of columns": lambda x, w, b: ops.mean(x * w + b, 0, keepdims=True),
    "a sum of all": lambda x, w, b: (x * w + b).sum(),
    "a mean of all": squared_mean,
    "a mean of all, flat": lambda x, w, b: ops.square(x * x - 1).mean(),
    "layer norm": layer_norm,
    "layer norm, then a mean": lambda x, w, b: ops.square(layer_norm(x, w, b)).mean(),
    "numbers a row": lambda x, w, b: x * ops.expand_dims((x * w).sum(-1), 1) + b,
}


ALL = [(form, dtype, True) for form in FORMS for dtype in ("float32", "float64")]
# A compilation takes a quarter of a second.
SOME = [(form, "float32", form in ("where", "layer norm, then a mean")) for form in FORMS]
SOME.append(("layer norm", "float64", False))


@pytest.mark.parametrize(("form", "dtype", "derived"), ALL if SOAK else SOME)
def test_loops_agree_with_the_reference_within_the_tolerance(form, dtype, derived, eager):
    graph = ag.Graph()
    x = graph.input("x", ("n", 24), dtype)
    w = graph.parameter("w", np.linspace(-1, 1.5, 24).astype(dtype))
    b = graph.parameter("b", np.linspace(1, 2, 24).astype(dtype))
    y = FORMS[form](x, w, b)
    outputs = [ops.tanh(y).mean() if y.ndim else y, y] if derived else [y]
    feeds = {"x": sample(40, 24, dtype)}
    with (
        ag.LispMachine(outputs, exact=False) as lisp,
        ag.TapeMachine(outputs, exact=False, jit="wait") as tape,
    ):
        modes = [{}, {"backward": True}, {"tangents": {"x": feeds["x"][::-1].copy()}}]
        for mode in modes if derived else modes[:1]:
            wanted, got = lisp.run_sync(feeds, **mode), tape.run_sync(feeds, **mode)
            for node in outputs:
                assert type(got[node].value) is np.ndarray
                assert got[node].value.dtype == dtype
                near(got[node].value, wanted[node].value)
                if "tangents" in mode:
                    near(got[node].tangent, wanted[node].tangent, 10)
            if "backward" in mode:
                near(got[w].grad, wanted[w].grad, 10)
        assert "fused" in steps_of(tape)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"] if SOAK else ["float32"])
def test_special_values_are_those_of_numpy(dtype, eager):
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 1e38, -2.5]
    x_values, y_values = np.meshgrid(special, special)
    graph = ag.Graph()
    x, y = graph.input("x", ("n", 10), dtype), graph.input("y", ("n", 10), dtype)
    formulas = [
        ops.maximum(x, y) + 0.0, ops.minimum(x, y) + 0.0, ops.relu(x) * 1.5, ops.sign(x) * 1.5,
        ops.clip(x * 1.5, y, 1), x / y * 1.5, ops.sqrt(x * 1.5), ops.reciprocal(x * 1.5),
        where_positive(x, y) * 1.5, (x == y).astype(dtype) * 1.5, ops.floor(x * 1.5),
        ops.isinf(x * y).astype(dtype) + ops.isnan(x * y).astype(dtype), (x * y).sum(-1),
    ]  # fmt: skip
    feeds = {"x": x_values.astype(dtype), "y": y_values.astype(dtype)}
    with ag.LispMachine(formulas) as lisp, ag.TapeMachine(
        formulas, exact=False, passes=(), jit="wait"
    ) as tape:  # fmt: skip
        wanted, got = lisp.run_sync(feeds), tape.run_sync(feeds)
        for node in formulas[:-1]:
            np.testing.assert_array_equal(got[node].value, wanted[node].value, err_msg=node.name)
        near(got[formulas[-1]].value, wanted[formulas[-1]].value)
        assert steps_of(tape).count("fused") >= 1


@settings(
    max_examples=200 if SOAK else 4, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(example=graphs())
def test_drawn_graphs_agree_with_the_reference(example, eager):
    options = {"exact": False, "wrt": example.wrt}
    with (
        ag.LispMachine(example.outputs, **options) as lisp,
        ag.TapeMachine(example.outputs, jit="wait", **options) as tape,
        ag.ActorMachine(example.outputs, jit="wait", workers=2, **options) as actors,
    ):
        for number, feeds in enumerate(example.feeds):
            for mode in example.modes(number):
                wanted = lisp.run_sync(feeds, **mode)
                for machine in (tape, actors):
                    got = machine.run_sync(feeds, **mode)
                    for node in (*lisp.outputs.values(), *lisp.wrt):
                        for part in ("value", "grad", "tangent"):
                            one, two = getattr(got[node], part), getattr(wanted[node], part)
                            assert (one is None) == (two is None)
                            if two is not None:
                                assert one.shape == two.shape
                                # Drawn graphs amplify: a kink may lie between two last bits.
                                near(one, two, 1e3)


@settings(
    max_examples=1000 if SOAK else 15, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(example=graphs(), fewest=st.integers(1, 40))
def test_whichever_steps_are_grouped_ordinary_kernels_have_the_bits_of_the_reference(
    example, fewest, monkeypatch
):
    def broken(one):
        raise RuntimeError("nothing is compiled here")

    monkeypatch.setattr(jit, "COMPILER", compiling.Compiler(broken))
    monkeypatch.setattr(forming, "FEWEST", fewest)
    options = {"exact": False, "wrt": example.wrt}
    with (
        ag.LispMachine(example.outputs, **options) as lisp,
        ag.TapeMachine(example.outputs, jit=True, **options) as tape,
    ):
        for number, feeds in enumerate(example.feeds):
            for mode in example.modes(number):
                wanted, got = lisp.run_sync(feeds, **mode), tape.run_sync(feeds, **mode)
                for node in (*lisp.outputs.values(), *lisp.wrt):
                    for part in ("value", "grad", "tangent"):
                        one, two = getattr(got[node], part), getattr(wanted[node], part)
                        assert (one is None) == (two is None)
                        assert one is None or one.tobytes() == two.tobytes()


def test_a_sum_of_many_float32_is_as_exact_as_one_in_float64(eager):
    graph = ag.Graph()
    x = graph.input("x", ("n",))
    value = np.random.default_rng(1).random(1_000_001, "f")
    with ag.TapeMachine({"total": (x * 0.5).sum()}, exact=False, jit="wait") as machine:
        got = machine.run_sync({"x": value})["total"].value
    assert abs(got / (value.astype("d") * 0.5).sum() - 1) < 1e-7


# -- when loops run ---------------------------------------------------------------------------


def test_ordinary_kernels_run_until_loops_are_compiled_and_bits_of_both_are_near(by_hand):
    allowed, compiler = by_hand
    _, _, y = chain()
    feeds = {"x": sample()}
    with ag.TapeMachine([y], exact=False, jit=True) as machine, ag.LispMachine([y]) as lisp:
        wanted = lisp.run_sync(feeds)[y].value
        before = machine.run_sync(feeds)[y].value
        assert before.tobytes() == wanted.tobytes()
        [compiled] = compiler._known.values()
        assert compiled.function is None
        runs = [machine.start(feeds) for _ in range(4)]
        allowed.set()
        while compiled.function is None:
            near(machine.run_sync(feeds)[y].value, wanted)
        for run in runs:
            near(run.result()[y].value, wanted)
        near(machine.run_sync(feeds)[y].value, wanted)


def count_calls(monkeypatch):
    """Count the calls of compiled loops."""
    calls = []
    ordinary = compiling._compile

    def counted(one):
        function = ordinary(one)

        def call(*args):
            calls.append(args)
            return function(*args)

        return call

    monkeypatch.setattr(jit, "COMPILER", compiling.Compiler(counted))
    return calls


def test_modes_that_begin_small_have_no_groups_and_nothing_takes_the_ordinary_kernels(monkeypatch):
    calls = count_calls(monkeypatch)
    _, _, y = chain()
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        machine.run_sync({"x": sample(256)})
        assert len(calls) == 1
        machine.run_sync({"x": sample(2)})
        assert len(calls) == 2
        assert machine.run_sync({"x": sample(0)})[y].value.shape == (0, 64)
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        machine.run_sync({"x": sample(2)})
        assert "fused" not in steps_of(machine)


def test_arrays_with_gaps_take_the_ordinary_kernels():
    _, _, y = chain()
    value = sample(512)
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        wanted = machine.run_sync({"x": value[::2].copy()})[y].value
        got = machine.run_sync({"x": value[::2]})[y].value
        near(got, wanted)
        turned = np.asfortranarray(value[::2])
        near(machine.run_sync({"x": turned})[y].value, wanted)
        read_only = value[::2].copy()
        read_only.flags.writeable = False
        assert machine.run_sync({"x": read_only})[y].value.tobytes() == wanted.tobytes()


def test_one_compilation_serves_all_groups_of_a_form(by_hand):
    allowed, compiler = by_hand
    allowed.set()
    for _ in range(2):
        _, _, y = chain()
        with ag.TapeMachine([y], exact=False, jit="wait") as machine:
            machine.run_sync({"x": sample()})
    assert len(compiler._known) == 1


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("fuse", ["none", "auto", "all"])
def test_actors_fuse_within_their_tasks_only(fuse, workers, eager):
    graph, _, y = chain()
    loss = ops.square(y @ np.ones((64, 8), "f")).mean() + y.mean()
    feeds = {"x": sample(64)}
    options = {"exact": False, "fuse": fuse, "workers": workers}
    with (
        ag.LispMachine([loss], exact=False) as lisp,
        ag.ActorMachine([loss], jit="wait", **options) as machine,
    ):
        wanted = lisp.run_sync(feeds, backward=True)
        got = machine.run_sync(feeds, backward=True)
        near(got[loss].value, wanted[loss].value, 10)
        for parameter in graph.parameters:
            near(got[parameter].grad, wanted[parameter].grad, 10)
        values = [{step.id for step in spec.steps} for plan in machine._plans.values()
                  for spec in plan.tasks]  # fmt: skip
        assert sum(map(len, values)) == len(set().union(*values))


def test_steps_and_machines_take_the_option_alike(eager):
    graph, _, y = chain()
    loss = ops.square(y).mean()
    feeds = {"x": sample(64)}
    losses = []
    for jit_option in (False, "wait"):
        for node, value in zip(
            graph.parameters, (np.ones(64, "f"), np.zeros(64, "f")), strict=True
        ):
            node.value = value
        with ag.TapeMachine([loss], exact=False, jit=jit_option) as machine:
            step = machine.compile_step(ag.solvers.Adam(lr=0.1))
            losses.append([float(step(feeds)[loss].value) for _ in range(5)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]


# -- errors -----------------------------------------------------------------------------------


def test_an_errstate_that_raises_names_the_step_that_fails(eager):
    graph = ag.Graph()
    x = graph.input("x", ("n",))
    share = ops.divide(x, x - 1)
    y = ops.relu(share) + x
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        feeds = {"x": np.ones(300, "f")}
        machine.run_sync(feeds)  # loops divide by zero in silence
        assert "fused" in steps_of(machine)
        for run in (machine.run_sync, lambda feeds: machine.start(feeds).result()):
            with np.errstate(divide="raise"), pytest.raises(
                NodeError, match="divide by zero"
            ) as caught:  # fmt: skip
                run(feeds)
            assert caught.value.node == share.name
            assert caught.value.inputs == ("float32[300]", "float32[300]")


def test_what_is_watched_is_not_fused(eager):
    _, _, y = chain()
    with ag.TapeMachine([y], exact=False, jit="wait", watch="nan") as machine:
        machine.run_sync({"x": sample(8)})
        assert "fused" not in steps_of(machine)
        with pytest.raises(NodeError, match="multiply"):
            machine.run_sync({"x": np.full((8, 64), np.nan, "f")})


def test_a_failed_compilation_leaves_the_ordinary_kernels_and_warns_once(
    monkeypatch, caplog, eager
):
    def broken(one):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(jit, "COMPILER", compiling.Compiler(broken))
    _, _, y = chain()
    loss = ops.square(y).mean()
    with ag.TapeMachine([loss, y], exact=False, jit="wait") as machine:
        got = machine.run_sync({"x": sample(8)}, backward=True)
    with ag.LispMachine([y]) as lisp:
        wanted = lisp.run_sync({"x": sample(8)})
    assert got[y].value.tobytes() == wanted[y].value.tobytes()
    [record] = caplog.records
    assert "no such instruction" in record.getMessage()


def test_exact_machines_refuse_to_compile():
    _, _, y = chain()
    with pytest.raises(GraphError, match="exact=False"):
        ag.TapeMachine([y], jit=True)


def test_the_option_is_checked():
    _, _, y = chain()
    with pytest.raises(ValueError, match="'wait', got 'now'"):
        ag.TapeMachine([y], exact=False, jit="now")


def test_without_numba_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    _, _, y = chain()
    with pytest.raises(GraphError, match=r"pip install 'actorgraph\[jit\]'"):
        ag.TapeMachine([y], exact=False, jit=True)


# -- what stays as it is ----------------------------------------------------------------------


def test_a_result_is_the_callers_own_and_kept_buffers_are_not_handed_out(eager):
    _, _, y = chain()
    with ag.TapeMachine([y, ops.tanh(y)], exact=False, jit="wait") as machine:
        first = machine.run_sync({"x": sample(8)})[y].value
        kept = first.copy()
        machine.run_sync({"x": sample(8) * 2})
        assert first.tobytes() == kept.tobytes()
        assert first.flags.owndata


def test_the_source_shows_the_steps_of_a_group(eager):
    _, _, y = chain()
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        machine.run_sync({"x": sample(8)})
        assert "the steps of" in machine.source
        assert "# relu" in machine.source


def test_what_tells_about_a_machine_knows_groups(eager):
    graph, _, y = chain()
    loss = ops.square(y).mean()
    feeds = {"x": sample(64)}
    options = {"exact": False, "jit": "wait", "workers": 2, "fuse": "all"}
    with ag.ActorMachine([loss], max_bytes=10**9, **options) as machine:
        with ag.trace.record() as recorded:
            run = machine.run_sync(feeds, backward=True)
        assert run[graph.parameters[0]].grad.shape == (64,)
        assert recorded.summary()
        assert loss.name in machine.costs()
        assert "mode backward" in machine.explain()
        [plan] = machine.memory_plan()
        assert plan.peak_bytes >= plan.bound_bytes > 0


# -- processes --------------------------------------------------------------------------------

PROGRAM = """
import os, sys, threading
import numpy as np
import actorgraph as ag
from actorgraph import ops
x = ag.Graph().input("x", ("n",))
y = ops.relu(x * 2 + 1) - x
feeds = {"x": np.ones(100_000, "f")}
"""


def run_program(text, cache, **environment):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + text],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment}, capture_output=True,
        text=True, timeout=50, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.split()


def test_nothing_starts_without_jit_and_the_process_may_end_at_once(tmp_path):
    text = """
with ag.TapeMachine([y], exact=False) as machine:
    machine.run_sync(feeds)
    print(threading.active_count(), "numba" in sys.modules, "actorgraph.lower.jit" in sys.modules)
machine = ag.TapeMachine([y], exact=False, jit=True)
print(float(machine.run_sync(feeds)[y].value[0]))
"""
    assert run_program(text, tmp_path) == ["1", "False", "False", "2.0"]


WAIT = """
with ag.TapeMachine([y], exact=False, jit="wait") as machine:
    print(float(machine.run_sync(feeds)[y].value[0]))
from actorgraph.devices.jit import COMPILER
[one] = COMPILER._known.values()
print(one.error, sum(one.function.stats.cache_hits.values()))
"""


def test_machine_code_is_cached_on_disk_and_damaged_files_are_passed_over(tmp_path):
    assert run_program(WAIT, tmp_path) == ["2.0", "None", "0"]
    assert run_program(WAIT, tmp_path) == ["2.0", "None", "1"]
    files = list(tmp_path.rglob("*.nb?"))
    assert len(files) == 2
    for path in files:
        path.write_bytes(b"\x80damaged")
    assert run_program(WAIT, tmp_path) == ["2.0", "None", "0"]


def test_without_a_place_for_files_loops_are_compiled_all_the_same(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    text = "def kernel(x0, out):\n    out[0] = x0[0] * 2\n    return True\n"
    one = compiling.Compiled(text, (("float32", 1, False), ("float32", 1, True)), str(place))
    out = np.zeros(1, "f")
    assert compiling._compile(one)(np.full(1, 3, "f"), out)
    assert out == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_compiles_for_itself(tmp_path):
    text = """
machine = ag.TapeMachine([y], exact=False, jit=True)
machine.run_sync(feeds)  # something is being compiled now
child = os.fork()
if not child:
    z = y * x - 3
    with ag.TapeMachine([z], exact=False, jit="wait") as other:
        value = float(other.run_sync(feeds)[z].value[0])
    os._exit(0 if value == -1.0 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_program(text, tmp_path, PYTHONWARNINGS="ignore") == ["0"]
