"""`grad` and `value_and_grad`."""

from __future__ import annotations

from typing import Any

from actorgraph.autodiff import derivatives
from actorgraph.errors import FeedError, ShapeError
from actorgraph.graph import Node
from actorgraph.keywords import answering
from actorgraph.transforms.staging import (
    Staged,
    Subject,
    argnums_of,
    check_on_nodes,
    chosen,
    named,
    what_of,
    wrt_of,
)

_SEEDS = ("required", "one", "ones")


@answering
def grad(
    f: Any, argnums: Any = 0, *, wrt: Any = None, has_aux: bool = False,
    input_derivative: str = "one", seed: Any = None, exact: bool = True, passes: Any = None,
) -> Any:  # fmt: skip
    """Return the gradient of a node as nodes, or of a function as a function.

    Parameters
    ----------
    f : node, or callable
        A function takes arrays, floats and trees (dict, list, tuple, named tuple) of them, and
        returns one array; other arguments are static.  It has to be pure: it is traced once for
        each kind of arguments, and the arrays that it captures are fixed then.
    argnums : int or tuple of int
        Positional arguments to differentiate by; a tuple gives a tuple of gradients.
    wrt : node, or dict, list or tuple of nodes
        For a node as `f`: the nodes to differentiate by (also as the second argument); default all
        parameters of its graph.  For a function another name of `argnums`, as in Tangent.
    has_aux : bool
        The function returns (result, aux), and the gradient function returns aux too.
    input_derivative : "one", "ones" or "required"
        Default seed: 1 (the result must be a scalar), ones of the result's shape (the gradient of
        the sum), or an error.
    seed : array or node, optional
        For a node as `f`: its cotangent.  Gradient functions take ``seed=`` when called.
    exact : bool
        False rewrites the function's graph into stable forms before it is differentiated, which may
        change bits: ``log(1 + exp(x))`` then has the slope 1 at 1000.  A transform inside the
        function has its own setting.  For nodes use `ag.rewrite.rewrite`.
    passes : iterable of Pass or str, optional
        Rewriting passes, as of machines; default all that `exact` allows, ``()`` for none.

    Returns
    -------
    node, tree of nodes, or callable
        With the structure, shapes and dtypes of the arguments to differentiate by.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        The result is no float or no scalar, or the seed does not fit.  Gradient functions raise
        when they are called; they block, so they also raise inside a running event loop.
    GraphError
        A pass does not exist, or `exact` forbids it.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> def f(x, y):
    ...     return (x * x * y).sum()
    >>> ag.grad(f, argnums=(0, 1))(np.array([1.0, 2.0]), 3.0)
    (array([ 6., 12.]), array(5.))
    >>> float(ag.grad(ag.grad(lambda x: x ** 3))(2.0))
    12.0
    """
    how = has_aux, exact, passes
    return _gradient("grad", f, argnums, wrt, input_derivative, seed, how)


@answering
def value_and_grad(
    f: Any, argnums: Any = 0, *, wrt: Any = None, has_aux: bool = False,
    input_derivative: str = "one", seed: Any = None, exact: bool = True, passes: Any = None,
) -> Any:  # fmt: skip
    """Return (value, gradient), with `has_aux` ((value, aux), gradient); otherwise like `grad`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.value_and_grad(lambda x: x * x)(3.0)
    (array(9.), array(6.))
    """
    how = has_aux, exact, passes
    return _gradient("value_and_grad", f, argnums, wrt, input_derivative, seed, how)


def seed_of(output: Node, seed: Any, input_derivative: str, what: str) -> Node:
    """Return the seed of an output: the given one, or the default by `input_derivative`."""
    if seed is not None:
        return derivatives.seed_node(seed, output, what)
    if input_derivative == "one" and output.ndim:
        raise ShapeError(
            f"{what} is {output.type}, but a gradient needs a scalar; differentiate its sum, or "
            "give seed= or input_derivative='ones'"
        )
    return derivatives.ones_seed(output)


def check_seed(input_derivative: str, seed: Any, name: str) -> None:
    """Raise `FeedError` if a required seed is missing."""
    if input_derivative == "required" and seed is None:
        raise FeedError(f"the gradient of {name} requires its seed; pass seed=, of its shape")


def check_choice(input_derivative: str) -> None:
    """Raise `ValueError` for an unknown `input_derivative`."""
    if input_derivative not in _SEEDS:
        raise ValueError(
            f"input_derivative has to be one of {', '.join(map(repr, _SEEDS))}, got "
            f"{input_derivative!r}"
        )


def _gradient(
    kind: str, f: Any, argnums: Any, wrt: Any, input_derivative: str, seed: Any, how: Any
) -> Any:
    check_choice(input_derivative)
    if isinstance(f, Node):
        check_on_nodes(*how)
        check_seed(input_derivative, seed, f.name)
        seeds = [seed_of(f, seed, input_derivative, f"node {f.name}")]
        wrt = wrt_of(f, argnums, wrt)
        derivatives.float_nodes(wrt, "wrt")
        gradients = derivatives.gradient_tree([f], wrt, seeds)
        return gradients if kind == "grad" else (f, gradients)
    if seed is not None:
        raise FeedError("pass the seed when you call the gradient function, as seed=")
    argnums = argnums_of(argnums, wrt)
    return _gradient_function(Subject.of(f, *how), argnums, input_derivative, kind)


def _gradient_function(subject: Subject, argnums: Any, input_derivative: str, kind: str) -> Any:
    name, has_aux = subject.name, subject.has_aux

    def builder(args: tuple[Any, ...], kwargs: dict[str, Any], seed: Any) -> Any:
        wrt = chosen(args, argnums, name)
        derivatives.float_nodes(wrt, what_of(argnums, name))
        output, aux = subject.one(args, kwargs)
        seeds = [seed_of(output, seed, input_derivative, f"what {name} returned")]
        gradients = derivatives.gradient_tree([output], wrt, seeds)
        if kind == "grad":
            return (gradients, aux) if has_aux else gradients
        return ((output, aux) if has_aux else output), gradients

    staged = Staged(builder, subject.function)

    def gradient(*args: Any, seed: Any = None, **kwargs: Any) -> Any:
        check_seed(input_derivative, seed, name)
        return staged(args, kwargs, seed)

    return named(gradient, kind, subject.function)
