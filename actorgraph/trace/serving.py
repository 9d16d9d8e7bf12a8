"""A live view of the machines of another process, by a Unix socket.

The server answers each connection by one line of JSON, and closes it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep
from typing import TextIO, final
from weakref import WeakSet

from actorgraph.errors import GraphError
from actorgraph.machines.life import Lifetime
from actorgraph.machines.process import THIS
from actorgraph.options import in_child_of_fork, seconds
from actorgraph.scheduler import POOL
from actorgraph.tables import console
from actorgraph.trace.live import ActorView, Live, MachineView, table, text
from actorgraph.trace.using import use

_PAUSE_S = 0.1
_LONGEST = 1 << 24
"""Most bytes of an answer."""


@contextmanager
def serve(path: str | os.PathLike[str], *machines: Lifetime) -> Iterator[Live]:
    """Answer ``actorgraph top PATH`` inside the ``with`` block, in a thread of its own.

    A child process that is forked meanwhile does not serve, and leaves the socket to its parent.

    Parameters
    ----------
    path : path
        Where to make the Unix socket, for this user only; it is removed at the end if it still
        exists.
    *machines : Machine or Pipeline
        Default all of the process, each from its first run on.

    Raises
    ------
    GraphError
        The system has no Unix sockets, or there is something else at `path`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "top"
    >>> x = ag.Graph().input("x", (2,))
    >>> with ag.ActorMachine([x * 2]) as machine, ag.trace.serve(path, machine):
    ...     run = machine.run_sync({"x": np.ones(2, "float32")})
    ...     len(ag.trace.ask(path))  # or `actorgraph top` in another terminal
    1
    """
    live = Live()
    server = _Server(path, live)
    try:
        with use(live, *machines):
            yield live
    finally:
        server.close()


@final
class _Server:
    """Answers connections to a socket, until it is closed.

    A pair of sockets tells its thread to end, which works even if the path is gone.  The thread
    does not refer to the server: if Ctrl-C interrupts the start or the end, the server is
    collected, and the path is free again.
    """

    _process: int | None = None

    def __init__(self, path: str | os.PathLike[str], live: Live) -> None:
        self._listener = _listener(path)
        self._stop, self._stopped = socket.socketpair()
        self._process = THIS.id
        self._path = os.path.abspath(path)  # the folder may be changed meanwhile
        self._made = _identity(self._path)
        try:
            serve = partial(_serve, self._listener, self._stopped, live)
            self._thread = POOL.later(serve, "server")
        except BaseException:
            self._release()
            raise
        _servers.add(self)

    def close(self) -> None:
        """End the thread and remove the socket, in the process that made it."""
        if self._process != THIS.id:
            return
        self._stop.close()
        self._thread.join()
        self._release()

    def __del__(self) -> None:
        if self._process == THIS.id:
            self._end()

    def _end(self) -> None:
        # The thread closes `_stopped`: closed here, its end would not be noticed by the selector.
        self._listener.close()
        self._stop.close()

    def _release(self) -> None:
        self._end()
        if self._made is not None and _identity(self._path) == self._made:
            with suppress(OSError):
                os.unlink(self._path)

    def forget(self) -> None:
        """Close this process's copies of the sockets."""
        for one in (self._listener, self._stop, self._stopped):
            one.close()


def _serve(listener: socket.socket, stopped: socket.socket, live: Live) -> None:
    # If the listener was closed before the thread started, registering it fails.
    with stopped, suppress(ValueError), DefaultSelector() as selector:
        selector.register(listener, EVENT_READ)
        selector.register(stopped, EVENT_READ)
        while not any(key.fileobj is stopped for key, _ in selector.select()):
            _answer(listener, live)


def _answer(listener: socket.socket, live: Live) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:
        sleep(_PAUSE_S)  # too many files are open, or the client has gone
        return
    connection.settimeout(1.0)  # a client that does not read must not block others
    with connection, suppress(OSError):
        answer = json.dumps([asdict(view) for view in live.views()]) + "\n"
        connection.sendall(answer.encode())


_servers: WeakSet[_Server] = WeakSet()


@in_child_of_fork
def _after_fork_in_child() -> None:
    for server in _servers:
        server.forget()  # else clients would wait for this process if the parent were killed


def _identity(path: str | bytes) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, None if there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _listener(path: str | os.PathLike[str]) -> socket.socket:
    listener = _unix_socket()
    try:
        _remove_stale(os.fspath(path))
        listener.bind(os.fspath(path))
        os.chmod(path, 0o600)
        listener.listen()
    except BaseException as error:
        listener.close()
        if isinstance(error, (OSError, TypeError, ValueError)):
            raise GraphError(f"no socket can be made at {path!r}: {error}") from error
        raise
    return listener


def _unix_socket() -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise GraphError("this system has no Unix sockets; use ag.trace.top in the same process")
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that was killed."""
    if not os.path.exists(path):
        return
    with _unix_socket() as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if not os.path.isfile(path):
                os.unlink(path)
                return
    raise GraphError(f"something else is at {path!r} already; choose another path")


def ask(path: str | os.PathLike[str], *, timeout_s: float = 5.0) -> list[MachineView]:
    """Return the state of the machines of a process that serves at `path`; blocks until it answers.

    Raises
    ------
    GraphError
        No process serves there, or it has not answered after `timeout_s` seconds.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "top"
    >>> x = ag.Graph().input("x", (2,))
    >>> with ag.ActorMachine([x * 2]) as machine, ag.trace.serve(path, machine):
    ...     run = machine.run_sync({"x": np.ones(2, "float32")})
    ...     len(ag.trace.ask(path, timeout_s=30.0))
    1
    """
    until = monotonic() + seconds("timeout_s", timeout_s)
    with _unix_socket() as connection:
        try:
            connection.settimeout(_left(until))
            connection.connect(os.fspath(path))
            views = json.loads(_line(connection, until))
            return [
                MachineView(**{**view, "actors": [ActorView(**actor) for actor in view["actors"]]})
                for view in views
            ]
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise GraphError(
                f"nobody answers at {path!r} ({error}); the program has to run "
                "`with ag.trace.serve(path): ...`"
            ) from error


def _line(connection: socket.socket, until: float) -> bytes:
    """Receive one line, until the time `until`."""
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(_left(until))
        part = connection.recv(1 << 16)
        if not part:
            break
        line += part
        if len(line) > _LONGEST:
            raise ValueError("the answer does not end")
    return bytes(line)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return min(left, threading.TIMEOUT_MAX)


def watch(
    path: str | os.PathLike[str], stream: TextIO, *, every_s: float, once: bool = False
) -> None:
    """Show the machines of a process that serves at `path` until it ends, or Ctrl-C.

    In a terminal with rich the view is redrawn in place, else each view is a block of lines.
    Raises `GraphError` if no process serves there at the start.
    """
    views, screen = ask(path), None
    if not once and (terminal := console(stream)) is not None:
        from rich.live import Live as Screen

        screen = Screen(console=terminal, auto_refresh=False)
    if screen is None:
        stream.write(text(views) + "\n")
    if once:
        return
    with screen or nullcontext():
        while True:
            if screen is not None:
                screen.update(table(views), refresh=True)
            sleep(every_s)
            try:
                views = ask(path)
            except GraphError:
                return  # the program has ended
            if screen is None:
                stream.write(text(views) + "\n")
                stream.flush()
