"""`ag.trace.memory` names the lines whose arrays are still held."""

import gc
import tracemalloc

import numpy as np
import pytest

import actorgraph as ag

SIZE = 5000


@pytest.fixture
def machine():
    x = ag.Graph().input("x", ("n",))
    with ag.TapeMachine([np.tanh(x) * 2.0]) as machine:
        machine.run_sync({"x": np.ones(SIZE, "float32")})
        yield machine


def test_the_line_that_keeps_results_is_named_with_what_they_take(machine):
    feeds, kept = {"x": np.ones(SIZE, "float32")}, {}
    with ag.trace.memory() as held:
        for number in range(3):
            kept[number] = machine.run_sync(feeds)  # the line
    [line] = [one for one in held.lines if one.bytes >= 4 * SIZE]
    assert line.file == __file__
    assert line.text == "kept[number] = machine.run_sync(feeds)  # the line"
    assert line.bytes >= 2 * 4 * SIZE
    assert f"{line.file}:{line.line}" in str(held)


def test_what_was_let_go_is_not_held_but_was_at_the_peak():
    with ag.trace.memory() as held:
        np.ones(SIZE).sum()
        cycle = [np.ones(SIZE)]
        cycle.append(cycle)
        del cycle
    assert (held.lines, held.bytes, str(held)) == ([], 0, "no arrays are held")
    assert held.peak_bytes >= 8 * SIZE


def test_what_was_there_before_does_not_count():
    tracemalloc.start(4)
    try:
        before = np.ones(SIZE)
        with ag.trace.memory() as held:
            pass
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
    assert held.lines == []
    assert before.sum() == SIZE


def test_a_block_that_fails_stops_tracing():
    with pytest.raises(ZeroDivisionError, match="zero"), ag.trace.memory():
        _ = 1 / 0
    gc.collect()
    assert not tracemalloc.is_tracing()
