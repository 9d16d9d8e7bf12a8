"""Waiting on an event loop, in tests."""

import anyio


async def until(condition):
    """Let others go on until a condition holds, or fail after 30 s.

    That is before the timeout of pytest, which would stop trio without ending its loop.
    """
    with anyio.fail_after(30):
        while not condition():
            await anyio.lowlevel.checkpoint()
