"""Calls of asynchronous ops: how they run on an event loop, and what they answer."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from actorgraph import instrument
from actorgraph.machines.run import Run, in_trio
from actorgraph.node_actor import Task

__all__ = ["Raised", "observed", "returned", "spawn"]


def observed(
    run: Run, task: Task, kernel: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    """Return the kernel of a task's op, told of to instruments."""

    async def observed(*args: Any) -> Any:
        started = perf_counter()
        try:
            return await kernel(*args)
        finally:
            instrument.tell("on_call", task, run, started, perf_counter())

    return observed


def returned(value: Any) -> Any:
    """Answer with a result."""
    return value


class Raised:
    """Answers with an exception."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self) -> Any:
        """Raise it."""
        raise self.error


_background: set[Any] = set()


def spawn(call: Callable[[], Awaitable[None]]) -> None:
    """Start `call` on the running loop, outside any task group: its run owns it, not a scope."""
    if in_trio():
        sys.modules["trio"].lowlevel.spawn_system_task(call)
    else:
        import asyncio

        async def held() -> None:
            try:
                await call()
            finally:
                _background.discard(task)

        task = asyncio.ensure_future(held())
        _background.add(task)  # the loop keeps only weak references
