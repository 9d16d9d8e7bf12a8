"""The token game: what it says suffices does, and less in one place does not always."""

import random

import pytest

from actorgraph.errors import DeadlockError, GraphError
from actorgraph.graph import Graph
from actorgraph.lower.deadlock import Arc, Credit, check
from actorgraph.lower.regions import Port, Region, TaskSpec, check_order


def drawn(rng):
    """Return tasks, edges, lanes and credits: lanes keep the runs of each task in order."""
    count, runs = rng.randint(2, 7), rng.randint(1, 5)
    edges = [
        Arc(rng.randrange(target), target, rng.choice([1, 1, 2, None]), "-", rng.random() < 0.5)
        for target in range(1, count)
        for _ in range(rng.randint(1, 2))
    ]  # fmt: skip
    lanes = [[] for _ in range(rng.randint(1, 3))]
    for task in range(count):
        rng.choice(lanes).append(task)
    orders = []
    for tasks in lanes:
        order = [(task, run) for task in tasks for run in range(runs)]
        order.sort(key=lambda action: action[1] * rng.choice([0, 1, 1]) + action[0] / 100)
        orders.append(order)
    spender = rng.randrange(count - 1)
    credits_ = [Credit(spender, count - 1, rng.randint(1, 3), "ahead")][: rng.randint(0, 1)]
    return [str(task) for task in range(count)], edges, orders, credits_


def test_the_capacities_and_credits_that_are_said_to_suffice_do():
    blocked = 0
    for seed in range(600):
        tasks, edges, lanes, credits_ = drawn(random.Random(seed))
        verdict = check(tasks, edges, lanes, credits_)
        assert bool(verdict.blocked) is not verdict.ok
        if verdict.capacities is None:
            continue
        raised = [
            edge._replace(capacity=count)
            for edge, count in zip(edges, verdict.capacities, strict=True)
        ]
        given = [
            credit._replace(limit=count)
            for credit, count in zip(credits_, verdict.credits, strict=True)
        ]
        assert check(tasks, raised, lanes, given).ok, seed
        blocked += not verdict.ok
    assert blocked >= 40


def test_the_verdict_does_not_depend_on_the_order_in_which_lanes_are_served():
    for seed in range(200):
        tasks, edges, lanes, credits_ = drawn(random.Random(seed))
        first = check(tasks, edges, lanes, credits_)
        other = check(tasks, edges, lanes[::-1], credits_)
        assert (first.ok, first.capacities is None) == (other.ok, other.capacities is None)


def test_a_receiver_may_pick_its_run_where_an_edge_is_no_queue():
    lanes = [[(0, 0), (0, 1)], [(1, 1), (1, 0)]]
    edge = Arc(0, 1, 2, "stash", fifo=False)
    assert check("ab", [edge], lanes).ok
    assert not check("ab", [edge._replace(fifo=True)], lanes).ok
    assert check("ab", [edge._replace(capacity=1)], lanes).capacities == (2,)


def test_what_nobody_does_ends_the_chain():
    verdict = check("ab", [Arc(0, 1, None, "a -> b")], [[(0, 0)], [(1, 0), (1, 1)]])
    assert verdict.blocked == (
        "lane 1 is at 'b' of run 1, which waits for a message in a -> b; no lane lists 'a' for it",
    )
    assert verdict.capacities is None


def test_a_task_stands_in_one_lane():
    with pytest.raises(GraphError, match="task 'a' stands in lane 0 and in lane 1"):
        check("a", [], [[(0, 0)], [(0, 1)]])


def test_tasks_in_a_cycle_are_named():
    def joined(*edges):
        g = Graph()
        specs = [TaskSpec(i, Region(i, [g.input(name)]), "forward") for i, name in enumerate("abc")]
        for source, target in edges:
            entering = Port("value", (specs[source].region.nodes[0],), source)
            specs[target].ports = (*specs[target].ports, entering)
        return specs

    check_order(joined((0, 1), (1, 2), (0, 2)))
    check_order(joined((2, 1), (1, 0)))
    with pytest.raises(DeadlockError, match="wait for each other: 'b' waits for 'c' waits for 'b'"):
        check_order(joined((0, 1), (1, 2), (2, 1)))
