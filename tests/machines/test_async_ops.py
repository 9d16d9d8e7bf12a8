"""Ops whose forward is a coroutine function: they run on the caller's loop, their actor parked."""

import asyncio
import threading

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from tests._until import until

MACHINES = [
    pytest.param(ag.LispMachine, {}, id="lisp"),
    pytest.param(ag.TapeMachine, {}, id="tape"),
    pytest.param(ag.ActorMachine, {"workers": 1}, id="one worker"),
    pytest.param(ag.ActorMachine, {"workers": 2, "fuse": "all"}, id="fused"),
]
machines = pytest.mark.parametrize(("machine_type", "options"), MACHINES)
SEEN = []


class Service:
    """What the asynchronous op calls: it may fail, wait, or tell who is there."""

    def __init__(self):
        self.inside = self.most_inside = self.cancelled = 0
        self.raises = None
        self.threads = set()
        self.wait_for = 0  # calls that have to be inside before one returns
        self.calls = self.exempt = 0  # the first ones, which wait for nobody
        self.never = False
        self.entered = None  # called when somebody comes in

    async def answer(self, x):
        self.threads.add(threading.get_ident())
        self.inside += 1
        self.calls += 1
        waits = self.calls > self.exempt
        if self.entered is not None:
            self.entered()
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await until(lambda: not self.never and (not waits or self.most_inside >= self.wait_for))
            await anyio.lowlevel.checkpoint()
            if self.raises is not None:
                raise self.raises("from the service")
            return x * 2
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1


_service = [Service()]


@pytest.fixture(autouse=True)
def service():
    _service[0] = Service()
    return _service[0]


async def _call(xp, x):
    return await _service[0].answer(x)


remote = ag.ops.define(
    "machines_remote",
    scheme="f[*s] -> f[*s]",
    forward=_call,
    vjp=(lambda ct, y, x: remote(ct),),
    jvp=lambda tans, y, x: remote(tans[0]),
)
halved = ag.ops.define(
    "machines_remote_in_the_middle",
    scheme="f[*s] -> f[*s]",
    forward=lambda xp, x: x / 2,
    # Three steps of one fragment, the asynchronous one in the middle, and a residual.
    vjp=(lambda ct, y, x: remote(ct * 0.125) * 2 + (x - x),),
)


def branches(count=3):
    graph = ag.Graph()
    x = graph.input("x", (2,), "float64")
    return graph, [ag.ops.tanh(remote(x * float(factor + 1))) for factor in range(count)]


def value(factor):
    return np.tanh(2 * factor * np.ones(2))


ONES = {"x": np.ones(2)}


@pytest.mark.anyio
async def test_several_nodes_wait_for_their_service_at_once(service):
    _, outputs = branches(5)
    service.wait_for = 5
    async with ag.ActorMachine(outputs, workers=1) as machine:
        with anyio.fail_after(20):
            await machine.run(ONES)
    assert service.most_inside == 5


@pytest.mark.anyio
async def test_several_runs_wait_in_different_nodes_at_once(service):
    x = ag.Graph().input("x", (2,), "float64")
    chain = remote(ag.ops.tanh(remote(ag.ops.tanh(remote(x)))))
    service.wait_for, service.exempt = 2, 1  # run 0 in the second node, run 1 in the first
    async with ag.ActorMachine([chain], workers=2) as machine:
        with anyio.fail_after(20):
            runs = [machine.start({"x": np.full(2, float(i))}) for i in range(6)]
            for i, run in enumerate(runs):
                await run
                wanted = 2 * np.tanh(2 * np.tanh(2 * np.full(2, float(i))))
                np.testing.assert_array_equal(run[chain].value, wanted)


@machines
@pytest.mark.anyio
async def test_cancelling_the_caller_cancels_the_call(machine_type, options, service):
    _, outputs = branches()
    service.never = True
    async with machine_type(outputs, **options) as machine:
        with anyio.CancelScope() as scope:
            service.entered = scope.cancel
            await machine.run(ONES)
        assert scope.cancelled_caught
        assert service.inside == 0
        assert service.cancelled >= 1
        service.never, service.entered = False, None
        run = await machine.run(ONES)
        np.testing.assert_allclose(run[outputs[2]].value, value(3))


@machines
@pytest.mark.anyio
async def test_cancelling_the_run_cancels_the_call(machine_type, options, service):
    _, outputs = branches()
    service.never = True
    async with machine_type(outputs, **options) as machine:
        run = machine.start(ONES)
        await until(lambda: service.inside)
        assert run.cancel()
        with anyio.fail_after(20), pytest.raises(ag.RunCancelled, match="was cancelled"):
            await run
        assert service.inside == 0


@machines
@pytest.mark.anyio
async def test_a_deadline_ends_the_call(machine_type, options, service, clock):
    _, outputs = branches()
    service.never = True
    async with machine_type(outputs, **options) as machine:
        run = machine.start(ONES, timeout_s=3600)
        await until(lambda: service.inside)
        clock.move_on(3600)
        with anyio.fail_after(20), pytest.raises(TimeoutError, match="did not end in time"):
            await run
        assert service.inside == 0


@machines
@pytest.mark.anyio
async def test_closing_ends_calls_under_way(machine_type, options, service):
    _, outputs = branches()
    service.never = True
    machine = machine_type(outputs, **options)
    run = machine.start(ONES)
    await until(lambda: service.inside)
    with anyio.fail_after(20):
        await machine.aclose()
    assert service.inside == 0
    with pytest.raises(ag.MachineClosedError, match="was closed during run 0"):
        await run


@machines
def test_run_sync_brings_a_loop_of_its_own(machine_type, options, service):
    _, outputs = branches()
    with machine_type(outputs, **options) as machine:
        for _ in range(2):
            run = machine.run_sync(ONES)
            np.testing.assert_allclose(run[outputs[1]].value, value(2))
        service.raises = ValueError
        with pytest.raises(ag.NodeError, match="from the service"):
            machine.run_sync(ONES)


@machines
def test_start_outside_a_loop_says_where_to_call_it(machine_type, options):
    _, outputs = branches()
    with (
        machine_type(outputs, **options) as machine,
        pytest.raises(ag.GraphError, match="call start.. inside one, or use run_sync"),
    ):
        machine.start(ONES)


@machines
@pytest.mark.anyio
async def test_gradients_and_tangents_go_through_asynchronous_rules(machine_type, options):
    x = ag.Graph().input("x", (2,), "float64")
    y = remote(x * 3)
    z = halved(y)
    async with machine_type([y, z], wrt=[x], **options) as machine:
        for _ in range(2):
            with anyio.fail_after(20):
                run = await machine.run(ONES, backward={y: np.ones(2), z: np.ones(2)})
                np.testing.assert_array_equal(run[x].grad, 6 + 3)
        with anyio.fail_after(20):
            run = await machine.run(ONES, backward={z: np.ones(2)})
            np.testing.assert_array_equal(run[x].grad, 3)


@machines
@pytest.mark.anyio
async def test_tangents_go_through_asynchronous_rules(machine_type, options):
    x = ag.Graph().input("x", (2,), "float64")
    y = remote(x * 3)
    async with machine_type([y], wrt=[x], **options) as machine:
        with anyio.fail_after(20):
            run = await machine.run(ONES, tangents={x: np.ones(2)})
        np.testing.assert_array_equal(run[y].tangent, 6)


@machines
@pytest.mark.anyio
async def test_asynchronous_results_are_checked_and_watched(machine_type, options, service):
    x = ag.Graph().input("x", (2,), "float64")
    async with machine_type([remote(x)], watch=("nan",), **options) as machine:
        with pytest.raises(ag.NodeError, match="the result has NaN"):
            await machine.run({"x": np.array([1.0, np.nan])})


@machines
def test_a_loop_that_ends_in_mid_run_ends_the_run(machine_type, options, service):
    _, outputs = branches()
    service.never = True
    with machine_type(outputs, **options) as machine:
        started = []

        async def leave_without_waiting():
            started.append(machine.start(ONES))
            await until(lambda: service.inside)

        asyncio.run(leave_without_waiting())
        # Of the two calls one may not have come to the loop before it ended.
        with pytest.raises(ag.GraphError, match="event loop (gave up the call|of the run was clo)"):
            started[0].result(timeout_s=20)
        assert service.inside == 0
        service.never = False
        np.testing.assert_allclose(machine.run_sync(ONES)[outputs[0]].value, value(1))


@machines
def test_closing_after_the_loop_has_ended_does_not_hang(machine_type, options, service):
    _, outputs = branches()
    service.never = True
    machine = machine_type(outputs, **options)

    async def leave_at_once():
        return machine.start(ONES)

    run = asyncio.run(leave_at_once())
    machine.close()
    with pytest.raises(ag.GraphError, match="closed|cancelled"):
        run.result(timeout_s=20)


@pytest.mark.anyio
async def test_the_thread_of_the_loop_works_on_the_actors_of_a_small_run():
    x = ag.Graph().input("x", (3,))
    y = ag.ops.tanh(remote(x * 2.0))
    before = set(threading.enumerate())
    async with ag.ActorMachine([y], workers=2, fuse="none") as machine:
        for _ in range(3):
            run = await machine.run({"x": np.ones(3, "float32")})
            np.testing.assert_array_equal(run[y].value, np.tanh(np.full(3, 4.0, "float32")))
        started = set(threading.enumerate()) - before
    assert not [thread for thread in started if thread.name.startswith("actorgraph-")]
