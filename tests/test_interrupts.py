"""Ctrl-C at any moment leaves all of a step or nothing, and everything else working."""

import gc
import textwrap
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import actorgraph as ag
from actorgraph.deadlines import Deadlines
from actorgraph.devices.background import Background
from actorgraph.devices.blas_threads import OneThread
from actorgraph.devices.helpers import Helpers
from actorgraph.devices.virtual import ThreadQueue
from actorgraph.scheduler import POOL
from actorgraph.trace.serving import ask
from tests._strikes import SOAK, strikes
from tests.machines._faults import nobody_reads
from tests.machines.test_processes import FORK, forks, run_script

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1, "fuse": "none"}, id="actor per node"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
TIMEOUT_S = 1200 if SOAK else 50
pytestmark = [
    pytest.mark.timeout(TIMEOUT_S + 10),
    pytest.mark.usefixtures("threads_of_its_own"),
]
FEEDS = {"x": np.random.default_rng(0).normal(size=(3, 4))}


@pytest.fixture(scope="module", autouse=True)
def what_other_tests_left_is_gone(older_objects_are_not_looked_at):
    """Finalize it: a signal in a finalizer is of nobody, and keeps what its frames refer to."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def model():
    graph = ag.Graph()
    x = graph.input("x", (3, 4), "float64")
    w = graph.parameter("w", np.linspace(-1, 1, 8).reshape(4, 2))
    b = graph.parameter("b", np.zeros(2))
    return (np.tanh(x @ w + b) ** 2).sum(), [w, b]


class Training:
    """A model, its solver, a weight of the user's own, and what a step of all of it is."""

    def __init__(self, machine_type, options, how):
        self.loss, self.weights = model()
        self.machine = machine_type([self.loss], **options)
        self.solver = ag.solvers.Adam(lr=0.1)
        self.own = SimpleNamespace(value=np.ones(3), grad=np.arange(3.0))
        if how == "compiled":
            step = self.machine.compile_step(self.solver)
            self.step = lambda: step(FEEDS)
        else:
            run = self.machine.run_sync(FEEDS, backward=True)
            self.step = lambda: self.solver.step([*map(run.__getitem__, self.weights), self.own])

    def everything(self):
        found = [node.value for node in self.weights] + [self.own.value]
        for slot in self.solver._slots.values():
            found += [slot.state.step, *slot.state.arrays.values()]
        return [np.copy(one) for one in found]


def same(one, other):
    return len(one) == len(other) and all(map(np.array_equal, one, other))


@machines
@pytest.mark.parametrize("how", ["compiled", "by a solver"])
def test_a_step_is_made_for_everything_or_not_at_all(machine_type, options, how):
    struck, twin = (Training(machine_type, options, how) for _ in range(2))
    before = after = None

    def ready():
        nonlocal before, after
        struck.step()
        twin.step()
        before = twin.everything()
        assert same(struck.everything(), before)
        twin.step()
        after = twin.everything()

    halves = []
    for moment in strikes(struck.step, ready):
        now = struck.everything()
        if same(now, before):
            struck.step()
        elif not same(now, after):
            halves.append(moment)
            break
    assert not halves
    struck.machine.close()
    twin.machine.close()


@machines
def test_a_machine_that_is_struck_while_it_starts_can_be_closed(machine_type, options):
    loss, _ = model()
    blas = ThreadpoolController().select(user_api="blas")
    before, started = blas.info(), []

    def start():
        started[:] = [machine_type([loss], **options)]
        started[0].run_sync(FEEDS)

    def close():
        for machine in started:
            machine.close()

    for _ in strikes(start, close):
        close()
        assert not POOL._shares
        assert blas.info() == before


@machines
def test_a_run_leaves_parameters_that_can_be_read_and_written(machine_type, options):
    loss, (w, b) = model()
    with machine_type([loss], **options) as machine:
        values, last = iter(range(10**9)), None

        def ready():
            nonlocal last
            last = next(values) / 1e4
            w.value[...] = last
            assert w.value[0, 0] == last
            run = machine.run_sync(FEEDS, backward=True)
            assert run[w].value[0, 0] == last
            wanted = (np.tanh(FEEDS["x"] @ np.full((4, 2), last)) ** 2).sum()
            np.testing.assert_allclose(run[loss].value, wanted)
            del run
            gc.collect()  # an error refers to frames, which refer to runs
            assert nobody_reads(w)
            assert nobody_reads(b)

        for _ in strikes(lambda: machine.run_sync(FEEDS, backward=True), ready):
            assert w.value is w.value


@machines
def test_what_a_run_assigns_is_assigned_as_a_whole(machine_type, options):
    graph = ag.Graph()
    counts = [graph.buffer(name, np.zeros(2)) for name in "ab"]
    after = [count + 1 for count in counts]
    for count, one in zip(counts, after, strict=True):
        graph.assign(count, one, on=after[0])
    with machine_type(after, **options) as machine:
        for _ in strikes(machine.run_sync):
            np.testing.assert_array_equal(counts[0].value, counts[1].value)


@machines
def test_nobody_listens_after_a_recording(machine_type, options):
    loss, _ = model()
    with machine_type([loss], **options) as machine:

        def recorded():
            with ag.trace.record() as trace, ag.trace.use(ag.trace.Instrument(), machine):
                machine.run_sync(FEEDS)
            assert trace.slices

        for _ in strikes(recorded):
            assert ag.instrument.listening == set()
            assert ag.instrument.listening_to_turns == set()


def test_a_batch_of_a_pipeline_leaves_parameters_that_can_be_read_and_written():
    graph = ag.Graph()
    x = graph.input("x", ("batch", 4), "float64")
    with graph.stage(0):
        w = graph.parameter("w", np.ones((4, 3)))
        h = np.tanh(x @ w)
    with graph.stage(1):
        v = graph.parameter("v", np.ones((3, 2)))
        loss = (h @ v).mean()
    with ag.pipeline.Pipeline(loss, microbatches=2, workers=1) as pipeline:
        feeds = {"x": np.ones((4, 4))}

        def ready():
            w.value[...] = 0
            assert pipeline.run_sync(feeds)[loss].value == 0
            gc.collect()
            assert nobody_reads(w)
            assert nobody_reads(v)

        for _ in strikes(lambda: pipeline.run_sync(feeds), ready):
            assert w.value is w.value


@forks
def test_a_fork_during_a_direct_run_leaves_parameters_that_can_be_written():
    body = """
        passing = new_gate()
        w = ag.Graph().parameter("w", np.ones(2))
        machine = ag.TapeMachine([gate(w * 1.0)])
        thread = threading.Thread(target=machine.run_sync)
        thread.start()
        passing.wait_entered()
        def child():
            for number in range(3):
                w.value[...] = number
                array = w.value
                array[0] = 7
                assert w.value.tolist() == [7, number]
            y = w * 2.0
            with ag.TapeMachine([y]) as other:
                assert other.run_sync()[y].value.tolist() == [14, 4]
            print("child")
        in_child(child)
        passing.open()
        thread.join()
        machine.close()
        print("parent")
    """
    printed = run_script(FORK + textwrap.dedent(body))
    assert printed == ["child", "parent"]


@pytest.mark.parametrize("how", ["compiled", "by a solver"])
def test_signals_at_random_moments_leave_no_half_step(how):
    printed = run_script(
        f"""
        import random, time
        from tests.test_interrupts import Training, same
        place = random.Random(1)
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        sys.unraisablehook = id  # what strikes in a callback of Python's own is told and ignored
        struck, twin = (Training(ag.TapeMachine, {{}}, {how!r}) for _ in range(2))
        hits, until = 0, time.monotonic() + {TIMEOUT_S / 5}  # other processes may have the cores
        while hits < 10 or (hits < {5000 if SOAK else 100} and time.monotonic() < until):
            struck.step()
            twin.step()
            before = twin.everything()
            twin.step()
            after = twin.everything()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, place.uniform(2e-6, 3e-4))
                    struck.step()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hits += 1
            now = struck.everything()
            if same(now, before):
                struck.step()
            else:
                assert same(now, after)
        print("end")
    """,
        timeout_s=TIMEOUT_S,
    )
    assert printed == ["end"]


def struck(thread):
    """Start a thread as Python does where Ctrl-C strikes `Event.wait`."""
    try:
        raise KeyboardInterrupt
    finally:
        raise RuntimeError("release unlocked lock")


def test_deadlines_whose_thread_was_struck_at_its_start_are_kept(monkeypatch):
    expired = threading.Event()

    class Late:
        done, expire = False, expired.set

    run = Late()
    deadlines = Deadlines()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", struck)
        with pytest.raises(KeyboardInterrupt):
            deadlines.add(run, 60)
    deadlines.add(run, 0.001)
    assert expired.wait(20)
    deadlines.stop(join=True)


def test_a_thread_whose_start_was_struck_is_replaced_and_holds_up_no_run(monkeypatch):
    loss, _ = model()
    with ag.ActorMachine([loss], workers=1, fuse="none") as machine:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", struck)
            with pytest.raises(KeyboardInterrupt):
                machine.start(FEEDS)
        assert machine.start(FEEDS).result()[loss].value == machine.run_sync(FEEDS)[loss].value


@pytest.mark.parametrize("made", [ThreadQueue, Background, Helpers])
def test_threads_whose_start_was_struck_are_replaced(made, monkeypatch):
    done = threading.Event()
    one = ThreadQueue("test") if made is ThreadQueue else made()
    one.count = 1  # of helpers, where there is one core too
    begin = {
        ThreadQueue: lambda: one.add(done.set),
        Background: lambda: one.submit(done.set),
        Helpers: lambda: one.awake(1) and one.called.put(done.set),
    }[made]
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", struck)
        with pytest.raises(KeyboardInterrupt):
            begin()
    done.clear()
    begin()
    assert done.wait(20)
    if made is ThreadQueue:
        one.stop(join=True)


def test_blas_is_held_by_nobody_whose_start_was_struck(monkeypatch):
    blas = ThreadpoolController().select(user_api="blas")
    before, held = blas.info(), OneThread()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", struck)
        with pytest.raises(KeyboardInterrupt):
            held.hold()
    assert blas.info() == before


def test_a_thread_that_cannot_be_started_costs_the_machine_no_slot(monkeypatch):
    loss, _ = model()

    def refused(thread):
        raise RuntimeError("can't start new thread")

    with ag.ActorMachine([loss], workers=1, fuse="none") as machine:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                machine.start(FEEDS)
        assert machine.start(FEEDS).result()[loss].value == machine.run_sync(FEEDS)[loss].value


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_the_path_that_was_served_is_free_again(tmp_path):
    path = str(tmp_path / "socket")

    def served():
        with ag.trace.serve(path):
            pass

    for _ in strikes(served):
        with ag.trace.serve(path):
            assert ask(path) == []
