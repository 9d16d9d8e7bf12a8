"""The queue of a machine: who is let in, who waits, and what is counted."""

from types import SimpleNamespace

from actorgraph.machines.admission import Admission
from actorgraph.machines.claim import Claim
from actorgraph.memory.arenas import Arenas


def run(number, priority=0, kept=0, steps=False):
    plan = SimpleNamespace(compiled=SimpleNamespace(updates_parameters=steps))
    claim = Claim(kept, turn=0, arena=0, tasks=1)
    return SimpleNamespace(number=number, priority=priority, plan=plan, claim=claim)


def test_direct_runs_and_those_in_flight_fill_a_machine_together():
    admission = Admission(2, None, workers=2)
    admission.in_flight[0] = run(0)
    assert admission.enter(run(1))
    assert not admission.enter(run(2))
    admission.add(run(3))
    assert list(admission.admitted(Arenas())) == []
    admission.direct.pop()
    assert [one.number for one in admission.admitted(Arenas())] == [3]
    assert not admission.enter(run(4))


def test_runs_that_fit_together_are_in_flight_together():
    admission = Admission(9, 100, workers=2)
    for number in range(3):
        admission.add(run(number, kept=40))
    assert [one.number for one in admission.admitted(Arenas())] == [0, 1]
    del admission.in_flight[0]
    assert [one.number for one in admission.admitted(Arenas())] == [2]


def test_a_run_that_steps_parameters_begins_when_the_one_before_has_stepped_them():
    admission = Admission(9, None, workers=2)
    for number in range(3):
        admission.add(run(number, steps=True))
    for number in range(3):
        [one] = admission.admitted(Arenas())
        assert one.number == number
        assert admission.stepping is one
        assert list(admission.admitted(Arenas())) == []
        admission.stepping = None


def test_no_direct_run_overtakes_one_that_waits():
    admission = Admission(2, None, workers=2)
    admission.add(run(0))
    assert not admission.enter(run(1))


def test_what_is_queued_in_flight_or_computed_directly_is_under_way():
    admission = Admission(9, None, workers=2)
    for number in range(3):
        assert admission.under_way == number
        admission.enter(run(number))
    for number in range(2):
        admission.in_flight[number] = run(number)
        admission.add(run(9 - number))
    assert admission.under_way == 3 + 2 + 2


def test_who_leaves_the_queue_leaves_the_order_of_the_others():
    admission = Admission(9, None, workers=2)
    runs = [run(number, priority) for number, priority in enumerate((2, 0, 1, 0, 2))]
    for one in runs:
        admission.add(one)
    assert admission.remove(runs[1])
    assert not admission.remove(runs[1])
    assert [one.number for one in admission.admitted(Arenas())] == [3, 2, 0, 4]
