"""Defects of Gorgonia that are known, each of which must not come back.

`WHERE` names the tests of each; those that belong to no single op stand here.
"""

from __future__ import annotations

import ast
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import actorgraph as ag
from tests._each import each

WHERE = {
    "logsumexp sums after the logarithm": "ops/test_reductions.py::"
    "test_logsumexp_of_two_zeros_is_the_logarithm_of_two",
    "the symbolic gradient of log2": "ops/test_elementwise_kinks.py::"
    "test_log2_has_the_gradient_of_log2",
    "the symbolic gradient of the inverse square root": "ops/test_elementwise_kinks.py::"
    "test_inverse_square_root_has_the_gradient_of_the_inverse_square_root",
    "the symbolic gradient of outer": "ops/test_linalg.py::"
    "test_the_gradient_of_outer_does_not_swap_its_operands",
    "average pools divide by the width of the input": "ops/test_pooling.py::"
    "test_average_of_ones_is_one_for_every_kernel",
    "gradients of average pools divide by it, too": "ops/test_pooling.py::"
    "test_gradient_of_an_average_pool_is_one_over_the_kernels_area",
    "padding of max pools starts in the south east": "ops/test_pooling.py::"
    "test_explicit_padding_of_a_max_pool_starts_north_and_west",
    "the gradient of dropout divides by p": "ops/test_random.py::"
    "test_gradient_of_dropout_is_the_mask_over_what_is_kept",
    "group norm of long groups": "ops/test_normalisation.py::"
    "test_group_norm_of_long_groups_is_right",
    "sparsemax along other axes than the last": "ops/test_neural.py::"
    "test_sparsemax_is_the_projection_on_the_simplex_along_any_axis",
    "the gradient of the mean of ctc is not scaled": "ops/test_ctc.py::"
    "test_loss_and_gradient_through_log_softmax_equal_those_of_pytorch",
    "the gradient of ctc is right through a log-softmax only": "ops/test_ctc.py::"
    "test_gradient_is_the_true_one_without_a_log_softmax",
    "the guard of binary cross entropy is none": "ops/test_losses_options.py::"
    "test_binary_cross_entropy_is_finite_at_zero_and_one",
    "adamw never changes the weights": "solvers/test_adamw.py::"
    "test_known_defect_gorgonia_adamw_never_changes_the_weights",
    "momentum takes penalties of the velocity": "solvers/test_sgd.py::"
    "test_known_defect_gorgonia_momentum_takes_penalties_of_the_velocity",
    "norm takes no absolute values": "ops/test_reductions.py::test_norm_takes_absolute_values",
    "uniform glorot of float32 is normal": "nn/test_init.py::"
    "test_known_defect_gorgonia_glorot_uniform_of_float32_is_normal",
    "he differs from its documentation": "nn/test_init.py::"
    "test_known_defect_gorgonia_he_is_not_what_its_documentation_says",
    "constants merge by their texts": "test_hash_consing.py::"
    "test_constants_differ_by_dtype_and_bits",
    "softmax and log-softmax merge": "ops/test_losses.py::"
    "test_softmax_and_log_softmax_of_one_node_never_merge",
    "dropouts merge": "ops/test_random.py::test_settings_of_dropout_are_part_of_a_nodes_identity",
    "norms of other eps merge": "ops/test_normalisation.py::"
    "test_settings_of_norms_are_part_of_a_nodes_identity",
    "batch norms of other momentum merge": "test_known_defects.py::"
    "test_known_defect_batch_norms_of_other_momentum_merge",
    "im2col of other dilations merge": "ops/test_convolution.py::"
    "test_settings_of_windows_are_part_of_a_nodes_identity",
    "ctc of other reductions merge": "ops/test_ctc.py::"
    "test_settings_of_ctc_are_part_of_a_nodes_identity",
    "sparsemax of other axes merge": "ops/test_neural.py::"
    "test_sparsemax_of_different_axes_are_different_nodes",
    "yolo heads merge": "ops/test_neural.py::test_settings_of_yolo_are_part_of_a_nodes_identity",
    "slices 256 apart merge": "ops/test_indexing.py::test_equal_index_expressions_are_one_node",
    "attributes are left out of hashes": "test_hash_consing.py::"
    "test_nodes_that_differ_in_any_single_attribute_never_merge",
    "common subexpressions are found by a hash alone": "test_known_defects.py::"
    "test_known_defect_nodes_of_equal_hashes_merge",
    "equality of nodes forgets the inputs": "test_known_defects.py::"
    "test_known_defect_equality_of_nodes_trusts_a_hash_and_forgets_the_inputs",
    "registers are overwritten": "test_known_defects.py::"
    "test_known_defect_registers_overwrite_intermediates_that_a_user_still_reads",
    "gradients accumulate": "test_known_defects.py::"
    "test_known_defect_gradients_accumulate_from_run_to_run",
    "the gradient of concatenate slices axis 0": "ops/test_rearranging.py::"
    "test_known_defect_gorgonia_concat_gradient_slices_axis_0_whatever_the_axis",
    "the gradient of reshape overwrites": "ops/test_rearranging.py::"
    "test_known_defect_gorgonia_reshape_gradient_overwrites_instead_of_adding",
    "maximum and minimum share a mask": "ops/test_elementwise_kinks.py::"
    "test_maximum_and_minimum_choose_by_their_own_masks",
    "variables without names merge": "test_graph.py::"
    "test_unnamed_inputs_do_not_exist_so_that_they_cannot_merge",
    "unification ignores rank": "test_types.py::"
    "test_unification_compares_rank_and_dims_and_not_the_dtype_alone",
}
MACHINES = [ag.LispMachine, ag.TapeMachine, ag.ActorMachine]
every_machine = pytest.mark.parametrize("machine_type", MACHINES)


@cache
def functions_of(path):
    tree = ast.parse((Path(__file__).parent / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@each("test", WHERE.values())
def test_every_known_defect_has_its_test(test):
    path, name = test.split("::")
    assert name in functions_of(path)


@every_machine
def test_known_defect_registers_overwrite_intermediates_that_a_user_still_reads(machine_type):
    """x -> a -> b -> c, all of them outputs; a later run must not change an earlier result"""
    x = ag.Graph().input("x", shape=(8,), dtype="float64")
    a = ag.ops.exp(x)
    b = -a
    c = b * 2.0
    value = np.linspace(0, 1, 8)
    with machine_type([a, b, c]) as machine:
        first = machine.run_sync({"x": value})
        machine.run_sync({"x": value + 1})
    np.testing.assert_array_equal(first[a].value, np.exp(value))
    np.testing.assert_array_equal(first[b].value, -np.exp(value))
    np.testing.assert_array_equal(first[c].value, -np.exp(value) * 2)


@every_machine
def test_known_defect_gradients_accumulate_from_run_to_run(machine_type):
    w = ag.Graph().parameter("w", np.array([1.0, 2.0]))
    loss = (w * w).sum()
    with machine_type(loss) as machine:
        grads = [machine.run_sync(backward=True)[w].grad for _ in range(3)]
    for grad in grads:
        np.testing.assert_array_equal(grad, [2.0, 4.0])


def test_known_defect_equality_of_nodes_trusts_a_hash_and_forgets_the_inputs():
    g = ag.Graph()
    nodes = [g.input(f"x{i}", shape=(), dtype="float64") for i in range(300)]
    sums = [one + other for one, other in pairwise(nodes)]
    assert len({node.id for node in sums}) == len(sums)
    assert sums[0] is nodes[0] + nodes[1]


def test_known_defect_nodes_of_equal_hashes_merge():
    """In Python -1 and -2 have one hash."""
    assert hash(-1) == hash(-2)
    x = ag.Graph().input("x", (4,), "float64")
    nodes = [ag.ops.roll(x, -1), ag.ops.roll(x, -2), x[-1:], x[-2:]]
    assert len(set(nodes)) == 4
    value = np.arange(4.0)
    for exact in (True, False):
        with ag.ActorMachine(nodes, wrt=[], exact=exact) as machine:
            run = machine.run_sync({"x": value})
        for node, want in zip(
            nodes, [np.roll(value, -1), np.roll(value, -2), [3.0], [2.0, 3.0]], strict=True
        ):
            np.testing.assert_array_equal(run[node].value, want)


def test_known_defect_batch_norms_of_other_momentum_merge():
    """Its hash keeps one decimal of the momentum: 0.12 and 0.1 were one."""
    g = ag.Graph()
    x = g.input("x", (8, 2), "float64")
    means = [g.buffer(f"mean{i}", np.zeros(2)) for i in range(2)]
    variances = [g.buffer(f"variance{i}", np.ones(2)) for i in range(2)]
    outputs = [
        ag.ops.running_batch_norm(
            x, np.ones(2), np.zeros(2), mean, variance, training=True, momentum=momentum
        )
        for mean, variance, momentum in zip(means, variances, (0.1, 0.12), strict=True)
    ]
    value = np.random.default_rng(0).normal(3.0, 1.0, (8, 2))
    with ag.TapeMachine(outputs, wrt=[]) as machine:
        machine.run_sync({"x": value})
    for mean, momentum in zip(means, (0.1, 0.12), strict=True):
        np.testing.assert_allclose(mean.value, momentum * value.mean(0), rtol=1e-12)
