"""Machines among processes, threads, signals and the garbage collector."""

import os
import textwrap
import threading

import pytest

import actorgraph as ag
from actorgraph.testing._examples import results
from tests._child import printed_by
from tests._soak import SOAK
from tests.machines._faults import feeds, traced_model

HEAD = """
import os, signal, sys, threading, warnings
import numpy as np
import actorgraph as ag
from tests.machines._faults import feeds, gate, new_gate, traced_model, trap, TRAP

_, outputs = traced_model()
x = ag.Graph().input("x", (2,), "float64")
ONES = {"x": np.ones(2)}
# A shell has what it starts in the background ignore Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
"""


def run_script(body, timeout_s=50):
    """Run a program in a new interpreter that has to end by itself; return what it printed."""
    return printed_by(HEAD + textwrap.dedent(body), "-W", "error", timeout_s=timeout_s)


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
FORK = """
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: fork of a threaded process
def in_child(call):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        signal.alarm(40)  # a child that hangs is killed, and its parent sees it
        call()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def run_forking(body):
    """Run a program that makes calls `in_child`."""
    return run_script(FORK + textwrap.dedent(body))


@forks
def test_a_forked_child_uses_the_machine_afresh():
    printed = run_forking("""
        machine = ag.ActorMachine(outputs, workers=2)
        value = machine.run_sync(feeds(), backward=True)[outputs[0]].value
        machine.start(feeds()).result(timeout_s=10)
        def child():
            assert machine.run_sync(feeds(), backward=True)[outputs[0]].value == value
            assert machine.start(feeds()).result(timeout_s=10)[outputs[0]].value == value
            machine.close()
            print("child", threading.active_count())
        in_child(child)
        assert machine.run_sync(feeds())[outputs[0]].value == value
        machine.close()
        print("parent", threading.active_count())
    """)
    assert printed == ["child", "1", "parent", "1"]


@forks
def test_a_child_forked_during_a_run_does_not_hang():
    printed = run_forking("""
        y = gate(x * 1.0)
        w = y.graph.parameter("w", np.ones(2))
        serial = ag.ops.define("serial", scheme="f[*s] -> f[*s]", concurrent=False,
                               forward=lambda xp, x: gate_body(xp, x))
        passing = new_gate()
        gate_body = passing
        z = serial(x * 2.0) * w
        machine = ag.ActorMachine([z], workers=2)
        run = machine.start(ONES)
        passing.wait_entered()  # a worker of the parent holds the lock of the op
        def child():
            passing.__init__()
            passing.open(10)
            w.value = np.full(2, 5.0)
            assert machine.run_sync(ONES)[z].value[0] == 15
            try:
                run.result()
            except ag.GraphError as error:
                assert "parent process" in str(error)
                print("child")
            assert not run.cancel()
            machine.close()
            ag.LispMachine([z]).run_sync(ONES)
        in_child(child)
        passing.open()
        assert run.result()[z].value[0] == 3
        machine.close()
        print("parent")
    """)
    assert printed == ["child", "parent"]


@forks
def test_a_fork_waits_for_a_first_run_that_another_thread_begins():
    printed = run_forking("""
        from actorgraph.machines import plan
        entered, forking = threading.Event(), threading.Event()
        original = plan.partitioned
        def half_made(*args):
            entered.set()
            assert forking.wait(20)
            return original(*args)
        plan.partitioned = half_made
        y = x * 2.0
        machine = ag.ActorMachine([y], workers=2, fuse="none")
        thread = threading.Thread(target=machine.run_sync, args=(ONES,))
        thread.start()
        assert entered.wait(20)
        os.register_at_fork(before=forking.set)  # called before those that are there already
        def child():
            assert machine.run_sync(ONES)[y].value[0] == 2
            print("child")
        in_child(child)
        thread.join()
        machine.close()
        print("parent")
    """)
    assert printed == ["child", "parent"]


@forks
def test_a_child_that_only_closes_or_drops_the_machine_leaves_the_parents_alone():
    printed = run_forking("""
        machine = ag.ActorMachine(outputs, workers=2)
        machine.start(feeds()).result(timeout_s=10)
        in_child(machine.close)
        def drop():
            global machine
            del machine
        in_child(drop)
        machine.start(feeds()).result(timeout_s=10)
        machine.close()
        print(threading.active_count())
    """)
    assert printed == ["1"]


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_interpreter_ends_with_an_open_machine(loop):
    printed = run_script(f"""
        import anyio
        machine = ag.ActorMachine(outputs, workers=2)
        async def main():
            await machine.run(feeds(), timeout_s=100)
            await machine.start(feeds())
        anyio.run(main, backend={loop!r})
        machine.start(feeds()).result(timeout_s=10)
        print("end")
    """)
    assert printed == ["end"]


@pytest.mark.parametrize("place", ["in flight", "queued", "in a cycle"])
def test_the_interpreter_ends_with_a_run_under_way(place):
    printed = run_script(f"""
        passing = new_gate()
        y = gate(x * 1.0)
        machine = ag.ActorMachine([y], workers=2, max_in_flight=1)
        runs = [machine.start(ONES, timeout_s=1000)]
        if {place!r} == "queued":
            runs += [machine.start(ONES) for _ in range(3)]
        if {place!r} == "in a cycle":
            cycle = [machine]
            cycle.append(cycle)
            del machine
        passing.wait_entered()
        print("end")
    """)
    assert printed == ["end"]


def test_ctrl_c_during_run_sync_interrupts_it_and_the_machine_works_afterwards():
    printed = run_script("""
        for machine_type in (ag.ActorMachine, ag.TapeMachine, ag.LispMachine):
            for fuse in ("none", "auto"):
                _, outputs = traced_model(4)
                machine = machine_type(outputs, workers=2, fuse=fuse)
                class Interrupt(Exception):
                    def __init__(self):
                        os.kill(os.getpid(), signal.SIGINT)
                for _ in range(3):
                    TRAP.forward = Interrupt
                    try:
                        machine.run_sync(feeds())
                    except KeyboardInterrupt:
                        print("interrupted")
                    except ag.NodeError:
                        print("failed")  # a worker was in the op
                    TRAP.forward = None
                    machine.run_sync(feeds(), backward=True)
                machine.close()
        assert threading.active_count() == 1, threading.enumerate()
    """)
    assert len(printed) == 18
    assert printed.count("interrupted") >= 12


def test_ctrl_c_while_waiting_for_a_worker_returns_when_its_op_ends():
    printed = run_script("""
        passing = new_gate()
        y = gate(x * 1.0)
        machine = ag.ActorMachine([y], workers=1)
        first = machine.start(ONES)
        passing.wait_entered()
        def interrupt():
            main = threading.main_thread().ident
            while sys._current_frames()[main].f_code.co_name != "_wait":
                pass
            os.kill(os.getpid(), signal.SIGINT)
            while machine._core.admission.in_flight[1].dead is None:
                pass
            passing.open()
        threading.Thread(target=interrupt).start()
        try:
            machine.run_sync(ONES)
        except KeyboardInterrupt:
            print("interrupted")
        first.result()
        passing.open()
        machine.run_sync(ONES)
        machine.close()
    """)
    assert printed == ["interrupted"]


@pytest.mark.parametrize(
    "machine",
    [
        "ag.TapeMachine(y)",
        "ag.ActorMachine(y, workers=1, fuse='none')",
        "ag.ActorMachine(y, workers=2, fuse='none')",
    ],
)
def test_ctrl_c_at_any_moment_leaves_a_machine_that_works(machine):
    printed = run_script(f"""
        import random
        place = random.Random(1)
        w = ag.Graph().parameter("w", np.ones((8, 8)))
        y = (np.tanh(w @ w) + w).sum()
        sys.unraisablehook = id  # what strikes in a callback of Python's own is told and ignored
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        def interrupted(machine, runs, latest_s):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, place.uniform(2e-6, latest_s))
                    for _ in range(runs):
                        machine.run_sync()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
        kept = {machine}
        value = kept.run_sync()[y].value
        for _ in range({500 if SOAK else 150}):
            interrupted(kept, 30, 4e-4)
            assert kept.run_sync()[y].value == value
        kept.close()
        for _ in range({150 if SOAK else 50}):
            machine = {machine}
            interrupted(machine, 1, 3e-3)  # while it is compiled
            assert machine.run_sync(backward=True)[w].grad.shape == (8, 8)
            machine.close()
        print("end")
    """)
    assert printed == ["end"]


@pytest.mark.parametrize("call", ["step()", "machine.start().result()"])
def test_ctrl_c_at_any_moment_of_a_step_or_a_started_run_leaves_a_machine_that_works(call):
    printed = run_script(f"""
        import random
        place = random.Random(1)
        w = ag.Graph().parameter("w", np.ones((8, 8)) / 100)
        machine = ag.ActorMachine((np.tanh(w @ w) + w).sum(), workers=2, fuse="none")
        step = machine.compile_step(ag.solvers.SGD(lr=1e-9))
        sys.unraisablehook = id  # what strikes in a callback of Python's own is told and ignored
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        for _ in range({500 if SOAK else 150}):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, place.uniform(2e-6, 4e-4))
                    for _ in range(30):
                        {call}
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (KeyboardInterrupt, RuntimeError):
                pass  # the latter where it strikes in Python's own start of a thread
            {call}
        machine.close()
        print("end")
    """)
    assert printed == ["end"]


def test_a_loop_closed_in_mid_run_leaves_the_machine_working():
    printed = run_script("""
        import asyncio
        passing = new_gate()
        y = gate(x * 1.0)
        machine = ag.ActorMachine([y], workers=2)
        async def leave():
            waiting = asyncio.ensure_future(machine.run(ONES))
            run = machine.start(ONES)
            while not passing.inside:
                await asyncio.sleep(0)
            return waiting, run
        loop = asyncio.new_event_loop()
        waiting, run = loop.run_until_complete(leave())
        waiting.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()  # nobody will hear of the end of either run
        passing.open(10)
        run.result()
        assert machine.run_sync(ONES)[y].value[0] == 2
        waiting._log_destroy_pending = False
        machine.close()
        print(threading.active_count())
    """)
    assert printed == ["1"]


def test_a_loop_closed_over_a_task_that_awaits_says_only_what_asyncio_says():
    printed = run_script("""
        import asyncio
        passing = new_gate()
        y = gate(x * 1.0)
        machine = ag.ActorMachine([y], workers=2)
        async def leave():
            asyncio.ensure_future(machine.run(ONES))._log_destroy_pending = False
            while not passing.inside:
                await asyncio.sleep(0)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave())
        loop.close()  # the task is dropped in the middle of its wait
        passing.open(10)
        assert machine.run_sync(ONES)[y].value[0] == 2
        machine.close()
        print(threading.active_count())
    """)
    assert printed == ["1"]


def test_several_machines_work_in_several_threads_at_once():
    _, outputs = traced_model()
    nodes = list(outputs)
    with ag.LispMachine(outputs) as machine:
        right = results(machine.run_sync(feeds(), backward=True), nodes)
    shared = ag.ActorMachine(outputs, workers=2, fuse="none")
    wrong = []

    def work(number):
        try:
            with ag.ActorMachine(outputs, workers=number % 3 + 1, fuse="none") as own:
                for machine in [own, shared] * 10:
                    if results(machine.run_sync(feeds(), backward=True), nodes) != right:
                        wrong.append(number)
                    if results(machine.start(feeds(), backward=True).result(), nodes) != right:
                        wrong.append(number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    shared.close()
    assert wrong == []


def test_a_machine_that_many_threads_start_at_once_starts_once():
    for _ in range(20):
        _, outputs = traced_model()
        machine = ag.ActorMachine(outputs, workers=2, fuse="none")
        barrier = threading.Barrier(6)
        cores = []

        def first(machine=machine, barrier=barrier, cores=cores):
            barrier.wait(20)
            cores.append(machine.start(feeds()).result().core)

        threads = [threading.Thread(target=first) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        machine.close()
        assert len(cores) == 6
        assert len(set(map(id, cores))) == 1


def test_a_dropped_machine_ends_its_threads():
    printed = run_script(
        ENDED
        + textwrap.dedent("""
        machine = ag.ActorMachine(outputs, workers=2, fuse="none")
        machine.start(feeds(), timeout_s=100).result(timeout_s=20)
        assert own_threads()
        dropped = weakref.ref(machine)
        del machine
        gc.collect()
        assert dropped() is None
        assert_ended()
    """)
    )
    assert printed == ["ended"]


def test_a_machine_that_is_dropped_with_a_run_in_flight_ends_after_the_run():
    printed = run_script(
        ENDED
        + textwrap.dedent("""
        passing, y = new_gate(), gate(x)
        run = ag.ActorMachine([y], workers=2).start(ONES)
        passing.wait_entered()
        assert own_threads()
        gc.collect()
        passing.open()
        np.testing.assert_array_equal(run.result()[y].value, 2)
        gc.collect()
        assert_ended()
    """)
    )
    assert printed == ["ended"]


# Machines share their threads, which end with the last one: where another is open, none ends.
ENDED = """
import gc, weakref

def own_threads():
    return [one for one in threading.enumerate() if one.name.startswith("actorgraph")]

def assert_ended():
    while threads := own_threads():  # one that begins meanwhile closes the machine
        if (thread := threads.pop()).is_alive():  # else it is about to be
            thread.join()
    print("ended")
"""


def test_blas_has_its_threads_back_when_the_last_machine_is_closed():
    from threadpoolctl import threadpool_info

    def blas_threads():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = blas_threads()
    _, outputs = traced_model()
    one, two = ag.ActorMachine(outputs), ag.TapeMachine(outputs)
    one.run_sync(feeds())
    two.run_sync(feeds())
    assert set(blas_threads()) <= {1}
    one.close()
    assert set(blas_threads()) <= {1}
    two.close()
    assert blas_threads() == before


SMALL = """
import sys
import numpy, anyio, threadpoolctl
modules = set(sys.modules)
import actorgraph as ag
x = ag.Graph().input("x", (2, 2), "float64")
loss = numpy.tanh(x @ x.graph.parameter("w", numpy.eye(2))).sum()
with ag.ActorMachine([loss]) as machine:
    machine.run_sync({"x": numpy.ones((2, 2))}, backward=True)
print(*{"hashlib", "numpy.ma", "actorgraph.solvers"} & (set(sys.modules) - modules))
"""


def test_the_first_run_of_a_small_graph_imports_nothing_that_it_does_not_need():
    assert printed_by(SMALL) == []
