"""What the plan of buffers says of a program is what its steps need."""

import numpy as np

import actorgraph as ag
from actorgraph.memory.buffers import bulky, is_fresh, peak_bytes, regular, writable


def test_the_peak_is_what_lives_at_once_to_the_byte():
    """Both operands of the sum live at its step, and the square no longer at that of the root.

    x ── exp ──┐
    └─── neg ──┴── add ── square ── sqrt
    """
    x = ag.Graph().input("x", (4,), "float64")
    e, n = np.exp(x), -x
    total = e + n
    square = ag.ops.square(total)
    steps = [e, n, total, square, np.sqrt(square)]
    one = 4 * 8
    assert peak_bytes(steps, [steps[-1]], {}) == 3 * one
    assert peak_bytes(steps, [e, steps[-1]], {}) == 3 * one
    assert peak_bytes(steps, steps, {}) == 5 * one
    assert peak_bytes(steps, [steps[-1]], {}, without={n.id}) == 2 * one
    assert peak_bytes(steps, [steps[-1]], {}, early={steps[-1].id: 0}) == 4 * one


def test_memory_that_a_view_shows_lives_as_long_as_the_view():
    x = ag.Graph().input("x", (4, 4), "float64")
    e = np.exp(x)
    turned = e.T
    n = -x
    assert peak_bytes([e, turned, n, turned + n], [], {}) == 3 * 16 * 8
    assert peak_bytes([e, turned, n, -n], [], {}) == 2 * 16 * 8


def test_a_step_is_in_c_order_where_all_of_its_operands_are():
    g, table = ag.Graph(), np.arange(12.0).reshape(3, 4)
    x = g.input("x", (3, 4), "float64")
    y = g.input("y", (4, 3), "float64").T
    ordered, turned = x + table, x + np.ascontiguousarray(table.T).T
    steps = [ordered, turned, np.exp(ordered), np.exp(turned), y, -y]
    assert regular(steps) == {ordered.id, steps[2].id}


def test_a_step_writes_into_a_buffer_where_nobody_sees_it_after_the_turn():
    """A result that is computed from a step does not show it, but a view of it does."""
    x = ag.Graph().input("x", (4, 4), "float64")
    e, n = np.exp(x), -x
    product, view = e @ n, n[1:]
    steps = [e, n, product, np.sqrt(product), view]
    assert writable(steps, [], regular(steps)) == {one.id for one in steps[:4]}
    assert writable(steps, steps[3:], regular(steps)) == {e.id, product.id}


def test_a_result_is_fresh_but_for_views_and_scalars():
    x = ag.Graph().input("x", (4, 4), "float64")
    assert [is_fresh(one) for one in (np.exp(x), x @ x, x.T, x.sum())] == [True, True, False, False]


def test_what_is_bulky_is_told_by_the_sizes_of_a_run():
    g = ag.Graph()
    rows, few = g.input("x", ("rows", 8), "float64"), g.input("y", (8,), "float64")
    steps = [np.exp(rows), -rows, np.exp(few)]
    for count in (256, 1000):
        assert bulky(steps, {"rows": count}) == {steps[0].id, steps[1].id}
    assert bulky(steps, {"rows": 255}) == set()
