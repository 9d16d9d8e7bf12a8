"""NumPy functions applied to nodes build nodes: ``np.tanh(x @ W)``, ``np.sum(x, axis=0)``.

NumPy asks `__array_ufunc__` and `__array_function__` (NEP 13 and 18) of any argument that has
them.  A ufunc finds its op by `Op.ufunc`; other functions stand in one table below with their
parameters in NumPy's order, or in `_numpy_names` under NumPy's signature.  What has no op raises,
with the name of the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from actorgraph.errors import GraphTypeError
from actorgraph.graph import Node, build
from actorgraph.op import REGISTRY
from actorgraph.ops._numpy_extras import ANSWERS, EXTRAS, answer
from actorgraph.ops._numpy_names import NUMPY_ONLY
from actorgraph.ops.counting import reduce_where

__all__ = ["attach", "names"]

Function = Callable[..., Any]

_OWN = NUMPY_ONLY | EXTRAS

_UFUNC_ALIASES = {
    "degrees": "rad2deg", "fabs": "abs", "float_power": "float_power", "frexp": "frexp",
    "invert": "bitwise_not", "ldexp": "ldexp", "matmul": "matmul", "matvec": "matvec",
    "modf": "modf", "radians": "deg2rad", "vecdot": "vecdot", "vecmat": "vecmat",
}  # fmt: skip

_REDUCTION = "x=a axis -dtype -out keepdims initial where"
_MEAN = "x=a axis -dtype -out keepdims where"
_EXTREMUM = "x=a axis -out keepdims initial where"
_TEST = "x=a axis -out keepdims where"
_POSITION = "x=a axis -out keepdims"
_RUNNING = "x=a axis -dtype -out"
_SPREAD = "x=a axis -dtype -out ddof keepdims where -mean ddof=correction"
_QUANTILE = "x=a q axis -out ~overwrite_input method keepdims -weights"
_FFT = "x=a n axis norm -out"
_FFTN = "x=a s axes norm -out"
_JOIN = "nodes=arrays axis -out -dtype -casting"

# Parameters in NumPy's order: "ours=theirs" where the names differ, "-theirs" for what is refused,
# "~theirs" for what changes no result: every sort is stable, and nothing is overwritten.
_PARAMETERS = {
    "angle": "x=z -deg",
    "array_equal": "x=a1 y=a2 equal_nan",
    "astype": "x dtype -copy -device",
    "average": "x=a axis weights returned keepdims",
    "bincount": "x weights minlength",
    "broadcast_to": "x=array shape -subok",
    "clip": "x=a low=a_min high=a_max -out low=min high=max",
    "convolve": "a v mode",
    "corrcoef": "x y rowvar -bias -ddof",
    "count_nonzero": "x=a axis keepdims",
    "cov": "x=m y rowvar bias ddof fweights aweights",
    "diagonal": "x=a offset axis1 axis2",
    "digitize": "x bins right",
    "empty_like": "x=prototype dtype -order -subok -shape -device",
    "flip": "x=m axis",
    "full_like": "x=a fill_value dtype -order -subok -shape -device",
    "histogram": "x=a bins range density weights",
    "interp": "x xp fp left right period",
    "isin": "x=element test=test_elements ~assume_unique invert ~kind",
    "kron": "x=a y=b",
    "linalg.cholesky": "x=a upper",
    "linalg.cond": "x p",
    "linalg.lstsq": "a b rcond",
    "linalg.matrix_norm": "x keepdims ord",
    "linalg.matrix_power": "x=a n",
    "linalg.matrix_rank": "x=A atol=tol hermitian rtol",
    "linalg.multi_dot": "arrays -out",
    "linalg.pinv": "x=a rtol=rcond hermitian rtol",
    "linalg.qr": "x=a mode",
    "linalg.solve": "a b",
    "linalg.tensordot": "x=x1 y=x2 axes",
    "linalg.tensorinv": "a ind",
    "linalg.tensorsolve": "a b axes",
    "linalg.vector_norm": "x axis keepdims ord",
    "moveaxis": "x=a source destination",
    "pad": "x=array pad_width mode constant_values",
    "ravel": "x=a -order",
    "repeat": "x=a repeats axis",
    "reshape": "x=a shape -order -newshape -copy",
    "roll": "x=a shift axis",
    "searchsorted": "ordered=a x=v side -sorter",
    "swapaxes": "x=a axis1 axis2",
    "take": "x=a indices axis -out -mode",
    "take_along_axis": "x=arr indices axis",
    "tensordot": "x=a y=b axes",
    "tile": "x=A reps",
    "trace": "x=a offset axis1 axis2 -dtype -out",
    "transpose": "x=a axes",
    "trapezoid": "y x dx axis",
    "unique": "x=ar return_index return_inverse return_counts -axis -equal_nan -sorted",
    "vander": "x n=N increasing",
    **{f"fft.{name}": _FFT for name in "fft hfft ifft ihfft irfft rfft".split()},
    **{f"fft.{name}": _FFTN for name in "fft2 fftn ifft2 ifftn irfft2 irfftn rfft2 rfftn".split()},
    **dict.fromkeys("all any".split(), _TEST),
    **dict.fromkeys("allclose isclose".split(), "x=a y=b rtol atol equal_nan"),
    **dict.fromkeys("amax amin max min nanmax nanmin".split(), _EXTREMUM),
    **dict.fromkeys("argmax argmin nanargmax nanargmin".split(), _POSITION),
    **dict.fromkeys("argsort sort".split(), "x=a axis ~kind -order ~stable"),
    **dict.fromkeys(
        (
            "argwhere flatnonzero linalg.det linalg.eig linalg.eigvals linalg.inv linalg.slogdet "
            "nonzero"
        ).split(),
        "x=a",
    ),
    **dict.fromkeys("around round".split(), "x=a decimals -out"),
    **dict.fromkeys("concatenate stack".split(), _JOIN),
    **dict.fromkeys("cumprod cumsum nancumprod nancumsum".split(), _RUNNING),
    **dict.fromkeys("diag diagflat".split(), "x=v k"),
    **dict.fromkeys("dot outer".split(), "x=a y=b -out"),
    **dict.fromkeys("expand_dims squeeze".split(), "x=a axis"),
    **dict.fromkeys("fft.fftshift fft.ifftshift".split(), "x axes"),
    **dict.fromkeys("i0 linalg.svdvals sinc".split(), "x"),
    **dict.fromkeys("imag real".split(), "x=val"),
    **dict.fromkeys("linalg.cross linalg.vecdot".split(), "x=x1 y=x2 axis"),
    **dict.fromkeys("linalg.eigh linalg.eigvalsh".split(), "x=a UPLO"),
    **dict.fromkeys("linalg.matmul linalg.outer".split(), "x=x1 y=x2"),
    **dict.fromkeys("mean nanmean".split(), _MEAN),
    **dict.fromkeys("median nanmedian".split(), "x=a axis -out ~overwrite_input keepdims"),
    **dict.fromkeys("nanpercentile nanquantile percentile quantile".split(), _QUANTILE),
    **dict.fromkeys("nanprod nansum prod sum".split(), _REDUCTION),
    **dict.fromkeys("nanstd nanvar std var".split(), _SPREAD),
    **dict.fromkeys("ones_like zeros_like".split(), "x=a dtype -order -subok -shape -device"),
    **dict.fromkeys("tril triu".split(), "x=m k"),
}
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
        self.ufuncs: dict[str, Function] = {"positive": _same}
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


def _same(x: Node) -> Node:
    return x


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
    try:
        signature(target).bind(**accepted)
    except TypeError as error:
        raise GraphTypeError(f"np.{name} on nodes: {error}") from None
    return target(**accepted)


def _call_own(target: Function, name: str, args: Any, given: Mapping[str, Any]) -> Any:
    """Call a function that has NumPy's own signature, but for what it refuses."""
    known = signature(target).parameters
    for parameter, value in given.items():
        if parameter not in known and value is not None:
            raise GraphTypeError(_refusal(name, parameter))
    given = {parameter: value for parameter, value in given.items() if parameter in known}
    try:
        signature(target).bind(*args, **given)
    except TypeError as error:
        raise GraphTypeError(f"np.{name} on nodes: {error}") from None
    return target(*args, **given)


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

    for name, method in {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
    }.items():
        setattr(Node, name, method)
