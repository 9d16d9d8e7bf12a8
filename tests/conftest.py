"""What all tests share."""

import gc
import os
import sys
import threading
from functools import wraps
from time import monotonic

import pytest

import actorgraph as ag
import actorgraph.control.in_blocks  # every op is registered, in whatever order tests run
from actorgraph import deadlines
from actorgraph.lower import asking, simplify
from actorgraph.machines import compiled
from actorgraph.machines import run as run_module
from actorgraph.scheduler import POOL


@pytest.fixture(scope="session", autouse=True)
def all_objects_are_looked_at_in_the_end():
    yield
    gc.unfreeze()  # what comes after the tests may ask who refers to what, as hypothesis does


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_not_looked_at(all_objects_are_looked_at_in_the_end):
    """Keep what is there before a module's first test out of garbage collections.

    Some tests collect garbage again and again.  With 21,000 tests collected that
    took 0.5 s a time and more, so that a test ran out of time on a machine under load, in the
    middle of whatever it did, and others failed for it.  What is kept out stays out: to look at
    it once a module took 50 s of a whole run.
    """
    await_threads("actorgraph compiler")  # refers to what it works for
    collect_machines()
    if POOL._shares:
        gc.unfreeze()  # what is kept out may have become garbage
        collect_machines()
    assert not POOL._shares, "a module before left a machine open, and with it threads"
    gc.freeze()


def collect_machines():
    """Have the machines that were dropped closed."""
    gc.collect()
    await_threads("actorgraph-collector")


def await_threads(name):
    """Wait for the end of threads that end by themselves."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(20)


def pytest_addoption(parser):
    for name, where in (
        ("guard", "behind memory of steps and tables"),
        ("guard-begin", "before memory of steps and tables"),
        ("guard-values", "behind each value in this memory, and each array of NumPy"),
    ):
        parser.addoption(
            f"--{name}", action="store_const", const=name, dest="guard",
            help=f"{where} is a page that nobody may touch",
        )  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def memory_lies_between_guard_pages(request):
    """Have whatever is read or written beside an arena or a table end the process."""
    with pytest.MonkeyPatch.context() as patch:
        how = request.config.getoption("guard")
        if how:
            from tests._guard import Guard

            guard = Guard(at_begin=how == "guard-begin")
            guard.put(patch)
        if how == "guard-values":
            from tests import _fence

            guard.put_values(patch)
            _fence.put()
        yield


@pytest.fixture
def values_share_memory(request):
    """Skip a test of plans in which values reuse memory where each lies apart."""
    if request.config.getoption("guard") == "guard-values":
        pytest.skip("each value lies between guard pages")


@pytest.fixture(scope="session", autouse=True)
def every_joint_graph_is_legal():
    """Check each graph that a machine differentiates, and once more after the late passes."""

    def checked(make):
        @wraps(make)
        def guarded(*args, **options):
            joint = make(*args, **options)
            joint.check()
            return joint

        return guarded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "join", checked(compiled.join))
        patch.setattr(simplify, "simplified", checked(simplify.simplified))
        yield


@pytest.fixture(scope="session", autouse=True)
def programs_that_tests_start_keep_bytecode(tmp_path_factory):
    """Compile the package once for all of them where Python is told to write none to its place."""
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(tmp_path_factory.mktemp("bytecode"))


@pytest.fixture(scope="session")
def all_faults():
    """Collect what writing machine code raises: Python computes instead, so no result tells."""
    found, tell = [], asking._tell

    def collected(error):
        found.append(error)
        tell(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "_tell", collected)
        yield found


@pytest.fixture(autouse=True)
def faults(all_faults):
    """Raise what writing machine code raised in a test, unless the test takes it from here."""
    yield all_faults
    await_threads("actorgraph compiler")
    if all_faults:
        first = all_faults[0]
        all_faults.clear()
        raise first


@pytest.fixture
def g():
    return ag.Graph("net")


@pytest.fixture
def x(g):
    return g.input("x", (3,), "float64")


class Clock:
    """The clock of deadlines: ahead of the real one by as many seconds as a test says."""

    def __init__(self):
        self.ahead = 0.0

    def now(self):
        return monotonic() + self.ahead

    def move_on(self, seconds):
        """Let time pass, and have the thread that watches deadlines look."""
        self.ahead += seconds
        with POOL.deadlines._changed:
            POOL.deadlines._changed.notify()


@pytest.fixture
def clock(monkeypatch):
    """Put deadlines into the hands of a test."""
    made = Clock()
    for module in (deadlines, run_module):
        monkeypatch.setattr(module, "monotonic", made.now)
    return made


@pytest.fixture(scope="session", autouse=True)
def no_rates_of_this_machine(tmp_path_factory):
    """Predict by the default rates, whatever `actorgraph calibrate` has stored for the user."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def threads_are_kept():
    """Keep a machine open, so that others neither start nor end threads, nor ask what BLAS has."""
    with ag.ActorMachine([ag.Graph().constant(1.0) + 1.0], workers=2) as machine:
        machine.run_sync()
        yield


@pytest.fixture
def threads_of_its_own():
    """Let a test begin without idle threads, whatever machines others have left open."""
    kept = dict(vars(POOL))
    POOL.__init__()
    yield
    vars(POOL).update(kept)
