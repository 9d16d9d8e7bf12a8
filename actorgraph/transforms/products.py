"""`vjp`, `jvp` and `hvp`: products with a Jacobian or a Hessian that is never built."""

from __future__ import annotations

from typing import Any

from actorgraph.autodiff import derivatives
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import FeedError
from actorgraph.graph import Node
from actorgraph.keywords import answering
from actorgraph.transforms.gradient import check_choice, check_seed, seed_of
from actorgraph.transforms.staging import (
    Staged,
    Subject,
    argnums_of,
    check_on_nodes,
    chosen,
    graph_of,
    what_of,
)


@answering
def vjp(
    f: Any, *primals: Any, argnums: Any = None, wrt: Any = None, has_aux: bool = False,
    input_derivative: str = "required", exact: bool = True, passes: Any = None,
) -> Any:  # fmt: skip
    """Return the value at the primals and the function from cotangents to gradients.

    On nodes, ``vjp(outputs, wrt, seeds)`` returns the gradients in the structure of `wrt`, which
    may also be passed by keyword: ``vjp(outputs, seeds, wrt=wrt)``.

    Parameters
    ----------
    f : callable, or node, dict, list or tuple of nodes
    *primals
        Arguments of the function; or `wrt` and `seeds`.
    argnums : int or tuple of int, optional
        Arguments to differentiate by; default all, as a tuple.
    wrt
        For a function another name of `argnums`; for nodes those to differentiate by.
    has_aux : bool
        The function returns (result, aux), and aux is returned third.
    input_derivative : "required", "one" or "ones"
        Default seed of each output, as for `grad`.
    exact, passes
        As `grad`.

    Returns
    -------
    (result, pull), (result, pull, aux), or tree of nodes
        ``pull(ct)`` takes cotangents in the structure of the result and returns gradients, one
        for each argument of `argnums`; it computes `f` again.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        As `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> y, pull = ag.vjp(lambda x: x * x, np.array([1.0, 2.0]))
    >>> pull(np.array([1.0, 10.0]))
    (array([ 2., 40.]),)
    >>> ag.vjp(lambda x, y: x * y, 2.0, 3.0, argnums=1, input_derivative="one")[1]()
    array(2.)
    """
    check_choice(input_derivative)
    if not callable(f):
        check_on_nodes(has_aux, exact, passes)
        return _vjp_of_nodes(f, primals, argnums, wrt, input_derivative)
    numbers, subject = argnums_of(argnums, wrt, None), Subject.of(f, has_aux, exact, passes)
    name = subject.name

    def evaluate(args: tuple[Any, ...]) -> Any:
        derivatives.float_nodes(chosen(args, numbers, name), what_of(numbers, name))
        nodes, structure, aux = subject(args)
        return unflatten(structure, nodes), aux

    def builder(args: tuple[Any, ...], seeds: Any) -> Any:
        nodes, structure, _ = subject(args)
        cts = cotangents_of(seeds, nodes, structure, f"what {name} returned", input_derivative)
        return derivatives.gradient_tree(nodes, chosen(args, numbers, name), cts)

    result, aux = Staged(evaluate, f)(primals)
    staged = Staged(builder, f)

    def pull(ct: Any = None) -> Any:
        check_seed(input_derivative, ct, name)
        return staged(primals, ct)

    return (result, pull, aux) if has_aux else (result, pull)


def _vjp_of_nodes(
    f: Any, given: tuple[Any, ...], argnums: Any, wrt: Any, input_derivative: str
) -> Any:
    _refuse_argnums(argnums)
    rest = given
    if wrt is None and given:
        wrt, rest = given[0], given[1:]
    missing = not rest and input_derivative == "required"
    if wrt is None or len(rest) > 1 or missing:
        raise FeedError(
            "for nodes write vjp(outputs, wrt, seeds) or vjp(outputs, seeds, wrt=wrt); got "
            f"{len(given)} further arguments"
        )
    nodes, structure = derivatives.output_nodes(graph_of(f), f, "outputs")
    seeds = rest[0] if rest else None
    cts = cotangents_of(seeds, nodes, structure, "the outputs", input_derivative)
    derivatives.float_nodes(wrt, "wrt")
    return derivatives.gradient_tree(nodes, wrt, cts)


def cotangents_of(
    seeds: Any, nodes: list[Node], structure: Structure, what: str,
    input_derivative: str = "required",
) -> list[Node]:  # fmt: skip
    """Return the seeds of results: given in their structure, or the default."""
    if seeds is None and input_derivative != "required":
        return [seed_of(node, None, input_derivative, what) for node in nodes]
    leaves, given = flatten(seeds)
    if given != structure:
        raise FeedError(
            f"the seed derivatives are {given}, but {what} is {structure}; give one for each array"
        )
    pairs = zip(leaves, nodes, strict=True)
    return [derivatives.seed_node(seed, node, what) for seed, node in pairs]


@answering
def jvp(
    f: Any, primals: Any = None, tangents: Any = None, *, argnums: Any = None, wrt: Any = None,
    has_aux: bool = False, exact: bool = True, passes: Any = None,
) -> Any:  # fmt: skip
    """Return the value at the primals and its tangent along the tangents (forward mode).

    Parameters
    ----------
    f : callable, or node, dict, list or tuple of nodes
    primals : tuple or list
        Arguments of the function; for nodes a node or tree of nodes, also named `wrt`.
    tangents : tuple or list
        In the structure of the primals, or of those that `argnums` chooses; 0 for those that are no
        floats.
    argnums, wrt
        The arguments that have tangents, as in `vjp`.
    has_aux : bool
        The function returns (result, aux), and aux is returned third.
    exact, passes
        As `grad`.

    Returns
    -------
    (result, tangent), (result, tangent, aux), or tree of nodes
        For nodes the tangents alone.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        As `grad`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.jvp(lambda x: x * x, (3.0,), (1.0,))
    (array(9.), array(6.))
    >>> ag.jvp(lambda x, y: x * y, (3.0, 2.0), 1.0, argnums=1)
    (array(6.), array(3.))
    """
    if not callable(f):
        check_on_nodes(has_aux, exact, passes)
        nodes, structure = derivatives.output_nodes(graph_of(f), f, "outputs")
        leaves, inner = derivatives.float_nodes(_moving_nodes(primals, argnums, wrt, "jvp"), "wrt")
        directions = derivatives.direction_nodes(tangents, inner, leaves, "the outputs")
        return derivatives.push_tree(nodes, structure, directions)
    numbers, subject = argnums_of(argnums, wrt, None), Subject.of(f, has_aux, exact, passes)

    def builder(args: tuple[Any, ...], directions: Any) -> Any:
        moving = chosen(args, numbers, subject.name)
        if numbers is not None:
            derivatives.float_nodes(moving, what_of(numbers, subject.name))
        return pushed(subject, args, {}, moving, directions)

    given = _along(primals, tangents, numbers, subject.name)
    result, tangent, aux = Staged(builder, f)(*given)
    return (result, tangent, aux) if has_aux else (result, tangent)


def pushed(
    subject: Subject, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Any, tangents: Any
) -> Any:
    """Return (result, tangent, aux) of a function of nodes, with tangents of `wrt`."""
    nodes, structure, aux = subject(args, kwargs)
    leaves, inner = flatten(wrt)
    directions = derivatives.direction_nodes(tangents, inner, leaves, subject.name)
    tangent = derivatives.push_tree(nodes, structure, directions)
    return unflatten(structure, nodes), tangent, aux


@answering
def hvp(
    f: Any, primals: Any = None, tangents: Any = None, *, argnums: Any = None, wrt: Any = None,
    has_aux: bool = False, exact: bool = True, passes: Any = None,
) -> Any:  # fmt: skip
    """Return the product of the Hessian with the tangents; the Hessian is never built.

    Forward over reverse, in about the time of three evaluations.

    Parameters
    ----------
    f : callable or node
        Function that returns a scalar, or a scalar node.
    primals, tangents, argnums, wrt
        As `jvp`; the Hessian is by the arguments that `argnums` chooses.
    has_aux : bool
        The function returns (result, aux), and aux is returned second.
    exact, passes
        As `grad`.

    Returns
    -------
    tuple of arrays, or tree of nodes
        In the structure of the tangents; (product, aux) with `has_aux`.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        As `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.hvp(lambda x: (x ** 3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
    (array([ 6., 12.]),)
    """
    if isinstance(f, Node):
        check_on_nodes(has_aux, exact, passes)
        seed_of(f, None, "one", f"node {f.name}")
        moving = _moving_nodes(primals, argnums, wrt, "hvp")
        derivatives.float_nodes(moving, f"an argument of node {f.name}")
        return derivatives.product_tree(f, moving, tangents, f"node {f.name}")
    numbers, subject = argnums_of(argnums, wrt, None), Subject.of(f, has_aux, exact, passes)
    name = subject.name

    def builder(args: tuple[Any, ...], vectors: Any) -> Any:
        moving = chosen(args, numbers, name)
        derivatives.float_nodes(moving, what_of(numbers, name))
        output, aux = subject.one(args)
        seed_of(output, None, "one", f"what {name} returned")
        return derivatives.product_tree(output, moving, vectors, name), aux

    product, aux = Staged(builder, f)(*_along(primals, tangents, numbers, name))
    return (product, aux) if has_aux else product


def _along(primals: Any, tangents: Any, argnums: Any, name: str) -> tuple[Any, Any]:
    """Return primals and tangents as tuples; for a single chosen argument its bare tangent."""
    one = argnums is not None and not isinstance(argnums, tuple)
    return _tuple_of(primals, name), tangents if one else _tuple_of(tangents, name)


def _tuple_of(given: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(given, (tuple, list)):
        raise FeedError(
            f"primals and tangents are tuples, one entry per argument of {name}; got "
            f"{type(given).__name__}: write ({given!r},)"
        )
    return tuple(given)


def _moving_nodes(primals: Any, argnums: Any, wrt: Any, kind: str) -> Any:
    """Return the nodes that have tangents: `primals`, also called `wrt`."""
    _refuse_argnums(argnums)
    if (primals is None) == (wrt is None):
        raise FeedError(
            f"for nodes write {kind}(output, wrt, tangents) or {kind}(output, tangents=tangents, "
            "wrt=wrt)"
        )
    return wrt if primals is None else primals


def _refuse_argnums(argnums: Any) -> None:
    if argnums is not None:
        raise FeedError(f"argnums={argnums!r} is for functions; for nodes pass wrt=")
