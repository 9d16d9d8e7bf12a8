"""Symbolic dims: integer expressions of symbols, and the equations that runs check.

A dim is an ``int``, a `Dim` (a polynomial over symbols, normalised, so that ``2 * n - n == n``), or
`UNKNOWN` (written ``None`` by users).  An equation between dims that can neither be proved nor
refuted while the graph is built is kept in `Checks` and decided when a run binds the symbols.
Symbols are sizes, so they are never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import NamedTuple, NoReturn, TypeAlias, TypeVar, Union

import numpy as np

from actorgraph.errors import GraphTypeError, ShapeError, shown

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


class UnboundDim(KeyError):
    """A run does not bind a dim; a `KeyError` of its own, to be told from others.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> try:
    ...     ag.types.bind_dims(n, {})
    ... except ag.types.UnboundDim:
    ...     print("no run tells n")
    no run tells n
    """


class _Call(NamedTuple):
    """A function of dims that stays symbolic, such as ``min(n, 10)``."""

    function: str
    args: tuple[int | Dim | None, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.args))})"


def _no_call(size: object) -> NoReturn:
    raise GraphTypeError(
        f"node.size is a number, as in NumPy, here {size}; "
        "what PyTorch's size() gives is node.shape"
    )


class Size(int):
    """The number of a node's entries; calling it, as in PyTorch, raises an error that helps."""

    __call__ = _no_call


class Dim:
    """An integer expression of symbols, normalised as a polynomial.

    A plain symbol equals its name (``node.shape == ("batch", 10)`` holds).  Arithmetic gives a new
    `Dim`, or an ``int`` if the symbols cancel.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
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
    __call__ = _no_call

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Dim):
            return self._text == other._text
        return isinstance(other, str) and self._text == other

    def __add__(self, other: int | Dim) -> int | Dim:
        if other is UNKNOWN or self is UNKNOWN:
            return UNKNOWN
        if not _is_dim(other):
            return NotImplemented
        return _from_terms([*self.terms, *_terms(other)])

    def __mul__(self, other: int | Dim) -> int | Dim:
        if other is UNKNOWN or self is UNKNOWN:
            return UNKNOWN
        if not _is_dim(other):
            return NotImplemented
        pairs = product(self.terms, _terms(other))
        return _from_terms([(tuple(sorted(x + y, key=str)), a * b) for (x, a), (y, b) in pairs])

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + other * -1 if _is_dim(other) else NotImplemented

    def __rsub__(self, other: int) -> int | Dim:
        return -self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        return _floordiv(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: int) -> int | Dim:
        return _floordiv(other, self)

    def __mod__(self, other: int | Dim) -> int | Dim:
        return _call("mod", self, other) if _is_dim(other) else NotImplemented

    def __rmod__(self, other: int) -> int | Dim:
        return _call("mod", other, self)

    def bind(self, symbols: Mapping[str, int]) -> int:
        """Return the value for the given symbols; `UnboundDim` names one that is missing."""
        if self is UNKNOWN:
            raise UnboundDim("a dim that is known only at run time")
        total = 0
        for monomial, factor in self.terms:
            for atom in monomial:
                factor *= _bind_atom(atom, symbols)
            total += factor
        return total


def _bind_atom(atom: str | _Call, symbols: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        try:
            return symbols[atom]
        except KeyError:
            raise UnboundDim(atom) from None
    bound = [None if arg is None else bind_dims(arg, symbols) for arg in atom.args]
    return _FUNCTIONS[atom.function](*bound)


def _text_of(terms: tuple[tuple[_Monomial, int], ...]) -> str:
    text = ""
    for monomial, factor in terms:
        names = [str(atom) for atom in monomial]
        if abs(factor) != 1 or not names:
            names.insert(0, str(abs(factor)))
        sign = "-" if factor < 0 else "+"
        text += f" {sign} {'*'.join(names)}" if text else "-" * (factor < 0) + "*".join(names)
    return text


def _is_dim(value: object) -> bool:
    return isinstance(value, (int, np.integer, Dim)) or value is UNKNOWN


def _terms(dim: int | Dim) -> tuple[tuple[_Monomial, int], ...]:
    return dim.terms if isinstance(dim, Dim) else (((), int(dim)),)


def _from_terms(terms: Iterable[tuple[_Monomial, int]]) -> int | Dim:
    collected: dict[_Monomial, int] = {}
    for monomial, factor in terms:
        collected[monomial] = collected.get(monomial, 0) + factor
    nonzero = {monomial: factor for monomial, factor in collected.items() if factor}
    if not nonzero:
        return 0
    if set(nonzero) == {()}:
        return nonzero[()]
    return Dim(tuple(sorted(nonzero.items(), key=_written_order)))


def _written_order(term: tuple[_Monomial, int]) -> tuple[bool, str]:
    """Sort the constant last, as people write it."""
    monomial, _ = term
    return not monomial, str(monomial)


def _call(function: str, *args: int | Dim | None) -> int | Dim:
    if any(arg is UNKNOWN for arg in args):
        return UNKNOWN
    if not any(isinstance(arg, Dim) for arg in args):
        return _FUNCTIONS[function](*args)
    return Dim((((_Call(function, args),), 1),))


def _floordiv(left: int | Dim, right: int | Dim) -> int | Dim:
    """Divide exactly if every term is divisible, else keep the division symbolic."""
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
"""Dims as shape rules see them."""


def symbol(name: str) -> Dim:
    """Return the dim that is the symbol `name`, which must be a Python identifier.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> n, n == ag.types.symbol("n")
    (n, True)
    """
    if not name.isidentifier():
        raise ShapeError(f"a dim symbol must be an identifier such as 'batch', got {name!r}")
    return Dim((((name,), 1),))


def dim_max(left: int | Dim, right: int | Dim) -> int | Dim:
    """Return ``max(left, right)``, symbolic if it is not decided.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> ag.types.dim_max(n + 1, n), ag.types.dim_max(n, 4)
    (n + 1, max(n, 4))
    """
    return _extreme("max", left, right)


def dim_min(left: int | Dim, right: int | Dim) -> int | Dim:
    """Return ``min(left, right)``, symbolic if it is not decided.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> ag.types.dim_min(n, 3)
    min(n, 3)
    """
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
    >>> import actorgraph as ag
    >>> n, size = ag.types.symbol("n"), ag.types.slice_size
    >>> size(n, slice(10)), size(n, slice(1, -1)), size(n + 3, slice(n, None))
    (min(10, n), max(n - 2, 0), 3)
    """
    start, stop = part.start, part.stop
    step: int = 1 if part.step is None else part.step
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

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.types.shape_from(("batch", 3))
    (batch, 3)
    """
    if isinstance(dims, np.ndarray):
        dims = dims.tolist()
    if isinstance(dims, (int, np.integer, str, Dim)) or dims is None:
        dims = (dims,)
    if not isinstance(dims, Iterable):
        raise ShapeError(f"a shape is a tuple of int, str or None, got {shown(dims)}")
    return tuple(_dim_from(dim) for dim in dims)


def _dim_from(dim: object) -> int | Dim:
    if dim is None:
        return UNKNOWN
    if isinstance(dim, Dim):
        return dim
    if isinstance(dim, str):
        return symbol(dim)
    if isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) and 0 <= dim < 1 << 63:
        return int(dim)
    what = "a dim is a non-negative int, a symbol such as 'batch', or None"
    raise ShapeError(f"{what}, got {shown(dim)}")


def public_shape(shape: Shape) -> tuple[int | Dim | None, ...]:
    """Return the shape as users read it, with None for `UNKNOWN`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> ag.types.public_shape((n, ag.types.UNKNOWN))
    (n, None)
    """
    return tuple(None if dim is UNKNOWN else dim for dim in shape)


def bind_dims(dim: int | Dim, symbols: Mapping[str, int]) -> int:
    """Return the value of `dim` for `symbols`.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> ag.types.bind_dims(n + 1, {"n": 3})
    4
    """
    return dim.bind(symbols) if isinstance(dim, Dim) else dim


_Unknown = TypeVar("_Unknown", int, None)


def bind_shape(
    shape: Shape, symbols: Mapping[str, int], unknown: _Unknown
) -> tuple[int | _Unknown, ...]:
    """Return the values of dims for `symbols`, `unknown` for those that these do not bind.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n, bind = ag.types.symbol("n"), ag.types.bind_shape
    >>> bind((n * 2, ag.types.UNKNOWN, 3), {"n": 5}, None), bind((n, 3), {}, 1)
    ((10, None, 3), (1, 3))
    """
    sizes: list[int | _Unknown] = []
    for dim in shape:
        try:
            sizes.append(bind_dims(dim, symbols))
        except UnboundDim:
            sizes.append(unknown)
    return tuple(sizes)


def size_of(shape: Shape) -> int | Dim:
    """Return the number of elements, symbolic if dims are.

    Examples
    --------
    >>> import actorgraph as ag
    >>> n = ag.types.symbol("n")
    >>> ag.types.size_of((n, 3))
    3*n
    """
    size: int | Dim = 1
    for dim in shape:
        size = dim * size
    return size


class Checks(list[tuple[int | Dim, int | Dim]]):
    """Equations between dims that a run has to check once its symbols are bound.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.types.Checks()
    []
    """

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
    >>> import actorgraph as ag
    >>> ag.types.broadcast((3, 1), (4,))
    (3, 4)
    """
    return Checks().broadcast(*shapes)


def shapes_differ(left: Shape, right: Shape) -> bool:
    """Return whether two shapes can be shown to differ; a literal 1 differs from a symbol.

    For operands that must not broadcast: what stays open is an equation for the run.

    Examples
    --------
    >>> import actorgraph as ag
    >>> ag.types.shapes_differ((2, 3), (2, 4))
    True
    """
    if len(left) != len(right):
        return True
    return any(
        UNKNOWN not in (one, other)
        and (not isinstance(one - other, Dim) or 1 in (one, other))
        and one != other
        for one, other in zip(left, right, strict=True)
    )


def _shape_text(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
