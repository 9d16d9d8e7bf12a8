"""Derivatives of single calls, from the rules of the ops: there is no second table.

A call is applied to nodes, as in `ag.grad`, and the fragment that the ops' rules build is printed
as NumPy.  If the text is the same for all ranks, it is inlined in the generated function; otherwise
the function calls a `Derived`, which builds the fragment for the types that it gets.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial, update_wrapper
from itertools import product
from typing import Any

import numpy as np

from actorgraph.autodiff.forward import push_forward
from actorgraph.autodiff.reverse import pull_back, seeded
from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.errors import GraphError, GraphTypeError
from actorgraph.graph import Graph, Node, topological_order
from actorgraph.keywords import answering
from actorgraph.lower.kernels import kernel
from actorgraph.op import CONSTANT, INPUT, Op, is_symbolic
from actorgraph.ops.shaping import array
from actorgraph.source import support

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide,
    ast.Pow: np.power, ast.MatMult: np.matmul, ast.Mod: np.remainder, ast.USub: np.negative,
    ast.UAdd: np.positive,
}  # fmt: skip
"""The ufunc of each operator that has a derivative."""

_SIGNS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**", "greater": ">",
    "less": "<", "greater_equal": ">=", "less_equal": "<=", "equal": "==", "not_equal": "!=",
    "floor_divide": "//", "remainder": "%",
}  # fmt: skip
_MATH = {"fabs": "absolute", "pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_LIKE = {"sum_like": support.sum_like, "broadcast_like": support.broadcast_like}


def on_nodes(function: Any) -> Any:
    """Return the function to apply to nodes in place of another."""
    if isinstance(function, (Derived, Kernel)):
        return function.trace
    if isinstance(function, trace):
        return function.func
    name: str = getattr(function, "__name__", "")
    if name and getattr(math, name, None) is function:
        return getattr(np, _MATH.get(name, name), None)
    return {abs: np.absolute, pow: np.power}.get(function, function)


@answering
class trace:
    """A function whose source is not read: it is traced on nodes, as by `ag.grad`.

    Examples
    --------
    >>> import numpy as np
    >>> import actorgraph as ag
    >>> @ag.source.trace
    ... def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> def twice(x):
    ...     return 2.0 * norm(x)
    >>> ag.source.grad(twice)(np.array([3.0, 4.0]))
    array([1.2, 1.6])
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        update_wrapper(self, func)
        self.func = func

    def __call__(self, *args: Any) -> Any:
        """Call the function itself."""
        return self.func(*args)


class Kernel:
    """An op of the registry as a function of arrays, under the op's name."""

    def __init__(self, op: Op) -> None:
        self.op, self.__name__ = op, op.name

    def __call__(self, *arrays: Any, **attrs: Any) -> Any:
        """Apply the op to arrays."""
        return self.op.forward(np, *map(np.asarray, arrays), **attrs)

    def trace(self, *nodes: Any, **attrs: Any) -> Node:
        """Return the node that applies the op."""
        graph = next(node.graph for node in nodes if isinstance(node, Node))
        return graph.apply(self.op, nodes, attrs)


def _cotangents(ys: Sequence[Node], cts: Sequence[Node], wrt: Sequence[Node]) -> list[Node | None]:
    graph = ys[0].graph
    with graph.building():
        seeds = seeded(zip(ys, cts, strict=True))
        pulled = pull_back(graph, topological_order(list(ys)), seeds, wrt)
    return [pulled[node] for node in wrt]


def _tangents(ys: Sequence[Node], wrt: Sequence[Node], tans: Sequence[Node]) -> list[Node | None]:
    graph = ys[0].graph
    with graph.building():
        seeds = dict(zip(wrt, tans, strict=True))
        pushed = push_forward(graph, topological_order(list(ys)), seeds)
    return [pushed.get(y) for y in ys]


# -- text of a fragment -----------------------------------------------------------------------


class InlineRule:
    """The text of a call's derivative: NumPy expressions for its results, the `parts`.

    A node that is used twice gets a name `before`; `helpers` are further functions by name.
    """

    def __init__(self, names: dict[Node, ast.expr], results: Sequence[Node | None]) -> None:
        self.names = names
        self.before: list[tuple[str, ast.expr]] = []
        self.helpers: dict[str, Any] = {}
        wanted = [node for node in results if node is not None]
        order = topological_order(wanted)
        uses = Counter([part for node in order if node not in names for part in node.inputs])
        uses.update(wanted)
        for node in order:
            if node in self.names or not uses[node]:
                continue
            expression = self.expression(node)
            if uses[node] > 1 and not isinstance(expression, ast.Constant):
                name = f"{node.op.name}_t{len(self.before)}"
                self.before.append((name, expression))
                expression = ast.Name(name, ast.Load())
            self.names[node] = expression
        self.parts = [None if node is None else self.names[node] for node in results]

    def key(self) -> str:
        """Return the whole text, to compare fragments of several ranks."""
        parts = ["" if part is None else ast.unparse(part) for part in self.parts]
        return ";".join([*[f"{name}={ast.unparse(value)}" for name, value in self.before], *parts])

    def expression(self, node: Node) -> ast.expr:
        """Return the expression of a node, whose inputs have theirs; raise ValueError for none."""
        if node.op is CONSTANT:
            return _constant(node.attrs["value"])
        if node.op is INPUT or is_symbolic(node.attrs):
            raise ValueError("the fragment depends on a shape")
        args = [self.names[part] for part in node.inputs]
        name = node.op.ufunc
        if name is not None and not node.attrs:
            if name in _SIGNS:
                return ast.parse(f"({ast.unparse(args[0])}) {_SIGNS[name]} "
                                 f"({ast.unparse(args[1])})", mode="eval").body  # fmt: skip
            if name == "negative":
                return ast.UnaryOp(ast.USub(), args[0])
            function: ast.expr = ast.Attribute(ast.Name("np", ast.Load()), name, ast.Load())
        else:
            name = node.op.name
            if name == "where":
                return ast.Call(ast.parse("np.where", mode="eval").body, args, [])
            self.helpers[name] = _LIKE.get(name) or Kernel(node.op)
            function = ast.Name(name, ast.Load())
        keywords = [ast.keyword(key, _literal(value)) for key, value in node.attrs.items()]
        return ast.Call(function, args, keywords)


def _constant(value: Any) -> ast.expr:
    if value.ndim:
        raise ValueError("an array has no text")
    item = value.item()
    if isinstance(item, float) and not math.isfinite(item):
        text = "np.nan" if math.isnan(item) else "np.inf" if item > 0 else "-np.inf"
        return ast.parse(text, mode="eval").body
    return ast.Constant(item)


def _literal(value: Any) -> ast.expr:
    literal = ast.parse(repr(value), mode="eval").body
    ast.literal_eval(literal)
    return literal


def inline(
    function: Any, args: Sequence[ast.expr], words: dict[str, ast.expr], active: Sequence[int],
    forward: bool = False,
) -> InlineRule | None:  # fmt: skip
    """Return the text of a derivative, or None if it depends on ranks or on a variable keyword.

    Arguments are named ``x0``, ``x1`` ..., the result ``y``, its cotangent ``ct``, tangents of the
    arguments ``t0``, ``t1`` ...
    """
    if not all(map(is_literal, words.values())):
        return None
    kwargs = {name: ast.literal_eval(value) for name, value in words.items()}
    fixed = {i: ast.literal_eval(arg) for i, arg in enumerate(args) if is_literal(arg)}
    key = function, len(args), repr(fixed), repr(kwargs), tuple(active), forward
    try:
        if key not in _MEMO:
            _MEMO[key] = _inline(function, len(args), fixed, kwargs, active, forward)
        return _MEMO[key]
    except TypeError:  # a user's callable that is not hashable
        return None


_MEMO: dict[Any, InlineRule | None] = {}


def _inline(
    function: Any, count: int, fixed: dict[int, Any], kwargs: Any, active: Any, forward: bool
) -> InlineRule | None:
    target = on_nodes(function)
    arrays = [i for i in range(count) if i not in fixed]
    elementwise = isinstance(function, np.ufunc) or isinstance(target, np.ufunc)
    if any(i not in active for i in arrays) and not elementwise:
        return None
    given = [fixed.get(i) for i in range(count)]
    common: InlineRule | None = None
    for rank in product((1, 2), repeat=len(arrays)):
        ranks = dict(zip(arrays, rank, strict=True))
        printed = None
        for named in (True, False) if len(arrays) == 1 else (False,):
            printed = printed or _printed(target, given, kwargs, ranks, active, named, forward)
        if printed is None or (common is not None and common.key() != printed.key()):
            return None
        common = printed
    return common


def is_literal(node: ast.expr) -> bool:
    """Return whether an expression is a literal."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _printed(
    target: Any, args: Any, kwargs: Any, ranks: dict[int, int],
    active: Sequence[int], named: bool, forward: bool,
) -> InlineRule | None:  # fmt: skip
    graph = Graph()
    nodes = {
        i: graph.input(f"x{i}", tuple(f"d{i}_{a}" if named else None for a in range(rank)), float)
        for i, rank in ranks.items()
    }
    given = [nodes.get(i, arg) for i, arg in enumerate(args)]
    try:
        result = target(*given, **kwargs)
        if not isinstance(result, Node) or result.dtype != np.float64:
            return None
        wrt = [nodes[i] for i in active]
        if forward:
            leaves = [graph.input(f"t{i}", nodes[i].dims, float) for i in active]
            parts: list[Node | None] = _tangents([result], wrt, leaves)
        else:
            leaves = [graph.input("ct", result.dims, float)]
            parts = _cotangents([result], leaves, wrt)
        named_so: dict[Node, ast.expr] = {result: ast.Name("y", ast.Load())}
        for node in (*leaves, *nodes.values()):
            named_so[node] = ast.Name(node.name, ast.Load())
        return InlineRule(named_so, parts)
    except (GraphError, ValueError, TypeError, AttributeError):
        return None


# -- derivatives for the types at run time --------------------------------------------------------


class Derived:
    """The derivative of a call, as a function of arrays that is built once for each set of types.

    Reverse: ``derived(ct, *args, **kwargs)`` returns the cotangents of the arguments `active`
    (positions), a single one without a tuple.  Forward: ``derived(tangents, *args, **kwargs)``.
    """

    LIMIT = 256

    def __init__(self, function: Any, active: tuple[int, ...], forward: bool = False) -> None:
        kind = "tangent" if forward else "adjoint"
        self.function, self.active, self.forward = function, active, forward
        self.__name__ = f"{getattr(function, '__name__', 'call')}_{kind}"
        self._made: dict[Any, Any] = {}
        self._last: tuple[Any, Any] = None, None

    def __call__(self, seed: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the derivative for arrays."""
        if all([type(one) is np.ndarray for one in args]) and not kwargs:  # noqa: C419 - faster
            key: Any = tuple([(one.shape, one.dtype) for one in args])
            arrays: list[Any] = list(args)
        else:
            leaves, structure = flatten((args, kwargs))
            leaves = [_numeric(leaf) for leaf in leaves]
            arrays = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
            key = structure, tuple([_kind_of(leaf) for leaf in leaves])
        last, program = self._last
        if key != last:  # dtypes are compared by identity first, and hashed slowly
            program = self._made.get(key)
            if program is None:
                if len(self._made) >= self.LIMIT:
                    self._made.clear()
                program = self._made[key] = self._make(args, kwargs)
            self._last = key, program
        run, several = program
        if self.forward:
            moving = [args[i] for i in self.active]
            return run(*map(np.asarray, _seed_leaves(seed, moving)), *arrays)
        if several:
            pairs = zip(seed, several, strict=True)
            cts = [np.zeros(*kind) if ct is None else np.asarray(ct) for ct, kind in pairs]
            return run(*cts, *arrays)
        return run(seed if type(seed) is np.ndarray else np.asarray(seed), *arrays)

    def _make(self, args: Any, kwargs: Any) -> Any:
        graph = Graph()
        leaves, structure = flatten((args, kwargs))
        nodes = [
            graph.input(f"x{i}", leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray) else leaf
            for i, leaf in enumerate(map(_numeric, leaves))
        ]
        inputs = [node for node in nodes if isinstance(node, Node)]
        given, named = unflatten(structure, nodes)
        try:
            result = on_nodes(self.function)(*given, **named)
        except GraphTypeError:
            # Some passive arguments have to be numbers, such as the q of a quantile.
            kept = [leaf if isinstance(leaf, float) else nodes[i] for i, leaf in enumerate(leaves)]
            numbers, named = unflatten(structure, kept)
            given = [one if i in self.active else numbers[i] for i, one in enumerate(given)]
            result = on_nodes(self.function)(*map(_array_of, given), **named)
        several, results = _listed(result)
        if not all(isinstance(one, Node) for one in results):
            name = getattr(self.function, "__name__", "the call")
            raise GraphError(
                f"{name} has no derivative for these arguments; give it one with "
                f"@ag.source.adjoint({name}) and @ag.source.tangent({name})"
            )
        moving, shape = flatten([given[i] for i in self.active])
        wrt = [one for one in moving if isinstance(one, Node) and one.dtype.kind in "fc"]
        if self.forward:
            seeds = [graph.input(f"t{i}", one.dims, one.dtype) for i, one in enumerate(wrt)]
            slopes: list[Any] = _tangents(results, wrt, seeds)
        else:
            seeds = [graph.input(f"ct{i}", y.dims, y.dtype) for i, y in enumerate(results)]
            by_node = dict(zip(wrt, _cotangents(results, seeds, wrt), strict=True))
            slopes = [by_node.get(one) if isinstance(one, Node) else None for one in moving]
        if self.forward:  # that of a whole number is zero
            pairs = zip(slopes, results, strict=True)
            slopes = [graph.lift(np.zeros(y.dims)) if one is None else one for one, y in pairs]
        single = len(self.active) == 1
        one = not several if self.forward else single and isinstance(given[self.active[0]], Node)
        run = _program(slopes, [*seeds, *inputs], one)
        if not (self.forward or one or all(isinstance(given[i], Node) for i in self.active)):
            run = partial(_in_trees, shape, run, single)
        return run, several and [(y.shape, y.dtype) for y in results]

    def trace(self, seed: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the derivative as nodes, for derivatives of higher order."""
        nodes, _ = flatten((seed, args))
        graph = next(node.graph for node in nodes if isinstance(node, Node))
        given = [graph.lift(one) if isinstance(one, support.NUMBERS) else one for one in args]
        result = on_nodes(self.function)(*given, **kwargs)
        several, results = _listed(result)
        moving, shape = flatten([given[i] for i in self.active])
        wrt = [one for one in moving if isinstance(one, Node)]
        zero = graph.constant(np.zeros(()))
        if self.forward:
            tans = [graph.lift(one) for one in _seed_leaves(seed, [given[i] for i in self.active])]
            pushed = [zero if one is None else one for one in _tangents(results, wrt, tans)]
            return pushed if several else pushed[0]
        cts = [
            graph.lift(np.zeros(()) if one is None else one) + 0.0 * y
            for one, y in zip(seed if several else [seed], results, strict=True)
        ]
        parts = _cotangents(results, cts, wrt)
        full = [one * 0.0 if part is None else part for one, part in zip(wrt, parts, strict=True)]
        return _shaped(shape, full, len(self.active) == 1)


def _array_of(value: Any) -> Any:
    """Return a list of scalars as one node, and what holds such lists with nodes in their place."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = [_array_of(one) for one in value]
    nodes = any(isinstance(one, Node) for one in parts)
    return array(parts) if nodes and not any(map(np.ndim, parts)) else parts


def _listed(result: Any) -> tuple[bool, list[Node]]:
    """Return whether a call has several results, and the list of them."""
    several = isinstance(result, (list, tuple))
    return several, list(result) if several else [result]


def _seed_leaves(seed: Any, moving: Sequence[Any]) -> list[Any]:
    """Return the tangents of the float leaves of the active arguments."""
    seeds = [seed] if len(moving) == 1 else list(seed)
    leaves: list[Any] = []
    for tan, primal in zip(seeds, moving, strict=True):
        if isinstance(primal, (list, tuple)):
            parts = [None] * len(primal) if tan is None else tan
            leaves += _seed_leaves(list(parts), list(primal)) if len(primal) != 1 else (
                _seed_leaves(parts[0], primal)
            )  # fmt: skip
        elif isinstance(primal, Node) or (
            isinstance(primal, support.NUMBERS) and np.asarray(primal).dtype.kind in "fc"
        ):
            leaves.append(np.zeros(np.shape(primal)) if tan is None else tan)
    return leaves


def _in_trees(shape: Any, run: Any, single: bool, *values: Any) -> Any:
    return _shaped(shape, run(*values), single)


def _shaped(shape: Any, parts: Sequence[Any], single: bool) -> Any:
    trees = unflatten(shape, parts)
    return trees[0] if single else trees


def _numeric(leaf: Any) -> Any:
    if not isinstance(leaf, support.NUMBERS):
        return leaf
    return np.asarray(support.plain(leaf, "an operand"))


def _kind_of(leaf: Any) -> Any:
    """Return the part of a leaf that a derivative is specialised to."""
    if isinstance(leaf, np.ndarray):
        return leaf.shape, leaf.dtype
    return type(leaf), repr(leaf) if isinstance(leaf, slice) else leaf


def _program(results: Sequence[Node | None], inputs: Sequence[Node], one: bool) -> Any:
    """Return a function of arrays that computes a list of nodes, or `one`, without branches."""
    names = {node: f"x{i}" for i, node in enumerate(inputs)}
    kernels: dict[str, Any] = {}
    lines = [f"def program({', '.join(names.values())}):"]
    for node in topological_order([node for node in results if node is not None]):
        if node in names:
            continue
        names[node] = name = f"v{len(names)}"
        if node.op is CONSTANT:
            kernels[name] = node.attrs["value"]
            continue
        kernels[f"k_{name}"] = kernel(node, np, {})
        lines.append(f"    {name} = k_{name}({', '.join(names[part] for part in node.inputs)})")
    outputs = ["None" if node is None else names[node] for node in results]
    lines.append(f"    return {outputs[0] if one else '[' + ', '.join(outputs) + ']'}")
    exec(compile("\n".join(lines), "<ag derivative>", "exec"), kernels)
    return kernels["program"]
