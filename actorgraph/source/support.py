"""Helpers of generated functions: sums of cotangents, their places in containers, checks.

None is a zero of any shape.  The cotangent of a list or tuple is a list, that of a dict a dict.

Behind them are the rules of functions that are no ops: of the helpers, so that generated functions
can be differentiated like others, of conversions, of Python's own functions, and the user's.  A
reverse rule is ``rule(ct, y, *args, **kwargs)`` and returns the cotangent of the only argument, or
one for each; None is a zero.  A forward rule is ``rule(tangents, y, *args, **kwargs)``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from actorgraph.errors import FeedError, GraphError, GraphTypeError, ShapeError, shown
from actorgraph.ops.broadcasting import _BROADCAST_LIKE, _SUM_LIKE
from actorgraph.options import is_masked

CHANGES = (
    "{} changes {}, and a change by a call has no gradient; assign the result of a function, or "
    "write into elements, or append, here"
)
_SMALL = 1024
"""So many elements are written faster than a view of one number is made."""
_ARRAYS = (np.ndarray, np.generic)
NUMBERS = (float, *_ARRAYS)


def sum_like(ct: Any, like: Any) -> Any:
    """Sum over broadcast axes, to the shape of `like`."""
    if isinstance(ct, list):
        raise GraphError("lists were added, which has no gradient here; append or extend instead")
    if isinstance(like, (list, tuple)):
        like = np.empty(np.shape(like))
    shape = getattr(like, "shape", ())
    return ct if getattr(ct, "shape", ()) == shape else _SUM_LIKE.forward(np, np.asarray(ct), like)


def broadcast_like(x: Any, like: Any) -> Any:
    """Broadcast to the shape of `like`."""
    if isinstance(like, (list, tuple)):
        return np.broadcast_to(x, np.shape(like))
    shape = getattr(like, "shape", ())
    given = getattr(x, "shape", ())
    if given == shape:
        return x
    if type(like) is not np.ndarray:
        plain(like, "an operand")
    if not given and like.size <= _SMALL:
        filled = np.empty(shape, getattr(x, "dtype", float))
        filled.fill(x)
        return filled
    return _BROADCAST_LIKE.forward(np, np.asarray(x), like)


def own(total: Any, part: Any) -> Any:
    """Add like `add`; the result may be written to, for nobody else refers to it."""
    if total is not None:
        return add(total, part)
    if isinstance(part, np.ndarray):
        return part.copy()
    if isinstance(part, (list, tuple)):
        return list(part)
    return dict(part) if isinstance(part, dict) else part


def add(total: Any, part: Any) -> Any:
    """Return the sum of two cotangents; containers are added element by element."""
    if part is None:
        return total
    if total is None:
        return part
    if isinstance(part, (list, tuple)) or isinstance(total, list):
        return [add(a, b) for a, b in zip_longest(total, part)]
    if isinstance(part, dict):
        return {key: add(total.get(key), part.get(key)) for key in {**total, **part}}
    return total + part


def zero_of(value: Any) -> Any:
    """Return the zero tangent of a value, None if it can have no tangent."""
    if isinstance(value, np.ndarray):
        return np.zeros_like(value) if value.dtype.kind == "f" else np.zeros(value.shape)
    if isinstance(value, (list, tuple)):
        return [zero_of(part) for part in value]
    if isinstance(value, dict):
        return {key: zero_of(part) for key, part in value.items()}
    if isinstance(value, (bool, str)):
        return None
    number: Any = value
    return number * 0.0 if isinstance(value, (int, *NUMBERS)) else None


def _zeros(value: Any) -> Any:
    """Return a zero cotangent to write into."""
    if isinstance(value, (list, tuple)):
        return [None] * len(value)
    return zero_of(plain(value, "an operand")) if isinstance(value, np.ndarray) else {}


def _get(value: Any, index: Any) -> Any:
    if isinstance(value, dict):
        return value.get(index)
    return value[index]


def _is_basic(index: Any) -> bool:
    parts = index if type(index) is tuple else (index,)
    return all(p is None or p is Ellipsis or isinstance(p, (int, slice, np.integer)) for p in parts)


def add_at(total: Any, value: Any, index: Any, part: Any) -> Any:
    """Add the cotangent of ``value[index]`` to that of `value`, in place if there is one."""
    if part is None:
        return total
    if total is None:
        total = _zeros(value)
    if not isinstance(total, np.ndarray):
        if isinstance(index, slice):
            for place, element in zip(range(len(total))[index], part, strict=True):
                total[place] = add(total[place], element)
        else:
            total[index] = add(_get(total, index), part)
    elif _is_basic(index):
        total[index] += part
    else:
        np.add.at(total, index, part)
    return total


def added_at(total: Any, value: Any, index: Any, part: Any) -> Any:
    """Do as `add_at`, on a copy; for derivatives of generated functions."""
    return add_at(None if total is None else own(None, total), value, index, part)


def item_of(total: Any, index: Any) -> Any:
    """Return the element `index` of a cotangent or tangent."""
    part = None if total is None else _get(total, index)
    return part.copy() if isinstance(part, np.ndarray) else part


def cleared(total: Any, index: Any) -> Any:
    """Set a cotangent to zero at `index`, in place: that element is overwritten later."""
    if isinstance(total, dict):
        total.pop(index, None)
    elif total is not None:
        total[index] = 0.0 if isinstance(total, np.ndarray) else None
    return total


def newly_cleared(total: Any, index: Any) -> Any:
    """Do as `cleared`, on a copy."""
    return None if total is None else cleared(own(None, total), index)


def _last_written(part: Any, shape: Any, index: Any) -> Any:
    """Set elements of ``total[index]`` to zero that a write to this index does not leave there."""
    if isinstance(part, np.ndarray) and not _is_basic(index):
        numbers = np.arange(part.size).reshape(part.shape)
        left = np.empty(shape, np.intp)
        left[index] = numbers
        part = np.where(left[index] == numbers, part, part.dtype.type(0))
    return part


def written_of(total: Any, index: Any, value: Any) -> Any:
    """Return the cotangent of a value that was written to ``y[index]``, of y's cotangent."""
    part = item_of(total, index)
    if isinstance(total, np.ndarray):
        return split_like(_last_written(part, total.shape, index), value)
    return part


def unwritten(ct: Any, total: Any, index: Any) -> Any:
    """Return the cotangent of y's cotangent in `written_of`."""
    if ct is None or not isinstance(total, np.ndarray):
        return added_at(None, total, index, ct)
    wide = np.broadcast_to(np.array(ct), total[index].shape)
    return added_at(None, total, index, _last_written(wide, total.shape, index))


def concatenated(one: Any, other: Any) -> Any:
    """Return the sum of two values, which may be lists."""
    return one + other


def concatenated_adjoint(ct: Any, y: Any, one: Any, other: Any) -> Any:
    """Return the cotangents of the operands of a sum, which may be of lists."""
    if isinstance(y, (list, tuple)):
        return ct[: len(one)], ct[len(one) :]
    return split_like(ct, one), split_like(ct, other)


def concatenated_tangent(tans: Any, y: Any, one: Any, other: Any) -> Any:
    """Return the tangent of a sum, which may be of lists."""
    if isinstance(y, (list, tuple)):
        return [*tans[0], *tans[1]]
    return broadcast_like(np.array(tans[0]) + np.array(tans[1]), y)


def snapshot(*values: Any) -> list[Any]:
    """Return copies of arrays and containers, for `has_changed`."""
    return [
        value.copy() if isinstance(value, np.ndarray)
        else snapshot(*value) if isinstance(value, (list, tuple))
        else set(value) if isinstance(value, set)
        else dict(zip(value, snapshot(*value.values()), strict=True)) if isinstance(value, dict)
        else list(value) if isinstance(value, deque)
        else (value, dict(vars(value)))
        if hasattr(value, "__dict__")  # of a class of the user's, with attributes that may change
        and type(value).__module__.split(".")[0] not in ("builtins", "actorgraph")
        else value
        for value in values
    ]  # fmt: skip


def unchanged(function: Any, line: str, names: list[str], *values: Any) -> Any:
    """Return a function that raises if it changes arrays and containers among the values."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        before = snapshot(*values)
        result = function(*args, **kwargs)
        for name, old, new in zip(names, before, values, strict=True):
            if has_changed(old, new):
                raise GraphError(CHANGES.format(line, name))
        return result

    return checked


def has_changed(old: Any, new: Any) -> bool:
    """Return whether a value is no longer as it was at its `snapshot`."""
    if isinstance(new, set):
        return bool(old != new)
    if isinstance(new, np.ndarray):
        return bool(old.shape != new.shape or np.any((old != new) & (old == old)))
    if isinstance(new, (list, tuple, deque)):
        return len(old) != len(new) or any(map(has_changed, old, new))
    if isinstance(new, dict):
        return [*old] != [*new] or any(map(has_changed, old.values(), new.values()))
    if isinstance(old, tuple):  # an object and its attributes
        return old[0] is not new or has_changed(old[1], vars(new))
    return old is not new


def overwritten(value: Any, index: Any) -> Any:
    """Return a copy of the element that a write to ``value[index]`` will lose."""
    if isinstance(value, list) and isinstance(index, slice):
        raise GraphError("a slice of a list was assigned, which has no gradient; make a new list")
    if isinstance(value, dict):
        return value.get(index)
    element = value[index]
    return element.copy() if isinstance(element, np.ndarray) else element


def last_of(total: Any) -> Any:
    """Return the cotangent of the element appended last."""
    return total[-1] if total else None


def shortened(total: Any) -> Any:
    """Return the cotangent of a list before its last append."""
    return total[:-1] if total else None


def pushed(total: Any, part: Any, value: Any) -> Any:
    """Return the cotangent of a list before its last element, of cotangent `part`, was popped.

    `value` is the list with that element, None for a tape, which is always emptied.
    """
    if total is None:
        total = [] if value is None else [None] * (len(value) - 1)
    return [*total, part]


def split_like(ct: Any, value: Any) -> Any:
    """Return the cotangents of the elements of which an array was made, and broadcast."""
    if isinstance(value, (list, tuple)):
        ct = sum_like(np.atleast_1d(ct), np.empty(np.shape(value)))
        return [split_like(ct[i], part) for i, part in enumerate(value)]
    lead = np.ndim(value) - np.ndim(ct)  # axes of one element, left out in a write
    return sum_like(np.reshape(ct, (1,) * lead + np.shape(ct)) if lead > 0 else ct, value)


def join_like(cts: Any, value: Any) -> Any:
    """Return the cotangent of an array from which a list was made; keys of a dict have none."""
    if cts is None or isinstance(value, (list, tuple, dict)):
        return None if isinstance(value, dict) else cts
    parts = [np.zeros_like(value[i]) if ct is None else ct for i, ct in enumerate(cts)]
    return np.array(parts)


def refuse_array(value: Any, name: str) -> Any:
    """Return a number, or raise for an array that others may refer to."""
    if isinstance(value, (np.ndarray, list)):
        what = "an array" if isinstance(value, np.ndarray) else "a list"
        raise GraphError(
            f"{name} is {what} that an argument or another name may refer to, and an augmented "
            f"assignment writes into it; write {name} = {name} + ... or copy it first"
        )
    return value


def refuse_element(base: Any, index: Any, name: str) -> None:
    """Raise for an array in a container, which others may refer to."""
    if isinstance(base, (list, dict)):
        refuse_array(base[index], name)


def is_whole(value: Any) -> bool:
    """Return whether a value is of integers or bools, which a derivative does not pass."""
    return isinstance(value, _ARRAYS) and value.dtype.kind in "iub"


def refuse_whole(value: Any, name: str) -> None:
    """Raise for an array of integers, which cuts off what is written to it."""
    if is_whole(value):
        raise GraphError(
            f"{name} is {value.dtype}, and a write into it cuts a number off, which has no "
            f"gradient; make it of floats: {name} = {name}.astype(float)"
        )


def refuse_dict(value: Any, name: str) -> None:
    """Raise for a dict whose keys are taken one by one, as elements are."""
    if isinstance(value, dict):
        raise GraphError(f"{name} is a dict, whose keys have no gradient; write {name}.keys()")


def refuse_list(value: Any) -> Any:
    """Return the product of an array and a list, or raise if a number repeated the list."""
    if isinstance(value, (list, tuple)):
        raise GraphError("a list was repeated, which has no gradient; write a list comprehension")
    return value


def refuse_same(result: Any, value: Any, name: str, call: str) -> None:
    """Raise for the result of a call that is, or shows memory of, a value that changes."""
    if isinstance(result, (list, tuple, dict)) and result is not value:
        for part in result.values() if isinstance(result, dict) else result:
            refuse_same(part, value, name, call)
    both = isinstance(result, np.ndarray) and isinstance(value, np.ndarray)
    same = result is value and isinstance(value, (list, dict))
    if same or (both and np.may_share_memory(result, value)):
        raise GraphError(f"{call} returns {name} itself, which is written to; return a copy of it")


def refuse_view(value: Any, name: str, source: str) -> Any:
    """Return an element, or raise for a view of an array that is written to later."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(part, np.ndarray) and part.base is not None for part in parts):
        raise GraphError(f"{name} is a view of {source}, which is written to; copy it: .copy()")
    return value


def plain(value: Any, what: str) -> Any:
    """Return a value, or raise for an array whose arithmetic is not that of the rules."""
    if type(value) is np.ndarray:
        return value
    if (masked := is_masked(value)) or isinstance(value, np.matrix):
        kind, way = ("masked array", ".filled(...)") if masked else ("matrix", "np.asarray(...)")
        raise FeedError(f"{what} is a {kind}, which has no gradient here; give an array: {way}")
    return value


def differentiable(value: Any, name: str) -> None:
    """Raise `GraphTypeError` for a value without a gradient."""
    if isinstance(value, (list, tuple)):
        for part in value:
            differentiable(part, name)
    elif isinstance(value, dict):
        differentiable(list(value.values()), name)
    elif isinstance(value, _ARRAYS) and plain(value, name).dtype.kind == "f":
        return
    elif not isinstance(value, float):
        what = value.dtype if isinstance(value, _ARRAYS) else type(value).__name__
        raise GraphTypeError(
            f"argument {name} is {shown(value)} ({what}), which has no gradient here; pass a float "
            "or an array of floats (of complex ones ag.grad), or choose another wrt"
        )


def check_inputs(**values: Any) -> None:
    """Raise `GraphTypeError` for an argument without a gradient."""
    for name, value in values.items():
        differentiable(value, name)


def fitting(seed: Any, value: Any, what: str, default: str, check: bool) -> Any:
    """Return the seed (or tangent), or its default; raise if its shape is wrong."""
    plain(value, "the result")
    if seed is None:
        if default == "required":
            raise FeedError(f"the {what} has to be given")
        shape = value.shape if isinstance(value, np.generic) else np.shape(value)
        if default == "one" and shape:
            raise ShapeError(
                f"the {what} has to be given: the value has shape {np.shape(value)} and is not a "
                "scalar; or return its sum, or pass input_derivative=ag.source.DefaultOnes"
            )
        return np.ones_like(value) if shape else 1.0
    if check and isinstance(value, NUMBERS) and np.shape(seed) != np.shape(value):
        raise ShapeError(
            f"shape mismatch between a value {np.shape(value)} and its {what} {np.shape(seed)}"
        )
    return seed


def finished(ct: Any, value: Any) -> Any:
    """Return the gradient of an argument, with its shape and dtype; zeros for None."""
    if isinstance(value, (list, tuple)):
        parts = [None] * len(value) if ct is None else ct
        gradients = [finished(one, part) for one, part in zip(parts, value, strict=True)]
        if hasattr(value, "_fields"):
            return type(value)(*gradients)
        return gradients if isinstance(value, list) else tuple(gradients)
    if isinstance(value, dict):
        return {key: finished(item_of(ct, key), part) for key, part in value.items()}
    if ct is None:
        return zero_of(value)
    if isinstance(plain(value, "the result"), np.ndarray):
        if type(ct) is not np.ndarray or ct.shape != value.shape or not ct.flags.writeable:
            ct = np.array(np.broadcast_to(ct, value.shape))
        if ct.dtype is not value.dtype:
            _refuse_complex(ct)
            ct = ct.astype(value.dtype)
    elif isinstance(ct, _ARRAYS) and ct.dtype.kind == "c":
        _refuse_complex(ct)
    return ct


def _refuse_complex(ct: Any) -> None:
    if ct.dtype.kind == "c":
        raise GraphTypeError("intermediate complex numbers have no gradient here; use ag.grad")


# -- rules of functions that are no ops -----------------------------------------------------------

Rule = Callable[..., Any]
ADJOINTS: dict[Any, Rule] = {}
"""The reverse rule of a function."""
TANGENTS: dict[Any, Rule] = {}
"""The forward rule of a function."""
LINEAR: set[Any] = set()
"""Functions of one active argument, the first."""
PURE: dict[Any, Rule] = {add_at: added_at, cleared: newly_cleared}
"""For each helper that writes in place, the one to differentiate instead."""


def _linear(function: Any, adjoint: Rule, tangent: Rule | None = None) -> None:
    """Declare a function that is linear in its first argument and constant in the others.

    Its reverse rule returns the cotangent of that argument alone.
    """
    ADJOINTS[function] = adjoint
    LINEAR.add(function)
    apply = tangent or function

    def rule(tans: Any, y: Any, x: Any, *rest: Any, **kwargs: Any) -> Any:
        if is_whole(y):
            return zero_of(y)
        return None if tans[0] is None else apply(tans[0], *rest, **kwargs)

    TANGENTS[function] = rule


def astype(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``x.astype(...)``, the method as a function."""
    return x.astype(*args, **kwargs)


def copy(x: Any) -> Any:
    """Return ``x.copy()``, the method as a function."""
    return x.copy()


METHODS: dict[str, Rule] = {"astype": astype, "copy": copy, "__array__": np.array}
"""Methods of arrays that are not NumPy functions."""


for _function in (np.array, np.asarray, np.ascontiguousarray, np.copy, float, np.float64, astype):
    _linear(_function, lambda ct, y, x, *rest, **kw: None if is_whole(y) else split_like(ct, x))
_linear(copy, lambda ct, y, x: ct, lambda tan: own(None, tan))
for _display in (list, tuple):  # keys of a dict have no tangent
    _linear(_display, lambda ct, y, x: join_like(ct, x),
            lambda tan: zero_of([*tan]) if isinstance(tan, dict) else [*tan])  # fmt: skip
_linear(sum_like, lambda ct, y, x, like: broadcast_like(ct, x))
_linear(broadcast_like, lambda ct, y, x, like: sum_like(ct, x))
_linear(split_like, lambda ct, y, x, value: np.array(ct))
_linear(join_like, lambda ct, y, x, value: split_like(ct, x))
_linear(item_of, lambda ct, y, x, index: added_at(None, x, index, ct))
_linear(written_of, lambda ct, y, x, index, value: unwritten(ct, x, index))
ADJOINTS[concatenated] = concatenated_adjoint
TANGENTS[concatenated] = concatenated_tangent
_linear(overwritten, lambda ct, y, x, index: added_at(None, x, index, ct), item_of)
_linear(newly_cleared, lambda ct, y, x, index: newly_cleared(ct, index))
_linear(last_of, lambda ct, y, x: [None] * (len(x) - 1) + [ct])
_linear(shortened, lambda ct, y, x: None if ct is None else pushed(ct, None, None))
_linear(finished, lambda ct, y, x, value: ct)
_linear(fitting, lambda ct, y, x, value, what, default, check: ct)
_linear(refuse_view, lambda ct, y, x, name, source: ct, lambda t, name, source: t)
TANGENTS[fitting] = lambda tans, y, seed, value, what, default, check: (
    zero_of(y) if tans[0] is None else tans[0]
)
for _sum_of in (add, own):
    ADJOINTS[_sum_of] = lambda ct, y, total, part: (ct, ct)
    TANGENTS[_sum_of] = lambda tans, y, total, part: add(tans[0], tans[1])
ADJOINTS[np.full] = lambda ct, y, shape, value, *rest, **kwargs: (
    None, None if is_whole(y) else sum_like(ct, value), *[None] * len(rest),
)  # fmt: skip
TANGENTS[np.full] = lambda tans, y, *rest, **kwargs: (
    zero_of(y) if is_whole(y) else broadcast_like(np.array(tans[1]), y)
)
ADJOINTS[pushed] = lambda ct, y, total, part, value: (shortened(ct), last_of(ct), None)
TANGENTS[pushed] = lambda tans, y, total, part, value: pushed(tans[0], tans[1], value)
ADJOINTS[added_at] = lambda ct, y, total, value, index, part: (ct, None, None, item_of(ct, index))
TANGENTS[added_at] = lambda tans, y, total, value, index, part: added_at(
    tans[0], value, index, tans[3]
)


# -- Python's own functions, as sources to differentiate ------------------------------------------


def _sum(items: Any, start: Any = 0) -> Any:
    total = start
    for item in items:
        total = total + item
    return total


def _largest(*items: Any) -> Any:
    given = items[0] if len(items) == 1 else items
    best = given[0]
    for item in given:
        if item > best:
            best = item
    return best


def _smallest(*items: Any) -> Any:
    given = items[0] if len(items) == 1 else items
    best = given[0]
    for item in given:
        if item < best:
            best = item
    return best


SOURCES: dict[Any, Rule] = {sum: _sum, max: _largest, min: _smallest}
"""The source above for each of Python's functions."""
