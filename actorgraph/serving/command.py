"""What `actorgraph serve FILE.py:function` does: serve over HTTP by uvicorn, until a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from actorgraph._target import called, outputs_and_feeds_of
from actorgraph.errors import GraphError
from actorgraph.serving.asgi import asgi
from actorgraph.serving.config import ConfigFile
from actorgraph.serving.server import Server

__all__ = ["serve", "server_of"]


def server_of(target: str, config: ConfigFile | None = None) -> Server:
    """Return the server that the function of a target returns, or one of its outputs.

    Outputs are served under the function's name.  Models are warmed up, outputs by the feeds that
    come with them, so that what cannot run is told before a port is open.

    Raises
    ------
    GraphError
        As `actorgraph._target.called`; or a model does not run.
    """
    returned = called(target)
    if isinstance(returned, Server):
        if config is not None:
            raise GraphError(f"{target} returns a Server, which has its own config: Server(config)")
        server = returned
    else:
        outputs, feeds = outputs_and_feeds_of(target, returned, "a Server, or (outputs, feeds)")
        server = _server(target.rpartition(":")[2], outputs, feeds, config)
    try:
        anyio.run(server.start)
    except BaseException:
        server.close()
        raise
    return server


def _server(name: str, outputs: Any, feeds: Mapping[Any, Any], config: ConfigFile | None) -> Server:
    try:
        server = Server(config)
        server.add(name, outputs, example=feeds)
    except (TypeError, ValueError) as error:
        raise GraphError(str(error)) from error
    return server


def serve(server: Server, *, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C: requests that were taken are answered, new ones get 503.

    The second signal ends at once.  Where the environment has ``ACTORGRAPH_REPOSITORY_TOKEN``,
    models may be loaded and unloaded by who shows it.

    Raises
    ------
    GraphError
        uvicorn is not installed, or the port cannot be had.
    """
    try:
        import uvicorn
    except ImportError:
        server.close()
        raise GraphError(
            'serving needs uvicorn; install it with: pip install "actorgraph[serve]"'
        ) from None

    class QuietUvicorn(uvicorn.Server):
        """Leaves the signals to us: it would close the port before anybody knows."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    app = asgi(server, repository_token=os.environ.get("ACTORGRAPH_REPOSITORY_TOKEN") or None)
    config = uvicorn.Config(app, host=host, port=port, lifespan="on", access_log=False)
    listening = QuietUvicorn(config)
    anyio.run(_until_signal, server, listening)
    if not listening.started:
        raise GraphError(f"cannot serve at {host}:{port}; is the port in use?")


async def _until_signal(server: Server, listening: Any) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_by_signals, server, listening)
        try:
            await listening.serve()
        except SystemExit:  # uvicorn has told why
            pass
        tasks.cancel_scope.cancel()
    await server.aclose()


async def _end_by_signals(server: Server, listening: Any) -> None:
    async def end() -> None:
        await server.drain()
        listening.should_exit = True

    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            asked = False
            async for _ in signals:
                if not asked:
                    tasks.start_soon(end)
                else:
                    await server.aclose()
                    listening.should_exit = listening.force_exit = True
                asked = True
