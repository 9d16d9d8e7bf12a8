"""`machine.check()` tells before any run what can block; a run that can, does, and says so."""

import random

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.cuts import one_per_node
from actorgraph.lower.regions import connect
from actorgraph.machines.feeds import mode_of
from tests._each import each
from tests._soak import SOAK
from tests.machines._lanes import run_in_lanes

LETTERS = {"forward": "F", "backward": "B", "weights": "W"}
FUSE = ["none", "auto", "all"]


def fork():
    """a -> b, a -> c, and d of both."""
    x = ag.Graph().input("x", (2,), "float64")
    a = np.tanh(x).named("a")
    b, c = (a + 1.0).named("b"), (a - 1.0).named("c")
    return (b * c).named("d")


def in_turns(*names, runs=2):
    """All runs of the first task, then all of the second, ..."""
    return [(name, "F", run) for name in names for run in range(runs)]


@each("fuse", FUSE)
@each("backward", [False, True])
@each("capacity", [None, 1, {"a": 1}, {("a", "b"): 1, "x": 2}])
def test_capacities_alone_never_block(fuse, backward, capacity):
    loss = fork().sum()
    with ag.ActorMachine(loss, wrt=[loss.graph["x"]], fuse=fuse, capacity=capacity) as machine:
        assert machine.check(backward=backward).ok
        machine.run_sync({"x": np.ones(2)}, backward=backward)
        report = machine.check(backward=backward)
    assert report.ok
    assert not report.blocked
    assert all(edge.suffices == 1 for edge in report.edges if "residual" not in edge.name)


def test_a_machine_that_trains_is_checked_forward_and_backward_unless_told_otherwise():
    loss = fork().sum().named("loss")
    x, which = loss.graph["x"], loss.argmax().named("which")
    auto = ag.ActorMachine(loss, wrt=[x])
    cut = "cut one_per_node (by cost at the first run): cannot block"
    assert str(auto.check(backward=False)) == f"forward, 5 tasks, {cut}"
    trains = ag.ActorMachine(loss, wrt=[x], fuse="none")
    assert str(trains.check()) == "forward and backward, 7 tasks, cut one_per_node: cannot block"
    assert trains.check(backward=True) == trains.check()
    assert str(trains.check(backward=False)) == "forward, 5 tasks, cut one_per_node: cannot block"
    for outputs, wrt in [(loss, []), (fork(), None), ([which, loss], [x])]:
        assert ag.ActorMachine(outputs, wrt=wrt).check().title.startswith("forward, ")
    loss = (loss.graph.parameter("w", 1.0) * 2.0).named("product")
    assert (
        ag.ActorMachine(loss).check().title.startswith("forward and backward, ")
    )  # all parameters


def test_lanes_may_name_backward_tasks_of_a_machine_that_trains():
    loss = fork().sum().named("loss")
    machine = ag.ActorMachine(loss, wrt=[loss.graph["x"]], fuse="none")
    assert machine.check([[("a", "F", 0), ("a", "B", 0)]]).ok
    report = machine.check([[("a", "B", 0), ("a", "F", 0)]])
    assert not report.ok
    assert report.blocked[0].startswith("lane 0 is at 'a (backward)' of run 0, which waits for")


def test_a_blocked_cycle_is_named_with_capacities_that_suffice():
    machine = ag.ActorMachine(fork(), fuse="none", capacity=1)
    report = machine.check([in_turns("b", "c")])
    assert not report.ok
    assert report.blocked == (
        "lane 0 is at 'b' of run 1, which waits for a message in a -> b",
        "'a' is at run 1, which waits for room in a -> c (capacity 1)",
    )
    enough = {edge.name: edge.suffices for edge in report.edges}
    assert enough == {"a -> b": 1, "a -> c": 2, "b -> d": 2, "c -> d": 1}
    assert "raise the capacity of a -> c from 1 to 2" in str(report)
    better = {("a", "c"): 2, ("b", "d"): 2, ("a", "b"): 1, ("c", "d"): 1}
    assert ag.ActorMachine(fork(), fuse="none", capacity=better).check([in_turns("b", "c")]).ok


def test_orders_that_no_capacity_saves_are_told_apart():
    machine = ag.ActorMachine(fork(), fuse="none")
    report = machine.check([[("d", "F", 0), ("a", "F", 0)]])
    assert not report.ok
    assert all(edge.suffices is None for edge in report.edges)
    assert "the lanes need another order" in str(report)
    # Messages come in the order of the runs, so nobody can take the second first.
    report = machine.check([[("b", "F", 1), ("b", "F", 0)], [("a", "F", 0), ("a", "F", 1)]])
    assert "its turn in a -> b, where run 0 is first" in str(report)


def test_credits_and_runs_in_flight_block_too():
    turns = [in_turns("a", "d", runs=3)]
    assert ag.ActorMachine(fork(), fuse="none").check(turns).ok
    report = ag.ActorMachine(fork(), fuse="none", max_in_flight=2).check(turns)
    assert "a credit of runs in flight (of 2)" in str(report)
    given = {(("a", "F"), ("d", "F")): 2}
    report = ag.ActorMachine(fork(), fuse="none").check(turns, credits=given)
    assert not report.ok
    assert report.credits == {(("a", "F"), ("d", "F")): 3}
    assert "a credit of 'a' ahead of 'd' (of 2)" in str(report)


@each(
    "lanes, match",
    [
        ([[("z", "F", 0)]], "no task computes forward of 'z' in this mode"),
        ([[("a", "B", 0)]], "no task computes backward of 'a' in this mode"),
        ([[("a", "X", 0)]], "a task is .node or name, 'F', 'B' or 'W'., got"),
        (3, "expected a list of lists, one for each worker, as lanes, got 3"),
        ([3], "a lane is a list of .node or name, kind, run., got 3"),
        ([["a"]], "a lane lists .node or name, kind, run., got 'a'"),
        ([[("a", "F", -1)]], "runs in lanes count from 0"),
        ([[("a", "F", 0)], [("a", "F", 1)]], "'a' stands in lane 0 and in lane 1"),
        ([[("a", "F", 0), ("a", "F", 0)]], "twice; a task fires once for a run"),
    ],
)
def test_lanes_that_make_no_sense_are_refused(lanes, match):
    with pytest.raises(ag.GraphError, match=match):
        ag.ActorMachine(fork(), fuse="none").check(lanes)


def test_credits_that_are_no_dict_are_refused():
    with pytest.raises(ag.GraphError, match="credits are a dict .*, got .'a', 'd'."):
        ag.ActorMachine(fork(), fuse="none").check(credits=("a", "d"))


@each(
    "capacity, error, match",
    [
        ({"z": 1}, ag.GraphError, "'z', which is no node of the graph"),
        (
            {("a", "d"): 1},
            ag.GraphError,
            "'a' -> 'd', which is no edge of the graph; 'a' goes to 'b'",
        ),
        ({("a", "b", "c"): 1}, ag.GraphError, "an edge is .producer, consumer., got"),
        ({("a", "b"): 0}, ValueError, "the capacity of 'a' -> 'b' must be an int of at least 1"),
        ({"a": True}, ValueError, "the capacity of edges out of 'a' must be an int of at least 1"),
    ],
)
def test_capacities_of_edges_that_do_not_exist_are_refused(capacity, error, match):
    with pytest.raises(error, match=match):
        ag.ActorMachine(fork(), capacity=capacity)


def test_capacities_are_those_of_the_edges_in_both_directions():
    d = fork()
    nodes = {name: d.graph[name] for name in "abcd"}
    capacity = {(nodes["a"], "b"): 2, "a": 3, ("c", nodes["d"]): 1}
    with ag.ActorMachine(d.sum(), fuse="none", capacity=capacity, statistics=True) as machine:
        for _ in range(3):
            machine.run_sync({"x": np.ones(2)}, backward={machine.graph.roots[0]: 1.0})
        found = {(c.name, c.direction): c.capacity for c in machine.channels()}
        report = machine.check(backward=True)
    assert found["a -> b", "forward"] == 2
    assert found["a -> c", "forward"] == 3
    assert found["c -> d", "forward"] == 1
    assert found["b -> d", "forward"] == 8
    told = {edge.name: edge.capacity for edge in report.edges}
    assert told["a -> b"] == 2
    assert told["a -> c"] == 3
    assert told["c -> d"] == 1
    assert told["b -> d"] == 8


def test_what_has_no_channel_is_said_in_the_report():
    d = fork()
    machine = ag.ActorMachine(d, fuse="all", capacity={("a", "b"): 1, "x": 1})
    notes = machine.check().notes
    assert len(notes) == 2
    assert notes[0].startswith("a -> b: no channel, since both ends run in one task")
    assert notes[1].startswith("x -> all: no channel")
    assert "a -> b: no channel" in str(machine.check())


def test_the_report_tells_measured_peaks():
    with ag.ActorMachine(fork(), fuse="none", statistics=True) as machine:
        machine.run_sync({"x": np.ones(2)})
        assert {edge.peak_depth for edge in machine.check().edges} == {1}
        assert all(c.longest_wait_s <= c.waited_s for c in machine.channels())


# -- check and run agree ----------------------------------------------------------------------


def drawn(rng):
    """Return a machine over a random graph, its mode and the keys of its tasks by number."""
    x = ag.Graph().input("x", (), "float64")
    nodes = [x]
    for i in range(rng.randint(2, 6)):
        a, b = rng.choice(nodes[-3:]), rng.choice(nodes)
        nodes.append((np.tanh(a * (i + 1.0)) if i % 3 == 0 else a + b * (i + 1.0)).named(f"n{i}"))
    backward = rng.random() < 0.4
    edges = [
        (part, node) for node in x.graph.nodes for part in node.inputs if part.op.name == "add"
    ]
    capacity = rng.choice(
        [None, 1, 1, 2, {edge: rng.randint(1, 2) for edge in edges}, {nodes[1]: 1, nodes[-2]: 2}]
    )
    machine = ag.ActorMachine(
        nodes[-1], wrt=[x], fuse="none", capacity=capacity, statistics=True,
        workers=rng.randint(1, 3), max_in_flight=rng.randint(1, 4),
    )  # fmt: skip
    plan = machine._known(mode_of(machine.graph, machine.outputs, backward, None)[0])
    specs = connect(one_per_node(plan.compiled.joint, {}), plan.compiled.result_of)
    keys = [
        (plan.compiled.joint.source(s.region.nodes[0]).name, LETTERS[s.direction]) for s in specs
    ]
    return machine, backward, keys


def drawn_lane(rng, tasks, runs):
    """Return an order of tasks: runs merged, most often so that each task sees them in turn."""
    orders = {run: list(tasks) for run in range(runs)}
    if rng.random() < 0.15:
        for order in orders.values():
            rng.shuffle(order)
    fired = dict.fromkeys(tasks, 0)
    lane = []
    careful = rng.random() < 0.95
    eager = rng.random()
    while any(orders.values()):
        ready = [run for run, order in orders.items() if order]
        fitting = [run for run in ready if fired[orders[run][0]] == run] if careful else ready
        run = (fitting or ready)[0 if rng.random() < eager else -1]
        task = orders[run].pop(0)
        fired[task] += 1
        lane.append((task, run))
    return lane


def agree(seed):
    """Return whether the case of this seed blocks, once the check and the run have agreed."""
    rng = random.Random(seed)
    machine, backward, keys = drawn(rng)
    with machine:
        runs = rng.randint(1, 5)
        numbers = list(range(len(keys)))
        lanes = [[] for _ in range(rng.randint(1, 3))]
        for number in numbers:
            if rng.random() < 0.8:
                rng.choice(lanes).append(number)
        lanes = [drawn_lane(rng, lane, runs) for lane in lanes if lane]
        if not lanes:
            lanes = [[(0, run) for run in range(runs)]]
        limits = {}
        for _ in range(rng.choice([0, 0, 1, 2])):
            first, second = sorted(rng.choices(numbers, k=2))
            if first != second:
                limits[first, second] = rng.randint(1, 2)
        report = machine.check(
            [[(*keys[task], run) for task, run in lane] for lane in lanes],
            credits={(keys[a], keys[b]): limit for (a, b), limit in limits.items()},
            backward=backward,
        )
        ended = run_in_lanes(machine, lanes, limits, runs, {"x": 0.5}, backward=backward)
        assert ended == report.ok, f"seed {seed}: {report}"
    return not report.ok


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_check_and_the_run_agree_on_random_graphs_capacities_orders_and_credits():
    count = 1000 if SOAK else 100
    blocked = sum(agree(seed) for seed in range(count))
    assert blocked >= count // 5
    assert count - blocked >= count // 5
