"""`Converted`: the calls in converted functions, with loops and the calls of other functions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from types import FunctionType, MethodType
from typing import Any, NamedTuple, final

import numpy as np

from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.control.bodies import innermost
from actorgraph.control.functions import fori_loop, graph_of, map, scan, while_loop  # noqa: A004
from actorgraph.errors import GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.comparison import logical_and, logical_not
from actorgraph.ops.counting import all as all_of
from actorgraph.ops.counting import any as any_of
from actorgraph.ops.elementwise import astype, maximum, minimum
from actorgraph.ops.gathering import size_of
from actorgraph.ops.indexing import getitem
from actorgraph.source.deciding import (
    CHANGED,
    FLOAT,
    NUMBERS,
    UNDEFINED,
    BlockNames,
    Deciding,
    Kind,
    as_node,
    is_number,
    is_value,
    kind_of,
    retyped,
    same,
    staging,
)  # fmt: skip
from actorgraph.types import UNKNOWN


class _Retype(Exception):
    """Restarts a loop with other types: its numbers take the types that the body gives them."""

    def __init__(self, name: str, kinds: Any) -> None:
        self.name, self.kinds = name, kinds
        super().__init__()


class _Range(NamedTuple):
    """A range whose bounds are nodes."""

    graph: Graph
    start: Any
    count: Any
    step: Any


class _Several(NamedTuple):
    """The iterables of a `zip`, of which at least one is a node."""

    parts: tuple[Any, ...]


@final
class Converted(Deciding):
    """The methods that a converted function calls."""

    def while_(self, test: Callable[[], Any], body: Callable[[], None], *given: Any) -> None:
        """Run a loop; once its test is a node, build the rest as a loop of the graph."""
        names = BlockNames(*given)
        place = names.place
        while True:
            holds = self.test(test(), place)
            if isinstance(holds, Node):
                break
            if not holds:
                return
            body()
        state = _Carried(self, names)
        graph = graph_of("while", [holds])

        def looped(init: list[Node]) -> Any:
            def ask(carry: list[Node]) -> Any:
                with state.at(carry):
                    value = self.test(test(), place)
                return value if isinstance(value, Node) else np.bool_(value)

            return while_loop(ask, partial(state.through, body=body), init)

        state.run(graph, looped)

    def for_(self, over: Any, body: Callable[[Any], None], stopped: str, *given: Any) -> None:
        """Run a loop over elements; one over a node becomes a loop of the graph."""
        names = BlockNames(*given)
        state = _Carried(self, names)

        def has_stopped() -> Any:
            return self.test(names.read()[names.every.index(stopped)]) if stopped else False

        if isinstance(over, (Node, _Range, _Several)):
            self._for_nodes(over, body, state, has_stopped if stopped else None)
            return
        items = iter(over)
        for done, item in enumerate(items, 1):
            body(item)
            left = has_stopped()
            if isinstance(left, Node):
                graph = graph_of("for", [left])
                if isinstance(over, range):
                    rest = over[done:]
                    if len(rest):
                        count = innermost(graph).constant(np.int64(len(rest)))
                        self._for_nodes(
                            _Range(graph, rest.start, count, rest.step), body, state, has_stopped
                        )
                    return
                for more in items:
                    goes_on = self.not_(has_stopped())
                    self.branch(goes_on, partial(body, more), _nothing, names)
                return
            if left:
                return

    def _for_nodes(
        self, over: Any, body: Callable[[Any], None], state: _Carried,
        has_stopped: Callable[[], Any] | None,
    ) -> None:  # fmt: skip
        graph, count, item_at = self._elements(over)
        assert graph is not None

        def iteration(index: Node, carry: list[Node]) -> list[Node]:
            return state.through(carry, body, item_at(index))

        def counted(init: list[Node]) -> Any:
            return fori_loop(0, count, iteration, init)

        def tested(init: list[Node]) -> Any:
            assert has_stopped is not None

            def ask(carry: list[Node]) -> Any:
                index, *rest = carry
                with state.at(rest):
                    left = has_stopped()
                goes_on = index < count
                return (
                    logical_and(goes_on, logical_not(left)) if isinstance(left, Node) else goes_on
                )

            def step(carry: list[Node]) -> list[Node]:
                index, *rest = carry
                return [index + 1, *iteration(index, rest)]

            start = innermost(graph).constant(np.int64(0))
            return while_loop(ask, step, [start, *init])[1:]

        def along(init: list[Node]) -> Any:
            def step(carry: list[Node], x: Any) -> Any:
                return state.through(carry, body, x), None

            return scan(step, init, over)[0]

        plain = isinstance(over, Node)
        state.run(graph, tested if has_stopped else along if plain else counted)

    def _elements(self, over: Any) -> tuple[Graph | None, Any, Callable[[Node], Any]]:
        """Return the graph, the number of elements, and a function from an index to an element."""
        if isinstance(over, _Range):

            def number(index: Node) -> Any:
                plain = not isinstance(over.start, Node) and over.start == 0 and over.step == 1
                return index if plain else over.start + index * over.step

            return innermost(over.graph), over.count, number
        if isinstance(over, _Several):
            parts = [self._elements(part) for part in over.parts]
            least = reduce(_BUILTINS[min], [count for _, count, _ in parts])
            graph = next(graph for graph, *_ in parts if graph is not None)
            return graph, least, partial(_side_by_side, [item for *_, item in parts])
        if not isinstance(over, Node):
            array = np.asarray(list(over))
            return None, len(array), partial(_of_array, array)
        if not over.ndim:
            raise GraphTypeError(f"a loop iterates over the first axis, but {over!r} is a scalar")
        size = over.dims[0] if isinstance(over.dims[0], int) else size_of(over, 0)
        return graph_of("for", [over]), size, partial(getitem, over)

    def comprehension(
        self, over: Any, element: Callable[..., Any], test: Callable[..., Any], several: bool,
        place: int,
    ) -> Any:  # fmt: skip
        """Return a list; a comprehension over a node gives an array."""
        staged = isinstance(over, (Node, _Range, _Several))

        def element_of(item: Any) -> Any:
            given = item if several else (item,)
            if staged and test(*given) is not True:
                raise self.refused(
                    place, "the elements that a comprehension over a node keeps are known only in "
                    "a run; use ag.ops.where, or a mask",
                )  # fmt: skip
            return element(*given)

        if not staged:
            return [element_of(item) for item in over if self._kept(test, item, several, place)]
        if isinstance(over, Node):
            return map(element_of, over)
        graph, count, item_at = self._elements(over)
        if isinstance(count, Node):
            raise self.refused(
                place, "a comprehension over a range of a node has a length that only a run knows; "
                "go over an array",
            )  # fmt: skip
        assert graph is not None

        def at(index: Node) -> Any:
            return element_of(item_at(index))

        return map(at, innermost(graph).constant(np.arange(count)))

    def _kept(self, test: Callable[..., Any], item: Any, several: bool, place: int) -> bool:
        keeps = self.test(test(*item) if several else test(item), place)
        if isinstance(keeps, Node):
            raise self.refused(
                place, "the length of a list must not depend on a node; use ag.ops.where"
            )
        return bool(keeps)

    # -- calls ------------------------------------------------------------------------------------

    def called(self, function: Any, place: int | None = None, *again: Any) -> Any:
        """Return the function to call in place of another.

        With a `place`, the arguments of the positions and names in `again`, or all, are read again:
        it raises if it made new values of them.  Of lists that the call makes itself only what they
        hold is read.
        """
        if isinstance(function, (FunctionType, MethodType)):
            converted = self.convert(function)
            return converted if place is None else partial(self._checked, converted, place, again)
        try:
            return _BUILTINS.get(function, function) if callable(function) else function
        except TypeError:  # it is not hashable
            return function

    def _checked(
        self, function: Any, place: int, again: tuple[Any, ...], *args: Any, **kwargs: Any
    ) -> Any:
        result = function(*args, **kwargs)
        changed = CHANGED.get([])
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        read = again or [(key, False) for key in given]
        parts = [part for key, made in read for part in [*_parts(given[key])][made:]]
        if any(part is one for part in parts for one in changed):
            raise self.refused(
                place, "the function writes into an argument, which in a graph becomes a new value "
                "there, and here it is read again; return it and assign it",
            )  # fmt: skip
        return result


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and what its lists, tuples and dicts hold."""
    yield value
    if isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)


def _nothing() -> None:
    pass


def _side_by_side(items: list[Callable[[Node], Any]], index: Node) -> tuple[Any, ...]:
    return tuple([item(index) for item in items])


def _of_array(array: Any, index: Node) -> Node:
    return getitem(index.graph.lift(array), index)


class _Carried:
    """The names that a loop of the graph carries, as an iteration or later code reads them."""

    def __init__(self, deciding: Converted, names: BlockNames) -> None:
        self.deciding = deciding
        self.read, self.write, self.names, self.carried, self.place = names
        self.kinds: dict[str, tuple[Any, list[Kind]]] = {}
        self.before: list[Any] = []
        self.structures: dict[str, Any] = {}
        self.leaves: dict[str, list[Any]] = {}

    def run(self, graph: Graph, looped: Callable[[list[Node]], list[Node]]) -> None:
        """Build the loop, and bind the names to its results."""
        self.before = [*self.read()]
        while True:
            try:
                last = looped(self._begin(graph))
                break
            except _Retype as retype:
                self.write(self.before)
                self.kinds[retype.name] = retype.kinds
        self.write(self._values(last, ends=True))

    def _begin(self, graph: Graph) -> list[Node]:
        """Return the first carry: the leaves of the names that can become nodes."""
        self.structures, self.leaves = {}, {}
        init: list[Node] = []
        for name in self.carried:
            value = self.before[self.names.index(name)]
            kinds: Any = None
            if name in self.kinds:
                structure, kinds = self.kinds[name]
                if value is UNDEFINED:
                    value = unflatten(structure, [0] * len(kinds))
            elif value is UNDEFINED:
                if not self.deciding.is_result(name):
                    raise self.deciding.refused(
                        self.place, f"{name} is read in the next iteration, or after the loop, "
                        "and has no value before it; give it one there",
                    )  # fmt: skip
                continue
            leaves, self.structures[name] = flatten(value)
            plan: list[Any] = []
            for number, leaf in enumerate(leaves):
                plan.append((len(init), is_number(leaf)) if is_value(leaf) else leaf)
                if is_value(leaf):
                    kind = kinds[number] if kinds else kind_of(leaf)
                    init.append(as_node(graph, leaf, kind))
            self.leaves[name] = plan
        return init

    def _values(self, carry: list[Node], ends: bool = False) -> list[Any]:
        values: list[Any] = [UNDEFINED] * len(self.names) if ends else [*self.before]
        for name, plan in self.leaves.items():
            filled = [carry[leaf[0]] if isinstance(leaf, tuple) else leaf for leaf in plan]
            values[self.names.index(name)] = unflatten(self.structures[name], filled)
        return values

    @contextmanager
    def at(self, carry: list[Node]) -> Iterator[None]:
        """Bind the names to the carry of an iteration."""
        self.write(self._values(carry))
        token = NUMBERS.set({**NUMBERS.get({}), **self._numbers(carry)})
        try:
            with staging():
                yield
        finally:
            NUMBERS.reset(token)

    def _numbers(self, carry: list[Node]) -> dict[Node, Callable[[Kind], Exception]]:
        """Return the carries that may be retyped by a restart: once for each name."""
        return {
            carry[leaf[0]]: partial(self._again, name, number)
            for name, plan in self.leaves.items()
            for number, leaf in enumerate(plan)
            if isinstance(leaf, tuple) and leaf[1] and name not in self.kinds
        }

    def _again(self, name: str, number: int, kind: Kind) -> _Retype:
        leaves, structure = flatten(self.before[self.names.index(name)])
        kinds = [kind if i == number else kind_of(leaf) for i, leaf in enumerate(leaves)]
        return _Retype(name, (structure, kinds))

    def through(self, carry: list[Node], body: Callable[..., None], *item: Any) -> list[Node]:
        """Return the next carry."""
        with self.at(carry):
            body(*item)
            after = dict(zip(self.names, self.read(), strict=True))
            return self._taken(carry, after)

    def _taken(self, carry: list[Node], after: dict[str, Any]) -> list[Node]:
        following: list[Any] = [*carry]
        for name in self.carried:
            value = after[name]
            leaves, structure = flatten(value)
            if name not in self.leaves:
                if value is not UNDEFINED:  # the loop binds the returned value first
                    raise _Retype(name, (structure, [kind_of(leaf) for leaf in leaves]))
                continue
            if structure != self.structures[name]:
                raise self.deciding.refused(
                    self.place, f"{name} enters an iteration as {self.structures[name]} and leaves "
                    f"as {structure} (* is an array); a list that grows is a comprehension, or "
                    "ag.scan",
                )  # fmt: skip
            for number, (leaf, plan) in enumerate(zip(leaves, self.leaves[name], strict=True)):
                if not isinstance(plan, tuple):
                    if not same(leaf, plan):
                        raise self.deciding.refused(
                            self.place, f"{name} changes from {shown(plan)} to {shown(leaf)}; a "
                            "loop over nodes carries arrays and numbers only",
                        )  # fmt: skip
                    continue
                following[plan[0]] = self._next(name, number, leaf, carry[plan[0]])
        return following

    def _first(self, name: str, number: int) -> Any:
        """Return a leaf as before the loop; it may be a number that an outer loop carries."""
        value = self.before[self.names.index(name)]
        return None if value is UNDEFINED else flatten(value)[0][number]

    def _next(self, name: str, number: int, value: Any, carry: Node) -> Node:
        """Return a leaf of the next carry, of the type of this one."""
        kind, new_kind = kind_of(carry), kind_of(value)
        if not is_value(value):
            raise self.deciding.refused(
                self.place, f"{name} becomes {shown(value)}; a loop over nodes carries arrays and "
                "numbers only",
            )  # fmt: skip
        if is_number(value) and np.can_cast(type(value), kind.dtype, "same_kind"):
            return as_node(carry.graph, value, kind)
        differs = len(kind.dims) != len(new_kind.dims) or any(
            one != other and isinstance(one, int) and isinstance(other, int)
            for one, other in zip(kind.dims, new_kind.dims, strict=False)
        )
        if kind.dtype == new_kind.dtype and not differs:
            return carry.graph.lift(value)
        if UNKNOWN not in new_kind.dims:
            retyped(carry, new_kind)
            retyped(self._first(name, number), new_kind)
        what = GraphTypeError if kind.dtype != new_kind.dtype else ShapeError
        way = f"write .astype({kind.dtype!r})" if what is GraphTypeError else "it keeps its dims"
        raise self.deciding.type_error(
            self.place, f"{name} enters an iteration as {carry.type} and leaves as "
            f"{new_kind.dtype}[{', '.join([str(dim) for dim in new_kind.dims])}]; {way}", what,
        )  # fmt: skip


# -- builtins that do not take nodes --------------------------------------------------------------


def _has_node(values: Any) -> Node | None:
    return next((value for value in values if isinstance(value, Node)), None)


def _range(*bounds: Any) -> Any:
    node = _has_node(bounds)
    if node is None:
        return range(*bounds)
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not isinstance(step, int) or step == 0:
        raise GraphTypeError(
            f"the step of a range of nodes has to be an int other than 0, got {step!r}"
        )
    length = stop - start if not is_number(start) or start else stop
    count = (
        maximum((length + (step - (1 if step > 0 else -1))) // step, 0)
        if step != 1
        else maximum(length, 0)
    )
    return _Range(graph_of("range", [node]), start, astype(count, "int64"), step)


def _zip(*parts: Any, **options: Any) -> Any:
    staged = any(isinstance(part, (Node, _Range, _Several)) for part in parts)
    return _Several(parts) if staged else zip(*parts, **options)


def _enumerate(over: Any, start: Any = 0) -> Any:
    if not isinstance(over, (Node, _Range, _Several)):
        return enumerate(over, start)
    graph = over.graph if isinstance(over, (Node, _Range)) else _has_node(over.parts).graph  # type: ignore[union-attr]
    endless = np.int64(np.iinfo(np.int32).max)
    return _Several((_Range(graph, start, int(endless), 1), over))


def _len(x: Any) -> Any:
    if not isinstance(x, Node):
        return len(x)
    return x.dims[0] if x.ndim and isinstance(x.dims[0], int) else size_of(x, 0)


def _to(dtype: Any, plain: Any) -> Any:
    def converted(*args: Any, **kwargs: Any) -> Any:
        node = _has_node(args)
        return plain(*args, **kwargs) if node is None else astype(node, dtype())

    return converted


def _extreme(pairwise: Any, plain: Any) -> Any:
    def extreme(*args: Any, **kwargs: Any) -> Any:
        if len(args) < 2 or _has_node(args) is None:
            return plain(*args, **kwargs)
        return reduce(pairwise, args)

    return extreme


def _over(reduced: Any, plain: Any) -> Any:
    def over(x: Any, *rest: Any) -> Any:
        return plain(x, *rest) if rest or not isinstance(x, Node) else reduced(x, 0)

    return over


def _of_math(name: str) -> Any:
    plain, ufunc = getattr(math, name), getattr(np, name)

    def of_math(*args: Any) -> Any:
        return plain(*args) if _has_node(args) is None else ufunc(*args)

    return of_math


_BUILTINS: dict[Any, Any] = {
    range: _range, zip: _zip, enumerate: _enumerate, len: _len, reversed: lambda over: (
        getitem(over, slice(None, None, -1)) if isinstance(over, Node) else reversed(over)
    ),
    int: _to(lambda: "int64", int), float: _to(FLOAT.get, float), bool: _to(lambda: "bool", bool),
    min: _extreme(minimum, min), max: _extreme(maximum, max), sum: _over(sum_of, sum),
    any: _over(any_of, builtins.any), all: _over(all_of, builtins.all),
    **{
        getattr(math, name): _of_math(name)
        for name in "sin cos tan exp log sqrt tanh sinh cosh floor ceil hypot".split()
    },
}  # fmt: skip
"""Replacements of builtins, for calls with nodes."""
