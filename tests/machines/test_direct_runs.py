"""Runs that the calling thread computes: beside each other, beside steps, beside the end."""

import threading

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, MachineClosedError
from actorgraph.machines import life
from actorgraph.machines.admission import Admission
from actorgraph.machines.inline import Inline
from actorgraph.machines.plan import Plan
from actorgraph.machines.process import THIS
from actorgraph.machines.reader import Reader
from actorgraph.scheduler import Pool

_called = {0: lambda x: x}
called = ag.ops.define(
    "machines_called", scheme="f[*s] -> f[*s]", forward=lambda xp, x: _called[0](x),
    vjp=(lambda ct, y, x: ct,), cost=lambda shapes, result, attrs: 1.0,
)  # fmt: skip


async def _twice(xp, x):
    return x * 2


twice = ag.ops.define("machines_twice", scheme="f[*s] -> f[*s]", forward=_twice)


def together(count, function):
    """Call the function in so many threads at once and return what they raised."""
    start, errors = threading.Barrier(count), []

    def call():
        try:
            start.wait()
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


class Watched:
    """A lock whose holder may wait until another thread asks for it."""

    def __init__(self):
        self._lock = threading.RLock()
        self._asked = threading.Semaphore(0)

    def __enter__(self):
        self._asked.release()
        self._lock.acquire()
        self._asked.acquire()

    def __exit__(self, *error):
        self._lock.release()

    def wait_for_another(self):
        assert self._asked.acquire(timeout=20), "no other thread asks for the lock"
        self._asked.release()


@pytest.mark.parametrize(("owner", "made"), [(Plan, "_make_binding"), (Inline, "_lower")])
def test_two_threads_that_begin_with_the_first_run_compile_it_once(owner, made, monkeypatch):
    """Cutting twice at once left tasks with the buffers of both cuts."""
    original, lock, calls = getattr(owner, made), Watched(), []

    def while_another_asks(self, *given):
        calls.append(self)
        lock.wait_for_another()
        return original(self, *given)

    monkeypatch.setattr(owner, made, while_another_asks)
    monkeypatch.setattr(THIS, "making", lock)
    x = ag.Graph().input("x", (4,))
    with ag.ActorMachine([np.tanh(x * 2.0) + x], workers=4) as machine:
        feeds = {"x": np.ones(4, "float32")}
        assert together(2, lambda: machine.run_sync(feeds)) == []
    assert len(calls) == 1


def test_a_run_waits_for_those_that_threads_compute_where_as_many_are_in_flight_as_may_be(
    monkeypatch,
):
    entered, go = threading.Event(), threading.Event()

    def hold(x):
        entered.set()
        assert go.wait(20)
        return x.copy()

    monkeypatch.setitem(_called, 0, hold)
    x = ag.Graph().input("x", (2,), "float64")
    feeds = {"x": np.ones(2)}
    with ag.ActorMachine([called(x * 2.0)], workers=4, max_in_flight=2) as machine:
        threads = [threading.Thread(target=machine.run_sync, args=(feeds,)) for _ in range(2)]
        for thread in threads:
            thread.start()
            assert entered.wait(20)
            entered.clear()
        core = machine._core
        assert len(core.admission.direct) == 2
        third, fourth = (
            machine.start(feeds),
            threading.Thread(target=machine.run_sync, args=(feeds,)),
        )
        assert core.admission.waiting == [third]
        fourth.start()
        go.set()
        third.result(timeout_s=20)
        for thread in (*threads, fourth):
            thread.join(20)
            assert not thread.is_alive()
        assert not core.admission.direct


@pytest.mark.parametrize("fuse", ["auto", "none"])
def test_a_parameter_is_read_until_what_shows_it_was_copied(fuse, monkeypatch):
    original, g = Reader.collect, ag.Graph()
    w = g.parameter("w", np.arange(6.0).reshape(2, 3))

    def beside_another_thread(self, run):
        w.value = np.zeros((2, 3))
        return original(self, run)

    monkeypatch.setattr(Reader, "collect", beside_another_thread)
    with ag.ActorMachine([w.T, w + 0.0], fuse=fuse, workers=2) as machine:
        run = machine.run_sync()
    np.testing.assert_array_equal(run[w.T].value, np.arange(6.0).reshape(2, 3).T)


def test_closing_waits_for_a_run_that_another_thread_computes(monkeypatch):
    """Products change bits with the threads of BLAS, which have their number back at the end."""
    begun, waits, order = threading.Event(), threading.Event(), []
    monkeypatch.setattr(life, "sleep", lambda seconds: waits.set())

    def op(x):
        begun.set()
        assert waits.wait(20)
        order.append("op")
        return x + 0

    _called[0] = op
    x = ag.Graph().input("x", (2,))
    machine = ag.ActorMachine([called(x)], workers=2)
    feeds = {"x": np.ones(2, "float32")}
    thread = threading.Thread(target=machine.run_sync, args=(feeds,))
    thread.start()
    assert begun.wait(20)
    machine.close()
    order.append("closed")
    waits.set()
    thread.join()
    assert order == ["op", "closed"]


def test_a_run_that_was_made_before_the_end_is_not_computed_after_it():
    x = ag.Graph().input("x", (2,))
    machine = ag.ActorMachine([x * 2.0], workers=2)
    run = machine._prepare({"x": np.ones(2, "float32")}, False, None, 0, None, None)
    machine.close()
    with pytest.raises(MachineClosedError, match="was closed"):
        machine._run_now(run)


# NumPy 2.5 still lets an owner do so.
@pytest.mark.filterwarnings("ignore:Setting the (shape|dtype):DeprecationWarning")
def test_a_result_that_its_owner_has_changed_in_form_spoils_no_later_run():
    x = ag.Graph().input("x", (100, 100), "float64")
    y = np.tanh(x * 2.0)
    feeds = {"x": np.ones((100, 100))}
    with ag.ActorMachine([y, y.sum()], fuse="all", workers=1, statistics=True) as machine:
        expected = machine.run_sync(feeds)[y].value.copy()
        for number in range(40):
            value = machine.run_sync(feeds)[y].value
            np.testing.assert_array_equal(value, expected)
            if number % 3 == 0:
                value.flags.writeable = False
            elif number % 3 == 1:
                value.shape = -1
            else:
                value.dtype = np.int64
            del value


@pytest.mark.parametrize("kind", [ag.TapeMachine, ag.ActorMachine, ag.LispMachine])
def test_random_ops_draw_the_same_in_steps_of_every_machine_and_placement(kind):
    def losses(machine_type, **options):
        g, size = ag.Graph(), 300
        x = g.input("x", ("n", size))
        nodes = [g.parameter(name, np.full((size, size), 0.01, "float32")) for name in "wv"]
        h, k = (ag.ops.dropout(x @ node, 0.5) for node in nodes)
        with machine_type([(h * k).mean()], costs=dict.fromkeys([h, k], 5000.0), **options) as m:
            step = m.compile_step(ag.solvers.SGD(lr=0.001))
            runs = [step({"x": np.ones((200, size), "float32")}) for _ in range(3)]
            assert [run.number for run in runs] == [0, 1, 2]
            return [run[next(iter(m.outputs))].value.item() for run in runs]

    assert losses(kind, workers=2) == losses(ag.LispMachine, workers=1)


def test_run_sync_of_an_asynchronous_graph_counts_each_run_once():
    x = ag.Graph().input("x", (2,))
    with ag.ActorMachine([twice(x)]) as machine:
        numbers = [machine.run_sync({"x": np.ones(2, "float32")}).number for _ in range(3)]
    assert numbers == [0, 1, 2]


def test_a_parameter_that_is_set_while_gradients_are_computed_leaves_the_solver_as_it_was():
    g, solver = ag.Graph(), ag.solvers.SGD(lr=0.1, momentum=0.9)
    w = g.parameter("w", np.ones(3))

    def sets(x):
        w.value = np.full(3, 5.0)
        return x + 0

    _called[0] = sets
    with ag.TapeMachine([called(w).sum()]) as machine:
        step = machine.compile_step(solver)
        with pytest.raises(GraphError, match="'w' was set while a step"):
            step()
    assert not solver.slots([w])[0].state.arrays["velocity"].any()
    np.testing.assert_array_equal(w.value, np.full(3, 5.0))


def test_what_a_run_in_flight_has_read_stays_through_any_number_of_steps():
    w = ag.Graph().parameter("w", np.ones(3))
    loss = (w * w).sum()
    with ag.ActorMachine([loss, w], workers=2) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.1))
        seen = []

        def stepped(self, run, original=Reader.collect):
            if not seen:  # the first run is in flight still
                seen.append(0)
                step()
            return original(self, run)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Reader, "collect", stepped)
            value = machine.run_sync()[w].value
        for _ in range(3):
            step()
    np.testing.assert_array_equal(value, np.ones(3))


@pytest.mark.parametrize("fuse", ["none", "auto"])
def test_an_ended_step_shows_outputs_which_later_steps_leave_alone(fuse):
    w = ag.Graph().parameter("w", np.ones(3))
    loss = (w * w).sum()
    with ag.ActorMachine([loss, w], workers=2, fuse=fuse) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.25))
        run = step()
        for _ in range(3):
            step()
    np.testing.assert_array_equal(run[w].value, np.ones(3))
    assert run[w].grad is None


@pytest.mark.parametrize("errors", ["warn", "raise"])
@pytest.mark.parametrize("jit", [False, "wait"])
def test_small_runs_need_no_network_but_where_compiled_loops_are_to_raise(jit, errors):
    x = ag.Graph().input("x", (3,), "float64")
    with ag.TapeMachine([np.exp(-x) + 1], jit=jit, exact=False) as machine:
        with np.errstate(all=errors):
            machine.run_sync({"x": np.ones(3)})
        assert len(machine._core.networks) == (jit == "wait" and errors == "raise")


ACTORS = [(ag.LispMachine, {}), (ag.ActorMachine, {"fuse": "none"}), (ag.ActorMachine, {"seed": 3})]


@pytest.fixture
def woken(monkeypatch):
    """Return a list that gets an entry for each thread that is asked to work."""
    found, submit = [], Pool.submit

    def noted(self, *given):
        found.append(given)
        submit(self, *given)

    monkeypatch.setattr(Pool, "submit", noted)
    return found


async def awaited_once(machine_type, y, **options):
    """Await a first run, then return the value of another."""
    ones = {"x": np.ones(2)}
    async with machine_type([y], **options) as machine:
        await machine.run(ones)
        return (await machine.run(ones))[y].value.tolist()


@pytest.mark.anyio
@pytest.mark.parametrize(("machine_type", "options"), ACTORS)
async def test_a_small_run_of_actors_wakes_no_thread_where_a_loop_awaits_it(
    machine_type, options, woken
):
    x = ag.Graph().input("x", (2,), "float64")
    assert await awaited_once(machine_type, (-x) * 2.0, **options) == [-2, -2]
    assert woken == []


@pytest.mark.anyio
async def test_a_run_that_its_caller_computes_needs_nothing_to_wake_the_loop_by(monkeypatch):
    monkeypatch.setattr(life, "loop_notifier", None)
    x = ag.Graph().input("x", (2,), "float64")
    assert await awaited_once(ag.TapeMachine, (-x) * 2.0) == [-2, -2]


@pytest.mark.anyio
async def test_a_run_that_its_caller_computes_lets_other_tasks_run_and_may_be_cancelled():
    x, order = ag.Graph().input("x", (2,), "float64"), []

    async def other():
        order.append("other")

    async with ag.TapeMachine([x * 2.0]) as machine, anyio.create_task_group() as group:
        group.start_soon(other)
        for _ in range(2):  # trio may take those that are ready in any order
            await machine.run({"x": np.ones(2)})
        order.append("runs")
        with anyio.CancelScope() as scope:
            scope.cancel()
            await machine.run({"x": np.ones(2)})
            order.append("never")
    assert order == ["other", "runs"]
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_what_users_have_written_is_called_by_a_worker_and_not_by_the_loop():
    threads = []
    _called[0] = lambda x: threads.append(threading.get_ident()) or x
    x = ag.Graph().input("x", (2,), "float64")
    y = called(x)
    assert await awaited_once(ag.ActorMachine, y, fuse="none") == [1, 1]
    log = lambda node, value: threads.append(threading.get_ident())  # noqa: E731
    assert await awaited_once(ag.LispMachine, x * 2.0, log=log) == [2, 2]
    assert len(threads) == 4
    assert threading.get_ident() not in threads


@pytest.mark.anyio
async def test_a_long_turn_is_left_to_a_worker_where_others_are_in_flight(woken, monkeypatch):
    monkeypatch.setattr(Admission, "is_alone", lambda self: False)
    x = ag.Graph().input("x", (8192,), "float64")
    ones, y = {"x": np.ones(8192)}, ag.ops.tanh(x)
    async with ag.LispMachine([y]) as machine:
        run = await machine.run(ones)
        assert 10 < run.binding.predicted_us < life.INLINE_US
    assert run[y].value.tolist() == np.tanh(ones["x"]).tolist()
    assert woken
