"""Gradients of microbatches are added up in order, in arrays that nobody else needs."""

from __future__ import annotations

import numpy as np

import actorgraph as ag
from actorgraph.pipeline.lanes import Sum
from tests._each import each

ROWS, WIDTH = 64, 128  # large enough for tasks to be given arrays


def drawn(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape, "float32") / 8


def layers():
    g = ag.Graph()
    h = g.input("x", ("batch", WIDTH))
    weights = []
    for number in range(4):
        weights += [
            g.parameter(f"W{number}", drawn(WIDTH, WIDTH)),
            g.parameter(f"b{number}", drawn(WIDTH)),
        ]
        h = np.tanh(h @ weights[-2] + weights[-1])
    return ag.ops.square(h).sum(), weights


@each("schedule", ["1f1b", "zb-h1", "gpipe"])
@each("stages", [1, 2])
def test_a_sum_has_the_bits_of_its_terms_added_in_order(schedule, stages):
    loss, weights = layers()
    x, size = drawn(ROWS, WIDTH), ROWS // 4
    with ag.LispMachine([loss]) as one:
        parts = [one.run_sync({"x": x[i : i + size]}, backward=True) for i in range(0, ROWS, size)]
    with ag.pipeline.Pipeline(loss, stages=stages, schedule=schedule, microbatches=4) as pipeline:
        for _ in range(2):
            run = pipeline.run_sync({"x": x})
            for weight in weights:
                wanted = parts[0][weight].grad
                for part in parts[1:]:
                    wanted = wanted + part[weight].grad
                np.testing.assert_array_equal(run[weight].grad, wanted)


def test_a_gradient_that_another_is_computed_from_is_added_up_by_itself():
    g = ag.Graph()
    x, weight = g.input("x", ("batch", WIDTH)), g.parameter("W", drawn(WIDTH, WIDTH))
    doubled = weight * 2
    loss = ag.ops.square(np.tanh(x @ doubled)).sum()
    with ag.pipeline.Pipeline(loss, [weight, doubled], stages=1, microbatches=4) as pipeline:
        run = pipeline.run_sync({"x": drawn(ROWS, WIDTH)})
    np.testing.assert_array_equal(run[weight].grad, 2 * run[doubled].grad)


def test_results_of_earlier_runs_are_left_alone():
    loss, weights = layers()
    with ag.pipeline.Pipeline(loss, stages=2, microbatches=4) as pipeline:
        first = pipeline.run_sync({"x": drawn(ROWS, WIDTH)})
        kept = [first[weight].grad.copy() for weight in weights]
        pipeline.run_sync({"x": -2 * drawn(ROWS, WIDTH)})
    for weight, grad in zip(weights, kept, strict=True):
        np.testing.assert_array_equal(first[weight].grad, grad)


def test_terms_that_come_too_early_wait_for_those_before():
    found = Sum(True, np.add)
    for number in (0, 2):
        found.add(number, np.full(1, 10.0**number))
    assert found.total == 1
    found.add(1, np.full(1, 10.0))
    assert found.count == 3
    assert found.total == 111
