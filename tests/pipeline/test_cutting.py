"""Stages of a graph: as the user placed them, or balanced, then with the fewest bytes between."""

from itertools import combinations, pairwise

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import GraphError, ScheduleError
from actorgraph.pipeline.cutting import cut_by_cost, cut_by_placement, placed
from tests._each import each


def chain(length, **options):
    g = ag.Graph()
    node = g.input("x", shape=(2,))
    nodes = [node := ag.ops.tanh(node) for _ in range(length)]
    return g, nodes


def names(stages):
    return [[node.name for node in stage] for stage in stages]


# -- placed by the user -----------------------------------------------------------------------


def test_nodes_built_inside_a_stage_are_placed_there():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    assert not placed(g.nodes)
    with g.stage(0):
        h = ag.ops.tanh(x).named("h")
    with g.stage(1):
        y = ag.ops.exp(h).named("y")
        with g.stage(2):
            z = (y * h).named("z")
    assert placed(g.nodes)
    assert names(cut_by_placement(g.nodes)) == [["h"], ["y"], ["z"]]
    assert z.graph.stages[z.id] == 2


def test_a_node_without_a_place_is_where_its_latest_input_is():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    with g.stage(1):
        h = ag.ops.tanh(x).named("h")
    free = ag.ops.exp(x).named("free")
    joined = (h + free).named("joined")
    assert joined.id not in g.stages
    assert names(cut_by_placement(g.nodes)) == [["free"], ["h", "joined"]]


def test_a_place_is_no_part_of_what_a_node_is():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    with g.stage(0):
        one = ag.ops.tanh(x)
    with g.stage(1):
        same = ag.ops.tanh(x)
    assert one is same
    assert g.stages[one.id] == 0


def test_copies_of_a_graph_keep_places():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    ag.ops.exp(x)
    with g.stage(3):
        y = ag.ops.tanh(x).named("y")
    copy = g.subgraph([y])
    assert copy.stages == {copy.node("y").id: 3}


def test_a_stage_ends_with_its_block_also_when_it_fails():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    with pytest.raises(ZeroDivisionError, match="inside"), g.stage(1):
        raise ZeroDivisionError("inside")
    assert ag.ops.tanh(x).id not in g.stages


@pytest.mark.parametrize("number", [-1, 1.5, "first", None])
def test_stages_are_whole_numbers(number):
    with pytest.raises(GraphError, match=f"a stage is a whole number from 0 on, got {number!r}"):
        ag.Graph().stage(number).__enter__()


def test_a_stage_takes_nothing_of_a_later_one():
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    with g.stage(1):
        h = ag.ops.tanh(x).named("h")
    with g.stage(0):
        ag.ops.exp(h).named("y")
    text = "node 'y' .built at .*test_cutting.* is placed in stage 0, but takes 'h' of stage 1"
    with pytest.raises(ScheduleError, match=text):
        cut_by_placement(g.nodes)


def test_no_stage_is_empty():
    g = ag.Graph()
    with g.stage(2):
        ag.ops.tanh(g.input("x", shape=(2,)))
    with pytest.raises(ScheduleError, match="stage 0 of 3 has no nodes"):
        cut_by_placement(g.nodes)


# -- cut by cost ------------------------------------------------------------------------------


def test_costs_are_balanced():
    _, nodes = chain(6)
    costs = {node.id: cost for node, cost in zip(nodes, [4, 1, 1, 1, 1, 4])}
    cut = cut_by_cost(nodes, 3, costs=costs, sizes={})
    assert [sum(costs[node.id] for node in stage) for stage in cut] == [4, 4, 4]


def test_among_balanced_cuts_the_one_that_sends_least_is_taken():
    """Either of the middle nodes may stand on either side; the second value is the small one."""
    _, nodes = chain(4)
    costs = {node.id: cost for node, cost in zip(nodes, [4, 1, 1, 4])}
    costs[nodes[1].id] = costs[nodes[2].id] = 0
    for smallest in (0, 1, 2):
        sizes = {node.id: 10 for node in nodes} | {nodes[smallest].id: 1}
        cut = cut_by_cost(nodes, 2, costs=costs, sizes=sizes)
        assert len(cut[0]) == smallest + 1


def test_a_stage_that_is_hardly_slower_is_taken_where_less_is_sent():
    _, nodes = chain(4)
    costs = {node.id: cost for node, cost in zip(nodes, [100, 1, 1, 100])}
    sizes = {node.id: 10 for node in nodes} | {nodes[0].id: 1}
    for slack, first in ((0.0, 2), (0.02, 1)):
        cut = cut_by_cost(nodes, 2, costs=costs, sizes=sizes, slack=slack)
        assert len(cut[0]) == first


def test_a_skip_connection_counts_at_every_cut_that_it_passes():
    """Cutting before `wide` is used last sends it along; behind that it does not travel."""
    g = ag.Graph()
    x = g.input("x", shape=(2,))
    wide = ag.ops.tanh(x)
    a = ag.ops.exp(wide)
    b = a + wide
    c = ag.ops.tanh(b)
    costs = {wide.id: 1, a.id: 0, b.id: 0, c.id: 1}
    sizes = {wide.id: 5, a.id: 0, b.id: 4, c.id: 1}
    first, second = cut_by_cost(g.nodes, 2, costs=costs, sizes=sizes)
    assert (len(first), len(second)) == (3, 1)


def test_a_view_of_a_weight_is_in_the_stage_that_uses_it_first():
    g = ag.Graph()
    w = g.parameter("w", np.ones((4, 2), "float32"))
    first, second = w[:2].named("first"), w[2:].named("second")
    turned = second.transpose().named("turned")
    h = (g.input("x", ("batch", 2)) @ first).named("h")
    y = (h @ turned + h @ second).named("y")
    nodes = [first, second, turned, h, y.inputs[0], y.inputs[1], y]
    costs = dict.fromkeys([node.id for node in nodes], 1.0)
    stages = cut_by_cost(nodes, 2, costs=costs | {h.id: 5.0}, sizes=costs)
    assert names(stages)[0] == ["first", "h"]
    assert names(stages)[1][:2] == ["second", "turned"]
    assert names(cut_by_cost([first, second], 2, costs=costs, sizes=costs)) == [
        ["first"], ["second"],
    ]  # fmt: skip


def test_leaves_belong_to_no_stage():
    g = ag.Graph()
    x = g.input("x", shape=(2, 2))
    w = g.parameter("w", np.ones((2, 2)))
    y = ag.ops.tanh(x.astype("float64") @ w)
    cut = cut_by_cost(g.nodes, 2, costs={}, sizes={})
    assert sum(map(len, cut)) == len(g.nodes) - 2
    assert cut[-1][-1] is y


def test_more_stages_than_nodes_are_refused():
    _, nodes = chain(2)
    with pytest.raises(ScheduleError, match="3 stages need as many nodes, but there are 2"):
        cut_by_cost(nodes, 3, costs={}, sizes={})


def all_cuts(nodes, stages):
    for ends in combinations(range(1, len(nodes)), stages - 1):
        bounds = [0, *ends, len(nodes)]
        yield [nodes[a:b] for a, b in pairwise(bounds)]


def sent(cut):
    """Return how much travels: each value once for every cut between it and its last use."""
    stage_of = {node.id: number for number, stage in enumerate(cut) for node in stage}
    last = dict(stage_of)
    for stage in cut:
        for node in stage:
            for part in node.inputs:
                if part.id in last:
                    last[part.id] = max(last[part.id], stage_of[node.id])
    return {number: last[number] - stage_of[number] for number in stage_of}


@each("seed", range(40))
def test_no_other_cut_is_better_on_random_graphs(seed):
    rng = np.random.default_rng(seed)
    nodes = [ag.ops.tanh(ag.Graph().input("x", shape=(2,)))]
    while len(nodes) < 8:
        i, j = rng.integers(len(nodes), size=2)
        node = nodes[i] + nodes[j] if rng.random() < 0.7 else ag.ops.tanh(nodes[i])
        if all(node is not other for other in nodes):
            nodes.append(node)
    costs = {node.id: int(rng.integers(4)) for node in nodes}
    sizes = {node.id: int(rng.integers(1, 5)) for node in nodes}

    def quality(cut):
        slowest = max(sum(costs[node.id] for node in stage) for stage in cut)
        return slowest, sum(sizes[number] * hops for number, hops in sent(cut).items())

    for stages in (1, 2, 3, 5):
        cut = cut_by_cost(nodes, stages, costs=costs, sizes=sizes)
        assert len(cut) == stages
        assert all(cut)
        assert quality(cut) == min(map(quality, all_cuts(nodes, stages)))
