"""Hindley-Milner types of nodes, dims included.

A node's type is a `Tensor`: a dtype and a row of dims.  An op's type is a `Function` whose
argument types hold variables; applying an op unifies the two.  Unlike a textbook `unify`, this
one also compares constructor, rank and dims, so ``float32[3] ~ float32[3, 1]`` does not unify.

Dims are those of `actorgraph.dims`, whose names are re-exported here for op authors.

Schemes are written as text, for example::

    "n[*s] -> n[*t] -> n[*s|t]"      a broadcasting op on numbers
    "f[m, k] -> f[k, n] -> f[m, n]"  a matrix product
    "a[*s] -> bool[*s]"              a test of each element

A single letter (and a digit) is a dtype variable: ``a`` any, ``n`` number (no bool), ``r`` real
number, ``x`` float or complex, ``f`` float, ``i`` integer, ``c`` complex.  ``*s`` is a row
variable, ``*s|t`` the broadcast of two rows, a name inside brackets a dim variable.

Source: R. Milner, A theory of type polymorphism in programming, 1978; unification as in
Robinson 1965.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, final

import numpy as np

from actorgraph.dims import (
    UNKNOWN,
    Checks,
    Dim,
    Shape,
    UnboundDim,
    bind_dims,
    bind_shape,
    broadcast,
    dim_max,
    dim_min,
    public_shape,
    shape_from,
    shapes_differ,
    size_of,
    slice_size,
    symbol,
)
from actorgraph.errors import GraphTypeError, near_names, shown

__all__ = [
    "Checks", "DType", "Dim", "DimVar", "Function", "KINDS", "Record", "Row", "RowVar", "Shape",
    "Substitution", "Tensor", "Term", "UNKNOWN", "UnboundDim", "Var", "bind_dims", "bind_shape",
    "broadcast", "dim_max", "dim_min", "dtype_of", "parse", "public_shape", "shape_from",
    "shapes_differ", "size_of", "slice_size", "symbol", "unify",
]  # fmt: skip
__dir__ = __all__.copy

# -- terms ----------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, str]] = {
    "a": ("any dtype", "biufcV"),
    "n": ("a number", "iufcV"),
    "r": ("a real number", "iufV"),
    "x": ("float or complex", "fcV"),
    "f": ("a float", "fV"),
    "i": ("an integer", "iu"),
    "c": ("complex", "c"),
}
"""Kind letter of a dtype variable: what it says in errors, and the NumPy kinds it admits."""

_SUPPORTED = dict.fromkeys(
    (
        "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
        "float16 bfloat16 float32 float64 complex64 complex128"
    ).split()
)


@lru_cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype, which NumPy puts together anew in 1 us."""
    return dtype.name


def dtype_of(dtype: object) -> np.dtype[np.generic]:
    """Return the NumPy dtype, or raise `GraphTypeError` for one that graphs do not hold.

    bfloat16 is declared to NumPy by ml_dtypes, an extra: ``pip install 'actorgraph[bfloat16]'``.
    NumPy files it under kind V, so that rules which mean "float or complex" test for ``"fcV"``.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.types.dtype_of("float32")
    dtype('float32')
    """
    try:
        if isinstance(dtype, str) and dtype == "bfloat16":
            import ml_dtypes  # noqa: F401 - declares it to NumPy
        result: np.dtype[np.generic] = np.dtype(dtype)  # type: ignore[call-overload]
    except ImportError:
        raise GraphTypeError(
            "bfloat16 needs the library ml_dtypes, which is not installed; "
            'install it with: pip install "actorgraph[bfloat16]"'
        ) from None
    except (TypeError, ValueError) as error:
        raise GraphTypeError(
            f"not a dtype: {shown(dtype)}{near_names(dtype, _SUPPORTED)}; expected one of "
            f"{', '.join(_SUPPORTED)}"
        ) from error
    if _name_of(result) not in _SUPPORTED or not result.isnative:
        raise GraphTypeError(
            f"dtype {result} is not supported; use one of {', '.join(_SUPPORTED)}"
            " in the machine's byte order"
        )
    return result


@dataclass(frozen=True, slots=True)
class _Named:
    """A term that is only a name; terms of different classes are never equal.

    One dataclass for all: making one takes 0.35 ms of the package's import.
    """

    name: str

    def __str__(self) -> str:
        return self.name


@final
class DType(_Named):
    """A dtype constant, by NumPy name.

    Examples
    --------
    >>> import actorgraph as ag
    >>> str(ag.types.DType("float32"))
    'float32'
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Var:
    """A type variable; `kind` is a letter of `KINDS` and limits which dtypes it may become.

    Examples
    --------
    >>> import actorgraph as ag
    >>> (argument,) = ag.types.parse("f[n] -> f[n]").args
    >>> argument.dtype
    Var(name='f', kind='f')
    """

    name: str
    kind: str = "a"

    def __str__(self) -> str:
        return self.name


@final
class DimVar(_Named):
    """A variable that stands for one dim of a scheme.

    Examples
    --------
    >>> import actorgraph as ag
    >>> (argument,) = ag.types.parse("f[n] -> f[n]").args
    >>> argument.row.dims
    (DimVar(name='n'),)
    """

    __slots__ = ()


@final
class RowVar(_Named):
    """A variable that stands for any number of dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> (argument,) = ag.types.parse("f[*s, n] -> f[*s]").args
    >>> argument.row.prefix
    (RowVar(name='s'),)
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"*{self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """Dims of a tensor: the broadcast of row variables (none, one or several), then single dims.

    Examples
    --------
    >>> import actorgraph as ag
    >>> (argument,) = ag.types.parse("f[*s, n] -> f[*s]").args
    >>> str(argument.row)
    '*s, n'
    """

    prefix: tuple[RowVar, ...]
    dims: tuple[int | Dim | DimVar, ...]

    def __str__(self) -> str:
        parts = ["*" + "|".join(var.name for var in self.prefix)] if self.prefix else []
        return ", ".join(parts + [str(dim) for dim in self.dims])


@dataclass(frozen=True, slots=True)
class Tensor:
    """The tensor constructor: a dtype and a row of dims; rank 0 is a scalar.

    Examples
    --------
    >>> import actorgraph as ag
    >>> (argument,) = ag.types.parse("float32[3] -> float32[3]").args
    >>> str(argument), type(argument) is ag.types.Tensor
    ('float32[3]', True)
    """

    dtype: DType | Var
    row: Row
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Cached: types are hashed for every node that is built.
        object.__setattr__(self, "_hash", hash((self.dtype, self.row)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.dtype, self.row)  # the hash differs between processes

    @staticmethod
    def of(dtype: object, shape: Shape) -> Tensor:
        """Return the concrete type of an array of `dtype` and `shape`."""
        return _concrete(_name_of(dtype_of(dtype)), shape)

    @property
    def shape(self) -> Shape:
        """The dims of a concrete type."""
        if self.row.prefix or any(isinstance(dim, DimVar) for dim in self.row.dims):
            raise GraphTypeError(f"the dims of {self} are not known")
        return self.row.dims  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"{self.dtype}[{self.row}]"


@lru_cache(maxsize=16384)
def _concrete(dtype: str, shape: Shape) -> Tensor:
    """Return one object for equal types, so that comparing them is fast."""
    return Tensor(DType(dtype), Row((), shape))


@dataclass(frozen=True, slots=True)
class Record(Tensor):
    """The type of a node with several results, which only the op `item` reads.

    For all other ops it is a scalar of a dtype that no kind admits, so operators, feeds and outputs
    reject it like any dtype that they do not take.

    Examples
    --------
    >>> import actorgraph as ag
    >>> item = ag.types.parse("f[n] -> f[n]").result
    >>> len(ag.types.Record(item.dtype, item.row, (item, item)).fields)
    2
    """

    fields: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.fields))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Record.of_fields, (self.fields,)

    @staticmethod
    def of_fields(fields: tuple[Tensor, ...]) -> Record:
        """Return the record of concrete types, one object for equal ones."""
        return _record(fields)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


@lru_cache(maxsize=16384)
def _record(fields: tuple[Tensor, ...]) -> Record:
    return Record(DType("object"), Row((), ()), fields)


@dataclass(frozen=True, slots=True)
class Function:
    """A function type ``a -> b -> c``, its arguments flattened so that long ones do not recurse.

    Examples
    --------
    >>> import actorgraph as ag
    >>> found = ag.types.parse("f[*s] -> f[*s]")
    >>> len(found.args), str(found.result)
    (1, 'f[*s]')
    """

    args: tuple[Term, ...]
    result: Term

    def __str__(self) -> str:
        parts = [f"({arg})" if isinstance(arg, Function) else str(arg) for arg in self.args]
        return " -> ".join([*parts, str(self.result)])


Term: TypeAlias = DType | Var | Tensor | Function
"""What unification makes equal."""

# -- unification ----------------------------------------------------------------------------------


class Substitution:
    """What each variable stands for, and the dim equations met on the way.

    Examples
    --------
    >>> import actorgraph as ag
    >>> parse = ag.types.parse
    >>> found = ag.types.unify(parse("f[n] -> f[n]"), parse("float32[3] -> float32[3]"))
    >>> str(found.resolve(parse("f[n, n]->f[n, n]").result))
    'float32[3, 3]'
    """

    __slots__ = ("checks", "dims", "rows", "types")

    def __init__(self) -> None:
        self.types: dict[Var, Term] = {}
        self.rows: dict[RowVar, Shape] = {}
        self.dims: dict[DimVar, int | Dim] = {}
        self.checks = Checks()

    def resolve(self, term: Term) -> Term:
        """Return `term` with every bound variable replaced."""
        if isinstance(term, Var):
            bound = self.types.get(term)
            return term if bound is None else self.resolve(bound)
        if isinstance(term, Tensor):
            dtype = self.resolve(term.dtype)
            if not isinstance(dtype, (DType, Var)):
                raise GraphTypeError(f"{dtype} cannot be the dtype of a tensor")
            return Tensor(dtype, self.resolve_row(term.row))
        if isinstance(term, Function):
            return Function(tuple(map(self.resolve, term.args)), self.resolve(term.result))
        return term

    def resolve_row(self, row: Row) -> Row:
        """Return `row` with bound variables replaced; a broadcast waits for all its operands."""
        dims = tuple(self.dims.get(d, d) if isinstance(d, DimVar) else d for d in row.dims)
        if any(var not in self.rows for var in row.prefix):
            return Row(row.prefix, dims)
        return Row((), self.checks.broadcast(*(self.rows[var] for var in row.prefix)) + dims)


def unify(left: Term, right: Term, found: Substitution | None = None) -> Substitution:
    """Make two terms equal, or raise.

    Parameters
    ----------
    left, right : Term
        Any two terms; variables on either side are bound.
    found : Substitution, optional
        Bindings to extend.

    Returns
    -------
    Substitution
        Bindings under which ``resolve(left) == resolve(right)``, up to its `checks`.

    Raises
    ------
    GraphTypeError
        Constructors, dtypes, ranks or arities differ, a kind does not admit a dtype, or a
        variable would contain itself.
    ShapeError
        Dims can be shown to differ.

    Examples
    --------
    >>> import actorgraph as ag
    >>> parse = ag.types.parse
    >>> found = ag.types.unify(parse("f[m, k] -> f[m]"), parse("float32[3, 4] -> float32[3]"))
    >>> str(found.resolve(parse("f[k, m]").result))
    'float32[4, 3]'
    """
    found = Substitution() if found is None else found
    left, right = _shallow(left, found), _shallow(right, found)
    if isinstance(left, Var):
        _bind_var(left, right, found)
    elif isinstance(right, Var):
        _bind_var(right, left, found)
    elif isinstance(left, Tensor) and isinstance(right, Tensor):
        unify(left.dtype, right.dtype, found)
        _unify_rows(found.resolve_row(left.row), found.resolve_row(right.row), found)
    elif isinstance(left, Function) and isinstance(right, Function):
        if len(left.args) != len(right.args):
            raise GraphTypeError(f"{left} and {right} take different numbers of arguments")
        for one, other in zip(left.args, right.args, strict=True):
            unify(one, other, found)
        unify(left.result, right.result, found)
    elif left != right:
        raise GraphTypeError(f"{left} and {right} cannot be unified")
    return found


def _shallow(term: Term, found: Substitution) -> Term:
    while isinstance(term, Var) and term in found.types:
        term = found.types[term]
    return term


def _bind_var(var: Var, term: Term, found: Substitution) -> None:
    if term == var:
        return
    if _occurs(var, term, found):
        raise GraphTypeError(f"{var} would have to contain itself: {var} = {found.resolve(term)}")
    if isinstance(term, DType):
        words, kinds = KINDS[var.kind]
        if np.dtype(term.name).kind not in kinds:
            raise GraphTypeError(f"{term} is not {words}")
    elif isinstance(term, Var):
        # Both kinds have to admit it, or `n` could become bool through `a`.
        kind = _common_kind(var.kind, term.kind)
        if kind == var.kind:
            var, term = term, var
        elif kind != term.kind:
            common = Var(f"{var.name}&{term.name}", kind)
            found.types[term], term = common, common
    elif var.kind != "a":
        raise GraphTypeError(f"{term} is not {KINDS[var.kind][0]}")
    found.types[var] = term


def _common_kind(left: str, right: str) -> str:
    common = set(KINDS[left][1]) & set(KINDS[right][1])
    for kind, (_, admitted) in KINDS.items():
        if set(admitted) == common:
            return kind
    raise GraphTypeError(f"what is {KINDS[left][0]} is never {KINDS[right][0]}")


def _occurs(var: Var, term: Term, found: Substitution) -> bool:
    term = _shallow(term, found)
    if isinstance(term, Tensor):
        return _occurs(var, term.dtype, found)
    if isinstance(term, Function):
        return any(_occurs(var, part, found) for part in (*term.args, term.result))
    return term == var


def _unify_rows(left: Row, right: Row, found: Substitution) -> None:
    if not left.prefix and right.prefix:
        left, right = right, left
    if left == right:
        return
    if right.prefix or len(left.prefix) > 1:
        raise GraphTypeError(f"rows [{left}] and [{right}] cannot be compared before one is known")
    if len(left.dims) > len(right.dims) or (not left.prefix and len(left.dims) < len(right.dims)):
        at_least = "at least " if left.prefix else ""
        raise GraphTypeError(
            f"rank {len(right.dims)} [{right}] does not fit "
            f"rank {at_least}{len(left.dims)} [{left}]"
        )
    split = len(right.dims) - len(left.dims)
    if left.prefix:
        found.rows[left.prefix[0]] = tuple(_known(dim) for dim in right.dims[:split])
    for one, other in zip(left.dims, right.dims[split:], strict=True):
        _unify_dims(one, other, found)


def _known(dim: int | Dim | DimVar) -> int | Dim:
    if isinstance(dim, DimVar):
        raise GraphTypeError(f"dim {dim} is not known yet")
    return dim


def _unify_dims(left: int | Dim | DimVar, right: int | Dim | DimVar, found: Substitution) -> None:
    if isinstance(left, DimVar):
        left = found.dims.get(left, left)
    if isinstance(right, DimVar):
        right = found.dims.get(right, right)
    if isinstance(left, DimVar):
        if left != right:
            found.dims[left] = _known(right)
    elif isinstance(right, DimVar):
        found.dims[right] = left
    else:
        found.checks.equal(left, right)


# -- schemes as text ------------------------------------------------------------------------------

_TENSOR = re.compile(r"^\s*(\w+)\s*(?:\[([^\]]*)\])?\s*$")
_VARIABLE = re.compile(r"^[a-z]\d*$")


@lru_cache(maxsize=4096)
def parse(text: str) -> Function:
    """Read a scheme such as ``"n[*s] -> n[*t] -> n[*s|t]"``.

    A lone type is a function of no arguments.  The module's docstring describes the notation.

    Raises
    ------
    GraphTypeError
        For text that is not a scheme.

    Examples
    --------
    >>> import actorgraph as ag
    >>> print(ag.types.parse("x[*s, m, m] -> x[*s]"))
    x[*s, m, m] -> x[*s]
    """
    if not isinstance(text, str):
        raise GraphTypeError(f"a type scheme is a str such as 'f[*s] -> f[*s]', got {shown(text)}")
    parts = [_parse_tensor(part, text) for part in text.split("->")]
    return Function(tuple(parts[:-1]), parts[-1])


_A_SCHEME = (
    "a scheme, such as 'f[*s] -> f[*s]' or 'float32[n, 3] -> int64[n]', has for each argument and "
    "the result a kind or dtype, with dims in brackets"
)


def _parse_tensor(part: str, text: str) -> Tensor:
    match = _TENSOR.match(part)
    if match is None:
        raise GraphTypeError(
            f"cannot read {part.strip()!r} in the type scheme {text!r}; {_A_SCHEME}"
        )
    name, dims = match.groups()
    dtype: DType | Var
    if _VARIABLE.match(name):
        if name[0] not in KINDS:
            raise GraphTypeError(
                f"unknown kind {name[0]!r} in the type scheme {text!r}; "
                f"kinds are {', '.join(KINDS)}"
            )
        dtype = Var(name, name[0])
    else:
        dtype = DType(dtype_of(name).name)
    return Tensor(dtype, _parse_row(dims or "", text))


def _parse_row(dims: str, text: str) -> Row:
    parts = [part.strip() for part in dims.split(",") if part.strip()]
    prefix: tuple[RowVar, ...] = ()
    if parts and parts[0].startswith("*"):
        prefix = tuple(RowVar(name.strip()) for name in parts.pop(0)[1:].split("|"))
    if any(not part.isidentifier() and not part.isdigit() for part in parts):
        raise GraphTypeError(
            f"cannot read the dims [{dims}] in the type scheme {text!r}; {_A_SCHEME}"
        )
    return Row(prefix, tuple(int(p) if p.isdigit() else DimVar(p) for p in parts))
