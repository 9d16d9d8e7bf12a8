"""NumPy's warnings of floating-point errors in the user's words: the node, and the line it is of.

Ops run under an error state that calls us where the caller's warns.  So nothing is paid until
something is to be told; the frames of the thread say then which step was under way.  Functions that
run steps say so by `runs_steps`.

A warning goes through Python's own filters, and counts as one of the line that built the node.
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
"""How the file names of generated text begin."""

_KINDS = {
    "divide by zero": "divide",
    "overflow": "over",
    "underflow": "under",
    "invalid value": "invalid",
}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class UnderWay(NamedTuple):
    """What a function runs."""

    program: Any = None  # whose frames are called by the function
    node: Any = None  # the step, where it is known
    joint: Any = None  # None in a body, whose op is a step of a frame further out
    thread: int | None = None  # that runs the step of which the function does a part


_rules: dict[CodeType, tuple[str, Callable[[Any], UnderWay]]] = {}


def runs_steps(path: str) -> Callable[[_Function], _Function]:
    """Declare that a function runs steps; a local of it, or part of one, has them `under_way`."""
    name, _, parts = path.partition(".")
    found = attrgetter(".".join(filter(None, (parts, "under_way"))))

    def noted(function: _Function) -> _Function:
        _rules[function.__code__] = name, found
        return function

    return noted


# -- the error state --------------------------------------------------------------------------


class _Teller:
    """What NumPy calls under an error state in the place of one that warns."""

    def __init__(self, errors: Mapping[str, Any]) -> None:
        self.errors = errors

    def __call__(self, kind: str, flag: int) -> None:
        if self.errors[_KINDS[kind]] == "call":
            self.errors["call"](kind, flag)
        else:
            _warn(kind, sys._getframe(1))


def asked() -> dict[str, Any]:
    """Return the current `np.errstate` as the user has set it, as keywords."""
    errors: dict[str, Any] = dict(np.geterr())
    if "call" in errors.values() or "log" in errors.values():
        errors["call"] = np.geterrcall()
        if isinstance(errors["call"], _Teller):
            own = {kind: how for kind, how in np.geterr().items() if how != "call"}
            return {**errors["call"].errors, **own}
    return errors


def reporting_errors(errors: Mapping[str, Any]) -> dict[str, Any]:
    """Return an `np.errstate`, as keywords, that tells of nodes where `errors` warns."""
    warned = [kind for kind, how in errors.items() if how == "warn"]
    others = set(errors.values())
    if not warned or "log" in others or ("call" in others and errors.get("call") is None):
        return {**errors}
    return {**errors, **dict.fromkeys(warned, "call"), "call": _Teller(errors)}


class _Stopper(_Teller):
    """What NumPy calls where steps are tried: others compute them again, and tell."""

    def __call__(self, kind: str, flag: int) -> None:
        raise FloatingPointError(kind)


def stopping_errors() -> dict[str, Any]:
    """Return an `np.errstate`, as keywords, that raises what the current one does not ignore."""
    errors = asked()
    stopping = {kind: how if how == "ignore" else "call" for kind, how in errors.items()}
    return {**stopping, "call": _Stopper(errors)}


def _variable() -> ContextVar[Any]:
    """Return where NumPy keeps its error state."""
    context = Context()
    context.run(partial(np.seterr, divide="warn"))
    [variable] = context
    return variable


ERRORS = _variable()
"""Holds NumPy's error state."""


def _set(errors: Mapping[str, Any]) -> None:
    call = errors.get("call")
    if call is not None:
        np.seterrcall(call)
    np.seterr(**{kind: how for kind, how in errors.items() if kind != "call"})


@lru_cache(maxsize=16)
def telling(state: object) -> Any:
    """Return the state that tells of nodes where the current one, `state`, warns."""
    return state_of(reporting_errors(asked()))


def state_of(errors: Mapping[str, Any]) -> Any:
    """Return an `np.errstate`, of these keywords, for `ERRORS`."""
    context = copy_context()
    context.run(_set, errors)
    return context[ERRORS]


DEFAULT: Any = Context().run(ERRORS.get)
"""The state of who has set none."""
TELLING: Any = Context().run(telling, DEFAULT)
"""What tells in its place: looking it up costs half of it all."""


def _tell() -> None:
    ERRORS.set(telling(ERRORS.get()))


def reporting_context(context: Context | None = None) -> Context:
    """Return the context, by default a new one, with NumPy telling of nodes in it."""
    found = Context() if context is None else context
    found.run(_tell)
    return found


# -- warnings ---------------------------------------------------------------------------------

_registry: dict[Any, Any] = {}
"""Which warnings were given, as a module keeps it for its own lines."""


def _warn(kind: str, frame: FrameType) -> None:
    """Warn of what an op has met, in the name of the node that it computes."""
    import warnings  # most runs have nothing to tell

    node, derivative = _step_of(frame)
    if node is None:  # an op that waits, in a thread or task of its own
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
    """Return the user's node that a frame computes for, and whether it does a derivative of it."""
    inside: list[FrameType] = []  # of programs, the innermost first
    inner = None  # the step of a body
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PROGRAM):
            inside.append(frame)
        elif code in _rules:
            found = _under_way(frame)
            if found.thread is not None:
                frame = sys._current_frames().get(found.thread)
                continue
            step = found.node if found.program is None else _step_in(found.program, inside)
            if step is not None:
                inner, inside = step if inner is None else inner, []
                if found.joint is not None:
                    return _of_user(inner, step, found.joint)
        frame = frame.f_back
    return (None, False) if inner is None else _of_user(inner, inner, None)


def _of_user(step: Any, outer: Any, joint: Any) -> tuple[Any, bool]:
    """Return whose step it is, that of a body being part of an `outer` one; see `_step_of`."""
    known = joint is not None
    owner = step if step.owner is None else step.owner
    node = joint.source(step) if known and step is outer else owner
    return node, step.owner is not None or (known and joint.is_backward(outer))


def _step_in(program: Any, inside: list[FrameType]) -> Any:
    """Return the step of a program that is under way, by the frames of it and its parts."""
    step = None
    for frame in reversed(inside):
        place = None if program is None else program.code.place(frame, frame.f_lineno)
        if place is not None:
            step, program = program.step(place), program.inner(place)
    return step


def _under_way(frame: FrameType) -> UnderWay:
    name, found = _rules[frame.f_code]
    names = frame.f_locals
    held = names[name]
    if isinstance(names, dict):
        names.clear()  # before Python 3.13 the frame keeps this copy, and with it arrays
    return found(held)
