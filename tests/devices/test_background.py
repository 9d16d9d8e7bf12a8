"""What is compiled beside runs, where the process forks or ends."""

import os
import sys
import threading
import weakref

import pytest

from actorgraph.devices.background import BACKGROUND
from tests._child import printed_by

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

FORKED = """
import os, threading
from actorgraph.devices.background import BACKGROUND
{asked}
with BACKGROUND._working:  # its thread stands before the work
    ask()
    child = os.fork()
if child == 0:
    ask_again()
    os._exit(0 if done.wait(30) else 1)
print(done.wait(30), os.waitpid(child, 0)[1])
"""


def run(asked):
    return printed_by(FORKED.format(asked=asked), "-W", "ignore::DeprecationWarning")


def test_work_that_is_done_is_not_referred_to_and_what_is_to_be_kept_is():
    done, kept = threading.Event(), threading.Event()

    def work():
        pass

    references = [weakref.ref(work), weakref.ref(kept)]
    BACKGROUND.submit(work, keep=kept)
    BACKGROUND.submit(done.set)
    del work, kept
    assert done.wait(30)
    assert [one() is None for one in references] == [True, False]


def interval_while(work=lambda: None):
    """Return Python's interval of handing over the GIL during work that calls a function."""
    found, done = [], threading.Event()

    def looking():
        work()
        found.append(sys.getswitchinterval())

    BACKGROUND.submit(looking)
    BACKGROUND.submit(done.set)
    assert done.wait(30)
    with BACKGROUND._working:
        return found[0]


def test_during_work_the_gil_is_handed_over_sooner_and_afterwards_as_before():
    before = sys.getswitchinterval()
    assert interval_while() < before / 4
    assert sys.getswitchinterval() == before


@pytest.mark.parametrize("chosen_s", [0.002, 0.0001])
def test_an_interval_that_a_user_chooses_during_work_stays(chosen_s):
    before = sys.getswitchinterval()
    try:
        assert interval_while(lambda: sys.setswitchinterval(chosen_s)) == pytest.approx(chosen_s)
        assert sys.getswitchinterval() == pytest.approx(chosen_s)
    finally:
        sys.setswitchinterval(before)


def test_an_interval_that_is_short_already_stays():
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.0001)
        assert interval_while() == sys.getswitchinterval() == pytest.approx(0.0001)
    finally:
        sys.setswitchinterval(before)


@forks
def test_work_that_had_not_begun_at_a_fork_is_done_in_parent_and_child():
    asked = """
done = threading.Event()
ask = lambda: BACKGROUND.submit(done.set)
ask_again = BACKGROUND.resume
"""
    assert run(asked) == ["True", "0"]


@forks
def test_a_child_of_a_fork_makes_its_machine_code_itself():
    pytest.importorskip("llvmlite", reason="the extra native is not installed")
    asked = """
from actorgraph.devices.native import RUNTIME
done = RUNTIME.done
ask = ask_again = lambda: RUNTIME.request()
"""
    assert run(asked) == ["True", "0"]


@forks
def test_a_fork_does_not_wait_for_work_that_has_something_to_log():
    found = printed_by("""
import os, threading
from actorgraph.devices.background import BACKGROUND
import logging  # a fork takes its lock before it waits for work
entered, forking = threading.Event(), threading.Event()
def work():
    entered.set()
    forking.wait(30)
    BACKGROUND.warn("it failed", ValueError("so"))
BACKGROUND.submit(work)
entered.wait(30)
os.register_at_fork(before=forking.set)  # called before those that are there already
child = os.fork()
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
""", "-W", "ignore::DeprecationWarning", quiet=False)  # fmt: skip
    assert found == ["0"]


@forks
def test_no_run_registers_what_a_fork_calls_or_imports_logging():
    found = printed_by("""
import os, sys
import numpy as np
import actorgraph as ag
x = ag.Graph().input("x", (4,))
y = x
for _ in range(8):
    y = ag.ops.tanh(y) + 0.5
with ag.TapeMachine([y], native=True) as machine:
    def refused(**hooks):
        raise AssertionError(hooks)
    os.register_at_fork = refused
    for _ in range(300):
        machine.run_sync({x: np.ones(4, "float32")})
    print("logging" in sys.modules)
""")
    assert found == ["False"]
