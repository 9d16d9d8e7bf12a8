"""Hindley-Milner types of nodes, dims included.

A node's type is a `Tensor`: a dtype and a row of dims.  An op's type is a `Function` whose
argument types hold variables; applying an op unifies the two.  Unlike a textbook `unify`, this
one also compares constructor, rank and dims, so ``float32[3] ~ float32[3, 1]`` does not unify.

Dims are ``int``, symbolic `Dim` expressions (polynomials over symbols, normalised, so that
``2 * n - n == n``), or `UNKNOWN` (written ``None`` by users).  An equation between dims that can
neither be proved nor refuted while the graph is built is kept in `Checks` and decided when a run
binds the symbols.

Schemes are written as text, for example::

    "n[*s] -> n[*t] -> n[*s|t]"      a broadcasting op on numbers
    "f[m, k] -> f[k, n] -> f[m, n]"  a matrix product
    "a[*s] -> bool[*s]"              a test of each element

A single letter (and a digit) is a dtype variable: ``a`` any, ``n`` number (no bool), ``r`` real
number, ``x`` float or complex, ``f`` float, ``i`` integer.  ``*s`` is a row variable, ``*s|t`` the
broadcast of two rows, a name inside brackets a dim variable.

Source: R. Milner, A theory of type polymorphism in programming, 1978; unification as in
Robinson 1965.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, Union

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError

__all__ = [
    "KINDS",
    "UNKNOWN",
    "Checks",
    "DType",
    "Dim",
    "DimVar",
    "Function",
    "Row",
    "RowVar",
    "Shape",
    "Substitution",
    "Tensor",
    "Var",
    "bind_dims",
    "broadcast",
    "dim_max",
    "dim_min",
    "dtype_of",
    "parse",
    "public_shape",
    "shape_from",
    "size_of",
    "slice_size",
    "symbol",
    "unify",
]

# ---------------------------------------------------------------------------------------------
# Dims
# ---------------------------------------------------------------------------------------------

# A monomial is the sorted tuple of its atoms (repeated for powers); an atom is a symbol name or
# a `_Call` of a function that polynomials cannot express.
_Monomial: TypeAlias = tuple[Union[str, "_Call"], ...]

_FUNCTIONS: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "max": max,
    "min": min,
    "slice_size": lambda dim, *bounds: len(range(*slice(*bounds).indices(dim))),
}


@dataclass(frozen=True, slots=True)
class _Call:
    """A function of dims that stays symbolic, such as ``min(n, 10)``."""

    function: str
    args: tuple[int | Dim | None, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


class Dim:
    """An integer expression of symbols, normalised as a polynomial.

    A plain symbol equals its name (``node.shape == ("batch", 10)`` holds), and arithmetic gives a
    new `Dim`, or an ``int`` where the symbols cancel.

    Examples
    --------
    >>> n = symbol("n")
    >>> n * 2 + 3, (n * 6) // 3, n - n
    (2*n + 3, 2*n, 0)
    """

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...], text: str | None = None) -> None:
        self.terms = terms
        self._text = _text_of(terms) if text is None else text
        self._hash = hash(self._text)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self._text == other._text
        return isinstance(other, str) and self._text == other

    def __add__(self, other: int | Dim) -> int | Dim:
        if other is UNKNOWN or self is UNKNOWN:
            return UNKNOWN
        return _from_terms([*self.terms, *_terms(other)])

    def __mul__(self, other: int | Dim) -> int | Dim:
        if other is UNKNOWN or self is UNKNOWN:
            return UNKNOWN
        return _from_terms(
            [
                (tuple(sorted(left + right, key=str)), a * b)
                for left, a in self.terms
                for right, b in _terms(other)
            ]
        )

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + other * -1

    def __rsub__(self, other: int) -> int | Dim:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        return _floordiv(self, other)

    def __rfloordiv__(self, other: int) -> int | Dim:
        return _floordiv(other, self)

    def __mod__(self, other: int | Dim) -> int | Dim:
        return _call("mod", self, other)

    def __rmod__(self, other: int) -> int | Dim:
        return _call("mod", other, self)

    def bind(self, symbols: Mapping[str, int]) -> int:
        """Return the value under the given symbols; `KeyError` names a symbol that is missing."""
        if self is UNKNOWN:
            raise KeyError("a dim that is known only at run time")
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                factor *= _bind_atom(atom, symbols)
            total += factor
        return total


def _bind_atom(atom: str | _Call, symbols: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        return symbols[atom]
    return _FUNCTIONS[atom.function](*(_bind_argument(arg, symbols) for arg in atom.args))


def _bind_argument(arg: int | Dim | None, symbols: Mapping[str, int]) -> int | None:
    return None if arg is None else bind_dims(arg, symbols)


def _text_of(terms: tuple[tuple[_Monomial, int], ...]) -> str:
    text = ""
    for monomial, factor in terms:
        names = [str(atom) for atom in monomial]
        if abs(factor) != 1 or not names:
            names.insert(0, str(abs(factor)))
        sign = "-" if factor < 0 else "+"
        text += f" {sign} {'*'.join(names)}" if text else "-" * (factor < 0) + "*".join(names)
    return text


def _terms(dim: int | Dim) -> tuple[tuple[_Monomial, int], ...]:
    return dim.terms if isinstance(dim, Dim) else (((), int(dim)),)


def _from_terms(terms: Iterable[tuple[_Monomial, int]]) -> int | Dim:
    collected: dict[_Monomial, int] = {}
    for monomial, factor in terms:
        collected[monomial] = collected.get(monomial, 0) + factor
    kept = {monomial: factor for monomial, factor in collected.items() if factor}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    # The constant comes last, as people write it.
    return Dim(tuple(sorted(kept.items(), key=lambda term: (not term[0], str(term[0])))))


def _call(function: str, *args: int | Dim | None) -> int | Dim:
    if any(arg is UNKNOWN for arg in args):
        return UNKNOWN
    if not any(isinstance(arg, Dim) for arg in args):
        return _FUNCTIONS[function](*args)
    return Dim((((_Call(function, args),), 1),))


def _floordiv(left: int | Dim, right: int | Dim) -> int | Dim:
    """Divide exactly where every term allows it, else keep the division symbolic."""
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    divisor = _terms(right)
    if len(divisor) == 1:
        atoms, factor = divisor[0]
        quotients = [_divide_term(term, atoms, factor) for term in _terms(left)]
        exact = [quotient for quotient in quotients if quotient is not None]
        if len(exact) == len(quotients):
            return _from_terms(exact)
    if left == right:
        return 1
    return _call("floordiv", left, right)


def _divide_term(
    term: tuple[_Monomial, int], atoms: _Monomial, factor: int
) -> tuple[_Monomial, int] | None:
    rest = list(term[0])
    for atom in atoms:
        if atom not in rest:
            return None
        rest.remove(atom)
    if factor == 0 or term[1] % factor:
        return None
    return tuple(rest), term[1] // factor


UNKNOWN = Dim((), "?")
"""A dim that is known only at run time; users write and read it as ``None``."""

Shape: TypeAlias = tuple[int | Dim, ...]


def symbol(name: str) -> Dim:
    """Return the dim that is the symbol `name`, which must be a Python identifier."""
    if not name.isidentifier():
        raise ShapeError(f"a dim symbol must be an identifier such as 'batch', got {name!r}")
    return Dim((((name,), 1),))


def dim_max(left: int | Dim, right: int | Dim) -> int | Dim:
    """Return ``max(left, right)``, symbolic where it has to be.

    Examples
    --------
    >>> n = symbol("n")
    >>> dim_max(n + 1, n), dim_max(n, 4)
    (n + 1, max(n, 4))
    """
    return _extreme("max", left, right)


def dim_min(left: int | Dim, right: int | Dim) -> int | Dim:
    """Return ``min(left, right)``, symbolic where it has to be."""
    return _extreme("min", left, right)


def _extreme(function: str, left: int | Dim, right: int | Dim) -> int | Dim:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if _never_negative(left - right):
        return left if function == "max" else right
    if _never_negative(right - left):
        return right if function == "max" else left
    return _call(function, left, right)


def _never_negative(dim: int | Dim) -> bool:
    """Return whether `dim` is at least 0 for all symbols, as far as the form shows it."""
    if not isinstance(dim, Dim):
        return dim >= 0
    return all(
        factor > 0 and all(isinstance(atom, str) or _call_never_negative(atom) for atom in monomial)
        for monomial, factor in dim.terms
    )


def _call_never_negative(call: _Call) -> bool:
    if call.function == "slice_size":
        return True
    quantifier = any if call.function == "max" else all
    return quantifier(arg is not None and _never_negative(arg) for arg in call.args)


def slice_size(dim: int | Dim, part: slice) -> int | Dim:
    """Return how many of `dim` entries a slice takes; bounds may be dims, the step is an int.

    Examples
    --------
    >>> n = symbol("n")
    >>> slice_size(n, slice(10)), slice_size(n, slice(1, -1)), slice_size(n + 3, slice(n, None))
    (min(10, n), max(n - 2, 0), 3)
    """
    start, stop = part.start, part.stop
    step = 1 if part.step is None else part.step
    if dim is UNKNOWN:
        return dim if start is None and stop is None and abs(step) == 1 else UNKNOWN
    if not any(isinstance(value, Dim) for value in (dim, start, stop)):
        return _FUNCTIONS["slice_size"](dim, start, stop, step)
    if start is None and stop is None:
        size: int | Dim = dim
    elif step < 0 or not (_sign_known(start) and _sign_known(stop)):
        return _call("slice_size", dim, start, stop, step)
    elif stop is None and isinstance(start, int) and start < 0:
        size = dim_min(dim, -start)
    else:
        low = 0 if start is None else start
        if isinstance(low, int) and low < 0:
            low = dim_max(dim + low, 0)
        size = dim_max(_slice_end(dim, stop) - low, 0)
    return (size + (abs(step) - 1)) // abs(step)


def _sign_known(bound: int | Dim | None) -> bool:
    return not isinstance(bound, Dim) or _never_negative(bound)


def _slice_end(dim: int | Dim, stop: int | Dim | None) -> int | Dim:
    if stop is None:
        return dim
    return dim + stop if isinstance(stop, int) and stop < 0 else dim_min(stop, dim)


def shape_from(dims: object) -> Shape:
    """Read a shape as users write it: ints, symbol names, `Dim` and None.

    Raises
    ------
    ShapeError
        For negative dims and for anything that is not a dim.
    """
    if isinstance(dims, (int, np.integer, str, Dim)) or dims is None:
        dims = (dims,)
    if not isinstance(dims, Iterable):
        raise ShapeError(f"a shape is a tuple of int, str or None, got {dims!r}")
    return tuple(_dim_from(dim) for dim in dims)


def _dim_from(dim: object) -> int | Dim:
    if dim is None:
        return UNKNOWN
    if isinstance(dim, Dim):
        return dim
    if isinstance(dim, str):
        return symbol(dim)
    if isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) and dim >= 0:
        return int(dim)
    raise ShapeError(f"a dim is a non-negative int, a symbol such as 'batch', or None, got {dim!r}")


def public_shape(shape: Shape) -> tuple[int | Dim | None, ...]:
    """Return the shape as users read it, with None for `UNKNOWN`."""
    return tuple(None if dim is UNKNOWN else dim for dim in shape)


def bind_dims(dim: int | Dim, symbols: Mapping[str, int]) -> int:
    """Return the int that `dim` is under `symbols`."""
    return dim.bind(symbols) if isinstance(dim, Dim) else dim


def size_of(shape: Shape) -> int | Dim:
    """Return the number of elements, symbolic where dims are."""
    size: int | Dim = 1
    for dim in shape:
        size = dim * size
    return size


class Checks(list[tuple[int | Dim, int | Dim]]):
    """Equations between dims that a run has to check once its symbols are bound."""

    def equal(self, left: int | Dim, right: int | Dim, what: str = "dims") -> int | Dim:
        """Require ``left == right`` and return the more specific of the two.

        Raises
        ------
        ShapeError
            Where the two can be shown to differ.
        """
        if left is UNKNOWN:
            return right
        if right is UNKNOWN or left == right:
            return left
        difference = left - right
        if not isinstance(difference, Dim):
            raise ShapeError(f"{what} do not fit: {left} and {right}")
        self.append((left, right))
        return left if isinstance(left, int) else right

    def broadcast(self, *shapes: Shape) -> Shape:
        """Return the NumPy broadcast of the shapes; only a literal 1 is ever stretched.

        A symbol never broadcasts, even where a run binds it to 1.  `UNKNOWN` may be 1 at run
        time, so against another dim it takes that dim.
        """
        rank = max((len(shape) for shape in shapes), default=0)
        result: list[int | Dim] = [1] * rank
        for shape in shapes:
            for axis, dim in enumerate(shape, rank - len(shape)):
                result[axis] = self._stretch(result[axis], dim, shapes)
        return tuple(result)

    def _stretch(self, left: int | Dim, right: int | Dim, shapes: tuple[Shape, ...]) -> int | Dim:
        if left is UNKNOWN or right is UNKNOWN:
            other = right if left is UNKNOWN else left
            return UNKNOWN if other == 1 else other
        if left == 1:
            return right
        if right == 1:
            return left
        return self.equal(left, right, f"shapes {' and '.join(map(_shape_text, shapes))}")


def broadcast(*shapes: Shape) -> Shape:
    """Return the broadcast of `shapes`, leaving out what only a run can check.

    Examples
    --------
    >>> broadcast((3, 1), (4,))
    (3, 4)
    """
    return Checks().broadcast(*shapes)


def _shape_text(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


# ---------------------------------------------------------------------------------------------
# Terms
# ---------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, str]] = {
    "a": ("any dtype", "biufcV"),
    "n": ("a number", "iufcV"),
    "r": ("a real number", "iufV"),
    "x": ("float or complex", "fcV"),
    "f": ("a float", "fV"),
    "i": ("an integer", "iu"),
}
"""Kind letter of a dtype variable: what it says in errors, and the NumPy kinds it admits."""

_SUPPORTED = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 complex64 complex128"
).split()


def dtype_of(dtype: object) -> np.dtype[np.generic]:
    """Return the NumPy dtype, or raise `GraphTypeError` for one that graphs do not hold."""
    try:
        result = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError as error:
        raise GraphTypeError(f"not a dtype: {dtype!r}") from error
    if result.name not in _SUPPORTED or not result.isnative:
        raise GraphTypeError(
            f"dtype {result} is not supported; use one of {', '.join(_SUPPORTED)}"
            " in the machine's byte order"
        )
    return result


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype constant, by NumPy name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Var:
    """A type variable; `kind` is a letter of `KINDS` and limits which dtypes it may become."""

    name: str
    kind: str = "a"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DimVar:
    """A variable that stands for one dim of a scheme."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class RowVar:
    """A variable that stands for any number of dims."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """Dims of a tensor: the broadcast of row variables (none, one or several), then single dims."""

    prefix: tuple[RowVar, ...]
    dims: tuple[int | Dim | DimVar, ...]

    def __str__(self) -> str:
        parts = ["*" + "|".join(var.name for var in self.prefix)] if self.prefix else []
        return ", ".join(parts + [str(dim) for dim in self.dims])


@dataclass(frozen=True, slots=True)
class Tensor:
    """The tensor constructor: a dtype and a row of dims; rank 0 is a scalar."""

    dtype: DType | Var
    row: Row

    @staticmethod
    def of(dtype: object, shape: Shape) -> Tensor:
        """Return the concrete type of an array of `dtype` and `shape`."""
        return Tensor(DType(dtype_of(dtype).name), Row((), shape))

    @property
    def shape(self) -> Shape:
        """The dims of a concrete type."""
        if self.row.prefix or any(isinstance(dim, DimVar) for dim in self.row.dims):
            raise GraphTypeError(f"the dims of {self} are not known")
        return self.row.dims  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"{self.dtype}[{self.row}]"


@dataclass(frozen=True, slots=True)
class Function:
    """A function type ``a -> b -> c``, its arguments flattened so that long ones do not recurse."""

    args: tuple[Term, ...]
    result: Term

    def __str__(self) -> str:
        parts = [f"({arg})" if isinstance(arg, Function) else str(arg) for arg in self.args]
        return " -> ".join([*parts, str(self.result)])


Term: TypeAlias = Union[DType, Var, Tensor, Function]

# ---------------------------------------------------------------------------------------------
# Unification
# ---------------------------------------------------------------------------------------------


class Substitution:
    """What each variable stands for, and the dim equations met on the way."""

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
    >>> found = unify(parse("f[m, k] -> f[m]"), parse("float32[3, 4] -> float32[3]"))
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
        # The narrower kind survives, or `n` could become bool through `a`.
        if set(KINDS[term.kind][1]) - set(KINDS[var.kind][1]):
            var, term = term, var
    elif var.kind != "a":
        raise GraphTypeError(f"{term} is not {KINDS[var.kind][0]}")
    found.types[var] = term


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


# ---------------------------------------------------------------------------------------------
# Schemes as text
# ---------------------------------------------------------------------------------------------

_TENSOR = re.compile(r"^\s*(\w+)\s*(?:\[([^\]]*)\])?\s*$")
_VARIABLE = re.compile(r"^[a-z]\d*$")


@lru_cache(maxsize=4096)
def parse(text: str) -> Function:
    """Read a scheme such as ``"n[*s] -> n[*t] -> n[*s|t]"``.

    A lone type is a function of no arguments.  The notation stands in the module's docstring.

    Raises
    ------
    GraphTypeError
        For text that is not a scheme.

    Examples
    --------
    >>> print(parse("x[*s, m, m] -> x[*s]"))
    x[*s, m, m] -> x[*s]
    """
    parts = [_parse_tensor(part, text) for part in text.split("->")]
    return Function(tuple(parts[:-1]), parts[-1])


def _parse_tensor(part: str, text: str) -> Tensor:
    match = _TENSOR.match(part)
    if match is None:
        raise GraphTypeError(f"cannot read {part.strip()!r} in the type scheme {text!r}")
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
        raise GraphTypeError(f"cannot read the dims [{dims}] in the type scheme {text!r}")
    return Row(prefix, tuple(int(p) if p.isdigit() else DimVar(p) for p in parts))
