"""NumPy functions applied to nodes build nodes: ``np.tanh(x @ W)``, ``np.sum(x, axis=0)``.

NumPy calls `__array_ufunc__` and `__array_function__` (NEP 13 and 18) of any argument that has
them.  A ufunc finds its op by `Op.ufunc`.  Other functions stand in the table `_PARAMETERS` with
their parameters in NumPy's order, or are written here and in `_numpy_names` with NumPy's
signature.  A function without an op raises and names the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from inspect import signature
from math import pi
from typing import Any

import numpy as np

from actorgraph.errors import GraphError, GraphTypeError, ShapeError
from actorgraph.graph import Node, build
from actorgraph.op import REGISTRY
from actorgraph.operands import as_node
from actorgraph.ops import (
    counting,
    creation,
    elementwise,
    indexing,
    reductions,
    sampled,
    shaping,
    sorting,
)
from actorgraph.ops._foreign import named
from actorgraph.ops._numpy_names import NUMPY_ONLY, diff, node_of, nodes_of, select
from actorgraph.ops.arithmetic import is_complex
from actorgraph.ops.broadcasting import broadcast_like, broadcast_to, conj, expand_dims
from actorgraph.ops.broadcasting import sum as sum_of
from actorgraph.ops.counting import reduce_where
from actorgraph.ops.elementwise import astype, isinf, trunc
from actorgraph.ops.gathering import gather, take_along_axis
from actorgraph.ops.rearranging import pad
from actorgraph.ops.reshaping import ravel
from actorgraph.types import size_of

_FULL = slice(None)


def _along(axis: int, ndim: int, key: Any) -> tuple[Any, ...]:
    return (*[_FULL] * shaping.one_axis(axis, ndim), key)


def array(
    object: Any, dtype: Any = None, *, copy: Any = None, order: Any = None, ndmin: int = 0
) -> Node:
    """An array of nested lists of nodes, arrays and numbers."""
    found = shaping.array(object, dtype)
    return expand_dims(found, tuple(range(ndmin - found.ndim))) if ndmin > found.ndim else found


def block(arrays: Any) -> Node:
    """Join nested lists of blocks: the innermost along the last axis, the next before it."""
    home = node_of(*_leaves(arrays))
    rank = max(_depth(arrays), *(np.ndim(leaf) for leaf in _leaves(arrays)))
    return _joined(arrays, home, rank, _depth(arrays))


def _leaves(blocks: Any) -> list[Any]:
    if not isinstance(blocks, list):
        return [blocks]
    return [leaf for part in blocks for leaf in _leaves(part)]


def _depth(blocks: Any) -> int:
    return 1 + max((_depth(part) for part in blocks), default=0) if isinstance(blocks, list) else 0


def _joined(blocks: Any, home: Node, rank: int, depth: int) -> Node:
    if isinstance(blocks, list):
        return shaping.concatenate(
            [_joined(part, home, rank, depth - 1) for part in blocks], rank - depth
        )
    (leaf,) = nodes_of((home, blocks))[1:]
    return expand_dims(leaf, tuple(range(rank - leaf.ndim))) if leaf.ndim < rank else leaf


def broadcast_arrays(*args: Any) -> tuple[Node, ...]:
    """The arguments in one shape."""
    nodes = nodes_of(args)
    whole = reduce(_or, nodes)
    return tuple(broadcast_like(node, whole) for node in nodes)


def _or(x: Node, y: Node) -> Node:
    """Return bools of the shape to which both broadcast."""
    return creation.full_like(x, True, "bool") | creation.full_like(y, True, "bool")


def answer(name: str, a: Node, axis: int | None = None) -> Any:
    """Return the result of a function of `ANSWERS`, which follows from the type of a node."""
    if name in ("shape", "ndim"):
        return getattr(a, name)
    if name != "size":
        return is_complex(a) == (name == "iscomplexobj")
    count = size_of(a.dims if axis is None else (a.dims[axis],))
    if not isinstance(count, int):
        raise ShapeError(f"np.size of {a!r} is known only in a run; use ag.ops.size_of")
    return count


def real_if_close(a: Node, tol: float = 100) -> Node:
    """Real numbers as they are; of complex ones the dtype would depend on the values."""
    if is_complex(a):
        raise GraphTypeError(
            f"np.real_if_close of the complex {a!r}: its dtype would depend on values; use np.real"
        )
    return a


def unwrap(p: Node, discont: float | None = None, axis: int = -1, *, period: float = 2 * pi) -> Any:
    """Angles without jumps of more than half a period."""
    steps = diff(p, 1, axis)
    near = np.remainder(steps + period / 2, period) - period / 2
    near = np.where((near == -period / 2) & (steps > 0), period / 2, near)
    limit = period / 2 if discont is None else max(discont, period / 2)
    jumps: Any = np.where(np.abs(steps) < limit, 0, near - steps)
    first = p[_along(axis, p.ndim, slice(0, 1))]
    rest = p[_along(axis, p.ndim, slice(1, None))] + reductions.cumsum(jumps, axis)
    return shaping.concatenate([first, rest], axis)


def compress(condition: Any, a: Node, axis: int | None = None) -> Node:
    """The entries along an axis where a condition holds."""
    a, axis = (ravel(a), 0) if axis is None else (a, axis)
    held = condition if isinstance(condition, Node) else np.asarray(condition, bool)
    if not isinstance(held, Node) and isinstance(a.dims[axis], int):
        held = np.flatnonzero(held)  # it may be shorter than the axis
    return a[_along(axis, a.ndim, held)]


def extract(condition: Any, arr: Any) -> Node:
    """The elements where a condition holds."""
    if not isinstance(condition, Node):
        return ravel(arr)[np.asarray(condition, bool).ravel()]
    held, values = nodes_of((condition, arr))
    return ravel(values)[ravel(held)]


def choose(a: Any, choices: Any) -> Node:
    """The entry of the choice that `a` numbers."""
    *values, places = broadcast_arrays(*choices, a)
    return indexing.getitem(
        gather(shaping.stack(values), 0, expand_dims(astype(places, "int64"), 0)), 0
    )


def _known(a: Node, axis: int | None) -> tuple[Node, int, int]:
    a, axis = (ravel(a), 0) if axis is None else (a, axis)
    dim = a.dims[shaping.one_axis(axis, a.ndim)]
    if not isinstance(dim, int):
        raise ShapeError(f"dim {dim} of {a!r} is known only in a run")
    return a, axis, dim


def delete(arr: Node, obj: Any, axis: int | None = None) -> Node:
    """The entries along an axis without those at some places."""
    arr, axis, dim = _known(arr, axis)
    return indexing.take(arr, np.delete(np.arange(dim), obj), axis)


def insert(arr: Node, obj: Any, values: Any, axis: int | None = None) -> Node:
    """The entries along an axis with others before those at some places."""
    arr, axis, dim = _known(arr, axis)
    (_, more), place = nodes_of((arr, values)), shaping.one_axis(axis, arr.ndim)
    if np.ndim(obj) == 0 and more.ndim == arr.ndim - 1 and more.ndim:
        more = expand_dims(more, place)
    count = more.dims[place] if np.ndim(obj) == 0 and more.ndim == arr.ndim else np.size(obj)
    shape = [count if i == place else size for i, size in enumerate(arr.dims)]
    joined = shaping.concatenate([arr, broadcast_to(more, shape)], axis)
    return indexing.take(joined, np.insert(np.arange(dim), obj, dim + np.arange(count)), axis)


def piecewise(x: Node, condlist: Any, funclist: Sequence[Any]) -> Any:
    """Of each condition the function, or number, that goes with it; the last one elsewhere."""
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    values = [one(x) if callable(one) else creation.full_like(x, one) for one in funclist]
    default = values.pop() if len(values) == len(conditions) + 1 else creation.zeros_like(x)
    # The last condition that holds decides, unlike np.select.
    return select(conditions[::-1], values[::-1], default)


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Positions along each axis of positions in the flattened array."""
    places = []
    for dim in reversed(shape if isinstance(shape, (tuple, list)) else (shape,)):
        places.append(indices % dim)
        indices = indices // dim
    return tuple(reversed(places))


def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int]) -> Any:
    """Positions in the flattened array of positions along each axis."""
    found = multi_index[0]
    for place, dim in zip(multi_index[1:], dims[1:], strict=True):
        found = found * dim + place
    return found


def lexsort(keys: Any, axis: int = -1) -> Node:
    """Positions that sort by the last key, then by the one before it."""
    nodes = nodes_of(keys if isinstance(keys, (list, tuple)) else list(np.unstack(keys)))
    order = sorting.argsort(nodes[0], axis)
    for key in nodes[1:]:
        finer = sorting.argsort(take_along_axis(key, order, axis), axis)
        order = take_along_axis(order, finer, axis)
    return order


def union1d(ar1: Any, ar2: Any) -> Any:
    """The different values of two arrays."""
    return sorting.unique(shaping.concatenate([ar1, ar2], None))


def _among(ar1: Any, ar2: Any, invert: bool) -> Any:
    first, second = nodes_of((ar1, ar2))
    values = sorting.unique(first)
    return values[sorting.isin(values, second, invert=invert)]


def vdot(a: Any, b: Any) -> Any:
    """Sum of products of flattened arrays, the first conjugated."""
    left, right = nodes_of((a, b))
    return sum_of(conj(ravel(left)) * ravel(right))


def correlate(a: Any, v: Any, mode: str = "valid") -> Node:
    """Sums of products at every lag."""
    left, right = nodes_of((a, v))
    return sampled.convolve(left, conj(right[::-1]), mode)


def ediff1d(ary: Node, to_end: Any = None, to_begin: Any = None) -> Node:
    """Differences of neighbours in the flattened array, between other values."""
    around = [to_begin, diff(ravel(ary)), to_end]
    parts = nodes_of([part for part in around if part is not None])
    return shaping.concatenate([ravel(part) for part in parts], 0)


def _cumulative(running: Callable[..., Node], first: int) -> Callable[..., Node]:
    def cumulated(x: Node, *, axis: int | None = None, include_initial: bool = False) -> Node:
        if axis is None and x.ndim != 1:
            raise ShapeError(f"an axis is needed for {x!r}")
        axis = 0 if axis is None else axis
        found = running(x, axis)
        if not include_initial:
            return found
        begin = creation.full_like(x[_along(axis, x.ndim, slice(0, 1))], first)
        return shaping.concatenate([begin, found], axis)

    return cumulated


def polyval(p: Any, x: Any) -> Any:
    """A polynomial by its coefficients, that of the highest power first."""
    coefficients, places = nodes_of((p, x))
    if len(coefficients.dims) != 1 or not isinstance(coefficients.dims[0], int):
        raise ShapeError(f"np.polyval on nodes: the coefficients have one known dim, got {p!r}")
    found = creation.zeros_like(places)
    for i in range(coefficients.dims[0]):
        found = found * places + coefficients[i]
    return found


def _padded(first: Any, other: Any) -> Any:
    """Return two polynomials with zeros before the coefficients of the shorter one."""
    nodes = nodes_of((first, other))
    most = max(answer("size", node) for node in nodes)
    return [pad(node, (most - answer("size", node), 0)) for node in nodes]


def polyder(p: Node, m: int = 1) -> Node:
    """Derivative of a polynomial, `m` times."""
    for _ in range(m):
        p = p[:-1] * as_node(list(range(answer("size", p) - 1, 0, -1)), p)
    return p


def polyint(p: Node, m: int = 1) -> Node:
    """Integral of a polynomial, `m` times, each 0 at 0."""
    for _ in range(m):
        p = pad(p / as_node(list(range(answer("size", p), 0, -1)), p), (0, 1))
    return p


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True) -> Any:
    """Numbers evenly spaced on a logarithmic scale between two."""
    low, high = (elementwise.log(node) for node in nodes_of((start, stop)))
    return elementwise.exp(creation.linspace(low, low, high, num, endpoint))


EXTRAS: dict[str, Any] = {
    function.__name__: function
    for function in (
        array, block, broadcast_arrays, choose, compress, correlate, delete, ediff1d, extract,
        geomspace, insert, lexsort, piecewise, polyder, polyint, polyval, ravel_multi_index,
        real_if_close, union1d, unravel_index, unwrap, vdot,
    )
} | {
    "asarray": lambda a, dtype=None, order=None, *, copy=None: shaping.array(a, dtype),
    "asanyarray": lambda a, dtype=None, order=None, *, copy=None: shaping.array(a, dtype),
    "full": lambda shape, fill_value, dtype=None, order="C": (
        creation.full(fill_value, shape, fill_value, dtype)
    ),
    "array_equiv": lambda a1, a2: np.all(np.equal(*nodes_of((a1, a2)))),
    "logspace": lambda start, stop, num=50, endpoint=True, base=10.0: np.power(
        base, creation.linspace(node_of(start, stop), start, stop, num, endpoint)
    ),
    "isreal": lambda x: np.imag(x) == 0,
    "iscomplex": lambda x: np.imag(x) != 0,
    "isposinf": lambda x: isinf(x) & (x > 0),
    "isneginf": lambda x: isinf(x) & (x < 0),
    "fix": trunc,
    "intersect1d": lambda ar1, ar2: _among(ar1, ar2, invert=False),
    "setdiff1d": lambda ar1, ar2: _among(ar1, ar2, invert=True),
    "setxor1d": lambda ar1, ar2: union1d(_among(ar1, ar2, True), _among(ar2, ar1, True)),
    "unique_values": lambda x: sorting.unique(x),
    "unique_counts": lambda x: sorting.unique(x, return_counts=True),
    "unique_inverse": lambda x: sorting.unique(x, return_inverse=True),
    "unique_all": lambda x: sorting.unique(x, True, True, True),
    "polyadd": lambda a1, a2: np.add(*_padded(a1, a2)),
    "polymul": lambda a1, a2: sampled.convolve(a1, a2),
    "polysub": lambda a1, a2: np.subtract(*_padded(a1, a2)),
    "histogram_bin_edges": lambda a, bins=10, range=None: counting.histogram(a, bins, range)[1],
    "cumulative_prod": _cumulative(reductions.cumprod, 1),
    "cumulative_sum": _cumulative(reductions.cumsum, 0),
    "where": lambda condition, x=None, y=None: (
        sorting.nonzero(condition) if x is y is None else elementwise.where(condition, x, y)
    ),
}  # fmt: skip
"""By NumPy's name without ``numpy.``."""

ANSWERS = (np.iscomplexobj, np.isrealobj, np.ndim, np.shape, np.size)
"""Functions whose results follow from the type of a node."""

Function = Callable[..., Any]

_OWN = NUMPY_ONLY | EXTRAS

_UFUNC_ALIASES = {
    "degrees": "rad2deg", "fabs": "abs", "float_power": "float_power", "frexp": "frexp",
    "invert": "bitwise_not", "ldexp": "ldexp", "matmul": "matmul", "matvec": "matvec",
    "modf": "modf", "radians": "deg2rad", "vecdot": "vecdot", "vecmat": "vecmat",
}  # fmt: skip

# Parameters in NumPy's order: "ours=theirs" where the names differ, "-theirs" for what is refused,
# "~theirs" for what changes no result: every sort is stable, and nothing is overwritten.
_SHARED = {
    "x=a n axis norm -out": "fft.fft fft.hfft fft.ifft fft.ihfft fft.irfft fft.rfft",
    "x=a s axes norm -out": (
        "fft.fft2 fft.fftn fft.ifft2 fft.ifftn fft.irfft2 fft.irfftn fft.rfft2 fft.rfftn"
    ),
    "x=a axis -out keepdims where": "all any", "x=a axis -out keepdims":
    "argmax argmin nanargmax nanargmin", "x=a y=b rtol atol equal_nan": "allclose isclose",
    "x=a axis -out keepdims initial where": "amax amin max min nanmax nanmin",
    "x=a axis ~kind -order ~stable": "argsort sort", "x=a decimals -out": "around round",
    "x=a": (
        "argwhere flatnonzero linalg.det linalg.eig linalg.eigvals linalg.inv linalg.slogdet "
        "nonzero"
    ),
    "nodes=arrays axis -out -dtype -casting": "concatenate stack", "x=v k": "diag diagflat",
    "x=a axis -dtype -out": "cumprod cumsum nancumprod nancumsum", "x=a y=b -out": "dot outer",
    "x=a axis": "expand_dims squeeze", "x axes": "fft.fftshift fft.ifftshift",
    "x": "i0 linalg.svdvals sinc", "x=val": "imag real", "x=m k": "tril triu",
    "x=x1 y=x2 axis": "linalg.cross linalg.vecdot", "x=a UPLO": "linalg.eigh linalg.eigvalsh",
    "x=x1 y=x2": "linalg.matmul linalg.outer", "x=a axis -dtype -out keepdims where":
    "mean nanmean", "x=a axis -out ~overwrite_input keepdims": "median nanmedian",
    "x=a q axis -out ~overwrite_input method keepdims -weights":
        "nanpercentile nanquantile percentile quantile",
    "x=a axis -dtype -out keepdims initial where": "nanprod nansum prod sum",
    "x=a axis -dtype -out ddof keepdims where -mean ddof=correction": "nanstd nanvar std var",
    "x=a dtype -order -subok -shape -device": "ones_like zeros_like",
}  # fmt: skip
_PARAMETERS = {
    **{name: parameters for parameters, names in _SHARED.items() for name in names.split()},
    "angle": "x=z -deg", "array_equal": "x=a1 y=a2 equal_nan", "astype": "x dtype -copy -device",
    "average": "x=a axis weights returned keepdims", "bincount": "x weights minlength",
    "broadcast_to": "x=array shape -subok",
    "clip": "x=a low=a_min high=a_max -out low=min high=max", "convolve": "a v mode",
    "corrcoef": "x y rowvar -bias -ddof", "count_nonzero": "x=a axis keepdims",
    "cov": "x=m y rowvar bias ddof fweights aweights", "diagonal": "x=a offset axis1 axis2",
    "digitize": "x bins right", "empty_like": "x=prototype dtype -order -subok -shape -device",
    "flip": "x=m axis", "full_like": "x=a fill_value dtype -order -subok -shape -device",
    "histogram": "x=a bins range density weights", "interp": "x xp fp left right period",
    "isin": "x=element test=test_elements ~assume_unique invert ~kind", "kron": "x=a y=b",
    "linalg.cholesky": "x=a upper", "linalg.cond": "x p", "linalg.lstsq": "a b rcond",
    "linalg.matrix_norm": "x keepdims ord", "linalg.matrix_power": "x=a n",
    "linalg.matrix_rank": "x=A atol=tol hermitian rtol", "linalg.multi_dot": "arrays -out",
    "linalg.pinv": "x=a rtol=rcond hermitian rtol", "linalg.qr": "x=a mode", "linalg.solve": "a b",
    "linalg.tensordot": "x=x1 y=x2 axes", "linalg.tensorinv": "a ind",
    "linalg.tensorsolve": "a b axes", "linalg.vector_norm": "x axis keepdims ord",
    "moveaxis": "x=a source destination", "pad": "x=array pad_width mode constant_values",
    "ravel": "x=a -order", "repeat": "x=a repeats axis",
    "reshape": "x=a shape -order -newshape -copy", "roll": "x=a shift axis",
    "searchsorted": "ordered=a x=v side -sorter", "swapaxes": "x=a axis1 axis2",
    "take": "x=a indices axis -out -mode", "take_along_axis": "x=arr indices axis",
    "tensordot": "x=a y=b axes", "tile": "x=A reps", "trace": "x=a offset axis1 axis2 -dtype -out",
    "transpose": "x=a axes", "trapezoid": "y x dx axis",
    "unique": "x=ar return_index return_inverse return_counts -axis -equal_nan -sorted",
    "vander": "x n=N increasing",
}  # fmt: skip
_FUNCTION_ALIASES = {"amax": "max", "amin": "min", "around": "round", "empty_like": "zeros_like"}
# What a ufunc does along an axis: the function of its reduce, and of its accumulate.
_UFUNC_METHODS = {
    "add": ("sum", "cumsum"), "multiply": ("prod", "cumprod"), "maximum": ("max", "cummax"),
    "minimum": ("min", "cummin"), "fmax": ("nanmax", None), "fmin": ("nanmin", None),
    "logical_and": ("all", None), "logical_or": ("any", None),
}  # fmt: skip


class _Dispatch:
    """What NumPy's names mean on nodes."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self.ufuncs: dict[str, Function] = {"positive": _OWN["copy"]}
        for op in REGISTRY.values():
            if op.ufunc is not None:
                self.ufuncs[op.ufunc] = functions.get(op.name, partial(build, op))
        for alias, name in _UFUNC_ALIASES.items():
            self.ufuncs[alias] = functions[name]

    def nearest(self, name: str) -> str:
        """Tell which function of `ag.ops` has a name, here or in NumPy, near to this one."""
        targets = {name: name for name in self.functions}
        for alias, function in self.ufuncs.items():
            targets.setdefault(alias, getattr(function, "__name__", alias))
        # Part of a name is most of it, or the words in it would mislead: quantile holds tile.
        like = [
            (abs(len(known) - len(name)), known)
            for known in targets
            if (known in name or name in known)
            and 3 * min(len(known), len(name)) >= 2 * max(len(known), len(name))
        ]
        listed = "; docs/numpy.md lists what works on nodes"
        if not like:
            return f"{listed}; declare your own with ag.ops.define"
        target = targets[min(like)[1]]
        package = "ag.ops" if target in self.functions else "np"
        return f"; the nearest name is {package}.{target}{listed}"

    def ufunc(self, ufunc: np.ufunc, method: str, inputs: Any, given: Mapping[str, Any]) -> Any:
        """Build the node of a ufunc call, or the nodes."""
        name = ufunc.__name__
        if method != "__call__":
            return self.ufunc_method(name, method, inputs, given)
        if name == "divmod":
            return self.functions["floor_divide"](*inputs), self.functions["mod"](*inputs)
        target = self.ufuncs.get(name, self.functions.get(name))  # SciPy's have their op's name
        if target is None:
            raise GraphTypeError(f"np.{name} has no op{self.nearest(name)}")
        for parameter in given:
            raise GraphTypeError(_refusal(name, parameter))
        return target(*inputs)

    def ufunc_method(self, name: str, method: str, inputs: Any, given: Mapping[str, Any]) -> Node:
        """Build the node of a ufunc's reduce or accumulate, which run along axis 0 by default."""
        functions = _UFUNC_METHODS.get(name, (None, None))
        instead = functions[method == "accumulate"]
        if method not in ("reduce", "accumulate") or instead is None:
            raise GraphTypeError(f"np.{name}.{method} does not take nodes; use an op of ag.ops")
        x, *rest = inputs
        options = {"axis": rest[0] if rest else 0, **given}
        for parameter in options.keys() - {"axis", "keepdims", "initial", "where"}:
            raise GraphTypeError(_refusal(f"{name}.{method}", parameter))
        if not options.keys().isdisjoint(("initial", "where")):
            return reduce_where(instead, x, **options)
        found = self.functions[instead](x, **options)
        node: Node = found[0] if isinstance(found, tuple) else found
        return node

    def function(self, function: Function, args: Any, given: Mapping[str, Any]) -> Any:
        """Build the node of a call of another NumPy function."""
        name = function.__name__
        module = (getattr(function, "__module__", None) or "numpy").removeprefix("numpy")
        full = f"{module}.{name}".removeprefix(".")
        if full == "einsum":
            for parameter in given.keys() - {"optimize"}:
                raise GraphTypeError(_refusal(name, parameter))
            return self.functions[name](*args, **given)
        if full in _OWN:
            return _call_own(_OWN[full], full, args, given)
        if full not in _PARAMETERS:
            raise GraphTypeError(f"np.{full} has no op{self.nearest(name)}")
        target = self.functions[_FUNCTION_ALIASES.get(name, name)]
        return _call(target, full, args, given)


def _holds_node(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_node, value))
    return isinstance(value, Node)


def _refusal(name: str, parameter: str) -> str:
    advice = "; convert with .astype(...)" if parameter == "dtype" else ""
    if parameter in ("out", "where"):
        advice = "; a node is built, never written to: use the result"
    return f"np.{name} on nodes takes no {parameter}={advice}"


def _call(target: Function, name: str, args: Any, given: Mapping[str, Any]) -> Any:
    """Call `target` with NumPy's arguments under its own parameter names."""
    words = _PARAMETERS[name].split()
    theirs = [word.lstrip("-~").rpartition("=")[2] for word in words]
    ours = {their: word.partition("=")[0] for their, word in zip(theirs, words, strict=True)}
    if len(args) > len(theirs):
        raise GraphTypeError(f"np.{name} on nodes takes {len(theirs)} arguments, got {len(args)}")
    accepted: dict[str, Any] = {}
    for their, value in [*zip(theirs, args, strict=False), *given.items()]:
        own = ours.get(their, "-")
        if not own.startswith(("-", "~")):
            accepted[own] = value
        elif own[0] == "-" and value is not None and value is not np._NoValue:
            raise GraphTypeError(_refusal(name, their))
    if not accepted.keys().isdisjoint(("initial", "where")):
        return reduce_where(_FUNCTION_ALIASES.get(name, name), **accepted)
    if name == "reshape":
        return target(*accepted.values())
    _check_bound(name, target, (), accepted)
    return target(**accepted)


def _check_bound(name: str, target: Function, args: Any, given: Mapping[str, Any]) -> None:
    try:
        signature(target).bind(*args, **given)
    except TypeError as error:
        raise GraphTypeError(f"np.{name} on nodes: {error}") from None


def _call_own(target: Function, name: str, args: Any, given: Mapping[str, Any]) -> Any:
    """Call a function that has NumPy's signature without the parameters that it refuses."""
    known = signature(target).parameters
    for parameter, value in given.items():
        if parameter not in known and value is not None:
            raise GraphTypeError(_refusal(name, parameter))
    given = {parameter: value for parameter, value in given.items() if parameter in known}
    _check_bound(name, target, args, given)
    try:
        return target(*args, **given)
    except GraphError as error:
        raise named(error, f"np.{name}") from None


def names() -> list[str]:
    """Return the NumPy functions that build nodes, without ``numpy.``, sorted."""
    ufuncs = {op.ufunc for op in REGISTRY.values() if op.ufunc is not None and not op.checked}
    return sorted({*ufuncs, *_UFUNC_ALIASES, *_PARAMETERS, *_OWN, "einsum", "positive"})


def attach(functions: Mapping[str, Function]) -> None:
    """Make NumPy call the given functions of `ag.ops` (by name) for nodes."""
    dispatch = _Dispatch(functions)

    def array_ufunc(self: Node, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        return dispatch.ufunc(ufunc, method, inputs, given)

    def array_function(
        self: Node, function: Function, types: Any, args: Any, given: Mapping[str, Any]
    ) -> Any:
        if function in ANSWERS:
            return answer(function.__name__, *args, **given)
        if not all(issubclass(kind, (Node, np.ndarray)) for kind in types):
            return NotImplemented
        if not any(map(_holds_node, (*args, *given.values()))):
            # np.ones((2, 3), like=node)
            return self.graph.constant(function(*args, **given))
        return dispatch.function(function, args, given)

    for name, method in (("ufunc", array_ufunc), ("function", array_function)):
        setattr(Node, f"__array_{name}__", method)
