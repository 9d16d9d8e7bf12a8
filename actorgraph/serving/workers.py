"""`supervise`: several processes that serve at the same ports and share nothing.

The kernel gives each connection to one of them.  The parent starts them, restarts those that end,
and passes signals on.  It serves nothing itself, and they end with it.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic

import anyio
import anyio.to_thread
from anyio.abc import Process

from actorgraph.errors import GraphError
from actorgraph.serving.command import Endpoint, bound, show_log
from actorgraph.serving.directory import POLL_S, times

_LOGGER = logging.getLogger("actorgraph")
_BAD_USAGE = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_WATCHED = (".py", ".toml")


def supervise(
    options: Sequence[str], endpoint: Endpoint, *, workers: int, watched: str | None = None
) -> int:
    """Run ``actorgraph serve`` with these options in several processes; return the exit code.

    All are restarted when a file ``*.py`` or ``*.toml`` below the watched folder changes.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise GraphError("several processes need SO_REUSEPORT, which this platform lacks")
    show_log()
    if endpoint.metrics_port:  # fail here: a process without its port would be restarted for ever
        for number in range(workers):
            bound(endpoint.host, endpoint.metrics_port + number, shared=False).close()
    with ExitStack() as stack:
        # Bound without listening, the ports stay ours while this process lives.
        ports = [
            None if port is None else stack.enter_context(bound(endpoint.host, port, shared=True))
            for port in (endpoint.port, endpoint.grpc_port)
        ]
        command = [sys.executable, "-m", "actorgraph", "serve", *options, "--supervised"]
        for name, port in zip(("--port", "--grpc-port"), ports, strict=True):
            if port is not None:
                command += [name, str(port.getsockname()[1])]
        supervisor = _Supervisor(command, workers, watched, endpoint.metrics_port)
        return anyio.run(supervisor.run)


class _Supervisor:
    """The processes, and whether they are to end."""

    def __init__(
        self, command: list[str], workers: int, watched: str | None, metrics_port: int | None
    ) -> None:
        self._command, self._workers, self._watched = command, workers, watched
        self._metrics_port = metrics_port
        self._processes: set[Process] = set()
        self._ending = False
        self._exit_code = 0
        self._changed = anyio.Event()

    async def run(self) -> int:
        """Return the exit code when all have ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_signals_on)
            if self._watched is not None:
                tasks.start_soon(self._watch, self._watched)
            async with anyio.create_task_group() as kept:
                for number in range(1, self._workers + 1):
                    kept.start_soon(self._keep, number)
            tasks.cancel_scope.cancel()
        return self._exit_code

    async def _keep(self, number: int) -> None:
        """Run a process, and restart it when it ends."""
        pause_s, command = _FIRST_PAUSE_S, [*self._command]
        if (port := self._metrics_port) is not None:  # each process has metrics of its own
            command += ["--metrics-port", str(port and port + number - 1)]
        while not self._ending:
            began, changed = monotonic(), self._changed
            process = await anyio.open_process(
                # In a session of its own, or Ctrl-C would reach it twice.
                command, stdin=subprocess.PIPE, stdout=None, stderr=None,
                start_new_session=True,
            )  # fmt: skip
            self._processes.add(process)
            try:
                code = await process.wait()
            finally:
                self._processes.discard(process)
                await process.aclose()
            if changed.is_set():  # we ended it, for a restart or for good
                continue
            if code == _BAD_USAGE and self._watched is None:  # it has reported why
                self._exit_code = code
                self._end(signal.SIGTERM)
            elif code > 0 and self._watched is not None:
                _LOGGER.info("worker %d waits for a change of the files", number)
                await changed.wait()
            else:
                if monotonic() - began > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                _LOGGER.warning(
                    "worker %d ended with %d and is started again in %g s", number, code, pause_s
                )
                with anyio.move_on_after(pause_s):
                    await changed.wait()
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _pass_signals_on(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                self._end(number)

    def _end(self, number: signal.Signals) -> None:
        self._ending = True
        self._changed.set()
        for process in self._processes:
            process.send_signal(number)

    async def _watch(self, folder: str) -> None:
        """Restart all processes when a file changes."""
        seen = times(folder, _WATCHED)
        while True:
            await anyio.sleep(POLL_S)
            now = await anyio.to_thread.run_sync(times, folder, _WATCHED)
            if now == seen or self._ending:
                continue
            names = sorted(path for path, *_ in now ^ seen)
            _LOGGER.info("%s has changed: all workers are started anew", names[0])
            seen, changed, self._changed = now, self._changed, anyio.Event()
            changed.set()
            old = set(self._processes)
            for _ in range(2):  # the second signal does not wait for open streams
                for process in old & self._processes:
                    process.terminate()
                await anyio.sleep(POLL_S)
