"""Gradients of plain NumPy functions, as Python source that can be read and debugged.

A function is parsed, and a new function is written that runs it forward and then backward, with its
control flow and containers.  The rules of single calls come from the package's ops.  See
docs/source.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from types import FunctionType
from typing import Any

import numpy as np

from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.errors import GraphError, GraphTypeError, shown
from actorgraph.keywords import all_answering
from actorgraph.source.building import Options, Session
from actorgraph.source.reading import UnsupportedSyntax
from actorgraph.source.rules import trace
from actorgraph.source.support import ADJOINTS, TANGENTS, differentiable, zero_of

__all__ = [
    "DefaultOne", "DefaultOnes", "Required", "UnsupportedSyntax", "adjoint", "autodiff", "grad",
    "insert_grad_of", "jvp", "tangent", "trace", "vjp",
]  # fmt: skip
__dir__ = __all__.copy

Required = "required"
"""`input_derivative`: the seed (or tangent) has to be given."""
DefaultOne = "one"
"""`input_derivative`: the default seed of a scalar is 1."""
DefaultOnes = "ones"
"""`input_derivative`: the default seed is ones."""

Function = Callable[..., Any]


def autodiff(
    func: Function, wrt: int | tuple[int, ...] = (0,), *, mode: str = "reverse",
    motion: str = "joint", preserve_result: bool = False, check_dims: bool = True,
    optimized: bool = True, verbose: int = 0, input_derivative: str = DefaultOne,
) -> Function:  # fmt: skip
    """Return a new function, written from the source of `func`, that computes a derivative.

    Parameters
    ----------
    func : function
        A plain Python function of floats, arrays of floats, and containers of them.
    wrt : int or tuple of int
        Positions of the arguments to differentiate with respect to.
    mode : "reverse" or "forward"
        Reverse: the last parameter, named ``b`` and the name of the result, is the seed.  Forward:
        the last parameters, named ``d`` and the name of each wrt, are the tangents.
    motion : "joint" or "split"
        One function, or a forward and a backward function that share a record.
    preserve_result : bool
        Return ``(derivative..., value)``.
    check_dims : bool
        Check the shape of seeds and tangents in each call.
    optimized : bool
        Remove dead code.
    verbose : int
        1 prints the generated source.
    input_derivative : Required, DefaultOne or DefaultOnes
        The default of the seed.

    Returns
    -------
    function
        Reverse: the gradient of the only wrt, or a tuple of gradients.  Forward: the tangent of the
        result.  The attribute ``__source__`` is its text.

    Raises
    ------
    UnsupportedSyntax
        `func` has a construct without a derivative; the error has its file and line.
    GraphError
        An argument of `autodiff` is invalid.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def square(x):
    ...     return x * x
    >>> ag.source.autodiff(square)(3.0)
    6.0
    """
    places = _places(wrt)
    _check("mode", mode, ("reverse", "forward"))
    _check("motion", motion, ("joint", "split"))
    _check("input_derivative", input_derivative, (Required, DefaultOne, DefaultOnes))
    if not isinstance(func, FunctionType):
        raise GraphTypeError(
            f"ag.source differentiates Python functions, got {shown(func)}; wrap it in a function"
        )
    options = Options(motion, preserve_result, check_dims, input_derivative)
    session = Session(optimized)
    write = session.gradient if mode == "reverse" else session.push
    derivative: Function = write(func, places, options)
    if verbose:
        print(derivative.__source__)  # type: ignore[attr-defined]  # noqa: T201 - `verbose` says so
    return derivative


def grad(
    func: Function, wrt: int | tuple[int, ...] = (0,), *, mode: str = "reverse",
    motion: str = "joint", preserve_result: bool = False, check_dims: bool = True,
    optimized: bool = True, verbose: int = 0, input_derivative: str = DefaultOne,
) -> Function:  # fmt: skip
    """Return the gradient of a function of floats and arrays; parameters are those of `autodiff`.

    In forward mode the gradient takes one call for each element.

    Returns
    -------
    function
        One wrt gives an array, several a tuple; with `preserve_result` the value comes last.

    Raises
    ------
    UnsupportedSyntax
        `func` has a construct without a derivative; the error has its file and line.

    Examples
    --------
    ``ag.source.grad(f)(x)`` is the gradient of ``f`` at ``x``.

    >>> import actorgraph as ag
    >>> def square(x):
    ...     return x * x
    >>> ag.source.grad(square)(3.0)
    6.0
    """
    derived = autodiff(
        func, wrt, mode=mode, motion=motion, check_dims=check_dims, optimized=optimized,
        preserve_result=preserve_result or mode == "forward", verbose=verbose,
        input_derivative=input_derivative if mode == "reverse" else Required,
    )  # fmt: skip
    return derived if mode == "reverse" else _by_columns(derived, _places(wrt), preserve_result)


def vjp(func: Function, wrt: int | tuple[int, ...] = (0,), **options: Any) -> Function:
    """Return the product of a given cotangent with the Jacobian: `autodiff` with a required seed.

    ``vjp(f)(x, ct)`` for a function of one argument.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def square(x):
    ...     return x * x
    >>> ag.source.vjp(square)(3.0, 1.0)
    6.0
    """
    return autodiff(func, wrt, **{"input_derivative": Required, **options})


def jvp(func: Function, wrt: int | tuple[int, ...] = (0,), **options: Any) -> Function:
    """Return the product of the Jacobian with given tangents: forward mode.

    ``jvp(f)(x, dx)`` for a function of one argument.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def square(x):
    ...     return x * x
    >>> ag.source.jvp(square)(3.0, 1.0)
    6.0
    """
    return autodiff(func, wrt, **{"mode": "forward", "input_derivative": Required, **options})


def adjoint(func: Function) -> Callable[[Function], Function]:
    """Declare the reverse rule of a function, ``rule(ct, y, *args, **kwargs)`` (a decorator).

    It returns the cotangent of the only argument, or a tuple with one for each; None is a zero.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def cube(x):
    ...     return x * x * x
    >>> @ag.source.adjoint(cube)
    ... def cube_adjoint(ct, y, x):
    ...     return 3 * x * x * ct
    """
    return _registering(ADJOINTS, func)


def tangent(func: Function) -> Callable[[Function], Function]:
    """Declare the forward rule of a function, ``rule(tangents, y, *args, **kwargs)``.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> def twice(x):
    ...     return 2.0 * x
    >>> @ag.source.tangent(twice)
    ... def twice_tangent(y, x):
    ...     d[y] = 2.0 * d[x]
    >>> twice_tangent.__name__
    'twice_tangent'
    """
    return _registering(TANGENTS, func)


@contextmanager
def insert_grad_of(x: Any) -> Iterator[Any]:
    """Mark a block that the backward pass runs on the gradient of `x` at this place.

    With ``with insert_grad_of(x) as dx: dx = np.clip(dx, -1, 1)`` in a differentiated function, the
    block may print or rebind `dx`.  When the function itself runs, `dx` is zero.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> def clipped(x):
    ...     with ag.source.insert_grad_of(x) as dx:
    ...         dx = np.clip(dx, -1.0, 1.0)
    ...     return x * x
    >>> float(ag.source.grad(clipped)(3.0))
    1.0
    """
    yield np.zeros_like(x)


def _registering(table: dict[Any, Function], func: Function) -> Callable[[Function], Function]:
    if not callable(func):
        raise GraphTypeError(f"a rule needs the function that it is for, got {shown(func)}")

    def register(rule: Function) -> Function:
        table[func] = rule
        return rule

    return register


def _places(wrt: Any) -> tuple[int, ...]:
    places = tuple(wrt) if isinstance(wrt, (tuple, list)) else (wrt,)
    if not places or len(set(places)) != len(places):
        raise GraphError(f"wrt has to be positions of arguments, each once, got {shown(wrt)}")
    return places


def _check(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise GraphError(f"{name} has to be one of {', '.join(map(repr, known))}, got {value!r}")


def _by_columns(push: Function, places: tuple[int, ...], preserve: bool) -> Function:
    """Return the gradient as a function that calls `push` once for each element of the inputs."""
    parameters = list(signature(push).parameters.values())
    tans = [parameter.name for parameter in parameters[-len(places) :]]
    kinds = [parameters[min(place, len(parameters) - 1)].kind for place in places]

    def gradient(*args: Any, **kwargs: Any) -> Any:
        wrt = [
            args[place:] if kind is Parameter.VAR_POSITIONAL else args[place]
            for place, kind in zip(places, kinds, strict=True)
        ]
        differentiable(wrt, "of the gradient")
        leaves, structure = flatten(wrt)
        directions = [*map(zero_of, leaves)]

        def pushed() -> Any:
            moved = zip(tans, unflatten(structure, directions), strict=True)
            return push(*args, **kwargs, **dict(moved))

        slopes, value = [], None
        for number, leaf in enumerate(leaves):
            zero, columns = directions[number], np.zeros(np.shape(leaf))
            for at in np.ndindex(columns.shape):
                direction = np.zeros(columns.shape)
                direction[at] = 1.0
                directions[number] = direction if columns.shape else 1.0
                result, value = pushed()
                if np.shape(result):
                    raise GraphError(
                        f"a gradient needs a scalar result, and this one has shape "
                        f"{np.shape(result)}; use ag.source.jvp"
                    )
                columns[at] = result
            directions[number] = zero
            slopes.append(columns if columns.shape else columns[()])
        if value is None:
            _, value = pushed()
        results = (*unflatten(structure, slopes), *((value,) if preserve else ()))
        return results[0] if len(results) == 1 else results

    gradient.__source__ = push.__source__  # type: ignore[attr-defined]
    gradient.__name__ = push.__name__
    return gradient


all_answering(globals())
