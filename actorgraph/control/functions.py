"""`cond`, `switch`, `scan`, `map`, `fori_loop` and `while_loop` on nodes, as in JAX.

Functions take and return trees of nodes.  Arrays become constants; outer nodes that a function uses
become operands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from actorgraph.autodiff.tracing import active_graph, surroundings
from actorgraph.autodiff.trees import Structure, flatten, unflatten
from actorgraph.control.bodies import Body, BodyGraph, innermost, lifted, traced
from actorgraph.control.branch import Cases, branch, branch_name
from actorgraph.control.loop import Spec, loop
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node
from actorgraph.keywords import answering
from actorgraph.ops._records import item
from actorgraph.ops.elementwise import astype, maximum
from actorgraph.options import positive
from actorgraph.types import UNKNOWN, Dim, Tensor, shape_from

_Function = Callable[..., Any]
_LOOKED_INTO = 100
"""Most functions, called ones included, whose surroundings are searched for a node."""


# -- what is given --------------------------------------------------------------------------------


def graph_of(what: str, leaves: Sequence[Any], *functions: Any) -> Graph:
    """Return the graph to build in: that of a leaf, or of a node that a function closes over."""
    graph = graph_if_any(leaves, *functions)
    if graph is None:
        raise GraphTypeError(
            f"{what} finds no node, neither among its arguments nor in what its functions close "
            "over; make one of an array by graph.constant(array)"
        )
    return graph


def graph_if_any(leaves: Sequence[Any], *functions: Any) -> Graph | None:
    """Return the graph to build in, None if there are only arrays."""
    waiting: deque[Any] = deque([*leaves, *functions])
    known: set[int] = set()
    while waiting:
        value = waiting.popleft()
        if isinstance(value, Graph):
            return innermost(value)
        if isinstance(value, Node):
            return innermost(_root(value.graph))
        if callable(value) and id(value) not in known and len(known) < _LOOKED_INTO:
            known.add(id(value))
            waiting += surroundings(value)
    graph = active_graph(())
    return None if graph is None else innermost(graph)


def _root(graph: Graph) -> Graph:
    while isinstance(graph, BodyGraph) and graph.is_open:
        graph = graph.outer
    return graph


def _lifted(graph: Graph, tree: Any, what: str) -> tuple[list[Node], Structure]:
    """Return the leaves of a tree as nodes, and its structure."""
    leaves, structure = flatten(tree)
    return lifted(graph, leaves, f"{what} is", "give"), structure


def _named(names: str, nodes: Sequence[Node]) -> list[tuple[str, Tensor]]:
    return [(f"{names}_{number}", node.type) for number, node in enumerate(nodes)]


def _same_tree(what: str, wanted: Structure, got: Structure) -> None:
    if wanted != got:
        raise GraphTypeError(f"{what} is {got}, it has to be {wanted} (* is a leaf)")


def _scalar(value: Any, what: str, kinds: str, words: str) -> Any:
    if not isinstance(value, Node):
        value = np.asarray(value)
    if value.dtype.kind not in kinds:
        raise GraphTypeError(f"{what} is {words}, got {shown(value)} of dtype {value.dtype}")
    if value.ndim:
        raise ShapeError(f"{what} is a scalar, got {shown(value)} of shape {value.shape}")
    return value


# -- branches -------------------------------------------------------------------------------------


@answering
def cond(pred: Any, true_fun: _Function, false_fun: _Function, *operands: Any) -> Any:
    """Return the result of one of two functions of the operands; only that one is computed.

    Derivatives are those of the branch taken.

    Parameters
    ----------
    pred : node or bool
        A bool scalar.  A Python bool chooses at once: the other function is not even called.
    true_fun, false_fun : callable
        Functions of nodes that return trees of one structure, with leaves of equal types.
    *operands : trees of nodes and arrays
        Arguments of the chosen function; functions may also use outer nodes.

    Raises
    ------
    GraphTypeError, ShapeError
        If `pred` is no bool scalar, or the results differ in structure, dtype or dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (), "float64")
    >>> ag.cond(x > 0, lambda: x * 2, lambda: -x)
    <item_4: float64[]>
    """
    pred = _scalar(pred, "the predicate of cond", "b", "a bool scalar")
    if not isinstance(pred, Node):
        return (true_fun if pred else false_fun)(*operands)
    return _branched("cond", pred, (false_fun, true_fun), operands)


@answering
def switch(index: Any, branches: Sequence[_Function], *operands: Any) -> Any:
    """Return the result of the function with an index; see `cond`.

    Parameters
    ----------
    index : node or int
        An integer scalar; a run in which it is out of range fails.  A Python int chooses at once.
    branches : sequence of callables
    *operands : trees of nodes and arrays

    Raises
    ------
    GraphError
        If there are no branches, or a Python int is out of range.
    GraphTypeError, ShapeError
        If the index is no integer scalar, or the results differ in structure, dtype or dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> g = ag.Graph()
    >>> x, i = g.input("x", (), "float64"), g.input("i", (), "int64")
    >>> ag.switch(i, [lambda x: x, lambda x: x * x, lambda x: x * x * x], x)
    <item_3: float64[]>
    """
    index = _scalar(index, "the index of switch", "iu", "an integer scalar")
    functions = tuple(branches)
    if not functions:
        raise GraphError("switch needs at least one branch")
    if not isinstance(index, Node):
        if not 0 <= index < len(functions):
            raise GraphError(f"switch got the index {index}; it has {len(functions)} branches")
        return functions[int(index)](*operands)
    return _branched("switch", index, functions, operands)


def _branched(
    what: str, index: Node, functions: Sequence[_Function], operands: Sequence[Any]
) -> Any:
    graph = graph_of(what, [index], *functions)
    nodes, structure = _lifted(graph, tuple(operands), f"an operand of {what}")
    pieces, structures = [], []

    def called(function: _Function, _: Any, given: list[Node]) -> Any:
        return function(*unflatten(structure, given))

    for number, function in enumerate(functions):
        title = f"{branch_name(what, number)} of {what}"
        traced_graph, given, results, made = traced(
            function, graph, title, _named("operand", nodes), called, indexed=False
        )
        captures = traced_graph.captures
        inputs = dict(zip([*given, *captures.values()], [*nodes, *captures], strict=True))
        pieces.append((inputs, results))
        structures.append(made)
        _same_tree(f"the result of {title}", structures[0], made)
    return unflatten(structures[0], joined(what, graph, index, pieces))


def joined(
    what: str, graph: Graph, index: Any, pieces: Sequence[tuple[dict[Node, Node], list[Node]]]
) -> list[Node]:
    """Return the results of a branch of traced bodies; errors call it `what`.

    `pieces` has for each body its inputs, each with the outer node that it stands for, and its
    results.
    """
    operands = {node: 0 for inputs, _ in pieces for node in inputs.values()}
    place = {node: number for number, node in enumerate(operands)}
    cases = Cases(
        tuple([Body(inputs, results) for inputs, results in pieces]),
        tuple([tuple([place[node] for node in inputs.values()]) for inputs, _ in pieces]),
        what,
    )
    record = branch(graph, cases, [graph.lift(index), *operands])
    return [item(record, field) for field in range(len(cases.bodies[0].results))]


# -- loops ----------------------------------------------------------------------------------------


@answering
def scan(
    f: _Function, init: Any, xs: Any = None, length: int | str | None = None, *,
    reverse: bool = False, save: str | int = "auto",
) -> tuple[Any, Any]:  # fmt: skip
    """Apply ``f(carry, x) -> (carry, y)`` along the first axis of `xs`, and stack each `y`.

    Parameters
    ----------
    f : callable
        Takes the carry and an element of `xs` (None without `xs`); returns the next carry, of the
        same structure and types, and the output to stack (None for none).
    init : tree of nodes and arrays
        The first carry.
    xs : tree of nodes and arrays, optional
        All of one length, which may be symbolic.
    length : int, optional
        Number of iterations; needed without `xs`.
    reverse : bool
        Begin with the last elements; stacked outputs keep the places of the elements.
    save : "auto", "all", "carry" or int
        What is saved for a backward pass: every value that it reads; only the carries, from which
        each iteration is recomputed; or that many carries at once, between which iterations are
        recomputed repeatedly (Revolve of Griewank and Walther).  Gradients have the same bits.
        ``"auto"`` saves all values if they fit.

    Returns
    -------
    carry, ys : trees of nodes

    Raises
    ------
    GraphTypeError, ShapeError
        If a carry changes its structure, dtype or dims, lengths differ, or a leaf is a Python
        scalar.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> xs = ag.Graph().input("xs", ("n",), "float64")
    >>> total, sums = ag.scan(lambda c, x: (c + x, c + x), np.zeros(()), xs)
    >>> sums
    <item_4: float64[n]>
    """
    leaves, _ = flatten((init, xs))
    graph = graph_of("scan", leaves, f)
    elements, x_tree = _lifted(graph, xs, "an array of scan")
    size = _length_of(elements, length)
    save = save if save in ("auto", "all", "carry") else positive("save", save)

    def called(function: _Function, _: Any, carry: Any, x: Any) -> Any:
        result = function(carry, unflatten(x_tree, x))
        if not isinstance(result, tuple) or len(result) != 2:
            raise GraphTypeError(f"the body of scan returns (carry, y), got {shown(result)}")
        return result

    return _looped(
        "scan", graph, f, called, init, elements,
        length=size, reverse=bool(reverse), save=save,
    )  # fmt: skip


def _length_of(elements: Sequence[Node], length: Any) -> int | Dim | None:
    for x in elements:
        if not x.ndim:
            raise ShapeError(f"scan goes along the first axis, and {x!r} is a scalar")
    lengths = [x.dims[0] for x in elements]
    if length is not None:
        lengths = [*shape_from((length,)), *lengths]
    if not lengths:
        raise GraphTypeError("scan without arrays needs length=, the number of iterations")
    known = [size for size in lengths if isinstance(size, int)]
    if len(set(known)) > 1:
        raise ShapeError(f"the arrays of scan, and length, have different lengths: {known}")
    named = [size for size in lengths if size is not UNKNOWN]
    return (known or named or [None])[0]


@answering
def map(f: _Function, xs: Any) -> Any:  # noqa: A001 - its name in JAX
    """Return the stacked results of `f` for each element of `xs`.

    Parameters
    ----------
    f : callable
    xs : tree of nodes and arrays
        All of one length, which may be symbolic.

    Examples
    --------
    >>> import actorgraph as ag
    >>> xs = ag.Graph().input("xs", ("n", 3), "float64")
    >>> ag.map(lambda x: x.sum(), xs)
    <item_2: float64[n]>
    """

    def body(_: None, x: Any) -> tuple[None, Any]:
        return None, f(x)

    return scan(body, None, xs)[1]


@answering
def fori_loop(lower: Any, upper: Any, body_fun: _Function, init: Any, *, save: Any = "auto") -> Any:
    """Return the carry after ``body_fun(i, carry)`` for i from `lower` to `upper` - 1.

    Parameters
    ----------
    lower, upper : int or node
        Integer scalars; if `upper` is not above `lower` the result is `init`.
    body_fun : callable
        Takes the index, an int64 scalar, and the carry; returns the next carry.
    init : tree of nodes and arrays
    save : "auto", "all", "carry" or int
        As in `scan`.

    Raises
    ------
    GraphTypeError, ShapeError
        If a bound is no integer scalar, or a carry changes its structure, dtype or dims.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (3,), "float64")
    >>> ag.fori_loop(0, 4, lambda i, c: c * x, np.ones(3))
    <item_3: float64[3]>
    """
    bounds = [
        _scalar(bound, f"the {name} bound of fori_loop", "iu", "an integer scalar")
        for name, bound in (("lower", lower), ("upper", upper))
    ]
    leaves, _ = flatten((init, bounds))
    graph = graph_of("fori_loop", [x for x in leaves if isinstance(x, Node)], body_fun)
    first: Any = bounds[0] if isinstance(bounds[0], Node) else int(bounds[0])
    count: Any = None
    length: int | None = None
    if any(isinstance(bound, Node) for bound in bounds):
        low, high = (graph.lift(bound) for bound in bounds)
        count = maximum(astype(high, "int64") - astype(low, "int64"), 0)
        first = astype(low, "int64")
    else:
        length = max(0, int(bounds[1]) - int(bounds[0]))

    def called(function: _Function, index: Node, carry: Any, _: Any) -> Any:
        at_zero = isinstance(first, int) and not first
        return function(index if at_zero else index + first, carry), None

    options = {"length": length, "count": count, "save": save}
    return _looped("fori_loop", graph, body_fun, called, init, [], **options)[0]


@answering
def while_loop(
    cond_fun: _Function, body_fun: _Function, init: Any, *, max_trips: int | None = None,
    save: Any = "auto",
) -> Any:  # fmt: skip
    """Return the carry after ``body_fun(carry)`` for as long as ``cond_fun(carry)`` is true.

    It is differentiable: the backward pass reverses the iterations that were run.  A comparison
    with NaN is false and ends the loop.

    Parameters
    ----------
    cond_fun : callable
        Takes the carry, returns a bool scalar.
    body_fun : callable
        Takes the carry, returns the next one, of the same structure and types.
    init : tree of nodes and arrays
    max_trips : int, optional
        A run that would make more iterations fails.
    save : "auto", "all", "carry" or int
        As in `scan`.

    Raises
    ------
    GraphTypeError, ShapeError
        If the test returns no bool scalar, or a carry changes its structure, dtype or dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> x = ag.Graph().input("x", (), "float64")
    >>> ag.while_loop(lambda c: c < 100, lambda c: c * x, x)
    <item_2: float64[]>
    """
    limit = None if max_trips is None else int(max_trips)
    if limit is not None and limit < 0:
        raise GraphError(f"max_trips is a number of iterations, at least 0, got {max_trips!r}")
    leaves, _ = flatten(init)
    graph = graph_of("while_loop", leaves, cond_fun, body_fun)

    def called(function: _Function, _: Any, carry: Any, __: Any) -> Any:
        return function(carry), None

    return _looped(
        "while_loop", graph, body_fun, called, init, [], test=cond_fun, limit=limit, save=save
    )[0]


def _looped(
    what: str, graph: Graph, function: _Function, called: Callable[..., Any], init: Any,
    elements: Sequence[Node], *, test: _Function | None = None, count: Node | None = None,
    **options: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Trace the functions of a loop; return its last carry and its stacked outputs."""
    carries, tree = _lifted(graph, init, f"a carry of {what}")
    types = _named("carry", carries)
    each = [(f"x_{i}", Tensor.of(x.dtype, x.dims[1:])) for i, x in enumerate(elements)]
    size = len(carries)

    def made(function: _Function, index: Any, given: list[Node]) -> Any:
        carry, y = called(function, index, unflatten(tree, given[:size]), given[size:])
        _same_tree(f"the carry that the body of {what} returns", tree, flatten(carry)[1])
        return carry, y

    def tested(function: _Function, _: Any, given: list[Node]) -> Any:
        answer = function(unflatten(tree, given))
        return _scalar(answer, f"the test of {what}", "b", "a bool scalar")

    inside, given, results, structure = traced(
        function, graph, f"the body of {what}", [*types, *each], made
    )
    assert inside.index is not None
    body = Body([inside.index, *inside.captures.values(), *given], results)
    operands, test_body = [*([] if count is None else [count]), *inside.captures], None
    if test is not None:
        inside, given, results, _ = traced(
            test, graph, f"the test of {what}", types, tested, indexed=False
        )
        test_body = Body([*inside.captures.values(), *given], results)
        operands += inside.captures
    spec = Spec(
        body, size, len(elements), test=test_body, counted=count is not None, what=what, **options
    )
    record = loop(graph, spec, [*operands, *carries, *elements])
    result = unflatten(structure, [item(record, field) for field in range(spec.trips)])
    return result[0], result[1]
