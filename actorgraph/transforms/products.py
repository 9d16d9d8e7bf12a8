"""`vjp`, `jvp` and `hvp`: products with a Jacobian or a Hessian that is never built."""

from __future__ import annotations

from typing import Any

from actorgraph.autodiff import derivatives
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.errors import FeedError
from actorgraph.graph import Node
from actorgraph.transforms.gradient import seed_of
from actorgraph.transforms.staging import Staged, graph_of, name_of, one_output, parted

__all__ = ["cotangents_of", "hvp", "jvp", "pushed", "vjp"]


def vjp(f: Any, *primals: Any, has_aux: bool = False) -> Any:
    """Return the value at the primals and the function from cotangents to gradients.

    On nodes: ``vjp(outputs, wrt, seeds)`` returns the gradients in the structure of `wrt`.

    Parameters
    ----------
    f : callable, or node, dict, list or tuple of nodes
    *primals
        Arguments of the function, all differentiated; or `wrt` and `seeds`.
    has_aux : bool
        The function returns (result, anything else), which is returned third.

    Returns
    -------
    (result, pull), (result, pull, aux), or tree of nodes
        ``pull(ct)`` takes cotangents in the structure of the result and returns a tuple of
        gradients, one per primal; it computes `f` again.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        As `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> y, pull = vjp(lambda x: x * x, np.array([1.0, 2.0]))
    >>> pull(np.array([1.0, 10.0]))
    (array([ 2., 40.]),)
    """
    if not callable(f):
        wrt, seeds = _two_of(primals, "vjp(outputs, wrt, seeds)")
        nodes, structure = derivatives.output_nodes(graph_of(f), f, "outputs")
        cts = cotangents_of(seeds, nodes, structure, "the outputs")
        return derivatives.gradient_tree(nodes, wrt, cts, "wrt")
    name = name_of(f)

    def evaluate(args: tuple[Any, ...]) -> Any:
        result, aux = parted(f(*args), has_aux, name)
        nodes, structure = derivatives.output_nodes(graph_of(args), result, name)
        return unflatten(structure, nodes), aux

    def builder(args: tuple[Any, ...], seeds: Any) -> Any:
        nodes, structure = flatten(evaluate(args)[0])
        cts = cotangents_of(seeds, nodes, structure, f"what {name} returned")
        return derivatives.gradient_tree(nodes, args, cts, f"an argument of {name}")

    result, aux = Staged(evaluate, f)(primals)
    staged = Staged(builder, f)

    def pull(ct: Any) -> Any:
        return staged(primals, ct)

    return (result, pull, aux) if has_aux else (result, pull)


def _two_of(primals: tuple[Any, ...], form: str) -> tuple[Any, Any]:
    if len(primals) != 2:
        raise FeedError(f"for nodes write {form}; got {len(primals)} further arguments, not 2")
    return primals[0], primals[1]


def cotangents_of(seeds: Any, nodes: list[Node], structure: Structure, what: str) -> list[Node]:
    """Return the seeds of a function's results, given in their structure."""
    leaves, found = flatten(seeds)
    if found != structure:
        raise FeedError(
            f"the seed derivatives are {found}, but {what} is {structure}; give one for each array"
        )
    pairs = zip(leaves, nodes, strict=True)
    return [derivatives.seed_node(seed, node, what) for seed, node in pairs]


def jvp(f: Any, primals: Any, tangents: Any, *, has_aux: bool = False) -> Any:
    """Return the value at the primals and its tangent along the tangents (forward mode).

    Parameters
    ----------
    f : callable, or node, dict, list or tuple of nodes
    primals : tuple or list
        Arguments of the function; for nodes a node or tree of nodes.
    tangents : tuple or list
        In the structure of the primals; 0 for what is no float.
    has_aux : bool
        The function returns (result, anything else), which is returned third.

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
    >>> jvp(lambda x: x * x, (3.0,), (1.0,))
    (array(9.), array(6.))
    """
    if not callable(f):
        nodes, structure = derivatives.output_nodes(graph_of(f), f, "outputs")
        wrt, inner = derivatives.float_nodes(primals, "wrt")
        directions = derivatives.direction_nodes(tangents, inner, wrt, "the outputs")
        return derivatives.push_tree(nodes, structure, directions)
    name = name_of(f)

    def builder(args: tuple[Any, ...], directions: tuple[Any, ...]) -> Any:
        return pushed(f, args, {}, args, directions, has_aux)

    result, tangent, aux = Staged(builder, f)(_tuple_of(primals, name), _tuple_of(tangents, name))
    return (result, tangent, aux) if has_aux else (result, tangent)


def pushed(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Any, tangents: Any, has_aux: bool
) -> Any:
    """Return (result, tangent, aux) of a function of nodes, with tangents of `wrt`."""
    name = name_of(f)
    result, aux = parted(f(*args, **kwargs), has_aux, name)
    nodes, structure = derivatives.output_nodes(graph_of(args, kwargs), result, name)
    leaves, inner = flatten(wrt)
    directions = derivatives.direction_nodes(tangents, inner, leaves, name)
    tangent = derivatives.push_tree(nodes, structure, directions)
    return unflatten(structure, nodes), tangent, aux


def _tuple_of(given: Any, name: str) -> tuple[Any, ...]:
    if not isinstance(given, (tuple, list)):
        raise FeedError(
            f"primals and tangents are tuples, one entry per argument of {name}; got "
            f"{type(given).__name__}: write ({given!r},)"
        )
    return tuple(given)


def hvp(f: Any, primals: Any, tangents: Any) -> Any:
    """Return the product of the Hessian with the tangents; the Hessian is never built.

    Forward over reverse, in about the time of three evaluations.

    Parameters
    ----------
    f : callable or node
        Function that returns a scalar, or a scalar node.
    primals, tangents
        As `jvp`.

    Returns
    -------
    tuple of arrays, or tree of nodes
        In the structure of the primals.

    Raises
    ------
    GraphTypeError, ShapeError, FeedError
        As `grad`.

    Examples
    --------
    >>> import numpy as np
    >>> hvp(lambda x: (x ** 3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 1.0]),))
    (array([ 6., 12.]),)
    """
    if isinstance(f, Node):
        seed_of(f, None, "one", f"node {f.name}")
        return derivatives.product_tree(f, primals, tangents, f"node {f.name}")
    name = name_of(f)

    def builder(args: tuple[Any, ...], vectors: tuple[Any, ...]) -> Any:
        derivatives.float_nodes(args, f"an argument of {name}")
        output = one_output(graph_of(args), f(*args), name)
        seed_of(output, None, "one", f"what {name} returned")
        return derivatives.product_tree(output, args, vectors, name)

    return Staged(builder, f)(_tuple_of(primals, name), _tuple_of(tangents, name))
