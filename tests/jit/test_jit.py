"""Steps that are fused and compiled: when they run, their errors, what stays as it is."""

import threading

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import structs
from actorgraph.errors import GraphError, NodeError
from actorgraph.jit import compiler as compiling
from actorgraph.jit import lowering as jit
from tests.conftest import await_threads
from tests.jit._jit import chain, near, sample, steps_of

pytest.importorskip("llvmlite", reason="the extra jit is not installed")
pytestmark = pytest.mark.usefixtures("machine_code")


@pytest.fixture
def by_hand(monkeypatch):
    """A compiler that compiles nothing before it is allowed to."""
    allowed = threading.Event()

    def make(one):
        assert allowed.wait(50)
        one.make()

    compiler = compiling.Compiler(make)
    monkeypatch.setattr(jit, "COMPILER", compiler)
    yield allowed, compiler
    allowed.set()


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
        assert compiled.call is None
        runs = [machine.start(feeds) for _ in range(4)]
        allowed.set()
        while compiled.call is None:
            near(machine.run_sync(feeds)[y].value, wanted)
        for run in runs:
            near(run.result()[y].value, wanted)
        near(machine.run_sync(feeds)[y].value, wanted)


def count_calls(monkeypatch):
    """Count the calls of compiled loops."""
    calls = []

    def counted(one):
        one.make()
        function = one.call

        def call(arrays, kind):
            calls.append(arrays)
            return function(arrays, kind)

        one.call = call

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
                  for spec in plan.partition.tasks]  # fmt: skip
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
    x = ag.Graph().input("x", ("n",))
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
    await_threads("actorgraph compiler")
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


def test_without_llvmlite_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(structs, "callable_from_python", structs.callable_from_python.__wrapped__)
    monkeypatch.setattr(structs, "has_llvmlite", lambda: False)
    _, _, y = chain()
    with pytest.raises(GraphError, match=r"pip install 'actorgraph\[native\]'"):
        ag.TapeMachine([y], exact=False, jit=True)


# -- what stays as it is ----------------------------------------------------------------------


def test_a_result_is_the_callers_own_and_kept_buffers_are_not_handed_out(eager):
    _, _, y = chain()
    with ag.TapeMachine([y, ops.tanh(y)], exact=False, jit="wait") as machine:
        first = machine.run_sync({"x": sample(8)})[y].value
        kept = first.copy()
        machine.run_sync({"x": sample(8) * 2})
        assert first.tobytes() == kept.tobytes()
        assert not isinstance(first.base, np.ndarray)


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


def test_loops_look_at_what_they_are_given():
    _, _, y = chain()
    x, weight, number, out = sample(), np.ones(64, "f"), np.array([0.25]), np.empty((256, 64), "f")
    with ag.TapeMachine([y], exact=False, jit="wait") as machine:
        machine.run_sync({"x": x})
        [step] = [
            step for plan in machine._plans.values() for step in plan.inline.steps
            if step.op is jit.FUSED
        ]  # fmt: skip
    loops = jit.COMPILER.request(step.attrs["loops"].loops)
    given = {"element": x, "column": weight, "numbers": number}
    arrays = [*(given[level] for level in loops.loops.levels[:-1]), out]
    assert loops.call(tuple(arrays), id(np.ndarray))
    wrong = (x[:128], x[::2], x.T, np.float32(1), x[:0], [1.0], x.view(np.recarray))
    for one in wrong:
        for place, level in enumerate(loops.loops.levels):
            if level == "element":
                changed = (*arrays[:place], one, *arrays[place + 1 :])
                assert not loops.call(changed, id(np.ndarray))
