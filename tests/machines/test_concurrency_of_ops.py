"""Which ops run at once: as many as there are workers, and one where the op says so."""

import threading

import anyio
import numpy as np
import pytest

import actorgraph as ag
from actorgraph.machines import calls
from tests._until import until
from tests.machines._faults import COSTLY

ONES = {"x": np.ones(2)}


class Meeting:
    """An op body that waits until so many are inside, or notes how many there were."""

    def __init__(self):
        self.barrier = None
        self.lock = threading.Lock()
        self.inside = self.most_inside = 0

    def __call__(self, xp, x):
        with self.lock:
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
        if self.barrier is not None:
            self.barrier.wait(20)
        with self.lock:
            self.inside -= 1
        return x


meeting = Meeting()


def declare(name, **more):
    return ag.ops.define(
        name,
        scheme="f[*s] -> f[*s]",
        forward=lambda xp, x: meeting(xp, x),
        cost=lambda shapes, result, attrs: COSTLY,
        **more,
    )


together = declare("machines_together")
alone = declare("machines_alone", concurrent=False)


def branches(op, count):
    x = ag.Graph().input("x", (2,), "float64")
    return [ag.ops.tanh(op(x * float(i + 1))) for i in range(count)]


@pytest.fixture(autouse=True)
def fresh():
    meeting.__init__()


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("way", ["run_sync", "start"])
def test_as_many_ops_run_at_once_as_there_are_workers(workers, way):
    meeting.barrier = threading.Barrier(workers)
    with ag.ActorMachine(branches(together, workers), workers=workers) as machine:
        if way == "run_sync":
            machine.run_sync(ONES)
        else:
            machine.start(ONES).result(timeout_s=20)
    assert meeting.most_inside == workers


@pytest.mark.anyio
async def test_ops_of_an_awaited_run_meet_too(anyio_backend):
    meeting.barrier = threading.Barrier(2)
    async with ag.ActorMachine(branches(together, 2), workers=2) as machine:
        with anyio.fail_after(20):
            await machine.run(ONES)


def test_no_more_ops_run_at_once_than_there_are_workers():
    with ag.ActorMachine(branches(together, 8), workers=2) as machine:
        for run in [machine.start(ONES) for _ in range(20)]:
            run.result(timeout_s=20)
    assert meeting.most_inside <= 2


def test_an_op_that_is_not_concurrent_runs_once_at_a_time_in_the_process():
    outputs = branches(alone, 4)
    with ag.ActorMachine(outputs, workers=4) as one, ag.ActorMachine(outputs, workers=4) as two:
        for run in [machine.start(ONES) for machine in (one, two) * 20]:
            run.result(timeout_s=20)
    assert meeting.most_inside == 1


@pytest.mark.anyio
async def test_no_task_is_left_on_the_loop(anyio_backend):
    before = set(calls._background)  # other tests close loops in mid-run
    x = ag.Graph().input("x", (2,), "float64")
    y = slow(x)
    async with ag.ActorMachine([y], workers=2) as machine:
        await machine.run(ONES)
        with anyio.move_on_after(0):
            await machine.run(ONES)
        run = machine.start(ONES)
        run.cancel()
        with pytest.raises(ag.RunCancelled, match="was cancelled"):
            await run
        machine.start(ONES)
    with anyio.fail_after(20):
        await until(lambda: not calls._background - before)
    if anyio_backend == "trio":
        import trio

        (root,) = [trio.lowlevel.current_root_task()]
        names = [task.name for nursery in root.child_nurseries for task in nursery.child_tasks]
        assert not any("spawn" in name for name in names)


async def _slow(xp, x):
    await anyio.lowlevel.checkpoint()
    return x


slow = ag.ops.define("machines_slow", scheme="f[*s] -> f[*s]", forward=_slow)
