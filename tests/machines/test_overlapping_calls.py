"""Ops that wait, on an event loop or in threads: as many calls at once as runs are in flight."""

import asyncio
import gc
import sys
import threading
import weakref

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.lower.kernels import _gate_of
from actorgraph.machines import calls
from actorgraph.machines.base import Machine
from tests._until import until

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 2}, id="two workers"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all", "seed": 7}, id="fused"),
    pytest.param(
        ag.ActorMachine, {"workers": 2, "fuse": "none", "capacity": 1}, id="an actor a node"
    ),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
LOOP, THREAD = "loop", "thread"
kinds = pytest.mark.parametrize("kind", [LOOP, THREAD])
AT_ONCE = 16


class Service:
    """Lets nobody go before so many are inside at once; notes who was there."""

    def __init__(self):
        self.lock = threading.Condition()
        self.wanted = 0
        self.inside = self.most = 0
        self.order = []
        self.holds = lambda x: False
        self.raises = lambda x: None
        self.changed = {}

    def enter(self, x):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(float(x[0]))
            self.lock.notify_all()

    def may_go(self, x):
        return self.most >= self.wanted and not self.holds(float(x[0]))

    def leave(self, x):
        with self.lock:
            self.inside -= 1
        error = self.raises(float(x[0]))
        if error is not None:
            raise error
        return x + 1.0

    def release(self):
        with self.lock:
            self.holds = lambda x: False
            self.lock.notify_all()


service = Service()


@pytest.fixture(autouse=True)
def fresh(size):
    """A new service."""
    service.__init__()


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch):
    """Runs that stay on the loop where they may, or pass through actors."""
    if request.param == "large":
        monkeypatch.setattr(Machine, "_small", lambda machine, run, sequential_us=0.0: False)
    return request.param


@pytest.fixture
def anyio_backend(request, size):
    """Have kinds of ops, machines and sizes of runs take turns on both loops."""
    given = request.node.callspec.params
    machine = [given.get(name) for name in ("machine_type", "options")]
    odd = [MACHINES.index(one) for one in MACHINES if [*one.values] == machine]
    odd += [given.get("kind") == THREAD, given.get("way") in ("cheap", THREAD), size == "large"]
    return ("asyncio", "trio")[sum(odd) % 2]


async def ask(xp, x):
    service.enter(x)
    await until(lambda: service.may_go(x))
    return service.leave(x)


def wait(xp, x):
    service.enter(x)
    with service.lock:
        assert service.lock.wait_for(lambda: service.may_go(x), 20)
    return service.leave(x)


def declare(name, forward, **more):
    return ag.ops.define(
        name,
        scheme="f[*s] -> f[*s]",
        forward=forward,
        vjp=(lambda ct, y, x: OPS[name](ct) * 2.0,),
        jvp=lambda tans, y, x: OPS[name](tans[0]) * 2.0,
        **more,
    )


OPS = {}
for _kind, _forward, _more in ((LOOP, ask, {}), (THREAD, wait, {"blocking": True})):
    OPS[_kind] = OPS[f"calls_{_kind}"] = declare(f"calls_{_kind}", _forward, **_more)
    for _limit in (1, 3):
        _name = f"calls_{_kind}_{_limit}"
        OPS[_kind, _limit] = OPS[_name] = declare(_name, _forward, concurrency=_limit, **_more)


def called(op, backward=False):
    x = ag.Graph().input("x", (2,), "float64")
    return x, ag.ops.tanh(op(x * 2.0))


def in_line(op):
    return len(_gate_of(op.op)._queue)


def feeds(number):
    return {"x": np.full(2, float(number))}


def expected(number):
    return np.tanh(np.full(2, number * 2.0) + 1.0)


@kinds
@machines
@pytest.mark.anyio
async def test_all_runs_in_flight_wait_at_once_and_their_results_are_theirs(
    machine_type, options, kind
):
    _, y = called(OPS[kind])
    service.wanted = AT_ONCE
    async with machine_type([y], max_in_flight=AT_ONCE, **options) as machine:
        with anyio.fail_after(30):
            for _ in range(2):
                runs = [machine.start(feeds(number)) for number in range(AT_ONCE)]
                for number, run in enumerate(runs):
                    await run
                    np.testing.assert_array_equal(run[y].value, expected(number))
    assert service.most == AT_ONCE


@kinds
@machines
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["backward", "tangents"])
async def test_rules_that_wait_overlap_as_well(machine_type, options, kind, mode):
    x, y = called(OPS[kind])
    given = {"backward": {y: np.ones(2)}} if mode == "backward" else {"tangents": {x: np.ones(2)}}
    async with machine_type([y], wrt=[x], max_in_flight=4, **options) as machine:
        service.holds = lambda x: True
        with anyio.fail_after(30):
            runs = [machine.start(feeds(number), **given) for number in range(4)]
            await until(lambda: service.inside == 4)
            service.release()
            for number, run in enumerate(runs):
                await run
                slope = 1 - expected(number) ** 2
                if mode == "backward":
                    np.testing.assert_array_equal(run[x].grad, (slope + 1.0) * 2.0 * 2.0)
                else:
                    np.testing.assert_array_equal(run[y].tangent, 3.0 * 2.0 * slope)
    assert service.most >= 4


@kinds
@machines
@pytest.mark.anyio
async def test_a_stream_keeps_as_many_calls_under_way_and_its_order(machine_type, options, kind):
    _, y = called(OPS[kind])
    service.wanted = 5
    async with machine_type([y], max_in_flight=5, **options) as machine:
        with anyio.fail_after(30):
            number = 0
            async for run in machine.stream(feeds(number) for number in range(12)):
                np.testing.assert_array_equal(run[y].value, expected(number))
                number += 1
    assert number == 12
    assert service.most == 5


@pytest.mark.parametrize("limit", [1, 3])
@kinds
@machines
def test_a_limit_holds_for_all_machines_together(machine_type, options, kind, limit):
    _, y = called(OPS[kind, limit])
    service.wanted = limit

    async def both():
        async with (
            machine_type([y], max_in_flight=8, **options) as one,
            machine_type([y], max_in_flight=8, **options) as two,
        ):
            runs = [(one, two)[n % 2].start(feeds(n)) for n in range(16)]
            for number, run in enumerate(runs):
                await run
                np.testing.assert_array_equal(run[y].value, expected(number))

    asyncio.run(asyncio.wait_for(both(), 30))
    assert service.most == limit


@kinds
@pytest.mark.anyio
async def test_the_most_urgent_run_is_next_at_a_limit(kind):
    _, y = called(OPS[kind, 1])
    service.holds = lambda x: x == 0.0
    async with ag.ActorMachine([y], workers=2, max_in_flight=8) as machine:
        with anyio.fail_after(30):
            runs = [machine.start(feeds(0))]
            await until(lambda: service.inside)
            runs += [machine.start(feeds(n), priority=p) for n, p in ((1, 5), (2, 0), (3, -5))]
            await until(lambda: in_line(OPS[kind, 1]) == 3)
            service.release()
            for run in runs:
                await run
    assert service.order == [0.0, 6.0, 4.0, 2.0]


@kinds
@machines
@pytest.mark.anyio
async def test_what_waits_longer_is_handed_on_first_if_its_run_came_first(
    machine_type, options, kind
):
    """The first call ends last, and no later run of the network passes it."""
    x = ag.Graph().input("x", (2,), "float64")
    seen = []
    log = ag.ops.opaque(lambda x: seen.append(float(x[0])) or x.copy())
    y = log(ag.ops.tanh(OPS[kind](x)))
    service.holds = lambda x: x == 0.0
    async with machine_type([y], max_in_flight=4, **options) as machine:
        with anyio.fail_after(30):
            runs = [machine.start(feeds(number)) for number in range(4)]
            await until(lambda: len(service.order) >= 4 and service.inside <= 1)
            service.release()
            for run in runs:
                await run
    assert seen == sorted(seen) or machine_type is ag.LispMachine  # which has no channels inside


@kinds
@machines
@pytest.mark.anyio
async def test_one_of_many_calls_fails_and_the_others_are_right(machine_type, options, kind):
    _, y = called(OPS[kind])
    service.wanted = 6
    service.raises = lambda x: ValueError("no answer") if x in (2.0, 8.0) else None
    async with machine_type([y], max_in_flight=6, **options) as machine:
        with anyio.fail_after(30):
            runs = [machine.start(feeds(number)) for number in range(6)]
            for number, run in enumerate(runs):
                if number in (1, 4):
                    with pytest.raises(ag.NodeError, match="ValueError: no answer") as caught:
                        await run
                    assert caught.value.op == f"calls_{kind}"
                    assert caught.value.inputs == ("float64[2]",)
                else:
                    await run
                    np.testing.assert_array_equal(run[y].value, expected(number))
        assert not machine._core.calls


@kinds
@machines
@pytest.mark.anyio
async def test_runs_are_cancelled_among_others_that_wait(machine_type, options, kind):
    _, y = called(OPS[kind])
    service.holds = lambda x: True
    async with machine_type([y], max_in_flight=5, **options) as machine:
        with anyio.fail_after(30):
            runs = [machine.start(feeds(number)) for number in range(8)]
            await until(lambda: service.inside == 5)
            for number in (0, 3, 6):  # the first, one in the middle, and one that is queued
                assert runs[number].cancel()
            service.release()
            for number, run in enumerate(runs):
                if number in (0, 3, 6):
                    with pytest.raises(ag.RunCancelled, match=f"run {number} was cancelled"):
                        await run
                else:
                    await run
                    np.testing.assert_array_equal(run[y].value, expected(number))


@machines
@pytest.mark.anyio
async def test_a_call_that_waits_for_its_turn_ends_with_its_run(machine_type, options):
    _, y = called(OPS[LOOP, 1])
    service.holds = lambda x: x == 0.0
    async with machine_type([y], max_in_flight=4, **options) as machine:
        with anyio.fail_after(30):
            first = machine.start(feeds(0))
            await until(lambda: service.inside)
            second, third = [machine.start(feeds(number)) for number in (1, 2)]
            await until(lambda: in_line(OPS[LOOP, 1]) == 2)
            second.cancel()
            service.release()
            with pytest.raises(ag.RunCancelled, match="run 1 was cancelled"):
                await second
            await first
            await third
    assert service.order == [0.0, 4.0]


@machines
def test_plain_threads_may_run_ops_that_block(machine_type, options):
    _, y = called(OPS[THREAD])
    service.wanted = 3
    with machine_type([y], max_in_flight=3, **options) as machine:
        runs = [machine.start(feeds(number)) for number in range(3)]
        for number, run in enumerate(runs):
            np.testing.assert_array_equal(run.result(timeout_s=20)[y].value, expected(number))
        for number, run in enumerate(machine.stream(feeds(number) for number in range(6))):
            np.testing.assert_array_equal(run[y].value, expected(number))
        np.testing.assert_array_equal(machine.run_sync(feeds(3))[y].value, expected(3))


_said = threading.Event()
waits = ag.ops.define(
    "calls_waits",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: x + float(_said.wait(20)),
    blocking=True,
)
tells = ag.ops.define(
    "calls_tells", scheme="f[*s] -> f[*s]", forward=lambda xp, x: _said.set() or x.copy()
)
_inner = []
again = ag.ops.define(
    "calls_again", scheme="f[*s] -> f[*s]", forward=lambda xp, x: _inner[0](), blocking=True
)


def test_an_op_that_blocks_holds_no_worker():
    """The one worker computes another branch while the op waits for it."""
    x = ag.Graph().input("x", (2,), "float64")
    _said.clear()
    outputs = [waits(x), tells(x)]
    with ag.ActorMachine(outputs, workers=1, fuse="none") as machine:
        run = machine.run_sync(feeds(1))
        np.testing.assert_array_equal(run[outputs[0]].value, np.full(2, 2.0))


def test_threads_of_ops_that_block_end_with_the_last_machine():
    _, y = called(OPS[THREAD])
    with ag.ActorMachine([y], workers=2) as machine:
        machine.run_sync(feeds(1))
        assert any("waiting" in thread.name for thread in threading.enumerate())
    listed = [thread for thread in threading.enumerate() if "actorgraph" in thread.name]
    assert not any(thread.is_alive() for thread in listed)


def test_an_op_that_blocks_refuses_a_run_of_its_own_machine():
    x = ag.Graph().input("x", (2,), "float64")
    y = again(x)
    _inner[:] = [lambda: machine.run_sync(feeds(0))[y].value]
    with (
        ag.ActorMachine([y], workers=2) as machine,
        pytest.raises(ag.NodeError, match="called inside an op of the same machine"),
    ):
        machine.run_sync(feeds(0))


# -- loops --------------------------------------------------------------------------------------


@machines
@pytest.mark.parametrize("raised", [KeyboardInterrupt, GeneratorExit, SystemExit, StopIteration])
def test_whatever_an_op_raises_in_trio_is_a_node_error(machine_type, options, raised):
    import trio

    _, y = called(OPS[LOOP])
    service.raises = lambda x: raised("from the op")
    told = f"{raised.__name__}: from the op"
    if raised is StopIteration:
        told = "coroutine raised StopIteration"  # Python's own doing

    async def run_it():
        async with machine_type([y], **options) as machine:
            with pytest.raises(ag.NodeError, match=told):
                await machine.run(feeds(1))
            service.raises = lambda x: None
            run = await machine.run(feeds(1))
            np.testing.assert_array_equal(run[y].value, expected(1))

    trio.run(run_it)


_operands = []


async def note(xp, x):
    _operands.append(weakref.ref(x.base))
    return x + 1.0


EAGER = ag.ops.define("calls_eager", scheme="f[*s] -> f[*s]", forward=note)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks yet")
@machines
def test_eager_tasks_leave_nothing_behind(machine_type, options):
    before = set(calls._background)  # other tests close loops in mid-run
    _operands.clear()

    async def run_it():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with machine_type([y], **options) as machine:
            for number in range(3):
                run = await machine.run(feeds(number))
                np.testing.assert_array_equal(run[y].value, np.full(2, number * 2.0 + 1.0))
            await asyncio.sleep(0)
        assert calls._background <= before

    x = ag.Graph().input("x", (2,), "float64")
    y = EAGER(x * 2.0)
    asyncio.run(run_it())
    gc.collect()
    assert [ref() for ref in _operands] == [None] * 3


def test_calls_of_an_awaited_run_in_flight_share_what_max_bytes_allows():
    """What waits keeps its memory: no more runs are admitted than fit."""
    x = ag.Graph().input("x", (1000,), "float64")
    y = ag.ops.tanh(OPS[LOOP](x * 2.0))

    async def run_it():
        async with ag.LispMachine([y], max_in_flight=16, max_bytes=100_000) as machine:
            runs = [machine.start({"x": np.full(1000, float(n))}) for n in range(16)]
            for number, run in enumerate(runs):
                await run
                assert run[y].value[0] == expected(number)[0]

    service.wanted = 2
    asyncio.run(asyncio.wait_for(run_it(), 30))
    assert 2 <= service.most < 16


def test_explain_says_where_calls_wait():
    x = ag.Graph().input("x", (2,), "float64")
    y = OPS[LOOP](OPS[THREAD](x * 2.0))
    with ag.ActorMachine([y], fuse="none") as machine:
        machine.run_sync(feeds(1))
        text = machine.explain()
    assert "calls wait on the caller's event loop" in text
    assert "calls wait in threads" in text


@kinds
@machines
def test_a_compiled_step_waits_for_ops_too(machine_type, options, kind):
    w = ag.Graph().parameter("w", np.ones(2))
    loss = OPS[kind](w * 3.0).sum()
    with machine_type([loss], **options) as machine:
        step = machine.compile_step(ag.solvers.SGD(lr=0.5))
        assert step()[loss].value == 8.0
        # The rule calls the op once more: (1 + 1) * 2, times 3.
        np.testing.assert_array_equal(w.value, np.full(2, 1.0 - 0.5 * 12.0))
