"""`jacobian` and `hessian`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from actorgraph.autodiff import derivatives
from actorgraph.autodiff.tracing import active_graph, lifted, tracing
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.graph import Graph, Node
from actorgraph.keywords import answering
from actorgraph.transforms.gradient import grad
from actorgraph.transforms.products import cotangents_of, pushed
from actorgraph.transforms.staging import (
    Staged,
    Subject,
    argnums_of,
    check_on_nodes,
    chosen,
    graph_of,
    name_of,
    named,
    what_of,
    wrt_of,
)


@answering
def jacobian(
    f: Any, argnums: Any = 0, *, wrt: Any = None, has_aux: bool = False, exact: bool = True,
    passes: Any = None,
) -> Any:  # fmt: skip
    """Return the Jacobian, by forward or reverse mode, whichever takes fewer passes.

    Parameters
    ----------
    f : callable, or node, dict, list or tuple of nodes
    argnums, wrt, has_aux, exact, passes
        As `grad`.

    Returns
    -------
    callable, or tree of nodes
        A tree of the outputs' structure; each leaf is a tree of the arguments' structure with the
        derivatives, of the output's dtype and shape ``(*output.shape, *argument.shape)``.

    Raises
    ------
    GraphTypeError
        An output or argument is complex.
    ShapeError
        On nodes whose dims are not known before a run.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if not callable(f):
        check_on_nodes(has_aux, exact, passes)
        nodes, structure = derivatives.output_nodes(graph_of(f), f, "outputs")
        wrt = wrt_of(nodes[0], argnums, wrt)
        derivatives.float_nodes(wrt, "wrt")
        return derivatives.jacobian_tree(nodes, structure, wrt, "wrt")
    argnums = argnums_of(argnums, wrt)
    subject = Subject.of(f, has_aux, exact, passes)
    return named(_JacobianFunction(subject, argnums), "jacobian", f)


class _JacobianFunction:
    """The Jacobian of a function, by one run of a machine for each row or column."""

    def __init__(self, subject: Subject, argnums: Any) -> None:
        self._subject, self._argnums = subject, argnums
        self._name = subject.name
        self._value = Staged(self._build_value, subject.function)
        self._push = Staged(self._build_push, subject.function)
        self._pull = Staged(self._build_pull, subject.function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        graph = active_graph(flatten((args, kwargs))[0])
        if graph is not None:
            with tracing(graph):
                return self._on_nodes(graph, *lifted(graph, (args, kwargs)))
        result, aux = self._value(args, kwargs)
        outputs, structure = flatten(result)
        leaves, inner = flatten(chosen(args, self._argnums, self._name))
        wrt = [np.asarray(leaf) for leaf in leaves]
        derivatives.refuse_complex(outputs, wrt)
        blocks = [[np.zeros((*y.shape, *x.shape), y.dtype) for x in wrt] for y in outputs]
        if sum(x.size for x in wrt) <= sum(y.size for y in outputs):
            for i, place, columns in _probed(wrt, inner, partial(self._push, args, kwargs)):
                for row, column in zip(blocks, columns, strict=True):
                    row[i][(..., *place)] = column
        else:
            for j, place, rows in _probed(outputs, structure, partial(self._pull, args, kwargs)):
                for block, row in zip(blocks[j], rows, strict=True):
                    block[place] = row
        jacobian = unflatten(structure, [unflatten(inner, row) for row in blocks])
        return (jacobian, aux) if self._subject.has_aux else jacobian

    def _on_nodes(self, graph: Graph, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result, aux = self._build_value(args, kwargs)
        nodes, structure = flatten(result)
        wrt = chosen(args, self._argnums, self._name)
        jacobian = derivatives.jacobian_tree(nodes, structure, wrt, f"an argument of {self._name}")
        return (jacobian, aux) if self._subject.has_aux else jacobian

    def _build_value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wrt = chosen(args, self._argnums, self._name)
        derivatives.float_nodes(wrt, what_of(self._argnums, self._name))
        nodes, structure, aux = self._subject(args, kwargs)
        return unflatten(structure, nodes), aux

    def _build_push(self, args: tuple[Any, ...], kwargs: dict[str, Any], tangents: Any) -> Any:
        wrt = chosen(args, self._argnums, self._name)
        return pushed(self._subject, args, kwargs, wrt, tangents)[1]

    def _build_pull(self, args: tuple[Any, ...], kwargs: dict[str, Any], seeds: Any) -> Any:
        nodes, structure = flatten(self._build_value(args, kwargs)[0])
        cts = cotangents_of(seeds, nodes, structure, f"what {self._name} returned")
        wrt = chosen(args, self._argnums, self._name)
        return derivatives.gradient_tree(nodes, wrt, cts)


def _probed(
    arrays: list[Any], structure: Structure, compute: Callable[[Any], Any]
) -> Iterator[tuple[int, tuple[Any, ...], list[Any]]]:
    """Yield an array's number, an index, and the results for a 1 there and zeros elsewhere."""
    probe = [np.zeros_like(array) for array in arrays]
    for number, array in enumerate(arrays):
        for place in np.ndindex(array.shape):
            probe[number][place] = 1
            results = flatten(compute(unflatten(structure, probe)))[0]
            probe[number][place] = 0
            yield number, place, results


@answering
def hessian(
    f: Any, argnums: Any = 0, *, wrt: Any = None, has_aux: bool = False, exact: bool = True,
    passes: Any = None,
) -> Any:  # fmt: skip
    """Return the matrix of second derivatives of a scalar: the Jacobian of the gradient.

    Parameters and errors are those of `jacobian`; use `hvp` if products with it are enough.

    Returns
    -------
    callable, or tree of nodes
        A tree of the arguments' structure whose leaves are such trees of blocks, of shape
        ``(*one.shape, *other.shape)``.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> ag.hessian(lambda x: x[0] * x[1])(np.array([1.0, 2.0]))
    array([[0., 1.],
           [1., 0.]])
    """
    if isinstance(f, Node):
        check_on_nodes(has_aux, exact, passes)
        wrt = wrt_of(f, argnums, wrt)
        return jacobian(grad(f, wrt=wrt), wrt=wrt)
    argnums = argnums_of(argnums, wrt)
    slope = grad(f, argnums, has_aux=has_aux, exact=exact, passes=passes)
    subject = Subject(slope, name_of(f), has_aux, ())  # rewritten already
    return named(_JacobianFunction(subject, argnums), "hessian", f)
