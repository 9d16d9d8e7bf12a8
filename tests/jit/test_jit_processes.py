"""Compiled steps among processes: their cache, their thread, forks."""

import os

import pytest

from tests._child import printed_by

pytest.importorskip("llvmlite", reason="the extra jit is not installed")
pytestmark = pytest.mark.usefixtures("machine_code")

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
    return printed_by(PROGRAM + text, XDG_CACHE_HOME=str(cache), **environment)


def test_nothing_starts_without_jit_and_the_process_may_end_at_once(tmp_path):
    text = """
with ag.TapeMachine([y], exact=False, native=False) as machine:
    machine.run_sync(feeds)
    loaded = ["llvmlite" in sys.modules, "actorgraph.jit.lowering" in sys.modules]
    print(threading.active_count(), *loaded)
machine = ag.TapeMachine([y], exact=False, jit=True)
print(float(machine.run_sync(feeds)[y].value[0]))
"""
    assert run_program(text, tmp_path) == ["1", "False", "False", "2.0"]


WAIT = """
with ag.TapeMachine([y], exact=False, jit="wait") as machine:
    print(float(machine.run_sync(feeds)[y].value[0]))
from actorgraph.jit.compiler import COMPILER
[one] = COMPILER._known.values()
print(one.error)
"""


def test_machine_code_is_cached_on_disk_and_damaged_files_are_passed_over(tmp_path):
    assert run_program(WAIT, tmp_path) == ["2.0", "None"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("native-*.o")}
    assert before
    for path in before:
        path.write_bytes(b"\x80damaged")
    assert run_program(WAIT, tmp_path) == ["2.0", "None"]
    assert {path: path.read_bytes() for path in before} == before


def test_without_a_place_for_files_loops_are_compiled_all_the_same(tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    assert run_program(WAIT, place) == ["2.0", "None"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
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
