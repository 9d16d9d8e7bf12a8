"""Floating-point warnings that name the node, and the user's line that built it.

Ops run under an `np.errstate` that calls us where the caller's would warn, so nothing is paid
unless there is an error.  Then the frames of the thread tell which step was running; functions that
run steps are declared by `runs_steps`.

A warning goes through Python's filters, as a warning of the line that built the node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import lru_cache, partial
from operator import attrgetter
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from actorgraph.errors import printable

PROGRAM = "<actorgraph program"
"""How the file names of generated programs begin."""

_KINDS = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class UnderWay(NamedTuple):
    """The code that a function runs."""

    program: Any = None  # the program that the function calls
    node: Any = None  # the step, if it is known
    joint: Any = None  # None in a body, whose loop is a step of an outer frame
    thread: int | None = None  # the thread that runs the step of which this is a part


_rules: dict[CodeType, tuple[str, Callable[[Any], UnderWay]]] = {}


def runs_steps(path: str) -> Callable[[_Function], _Function]:
    """Declare that a function runs steps: those `under_way` of a local, or of its attribute."""
    name, _, parts = path.partition(".")
    under_way = attrgetter(".".join(filter(None, (parts, "under_way"))))

    def noted(function: _Function) -> _Function:
        _rules[function.__code__] = name, under_way
        return function

    return noted


# -- the error state --------------------------------------------------------------------------


class _Teller:
    """NumPy's error callback in place of ``"warn"``."""

    def __init__(self, errors: Mapping[str, Any]) -> None:
        self.errors = errors

    def __call__(self, kind: str, flag: int) -> None:
        if self.errors[_KINDS[kind]] == "call":
            self.errors["call"](kind, flag)
        else:
            _warn(kind, sys._getframe(1))


def asked() -> Mapping[str, Any]:
    """Return the current `np.errstate` as the user has set it, as keywords."""
    return _asked(ERRORS.get())


@lru_cache(maxsize=16)
def _asked(state: object) -> Mapping[str, Any]:
    """Return `asked` for the current state; NumPy takes 1 us to tell it."""
    errors: dict[str, Any] = dict(np.geterr())
    if "call" in errors.values() or "log" in errors.values():
        errors["call"] = np.geterrcall()
        if isinstance(errors["call"], _Teller):
            own = {kind: how for kind, how in np.geterr().items() if how != "call"}
            return {**errors["call"].errors, **own}
    return errors


def reporting_errors(errors: Mapping[str, Any]) -> dict[str, Any]:
    """Return an `np.errstate`, as keywords, that warns with nodes if `errors` warns."""
    warned = [kind for kind, how in errors.items() if how == "warn"]
    others = set(errors.values())
    if not warned or "log" in others or ("call" in others and errors.get("call") is None):
        return {**errors}
    return {**errors, **dict.fromkeys(warned, "call"), "call": _Teller(errors)}


class _Stopper(_Teller):
    """NumPy's error callback for a first try of steps, which are computed again to warn."""

    def __call__(self, kind: str, flag: int) -> None:
        raise FloatingPointError(kind)


def stopping_errors() -> dict[str, Any]:
    """Return an `np.errstate`, as keywords, that raises unless the current one ignores."""
    errors = asked()
    stopping = {kind: how if how == "ignore" else "call" for kind, how in errors.items()}
    return {**stopping, "call": _Stopper(errors)}


def _variable() -> ContextVar[Any]:
    """Return the context variable in which NumPy keeps its error state."""
    context = Context()
    context.run(partial(np.seterr, divide="warn"))
    [variable] = context
    return variable


ERRORS = _variable()
"""NumPy's error state."""


def _set(errors: Mapping[str, Any]) -> None:
    call = errors.get("call")
    if call is not None:
        np.seterrcall(call)
    np.seterr(**{kind: how for kind, how in errors.items() if kind != "call"})


@lru_cache(maxsize=16)
def telling(state: object) -> Any:
    """Return the state that warns with nodes if the current one, `state`, warns."""
    return state_of(reporting_errors(asked()))


def state_of(errors: Mapping[str, Any]) -> Any:
    """Return the value of `ERRORS` for an `np.errstate` of these keywords."""
    context = copy_context()
    context.run(_set, errors)
    return context[ERRORS]


DEFAULT: Any = Context().run(ERRORS.get)
"""The state of threads that have set none."""
TELLING: Any = Context().run(telling, DEFAULT)
"""`telling` of the default; looking it up would cost half of the call."""


def _tell() -> None:
    ERRORS.set(telling(ERRORS.get()))


def reporting_context(context: Context | None = None) -> Context:
    """Return the context, by default a new one, in which NumPy warns with nodes."""
    if context is None:
        return _REPORTING.copy()
    context.run(_tell)
    return context


_REPORTING = reporting_context(Context())
"""The context that new ones are copies of."""


# -- warnings ---------------------------------------------------------------------------------

_registry: dict[Any, Any] = {}
"""The warnings given so far, as in a module's ``__warningregistry__``."""


def _warn(kind: str, frame: FrameType) -> None:
    """Warn of a floating-point error, naming the node."""
    import warnings  # rarely needed

    node, derivative = _step_of(frame)
    if node is None:  # an asynchronous or blocking op, in a task or thread of its own
        code, names = frame.f_code, frame.f_globals
        warnings.warn_explicit(
            f"{kind} encountered in {code.co_name}", RuntimeWarning, code.co_filename,
            frame.f_lineno, names.get("__name__", "actorgraph"),
            names.setdefault("__warningregistry__", {}),
        )  # fmt: skip
        return
    what = f"the derivative of {node.op.name}" if derivative else node.op.name
    text = f"{kind} encountered in {what}, node '{printable(node.name)}'"
    file, line, _ = node.line
    warnings.warn_explicit(
        f"{text}, built at {node.where_built()}", RuntimeWarning, file, line, registry=_registry
    )


def _step_of(frame: FrameType | None) -> tuple[Any, bool]:
    """Return the user's node that a frame computes, and whether it computes its derivative."""
    inside: list[FrameType] = []  # frames of programs, the innermost first
    inner = None  # the step in a body
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PROGRAM):
            inside.append(frame)
        elif code in _rules:
            code_run = _under_way(frame)
            if code_run.thread is not None:
                frame = sys._current_frames().get(code_run.thread)
                continue
            step = code_run.node if code_run.program is None else _step_in(code_run.program, inside)
            if step is not None:
                inner, inside = step if inner is None else inner, []
                if code_run.joint is not None:
                    return _of_user(inner, step, code_run.joint)
        frame = frame.f_back
    return (None, False) if inner is None else _of_user(inner, inner, None)


def _of_user(step: Any, outer: Any, joint: Any) -> tuple[Any, bool]:
    """Return the result of `_step_of` for a step, perhaps in the body of an `outer` one."""
    known = joint is not None
    owner = step if step.owner is None else step.owner
    node = joint.source(step) if known and step is outer else owner
    return node, step.owner is not None or (known and joint.is_backward(outer))


def _step_in(program: Any, inside: list[FrameType]) -> Any:
    """Return the running step of a program, by the frames of it and its parts."""
    step = None
    for frame in reversed(inside):
        place = None if program is None else program.code.place(frame, frame.f_lineno)
        if place is not None:
            step, program = program.step(place), program.inner(place)
    return step


def _under_way(frame: FrameType) -> UnderWay:
    name, under_way = _rules[frame.f_code]
    names = frame.f_locals
    held = names[name]
    if isinstance(names, dict):
        names.clear()  # before Python 3.13 the frame keeps this copy alive, and with it arrays
    return under_way(held)
