"""`custom_vjp` and `custom_jvp`: functions of nodes with derivative rules of the user's own.

The function builds ordinary nodes.  Its result gets one more node, of an op with the function's
name, whose inputs are the result and the arguments.  Differentiation uses the rule for the
arguments and none for the result, so what lies between is never differentiated.  Rules build nodes,
which can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, final

from actorgraph.autodiff.checkpointing import first_of_many, starts_of
from actorgraph.autodiff.reverse import fitting, pull_back
from actorgraph.errors import FeedError, GraphTypeError
from actorgraph.graph import Node, build, topological_order
from actorgraph.op import CONSTANT, Memory, Op, Rule, Together
from actorgraph.ops.broadcasting import zeros_like
from actorgraph.types import UNKNOWN


@final
class CustomRule:
    """A function of nodes and its rule; made by `custom_vjp` and `custom_jvp`.

    Keyword arguments must not be nodes; they are passed to the function and to the rule.
    """

    def __init__(self, function: Callable[..., Node], kind: str) -> None:
        update_wrapper(self, function, updated=())
        self.name: str = getattr(function, "__name__", "custom")
        self._function = function
        self._kind = kind
        self._rule: Rule | None = None
        self._ops: dict[int, Op] = {}

    def defvjp(self, rule: Rule, backward: Callable[..., Any] | None = None) -> Rule:
        """Set the reverse rule, ``rule(ct, y, *xs, **kwargs)``, and return it (a decorator).

        Two functions are a pair as in JAX: ``rule(*xs, **kwargs)`` returns the result and the
        residuals, and ``backward(residuals, ct)`` the cotangents.
        """
        if backward is None:
            return self._set("vjp", rule)

        def of_pair(ct: Node, y: Node, *xs: Node, **kwargs: Any) -> Any:
            _, residuals = rule(*xs, **kwargs)
            return backward(residuals, ct)

        return self._set("vjp", of_pair)

    def defjvp(self, rule: Rule) -> Rule:
        """Set the forward rule, ``rule(tans, y, *xs, **kwargs)``, and return it (a decorator)."""
        return self._set("jvp", rule)

    def _set(self, kind: str, rule: Rule) -> Rule:
        if self._kind != kind:
            raise GraphTypeError(
                f"{self.name} is a custom_{self._kind}; give it def{self._kind}, or decorate it "
                f"with custom_{kind}"
            )
        if self._rule is not None:
            raise GraphTypeError(f"{self.name} has a def{kind} already")
        self._rule = rule
        return rule

    def __call__(self, *args: Any, **kwargs: Any) -> Node:
        """Apply the function to nodes (arrays become constants) and mark its result."""
        if self._rule is None:
            raise GraphTypeError(f"{self.name} has no rule; write @{self.name}.def{self._kind}")
        graph = next((arg.graph for arg in args if isinstance(arg, Node)), None)
        if graph is None:
            raise GraphTypeError(f"{self.name} needs a node among its positional arguments")
        if any(isinstance(value, Node) for value in kwargs.values()):
            raise GraphTypeError(f"{self.name}: give nodes as positional arguments")
        xs = [graph.lift(arg) for arg in args]
        start = len(graph)
        y = self._function(*xs, **kwargs)
        if not isinstance(y, Node):
            raise GraphTypeError(f"{self.name} has to return one node, got {type(y).__name__}")
        arguments = set(xs)
        captured = [
            node
            for node in starts_of([y], xs, start)
            if node.dtype.kind in "fcV" and node not in arguments and _varies(node)
        ]
        if captured:
            raise GraphTypeError(
                f"{self.name} uses {captured[0]!r}, which is no argument and would get no "
                "gradient; pass it as an argument"
            )
        return build(self._op(len(xs)), y, *xs, **kwargs)

    def _op(self, arity: int) -> Op:
        op = self._ops.get(arity)
        if op is None:
            pull = self._pull if self._kind == "vjp" else self._transpose
            op = self._ops[arity] = Op(
                self.name, first_of_many, _first, vjp=Together(pull, first=1),
                jvp=None if self._kind == "vjp" else self._push, memory=Memory(is_view=True),
                doc=f"A function with a rule of its own (custom_{self._kind}).",
            )  # fmt: skip
        return op

    def _pull(
        self, argnums: Sequence[int], ct: Node, y: Node, _: Node, *xs: Node, **attrs: Any
    ) -> list[Node | None]:
        assert self._rule is not None
        returned = self._rule(ct, y, *xs, **attrs)
        cts = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if len(cts) != len(xs):
            raise FeedError(
                f"the vjp rule of {self.name} returned {len(cts)} cotangents for {len(xs)} "
                "arguments; return one for each, None where there is none"
            )
        what = f"cotangent that the rule of {self.name} gave"
        return [
            None if cts[i - 1] is None else fitting(cts[i - 1], xs[i - 1], what) for i in argnums
        ]

    def _push(
        self, tans: tuple[Node | None, ...], y: Node, _: Node, *xs: Node, **attrs: Any
    ) -> Any:
        assert self._rule is not None
        if all(tan is None for tan in tans[1:]):
            return None
        filled = [
            zeros_like(x) if tan is None else tan for x, tan in zip(xs, tans[1:], strict=True)
        ]
        tan = self._rule(tuple(filled), y, *xs, **attrs)
        if tan is None:
            return None
        return fitting(tan, y, f"tangent that the rule of {self.name} gave")

    def _transpose(
        self, argnums: Sequence[int], ct: Node, y: Node, _: Node, *xs: Node, **attrs: Any
    ) -> list[Node | None]:
        """Return the cotangents of arguments by transposing the linear forward rule.

        The rule is applied to probes in the place of tangents; their cotangents are the answer.
        """
        first = len(y.graph)
        probes = [build(_PROBE, x, number=(ct.id, i)) for i, x in enumerate(xs)]
        tan = self._push((None, *probes), y, y, *xs, **attrs)
        if tan is None:
            return [None] * len(argnums)
        first = min(first, *(probe.id for probe in probes))
        wanted = [probes[argnum - 1] for argnum in argnums]
        cotangents = pull_back(y.graph, _built_since([tan], first), {tan: ct}, wanted)
        results = [cotangents[probe] for probe in wanted]
        exact = all(UNKNOWN not in x.dims for x in xs)
        made = _built_since([result for result in results if result is not None], first)
        if exact and any(node.op is _PROBE for node in made):
            raise GraphTypeError(
                f"the jvp rule of {self.name} is not linear in its tangents, so it has no reverse"
            )
        return results


_PROBE: Op = Op("tangent_probe", "a[*s] -> a[*s]", lambda xp, x, number: xp.zeros_like(x))


def _first(xp: Any, y: Any, *xs: Any, **attrs: Any) -> Any:
    return y


def _varies(node: Node) -> bool:
    return any(part.is_leaf and part.op is not CONSTANT for part in topological_order([node]))


def _built_since(ends: Iterable[Node], number: int) -> list[Node]:
    """Return the nodes with ids from `number` on that `ends` depend on, in build order."""

    def inputs_of(node: Node) -> list[Node]:
        return [part for part in node.inputs if part.id >= number]

    return [*topological_order([end for end in ends if end.id >= number], inputs_of)]


def custom_vjp(function: Callable[..., Node]) -> CustomRule:
    """Give a function of nodes a reverse rule of its own.

    The rule ``(ct, y, *xs, **kwargs)`` returns a cotangent for each argument: a node of the
    argument's type, or None for a symbolic zero.  It may use its arguments only, as machines
    differentiate a copy of the graph.  Forward mode through the function raises.

    Parameters
    ----------
    function : callable
        Function of nodes that returns one node.

    Returns
    -------
    CustomRule
        Set its rule with ``@function.defvjp``.

    Raises
    ------
    GraphTypeError
        When called, if there is no rule, or the function uses float nodes that are no arguments.

    Examples
    --------
    >>> import actorgraph as ag
    >>> from actorgraph import ops
    >>> @ag.custom_vjp
    ... def straight_through(x):
    ...     return ops.sign(x)
    >>> @straight_through.defvjp
    ... def straight_through_vjp(ct, y, x):
    ...     return ct
    >>> straight_through(ag.Graph().input("x", shape=(3,), dtype="float64"))
    <straight_through_2: float64[3]>
    """
    return CustomRule(function, "vjp")


def custom_jvp(function: Callable[..., Node]) -> CustomRule:
    """Give a function of nodes a forward rule of its own, which serves reverse mode too.

    The rule ``(tans, y, *xs, **kwargs)`` returns the tangent of `y`; `tans` has one entry for each
    argument, zeros where the argument does not move.  It must be linear in the tangents; reverse
    mode transposes it.

    Parameters
    ----------
    function : callable
        Function of nodes that returns one node.

    Returns
    -------
    CustomRule
        Set its rule with ``@function.defjvp``.

    Raises
    ------
    GraphTypeError
        When called, as `custom_vjp`; when differentiated, if the rule is not linear.

    Examples
    --------
    >>> import actorgraph as ag
    >>> from actorgraph import ops
    >>> @ag.custom_jvp
    ... def log1pexp(x):
    ...     return ops.log1p(ops.exp(x))
    >>> @log1pexp.defjvp
    ... def log1pexp_jvp(tans, y, x):
    ...     return tans[0] * ops.sigmoid(x)
    >>> log1pexp(ag.Graph().input("x", dtype="float64"))
    <log1pexp_3: float64[]>
    """
    return CustomRule(function, "jvp")
