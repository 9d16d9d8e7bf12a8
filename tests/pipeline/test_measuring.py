"""`pipeline.measure`: what runs took, and the prediction by what they have shown themselves."""

import numpy as np
import pytest

import actorgraph as ag
from actorgraph.errors import FeedError
from actorgraph.pipeline import Pipeline, measure, simulate
from actorgraph.pipeline.measuring import TimedRun, _Turn, timed_run
from tests._each import each


def pipeline(schedule="1f1b", stages=2, microbatches=4, width=3):
    g = ag.Graph()
    h = g.input("x", shape=("batch", width))
    for stage in range(stages):
        with g.stage(stage):
            h = np.tanh(h @ g.parameter(f"W{stage}", np.eye(width, dtype="float32")))
    with g.stage(stages - 1):
        loss = h.mean()
    return Pipeline(loss, schedule=schedule, microbatches=microbatches)


FEEDS = {"x": np.ones((8, 3), "float32")}


@each("overhead", [0.0, 0.125])
@each("latency", [0.0, 0.5])
@each("name", ["gpipe", "1f1b", "zb-h1"])
def test_turns_that_the_simulator_times_give_back_its_costs_and_its_makespan(
    name, latency, overhead
):
    """F, B and W of a stage take 2, 3 and 1, whole where a schedule does not split them.

    Turns are shorter than actions by the overhead, and messages leave when they end.
    """
    with pipeline(name) as made:
        made.run_sync(FEEDS)
        at, tasks = made._staged("tasks").at, next(iter(made._core.networks.values())).tasks
        whole = name != "zb-h1"
        costs = [
            (2.0, 4.0 if whole else 3.0 * ((stage, "backward") in at), 0.0 if whole else 1.0)
            for stage in range(2)
        ]
        simulated = simulate(made.schedule, costs=costs, latency=latency)
        turns = []
        for timed in simulated.timeline:
            ((stage, kind, microbatch, _),) = timed.step
            direction = {"F": "forward", "W": "weights"}.get(kind, "backward")
            if (stage, direction) in at:
                task = tasks[at[stage, direction]]
                turns.append(_Turn(task, microbatch, timed.start + 9, timed.end + 9 - overhead))
        found = TimedRun(made, turns[::-1], 99.0).measured()
    assert found.costs == [pytest.approx(one) for one in costs]
    assert found.overhead_s == pytest.approx(overhead)
    assert found.latency_s == pytest.approx(latency + overhead)
    assert found.predicted.makespan == pytest.approx(simulated.makespan)
    assert found.makespan_s == pytest.approx(simulated.makespan - overhead)
    assert found.run_s == 99.0
    busiest = max(simulated.busy) - overhead * max(map(len, made.schedule.lanes))
    assert found.global_bubble_s == pytest.approx(found.makespan_s - busiest)


@each("name", ["1f1b", "zb-h1", "interleaved", "zb-v", "dynamic"])
def test_a_picture_shows_what_each_lane_did_in_its_order(name):
    chunks = 2 if name in ("interleaved", "zb-v") else 1
    with pipeline(name, stages=2 * chunks) as made:
        (found,) = measure([made], FEEDS, runs=3)
        assert found.schedule is made.schedule
        for row, lane in zip(found.rows, made.schedule.lanes, strict=True):
            assert all(bar.start <= bar.end for bar in row)
            if name != "dynamic":  # the first stage has no B: nobody waits for it
                wanted = [
                    f"{stage if chunks > 1 else ''}{kind}{number}"
                    for stage, kind, number, _ in lane
                    if (stage, kind) != (0, "B")
                ]
                assert [bar.label for bar in row] == wanted
        bars = [bar for row in found.rows for bar in row]
        assert min(bar.start for bar in bars) == 0
        assert max(bar.end for bar in bars) == pytest.approx(found.makespan_s)


def test_pipelines_take_turns_and_the_fastest_comes_first():
    with pipeline("1f1b") as one, pipeline("gpipe", stages=3) as other:
        found = measure([one, other], FEEDS, runs=2)
        assert {id(each.schedule) for each in found} == {id(one.schedule), id(other.schedule)}
        assert found[0].makespan_s <= found[1].makespan_s
        for each in found:
            again = simulate(
                each.schedule, costs=each.costs, latency=max(0, each.latency_s - each.overhead_s)
            )
            assert each.predicted.makespan == again.makespan
            assert each.makespan_s < each.run_s


def test_sums_of_a_tied_weight_are_drawn_and_no_cost_of_a_stage():
    g = ag.Graph()
    x = g.input("x", shape=("batch", 3))
    tied = g.parameter("tied", np.eye(3, dtype="float32"))
    with g.stage(0):
        h = np.tanh(x @ tied)
    with g.stage(1):
        loss = (h @ tied).mean()
    with Pipeline(loss, microbatches=2) as made:
        (found,) = measure([made], FEEDS, runs=1)
    labels = [bar.label for row in found.rows for bar in row]
    assert sorted(label for label in labels if label[0] == "+") == ["+0", "+1"]
    assert len(found.costs) == 2


def test_a_run_hears_of_no_turns_but_its_own():
    with pipeline() as made, pipeline(microbatches=2) as other:
        for each in (made, other):
            each.run_sync(FEEDS)

        def run():
            other.run_sync(FEEDS)
            made.run_sync(FEEDS)

        found = timed_run(made, run)
    assert [len(times) for times in found.times.values()] == [4] * 4


def test_nothing_is_measured_of_what_cannot_run():
    with pipeline() as made:
        with pytest.raises(ValueError, match="runs must be an int of at least 1, got 0"):
            measure([made], FEEDS, runs=0)
        with pytest.raises(FeedError, match="unknown feed 'y'"):
            measure([made], {"y": 1.0}, runs=1)
        assert ag.instrument.listening == set()
