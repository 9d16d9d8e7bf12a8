"""What a function of `ag.ops` says to an argument that has another name elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from types import FunctionType, ModuleType
from typing import Any

from actorgraph.errors import GraphTypeError, near_names
from actorgraph.ops._shown import example_in

__all__ = ["install", "translating"]

_WORDS = {
    "dim": ("axis", "axes"),
    "dims": ("axis", "axes", "shift_axis"),
    "dim0": ("axis1", "axes"),
    "dim1": ("axis2", "axes"),
    "keepdim": ("keepdims",),
    "input": ("x", "logits"),
    "self": ("x",),
    "a": ("x",),
    "other": ("y",),
    "tensors": ("nodes",),
    "arrays": ("nodes",),
    "size": ("shape",),
    "correction": ("ddof",),
    "unbiased": ("ddof",),
    "min": ("low", "a_min"),
    "max": ("high", "a_max"),
}
"""What PyTorch and NumPy call an argument, and what it may be called here."""

_NEVER = {
    "inplace": "a node is immutable, so leave it out",
    "out": "a machine keeps its own memory, so leave it out",
    "dtype": "convert with .astype(dtype)",
    "device": "place nodes by `with ag.device(...)`, or a machine by device=",
    "requires_grad": "wrt= of a machine says what is differentiated",
}
"""What functions here have no argument for, and what to do instead."""

Function = Callable[..., Any]


def translating(function: Function) -> Function:
    """Return a function that says of an argument which it has not what is meant by it here."""
    explained = _explained

    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except TypeError as error:
            advised = explained(function, given, error)
            if advised is error:
                raise
            raise advised from None

    # With the globals of its own, it belongs to that module for who looks for examples there.
    own = FunctionType(call.__code__, function.__globals__, closure=call.__closure__)
    update_wrapper(own, function)
    if own.__doc__ and ">>>" not in own.__doc__:
        own.__doc__ = example_in(own.__doc__, function.__name__)
    return own


def install(families: Iterable[ModuleType]) -> None:
    """Let the functions that modules export translate; another name is of the same function."""
    made: dict[Function, Function] = {}
    for family in families:
        for name in family.__all__:
            function = getattr(family, name)
            if isinstance(function, FunctionType):
                setattr(family, name, made.setdefault(function, translating(function)))
    for function, one in made.items():  # where pickle looks for it
        setattr(sys.modules[function.__module__], function.__name__, one)


def _explained(function: Function, given: Mapping[str, Any], error: TypeError) -> TypeError:
    """Return what to raise: of an argument that the function has not, what is meant by it."""
    advice = _advice(function, given) if given else ""
    return GraphTypeError(advice) if advice else error


def _advice(function: Function, given: Mapping[str, Any]) -> str:
    """Return what to say of the arguments that a function has not, nothing if it has them all."""
    from inspect import Parameter, signature  # only errors pay for it

    known = signature(function).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        return ""
    told = [f"no {name}=: {_instead(name, known)}" for name in given if name not in known]
    return f"{function.__name__}() has {'; '.join(told)}" if told else ""


def _instead(name: str, known: Mapping[str, Any]) -> str:
    ours = [one for one in _WORDS.get(name, ()) if one in known]
    if ours:
        return f"it is {ours[0]}= here"
    near = near_names(name, known).removeprefix("; ")
    return _NEVER.get(name) or near or f"it takes {', '.join(known)}"
