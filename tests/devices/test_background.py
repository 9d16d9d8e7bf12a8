"""What is compiled beside runs, where the process forks or ends."""

import os
import subprocess
import sys
import threading
import weakref

import pytest

from actorgraph.devices.background import BACKGROUND

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
    text = FORKED.format(asked=asked)
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


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


@forks
def test_work_that_had_not_begun_at_a_fork_is_done_in_parent_and_child():
    asked = """
done = threading.Event()
ask = lambda: BACKGROUND.submit(done.set)
ask_again = BACKGROUND.resume
"""
    assert run(asked) == ["True", "0"]


@forks
def test_a_child_of_a_fork_makes_its_machine_code_itself(tmp_path):
    pytest.importorskip("llvmlite", reason="the extra native is not installed")
    asked = f"""
from actorgraph.devices.native import RUNTIME
done = RUNTIME.done
ask = ask_again = lambda: RUNTIME.request({str(tmp_path)!r})
"""
    assert run(asked) == ["True", "0"]
