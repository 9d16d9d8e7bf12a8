"""Large sums of cotangents: terms are added as they come, and bits stay those of one sequence."""

import tracemalloc

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.cuts import fewest, one_per_node
from actorgraph.lower.joint import Mode, join
from actorgraph.lower.regions import accumulating, connect
from actorgraph.machines.claim import claim_of
from actorgraph.testing._examples import results
from tests._each import each

WIDTH, TERMS = 128, 12


def recurrent(width=WIDTH, terms=TERMS, weight=np.transpose):
    """x -> tanh(x @ weight(w)) -> tanh(. @ weight(w)) -> ...: a term of w's gradient each."""
    g = ag.Graph()
    x = g.input("x", (4, width), "float64")
    w = g.parameter("w", np.random.default_rng(3).normal(size=(width, width)) / width**0.5)
    shown, y = weight(w), x
    for _ in range(terms):
        y = np.tanh(y @ shown)
    return g, (y * y).sum()


def tasks_of(loss, cut=one_per_node):
    joint = join([loss], list(loss.graph.parameters), Mode("backward", (loss,)))
    computed = [node for node in joint.derivatives.values() if not node.is_leaf]
    return connect(cut(joint, {}), {node: place for place, node in enumerate(computed)})


def sums_of(specs):
    return [spec for spec in specs if spec.direction == "sum"]


def feeds(width=WIDTH, seed=0):
    return {"x": np.random.default_rng(seed).normal(size=(4, width))}


@pytest.mark.parametrize("weight", [np.transpose, np.positive], ids=["transposed", "as it is"])
def test_each_partial_sum_is_a_task_and_the_last_addition_stays_with_what_follows(weight):
    sums = sums_of(tasks_of(recurrent(weight=weight)[1]))
    assert [len(spec.steps) for spec in sums] == [1] * (TERMS - 2)


@pytest.mark.parametrize("sizes", [{"terms": 2}, {"width": 8}], ids=["two terms", "small terms"])
def test_a_short_sum_and_one_of_small_terms_are_one_task(sizes):
    assert not sums_of(tasks_of(recurrent(**sizes)[1]))


def test_what_a_region_adds_of_its_own_stays_in_one_task():
    assert not sums_of(tasks_of(recurrent()[1], cut=fewest))


def test_the_first_partial_sum_is_a_new_array_and_later_ones_write_over_it():
    specs = tasks_of(recurrent()[1])
    _, *later = [spec.steps[0].id for spec in sums_of(specs)]
    assert accumulating(specs) == set(later)


def test_a_partial_sum_of_terms_whose_layout_only_the_run_knows_is_a_new_array():
    g = ag.Graph()
    x, w = g.input("x", (WIDTH, WIDTH), "float64"), g.parameter("w", np.ones((WIDTH, WIDTH)))
    specs = tasks_of(sum(x * np.tanh(w * float(i)) for i in range(2, 8)).sum())
    assert len(sums_of(specs)) == 4
    assert not accumulating(specs)


@each("fuse", ["none", "auto", "all"])
@each("workers", [1, 3])
@each("weight", [np.transpose, np.positive])
def test_runs_that_overlap_have_the_bits_of_the_sequential_machine(fuse, workers, weight):
    g, loss = recurrent(weight=weight)
    nodes, seeds = [loss, *g.parameters], range(6)
    with ag.LispMachine([loss]) as lisp:
        wanted = [results(lisp.run_sync(feeds(seed=s), backward=True), nodes) for s in seeds]
    with ag.ActorMachine([loss], fuse=fuse, workers=workers, seed=1) as machine:
        for _ in range(2):
            runs = [machine.start(feeds(seed=s), backward=True) for s in seeds]
            assert [results(run.result(), nodes) for run in runs] == wanted


def test_a_run_that_fails_among_the_terms_leaves_later_runs_their_bits():
    g, loss = recurrent()
    nodes = [loss, *g.parameters]
    wrong = {"x": np.full((4, WIDTH), np.inf)}
    with (
        ag.LispMachine([loss]) as lisp,
        ag.ActorMachine([loss], fuse="none", workers=2) as machine,
        np.errstate(invalid="raise"),
    ):
        wanted = results(lisp.run_sync(feeds(), backward=True), nodes)
        for _ in range(3):
            with pytest.raises(ag.NodeError, match="invalid value"):
                machine.run_sync(wrong, backward=True)
            assert results(machine.run_sync(feeds(), backward=True), nodes) == wanted


def test_the_gradient_of_a_weight_that_is_used_transposed_lies_as_the_weight_does():
    g = ag.Graph()
    x, w = g.input("x", ("n", 4), "float64"), g.parameter("w", np.ones((3, 4)))
    fed = np.random.default_rng(0).normal(size=(5, 4))
    for machine in (ag.LispMachine, ag.TapeMachine):
        with machine([(x @ w.transpose()).sum()]) as made:
            grad = made.run_sync({"x": fed}, backward=True)[w].grad
        assert grad.base is None
        assert grad.flags.c_contiguous
        np.testing.assert_allclose(grad, np.ones((3, 5)) @ fed)


def peak_of(machine, fed):
    """Return the most bytes that a warm run needs more than there are before it."""
    tracemalloc.start()
    try:
        for _ in range(3):
            machine.run_sync(fed, backward=True)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        machine.run_sync(fed, backward=True)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_one_actor_a_node_never_holds_more_than_three_arrays_of_a_gradient():
    """The sum so far, the next term and, at the end, the result."""
    g, loss = recurrent()
    [w] = g.parameters
    with ag.ActorMachine([loss], fuse="none", workers=1) as machine:
        assert peak_of(machine, feeds()) < 3.6 * w.value.nbytes


def test_gradients_that_end_cotangents_come_before_what_makes_more():
    """The gradient of a bias ends the cotangent of its layer, which else would live on."""
    g, layers = ag.Graph(), 12
    y = g.input("x", (WIDTH, WIDTH), "float64")
    for i in range(layers):
        w, b = g.parameter(f"w{i}", np.eye(WIDTH)), g.parameter(f"b{i}", np.zeros(WIDTH))
        y = np.tanh(y @ w + b)
    with ag.ActorMachine([y.sum()], fuse="none", workers=1) as machine:
        peak = peak_of(machine, {"x": np.ones((WIDTH, WIDTH))})
    assert peak < (layers + 4) * w.value.nbytes


def test_a_claim_counts_a_sum_that_is_written_over_once():
    g, loss = recurrent()
    [w] = g.parameters
    with ag.ActorMachine([loss], fuse="none", workers=2) as machine:
        machine.run_sync(feeds(), backward=True)
        [plan] = machine._plans.values()
        claim = claim_of(plan, plan.latest, regular=True)
    assert claim.kept < (TERMS + 5) * w.value.nbytes
