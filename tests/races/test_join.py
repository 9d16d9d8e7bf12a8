"""An actor with two ports that two workers feed: no message is lost, none meets a wrong partner."""

from __future__ import annotations

import pytest

from actorgraph.scheduler import Scheduler
from tests.races._interleave import assert_found, assert_holds, planted
from tests.races._wires import Machine, TextBug, chain, join, twins

FOCUS = ("actor", "_work")


class TwoWorkers(Machine):
    """Some runs are under way when two workers start."""

    def __init__(self, build=join, runs=3, **options):
        super().__init__(build, max_in_flight=3, **options)
        self.begin(runs)
        self.scheduler.offer()

    def threads(self):
        return [lambda: self.serve(until=lambda: True)] * 2


def unbounded():
    return TwoWorkers()


def with_credits():
    return TwoWorkers(capacity=1)


def row():
    return TwoWorkers(chain)


def row_with_credits():
    return TwoWorkers(chain, capacity=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("make", [unbounded, with_credits, row, row_with_credits])
def test_every_run_ends_with_the_sequential_result(make):
    assert_holds(make, f"join {make.__name__}", 2000, FOCUS)


class NoSecondLook(Scheduler):
    _work = planted(
        Scheduler._work,
        """
        if task.wait:
            push(task)
        """,
        "pass",
    )


def no_second_look_after_parking():
    return TwoWorkers(scheduler=NoSecondLook)


def looks_for_who_waits_before_it_sends():
    # In generated text: who waits is looked up when the turn begins, used when it ends.
    return TwoWorkers(
        runs=1,
        text=TextBug(
            (r"^( +)run = m0\.run\n(?=[\s\S]* t0\.wait)", r"\g<0>\1seen = t0.wait is o0\n"),
            (r"t0 if t0\.wait is o0 else None", "t0 if seen else None"),
        ),
    )


class counts_results_in_steps(TwoWorkers):
    """In generated text: the counter of results is lowered and tested in two steps."""

    def __init__(self):
        token = r"^( +)if run\.tokens\.pop\(\):$"
        steps = r"\1run.tokens[0] -= 1\n\1if not run.tokens[0]:"
        super().__init__(twins, text=TextBug((token, steps)))

    def run(self):
        run = super().run()
        run.tokens = [len(run.tokens)]
        return run


class takes_from_one_port_unseen(TwoWorkers):
    """In generated text: the actor looks at its first port and takes from both."""

    def __init__(self):
        test = r"^( +)if not q0:\n +task\.wait = q0\n +push = yield\n +continue\n( +m0 = p0\(\))"
        super().__init__(text=TextBug((test, r"\2")))


@pytest.mark.parametrize(
    ("bug", "place"),
    [
        (no_second_look_after_parking, "_work"),
        (looks_for_who_waits_before_it_sends, "actor"),
        (counts_results_in_steps, "actor"),
        (takes_from_one_port_unseen, "actor"),
    ],
)
def test_a_planted_bug_is_found(bug, place):
    assert_found(bug, f"join {bug.__name__}", 5000, [place])
