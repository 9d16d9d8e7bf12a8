"""BLAS runs on one thread while any machine is open, whichever thread opens and closes it."""

import textwrap
from functools import cache

import pytest

from tests._child import printed_by

SCRIPT = """
    import threading, warnings
    import numpy as np
    import actorgraph as ag
    from threadpoolctl import ThreadpoolController

    blas = ThreadpoolController().select(user_api="blas").lib_controllers[0]

    def elsewhere(function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    def threads():
        return blas.get_num_threads()

    g = ag.Graph()
    x = g.input("x", (4, 4), "float64")
    y = x @ x
    feeds = {"x": np.ones((4, 4))}
    seen = []

    def opened():
        machine = ag.ActorMachine([y])
        machine.run_sync(feeds)
        seen.append(threads())
        return machine

    def in_turn():
        with opened():
            pass
        seen.append(threads())
"""


@cache
def at_rest():
    return printed("seen.append(threads())")[0]


def printed(body):
    script = textwrap.dedent(SCRIPT) + textwrap.dedent(body) + "\nprint(*seen)\n"
    return printed_by(script, "-W", "error::RuntimeWarning:actorgraph")


@pytest.mark.parametrize("first", ["in_turn()", "elsewhere(in_turn)"])
@pytest.mark.parametrize("second", ["in_turn()", "elsewhere(in_turn)"])
def test_blas_has_one_thread_while_a_machine_is_open_and_all_of_them_after(first, second):
    assert printed(f"{first}\n{second}\n{first}") == ["1", at_rest()] * 3


def test_a_machine_may_be_closed_by_another_thread_than_opened_it():
    body = "m = opened()\nelsewhere(m.close)\nseen.append(threads())\nelsewhere(in_turn)"
    assert printed(body) == ["1", at_rest(), "1", at_rest()]


def test_a_program_that_has_set_the_number_itself_is_told_where_nothing_can_be_done():
    body = """
    blas.set_num_threads(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elsewhere(in_turn)
    told = any("held to one thread" in str(one.message) for one in caught)
    assert told == (seen[0] != 1)
    seen.clear()
    in_turn()
    seen.pop()
    """
    assert printed(body) == ["1"]


def test_libraries_are_looked_for_again_where_a_module_was_imported_since():
    body = """
    import sys
    from actorgraph.devices.blas_threads import _controller

    in_turn()
    first = _controller()
    in_turn()
    seen[:] = [_controller() is first]
    sys.modules["of_a_user"] = threading
    seen += [_controller() is first]
    """
    assert printed(body) == ["True", "False"]
