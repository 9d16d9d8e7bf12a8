"""`Converted`: the calls in converted functions, with loops and the calls of other functions."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from types import FunctionType, MethodType
from typing import Any, final

import numpy as np

from actorgraph.autodiff.trees import flatten, unflatten
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
    LISTS,
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
    setting,
    staging,
)  # fmt: skip
from actorgraph.types import UNKNOWN


class _Retype(Exception):
    """Restarts a loop with other types: its numbers take the types that the body gives them."""

    def __init__(self, name: str, kinds: Any) -> None:
        self.name, self.kinds = name, kinds
        super().__init__()


class _Iterable:
    """What a `for` or a comprehension goes over, if a node is part of it."""

    def __iter__(self) -> Iterator[Any]:
        raise GraphTypeError(
            "a range, zip or enumerate of nodes has its elements in a run only; go over it by a "
            "`for` or a comprehension"
        )


@dataclass(frozen=True)
class _Range(_Iterable):
    """A range whose bounds are nodes."""

    start: Any
    count: Any
    step: Any


@dataclass(frozen=True)
class _Several(_Iterable):
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

        if isinstance(over, _STAGED):
            self._for_nodes(over, body, state, has_stopped if stopped else None)
            return
        items = iter(over)
        for done, item in enumerate(items, 1):
            body(item)
            left = has_stopped()
            if isinstance(left, Node):
                if isinstance(over, range):
                    rest = over[done:]
                    if len(rest):
                        count = graph_of("for", [left]).constant(np.int64(len(rest)))
                        elements = _Range(rest.start, count, rest.step)
                        self._for_nodes(elements, body, state, has_stopped)
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
        graph, (count, item_at) = _graph_of(over), _elements(over)

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

            start = graph.constant(np.int64(0))
            return while_loop(ask, step, [start, *init])[1:]

        def along(init: list[Node]) -> Any:
            def step(carry: list[Node], x: Any) -> Any:
                return state.through(carry, body, x), None

            return scan(step, init, over)[0]

        plain = isinstance(over, Node)
        state.run(graph, tested if has_stopped else along if plain else counted)

    def comprehension(
        self, over: Any, element: Callable[..., Any], test: Callable[..., Any], several: bool,
        place: int,
    ) -> Any:  # fmt: skip
        """Return a list; a comprehension over a node gives an array."""
        staged = isinstance(over, _STAGED)

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
            return _list(map(element_of, over))
        count, item_at = _elements(over)
        if isinstance(count, Node):
            raise self.refused(
                place, "a comprehension over a range of a node has a length that only a run knows; "
                "go over an array",
            )  # fmt: skip

        def at(index: Node) -> Any:
            return element_of(item_at(index))

        return _list(map(at, _graph_of(over).constant(np.arange(count))))

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


def _list(node: Any) -> Any:
    """Note that a node stands for a list, and return it."""
    LISTS.get([]).append(node)
    return node


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and what its lists, tuples and dicts hold."""
    yield value
    if isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)


def _nothing() -> None:
    pass


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
        numbers = {
            carry[leaf[0]]: partial(self._again, name, number)  # a restart: once for each name
            for name, plan in self.leaves.items()
            for number, leaf in enumerate(plan)
            if isinstance(leaf, tuple) and leaf[1] and name not in self.kinds
        }
        with setting(NUMBERS, {**NUMBERS.get({}), **numbers}), staging():
            yield

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
            first = self.before[self.names.index(name)]  # an outer loop's number, perhaps
            retyped(None if first is UNDEFINED else flatten(first)[0][number], new_kind)
        what = GraphTypeError if kind.dtype != new_kind.dtype else ShapeError
        way = f"write .astype({kind.dtype!r})" if what is GraphTypeError else "it keeps its dims"
        raise self.deciding.type_error(
            self.place, f"{name} enters an iteration as {carry.type} and leaves as "
            f"{new_kind.dtype}[{', '.join([str(dim) for dim in new_kind.dims])}]; {way}", what,
        )  # fmt: skip


# -- what loops go over, and builtins that do not take nodes --------------------------------------

_STAGED = (Node, _Iterable)


def _graph_of(over: Any) -> Graph:
    """Return the graph in which a loop is built."""
    waiting, leaves = [over], []
    for one in waiting:
        waiting += one.parts if isinstance(one, _Several) else ()
        leaves += [one.start, one.count] if isinstance(one, _Range) else [one]
    return graph_of("for", leaves)


def _elements(over: Any) -> tuple[Any, Callable[[Node], Any]]:
    """Return the number of elements, and a function from an index to an element."""
    if isinstance(over, _Range):
        return over.count, partial(_number, over)
    if isinstance(over, _Several):
        counts, items = zip(*builtins.map(_elements, over.parts), strict=True)
        return reduce(_BUILTINS[min], counts), partial(_side_by_side, items)
    if not isinstance(over, Node):
        array = np.asarray(list(over))
        return len(array), partial(_row, array)
    if not over.ndim:
        raise GraphTypeError(f"a loop iterates over the first axis, but {over!r} is a scalar")
    return over.dims[0] if isinstance(over.dims[0], int) else size_of(over, 0), partial(_row, over)


def _number(over: _Range, index: Node) -> Any:
    plain = is_number(over.start) and over.start == 0 and over.step == 1
    return index if plain else over.start + index * over.step


def _side_by_side(items: Iterable[Callable[[Node], Any]], index: Node) -> tuple[Any, ...]:
    return tuple([item(index) for item in items])


def _row(rows: Any, index: Node) -> Node:
    return getitem(index.graph.lift(rows), index)


def _range(*bounds: Any) -> _Range:
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not isinstance(step, int) or step == 0:
        raise GraphTypeError(
            f"the step of a range of nodes has to be an int other than 0, got {step!r}"
        )
    length = stop - start if not is_number(start) or start else stop
    rounded = length if step == 1 else (length + (step - (1 if step > 0 else -1))) // step
    return _Range(start, astype(maximum(rounded, 0), "int64"), step)


def _reversed(over: Any) -> Any:
    if isinstance(over, Node):
        return getitem(over, slice(None, None, -1))
    if isinstance(over, _Several):
        raise GraphTypeError("a zip or enumerate cannot be reversed; reverse what it goes over")
    return _Range(over.start + (over.count - 1) * over.step, over.count, -over.step)


def _enumerated(over: Any, start: Any = 0) -> _Several:
    return _Several((_Range(start, int(np.iinfo(np.int32).max), 1), over))


def _either(plain: Any, staged: Any, *args: Any, **kwargs: Any) -> Any:
    """Call one of two functions: the latter if an argument is a node, or goes over nodes."""
    chosen = staged if any(isinstance(arg, _STAGED) for arg in args) else plain
    return chosen(*args, **kwargs)


def _extreme(pairwise: Any, plain: Any, *args: Any, **kwargs: Any) -> Any:
    return reduce(pairwise, args) if len(args) > 1 else plain(*args, **kwargs)


def _in_place(x: Any, y: Any) -> Any:
    raise GraphTypeError("a function of `operator` changes no node in place; write an assignment")


def _over(reduced: Any, plain: Any, x: Any, *rest: Any) -> Any:
    return plain(x, *rest) if rest else reduced(x, 0)


_BUILTINS: dict[Any, Any] = {
    plain: partial(_either, plain, staged)
    for plain, staged in {
        range: _range, zip: lambda *parts, **_: _Several(parts), enumerate: _enumerated,
        len: lambda x: _elements(x)[0], reversed: _reversed,
        int: lambda x: astype(x, "int64"), float: lambda x: astype(x, FLOAT.get()),
        bool: lambda x: astype(x, "bool"),
        min: partial(_extreme, minimum, min), max: partial(_extreme, maximum, max),
        sum: partial(_over, sum_of, sum), any: partial(_over, any_of, any),
        all: partial(_over, all_of, all),
        operator.iadd: _in_place, operator.isub: _in_place, operator.imul: _in_place,
        operator.itruediv: _in_place,
        **{
            getattr(math, name): getattr(np, name)
            for name in "sin cos tan exp log sqrt tanh sinh cosh floor ceil hypot".split()
        },
    }.items()
}  # fmt: skip
"""Replacements of builtins, for calls with nodes."""
