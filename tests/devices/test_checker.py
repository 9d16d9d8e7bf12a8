"""The race checker and the adversary: planted faults are found, honest runs are silent.

Each fault is a change of what `Lane` does, as a bug there would be.  The checker has to report it
in a run whose timing hides it; the adversary has to show it as a wrong value for some seed.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import actorgraph as ag
from actorgraph.devices import base, checker
from actorgraph.devices.base import Handed, Lane
from tests._soak import SOAK


def chained(start, length=6):
    found = [start]
    for _ in range(length):
        found.append(ag.ops.sin(found[-1]))
    return found


def wide(device=None):
    """Branches that meet and part again, and a value that other lanes use, soon and late."""
    g = ag.Graph("wide")
    x = g.input("x", (6,), "float64")
    w = g.parameter("w", np.linspace(0.5, 1.5, 6))
    branches = [ag.ops.tanh(x * w + float(i)) for i in range(4)]
    shown = [ag.ops.reshape(branch, (2, 3)) for branch in branches]
    joined = [ag.ops.exp(a * b) for a, b in zip(shown, shown[1:] + shown[:1], strict=True)]
    hub = ag.ops.sin(x * w)
    soon = hub * 2.0
    back = soon + 1.0
    late = chained(soon)
    again = late[-1] * hub
    other = chained(x - w)
    third = other[-1] * hub
    after = chained(back + again)
    y = sum(joined[1:], joined[0]) + ag.ops.reshape(third + after[-1], (2, 3))
    if device is not None:
        lanes = [[hub, back, *after], [soon, *late[1:], again], [*other, third]]
        for lane, nodes in enumerate(lanes):
            for node in nodes:
                node.on(device, lane=lane)
    return y.sum().named("loss"), y.named("y"), w


FEEDS = {"x": np.linspace(-1.0, 1.0, 6)}


def numbers(machine, nodes, runs=3):
    found = []
    for _ in range(runs):
        found.append(machine.run_sync(FEEDS)[nodes[1]].value.tobytes())
        run = machine.run_sync(FEEDS, backward=True)
        found += [run[node].value.tobytes() for node in nodes[:2]]
        found.append(run[nodes[2]].grad.tobytes())
    return found


def run_on(device):
    nodes = wide(device)
    with ag.ActorMachine(nodes[:2], device=device, lanes=4, fuse="none", workers=1) as machine:
        return numbers(machine, nodes)


@pytest.fixture(scope="module")
def expected():
    nodes = wide()
    with ag.LispMachine(nodes[:2]) as machine:
        return numbers(machine, nodes)


# -- faults -----------------------------------------------------------------------------------


def no_wait(patch):
    """Work on another lane does not wait."""
    patch.setattr(Lane, "join", lambda self, value: None)


def no_wait_for_copies(patch):
    """What is copied to the device is taken to be there."""
    join = Lane.join

    def joined(self, value):
        if "copies in" not in value.lane.name:
            join(self, value)

    patch.setattr(Lane, "join", joined)


def results_do_not_wait(patch):
    """A result is copied to the host when nothing says that it is there."""
    join = Lane.join

    def joined(self, value):
        if "copies out" not in self.name:
            join(self, value)

    patch.setattr(Lane, "join", joined)


def implied_too_much(patch):
    """A lane's clock covers one job more than it has waited for."""

    def join(self, value):
        home = value.lane
        if home is self or self.seen.get(home, 0) >= value.seq - 1 > 0:
            return
        event = value.event or home.record()
        self.queue.wait(event)
        for lane, seq in event.clock.items():
            self.seen[lane] = max(seq, self.seen.get(lane, 0))

    patch.setattr(Lane, "join", join)


def event_reused(patch):
    """An event is recorded once, and then taken for later ones."""
    record, known = Lane.record, {}

    def recorded(self):
        event = known.get(self) or record(self)
        known[self] = event
        event.clock = {**self.seen, self: self.seq}
        return event

    patch.setattr(Lane, "record", recorded)


def recorded_before_launch(patch):
    """The event stands before the work that it is for."""
    launch, record = Lane.launch, Lane.record

    def launched(self, work, operands, **options):
        event = record(self)
        event.clock[self] = self.seq + 1
        made = launch(self, work, operands, **options)
        made.event = event
        return made

    patch.setattr(Lane, "launch", launched)


def no_release_join(patch):
    """Memory comes back without a look at what other lanes have still to do with it."""

    def settle(self, ended=False):
        while self.dropped:
            self.queue.free(self.dropped.popleft()[0])

    patch.setattr(Lane, "settle", settle)


def one_user_forgotten(patch):
    """Of several lanes that use a memory, only one is waited for."""
    settle = Lane.settle

    def settled(self, ended=False):
        for number, (cell, uses) in enumerate(self.dropped):
            self.dropped[number] = cell, dict([*uses.items()][:1])
        settle(self, ended)

    patch.setattr(Lane, "settle", settled)


def uses_not_noted(patch):
    """Uses by other lanes are not noted."""
    launch = Lane.launch

    def launched(self, work, operands, **options):
        made = launch(self, work, operands, **options)
        for operand in operands:
            for memory in operand.memories:
                memory.uses.clear()
        return made

    patch.setattr(Lane, "launch", launched)


def views_forgotten(patch):
    """A view does not keep the memory that it shows."""
    init = Handed.__init__

    def made(self, lane, seq, cell, memories=()):
        init(self, lane, seq, cell, memories[:1])

    patch.setattr(Handed, "__init__", made)


def released_at_launch(patch):
    """The memory of operands comes back as soon as the work that reads them is launched."""
    launch = Lane.launch

    def launched(self, work, operands, **options):
        made = launch(self, work, operands, **options)
        for operand in operands:
            for memory in operand.memories[:1]:
                memory.lane.dropped.append((memory.cell, {}))
        return made

    patch.setattr(Lane, "launch", launched)


def retired_without_looking(patch):
    """The retire queue is emptied without a look at its events."""
    patch.setattr(base, "_passed", lambda events: True)


def wait_behind_the_work(patch):
    """A lane waits when the work that needs it has been put."""
    join, late = Lane.join, []

    def joined(self, value):
        late.append((self, value))

    def launched(self, work, operands, **options):
        made = launch(self, work, operands, **options)
        while late:
            join(*late.pop())
        return made

    launch = Lane.launch
    patch.setattr(Lane, "join", joined)
    patch.setattr(Lane, "launch", launched)


def waits_for_itself(patch):
    """The event is one of the lane that waits, not of the lane that is to be waited for."""

    def join(self, value):
        if value.lane is not self and self.seen.get(value.lane, 0) < value.seq:
            self.queue.wait(self.record())
            self.seen[value.lane] = value.seq

    patch.setattr(Lane, "join", join)


def first_use_kept(patch):
    """Of the uses by a lane the first one is noted, not the latest."""
    launch = Lane.launch

    def launched(self, work, operands, **options):
        before = [(one.uses, dict(one.uses)) for value in operands for one in value.memories]
        made = launch(self, work, operands, **options)
        for uses, first in before:
            uses.update(first)
        return made

    patch.setattr(Lane, "launch", launched)


FAULTS = [
    wait_behind_the_work, waits_for_itself, first_use_kept, no_wait, no_wait_for_copies,
    results_do_not_wait, implied_too_much, event_reused, recorded_before_launch, no_release_join,
    one_user_forgotten, uses_not_noted, views_forgotten, released_at_launch,
    retired_without_looking,
]  # fmt: skip
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


@every_fault
def test_the_checker_reports_each_fault_though_values_are_right(fault, expected):
    """On the CPU all is done where it is launched, so nothing goes wrong; it would on a GPU."""
    checked = ag.devices.check("cpu")
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        assert run_on(checked) == expected
    findings = checked.report()
    assert findings
    for found in findings:
        assert found.kind in str(found)
        assert found.first in found.text


@every_fault
def test_the_adversary_shows_each_fault_for_some_seed(fault, expected):
    for seed in range(40):
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            try:
                if run_on(ag.devices.adversary("cpu", seed=seed)) != expected:
                    return
            except ag.GraphError as error:
                assert "a wait is missing" in str(error)  # noqa: PT017
                return
    pytest.fail("no seed shows it")


def test_a_finding_names_both_nodes_and_their_lanes():
    checked = ag.devices.check("cpu")
    x = ag.Graph().input("x", (3,), "float64")
    a = ag.ops.exp(x).named("first").on(checked, lane=0)
    b = ag.ops.exp(a).named("second").on(checked, lane=1)
    with pytest.MonkeyPatch.context() as patch:
        no_wait(patch)
        with ag.ActorMachine([b], device=checked, lanes=2) as machine:
            machine.run_sync({"x": np.ones(3)})
    (found,) = [one for one in checked.report() if "second" in one.second]
    assert found.kind == "missing wait"
    assert found.first == "'first' on check(cpu) lane 0"
    assert found.second == "'second' on check(cpu) lane 1"


# -- honest runs ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200 if SOAK else 10))
def test_honest_runs_are_right_in_every_legal_order_and_nothing_is_reported(seed, expected):
    checked = ag.devices.check(ag.devices.adversary("cpu", seed=seed))
    assert run_on(checked) == expected
    assert checked.report() == []


@pytest.mark.parametrize("call", ["put", "record", "wait", "free"])
def test_who_gives_a_lane_something_while_others_may_is_reported(call, expected, monkeypatch):
    was = getattr(checker._CheckedQueue, call)

    def by_another(queue, *args):
        with ThreadPoolExecutor(1) as other:
            return other.submit(was, queue, *args).result()

    checked = ag.devices.check("cpu")
    monkeypatch.setattr(checker._CheckedQueue, call, by_another)
    assert run_on(checked) == expected
    kinds = {found.kind for found in checked.report()}
    assert kinds == {"used by two threads"}


def test_a_solver_that_launches_by_itself_is_alone_on_its_lanes():
    checked = ag.devices.check("virtual:0")
    x = ag.Graph().parameter("x", np.ones(3))
    loss = (x * x).sum()
    with ag.ActorMachine([loss], device=checked) as machine:

        def closure():
            run = machine.run_sync(backward=True, fetch=False)
            x.held.grad = run[x].grad
            return run[loss].value

        ag.solvers.LBFGS(0.5).step([x.held], closure)
    assert checked.report() == []


UNARY = [ag.ops.tanh, ag.ops.sin, lambda a: ag.ops.reshape(a, (3, 2)).T.reshape(6), lambda a: a]
BINARY = [lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a - b * 0.5]


@st.composite
def programs(draw):
    """A graph as a list of (op, operands), with the placement of each node."""
    steps = []
    for number in range(draw(st.integers(2, 12))):
        operands = [draw(st.integers(0, number)) for _ in range(draw(st.integers(1, 2)))]
        op = draw(st.integers(0, len(UNARY if len(operands) == 1 else BINARY) - 1))
        where = draw(st.sampled_from([None, (0, None), (0, 1), (1, 0), (1, 1), "cpu"]))
        steps.append((op, operands, where))
    return steps


def built(steps, devices):
    g = ag.Graph("drawn")
    x = g.input("x", (6,), "float64")
    w = g.parameter("w", np.linspace(0.5, 1.5, 6))
    nodes = [x * w]
    for op, operands, where in steps:
        table = UNARY if len(operands) == 1 else BINARY
        node = table[op](*[nodes[place] for place in operands])
        if where == "cpu" and devices:
            node.on("cpu")
        elif where is not None and devices:
            node.on(devices[where[0]], lane=where[1])
        nodes.append(node)
    return ag.ops.concatenate(nodes[-2:]).sum().named("loss"), nodes[-1], w


@pytest.mark.parametrize("part", range(100 if SOAK else 1))
@settings(
    max_examples=100 if SOAK else 20,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(steps=programs(), seed=st.integers(0, 1000), fuse=st.sampled_from(["none", "auto", "all"]),
       cancel=st.sampled_from([None, 0, 1, 2]), lanes=st.integers(2, 4))  # fmt: skip
def test_random_graphs_and_placements_are_right_and_nothing_is_reported(
    part, steps, seed, fuse, cancel, lanes
):
    plain = built(steps, ())
    with ag.LispMachine(plain[:2]) as machine:
        run = machine.run_sync(FEEDS, backward=True)
        want = [run[plain[0]].value, run[plain[1]].value, run[plain[2]].grad]
    names = ["virtual:0", "virtual:1"]
    devices = [ag.devices.check(ag.devices.adversary(name, seed=seed)) for name in names]
    nodes = built(steps, devices)
    with ag.ActorMachine(nodes[:2], devices=devices, lanes=lanes, fuse=fuse, workers=1) as machine:
        runs = [machine.start(FEEDS, backward=True) for _ in range(3)]
        if cancel is not None:
            runs[cancel].cancel()
        for number, run in enumerate(runs):
            try:
                run.result()
            except ag.RunCancelled:
                assert number == cancel
                continue
            got = [run[nodes[0]].value, run[nodes[1]].value, run[nodes[2]].grad]
            for one, other in zip(got, want, strict=True):
                assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert [one.report() for one in devices] == [[], []]
