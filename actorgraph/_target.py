"""``FILE.py:function`` on the command line: load the file, call the function, check its result.

Errors in the user's file become one line, with the file and the line number.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from importlib import util
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from actorgraph.errors import GraphError, near_names, text_of


def outputs_and_feeds(target: str) -> tuple[Any, Mapping[Any, Any]]:
    """Return the outputs and feeds that the function ``FILE.py:function`` returns.

    Runs the file; every error of it is a `GraphError`.  Whether the outputs are nodes is left to
    machines.
    """
    return outputs_and_feeds_of(target, called(target), "(outputs, feeds)")


def called(target: str) -> Any:
    """Call the function ``FILE.py:function`` and return its result, or raise `GraphError`."""
    return function_of(target)()


def function_of(target: str) -> Callable[[], Any]:
    """Return the function ``FILE.py:function``, wrapped so that it raises only `GraphError`."""
    name, colon, function = target.rpartition(":")
    if not colon or not name or not function.isidentifier():
        raise GraphError(f"expected FILE.py:function, such as model.py:build, got {target!r}")
    if not Path(name).is_file():
        raise GraphError(f"there is no file {name!r}; expected FILE.py:function, got {target!r}")
    loaded = _function(name, function)
    return update_wrapper(partial(_guarded, Path(name), loaded), loaded)


def outputs_and_feeds_of(target: str, returned: Any, wanted: str) -> tuple[Any, Mapping[Any, Any]]:
    """Return what the target returned, checked, or raise `GraphError` with what is `wanted`."""
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise GraphError(
            f"{target} should return {wanted}, a node or several and a dict of arrays, "
            f"got {_described(returned)}"
        )
    outputs, feeds = returned
    if not isinstance(feeds, Mapping):
        raise GraphError(
            f"{target} should return {wanted}, with feeds a dict of arrays by name or "
            f"node, got {_described(feeds)} for feeds"
        )
    return outputs, feeds


def _function(name: str, function: str) -> Callable[[], Any]:
    file = Path(name)
    spec = util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise GraphError(f"{name!r} is no Python file; its name has to end with .py")
    module = util.module_from_spec(spec)
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as if the file were run

    def execute() -> None:
        # Not by its loader, which may reuse bytecode of a file of the same second and size.
        code = compile(file.read_bytes(), name, "exec", dont_inherit=True)
        exec(code, vars(module))

    _guarded(file, execute)
    defined: Any = vars(module).get(function)
    if not callable(defined):
        functions = [key for key, value in vars(module).items() if callable(value)]
        own = [
            key for key in functions
            if getattr(vars(module)[key], "__module__", None) == module.__name__
        ]  # fmt: skip
        near = near_names(function, functions) or (f"; it has {', '.join(own)}" if own else "")
        if defined is not None:
            near = f", only a {type(defined).__name__}; a function that returns it is wanted"
        raise GraphError(f"{name!r} has no function {function!r}{near}")
    if iscoroutinefunction(defined):
        raise GraphError(f"{name}:{function} is an async function; write it with def alone")
    made: Callable[[], Any] = defined
    return made


def _guarded(file: Path, function: Callable[..., Any], *args: Any) -> Any:
    """Call the user's code; its error becomes a `GraphError` with the line of the file."""
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
