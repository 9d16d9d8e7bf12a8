"""Busiest nodes, the critical path and idle time, on timelines where the answer is known."""

from dataclasses import replace

import pytest

import actorgraph as ag
from actorgraph.trace.analysis import critical_path, idle_by_cause, summarise
from actorgraph.trace.records import Actor, CallSpan, Edge, MessageSpan, Records, RunSpan, Slice

#      0    1    2    3    4    5    6    7    8
# one  |  a a a a a |           | d d d d |         a: 1 to 3, d: 5 to 7
# two  |            | b b b |                       b: 3.5 to 5; c waits for a call, 3 to 4.5
#
#   a ---> b ---> d        the run is admitted at 0.5 and ends at 7

EDGES = {"a": (), "b": (("a -> b", 0),), "d": (("b -> d", 1), ("a -> d", 0))}


def part(name, index, lane, start, end, ready, sent=0):
    return Slice(lane, start, end, name, "forward", 0, "g", None, index, ready, 0, sent)


@pytest.fixture
def records():
    actors = tuple(
        Actor(i, name, "forward", "g", (name,), tuple(Edge(e, "value", p) for e, p in edges))
        for i, (name, edges) in enumerate(EDGES.items())
    )
    a_b, b_d, a_d = actors[1].edges[0], *actors[2].edges
    return Records(
        duration_s=8.0,
        workers=2,
        lanes=("one", "two"),
        actors=actors,
        slices=(
            part("a", 0, "one", 1.0, 3.0, 0.5, sent=12),
            part("b", 1, "two", 3.5, 5.0, 3.0),
            part("d", 2, "one", 5.0, 7.0, 5.0),
        ),
        messages=(
            MessageSpan(0, 1, a_b, 3.0, 3.5, 8),
            MessageSpan(0, 2, a_d, 3.0, 5.0, 4),
            MessageSpan(1, 2, b_d, 5.0, 5.0, 4),
        ),
        runs=(RunSpan("g", 0, None, 0.25, 0.5, 7.0, None),),
        calls=(CallSpan("c", "g", 0, 3.0, 4.5),),
    )


def test_critical_path_follows_the_message_that_came_last(records):
    steps, number = critical_path(records)
    assert number == 0
    assert [(s.name, s.lane, s.waited_s, s.seconds) for s in steps] == [
        ("a", "one", 0.5, 2.0),
        ("b", "two", 0.5, 1.5),
        ("d", "one", 0.0, 2.0),
    ]


def test_idle_time_has_one_cause_at_each_moment(records):
    idle = idle_by_cause(records)
    assert idle == {
        "no run": 2 * 0.5 + 2 * 1.0,  # before the admission and after the end
        "hand-over": 2 * 0.5 + 2 * 0.5,  # a and b are ready, and nobody has taken them
        "asynchronous call": 1.0,  # 3.5 to 4.5, while b works
        "dependencies": 2.0 + 0.5 + 2.0,  # the other lane during a, the end of b, and d
    }
    busy = 2.0 + 1.5 + 2.0
    assert sum(idle.values()) + busy == 2 * records.duration_s


def test_summary_orders_by_time_and_keeps_to_its_count(records):
    summary = summarise(records, 2)
    assert [(b.name, b.firings, b.seconds, b.sent_bytes) for b in summary.busiest] == [
        ("a", 1, 2.0, 12),
        ("d", 1, 2.0, 0),
    ]
    assert summary.busy_s == {"one": 4.0, "two": 1.5}
    assert (summary.runs, summary.failed, summary.admission_wait_s) == (1, 0, 0.25)
    assert [step.name for step in summary.path] == ["a", "b"]
    assert "in the longest 2 of 3 steps" in str(summary)


def test_text_of_the_summary_is_plain_tables(records):
    lines = str(summarise(records, 10)).splitlines()
    assert lines[0] == "1 run in 8000.000 ms, 250.000 ms of waiting for admission"
    assert lines[2:5] == [
        "busiest",
        "  node  firings        ms    us each   wait us  sent",
        "  a           1  2000.000  2000000.0  500000.0  12 B",
    ]
    assert "critical path of run 0: 5500.000 ms work, 1000.000 ms waits" in lines
    assert "  one   4000.000    50%" in lines
    assert "idle by cause, 2 workers together" in lines
    assert "  hand-over          2000.000" in lines


def test_a_recording_of_no_run_has_no_critical_path():
    with ag.trace.record() as trace:
        pass
    assert "critical path: no run has ended" in str(trace.summary())


def test_rich_draws_the_same_tables(records):
    rich = pytest.importorskip("rich.console", reason="rich is not installed")
    console = rich.Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        named = replace(records.actors[0], name="[a]")  # no markup
        console.print(summarise(replace(records, actors=(named, *records.actors[1:])), 10))
        text = console.export_text()
    assert "busiest" in text
    assert "dependencies" in text
    assert "[a]" in text


def test_summary_of_a_real_run_has_every_node_and_the_path_through_all(model):
    with model.actors() as machine, ag.trace.record() as t:
        for _ in range(3):
            machine.run_sync(model.feeds)
    summary = t.summary()
    assert {busy.name for busy in summary.busiest} == {actor.name for actor in t.actors}
    assert all(busy.firings == 3 for busy in summary.busiest)
    assert [busy.seconds for busy in summary.busiest] == sorted(
        [busy.seconds for busy in summary.busiest], reverse=True
    )
    assert summary.path[-1].name == "loss"
    assert summary.path[1].name == "h"
    assert len(summary.path) == 4


#      0    1    2    3    4    5    6    7
# s0   | F0 | F1 |         |    B0   |             B0 waits for s1, F1 for its turn in the list
# s1        |    F0   |   F1    |                  F1 of s1 is ready at 2, and waits for its turn
#
# Both actors fire once a microbatch; B1 was left out.


@pytest.fixture
def pipelined():
    def task(index, lane, producer):
        edges = () if producer is None else (Edge("edge", "value", producer),)
        return Actor(index, f"task {index}", "forward", "g", (), edges, lane)

    actors = task(0, "s0", None), task(1, "s1", 0), task(2, "s0", 1)
    edges = [None, actors[1].edges[0], actors[2].edges[0]]
    given = [
        (0, 0, "s0", 0.0, 1.0, 0.0),
        (0, 1, "s0", 1.0, 2.0, 0.0),
        (1, 0, "s1", 1.0, 3.0, 1.0),
        (1, 1, "s1", 3.5, 5.0, 2.0),
        (2, 0, "s0", 5.0, 7.0, 3.0),
    ]
    slices = tuple(
        Slice(lane, start, end, f"task {actor}", "forward", 0, "g", batch, actor, ready, 0, 0)
        for actor, batch, lane, start, end, ready in given
    )
    messages = tuple(
        MessageSpan(source, target, edges[slices[target].actor], sent, slices[target].start, 4)
        for source, target, sent in [(0, 2, 1.0), (1, 3, 2.0), (2, 4, 3.0)]
    )
    run = RunSpan("g", 0, None, 0.0, 0.0, 7.0, None)
    return Records(7.0, 0, ("s0", "s1"), actors, slices, messages, (run,), ())


def test_an_actor_of_a_pipeline_fires_once_a_microbatch(pipelined):
    assert {busy.name: busy.firings for busy in summarise(pipelined, 10).busiest} == {
        "task 0": 2,
        "task 1": 2,
        "task 2": 1,
    }


def test_idle_time_of_a_lane_is_its_own(pipelined):
    # s0 waits for a message until 3, for its thread until 5; s1 until 1, for 0.5, and at the end.
    assert idle_by_cause(pipelined) == {
        "no run": 0.0,
        "hand-over": 2.0 + 0.5,
        "asynchronous call": 0.0,
        "dependencies": 1.0 + 1.0 + 2.0,
    }
    assert summarise(pipelined, 10).workers == 2


def test_critical_path_of_a_pipeline_goes_through_lanes_and_messages(pipelined):
    steps, _ = critical_path(pipelined)
    assert [(s.name, s.waited_s) for s in steps] == [
        ("task 0", 0.0),
        ("task 1", 0.0),
        ("task 2", 2.0),
    ]
    slices = list(pipelined.slices)
    slices[3] = slices[3]._replace(end=7.5)  # now it ends last, and had to wait for its lane
    steps, _ = critical_path(replace(pipelined, slices=tuple(slices)))
    assert [(s.name, s.waited_s) for s in steps] == [
        ("task 0", 0.0),
        ("task 1", 0.0),
        ("task 1", 0.5),
    ]
