"""Small runs with asynchronous ops, which the task that awaits them computes by itself."""

import asyncio
from contextlib import aclosing, nullcontext, suppress

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines.event_loops import loop_notifier
from tests._until import until

POINTS = 4
ONES = {"x": np.ones(2)}


class Place:
    """Where calls of the op are, and what they do there."""

    def __init__(self):
        self.inside = self.cleaned = 0
        self.at = {}  # by await point: what is called before it
        self.stays = False
        self.deaf = False
        self.limit_s = None

    async def visit(self, x):
        self.inside += 1
        try:
            for point in range(POINTS):
                await self.wait(point)
            await until(lambda: not self.stays)
        except BaseException:
            if not self.deaf:
                raise
        finally:
            self.inside -= 1
            self.cleaned += 1
        return x + 1.0

    async def wait(self, point):
        self.at.get(point, lambda: None)()
        if self.limit_s is None:
            await anyio.lowlevel.checkpoint()
        else:
            with anyio.move_on_after(self.limit_s):
                await anyio.sleep_forever()


place = Place()


@pytest.fixture(autouse=True)
def fresh():
    place.__init__()


async def visit(xp, x):
    return await place.visit(x)


VISIT = ag.ops.define("on_loop_visit", scheme="f[*s] -> f[*s]", forward=visit)
ALONE = ag.ops.define("on_loop_alone", scheme="f[*s] -> f[*s]", forward=visit, concurrency=1)


def machine_of(op=VISIT, **options):
    x = ag.Graph().input("x", (2,), "float64")
    return ag.ActorMachine({"y": op(ag.ops.tanh(op(x * 2.0)))}, workers=1, **options)


WANTED = np.tanh(np.full(2, 3.0)) + 1.0
points = pytest.mark.parametrize("point", range(POINTS))


async def check(machine, anyio_backend):
    """Nothing is left of a run, in the machine or in this task, and the next one is right."""
    place.__init__()
    core = machine._core
    assert not core.calls
    assert not core.admission.direct
    if anyio_backend == "asyncio":
        assert asyncio.current_task().cancelling() == 0
    await anyio.lowlevel.checkpoint()
    run = await machine.run(ONES)
    np.testing.assert_array_equal(run["y"].value, WANTED)


@pytest.mark.anyio
async def test_an_awaited_run_makes_no_task():
    made = []

    def factory(loop, coroutine, **options):
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def run_it():
        async with machine_of() as machine:
            asyncio.get_running_loop().set_task_factory(factory)
            await machine.run(ONES)
            assert not made
            await machine.start(ONES)
            assert len(made) == 1

    await anyio.to_thread.run_sync(asyncio.run, run_it())


@pytest.mark.anyio
async def test_explain_counts_the_runs_that_the_loop_has_computed():
    async with machine_of() as machine:
        for _ in range(3):
            await machine.run(ONES)
        assert "in the calling thread, without actors" in machine.explain()
        assert "mean of 3" in machine.explain()


@pytest.mark.parametrize("max_bytes", [None, 1 << 20])
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.anyio
async def test_an_awaited_run_has_actors_where_memory_is_limited_or_somebody_listens(
    max_bytes, listens
):
    listener = ag.trace.use(ag.trace.Instrument()) if listens else nullcontext()
    async with machine_of(max_bytes=max_bytes) as machine:
        with listener:
            await machine.run(ONES)
        assert bool(machine._core.networks) is bool(max_bytes or listens)


@pytest.mark.parametrize("errors", ["warn", "raise"])
@pytest.mark.parametrize("jit", [False, "wait"])
@pytest.mark.anyio
async def test_an_awaited_run_has_actors_where_compiled_loops_are_to_raise(jit, errors):
    async with machine_of(jit=jit, exact=False) as machine:
        with np.errstate(all=errors):
            await machine.run(ONES)
        assert bool(machine._core.networks) is (jit == "wait" and errors == "raise")


@points
@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.anyio
async def test_a_scope_cancels_at_each_await(point, deaf, anyio_backend):
    async with machine_of() as machine:
        with anyio.CancelScope() as scope:
            place.at[point], place.deaf = scope.cancel, deaf
            await machine.run(ONES)
        assert scope.cancelled_caught
        assert place.inside == 0
        await check(machine, anyio_backend)


@points
@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.anyio
async def test_a_task_is_cancelled_at_each_await(point, deaf, times, anyio_backend):
    if anyio_backend == "trio":
        pytest.skip("its tasks are cancelled by scopes")
    async with machine_of() as machine:
        task = asyncio.create_task(machine.run(ONES))
        place.deaf = deaf
        place.at[point] = lambda: [task.cancel("storm") for _ in range(times)]
        with pytest.raises(asyncio.CancelledError, match="storm"):
            await task
        assert task.cancelled()
        assert place.inside == 0
        await check(machine, anyio_backend)


@points
@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.anyio
async def test_a_deadline_comes_at_each_await(point, deaf, clock, anyio_backend):
    async with machine_of() as machine:
        place.stays, place.deaf = not deaf, deaf
        place.at[point] = lambda: clock.move_on(3600)
        with anyio.fail_after(20), pytest.raises(TimeoutError, match="did not end in time, 3600 s"):
            await machine.run(ONES, timeout_s=3600)
        assert place.inside == 0
        await check(machine, anyio_backend)


@points
@pytest.mark.anyio
async def test_a_deadline_and_a_scope_come_at_once(point, clock, anyio_backend):
    async with machine_of() as machine:
        with anyio.CancelScope() as scope:

            def both():
                clock.move_on(3600)
                scope.cancel()

            place.stays, place.at[point] = True, both
            with suppress(TimeoutError):
                await machine.run(ONES, timeout_s=3600)
        await check(machine, anyio_backend)


@pytest.mark.parametrize("first", ["run", "scope"])
@pytest.mark.anyio
async def test_a_death_and_a_scope_come_in_one_turn_of_the_loop(first, anyio_backend):
    """The scope knows its own error, though the run cancels the op as well."""
    async with machine_of() as machine, anyio.create_task_group() as group:
        place.stays = True
        scope = anyio.CancelScope()

        async def end_it():
            await until(lambda: place.inside)
            notify = loop_notifier()
            [waiting] = machine._core.calls.of()
            ends = [waiting.run.cancel, lambda: notify(scope.cancel)]
            for end in ends if first == "run" else reversed(ends):
                end()

        group.start_soon(end_it)
        with scope, suppress(ag.RunCancelled):
            await machine.run(ONES)
        await check(machine, anyio_backend)


@pytest.mark.anyio
async def test_closing_ends_an_awaited_run(anyio_backend):
    machine = machine_of()
    place.stays = True
    async with anyio.create_task_group() as group:

        async def wait():
            with pytest.raises(ag.MachineClosedError, match="was closed during run 0"):
                await machine.run(ONES)
            if anyio_backend == "asyncio":
                assert asyncio.current_task().cancelling() == 0
            await anyio.lowlevel.checkpoint()

        group.start_soon(wait)
        await until(lambda: place.inside)
        with anyio.fail_after(20):
            await machine.aclose()
        assert (place.inside, place.cleaned) == (0, 1)


@pytest.mark.anyio
async def test_timeouts_of_an_op_are_its_own(anyio_backend):
    """They cancel the task of the caller, which is not cancelled."""
    async with machine_of() as machine:
        place.limit_s = 0.0
        run = await machine.run(ONES)
        np.testing.assert_array_equal(run["y"].value, WANTED)
        await check(machine, anyio_backend)


@pytest.mark.anyio
async def test_a_run_that_dies_with_a_timeout_of_its_op_ends_the_op(anyio_backend):
    async with machine_of() as machine:
        place.limit_s, place.stays = 0.0, True
        place.at[1] = lambda: machine._core.calls.of()[0].run.cancel()
        with anyio.fail_after(20), pytest.raises(ag.RunCancelled, match="run 0 was cancelled"):
            await machine.run(ONES)
        assert place.inside == 0
        await check(machine, anyio_backend)


@pytest.mark.anyio
async def test_an_op_that_runs_another_machine_is_cancelled_with_it(anyio_backend):
    async with machine_of() as inner, machine_of(NESTED) as outer:
        _inner[:] = [inner]
        place.stays = True
        with anyio.CancelScope() as scope:
            place.at[1] = scope.cancel
            await outer.run(ONES)
        assert scope.cancelled_caught
        assert not outer._core.calls
        await check(inner, anyio_backend)
        place.stays = True
        run = outer.start(ONES)
        await until(lambda: place.inside)
        run.cancel()
        with pytest.raises(ag.RunCancelled, match="was cancelled"):
            await run
        await check(inner, anyio_backend)


_inner = []


async def _nested(xp, x):
    return (await _inner[0].run({"x": x}))["y"].value


NESTED = ag.ops.define("on_loop_nested", scheme="f[*s] -> f[*s]", forward=_nested)


@points
@pytest.mark.anyio
async def test_a_place_in_line_is_given_up(point, anyio_backend):
    """Whoever is cancelled while the one before leaves neither keeps the room nor loses it."""
    async with machine_of(ALONE, max_in_flight=8) as machine, machine_of(ALONE) as other:
        async with anyio.create_task_group() as group:
            scopes = [anyio.CancelScope() for _ in range(3)]

            async def wait(scope):
                with scope:
                    await machine.run(ONES)

            place.at[point] = lambda: [scope.cancel() for scope in scopes]
            first = machine.start(ONES)
            for scope in scopes:
                group.start_soon(wait, scope)
            with anyio.fail_after(20):
                await first
        assert place.inside == 0
        place.__init__()
        await check(machine, anyio_backend)
        with anyio.fail_after(20):
            await other.run(ONES)


def test_a_coroutine_that_is_closed_ends_its_run():
    async def run_it():
        async with machine_of() as machine:
            place.stays = True
            waiting = machine.run(ONES)
            async with aclosing(_Closing(waiting)):
                await asyncio.get_running_loop().run_in_executor(None, int)
                waiting.send(None)
                assert place.inside == 1
            assert (place.inside, place.cleaned) == (0, 1)
            await check(machine, "asyncio")

    asyncio.run(run_it())


class _Closing:
    def __init__(self, coroutine):
        self.coroutine = coroutine

    async def aclose(self):
        self.coroutine.close()
