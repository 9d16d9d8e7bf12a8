"""`answering`: helpful errors for calls whose arguments do not fit the signature.

Python's own error suggests neither a similar name nor our name for another library's argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from inspect import CO_COROUTINE, CO_VARKEYWORDS, Parameter, signature
from types import FunctionType
from typing import Any, TypeVar

from actorgraph.errors import GraphTypeError, near_names, shown

_T = TypeVar("_T")
_ANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)

_WORDS = {
    "dim": ("axis", "axes"), "dims": ("axis", "axes", "shift_axis", "shape"),
    "dim0": ("axis1", "axes"), "dim1": ("axis2", "axes"), "keepdim": ("keepdims",),
    "input": ("x", "logits"), "self": ("x",),
    "a": ("x",), "other": ("y",), "tensors": ("nodes",), "arrays": ("nodes",), "size": ("shape",),
    "correction": ("ddof",), "unbiased": ("ddof",), "min": ("low", "a_min"),
    "max": ("high", "a_max"), "timeout": ("timeout_s",), "deadline": ("timeout_s",),
    "learning_rate": ("lr",), "epsilon": ("eps",), "decay": ("weight_decay",),
    "beta_1": ("betas",), "beta1": ("betas",), "beta_2": ("betas",), "beta2": ("betas",),
    "clipnorm": ("clip_norm",), "max_norm": ("clip_norm",), "clipvalue": ("clip_value",),
    "num_workers": ("workers",), "n_jobs": ("workers",), "threads": ("workers",),
    "num_threads": ("workers",), "max_workers": ("workers",), "optimizer": ("solver",),
    "criterion": ("loss",), "loss_fn": ("loss",), "num_epochs": ("epochs",),
    "weight": ("scale",), "running_mean": ("mean",), "running_var": ("var",),
    "units": ("out_features",), "filters": ("out_channels",), "strides": ("stride",),
    "dilation_rate": ("dilation",), "use_bias": ("bias",), "rate": ("p",), "inputs": ("feeds",),
    "feed_dict": ("feeds",), "grad": ("backward",), "chunks": ("microbatches",),
}  # fmt: skip
"""Argument names of PyTorch, NumPy and Keras, and what they may be called here."""

_NEVER = {
    "inplace": "a node is immutable, so leave it out",
    "out": "a machine keeps its own memory, so leave it out",
    "dtype": "convert with .astype(dtype)",
    "device": "place nodes by `with ag.device(...)`, or a machine by device=",
    "requires_grad": "wrt= of a machine says what is differentiated",
    "activation": "call ag.ops.relu, or another, on what it returns",
    "params": "pass the parameters to solver.step([run[w], ...])",
    "retain_graph": "a run never frees its graph, so leave it out",
    "create_graph": "ag.gradients adds derivatives as nodes, which have derivatives again",
}
"""Arguments that nothing here has, and what to do instead."""


class Answering:
    """Base class that makes the ``__init__`` of every subclass `answering`."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _refusing(vars(cls)["__init__"])  # type: ignore[method-assign]


def answering(thing: _T) -> _T:
    """Make a function, or a class, raise a `refusal` for calls that do not fit.

    In a class these are ``__init__`` and the public methods with optional arguments.  A call
    that fits takes 0.1 us longer.  Where that matters, a function takes ``**unknown`` and raises a
    `refusal` itself; it is not wrapped here.
    """
    if isinstance(thing, FunctionType):
        return _refusing(thing)  # type: ignore[return-value]
    for name, one in [*vars(thing).items()]:
        if isinstance(one, FunctionType) and not hasattr(one, "__wrapped__") and _choosing(one):
            setattr(thing, name, _refusing(one))
    return thing


def all_answering(module: dict[str, Any]) -> None:
    """Make the public functions of a module, given by its ``globals()``, `answering`.

    Classes are decorated with `answering` where they are defined, or derive from `Answering`.
    """
    change_public([module], answering)


def change_public(modules: Iterable[dict[str, Any]], change: Callable[[Any], Any]) -> None:
    """Replace the functions that modules export, and their aliases, by ``change(function)``.

    They are replaced in their defining modules, too, where pickle looks for them.
    """
    made: dict[Any, Any] = {}
    for module in modules:
        for name in module["__all__"]:
            one = module.get(name)
            if isinstance(one, FunctionType) and one.__code__.co_filename != __file__:
                module[name] = made[one] = made.get(one) or change(one)
    for one, instead in made.items():
        setattr(sys.modules[one.__module__], one.__name__, instead)


def _choosing(function: FunctionType) -> bool:
    alone = function.__code__.co_flags & (CO_VARKEYWORDS | CO_COROUTINE)
    chosen = function.__defaults__ or function.__kwdefaults__
    name = function.__name__
    return name == "__init__" or (name[0] != "_" and not alone and bool(chosen))


def _refusing(function: FunctionType) -> FunctionType:
    # `call` gets the globals of `function`, so it reaches these names through its closure.
    wrong, refused, fitting = TypeError, refusal, _fitting

    def call(*args: Any, **given: Any) -> Any:
        try:
            return function(*args, **given)
        except wrong:
            if fitting(function, args, given):
                raise  # the arguments fit: the error comes from inside
            raise refused(function, args, given) from None

    return standing_for(function, call)


def _fitting(function: Callable[..., Any], args: Any, given: Mapping[str, Any]) -> bool:
    try:
        signature(function).bind(*args, **given)
    except TypeError:
        return False
    return True


def standing_for(function: Any, call: Any) -> FunctionType:
    """Return `call` with the name and the globals of a function.

    So doctest takes it for a function of that module.
    """
    own = FunctionType(call.__code__, function.__globals__, closure=call.__closure__)
    update_wrapper(own, function)
    return own


def refusal(
    function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any]
) -> GraphTypeError:
    """Return the error for a call with these arguments.

    For an ``__init__`` it names the class, and includes what the base classes take.
    """
    name, levels = function.__name__, [function]
    if name == "__init__":
        name = type(args[0]).__name__
        above = [vars(one) for one in type(args[0]).__mro__]
        levels = [one["__init__"] for one in above if "__init__" in one]
    known: dict[str, Parameter] = {}
    for level in levels:
        known |= (taken := signature(level).parameters)
        if all(one.kind is not one.VAR_KEYWORD for one in taken.values()):
            break
    known = {key: one for key, one in known.items() if one.kind not in _ANY and key != "self"}
    told = advice(name, known, given)
    if told is None:
        got = [shown(one, 40) for one in args["self" in signature(function).parameters :]]
        got += [f"{key}=..." for key in given]
        takes = [f"{key}=" if one.kind is one.KEYWORD_ONLY else key for key, one in known.items()]
        told = _error(f"{name}() got {', '.join(got) or 'nothing'}; it takes {', '.join(takes)}")
    return told


def _error(text: str) -> GraphTypeError:
    return GraphTypeError(text, reference="AG115")


def advice(name: str, known: Mapping[str, Any], given: Iterable[str]) -> GraphTypeError | None:
    """Return the error for keywords that a function does not have, None if it has them all."""
    told = [f"no {one}=: {_instead(one, known)}" for one in given if one not in known]
    return _error(f"{name}() has {'; '.join(told)}") if told else None


def _instead(name: str, known: Mapping[str, Any]) -> str:
    ours = [one for one in _WORDS.get(name, ()) if one in known]
    if ours:
        return f"it is {ours[0]}= here"
    near = near_names(name, known).removeprefix("; ")
    return _NEVER.get(name) or near or f"it takes {', '.join(known) or 'nothing'}"
