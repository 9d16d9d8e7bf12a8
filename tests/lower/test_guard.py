"""Guard pages: a row that leaves its memory by one element ends the process, and says in what test.

`test_rows_stay_within_their_memory` goes too far in a process of its own, where it is told to.
"""

import ctypes
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import actorgraph as ag
from actorgraph import ops
from actorgraph.devices import loops, native
from actorgraph.lower import loop_table, table_rows
from actorgraph.memory import buffers
from actorgraph.memory.free_lists import FreeList
from actorgraph.scratch import scratch
from tests._guard import MAKERS, Guard

pytestmark = pytest.mark.skipif(
    native.expected() is not None, reason=f"no tables: {native.expected()}"
)
TOO_MANY = "ACTORGRAPH_TEST_TOO_MANY"
COUNT = 8192
"""A multiple of what anything is aligned to, and enough for scratch to be kept."""


def table(many, monkeypatch, last):
    words = table_rows._Columns._words
    monkeypatch.setattr(
        table_rows._Columns,
        "_words",
        lambda rows, numbers: words(rows, [n + many * (n == COUNT) for n in numbers]),
    )
    x = ag.Graph().input("x", (COUNT,), "float64")
    y = x
    for _ in range(7):
        y = ops.tanh(y) * 0.5
    with ag.TapeMachine([last(y)], native="wait") as machine:
        machine.run_sync({"x": np.ones(COUNT)})


def inner(many, monkeypatch):
    """Have the first kind of rows go too far, into the memory of a value that is written later."""
    words, left = table_rows._Columns._words, [many]
    monkeypatch.setattr(
        table_rows._Columns,
        "_words",
        lambda rows, numbers: words(
            rows, [n + (left.pop() if left and n == COUNT else 0) for n in numbers]
        ),
    )
    x = ag.Graph().input("x", (COUNT,), "float64")
    z = y = ops.tanh(x)
    for _ in range(7):
        z = ops.tanh(z) * 0.5
    with ag.TapeMachine([(y * z).sum()], native="wait") as machine:
        machine.run_sync({"x": np.ones(COUNT)})


def arena(many, monkeypatch):
    """Write too far into an array of an arena, as a step in Python might."""
    arrays = buffers.Buffers.arrays

    def written(*given):
        found = arrays(*given)
        ctypes.memset(found[0].ctypes.data, 1, found[0].nbytes + many)
        return found

    monkeypatch.setattr(buffers.Buffers, "arrays", written)
    x = ag.Graph().input("x", (COUNT,), "float64")
    y = ops.tanh(x)
    with ag.TapeMachine([(y * ops.exp(y)).sum()], native=False) as machine:
        machine.run_sync({"x": np.ones(COUNT)})


def loop(result, many):
    found = loops.loop_of("negative", "dd")
    step = 8 if many >= 0 else -8
    source = np.zeros(3 * COUNT)[COUNT : 2 * COUNT]
    result = result if many >= 0 else result[::-1]
    loops.call(found, [source, result], [COUNT + abs(many)], [step, step])


BETWEEN = {"inner": inner, "arena": arena}
"""Places that have other values of the same memory behind them."""

PLACES = {
    "results": lambda many, patch: table(many, patch, lambda y: y),
    "arenas": lambda many, patch: table(many, patch, lambda y: y.sum()),
    "scratch": lambda many, patch: loop(scratch(np, (COUNT,), np.dtype("d")), many),
    "lists": lambda many, patch: loop(FreeList((COUNT,), np.dtype("d")).take(), many),
    "constants": lambda many, patch: loop(constant(), many),
    "carries": lambda many, patch: loop(carry(), many),
    **{
        one.__name__: lambda many, patch, one=one: loop(one.fresh((COUNT,), np.dtype("d")), many)
        for one in MAKERS
    },
}


def constant():
    rows = object.__new__(table_rows.Written)
    rows.kept, rows.sizes = [], []
    rows.constant(np.zeros(COUNT))
    return rows.kept[0]


def carry():
    block = loop_table._LoopBlock(None, None, None)
    block.goes, block.kept, block.carries = (1, 1), [None], [np.zeros(COUNT)]
    made = object.__new__(loop_table.LoopTable)
    made._blocks = [block]
    return made._taken(1, 1).carries[0]


@pytest.mark.parametrize("place", PLACES)
def test_rows_stay_within_their_memory(place, monkeypatch):
    PLACES[place](int(os.environ.get(TOO_MANY, 0)), monkeypatch)


def run(command, **environment):
    found = subprocess.run(
        [sys.executable, *command], env=os.environ | environment, capture_output=True, text=True
    )
    return found.returncode, found.stdout + found.stderr


def test_pytest_names_the_test_whose_row_went_too_far():
    name = f"{__file__}::test_rows_stay_within_their_memory[results]"
    command = "-m", "pytest", "-n0", "--guard", name
    code, said = run(command, **{TOO_MANY: "1"})
    assert code == -signal.SIGSEGV, said
    assert "in test_rows_stay_within_their_memory" in said


def end_of(place, many, values=False):
    """Return how a process of its own ends in which rows of this place go too far."""
    child = os.fork()
    if not child:
        with pytest.MonkeyPatch.context() as patch:
            guard = Guard(at_begin=many < 0)
            guard.put(patch)
            if values:
                guard.put_values(patch)
            (PLACES | BETWEEN)[place](many, patch)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_one_element_too_many_ends_the_process_wherever_rows_write():
    table_goes = [(place, many) for place in ("results", "arenas") for many in (0, 1)]
    loop_goes = [(place, many) for place in [*PLACES][2:] for many in (-1, 0, 1)]
    between = [(place, many, True) for place in BETWEEN for many in (0, 1)]
    cases = [*table_goes, *loop_goes, *between]
    program = f"from {__name__} import *; print([end_of(*one) for one in {cases}])"
    code, said = run(("-c", program))
    wanted = [-signal.SIGSEGV if many else 0 for _, many, *_ in cases]
    assert (code, said) == (0, f"{wanted}\n")
