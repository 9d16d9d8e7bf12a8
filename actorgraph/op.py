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
from typing import Any, Literal, NamedTuple, TypeAlias, final

import numpy as np

from actorgraph.errors import GraphTypeError, counted, printable, text_of
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
    """One application of an op that the law tests try.

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
        Positions of the arguments that are complex whatever the dtypes of the others.
    constants : tuple of int, optional
        Positions of the arguments that the op is not differentiated by, because its rule raises by
        design.

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
    """A reverse rule for many arguments at once, whose work is linear in their number.

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


Layout = Literal["any", "ordered", "kept", "c"]


class Memory(NamedTuple):
    """What an op guarantees of its result's memory; buffer plans and cost predictions rely on it.

    - `layout`: an array is *ordered* if its strides never grow from one axis to the next, broadcast
      dims aside.  ``"c"``: fresh and C-contiguous.  ``"kept"``: fresh, and C-contiguous if all
      operands of its shape are ordered (all operands if none has its shape).  ``"ordered"``: maybe
      a view, ordered if all operands are.  ``"any"``: no guarantee, maybe a view.
    - `takes_out`: whether ``forward(xp, *arrays, out=out, **attrs)`` may write to `out`, a
      C-contiguous array of the result's shape and dtype that shares memory with no operand, and
      return it
    - `in_place`: arguments whose memory `out` may be, if they have the result's shape and dtype and
      share memory with no other argument
    - `is_view`: whether the result is always a view of the first operand, so that nothing is
      allocated
    - `with_attrs`: ``with_attrs(attrs) -> layout``: what these attributes guarantee, if `layout`
      does not say all
    - `scratch`: whether a forward that takes ``out`` also takes scratch memory (`scratch.scratch`)
    """

    layout: Layout = "any"
    takes_out: bool = False
    in_place: tuple[int, ...] = ()
    is_view: bool = False
    with_attrs: Callable[[Attrs], Layout] | None = None
    scratch: bool = False

    def layout_with(self, attrs: Attrs) -> Layout:
        """Return the layout of an application with these attributes."""
        return self.layout if self.with_attrs is None else self.with_attrs(attrs)


_UNKNOWN = Memory()
VIEW = Memory("ordered", is_view=True)
"""For ops that return a view of their first operand."""
KEPT = Memory("kept")
"""For elementwise ops and reductions."""
KEPT_OUT = Memory("kept", takes_out=True)
"""For those whose forward takes ``out=``."""
IN_PLACE = Memory("kept", takes_out=True, in_place=(0,))
"""For those whose `out` may be the first operand."""
FRESH = Memory("c")
"""For ops that always return a fresh array."""
FRESH_OUT = Memory("c", takes_out=True)
"""For those whose forward takes ``out=``."""
FRESH_BY_SCRATCH = Memory("c", takes_out=True, scratch=True)
"""For those that take scratch memory, too."""


class LoopRule(NamedTuple):
    """How compiled loops (`jit.loops`) compute an op.

    - `kind`: ``"value"``: elementwise.  ``"view"``: the elements of the first operand in another
      shape.  ``"row"``: computed from what is known of each row (along the last axis) of an
      operand: its class, or its maximum and the sum of the exponentials of the differences from it.
    - `text`: the expression of one element.  For ``"value"`` it uses NumPy's functions, the
      operands ``x, y, z``, and attributes by their names.  For ``"row"`` it uses ``x``, the
      operand, and ``m`` and ``e``, the maximum and the sum; with `classes` instead ``is_class``,
      whether the element is at the row's class, and ``ct``, a cotangent.
    - `of`: the operand that has the rows
    - `classes`: whether the next operand holds the class of each row
    - `picks`: whether only the element at the class counts, so that each row gives one value
    """

    kind: Literal["value", "view", "row"]
    text: str = ""
    of: int = 0
    classes: bool = False
    picks: bool = False


class Along(NamedTuple):
    """An op made of sums along axes and expressions of them (see `devices.dense.RowSums`).

    In expressions ``n`` is one over the number of elements along the axes, ``f`` one over their
    degrees of freedom.

    - `stages`: each stage is a pair: sums that are taken together, and expressions computed from
      them
    - `result`: the expression of the result
    - `single`: for each operand, and the result: whether it has one number for all elements along
      the axes
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

    - `name`, `scheme`, `vjp`, `jvp`, `concurrency`: as `ops.define` takes them
    - `forward`: ``forward(xp, *arrays, **attrs)`` with NumPy or CuPy as `xp`; returns a fresh array
      or a view of an argument, and never writes to an argument
    - `shape`: ``shape(checks, *shapes, **attrs)`` gives the result's dims where the scheme does
      not; ``checks.equal`` and ``checks.broadcast`` state what must hold
    - `cost`: ``cost(shapes, result_shape, attrs) -> flops`` for concrete shapes; default one per
      element. A user's op without it is assumed to be slow, and gets an actor of its own.
    - `samples`: what the law tests try
    - `ufunc`: name in `xp` of the ufunc that equals the forward; kernels call it without a wrapper.
      Two-byte floats use the forward, which may widen them.
    - `memory`: what is guaranteed of the result's memory
    - `quick`: ``quick(node, xp, attrs)`` returns a faster equivalent of the forward for a node
      whose attributes are bound, or None
    - `loop`: how compiled loops compute it
    - `on_host`: operands that stay on the host when the rest is on a device, because the forward
      reads them
    - `linear`: operands in each of which the op is linear while the others are fixed (for complex
      ones: over the reals).  Without a `jvp`, the op is applied to their tangents.
    - `jointly`: the op is linear in all operands together except these
    - `total`: the result is a sum or a mean over elements of the operands or of their products;
      "reduction": as the attribute of that name says
    - `shape_only`: operands of which only the shape is used
    - `traced`: whether the forward never reads a number of an array, so that its NumPy calls can be
      recorded as rows of a table (see `lower.traced`); a callable decides it for a step
    - `convolves`: marks a convolution, or one of its two adjoints
    - `moves_windows`: whether the forward copies windows to columns, or adds columns up (see
      `ops.windows`)
    - `along`: how machine code computes it from sums along axes, where last bits may change
    - `in_blas`: whether BLAS or LAPACK do its flops, on cached blocks
    - `checked`: whether each result is checked against the declared type (user ops)
    - `runs_on`: where the forward runs: in the worker that runs its actor; as a coroutine on the
      event loop of the run's caller; in a thread of its own, because it blocks; or nowhere, because
      the op waits for the value of a lane (`lower.placing`)
    - `typing`: ``typing(checks, types, attrs) -> Tensor`` replaces scheme and shape rule if the
      type follows from graphs among the attributes
    - `kernel`: ``kernel(node, symbols, watch)`` makes the kernel if forward and attributes do not
      define it; that kernel takes the run (or None) before the arrays, and checks whether it is
      dead
    - `predicted`: ``predicted(node, symbols) -> microseconds`` of one call, in place of `cost`
    - `doc`: one line for tables, if no function of that name documents it
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
    typing: Callable[[Checks, tuple[Tensor, ...], Attrs], Tensor] | None = None
    kernel: Callable[..., Any] | None = None
    predicted: Callable[[Any, Mapping[str, int]], float] | None = None
    doc: str = ""

    def __repr__(self) -> str:
        return f"<op {printable(self.name)}>"

    @property
    def waits(self) -> bool:
        """Whether it runs outside of its worker, so that its actor goes on before it returns."""
        return self.runs_on != "worker"

    @property
    def calls_others(self) -> bool:
        """Whether it is, or its kernel may call, an op of a user."""
        return self.checked or self.kernel is not None

    @property
    def makes_own(self) -> bool:
        """Whether each result is guaranteed to be a fresh array, or a scalar."""
        return self.memory.layout in ("kept", "c") and not self.checked

    def signature(self, arity: int, attrs: Attrs) -> Function:
        """Return the parsed type scheme for `arity` arguments."""
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
        """Return the cotangents of the arguments `argnums`, which have rules; None is zero."""
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
    """The forward of ops that have none: leaves, and ops with a `kernel` of their own."""
    raise AssertionError("the op has no forward")


INPUT = Op("input", "a[*s]", never, doc="A placeholder that every run feeds.")
"""The op of placeholders."""
PARAMETER = Op("parameter", "a[*s]", never, doc="A trainable leaf that holds its value.")
"""The op of trainable leaves."""
CONSTANT = Op("constant", "a[*s]", never, doc="A fixed array.")
"""The op of constants."""
BUFFER = Op("buffer", "a[*s]", never, doc="A leaf that runs read and may replace.")
"""The op of leaves that runs update, such as running statistics."""
RUN_NUMBER = Op("run_number", "int64[]", never, doc="The number of the run.")
"""The op of the leaf that is the number of the run, by which random draws of runs differ."""
LEAVES = frozenset((INPUT, PARAMETER, CONSTANT, BUFFER, RUN_NUMBER))
"""The ops of leaves, which are never computed."""

_registry: dict[str, Op] = {}


@final
class Registry(Mapping[str, Op]):
    """Every declared op by name, read-only.

    `late` imports modules that declare more: when all ops are asked for, or one that is not known.
    """

    __slots__ = ("late",)

    def __init__(self) -> None:
        self.late: list[Callable[[], object]] = []

    def __getitem__(self, name: str) -> Op:
        known = _registry.get(name)
        return self._all()[name] if known is None else known

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Op]:
        for bring in self.late:
            bring()
        return _registry


REGISTRY = Registry()
"""The ops of this process."""


def register(op: Op) -> Op:
    """Add `op` to the registry; a second op of the same name raises `GraphTypeError`.

    If both forwards come from ``__main__``, the second replaces the first, as a cell of a notebook
    may run again; nodes that exist keep the first op.
    """
    known = (REGISTRY if op.checked else _registry).get(op.name)  # users know no late modules
    again = known is not None and _is_of_main(known) and _is_of_main(op)
    if (known is not None and not again) or op.name in {leaf.name for leaf in LEAVES}:
        raise GraphTypeError(f"an op named {op.name!r} is declared already; choose another name")
    _registry[op.name] = op
    return op


def _is_of_main(op: Op) -> bool:
    return getattr(op.forward, "__module__", None) == "__main__"


# -- attributes -----------------------------------------------------------------------------------


_BLOCK = 1 << 20
"""Bytes hashed or compared at a time, so that large arrays are not copied as a whole."""


class _Bits:
    """Hashable snapshot of an array that compares dtype, shape and every byte.

    A writeable array is copied; a read-only one that owns its memory, as constants and attributes
    of nodes are, is not.
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
    """Return the array if it is read-only and owns its memory, else a read-only copy."""
    flags = array.flags
    if flags.writeable or not flags.owndata:
        array = array.copy()
        array.flags.writeable = False
    return array


def frozen(attrs: Attrs) -> Attrs:
    """Return the attributes with read-only arrays, so that the caller cannot change a node's."""
    for value in attrs.values():
        if isinstance(value, np.ndarray):
            return {
                name: _fixed(one) if isinstance(one, np.ndarray) else one
                for name, one in attrs.items()
            }
    return attrs


NO_ATTRS: Attrs = MappingProxyType({})
"""The attributes of a node that has none, one object for all such nodes."""

_INTS = frozenset((int,))
_PLAIN = frozenset((str, int, bool, type(None)))
_MAPPINGS = frozenset((dict, MappingProxyType))
"""Mappings recognised by type alone, without the slower `isinstance` of an abstract class."""


def attrs_key(value: Any) -> Hashable:
    """Return a structural key: equal exactly for attributes that mean the same.

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
    if kind is tuple or kind is list:
        if {*map(type, value)} == _INTS:  # mostly, of axes or sizes
            return kind, (int, *value)
        return kind, tuple(map(attrs_key, value))
    if isinstance(value, Mapping):
        return attrs_key(dict(value))
    if kind is slice:
        return kind, tuple(map(attrs_key, (value.start, value.stop, value.step)))
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        if array.dtype.hasobject:  # the bytes of objects are addresses
            return kind, array.shape, attrs_key(array.tolist())
        return kind, _Bits(array)
    if isinstance(value, np.dtype):
        return np.dtype, value.str
    hash(value)
    return kind, value


NO_ATTRS_KEY = attrs_key(NO_ATTRS)
"""The key of a node without attributes, one object for all such nodes."""


def is_symbolic(value: Any) -> bool:
    """Return whether an attribute holds a symbolic dim, which only a run binds."""
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
    """Return the attribute with its symbolic dims replaced by the sizes of `symbols`."""
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
_cache: dict[Hashable, tuple[tuple[Tensor, Checks], tuple[Tensor, ...]]] = {}
"""What `infer` has found, with the types of which the key has the ids: so these stay unique."""


def infer(op: Op, types: tuple[Tensor, ...], attrs: Attrs, key: Hashable) -> tuple[Tensor, Checks]:
    """Return the type of `op` applied to arguments of the given types, and what runs must check.

    `key` is ``attrs_key(attrs)``.  Results are cached, except where the key would keep an object of
    the user alive.  Raises `GraphTypeError` or `ShapeError` if scheme or shape rule reject the
    arguments.
    """
    cache_key = (op, key, *map(id, types))  # hashing a type is a call of Python's
    known = _cache.get(cache_key)
    if known is not None:
        return known[0]
    found = _infer(op, types, attrs)
    if _registry.get(op.name) is op and _is_plain(key):
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[cache_key] = found, types
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
        raise GraphTypeError(f"takes {counted(len(scheme.args), 'argument')}, got {len(types)}")
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
