"""The record of an op, the registry of all ops, and type inference of an op applied to types.

An op is one declaration: name, type scheme, shape rule, forward, vjp, jvp, cost and samples for
the law tests.  Rules of differentiation take and return graph nodes, so the backward pass of a
graph is a graph.  This module knows nothing of graphs: nodes are whatever has ``.type``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from numbers import Real
from operator import eq
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from actorgraph.errors import GraphTypeError, printable, text_of
from actorgraph.keywords import answering
from actorgraph.types import (
    Checks,
    Dim,
    DimVar,
    DType,
    Function,
    Shape,
    Substitution,
    Tensor,
    bind_dims,
    parse,
    shape_from,
    unify,
)

Attrs: TypeAlias = Mapping[str, Any]
"""Attributes of an application of an op, such as ``axis``."""
Array: TypeAlias = Any
Rule: TypeAlias = Callable[..., Any]


@answering
@dataclass(frozen=True, slots=True)
class Sample:
    """One application on which the law tests try an op.

    Parameters
    ----------
    shapes : tuple of shapes
        One per argument.
    attrs : dict, optional
        Attributes of the application.
    low, high : float
        Domain of the float arguments.
    ints : dict, optional
        Arguments that are int64 arrays, by position: the (exclusive) upper bound of their values.
    bools : tuple of int, optional
        Positions of the arguments that are bool arrays.
    complexes : tuple of int, optional
        Positions of the arguments that are complex whatever the others are.
    constants : tuple of int, optional
        Positions of the arguments that nothing is differentiated by, as a rule raises by design.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.ops.Sample(((2, 3), (3, 4))).shapes
    ((2, 3), (3, 4))
    """

    shapes: tuple[tuple[int, ...], ...]
    attrs: Attrs = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0
    ints: Mapping[int, int] = field(default_factory=dict)
    bools: tuple[int, ...] = ()
    complexes: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()


@answering
@dataclass(frozen=True, slots=True)
class Together:
    """A reverse rule that serves many arguments in one call, so that its work is linear in them.

    Parameters
    ----------
    rule : callable
        ``rule(argnums, ct, y, *xs, **attrs)`` returns a node or None for each of `argnums`, which
        are increasing.
    first : int
        Arguments before this one have no gradient.

    Examples
    --------
    >>> import actorgraph as ag
    >>> def rule(argnums, ct, y, *xs):
    ...     return [ct for _ in argnums]
    >>> ag.ops.Together(rule).first
    0
    """

    rule: Rule
    first: int = 0


@dataclass(frozen=True, slots=True)
class Factoring:
    """An op in two: one on its first shared argument, and the rest, to the bit.

    Where a task has several ops that begin alike with the same arguments, it computes the beginning
    once (`lower.sharing`).

    Parameters
    ----------
    first : Op
        The beginning.
    attrs : mapping
        Its attributes.
    shared : tuple of int
        Arguments that ops which begin alike have in common; `first` is applied to the first.
    rest : Op
        Takes the result of `first` in place of that argument, and the op's attributes.
    beside : bool
        Whether `rest` takes all arguments, and the result of `first` behind them.
    follows : bool
        Whether `rest` relies on what an op that does not follow has checked of the arguments.
    """

    first: Op
    attrs: Attrs
    shared: tuple[int, ...]
    rest: Op
    beside: bool = False
    follows: bool = False


class Memory(NamedTuple):
    """What is sure of the memory of results; plans of buffers and predictions rely on it.

    Parameters
    ----------
    layout : "any", "ordered", "kept" or "c"
        An array is ordered where no stride is larger than one before it, those of broadcast dims
        aside.  ``"c"``: fresh and C-contiguous.  ``"kept"``: fresh, and C-contiguous where all
        operands of its shape are ordered (all operands if none has its shape).  ``"ordered"``:
        perhaps a view, ordered where all operands are.  ``"any"``: nothing, perhaps a view.
    takes_out : bool
        Whether ``forward(xp, *arrays, out=out, **attrs)`` may write to `out`, a C-contiguous array
        of the result's shape and dtype that shares memory with no operand, and return it.
    in_place : tuple of int
        Arguments whose memory `out` may be, where they have the result's shape and dtype and share
        memory with no other argument.
    is_view : bool
        True where the result always shows memory of the first operand and none is allocated for it.
    ordered : callable, optional
        ``ordered(attrs) -> bool``: whether ``"any"`` is ``"ordered"`` with these attributes.
    """

    layout: Literal["any", "ordered", "kept", "c"] = "any"
    takes_out: bool = False
    in_place: tuple[int, ...] = ()
    is_view: bool = False
    ordered: Callable[[Attrs], bool] | None = None

    def layout_with(self, attrs: Attrs) -> str:
        """Return the layout for an application with these attributes."""
        return "ordered" if self.ordered is not None and self.ordered(attrs) else self.layout


_UNKNOWN = Memory()
VIEW = Memory("ordered", is_view=True)
"""Of ops that show their first operand in another shape."""
KEPT = Memory("kept")
"""Of elementwise ops and reductions."""
KEPT_OUT = Memory("kept", takes_out=True)
"""Of those that write to memory that is given."""
IN_PLACE = Memory("kept", takes_out=True, in_place=(0,))
"""Of those that may write over their first operand."""
FRESH = Memory("c")
"""Of ops that make an array of their own."""
FRESH_OUT = Memory("c", takes_out=True)
"""Of those that write to memory that is given."""


class LoopRule(NamedTuple):
    """How compiled loops (`jit.loops`) compute an op.

    Parameters
    ----------
    kind : "value", "view" or "row"
        ``"value"``: each element of those of the operands.  ``"view"``: the numbers of the first
        operand in another shape.  ``"row"``: of the maximum of each row of an operand along the
        last axis, and the sum of the exponentials above it.
    text : str
        The rule of an element.  For ``"value"`` an expression of NumPy's functions, of the operands
        ``x, y, z`` and of attributes by their names.  For ``"row"`` an expression of ``x``, the
        operand, ``m`` and ``e``, maximum and sum, ``is_class``, whether the element is that of the
        row's class, and ``ct``, a cotangent.
    of : int
        Which operand the rows are of.
    classes : bool
        Whether the operand behind that has the class of each row.
    picks : bool
        Whether only the element of the class counts, so that there is one value a row.
    """

    kind: Literal["value", "view", "row"]
    text: str = ""
    of: int = 0
    classes: bool = False
    picks: bool = False


class Along(NamedTuple):
    """Sums of all elements along axes, and what becomes of them (see `devices.dense.RowSums`).

    In texts n is one over how many elements there are along the axes, f over how many are free.

    Parameters
    ----------
    stages : tuple
        Sums that are taken one after another, and what is computed of them.
    result : str
        The expression of the result.
    single : tuple of bool
        Whether each operand, and the result, has one number for all elements along the axes.
    """

    stages: tuple[Any, ...]
    result: str
    single: tuple[bool, ...]


MEAN = ((("s", "add", "x"),), (("m", "multiply(s, n)"),))
"""The stage of a mean, m."""

SPREAD = (("v", "add", "square(subtract(x, m))"),)
"""The sum, v, of squared differences from a mean."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Op:
    """The rule record of an op.

    Parameters
    ----------
    name, scheme, vjp, jvp, concurrency
        As `ops.define` takes them.
    forward : callable
        ``forward(xp, *arrays, **attrs)`` with NumPy or CuPy as `xp`; returns a fresh array or a
        view of an argument, and never writes to an argument.
    shape : callable, optional
        ``shape(checks, *shapes, **attrs)`` gives the result's dims where the scheme does not;
        ``checks.equal`` and ``checks.broadcast`` state what must hold.
    cost : callable, optional
        ``cost(shapes, result_shape, attrs) -> flops`` for concrete shapes; default one per element.
        A user's op without it is taken for a long one, and gets an actor of its own.
    samples : tuple of Sample
        Where the law tests try the op.
    ufunc : str, optional
        Name in `xp` of the ufunc that is exactly the forward, which then is called with no wrapper;
        floats of two bytes take the forward, which may widen them.
    memory : Memory
        What is sure of the result's memory.
    quick : callable, optional
        ``quick(node, xp, attrs)`` gives what does the work of the forward faster for a node whose
        attributes are bound, or None.
    loop : LoopRule, optional
        How compiled loops compute it.
    on_host : tuple of int
        Operands that stay on the host where the rest is on a device: the forward looks at them.
    linear : tuple of int
        Operands in each of which it is linear, the others being fixed (of complex ones: over the
        reals).  An op of which no `jvp` is given is applied to their tangents.
    jointly : tuple of int, optional
        Operands that it is not linear in, where it is linear in all others together.
    total : "sum", "mean" or "reduction", optional
        Where the result is a sum over elements of the operands, or of their products, or a mean;
        "reduction": as the attribute of that name says.
    shape_only : tuple of int
        Operands of which only the shape counts.
    traced : bool or callable
        Whether the forward asks for no number, so that what it calls of NumPy can be written as
        rows (see `lower.traced`); of a step, where that is not so of all.
    convolves : "forward", "backward" or "weight", optional
        Which of a convolution and its two adjoints it is.
    moves_windows : bool
        Whether the forward copies windows to columns, or adds columns (see `ops.windows`).
    along : Along, optional
        The sums along axes that machine code of its own takes, where last bits may change.
    in_blas : bool
        Whether its flops are done in BLAS or LAPACK, on data in the cache.
    checked : bool
        True checks each result against the declared type (user ops).
    runs_on : "worker", "loop", "thread" or "lane"
        Where the forward is called: by the worker that runs its actor; as a coroutine function on
        the event loop of the run's caller; in a thread of its own, because it only waits; or not
        at all, for the value of a lane is waited for (`lower.placing`).
    split : Factoring, optional
        How steps may share the beginning of the op, not with floats of two bytes.
    typing : callable, optional
        ``typing(checks, types, attrs) -> Tensor`` stands for scheme and shape rule where the type
        follows from graphs among the attributes.
    kernel : callable, optional
        ``kernel(node, symbols, watch)`` makes the kernel where the attributes do not tell all of
        it; that kernel takes the run (or None) before the arrays, and looks whether it is dead.
    predicted : callable, optional
        ``predicted(node, symbols) -> microseconds`` of one call, in place of `cost`.
    doc : str
        One line for tables, where no function of its name says what it is.
    """

    name: str
    scheme: str | Callable[[int, Attrs], str]
    forward: Callable[..., Array]
    shape: Callable[..., Shape] | None = None
    vjp: tuple[Rule | None, ...] | Rule | Together | None = None
    jvp: Rule | None = None
    cost: Callable[[tuple[tuple[int, ...], ...], tuple[int, ...], Attrs], float] | None = None
    samples: tuple[Sample, ...] = ()
    ufunc: str | None = None
    memory: Memory = _UNKNOWN
    quick: Callable[[Any, Any, Attrs], Callable[..., Array] | None] | None = None
    loop: LoopRule | None = None
    linear: tuple[int, ...] = ()
    on_host: tuple[int, ...] = ()
    jointly: tuple[int, ...] | None = None
    total: Literal["sum", "mean", "reduction"] | None = None
    shape_only: tuple[int, ...] = ()
    traced: bool | Callable[[Any], bool] = False
    convolves: Literal["forward", "backward", "weight"] | None = None
    moves_windows: bool = False
    along: Along | None = None
    in_blas: bool = False
    concurrency: int | None = None
    checked: bool = False
    runs_on: Literal["worker", "loop", "thread", "lane"] = "worker"
    split: Factoring | None = None
    typing: Callable[[Checks, tuple[Tensor, ...], Attrs], Tensor] | None = None
    kernel: Callable[..., Any] | None = None
    predicted: Callable[[Any, Mapping[str, int]], float] | None = None
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {printable(self.name)}>"

    @property
    def waits(self) -> bool:
        """Whether no worker calls it, so that its actor goes on before the reply is there."""
        return self.runs_on != "worker"

    @property
    def makes_own(self) -> bool:
        """Whether each result is sure to be an array of its own, or a scalar."""
        return self.memory.layout in ("kept", "c") and not self.checked

    def signature(self, arity: int, attrs: Attrs) -> Function:
        """Return the parsed type scheme for so many arguments."""
        return parse(self.scheme if isinstance(self.scheme, str) else self.scheme(arity, attrs))

    def has_vjp(self, argnum: int) -> bool:
        """Return whether there is a reverse rule for an argument."""
        if isinstance(self.vjp, tuple):
            return argnum < len(self.vjp) and self.vjp[argnum] is not None
        if isinstance(self.vjp, Together):
            return argnum >= self.vjp.first
        return self.vjp is not None

    def pull(
        self, argnums: Sequence[int], ct: Any, y: Any, xs: Sequence[Any], attrs: Attrs
    ) -> list[Any]:
        """Return the cotangent of each of some arguments that have a rule, None for a zero."""
        if isinstance(self.vjp, tuple):
            rules = [self.vjp[argnum] for argnum in argnums]
            return [None if rule is None else rule(ct, y, *xs, **attrs) for rule in rules]
        if isinstance(self.vjp, Together):
            found = self.vjp.rule(argnums, ct, y, *xs, **attrs)
            if isinstance(found, Iterator):
                found = list(found)
            if not isinstance(found, (list, tuple)) or len(found) != len(argnums):
                text = f"returned {found!r} for {len(argnums)} arguments; return a list of a node"
                raise GraphTypeError(f"the vjp of op {self.name!r} {text} or None for each")
            return list(found)
        assert self.vjp is not None, f"{self!r} has no reverse rule"
        return [self.vjp(argnum, ct, y, *xs, **attrs) for argnum in argnums]

    def flops(
        self, shapes: tuple[tuple[int, ...], ...], result: tuple[int, ...], attrs: Attrs
    ) -> float:
        """Return the floating-point operations of one call on concrete shapes, at least 1."""
        if self.cost is not None:
            try:
                flops: Any = self.cost(shapes, result, attrs)
            except Exception as error:
                what = f"{text_of(error)} for shapes {shapes} and the result {result}"
                raise GraphTypeError(f"the cost of op {self.name!r} raised {what}") from error
            if not (isinstance(flops, Real) and 0 <= float(flops) < inf):
                raise GraphTypeError(
                    f"the cost of op {self.name!r} is {flops!r} for shapes {shapes} and the result "
                    f"{result}; it has to be the number of its floating-point operations, >= 0"
                )
            return max(1.0, float(flops))
        return max(1.0, float(prod(result)), *(float(prod(shape)) for shape in shapes))


def never(xp: Any, *arrays: Array, **attrs: Any) -> Array:
    """The forward of ops that have none: leaves are fed, others have kernels of their own."""
    raise AssertionError("the op has no forward")


INPUT = Op("input", "a[*s]", never, doc="A placeholder that every run feeds.")
"""The op of placeholders."""
PARAMETER = Op("parameter", "a[*s]", never, doc="A trainable leaf that holds its value.")
"""The op of trainable leaves."""
CONSTANT = Op("constant", "a[*s]", never, doc="A fixed array.")
"""The op of constants."""
BUFFER = Op("buffer", "a[*s]", never, doc="A leaf that runs read and may replace.")
"""The op of leaves whose value runs commit, such as running statistics."""
RUN_NUMBER = Op("run_number", "int64[]", never, doc="The number of the run.")
"""The op of the leaf that is the number of the run: what makes random draws differ."""
LEAVES = frozenset((INPUT, PARAMETER, CONSTANT, BUFFER, RUN_NUMBER))
"""The ops of leaves, which are fed and never computed."""

_registry: dict[str, Op] = {}
REGISTRY: Mapping[str, Op] = MappingProxyType(_registry)
"""Every declared op by name, read-only."""


def register(op: Op) -> Op:
    """Add `op` to the registry; a second op of the same name raises `GraphTypeError`.

    Unless both forwards come from ``__main__``, where a cell of a notebook may run again: nodes
    that were built before keep the first op.
    """
    known = _registry.get(op.name)
    again = known is not None and _is_of_main(known) and _is_of_main(op)
    if (known is not None and not again) or op.name in {leaf.name for leaf in LEAVES}:
        raise GraphTypeError(f"an op named {op.name!r} is declared already; choose another name")
    _registry[op.name] = op
    return op


def _is_of_main(op: Op) -> bool:
    return getattr(op.forward, "__module__", None) == "__main__"


# -- attributes -----------------------------------------------------------------------------------


_BLOCK = 1 << 20
"""Bytes that are hashed or compared at a time, so that no second copy of a large array is made."""


class _Bits:
    """Hashable view of an array that compares dtype, shape and every byte.

    It keeps a digest, and of an array that somebody may write to a copy of what it held; one that
    is fixed, as constants and attributes of nodes are, is kept as it is.
    """

    __slots__ = ("array", "digest")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = _fixed(array)
        self.digest = hash((array.shape, *map(hash, self.blocks())))

    def blocks(self) -> Iterator[bytes]:
        """Return the bytes in C order, a block at a time."""
        if self.array.nbytes <= _BLOCK:
            yield self.array.tobytes()
            return
        flat = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)
        for start in range(0, flat.size, _BLOCK):
            yield flat[start : start + _BLOCK].tobytes()

    def __hash__(self) -> int:
        return self.digest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Bits) or self.digest != other.digest:
            return False
        one, two = self.array, other.array
        if one is two:
            return True
        same = one.dtype == two.dtype and one.shape == two.shape
        return same and all(map(eq, self.blocks(), other.blocks()))


def _fixed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array if nobody can write to it, and else a copy of that kind."""
    flags = array.flags
    if flags.writeable or not flags.owndata:
        array = array.copy()
        array.flags.writeable = False
    return array


def frozen(attrs: Attrs) -> Attrs:
    """Return attributes of a node: writing to an array that was given changes none of them."""
    if not any([isinstance(value, np.ndarray) for value in attrs.values()]):  # noqa: C419 - faster
        return attrs
    return {
        name: _fixed(value) if isinstance(value, np.ndarray) else value
        for name, value in attrs.items()
    }


NO_ATTRS: Attrs = MappingProxyType({})
"""The attributes of a node that has none, one object for all such nodes."""

_PLAIN = frozenset((str, int, bool, type(None)))
_MAPPINGS = frozenset((dict, MappingProxyType))
"""Kinds of mappings that are told without asking abstract classes."""


def attrs_key(value: Any) -> Hashable:
    """Return a key that is equal exactly for attributes that mean the same.

    1, 1.0 and True differ, and so do 0.0 and -0.0; NaN equals NaN of the same bits.
    """
    kind = type(value)
    if kind in _MAPPINGS:
        parts = []
        for name in sorted(value):
            part = value[name]
            own = type(part)
            parts.append((name, (own, part) if own in _PLAIN else attrs_key(part)))
        return dict, tuple(parts)
    if kind in _PLAIN or kind is Dim:
        return kind, value
    if kind is float:
        return kind, struct.pack("d", value)
    if kind is complex:
        return kind, struct.pack("dd", value.real, value.imag)
    if kind in (tuple, list):
        return kind, tuple(map(attrs_key, value))
    if isinstance(value, Mapping):
        return attrs_key(dict(value))
    if kind is slice:
        return kind, tuple(map(attrs_key, (value.start, value.stop, value.step)))
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:  # Their bytes are addresses.
            return kind, array.shape, attrs_key(array.tolist())
        return kind, _Bits(array)
    if isinstance(value, np.dtype):
        return np.dtype, value.str
    hash(value)
    return kind, value


NO_ATTRS_KEY = attrs_key(NO_ATTRS)
"""The key of a node without attributes, one object for all such nodes."""


def is_symbolic(value: Any) -> bool:
    """Return whether an attribute holds a dim that only a run can bind."""
    if type(value) in _PLAIN:
        return False
    if isinstance(value, (tuple, list)):
        return any(map(is_symbolic, value))
    if isinstance(value, slice):
        return is_symbolic((value.start, value.stop, value.step))
    if type(value) in _MAPPINGS or isinstance(value, Mapping):
        return any(map(is_symbolic, value.values()))
    return isinstance(value, Dim)


def bind_attrs(value: Any, symbols: Mapping[str, int]) -> Any:
    """Return the attribute with its symbolic dims replaced by what the run binds them to."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return type(value)([bind_attrs(part, symbols) for part in value])
    if isinstance(value, slice):
        return slice(*(bind_attrs(part, symbols) for part in (value.start, value.stop, value.step)))
    if type(value) in _MAPPINGS or isinstance(value, Mapping):
        return {name: bind_attrs(part, symbols) for name, part in value.items()}
    return bind_dims(value, symbols) if isinstance(value, Dim) else value


# -- inference ------------------------------------------------------------------------------------

_CACHE_LIMIT = 16384
_cache: dict[Hashable, tuple[Tensor, Checks]] = {}


def infer(op: Op, types: tuple[Tensor, ...], attrs: Attrs, key: Hashable) -> tuple[Tensor, Checks]:
    """Return the type of `op` applied to arguments of the given types, and what runs must check.

    The same application, `key` being ``attrs_key(attrs)``, is inferred once, unless keeping the key
    would keep what is a user's.  Raises `GraphTypeError` or `ShapeError` where scheme or shape rule
    do not admit the arguments.
    """
    cache_key = (op, key, types)
    found = _cache.get(cache_key)
    if found is None:
        found = _infer(op, types, attrs)
        if _registry.get(op.name) is op and _is_plain(key):
            if len(_cache) >= _CACHE_LIMIT:
                _cache.clear()
            _cache[cache_key] = found
    return found


def _is_plain(key: Hashable) -> bool:
    """Return whether a key of attributes holds no function, body of a loop, or array."""
    if isinstance(key, tuple):
        return all(map(_is_plain, key))
    return type(key) in _PLAIN or isinstance(key, (bytes, type, Dim))


def _infer(op: Op, types: tuple[Tensor, ...], attrs: Attrs) -> tuple[Tensor, Checks]:
    if op.typing is not None:
        checks = Checks()
        return op.typing(checks, types, attrs), checks
    scheme = op.signature(len(types), attrs)
    if len(scheme.args) != len(types):
        raise GraphTypeError(f"takes {len(scheme.args)} arguments, got {len(types)}")
    found = Substitution()
    for wanted, got in zip(scheme.args, types, strict=True):
        unify(wanted, got, found)
    result = found.resolve(scheme.result)
    assert isinstance(result, Tensor)
    dtype = result.dtype
    if not isinstance(dtype, DType):
        raise GraphTypeError(f"the dtype of the result {result} does not follow from the arguments")
    shape: Shape
    if op.shape is not None:
        made = op.shape(found.checks, *(part.shape for part in types), **attrs)
        shape = shape_from(made) if op.checked else tuple(made)
        if not result.row.prefix and not any(isinstance(dim, DimVar) for dim in result.row.dims):
            unify(result, Tensor.of(dtype.name, shape), found)
    else:
        shape = result.shape
    return Tensor.of(dtype.name, shape), found.checks
