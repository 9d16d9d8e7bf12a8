"""What the interpreter knows of generated programs, as long as there are some."""

import gc
import inspect
import linecache
import traceback

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.text import code_of, direct_code


@pytest.fixture(autouse=True)
def nothing_is_compiled_yet():
    forget_what_is_compiled()


def forget_what_is_compiled():
    direct_code.cache_clear()
    code_of.cache_clear()
    gc.collect()


def known_texts():
    return {name for name in linecache.cache if name.startswith("<actorgraph program")}


def tape(factor):
    """Return a machine whose program has one text for every factor, and fails where it is fed 0."""
    x = ag.Graph().input("x", ("n", "n"))
    return ag.TapeMachine([ag.ops.inv(x * factor)])


def test_a_text_goes_with_the_last_program_that_was_made_of_it():
    before = known_texts()
    with tape(2.0) as machine:
        machine.run_sync({"x": np.eye(3, dtype="float32")})
        machine.start({"x": np.eye(3, dtype="float32")}).result()
        forget_what_is_compiled()
        assert len(known_texts() - before) == 2  # in the calling thread, and as an actor
    del machine
    forget_what_is_compiled()
    assert known_texts() == before


def test_a_program_keeps_its_text_when_an_equal_one_goes():
    with tape(2.0) as machine, tape(3.0) as other:
        machine.run_sync({"x": np.eye(3, dtype="float32")})
        forget_what_is_compiled()
        other.run_sync({"x": np.eye(3, dtype="float32")})
        del machine
        forget_what_is_compiled()
        [plan] = other._plans.values()
        assert inspect.getsource(plan.inline.program.make) == plan.inline.program.code.text
        with pytest.raises(ag.NodeError, match="inv") as caught:
            other.run_sync({"x": np.zeros((3, 3), "float32")})
    assert "= k1(" in "".join(traceback.format_exception(caught.value))
