"""Gradients that are stopped, hooked, or not there."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.autodiff import tangents
from actorgraph.errors import GraphTypeError, ShapeError
from tests._evaluate import evaluate
from tests.autodiff._checks import X, every_machine, op_names, same_bits

# -- symbolic zeros ---------------------------------------------------------------------------


def test_no_zeros_are_built_for_inputs_without_a_gradient(g, x):
    index = g.input("index", (2,), "int64")
    unused = g.input("unused", (1000, 1000), "float64")
    mask = x > 0.0
    y = (ag.ops.where(mask, x * x, unused.sum() * 0.0 + x)[index]).sum()
    before = len(g)
    ag.gradients(y, [x])
    added = g.nodes[before:]
    assert all(node.type.row.dims != (1000, 1000) for node in added)
    assert all(node.dtype.kind != "b" for node in added)


def test_the_zero_of_an_independent_wrt_is_one_broadcast_scalar(g, x):
    other = g.input("other", (1000, 1000), "float64")
    (zero,) = ag.gradients(x.sum(), [other])
    assert zero.op.name == "broadcast_to"
    assert zero.inputs[0].shape == ()


def test_stopped_branches_get_no_nodes(g, x):
    y = (ag.stop_gradient(ag.ops.exp(x)) * x).sum()
    before = len(g)
    ag.gradients(y, [x])
    assert "exp" not in op_names(g.nodes[before:])
    assert not any(name.startswith("zeros") for name in op_names(g.nodes[before:]))


# -- stop_gradient ----------------------------------------------------------------------------


def test_stop_gradient_keeps_the_value_and_stops_both_directions(g, x):
    y = ag.stop_gradient(x * x) * x
    (dx,) = ag.gradients(y.sum(), [x])
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})
    value, got, pushed = evaluate([y, dx, tangent], {x: X})
    assert np.array_equal(value, X**3)
    assert np.array_equal(got, X * X)
    assert np.array_equal(pushed, X * X)


def test_stop_gradient_of_everything_gives_zeros(x):
    (dx,) = ag.gradients(ag.stop_gradient(x).sum(), [x])
    assert np.array_equal(evaluate(dx, {x: X})[0], [0, 0, 0])


def test_stop_gradient_wants_a_node():
    with pytest.raises(GraphTypeError, match="stop_gradient needs at least one node"):
        ag.stop_gradient(X)


# -- hook_gradient ----------------------------------------------------------------------------


def clip(ct):
    return ag.ops.clip(ct, -1.0, 1.0)


@every_machine
def test_a_hook_clips_the_gradient_where_it_flows(x, machine, settings):
    y = (ag.ops.exp(ag.hook_gradient(x, clip)) + 3.0 * x).sum()
    wanted = np.minimum(np.exp(X), 1) + 3
    (dx,) = ag.gradients(y, [x])
    assert np.array_equal(evaluate(dx, {x: X})[0], wanted)
    with machine([y], wrt=[x], **settings) as running:
        same_bits(running.run_sync({"x": X}, backward=True)[x].grad, wanted)


def test_a_hook_may_look_and_leave_the_gradient_as_it_is(x):
    seen = []
    (dx,) = ag.gradients((ag.hook_gradient(x, seen.append) * 2.0).sum(), [x])
    assert len(seen) == 1
    assert seen[0].type == x.type
    assert np.array_equal(evaluate(dx, {x: X})[0], [2, 2, 2])


def test_a_hook_sees_arrays_through_an_opaque_function(x):
    seen = []

    def look(ct):
        seen.append(ct.copy())
        return ct

    y = (ag.hook_gradient(x, ag.ops.opaque(look)) * 2.0).sum()
    with ag.TapeMachine([y], wrt=[x]) as machine:
        run = machine.run_sync({"x": X}, backward=True)
    assert np.array_equal(run[x].grad, [2, 2, 2])
    assert [value.tolist() for value in seen] == [[2, 2, 2]]


@every_machine
def test_a_hook_may_use_further_nodes(g, x, machine, settings):
    scale = g.input("scale", (), "float64")
    y = (ag.hook_gradient(x, lambda ct, s: ct * s, scale) * x).sum()
    with machine([y], wrt=[x, scale], **settings) as running:
        run = running.run_sync({"x": X, "scale": 10.0}, backward=True)
    assert np.array_equal(run[x].grad, 11 * X)
    assert np.array_equal(run[scale].grad, 0)


def test_a_hook_replaces_the_gradient_for_second_derivatives_too(x):
    y = (ag.hook_gradient(x, lambda ct: ct * ct) * x * x).sum()  # its own part of dy/dx: x^4
    (dx,) = ag.gradients(y, [x])
    (second,) = ag.gradients(dx.sum(), [x])
    got, again = evaluate([dx, second], {x: X})
    assert np.allclose(got, X**4 + 2 * X**2, rtol=1e-14)
    # dx = x^4 + 2 h(x) x: the second cotangent of h(x), which is 2 x, is squared in turn.
    assert np.allclose(again, 4 * X**3 + 2 * X + 4 * X**2, rtol=1e-14)


def test_forward_mode_passes_through_a_hook(g, x):
    y = ag.ops.exp(ag.hook_gradient(x, clip))
    (tangent,) = tangents(y, {x: g.constant(np.ones(3))})
    assert np.array_equal(evaluate(tangent, {x: X})[0], np.exp(X))


def test_a_hook_that_returns_no_node_or_another_shape_is_refused(x):
    with pytest.raises(GraphTypeError, match=r"the hook .* of <x.*returned 3\.0; return a node"):
        ag.gradients(ag.hook_gradient(x, lambda ct: 3.0).sum(), [x])
    with pytest.raises(ShapeError, match=r"hooked gradient of <x.*has shape \(\)"):
        ag.gradients(ag.hook_gradient(x, lambda ct: ct.sum()).sum(), [x])
