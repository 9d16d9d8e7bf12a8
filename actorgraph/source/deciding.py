"""The calls in converted functions, which choose between Python and the graph as nodes are built.

A test that is a node becomes a branch or a loop of the graph; any other is Python's.  Values of
names that a branch or a loop sets are passed on: nodes, arrays and numbers become its results, all
others have to be the same on every path.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from types import CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from actorgraph.autodiff.trees import flatten, unflatten
from actorgraph.control.bodies import Body, BodyGraph, copied, innermost
from actorgraph.control.functions import graph_of, joined
from actorgraph.errors import GraphError, GraphTypeError, ShapeError, shown
from actorgraph.graph import Graph, Node
from actorgraph.op import CONSTANT, VIEW, Op
from actorgraph.ops.assignment import index_put
from actorgraph.ops.broadcasting import broadcast_to
from actorgraph.ops.comparison import logical_and, logical_not, logical_or
from actorgraph.ops.indexing import _GETITEM
from actorgraph.source.reading import refuse
from actorgraph.source.support import has_changed, snapshot
from actorgraph.types import UNKNOWN, Shape

FLOAT: ContextVar[str] = ContextVar("FLOAT", default="float64")
"""The dtype of a Python float that becomes a node and meets no node with a dtype."""
CHANGED: ContextVar[list[Any]] = ContextVar("CHANGED")
"""Arguments of functions that these have replaced by new values, where Python changes them."""
LISTS: ContextVar[list[Any]] = ContextVar("LISTS")
"""Nodes that stand for lists: what comprehensions over nodes gave."""
BUILDING: ContextVar[bool] = ContextVar("BUILDING", default=False)
"""Whether a converted function was called with nodes."""
NUMBERS: ContextVar[dict[Node, Callable[[Any], Exception]]] = ContextVar("NUMBERS")
"""Carries of loops that were Python numbers, with the exception that restarts the loop retyped."""
_STAGED: ContextVar[bool] = ContextVar("_STAGED", default=False)
_WATCHED: ContextVar[tuple[Any, ...]] = ContextVar("_WATCHED", default=())
"""Objects that code may change before it is known whether it is traced: who asks, where, names."""


_Block = Callable[[], None]


class _Undefined:
    def __repr__(self) -> str:
        return "<undefined>"


UNDEFINED = _Undefined()
"""The value of an unbound name."""

_OPERATORS = {
    "Add": "add", "Sub": "sub", "Mult": "mul", "Div": "truediv", "FloorDiv": "floordiv",
    "Mod": "mod", "Pow": "pow", "MatMult": "matmul", "BitAnd": "and", "BitOr": "or",
    "BitXor": "xor", "LShift": "lshift", "RShift": "rshift",
}  # fmt: skip
"""The operators of augmented assignments, by their names in `operator`."""
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Eq": operator.eq, "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda x, y: x in y, "NotIn": lambda x, y: x not in y,
}  # fmt: skip


def _asserted(xp: Any, x: Any, holds: Any, *, message: str) -> Any:
    if not holds:
        raise AssertionError(message)
    return x


_ASSERTED = Op(
    "asserted", "a[*s] -> bool[] -> a[*s]", _asserted,
    vjp=(lambda ct, y, x, holds, message: ct, None), jvp=lambda tans, y, *xs, **attrs: tans[0],
    memory=VIEW, doc="The first argument; the run fails if the second is false.",
)  # fmt: skip


class Kind(NamedTuple):
    """The dtype and dims that a number takes when it becomes a node."""

    dtype: str
    dims: Shape = ()


class BlockNames(NamedTuple):
    """The names that a block sets."""

    read: Callable[[], list[Any]]  # returns the values of all
    write: Callable[[list[Any]], None]
    every: tuple[str, ...]
    live: tuple[str, ...]  # those that are read later
    place: int  # of the statement, for errors


class _Result(NamedTuple):
    """A placeholder for a result of a branch."""

    number: int


def is_number(value: Any) -> bool:
    """Return whether a value is a Python number, which has no dtype of its own."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def is_value(value: Any) -> bool:
    """Return whether a leaf can become a node."""
    return (
        isinstance(value, (Node, np.generic))
        or is_number(value)
        or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc")
    )


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, so that no branch has to choose between them."""
    if one is other:
        return True
    if isinstance(one, (Node, np.ndarray)) or isinstance(other, (Node, np.ndarray)):
        return False
    try:
        return type(one) is type(other) and bool(one == other)
    except (TypeError, ValueError):
        return False


def kind_of(value: Any) -> Kind:
    """Return the type that a value has as a node."""
    if isinstance(value, Node):
        return Kind(value.dtype.name, value.dims)
    if is_number(value):
        dtypes = {bool: "bool", int: "int64", complex: "complex128"}
        return Kind(dtypes.get(type(value), FLOAT.get()))
    array = np.asarray(value)
    return Kind(array.dtype.name, array.shape)


def as_node(graph: Graph, value: Any, kind: Kind) -> Node:
    """Return a value as a node; a number takes the type `kind`."""
    if not is_number(value):
        return graph.lift(value)
    node = innermost(graph).constant(np.array(value, kind.dtype))
    return broadcast_to(node, kind.dims) if kind.dims else node


def retyped(value: Any, kind: Kind) -> None:
    """Restart the loop with this type if the value is a carry that was a Python number."""
    restart = NUMBERS.get({}).get(value) if isinstance(value, Node) else None
    if restart is not None:
        raise restart(kind)


@contextmanager
def setting(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Set a variable for a while."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def staging() -> Iterator[None]:
    """Mark code whose statements may run any number of times, or never."""
    watched = _WATCHED.get()
    before = [snapshot(*values) for *_, values in watched]
    with setting(_STAGED, True):
        yield
    for (owner, place, names, values), old in zip(watched, before, strict=True):
        for name, one, new in zip(names, old, values, strict=True):
            if has_changed(one, new):
                raise owner.refused(
                    place, f"{name} changes in a branch or loop of the graph, which is traced once "
                    "and may run never or often; assign a new value to a name instead",
                )  # fmt: skip


@contextmanager
def _reopened(body: BodyGraph) -> Iterator[None]:
    """Let nodes be added to a body that has been traced."""
    body.outer.inside, body.is_open = body, True
    try:
        yield
    finally:
        body.outer.inside, body.is_open = None, False


def _joined(
    what: str, graph: Graph, test: Node, pieces: Sequence[tuple[BodyGraph, list[Node]]]
) -> list[Node]:
    """Return the results of a branch from its bodies, for false and for true."""
    parts = [
        ({leaf: node for node, leaf in body.captures.items()}, nodes) for body, nodes in pieces
    ]
    return joined(what, graph, test, parts)


def _bool_of(value: Any) -> Any:
    """Return an operand of ``and`` or ``or``; raise if their result is not surely a bool."""
    if not isinstance(value, bool) and getattr(value, "dtype", np.dtype(float)).kind != "b":
        raise GraphTypeError(
            f"`and` and `or` have one of their operands as value, and {shown(value)} is no bool; "
            "write a conditional expression: b if a else a"
        )
    return value


def _memory(value: Any) -> Any:
    """Return the node or array whose memory a value shows."""
    while isinstance(value, Node) and (value.op.memory.is_view or value.op is _GETITEM):
        value = value.inputs[0]
    return value


class Deciding:
    """The methods that one converted function calls, but for loops.

    `places` are statements, for errors; ``convert(function)`` converts another function.
    """

    UNDEFINED = UNDEFINED
    slice = slice

    def __init__(
        self, function: FunctionType, places: list[Any], convert: Callable[[Any], Any]
    ) -> None:
        self.function, self.places, self.convert = function, places, convert

    def refused(self, place: int, text: str) -> Exception:
        """Return the error for a statement."""
        return refuse(self.places[place], text, self.function)

    # -- names ------------------------------------------------------------------------------------

    @staticmethod
    def state(*reads: Callable[[], Any]) -> list[Any]:
        """Return the values of names."""
        values = []
        for read in reads:
            try:
                values.append(read())
            except NameError:
                values.append(UNDEFINED)
        return values

    def watching(
        self, place: int, names: list[str], *reads: Callable[[], Any]
    ) -> AbstractContextManager[None]:
        """Refuse changes of these values, and of what functions among them hold, while tracing."""
        values = [
            [value, *[cell.cell_contents for cell in getattr(value, "__closure__", None) or ()
                      if cell != CellType()]]
            for value in self.state(*reads)
        ]  # fmt: skip
        return setting(_WATCHED, (*_WATCHED.get(), (self, place, names, values)))

    # -- tests ------------------------------------------------------------------------------------

    def test(self, value: Any, place: int | None = None) -> Any:
        """Return a test as a bool, or as a node of a bool scalar."""
        if not isinstance(value, Node):
            return bool(value)
        if value.ndim:
            text = f"the test is {value!r}, which is no single bool; write .any() or .all()"
            raise GraphTypeError(text) if place is None else self.refused(place, text)
        return value if value.dtype.kind == "b" else value != 0

    def not_(self, value: Any) -> Any:
        """Return ``not value``."""
        value = self.test(value)
        return logical_not(value) if isinstance(value, Node) else not value

    def joined(self, ends: bool, exact: bool, *parts: Callable[[], Any]) -> Any:
        """Return the ``and`` of values, or if true `ends` it their ``or``.

        Each is computed only if those before do not end it.  If `exact`, not only the truth
        matters: it is the last value computed.
        """
        return self._joined(parts[0](), parts[1:], ends, exact)

    def _joined(
        self, value: Any, rest: Sequence[Callable[[], Any]], ends: bool, exact: bool = False
    ) -> Any:
        if not rest:
            return value
        if not isinstance(value, Node):
            return value if bool(value) is ends else self._joined(rest[0](), rest[1:], ends, exact)
        test = self.test(_bool_of(value) if exact else value)

        def others() -> Any:
            value = self._joined(rest[0](), rest[1:], ends, exact)
            return self.test(_bool_of(value) if exact else value)

        result = self._guarded(logical_not(test) if ends else test, others, ends)
        if isinstance(result, Node):
            return result
        return np.bool_(ends) if result is ends else test

    def _guarded(self, ask: Node, rest: Callable[[], Any], otherwise: bool) -> Any:
        """Return `rest` if `ask` is true; without a branch if computing it anyway is harmless."""
        graph = graph_of("a test", [ask])
        with BodyGraph(graph, "the second operand of a test", indexed=False) as body, staging():
            value = rest()
        if not isinstance(value, Node):
            return value
        result = body.captured(value)
        inner = Body(body.captures.values(), [result])
        if all(node.op is CONSTANT or node.op.loop is not None for node in inner.nodes):
            value = copied(inner, graph, list(body.captures))[result]
            return logical_or(logical_not(ask), value) if otherwise else logical_and(ask, value)
        other = BodyGraph(graph, "the first operand of a test", indexed=False)
        pieces = [(other, [other.constant(np.bool_(otherwise))]), (body, [result])]
        return _joined("a test", graph, ask, pieces)[0]

    def chain(self, names: str, *operands: Callable[[], Any]) -> Any:
        """Return a chained comparison; each operand is computed at most once."""
        first, *rest = operands

        def compared(left: Any, place: int) -> Any:
            right = rest[place]()
            holds = _COMPARISONS[names.split()[place]](left, right)
            if place + 1 == len(rest):
                return holds
            return self._joined(holds, [partial(compared, right, place + 1)], ends=False)

        return compared(first(), 0)

    # -- branches ---------------------------------------------------------------------------------

    def choose(
        self, test: Any, body: Callable[[], Any], orelse: Callable[[], Any], place: int
    ) -> Any:
        """Return a conditional expression."""
        test = self.test(test, place)
        if not isinstance(test, Node):
            return body() if test else orelse()
        result: list[Any] = [UNDEFINED]

        def write(values: list[Any]) -> None:
            result[:] = values

        def then() -> None:
            write([body()])

        def otherwise() -> None:
            write([orelse()])

        names = ("the value",)
        self.branch(test, then, otherwise, BlockNames(result.copy, write, names, names, place))
        return result[0]

    def if_(self, test: Any, then: _Block, otherwise: _Block, *given: Any) -> None:
        """Run one of two blocks, or build a branch if the test is a node."""
        names = BlockNames(*given)
        test = self.test(test, names.place)
        if isinstance(test, Node):
            self.branch(test, then, otherwise, names)
        else:
            (then if test else otherwise)()

    def branch(self, test: Node, then: _Block, otherwise: _Block, names: BlockNames) -> None:
        """Trace both blocks, and bind the names to the results of the branch."""
        read, write, every, live, place = names
        before = [*read()]
        graph = graph_of("if", [test])
        pieces: list[tuple[BodyGraph, list[Any]]] = []
        for number, block in enumerate((otherwise, then)):
            write(before)
            title = "the branch of an if" if number else "the other branch of an if"
            with BodyGraph(graph, title, indexed=False) as body, staging():
                block()
                pieces.append((body, [*read()]))
        write(before)
        after: list[Any] = [UNDEFINED] * len(every)
        bodies: list[tuple[BodyGraph, list[Node]]] = [(body, []) for body, _ in pieces]
        plans = [
            (number, self._merged(name, [values[number] for _, values in pieces], bodies, place))
            for number, name in enumerate(every)
            if name in live
        ]
        nodes = _joined("if", graph, test, bodies) if bodies[0][1] else []
        for number, (structure, leaves) in plans:
            results = [nodes[leaf.number] if isinstance(leaf, _Result) else leaf for leaf in leaves]
            after[number] = unflatten(structure, results)
        write(after)

    def _merged(
        self, name: str, values: list[Any], given: list[tuple[BodyGraph, list[Node]]], place: int
    ) -> tuple[Any, list[Any]]:
        """Return the structure and leaves of a name after a branch: common ones, or results."""
        if any(value is UNDEFINED for value in values):
            number = 0 if values[0] is UNDEFINED else 1
            if values[1 - number] is UNDEFINED:
                return flatten((UNDEFINED,))[1].parts[0], [UNDEFINED]
            if not self.is_result(name):
                where = "is true" if number else "is false"
                raise self.refused(
                    place, f"{name} is read later, and has no value where the test {where}; "
                    "give it one before the if, or in both branches",
                )  # fmt: skip
            given_leaves, structure = flatten(values[1 - number])
            zeros = [0 if is_value(leaf) else leaf for leaf in given_leaves]
            values[number] = unflatten(structure, zeros)
        (left, structure), (right, other) = (flatten(value) for value in values)
        if structure != other:
            kinds = f"{shown(values[1])} or {shown(values[0])}"
            raise self.refused(place, f"{name} is {kinds}; branches need one structure")
        leaves: list[Any] = []
        for one, two in zip(left, right, strict=True):
            if not isinstance(one, Node) and same(one, two):
                leaves.append(one)
                continue
            if not (is_value(one) and is_value(two)):
                raise self.refused(
                    place, f"{name} is {shown(two)} or {shown(one)}; a graph chooses between "
                    "arrays and numbers only",
                )  # fmt: skip
            types = self._common(name, one, two, place)
            slot = len(given[0][1])
            for (body, results), value, kind in zip(given, (one, two), types, strict=True):
                with _reopened(body):
                    results.append(body.lift(as_node(body, value, kind)))
            leaves.append(_Result(slot))
        return structure, leaves

    def is_result(self, name: str) -> bool:
        """Return whether a name is the one of returned values, which is never read when unbound."""
        code = self.function.__code__
        return name not in code.co_varnames + code.co_cellvars and name.startswith("result")

    def _common(self, name: str, one: Any, two: Any, place: int) -> tuple[Kind, Kind]:
        """Return the types that two values take; a number takes the other one's."""
        kinds = kind_of(one), kind_of(two)
        if is_number(one) and is_number(two):
            dtype = np.result_type(kinds[0].dtype, kinds[1].dtype).name
            if "float" in dtype:
                dtype = FLOAT.get()
            return Kind(dtype), Kind(dtype)
        if is_number(one) or is_number(two):
            number, kind = (one, kinds[1]) if is_number(one) else (two, kinds[0])
            fits = np.can_cast(type(number), kind.dtype, "same_kind")
            if fits and UNKNOWN not in kind.dims:
                return kind, kind
        known = all(isinstance(dim, int) for kind in kinds for dim in kind.dims)
        differ = len(kinds[0].dims) != len(kinds[1].dims) or (
            known and kinds[0].dims != kinds[1].dims
        )
        if differ or kinds[0].dtype != kinds[1].dtype:
            retyped(one, kinds[1])
            retyped(two, kinds[0])
        if kinds[0].dtype != kinds[1].dtype:
            text = f"{name} is {kinds[1].dtype} where the test is true and {kinds[0].dtype}"
            raise self.type_error(place, f"{text} where not; write .astype({kinds[0].dtype!r})")
        if differ:
            text = f"{name} has the shape {kinds[1].dims} where the test is true and"
            raise self.type_error(place, f"{text} {kinds[0].dims} where not", ShapeError)
        return kinds

    def type_error(self, place: int, text: str, kind: Any = GraphTypeError) -> Exception:
        """Return the error for a statement whose types do not fit."""
        node = self.places[place]
        code = self.function.__code__
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
        error: Exception = kind(f"{code.co_filename}:{line}:{column}: in {code.co_name}: {text}")
        return error

    # -- statements that change a value -----------------------------------------------------------

    def assert_(
        self, test: Any, message: Callable[[], Any], read: Callable[[], list[Any]],
        write: Callable[[list[Any]], None], names: tuple[str, ...], place: int,
    ) -> None:  # fmt: skip
        """Raise if a test fails; a node makes the runs fail that use the names after it."""
        test = self.test(test, place)
        said = message()
        node = self.places[place]
        where = f"{self.function.__code__.co_filename}:{getattr(node, 'lineno', 0)}"
        if not isinstance(test, Node):
            if not test:
                raise AssertionError(*([] if said is None else [said]))
            return
        text = f"{where}: the assertion fails" + ("" if said is None else f": {said}")
        graph = graph_of("assert", [test])
        write([
            graph.apply(_ASSERTED, (value, test), {"message": text})
            if isinstance(value, Node) else value
            for value in read()
        ])  # fmt: skip

    def _refuse_shared(self, who: tuple[Any, ...], value: Any) -> None:
        """Raise if somebody else sees the change of a value that becomes a new one in a graph."""
        if who:
            name, other, place = who
            if not other:
                CHANGED.get([]).append(value)
                return
            raise self.refused(
                place, f"{other} would see in Python that {name} changes, but in a graph {name} "
                f"becomes a new value; copy it before ({name}.copy()), or return it and assign it",
            )  # fmt: skip

    def apart(self, call: str, place: int, value: Any, *given: Any) -> Any:
        """Return the value of a call; raise if it is, or shows, an argument: one is written to."""
        if not BUILDING.get():
            return value
        mine, theirs = ([_memory(leaf) for leaf in flatten(one)[0]] for one in (value, given))
        for one in mine:
            if np.ndim(one) and any(
                one is other or (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
                                 and np.may_share_memory(one, other))
                for other in theirs
            ):  # fmt: skip
                raise self.refused(
                    place, f"{call} returns what it got, or a part of it, and one of the two is "
                    "written to; return a copy",
                )  # fmt: skip
        return value

    def number(self, place: int, value: Any, name: str = "", of: Any = None) -> Any:
        """Return an element of `name`, or of what a loop goes over; raise for a view.

        A write changes it, too.
        """
        leaves = [] if isinstance(of, (list, tuple, dict)) else flatten(value)[0]
        if BUILDING.get() and any(np.ndim(leaf) for leaf in leaves):
            text = "the loop goes over views of an array that is written to; copy it before"
            if name:
                text = f"a view of {name}, which is written to, is kept; copy it before"
            raise self.refused(place, text)
        return value

    def array(self, place: int, value: Any) -> Any:
        """Return what a call changes; raise for a node, whose method returns another one."""
        if isinstance(value, Node):
            raise self.refused(
                place, "sort() of an array changes it, but of a node returns another one; assign "
                "that of a function: x = np.sort(x)",
            )  # fmt: skip
        return value

    def augmented(self, name: str, who: tuple[Any, ...], x: Any, y: Any) -> Any:
        """Return `x` after an augmented assignment."""
        self._refuse_lists(name, x, y)
        staged = _STAGED.get() and isinstance(x, np.ndarray)
        new = staged or isinstance(x, Node) or isinstance(y, Node)
        if new and np.ndim(x):
            self._refuse_shared(who, x)
        return getattr(operator, f"__{'' if new else 'i'}{_OPERATORS[name]}__")(x, y)

    def of_lists(self, name: str, x: Any, y: Any) -> Any:
        """Return the sum or product of values of which one may be a list."""
        self._refuse_lists(name, x, y)
        return getattr(operator, _OPERATORS[name])(x, y)

    @staticmethod
    def _refuse_lists(name: str, *values: Any) -> None:
        """Raise if lists are joined or repeated of which one is an array in the graph."""
        stand = [any(value is one for one in LISTS.get([])) for value in values]
        other = {"Add": (list,), "Mult": (int,)}.get(name, ())
        if any(stand) and all(map(operator.or_, stand, [isinstance(x, other) for x in values])):
            raise GraphError(
                "a comprehension over a node gives an array, which is not joined or repeated as a "
                "list is; use ag.ops.concatenate"
            )

    def written(self, who: tuple[Any, ...], x: Any, index: Any, value: Any) -> Any:
        """Return `x` with a value at an index: a new node, and in a branch a new list."""
        if isinstance(x, Node):
            self._refuse_shared(who, x)
            return self._put(x, index, value)
        if isinstance(x, np.ndarray):
            parts = index if isinstance(index, tuple) else (index,)
            node = next((operand for operand in (value, *parts) if isinstance(operand, Node)), None)
            if node is not None:
                self._refuse_shared(who, x)
                return self._put(graph_of("a write", [node]).lift(x), index, value)
        if _STAGED.get() and isinstance(x, (list, dict, np.ndarray)):
            self._refuse_shared(who, x)
            x = x.copy()
        x[index] = value
        return x

    @staticmethod
    def _put(x: Node, index: Any, value: Any) -> Node:
        """Return a node with a value at an index, of the same kind."""
        result = index_put(x, index, value)
        if not np.can_cast(result.dtype, x.dtype, "same_kind"):
            raise GraphTypeError(
                f"a write of {shown(value)} into {shown(x)} would cut it to {x.dtype}; make the "
                "array of floats: .astype(float)"
            )
        return result

    def stored(self, place: int, value: Any, x: Any, index: Any) -> None:
        """Write into a part of a container, or raise if it is an array that gets nodes."""
        if isinstance(x, np.ndarray) and any(isinstance(one, Node) for one in flatten([value])[0]):
            raise self.refused(
                place, "a node is written into an array that a container, or a global, holds; give "
                "the array a name, write into that, and put it back",
            )  # fmt: skip
        x[index] = value

    def appended(self, who: tuple[Any, ...], x: Any, value: Any) -> Any:
        """Return a list with one more element."""
        if _STAGED.get() and type(x) is list:
            self._refuse_shared(who, x)
            return [*x, value]
        x.append(value)
        return x

    def set_attribute(self, x: Any, name: str, value: Any, place: int) -> None:
        """Set an attribute, or raise if a branch or a loop of the graph is being traced."""
        if _STAGED.get():
            raise self.refused(
                place, f"the attribute {name} is set in a branch or loop of the graph; use a name, "
                "and set the attribute after it",
            )  # fmt: skip
        setattr(x, name, value)
