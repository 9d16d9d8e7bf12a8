"""Hooks are called for what happens, in its order, and never break a run."""

import gc
import logging
import sys
import weakref
from collections import Counter, deque
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from actorgraph import instrument
from actorgraph.errors import NodeError
from actorgraph.node_actor import Task
from tests._until import until


def refuse(xp, value):
    raise ValueError("no")


gates = []  # an event of the loop that runs


async def answer(xp, value):
    await gates[-1].wait()
    return value + 1


broken = ag.ops.define("trace_broken", scheme="f[*s] -> f[*s]", forward=refuse)
later = ag.ops.define("trace_later", scheme="f[*s] -> f[*s]", forward=answer)


class Log(ag.trace.Instrument):
    def __init__(self):
        self.told = []

    def on_feeds(self, run, started, ended):
        self.told.append(("feeds", run.number, started <= ended))

    def on_run_start(self, run):
        self.told.append(("start", run.number))

    def on_run_admitted(self, run):
        self.told.append(("admitted", run.number))

    def on_direct(self, run, started, ended):
        self.told.append(("direct", run.number, started <= ended))

    def on_turn(self, task, run, started, ended):
        self.told.append(("turn", run.number, task.spec.name, started <= ended))

    def on_call(self, task, run, started, ended):
        self.told.append(("call", run.number, task.spec.name, started <= ended))

    def on_error(self, run, error):
        self.told.append(("error", run.number, type(error).__name__))

    def on_run_end(self, run):
        self.told.append(("end", run.number, run.done))

    def of(self, kind):
        return [entry[1:] for entry in self.told if entry[0] == kind]


def settled(machine):
    instrument.settle(task for network in machine._networks() for task in network.tasks)


def test_every_turn_of_every_run_is_told_of_with_its_run(model):
    log = Log()
    with model.actors(workers=3, max_in_flight=4) as machine:
        machine.run_sync(model.feeds, backward=True)
        tasks = {task.spec.name for network in machine._networks() for task in network.tasks}
        with ag.trace.use(log):
            runs = [machine.start(model.feeds, backward=True) for _ in range(50)]
            for run in runs:
                run.result()
            settled(machine)
        machine.run_sync(model.feeds, backward=True)
    numbers = [run.number for run in runs]
    turns = Counter((number, name) for number, name, _ in log.of("turn"))
    assert turns == dict.fromkeys([(n, name) for n in numbers for name in tasks], 1)
    for kind in ("feeds", "start", "admitted", "end"):
        assert sorted(entry[0] for entry in log.of(kind)) == numbers
    assert all(entry[-1] for kind in ("turn", "feeds", "end") for entry in log.of(kind))


def test_run_computed_by_its_caller_is_told_of_as_one_piece(model):
    log = Log()
    with ag.ActorMachine([model.loss]) as machine, ag.trace.use(log):
        machine.run_sync(model.feeds)
    assert [entry[0] for entry in log.told] == ["feeds", "start", "direct", "end"]


def test_what_fails_is_told_of_once(model):
    log = Log()
    with ag.ActorMachine([broken(model.loss)]) as machine, ag.trace.use(log):
        run = machine.start(model.feeds)
        with pytest.raises(NodeError, match="ValueError: no"):
            run.result()
    assert log.of("error") == [(0, "NodeError")]
    assert log.of("end") == [(0, True)]


@pytest.mark.anyio
async def test_an_asynchronous_op_is_a_call_and_turns_before_and_after(model):
    log = Log()
    async with ag.ActorMachine([later(model.loss).named("reply")]) as machine:
        with ag.trace.use(log):
            gates.append(anyio.Event())
            runs = [machine.start(model.feeds) for _ in range(3)]
            await until(
                lambda: len([name for _, name, _ in log.of("turn") if name == "reply"]) >= 3
            )
            gates[-1].set()
            for run in runs:
                await run
            settled(machine)
    assert sorted(log.of("call")) == [(n, "reply", True) for n in range(3)]
    turns = [number for number, name, _ in log.of("turn") if name == "reply"]
    assert turns[:3] == [0, 1, 2]
    assert sorted(turns[3:]) == [0, 1, 2]


HOOKS = [name for name in vars(ag.trace.Instrument) if name.startswith("on_")]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_instrument_that_raises_is_dismissed_and_the_run_goes_on(hook, error, model, caplog):
    def fail(*args):
        raise error("a bug of the tool")

    faulty, log = type("Faulty", (ag.trace.Instrument,), {hook: fail})(), Log()
    with model.actors() as machine, caplog.at_level(logging.ERROR, "actorgraph"):
        with ag.trace.use(faulty), ag.trace.use(log):
            first = machine.run_sync(model.feeds)
            second = machine.run_sync(model.feeds)
            settled(machine)
        assert np.array_equal(first[model.loss].value, second[model.loss].value)
    assert len(log.of("end")) == 2
    raised = hook not in ("on_direct", "on_call", "on_error", "on_job")
    assert (f"{hook} of " in caplog.text) == raised
    assert caplog.text.count("is not called any more") == raised


def test_an_instrument_of_one_machine_hears_of_no_other(model):
    log = Log()
    with model.actors() as machine, model.actors() as other, ag.trace.use(log, machine):
        other.run_sync(model.feeds)
        assert log.told == []
        run = machine.run_sync(model.feeds)
        settled(machine)
    assert {entry[1] for entry in log.told} == {run.number}
    assert len(log.of("turn")) > 0


def test_an_instrument_stays_while_its_machine_begins_another_mode(model):
    log = Log()
    with model.actors() as machine, model.actors() as other, ag.trace.use(log, machine):
        machine.run_sync(model.feeds)
        told = len(log.told)

        def begin_mode(frame, event, arg):
            """Between any two lines of what passes hooks on, as another thread might."""
            machine._plans[len(machine._plans)] = None
            return begin_mode

        def trace(frame, event, arg):
            return begin_mode if frame.f_code.co_filename.endswith("using.py") else None

        before, known = sys.gettrace(), dict(machine._plans)
        sys.settrace(trace)
        try:
            other.run_sync(model.feeds)
        finally:
            sys.settrace(before)
        assert len(machine._plans) > len(known)
        machine._plans = known
        machine.run_sync(model.feeds)
        settled(machine)
    assert len(log.told) > told


def test_use_refuses_what_is_no_instrument(model):
    with pytest.raises(TypeError, match=r"expected an instance of ag.trace.Instrument, got <class"):
        ag.trace.use(Log).__enter__()
    with pytest.raises(TypeError, match="expected machines after the instrument, got str"):
        ag.trace.use(Log(), "machine").__enter__()


def test_compiled_steps_are_told_of_too(model):
    log = Log()
    with ag.TapeMachine([model.loss]) as machine, ag.trace.use(log, machine):
        machine.compile_step(ag.solvers.SGD(0.1))(model.feeds)
    assert [entry[0] for entry in log.told] == ["feeds", "start", "direct", "end"]


class Late(deque):
    """A queue into which a message comes right after somebody has found it empty."""

    def __bool__(self):
        empty = len(self) == 0
        if empty:
            self.append(SimpleNamespace(run="the run"))
        return not empty


class Hears(ag.trace.Instrument):
    def __init__(self):
        self.told = []

    def on_turn(self, task, run, started, ended):
        self.told.append(run)


def made_up(queue, send):
    """Return a task that receives from `queue` and makes its turns by `send`."""
    task = Task(SimpleNamespace(steps=()), [])
    task.ports = [SimpleNamespace(messages=queue)]
    task.send = send
    return task


def test_a_message_that_comes_after_the_look_waits_for_the_next_turn():
    queue = Late()
    task = made_up(queue, lambda push: queue.popleft() and None)
    with ag.trace.use(Hears()) as hears:
        turn = instrument.observed(task)
        turn(None)
        assert hears.told == []
        assert task.wait is queue  # filled, so the worker makes the task ready again
        assert len(queue) == 1
        turn(None)
    assert hears.told == ["the run"]


def test_a_second_worker_is_refused_while_a_turn_is_looked_at():
    def turn(push):
        with pytest.raises(ValueError, match="already executing"):
            task.observed(None)  # as another worker would
        assert task.watch.gi_running  # which is what `settle` waits for
        queue.popleft()

    queue = deque([SimpleNamespace(run="the run")])
    task = made_up(queue, turn)
    with ag.trace.use(Hears()) as hears:
        instrument.observed(task)(None)
    assert hears.told == ["the run"]
    assert not task.watch.gi_running


def test_a_turn_that_began_unseen_is_waited_for_and_not_told_of():
    def turn(push):
        if not seen:
            seen.append(True)
            raise ValueError("generator already executing")
        return queue.popleft() and None

    seen, queue = [], deque([SimpleNamespace(run="the run")])
    task = made_up(queue, turn)
    task.wait = queue
    with ag.trace.use(Hears()) as hears:
        assert instrument.observed(task)(None) is None
        assert hears.told == []
        assert task.wait  # so the worker makes the task ready again
        task.observed(None)
    assert hears.told == ["the run"]


def test_two_instruments_hear_of_the_same_turns_and_of_none_when_they_are_silent(model):
    with model.actors() as machine:
        with ag.trace.use(Hears()) as one:
            with ag.trace.use(Hears()) as other:
                first = machine.run_sync(model.feeds)
                settled(machine)
            second = machine.run_sync(model.feeds)
            settled(machine)
        count = len(machine._networks()[0].tasks)
        machine.run_sync(model.feeds)
    assert other.told == [first] * count
    assert one.told == [first] * count + [second] * count


def test_an_instrument_that_has_heard_its_last_turn_is_kept_alive_by_nobody(model):
    with model.actors() as machine:
        hears = Hears()
        seen = weakref.ref(hears)
        with ag.trace.use(hears):
            run = machine.run_sync(model.feeds)
            settled(machine)
        assert run in hears.told
        del hears
        gc.collect()
        assert seen() is None


def test_an_instrument_whose_subscription_is_dropped_is_kept_alive_by_nobody():
    hears = Hears()
    seen, subscription = weakref.ref(hears), instrument.listen(hears)
    del hears, subscription
    gc.collect()
    assert seen() is None


def test_an_attribute_of_an_instrument_named_as_ours_changes_nothing(model):
    class Counts(ag.trace.Instrument):
        turns = 0

        def on_turn(self, task, run, started, ended):
            self.turns += 1

    with model.actors() as machine, ag.trace.use(Counts()) as counts:
        machine.run_sync(model.feeds)
        settled(machine)
        assert counts.turns == len(machine._networks()[0].tasks)


def test_an_actor_that_is_looked_at_keeps_no_run_alive(model):
    with model.actors() as machine, ag.trace.record():
        seen = weakref.ref(machine.run_sync(model.feeds))
        settled(machine)
        gc.collect()
        assert seen() is None
