"""`cancel_on_disconnect`: cancels work when its client leaves, in any ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, TypeVar

import anyio

from actorgraph.machines.event_loops import in_trio
from actorgraph.serving.errors import ClientGone

Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""ASGI's: returns the next message."""

_T = TypeVar("_T")


async def cancel_on_disconnect(source: Any, call: Callable[[], Awaitable[_T]]) -> _T:
    """Return the result of a call, which is cancelled when the client leaves.

    No ASGI server cancels a handler by itself, and middleware may hide a disconnect from
    ``request.is_disconnected()``.  Read the body before: this takes the messages that follow it.

    Parameters
    ----------
    source : receive of ASGI, or Request of Starlette or FastAPI
    call : callable
        Takes no arguments, such as ``partial(model.infer, inputs)``.

    Raises
    ------
    ClientGone
        The client has left, so nobody reads the answer.

    Examples
    --------
    >>> import anyio
    >>> import actorgraph as ag
    >>> async def receive():
    ...     await anyio.sleep_forever()  # the client stays
    >>> async def work():
    ...     return 42
    >>> anyio.run(ag.serving.cancel_on_disconnect, receive, work)
    42
    """
    receive: Receive = getattr(source, "receive", source)
    return await (_in_group if in_trio() else _beside_a_task)(receive, call)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _client_gone() -> ClientGone:
    return ClientGone("the client left before the answer was ready")


async def _beside_a_task(receive: Receive, call: Callable[[], Awaitable[_T]]) -> _T:
    """Watch in an asyncio task, which costs a tenth of a task group."""
    import asyncio

    this, answering = asyncio.current_task(), True
    assert this is not None
    cancelled = this.cancelling()

    def ended(watching: asyncio.Task[None]) -> None:
        if answering and not watching.cancelled():
            this.cancel()

    watching = asyncio.ensure_future(_disconnected(receive))
    watching.add_done_callback(ended)
    try:
        return await call()
    except asyncio.CancelledError:
        if watching.done() and this.uncancel() <= cancelled:  # as `asyncio.timeout` does
            watching.result()
            raise _client_gone() from None
        raise
    finally:
        answering = False
        watching.cancel()


async def _in_group(receive: Receive, call: Callable[[], Awaitable[_T]]) -> _T:
    ended: list[_T] = []
    failed: list[Exception] = []

    async def watch() -> None:
        await _disconnected(receive)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        try:
            ended.append(await call())
        except Exception as error:  # noqa: BLE001 - raised below, outside an ExceptionGroup
            failed.append(error)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not ended:
        raise _client_gone()
    return ended[0]
