"""`supervise`: several processes that serve at the same ports and share nothing.

The kernel gives each connection to one of them.  The parent starts them, starts those again that
end, and passes signals on; it serves nothing itself, and they end with it.
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
from actorgraph.serving.directory import LOOK_S, times

_LOGGER = logging.getLogger("actorgraph")
_BAD_USAGE = 2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_WATCHED = (".py", ".toml")


def supervise(
    options: Sequence[str], endpoint: Endpoint, *, workers: int, watched: str | None = None
) -> int:
    """Run ``actorgraph serve`` with such options in several processes; return the exit code.

    All are started anew when a file ``*.py`` or ``*.toml`` below the watched folder changes.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise GraphError("several processes need SO_REUSEPORT, which this platform has not")
    show_log()
    if endpoint.metrics_port:  # each has one, and is started again and again where it is not free
        for number in range(workers):
            bound(endpoint.host, endpoint.metrics_port + number, shared=False).close()
    with ExitStack() as stack:
        # Bound and never listened at: the ports are ours as long as we live.
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
        """Run a process, and another when it has ended."""
        pause_s, command = _FIRST_PAUSE_S, [*self._command]
        if (port := self._metrics_port) is not None:  # counts are those of one process
            command += ["--metrics-port", str(port and port + number - 1)]
        while not self._ending:
            born, changed = monotonic(), self._changed
            process = await anyio.open_process(
                # A session of its own, or Ctrl-C would reach it twice.
                command, stdin=subprocess.PIPE, stdout=None, stderr=None,
                start_new_session=True,
            )  # fmt: skip
            self._processes.add(process)
            try:
                code = await process.wait()
            finally:
                self._processes.discard(process)
                await process.aclose()
            if changed.is_set():  # it was ended to be started anew, or for good
                continue
            if code == _BAD_USAGE and self._watched is None:  # it has told why
                self._exit_code = code
                self._end(signal.SIGTERM)
            elif code > 0 and self._watched is not None:
                _LOGGER.info("worker %d waits for a change of the files", number)
                await changed.wait()
            else:
                lived_s = monotonic() - born
                pause_s = _FIRST_PAUSE_S if lived_s > _LONGEST_PAUSE_S else pause_s
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
        """Start all processes anew when a file changes."""
        seen = times(folder, _WATCHED)
        while True:
            await anyio.sleep(LOOK_S)
            now = await anyio.to_thread.run_sync(times, folder, _WATCHED)
            if now == seen or self._ending:
                continue
            names = sorted(path for path, *_ in now ^ seen)
            _LOGGER.info("%s has changed: all workers are started anew", names[0])
            seen, changed, self._changed = now, self._changed, anyio.Event()
            changed.set()
            old = set(self._processes)
            for _ in range(2):  # an open stream is not waited for
                for process in old & self._processes:
                    process.terminate()
                await anyio.sleep(LOOK_S)
