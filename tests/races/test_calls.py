"""Answers of ops that wait come while workers work: none is lost, and runs keep their order."""

from __future__ import annotations

from functools import partial

import pytest

from actorgraph.errors import RunCancelled
from actorgraph.machines import network as network_module
from actorgraph.machines.calling import Calling
from actorgraph.machines.calls import Calls
from actorgraph.machines.network import Network
from tests.races._interleave import assert_found, assert_holds, planted
from tests.races._wires import Machine, _replaced, asked, asked_in_turn, asked_of_two

FOCUS = (
    "take", "issue", "_turns", "_may_send", "__bool__", "_work", "actor", "enter", "leave",
    "inject",
)  # fmt: skip


class Asked(Machine):
    """Some runs are under way when two workers and two threads for ops that wait begin."""

    def __init__(self, build=asked, runs=3, calling=Calling, calls=Calls, **options):
        with _replaced(network_module, "Calling", calling):
            super().__init__(build, max_in_flight=3, **options)
        self.core.calls = calls(self.core.lock)
        self.begin(runs)
        self.scheduler.offer()

    def threads(self):
        over = self.over
        return [lambda: self.serve(until=over)] * 2 + [lambda: self.answer(until=over)] * 2

    def over(self):
        return all(run.done for run in self.runs)

    def check(self, **options):
        assert not self.core.calls
        super().check(**options)


def at_once():
    return Asked()


def with_credits():
    return Asked(capacity=1)


def in_turn():
    return Asked(asked_in_turn)


class Fed(Asked):
    """Another thread starts runs meanwhile, each of which brings two values."""

    def __init__(self, inject=Network.inject, runs=3):
        super().__init__(asked_of_two, runs=0)
        self.network.inject = partial(inject, self.network)
        self.more = [self.run() for _ in range(runs)]

    def threads(self):
        return [*super().threads(), lambda: [*map(self.start, self.more)]]


def fed():
    return Fed()


class Cancelled(Asked):
    """A run dies meanwhile."""

    def threads(self):
        return [*super().threads(), self.runs[1].cancel]

    def check(self):
        super().check(dead=(self.runs[1],))
        assert self.runs[1].dead is None or isinstance(self.runs[1].dead, RunCancelled)


def cancelled():
    return Cancelled()


def cancelled_in_turn():
    return Cancelled(asked_in_turn)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "make", [at_once, with_credits, in_turn, fed, cancelled, cancelled_in_turn]
)
def test_every_run_ends_with_the_sequential_result(make):
    assert_holds(make, f"calls {make.__name__}", 1000, FOCUS)


class LooksAtMessagesOnly(Calling):
    def __bool__(self):
        return all(self._messages)


def an_answer_is_no_reason_to_look_again():
    return Asked(calling=LooksAtMessagesOnly)


class WakesBeforeItPuts(Calls):
    take = planted(
        Calls.take,
        """
            call.put(call)
            if task.wait is call.signal:
                task.ready[0].append(task)
        return True
        """,
        """
            if task.wait is call.signal:
                task.ready[0].append(task)
        call.run.core.scheduler.offer()
        call.put(call)
        return True
        """,
    )


def the_actor_is_woken_before_the_answer_is_there():
    return Asked(calls=WakesBeforeItPuts)


class BringsOnlyAfter(Network):
    inject = planted(
        Network.inject,
        """
        for value, targets in zip((*run.values, None), self.entries, strict=True):
            if targets:
                message = Message(value, run)
                for append, queue, task in targets:
                    append(message)
                    if task.wait is queue:
                        ready.append(task)
        """,
        """
        for calling, task in self.fed:
            if task.wait is calling:
                ready.append(task)
        for value, targets in zip((*run.values, None), self.entries, strict=True):
            if targets:
                message = Message(value, run)
                for append, queue, task in targets:
                    append(message)
        return
        """,
    )


def the_actor_is_woken_before_all_has_been_brought():
    return Fed(BringsOnlyAfter.inject, runs=1)  # another one would wake it again


@pytest.mark.parametrize(
    ("bug", "place"),
    [
        (an_answer_is_no_reason_to_look_again, "_work"),
        (the_actor_is_woken_before_the_answer_is_there, "take"),
        (the_actor_is_woken_before_all_has_been_brought, "inject"),
    ],
)
def test_a_planted_bug_is_found(bug, place):
    assert_found(bug, f"calls {bug.__name__}", 5000, [place])
