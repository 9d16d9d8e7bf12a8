"""What `actorgraph trace FILE.py:function` does: run what the function returns, and record it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import anyio

from actorgraph.errors import GraphError, near_names, text_of
from actorgraph.machines import ActorMachine, LispMachine, Machine, TapeMachine
from actorgraph.trace.recorder import record
from actorgraph.trace.trace import Trace

__all__ = ["MACHINES", "Settings", "load", "trace"]

MACHINES: dict[str, Callable[..., Machine]] = {
    "actor": ActorMachine,
    "lisp": LispMachine,
    "tape": TapeMachine,
}
"""Machines by the names of the command line."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: the options of the command line."""

    machine: str = "actor"
    workers: int | None = None
    fuse: str = "auto"
    runs: int = 1
    backward: bool = False
    cold: bool = False


def load(target: str) -> Callable[[], Any]:
    """Return the function that ``FILE.py:function`` names; runs the file.

    Raises
    ------
    GraphError
        The target is written in another way, there is no such file or function, or the file
        raised.
    """
    name, colon, function = target.rpartition(":")
    if not colon or not name or not function.isidentifier():
        raise GraphError(f"expected FILE.py:function, such as model.py:build, got {target!r}")
    file = Path(name)
    if not file.is_file():
        raise GraphError(f"there is no file {name!r}; expected FILE.py:function, got {target!r}")
    spec = util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise GraphError(f"{name!r} is no Python file; its name has to end with .py")
    module = util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))  # as if the file were run
    _theirs(file, spec.loader.exec_module, module)
    found: Callable[[], Any] | None = vars(module).get(function)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise GraphError(f"{name!r} has no function {function!r}{near_names(function, functions)}")
    return found


def trace(target: str, settings: Settings) -> Trace:
    """Call the function of a target and record runs of what it returns; blocks until they ended.

    The first run compiles the machine; it is not recorded unless ``cold`` is asked for.

    Raises
    ------
    GraphError
        As `load`; or the function raised, or does not return outputs and feeds.
    """
    function = load(target)
    returned = _theirs(Path(target.rpartition(":")[0]), function)
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise GraphError(
            f"{target} should return (outputs, feeds), a node or several and a dict of arrays, "
            f"got {_described(returned)}"
        )
    outputs, feeds = returned
    if not isinstance(feeds, Mapping):
        raise GraphError(
            f"{target} should return (outputs, feeds), with feeds a dict of arrays by name or "
            f"node, got {_described(feeds)} for feeds"
        )
    make = MACHINES[settings.machine]
    with make(outputs, workers=settings.workers, fuse=settings.fuse) as machine:
        if not settings.cold:
            machine.run_sync(feeds, backward=settings.backward)
        with record() as found:
            _run(machine, feeds, settings)
    return found


def _run(machine: Machine, feeds: Mapping[Any, Any], settings: Settings) -> None:
    if settings.runs == 1:
        machine.run_sync(feeds, backward=settings.backward)
        return

    async def stream() -> None:
        async for _ in machine.stream([feeds] * settings.runs, backward=settings.backward):
            pass

    anyio.run(stream)


def _theirs(file: Path, function: Callable[..., Any], *args: Any) -> Any:
    """Call code of the user's; what it raises is told with the line of the file."""
    try:
        return function(*args)
    except GraphError:
        raise
    except Exception as error:
        if isinstance(error, SyntaxError):
            place = f"{error.filename}:{error.lineno}"
        else:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [f.lineno for f in frames if Path(f.filename).name == file.name]
            place = f"{file}:{lines[-1]}" if lines else str(file)
        raise GraphError(f"{place} raised {text_of(error)}") from error


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{type(value).__name__} {repr(value)[:60]}"
