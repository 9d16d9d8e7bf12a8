"""What an op of the user's sees of the context in which its run was started."""

from contextvars import ContextVar

import anyio
import pytest

import actorgraph as ag
from tests._each import each
from tests.machines.test_overlapping_calls import (
    LOOP,
    THREAD,
    anyio_backend,
    feeds,
    machines,
    size,
)  # fmt: skip

__all__ = ["anyio_backend", "size"]


pytestmark = pytest.mark.usefixtures("size")
REQUEST = ContextVar("REQUEST", default="nobody")
_seen = []


def look(xp, x):
    _seen.append(REQUEST.get())
    REQUEST.set("an op's own")
    return x * 2.0


async def look_later(xp, x):
    return look(xp, x)


LOOKS = {
    "worker": ag.ops.define("calls_look", scheme="f[*s] -> f[*s]", forward=look),
    LOOP: ag.ops.define("calls_look_later", scheme="f[*s] -> f[*s]", forward=look_later),
    THREAD: ag.ops.define("calls_look_apart", scheme="f[*s] -> f[*s]", forward=look, blocking=True),
    "cheap": ag.ops.define(
        "calls_look_cheaply", scheme="f[*s] -> f[*s]", forward=look, cost=lambda *_: 1.0
    ),
    "opaque": ag.ops.opaque(lambda x: look(None, x), name="calls_look_opaque"),
}


@machines
@pytest.mark.parametrize("way", LOOKS)
@pytest.mark.anyio
async def test_ops_see_the_context_of_their_runs_caller(machine_type, options, way):
    x = ag.Graph().input("x", (2,), "float64")
    y = LOOKS[way](ag.ops.tanh(LOOKS[way](x)))
    _seen.clear()

    async def request(name):
        REQUEST.set(name)
        await machine.run(feeds(1))

    async with (
        machine_type([y], max_in_flight=4, **options) as machine,
        anyio.create_task_group() as group,
    ):
        for number in range(6):
            group.start_soon(request, f"request {number}")
    assert sorted(_seen) == sorted([f"request {number}" for number in range(6)] * 2)
    assert REQUEST.get() == "nobody"


@machines
@each("way", LOOKS)
def test_ops_see_the_context_of_a_plain_thread(machine_type, options, way):
    x = ag.Graph().input("x", (2,), "float64")
    y = LOOKS[way](ag.ops.tanh(LOOKS[way](x)))
    _seen.clear()
    before = REQUEST.set("a thread's")
    try:
        with machine_type([y], max_in_flight=4, **options) as machine:
            machine.run_sync(feeds(1))
            if way != LOOP:
                machine.start(feeds(1)).result(timeout_s=20)
    finally:
        REQUEST.reset(before)
    assert set(_seen) == {"a thread's"}
